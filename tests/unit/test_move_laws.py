"""Whatever happens to a job, Slurm and the helper: no run is requeued twice, or left holding."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from move_world import OWN, Killed, Site

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.protocol import Answer, Phase
from slurm_ltgf.core.move import Goal, Move, State
from slurm_ltgf.store.moves import MoveFiles

GOALS = [Goal.REQUEUE, Goal.REQUEUE, Goal.CHECKPOINT, Goal.PAUSE]


def away(site: Site, chance: random.Random) -> None:
    site.slurm.away_until = site.slurm.now + chance.randint(1, 20)


def hidden(site: Site, chance: random.Random) -> None:
    site.slurm.hidden_until = site.slurm.now + chance.randint(1, 20)


def requeued(site: Site, _: random.Random) -> None:
    site.slurm.begin_requeue()


def ends(site: Site, chance: random.Random) -> None:
    if site.slurm.state == "RUNNING":
        site.slurm.state = chance.choice(["COMPLETED", "FAILED", "CANCELLED", "PREEMPTED", "GONE"])


def suspended(site: Site, _: random.Random) -> None:
    if site.slurm.state == "RUNNING":
        site.slurm.state = "SUSPENDED"


def runs(site: Site, _: random.Random) -> None:
    if site.slurm.state in ("SUSPENDED", "PENDING"):
        site.slurm.state = "RUNNING"


def answer_lost(site: Site, _: random.Random) -> None:
    (site.board.folder / f"7.{OWN}.answer").unlink(missing_ok=True)


def answer_of_another_run(site: Site, _: random.Random) -> None:
    if site.slurm.restart:
        old = Answer(7, site.slurm.restart - 1, Phase.SAVED, "old", time=site.slurm.now)
        site.board.say(old)


#: What may happen in any second, and how often in a hundred.
DISTURBANCES = {
    away: 4, hidden: 3, requeued: 1, ends: 1, suspended: 3, runs: 6, answer_lost: 1,
    answer_of_another_run: 1,
}  # fmt: skip


def scenario(site: Site, chance: random.Random) -> Move:
    """One move, with a helper that is killed in a third of its looks, until it has ended."""
    site.job.takes_s = chance.choice([0, 1, 2, 5, 15, 19, 25, None])
    site.job.fails = chance.random() < 0.1
    site.slurm.refuses = chance.random() < 0.05
    move = site.begin(chance.choice(GOALS))
    for _ in range(400):
        site.tick()
        if chance.random() < 0.2:
            (what,) = chance.choices([*DISTURBANCES], [*DISTURBANCES.values()])
            what(site, chance)
        holds = site.job.holds
        assert holds is None or site.slurm.now <= holds.hold_until
        if chance.random() < 0.1:
            continue
        site.kill_at = site.acts + chance.randint(1, 6) if chance.random() < 0.4 else None
        try:
            move = site.go_on(move)
        except Killed:
            site.kills += 1
        site.kill_at = None
        if move.state.is_end:
            return move
    return move


@pytest.mark.parametrize("part", range(8))
def test_every_move_ends_with_a_sentence_and_no_run_is_requeued_twice(
    tmp_path, monkeypatch, part
) -> None:
    found, kills = Counter(), 0
    for seed in range(part * 100, part * 100 + 100):
        with monkeypatch.context() as patch:
            site = Site(tmp_path / str(seed))
            for owner, name in ((Board, "ask"), (Board, "clear"), (MoveFiles, "write")):
                mortal = site.mortal(getattr(owner, name))
                patch.setattr(owner, name, lambda *args, act=mortal: act(*args))
            move = scenario(site, random.Random(seed))
        assert move.state.is_end, (seed, move)
        assert move.why, seed
        assert site.slurm.requeued_by_us in ({}, {0: 1}), seed
        is_told = move.goal is Goal.REQUEUE and site.slurm.requeued_by_us
        assert move.state is State.REQUEUED or not is_told or site.slurm.state == "GONE", seed
        site.tick()
        site.tick()
        is_left = site.job.holds is not None and move.state is not State.PAUSED
        assert not is_left, (seed, move)
        found[move.state] += 1
        kills += site.kills
    assert min(found[State.REQUEUED], found[State.FAILED]) > 10, found
    assert kills > 50
