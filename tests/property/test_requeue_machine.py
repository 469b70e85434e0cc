"""Only a run that saved is requeued; jobs that make room together are requeued all or none."""

from __future__ import annotations

import contextlib
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from slurm_ltgf.checkpoint.protocol import Mode, Phase, Record
from slurm_ltgf.core.move import Goal, Move, State

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from move_world import OWN, Killed, Site
from test_move_laws import scenario

ROOM_FOR = 99


def site_of(folder: Path, job_id: int, first: Site | None) -> Site:
    """A job of one Slurm, and a helper whose files it shares."""
    site = Site(folder / str(job_id), per_node=10, per_filesystem=10)
    site.slurm.job_id = job_id
    site.board.enter(Record(job_id, OWN, 0, Mode.APP, site.ckpt))
    site.job.say(Phase.READY)
    if first:
        site.files = first.files
    watch(site)
    return site


def watch(site: Site) -> None:
    """Fail at a requeue of a run that has not saved for the very ask that it is requeued by."""
    saved: set[tuple[int, str]] = set()
    say, told = site.job.say, site.slurm.requeue

    def says(phase: Phase, ask: str = "", **more: object) -> None:
        if phase is Phase.SAVED:
            saved.add((site.slurm.restart, ask))
        say(phase, ask, **more)

    def requeue(name: str) -> None:
        move = site.files.read(site.slurm.job_id)
        assert move is not None
        assert (site.slurm.restart, move.ask) in saved, move
        assert site.slurm.now <= move.hold_until, move
        told(name)

    site.job.say, site.slurm.requeue = says, requeue


def begun(sites: list[Site], chance: random.Random) -> list[Move]:
    """The moves that began: the helper may be killed in between."""
    killed_after = chance.choice([*range(1, len(sites)), None, None, None])
    return [site.begin(to_job=ROOM_FOR, together=len(sites)) for site in sites[:killed_after]]


def play(sites: list[Site], moves: list[Move], chance: random.Random) -> list[Move]:
    for _ in range(200):
        for site in sites:
            site.tick()
        for i, (site, move) in enumerate(zip(sites, moves, strict=False)):
            assert site.job.holds is None or site.slurm.now <= site.job.holds.hold_until
            site.kill_at = site.acts + chance.randint(1, 4) if chance.random() < 0.3 else None
            with contextlib.suppress(Killed):
                moves[i] = site.go_on(move)
            site.kill_at = None
        if all(move.state.is_end for move in moves):
            return moves
    raise AssertionError(f"no end: {moves}")


def test_only_a_run_that_saved_for_this_ask_is_requeued_and_only_while_it_holds(
    tmp_path: Path,
) -> None:
    requeued = 0
    for seed in range(1000, 1150):
        site = Site(tmp_path / str(seed))
        watch(site)
        scenario(site, random.Random(seed))
        requeued += sum(site.slurm.requeued_by_us.values())
    assert requeued > 20


@pytest.mark.parametrize("part", range(4))
def test_all_are_requeued_or_none_and_nobody_is_left_holding(tmp_path: Path, part: int) -> None:
    found: Counter[str] = Counter()
    for seed in range(part * 25, part * 25 + 25):
        chance = random.Random(seed)
        sites: list[Site] = []
        for job_id in range(7, 7 + chance.randint(2, 4)):
            site = site_of(tmp_path / str(seed), job_id, sites[0] if sites else None)
            site.job.takes_s = chance.choices([0, 2, 9, 15, None], [4, 4, 4, 2, 1])[0]
            site.job.fails = chance.random() < 0.1
            sites.append(site)
        moves = begun(sites, chance)
        if chance.random() < 0.3:
            sites[0].slurm.away_until = sites[0].slurm.now + chance.randint(1, 8)
        moves = play(sites, moves, chance)
        ends = Counter(move.state for move in moves)
        requeued = [site.slurm.requeued_by_us for site in sites]
        assert requeued in ([{0: 1}] * len(sites), [{}] * len(sites)), (seed, moves)
        assert all(move.why for move in moves), seed
        for site in sites:
            site.tick()
            site.tick()
            assert site.job.holds is None, (seed, moves)
        found["all" if ends[State.REQUEUED] == len(sites) else "none"] += 1
        assert ends[State.REQUEUED] in (0, len(sites)), (seed, moves)
    assert min(found["all"], found["none"]) > 5, found


def test_a_group_of_which_one_never_began_is_given_up_soon(tmp_path: Path) -> None:
    first = site_of(tmp_path, 7, None)
    move = first.begin(Goal.REQUEUE, to_job=ROOM_FOR, together=2)
    move = first.to_the_end(move)
    assert move.state is State.FAILED
    assert move.why.endswith("the job runs on: not all that were to make room could")
    assert move.ended_at - move.began < 40
    first.tick()
    assert (first.job.holds, first.slurm.requeued_by_us) == (None, {})
