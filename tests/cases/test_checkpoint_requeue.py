"""Cases of kind checkpoint-requeue that the asking side meets: ids, causes, grace, sequences."""

from __future__ import annotations

import os
import re

import pytest
from reading import INPUTS

from slurm_ltgf.core.ending import Cause, Ending, story, was_requeued, why_signalled
from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.core.move import Act, Goal, Move, Said, Seen, State
from slurm_ltgf.core.requeue import advance
from slurm_ltgf.errors import UsageError
from slurm_ltgf.slurm import requeue
from slurm_ltgf.slurm.jobs import QueueJob

T0 = 1_800_000_000


def given(name: str) -> str:
    return (INPUTS / name).read_text()


def seconds(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+) (s|min|h)", text).groups()
    return int(number) * {"s": 1, "min": 60, "h": 3600}[unit]


def move(**changes: object) -> Move:
    values = {"state": State.ASKED, "asked_at": T0, "began": T0, "within_s": 200} | changes
    return Move(7, 1000, 0, Goal.REQUEUE, "a" * 16, "7", gpus=4.0, started=T0 - 600, **values)


def asked(tmp_path, monkeypatch, name: str) -> list[str]:
    """What scontrol is called with."""
    log = tmp_path / "log"
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {log}\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    requeue.requeue(name)
    return log.read_text().split()


def test_chk_06_an_array_task_and_a_het_job_are_requeued_by_their_own_names(
    tmp_path, monkeypatch
) -> None:
    found = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", given("chk-06.txt"))}
    array, task = found["SLURM_ARRAY_JOB_ID"], found["SLURM_ARRAY_TASK_ID"]
    last = QueueJob(array, array_job=array, array_task=task)  # its raw id is the whole array's
    assert asked(tmp_path, monkeypatch, requeue.requeue_id(last)) == ["requeue", "9001_7"]
    second = QueueJob(found["SLURM_JOB_ID"] + 1, het_job=found["SLURM_JOB_ID"], het_offset=1)
    assert asked(tmp_path, monkeypatch, requeue.requeue_id(second)) == ["requeue", "800"]


@pytest.mark.parametrize("name", ["", "9001_", "9001_[7]", "9001;id", "-1", "all", "7 8", "7\n"])
def test_chk_06_what_is_no_id_never_reaches_slurm(tmp_path, monkeypatch, name) -> None:
    with pytest.raises(UsageError, match="must be a job's id"):
        asked(tmp_path, monkeypatch, name)
    assert not (tmp_path / "log").exists()


def test_chk_08_time_limit_and_preemption_are_told_apart_by_facts() -> None:
    limit, after = re.findall(r"limit (\d+ min), preempted after (\d+ s)", given("chk-08.txt"))[0]
    end = T0 + seconds(limit)
    now = T0 + seconds(after)
    assert why_signalled(now=now, end_limit=end, preempted_at=now, lead_s=60) is Cause.PREEMPTION
    # the same signal without a preemption says nothing: 20 s of 120 s is not the limit
    assert why_signalled(now=now, end_limit=T0 + 200, preempted_at=None, lead_s=60) is None

    hours, at = re.findall(r"limit (\d+ h), signal at ([\d:]+)", given("chk-08.txt"))[0]
    h, m, s = (int(part) for part in at.split(":"))
    now, end = T0 + h * 3600 + m * 60 + s, T0 + seconds(hours)
    assert why_signalled(now=now, end_limit=end, preempted_at=None, lead_s=60) is Cause.TIME_LIMIT
    assert why_signalled(now=now, end_limit=UNKNOWN, preempted_at=None, lead_s=60) is None


