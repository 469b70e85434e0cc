"""Moves, one thing at a time: a job and a Slurm that do as they are told, or do not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from move_world import BEGAN, OWN, Site

from slurm_ltgf.checkpoint.board import BoardError
from slurm_ltgf.checkpoint.protocol import Action, Answer, Ask, Phase
from slurm_ltgf.core.move import Goal, Move, State
from slurm_ltgf.core.requeue import is_fault
from slurm_ltgf.errors import InputError, SlurmRefused
from slurm_ltgf.service.move_facts import Boards, MoveRefused, Wish, acting_as
from slurm_ltgf.store.config import Checkpoint
from slurm_ltgf.store.files import FileError
from slurm_ltgf.store.moves import MoveFiles
from tests.folders import open_to_all


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


# --- one thing at a time --------------------------------------------------------------------------


def test_saved_then_requeued_once(site: Site) -> None:
    move = site.to_the_end(site.begin(reason="room"))
    assert (move.state, move.step, move.checkpoint) == (State.REQUEUED, 500, "step-000000500")
    assert move.why == "saved at step 500 and requeued, can start in 6 s"
    assert site.slurm.requeued_by_us == {0: 1}
    entry, logged = site.log[-1]
    assert (entry.action, entry.old, entry.new) == ("requeue", "requeueing", "requeued")
    assert logged.saved_gpu_s == 4 * (move.saved_at - BEGAN + 1000)
    assert logged.lost_gpu_s == 4 * (move.ended_at - move.saved_at) > 0
    assert site.board.asked(7) is None


def test_it_is_told_when_the_job_can_start_not_while_it_is_still_being_ended(site: Site) -> None:
    move = site.begin()
    while site.slurm.state == "RUNNING":
        move = site.go_on(move)
        site.tick()
    move = site.go_on(move)
    assert (move.why, site.slurm.restart) == ("requeued, its processes are being ended", 1)
    site.slurm.ends_completing += 1000
    move = site.to_the_end(move)
    assert move.why == "saved at step 500 and requeued, is still being ended"
    assert move.ended_at == move.hold_until + 1


def test_a_job_that_does_not_save_runs_on(site: Site) -> None:
    site.job.takes_s = None
    move = site.to_the_end(site.begin())
    assert (move.state, site.slurm.requeued_by_us) == (State.FAILED, {})
    assert "runs on" in move.why
    site.tick()
    assert (site.slurm.state, site.job.holds) == ("RUNNING", None)


def test_a_failed_save_is_told_at_once(site: Site) -> None:
    site.job.fails = True
    move = site.to_the_end(site.begin())
    assert move.why == "not saved, the job runs on: the disk is full"
    assert move.ended_at - BEGAN < 5


def test_a_job_that_says_no_is_no_fault_of_the_sites(site: Site) -> None:
    move = site.go_on(site.begin())
    site.job.say(Phase.REFUSED, move.ask, why="its time was over")
    site.job.takes_s = None
    move = site.go_on(move)
    assert (move.state, move.why) == (
        State.FAILED,
        "it said no, the job runs on: its time was over",
    )
    assert not is_fault(move.why)


def test_slurm_is_asked_once_before_a_move(site: Site) -> None:
    find, asked = site.slurm.find, []
    site.slurm.find = lambda name: asked.append(name) or find(name)
    site.begin()
    assert asked == ["7"]


def test_moves_outside_of_the_records_folder_are_left_to_who_began_them(site: Site) -> None:
    move = site.begin()
    site.files.write(replace(move, board="/hung/alice/ltgf-ckpt/7"))
    assert site.moves().go_on_all(now=BEGAN) == []
    site.files.write(move)
    assert [one.state for one, _ in site.moves().go_on_all(now=BEGAN)] == [State.ASKED]


def test_checkpoint_leaves_it_running(site: Site) -> None:
    move = site.to_the_end(site.begin(Goal.CHECKPOINT))
    assert (move.state, site.slurm.state, site.job.holds) == (State.SAVED, "RUNNING", None)


def test_pause_resume_and_what_stands_against_both(site: Site) -> None:
    moves = site.moves()
    with pytest.raises(MoveRefused, match="is not paused"):
        moves.resume("7", now=site.slurm.now)
    move = site.to_the_end(site.begin(Goal.PAUSE, hold_s=1000))
    assert (move.state, site.job.holds is not None) == (State.PAUSED, True)
    with pytest.raises(MoveRefused, match="it is paused: ltgf resume 7 first"):
        site.begin()
    moves.resume("7", now=site.slurm.now)
    site.tick()
    assert site.job.holds is None
    with pytest.raises(MoveRefused, match="is not paused"):
        moves.resume("7", now=site.slurm.now)


def test_a_pause_that_ended_by_itself_is_no_pause(site: Site) -> None:
    site.to_the_end(site.begin(Goal.PAUSE))
    for _ in range(60):
        site.tick()
    assert site.job.holds is None
    with pytest.raises(MoveRefused, match="is not paused"):
        site.moves().resume("7", now=site.slurm.now)
    assert site.to_the_end(site.begin()).state is State.REQUEUED


def test_what_slurm_would_refuse_is_refused_before_anything_is_asked(site: Site) -> None:
    site.slurm.may_requeue = False
    with pytest.raises(MoveRefused, match="--no-requeue"):
        site.begin()
    assert site.board.asked(7) is None
    assert site.begin(Goal.CHECKPOINT).goal is Goal.CHECKPOINT
    with pytest.raises(MoveRefused, match="a checkpoint of it is under way"):
        site.begin()


def test_no_record_not_ready_or_another_runs_answer_is_refused(site: Site) -> None:
    site.slurm.restart = 1
    with pytest.raises(MoveRefused, match="has not said that it is ready"):
        site.begin()
    (site.board.folder / f"7.{OWN}").unlink()
    with pytest.raises(MoveRefused, match=r"no checkpoint record .* --ckpt=app"):
        site.begin()


def test_the_budget_of_requeues(tmp_path: Path) -> None:
    site = Site(tmp_path, requeues_per_job=2)
    moves = replace(site.moves(), requeued_before=lambda job_id: 2)
    with pytest.raises(MoveRefused, match="requeued it 2 times already"):
        moves.begin("7", Wish(Goal.REQUEUE, by="test"), now=BEGAN)


def test_slurm_refuses_after_all_and_the_job_goes_on(site: Site) -> None:
    site.slurm.refuses = True
    move = site.to_the_end(site.begin())
    assert move.state is State.FAILED
    assert "not requeued, the job runs on: scontrol requeue (exit 1)" in move.why
    site.tick()
    assert site.job.holds is None


def test_a_checkpoint_that_is_not_there_is_not_believed(site: Site) -> None:
    (site.ckpt / "step-000000500").rmdir()
    move = site.begin()
    for _ in range(8):
        move = site.go_on(move)
        site.tick()
    assert move.state is State.ASKED
    assert "which is not seen in" in move.why
    (site.ckpt / "step-000000500").mkdir()
    assert site.to_the_end(move).state is State.REQUEUED


def test_held_after_the_requeue_is_said(site: Site) -> None:
    site.slurm.priority = 0
    move = site.to_the_end(site.begin())
    assert move.why.endswith("but it is held now: scontrol release 7")


def test_requeued_by_slurm_while_it_saved(site: Site) -> None:
    move = site.begin()
    for _ in range(2):
        move = site.go_on(move)
        site.tick()
    site.slurm.begin_requeue()
    move = site.to_the_end(move)
    assert (move.state, site.slurm.requeued_by_us) == (State.FAILED, {})
    assert move.why == "Slurm or somebody else requeued it meanwhile"


def test_the_partition_afterwards_and_one_that_slurm_refuses(site: Site) -> None:
    move = site.to_the_end(site.begin(to_partition="later"))
    assert (site.slurm.partition, move.why.endswith(", in later")) == ("later", True)


def test_taken_back_but_not_once_slurm_was_told(site: Site) -> None:
    move = site.begin()
    for _ in range(2):
        move = site.go_on(move)
        site.tick()
    move = site.moves().take_back(move, now=site.slurm.now)
    assert move.why == "taken back, the job runs on"
    assert site.board.asked(7).action is Action.GO_ON
    again = site.begin()
    while again.state is not State.REQUEUEING:
        again = site.go_on(again)
        site.tick()
    again = site.moves().take_back(again, now=site.slurm.now)
    assert site.to_the_end(again).state is State.REQUEUED


def test_a_clock_that_lies_cannot_claim_work(site: Site) -> None:
    say = site.job.say
    site.job.say = lambda phase, ask="", **more: say(phase, ask, **{**more, "time": 4_000_000_000})
    move = site.to_the_end(site.begin())
    assert move.saved_at <= move.ended_at


def test_two_askers_at_once_share_one_move(site: Site) -> None:
    first, second = site.begin(), site.begin()
    assert first == second
    while not (first.state.is_end and second.state.is_end):
        first, second = site.go_on(first), site.go_on(second)
        site.tick()
    assert (first.state, second.state) == (State.REQUEUED, State.REQUEUED)
    assert site.slurm.requeued_by_us == {0: 1}


def test_a_move_of_another_job_that_had_the_id_is_not_taken_up(site: Site) -> None:
    first = site.begin()
    site.files.write(replace(first, started=first.started - 86400))
    assert site.begin().ask != first.ask


# --- after Slurm's signal -------------------------------------------------------------------------


def after_signal(site: Site) -> str:
    wish = Wish(Goal.REQUEUE, by="test")
    return site.moves().after_signal("7", wish, lead_s=60, now=site.slurm.now)


def test_after_signal_by_facts_and_within_its_budget(tmp_path: Path) -> None:
    site = Site(tmp_path, limits_per_job=1)
    site.job.say(Phase.STOPPED, step=40, name="step-000000040")
    assert "neither preempts it nor is its time up" in after_signal(site)
    assert site.slurm.requeued_by_us == {}
    site.slurm.end_limit = BEGAN + 90
    site.tick()
    assert after_signal(site) == "saved at step 40; its time limit was near, requeued"
    assert site.slurm.requeued_by_us == {0: 1}
    _, move = site.log[-1]
    assert (move.saved_at, move.lost_gpu_s) == (BEGAN, 4)
    site.slurm.state, site.slurm.restart = "RUNNING", 1
    with pytest.raises(MoveRefused, match="requeued 1 times for its time limit"):
        after_signal(site)
    site.slurm.preempted_at = site.slurm.now  # of which there may be any number
    assert "preempted by Slurm, requeued at once" in after_signal(site)
    assert site.slurm.requeued_by_us == {0: 1, 1: 1}


def test_after_signal_a_job_that_said_nothing_has_saved_nobody_knows_what(site: Site) -> None:
    (site.board.folder / f"7.{OWN}.answer").unlink()
    site.slurm.preempted_at = BEGAN
    assert "whether it saved is not known" in after_signal(site)
    _, move = site.log[-1]
    assert (move.saved_at, move.saved_gpu_s, move.lost_gpu_s) == (None, None, None)


def test_after_signal_a_job_that_came_to_its_own_end_is_not_requeued(site: Site) -> None:
    site.slurm.end_limit = BEGAN + 90
    assert "did not stop for Slurm's signal" in after_signal(site)
    assert (site.slurm.requeued_by_us, site.log) == ({}, [])


def test_after_signal_a_clock_that_lies_cannot_claim_work(site: Site) -> None:
    site.job.say(Phase.STOPPED, name="a", time=BEGAN - 90_000)
    site.slurm.preempted_at = BEGAN
    after_signal(site)
    assert site.log[-1][1].saved_gpu_s == 0


def test_after_signal_what_slurm_refuses_is_no_requeue(site: Site) -> None:
    site.slurm.preempted_at, site.slurm.refuses = BEGAN, True
    site.job.say(Phase.STOPPED, name="a")
    with pytest.raises(SlurmRefused):
        after_signal(site)
    assert [entry.new for entry, _ in site.log] == ["requeued", "failed"]
    site.slurm.refuses, site.slurm.may_requeue = False, False
    with pytest.raises(MoveRefused, match="--no-requeue"):
        after_signal(site)


# --- looking twice --------------------------------------------------------------------------------


def test_the_run_is_looked_at_once_more_right_before_the_requeue(site: Site, monkeypatch) -> None:
    move = site.begin()
    find, slurm, looks = site.slurm.find, site.slurm, []

    def restarted_between(name):
        looks.append(name)
        if move.saved_at is None and site.job.holds is not None and len(looks) % 2 == 0:
            slurm.restart = 1
        return find(name)

    while site.job.holds is None:
        move = site.go_on(move)
        site.tick()
    monkeypatch.setattr(slurm, "find", restarted_between)
    move = site.go_on(move)
    assert (move.state, slurm.requeued_by_us, slurm.state) == (State.REQUEUEING, {}, "RUNNING")


@pytest.mark.parametrize("said", [{"ask": "older"}, {"restart": 1}], ids=["ask", "run"])
def test_an_answer_to_another_ask_or_of_another_run_counts_for_nothing(site: Site, said) -> None:
    site.job.takes_s = None
    move = site.go_on(site.begin())
    answer = Answer(7, 0, Phase.SAVED, move.ask, step=1, time=BEGAN)
    site.board.say(replace(answer, **said))
    assert site.go_on(move).state is State.ASKED
    site.board.say(answer)
    assert site.go_on(move).state is State.REQUEUEING


def test_a_requeue_that_slurm_takes_no_notice_of_is_given_up_in_time(site: Site) -> None:
    site.slurm.requeue = lambda name: None
    site.job.say = lambda phase, ask="", **more: (
        None if phase is Phase.GOING else type(site.job).say(site.job, phase, ask, **more)
    )
    move = site.begin()
    while site.job.holds is None:
        move = site.go_on(move)
        site.tick()
    hold_until = site.job.holds.hold_until
    move = site.to_the_end(move)
    assert move.why == "Slurm did not requeue it in time, the job runs on"
    assert move.ended_at <= hold_until


# --- several jobs ---------------------------------------------------------------------------------


def other(move: Move, **changes: object) -> Move:
    return replace(move, **({"job_id": 8, "ask": "b" * 16} | changes))


def test_as_many_at_once_as_a_node_and_a_file_system_take(site: Site) -> None:
    move = site.begin()
    site.files.write(other(move, state=State.ASKED, asked_at=BEGAN))
    assert site.go_on(move).state is State.QUEUED  # the node has one already
    site.files.write(other(move, state=State.ASKED, asked_at=BEGAN, nodes="n2"))
    assert site.go_on(move).state is State.ASKED


def test_who_has_saved_and_waits_for_others_takes_no_place(site: Site) -> None:
    move = site.begin(to_job=99)
    site.files.write(other(move, state=State.ASKED, asked_at=BEGAN, saved_at=BEGAN))
    assert site.go_on(move).state is State.ASKED


def test_asks_on_one_file_system_are_staggered(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.settings = replace_setting(site.settings, stagger_s=5)
    move = site.begin()
    site.files.write(other(move, state=State.SAVED, asked_at=BEGAN - 2, nodes="n2"))
    assert site.go_on(move).state is State.QUEUED
    for _ in range(3):
        site.tick()
    assert site.go_on(move).state is State.ASKED


def replace_setting(settings: Checkpoint, **changes: object) -> Checkpoint:
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return Checkpoint(**(values | changes))


@pytest.mark.parametrize(
    ("state", "saved", "wanted"),
    [(State.ASKED, None, State.ASKED), (State.ASKED, 1, State.REQUEUED),
     (State.FAILED, None, State.FAILED)],
    ids=["one still saves", "all have saved", "one could not"],
)  # fmt: skip
def test_all_that_make_room_or_none(site: Site, state, saved, wanted) -> None:
    move = site.begin(to_job=99)
    site.files.write(other(move, state=state, saved_at=saved, nodes="n2"))
    for _ in range(12):
        move = site.go_on(move)
        site.tick()
    assert move.state is wanted
    assert site.slurm.requeued_by_us == ({0: 1} if wanted is State.REQUEUED else {})


# --- files ----------------------------------------------------------------------------------------


def test_a_move_comes_back_as_it_was_written(site: Site) -> None:
    move = site.begin(reason="für später", to_partition="a,b")
    assert site.files.read(7) == move
    assert site.files.all() == [move]
    assert (site.files.folder.stat().st_mode & 0o777, site.files.read(8)) == (0o750, None)


def test_a_spoilt_file_is_named(site: Site) -> None:
    site.begin()
    (site.files.folder / "7.move").write_text('{"job_id": "seven"}')
    with pytest.raises(InputError, match=r"7\.move: is no move of this program"):
        site.files.all()


@pytest.mark.skipif(OWN != 0, reason="becomes another user")
def test_a_folder_that_may_not_be_read_is_named(site: Site) -> None:
    site.begin()
    site.files.folder.parent.chmod(0o700)
    with acting_as(65534), pytest.raises(FileError, match="moves: cannot read: Permission denied"):
        site.files.all()


def test_old_moves_are_forgotten_but_not_those_under_way_or_counted(site: Site) -> None:
    move = site.begin()
    over = {"state": State.SAVED, "ended_at": BEGAN, "asked_at": BEGAN}
    site.files.write(other(move, **over))
    site.files.write(other(move, job_id=9, limits=1, **over))
    site.files.sweep(BEGAN + 86400)
    assert [one.job_id for one in site.files.all()] == [7, 8, 9]
    site.files.sweep(BEGAN + 3 * 86400)
    assert [one.job_id for one in site.files.all()] == [7, 9]


# --- whose folder ---------------------------------------------------------------------------------


@pytest.mark.skipif(OWN != 0, reason="becomes another user")
def test_root_goes_where_the_jobs_user_can_and_no_further(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    secret, theirs = tmp_path / "secret", tmp_path / "theirs"
    secret.mkdir(mode=0o700)
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    (theirs / "ltgf-ckpt").symlink_to(secret)
    ask = Ask("a" * 16, 7, 0, Action.CHECKPOINT, 1, 1, 1)
    with (
        Boards().open(theirs / "ltgf-ckpt", 65534) as board,
        pytest.raises(BoardError, match="denied"),
    ):
        board.ask(ask)
    assert list(secret.iterdir()) == []
    with Boards().open(theirs, 65534) as board:
        board.ask(ask)
        assert board.asked(7) == ask
    assert (theirs / "7.ask.65534").stat().st_uid == 65534
    with acting_as(65534):
        assert os.geteuid() == 65534
    assert os.geteuid() == 0


def test_a_move_that_ended_and_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    mine, theirs = MoveFiles(tmp_path), MoveFiles(tmp_path)
    ended = Move(7, OWN, 0, Goal.REQUEUE, "a" * 16, "7", state=State.REQUEUED)
    theirs.write(ended)
    assert mine.all() == mine.all() == [ended]
    again = replace(ended, restart=1, state=State.ASKED)
    theirs.write(again)
    assert mine.all() == [again]
    (tmp_path / "7.move").unlink()
    assert (mine.all(), mine.read(7)) == ([], None)
