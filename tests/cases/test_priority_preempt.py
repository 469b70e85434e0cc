"""Cases of kind priority-preempt: the field log's inputs and right answers (PRI-03: the factor)."""

from __future__ import annotations

import re
from pathlib import Path

from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.slurm.control import Change, commands
from slurm_ltgf.slurm.queue import QueueJob
from slurm_ltgf.slurm.site import Preempted, effective_preempt_mode, requeue_outlook

INPUTS = Path(__file__).parent / "inputs"


def test_pri_01_held_jobs_are_never_written_to():
    text = (INPUTS / "pri-01.txt").read_text()
    jobs = [
        QueueJob(int(job_id), priority=int(priority), reason=reason)
        for job_id, priority, reason in re.findall(r"(\d+) prio (\d+) \(([^)]*)\)", text)
    ]
    assert len(jobs) == 5
    assert [job.job_id for job in jobs if job.is_held] == [1602, 1603, 1604]
    lines = commands([Change(job.job_id, 7) for job in jobs if job.takes_site_factor])
    assert lines == ["update job=1601,1605 sitefactor=7"]


def test_pri_02_the_setter_writes_site_factor_and_nothing_else():
    job_id = int(re.findall(r"job (\d+)", (INPUTS / "pri-02.txt").read_text())[0])
    for value in (12345, -12345, 0):
        (line,) = commands([Change(job_id, value)])
        assert re.findall(r"(\w+)=", line) == ["job", "sitefactor"]
    assert commands([Change(job_id, 0)]) == ["update job=1700 sitefactor=0"], "undo"


def test_pri_04_an_array_and_a_job_in_two_partitions_are_one_update_each():
    array, wide = (INPUTS / "pri-04.txt").read_text().split("; ")
    shown, partition = array.split()[1], re.findall(r"'(.+)'", wide)[0]
    jobs = [
        QueueJob(1800, shown, array_job=1800, tasks=10_000, throttle=50, priority=9),
        QueueJob(1801, "1801", partition=partition, priority=9),
    ]
    changes = [Change(job.job_id, 40 - i, job.shown_id) for i, job in enumerate(jobs)]
    assert commands(changes) == [
        "update job=1801 sitefactor=39",
        "update job=1800_[1-10000] sitefactor=40",
    ]


def test_pri_05_under_cancel_a_preempted_job_will_not_come_back():
    text = (INPUTS / "pri-05.txt").read_text()
    cell = dict(re.findall(r"(\w+)=(\S+)", text))
    job_id = int(re.findall(r"job (\d+)", text)[0])
    mode = effective_preempt_mode(cell["PreemptMode"], preempt_type=cell["PreemptType"])
    found = requeue_outlook(
        Preempted(job_id, cell["JobState"], preempt_mode=mode, requeue=cell["Requeue"] == "1")
    )
    assert found.verdict == "gone"
    assert "will not come back" in found.sentence


def test_pri_05_under_requeue_the_same_id_becomes_pending():
    mode = effective_preempt_mode("CANCEL", qos="requeue", preempt_type="preempt/qos")
    found = requeue_outlook(Preempted(1900, "PREEMPTED", preempt_mode=mode))
    assert found.verdict == "waits"


def test_pri_07_held_after_the_requeue_limit_is_told_with_its_release_and_not_released():
    text = (INPUTS / "pri-07.txt").read_text()
    first, second = (dict(re.findall(r"(\w+)=(\w+)", part)) for part in text.split(" ; "))
    held = requeue_outlook(
        Preempted(2000, "PENDING", first["Reason"], int(first["Restarts"]), int(first["Priority"]))
    )
    assert held.verdict == "held"
    assert "held after the requeue limit" in held.sentence
    assert "scontrol release 2000" in held.sentence
    waiting = requeue_outlook(
        Preempted(2001, "PENDING", second["Reason"], int(second["Restarts"]), UNKNOWN)
    )
    assert waiting.verdict == "waits"
    assert not waiting.may_requeue, "no second requeue"