@pytest.mark.parametrize(
    ("state", "ran_s", "limit_s", "cause"),
    [
        ("PREEMPTED", 20, 120, Cause.PREEMPTION),
        ("TIMEOUT", 130, 120, Cause.TIME_LIMIT),
        ("FAILED", 125, 120, Cause.TIME_LIMIT),
        ("FAILED", 20, 120, Cause.ITSELF),
        ("NODE_FAIL", 20, UNKNOWN, Cause.NODE_FAILURE),
        ("REQUEUED", 20, 120, Cause.REQUEUE),
        ("COMPLETED", 500, 120, Cause.ITSELF),
    ],
)
def test_chk_08_why_a_run_ended(state, ran_s, limit_s, cause) -> None:
    assert Ending(T0, T0, T0 + ran_s, state, limit_s).cause is cause


def test_chk_11_a_save_longer_than_the_grace_comes_before_the_requeue() -> None:
    figures = dict(re.findall(r"(GraceTime|KillWait)=(\d+)", given("chk-11.txt").split(";")[0]))
    save_s = int(re.findall(r"save (\d+) s", given("chk-11.txt"))[0])
    own = requeue.Grace(int(figures["GraceTime"]), int(figures["KillWait"]), is_signalled=False)
    assert own.total_s == 30 < save_s
    running = Seen("RUNNING", 0)
    for waited in (1, 31, save_s - 1):
        after, act = advance(move(), running, Said("working"), now=T0 + waited)
        assert (after.state, act) == (State.ASKED, Act.WAIT)
    said = Said("saved", 5, "step-000000005", T0 + save_s)
    after, act = advance(move(), running, said, now=T0 + save_s)
    assert (after.state, act) == (State.REQUEUEING, Act.REQUEUE)


def test_chk_11_a_job_that_ends_within_its_grace_is_requeued_once() -> None:
    """Slurm preempts, the job exits 0 after 100 s: Slurm requeues it, and the helper does not."""
    one, acts = move(), []
    seen = [Seen("RUNNING", 0), Seen("COMPLETING", 0), Seen("PENDING", 1, "BeginTime")]
    for second, what in enumerate(seen):
        one, act = advance(one, what, None, now=T0 + second)
        acts.append(act)
    assert acts == [Act.ASK, Act.WAIT, Act.CLEAR]
    assert one.why == "Slurm or somebody else requeued it meanwhile"


def test_chk_14_a_requeue_seen_from_outside_is_no_end() -> None:
    states = re.findall(r"[A-Z]{4,}|gone", given("chk-14.txt").split(";")[0])
    assert states[:4] == ["RUNNING", "COMPLETING", "gone", "PENDING"]
    one = move(state=State.REQUEUEING, saved_at=T0)
    sequence = [
        (0, Seen("RUNNING", 0)),
        (1, Seen("COMPLETING", 0)),
        *((second, None) for second in (2, 3, 4)),
        (5, Seen("PENDING", 1, "BeginTime", eligible=T0 + 125)),
    ]
    for second, what in sequence:
        assert not one.state.is_end
        one, _ = advance(one, what, None, now=T0 + second)
    assert (one.state, one.why) == (State.REQUEUED, "saved and requeued, can start in 120 s")


def test_chk_14_the_window_of_absence_begins_with_the_first_look() -> None:
    """A helper that was dead for an hour has not seen the job absent for an hour."""
    one = move(state=State.REQUEUEING, saved_at=T0)
    one, _ = advance(one, None, None, now=T0 + 3600)
    assert not one.state.is_end
    one, _ = advance(one, Seen("PENDING", 1), None, now=T0 + 3603)
    assert one.state is State.REQUEUED


def test_chk_14_the_newest_record_by_submission_decides() -> None:
    states = re.findall(r"rows (\w+) \+ (\w+)", given("chk-14.txt"))[0]
    first = Ending(T0, T0 + 10, T0 + 90, states[0])
    second = Ending(T0 + 90, T0 + 220, T0 + 900, states[1])
    for rows in ([first, second], [second, first]):
        assert story(rows) == "preempted once, completed"
        assert was_requeued(rows, T0 + 10)
        assert not was_requeued(rows, T0 + 220)
    assert story([]) == ""
    assert not was_requeued([first], T0 + 10)  # preempted for good
