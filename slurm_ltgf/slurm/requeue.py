"""One job for the requeue helper: what Slurm shows of it, and `scontrol requeue`.

Asked by squeue -O alone: `scontrol show job` mixes texts of the user (its name, its comment) into
its key=value lines. An array task is requeued under ARRAY_TASK: the raw id of an array's last task
is the whole array's, and would requeue them all. A het job is requeued as a whole, by its leader.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC

from slurm_ltgf.core.ending import Ending
from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.errors import SlurmRefused, UsageError
from slurm_ltgf.slurm import queue, site, text
from slurm_ltgf.slurm.jobs import QueueJob
from slurm_ltgf.slurm.run import run

_EXTRA = ("UserID", "Requeue", "PreemptTime", "WorkDir")
_ID = re.compile(r"(\d+)(?:_(\d+)|\+(\d+))?")
_GONE = re.compile(r"invalid job id", re.I)


@dataclass(frozen=True, slots=True)
class Running:
    """A job as the helper sees it. job: its record; of a het job the leader's.

    may_requeue: Slurm would requeue it. preempted_at: None: it was not.
    """

    job: QueueJob
    uid: int
    may_requeue: bool
    preempted_at: int | None
    work_dir: str

    @property
    def requeue_id(self) -> str:
        """What to tell `scontrol requeue`."""
        return requeue_id(self.job)


@dataclass(frozen=True, slots=True)
class Grace:
    """What Slurm's own preemption leaves a job: GraceTime, then TERM, then KillWait.

    is_signalled: the job's --signal is sent at preemption too.
    """

    grace_s: int
    kill_wait_s: int
    is_signalled: bool

    @property
    def total_s(self) -> int:
        """From the preemption to the kill."""
        return self.grace_s + self.kill_wait_s


def requeue_id(job: QueueJob) -> str:
    """The name by which this job alone is requeued.

    >>> requeue_id(QueueJob(9001, array_job=9001, array_task=7)), requeue_id(QueueJob(12))
    ('9001_7', '12')
    """
    if job.array_job != UNKNOWN and job.array_task != UNKNOWN:
        return f"{job.array_job}_{job.array_task}"
    return str(job.het_job if job.het_job not in (UNKNOWN, 0) else job.job_id)


def checked_id(name: str) -> str:
    """A job id that was typed in.

    Raises:
        UsageError: it is none.
    """
    if not _ID.fullmatch(name):
        raise UsageError(
            f"{name!r}: must be a job's id: 123, 123_4 of an array, 123+0 of a het job"
        )
    return name


def find(name: str) -> list[Running]:
    """All records of a job that Slurm shows: several of an array or a het job; none: it is gone.

    Raises:
        SlurmUnavailable, SlurmRefused: squeue failed.
    """
    end = queue.DELIMITER + secrets.token_hex(8)  # a working folder may hold newlines, even rows
    *fields, last = (*queue.FIELDS, *_EXTRA)
    columns = ",".join([*(f"{field}:{queue.DELIMITER}" for field in fields), f"{last}:{end}"])
    argv = ["squeue", "-h", "-a", "-t", "all", "-r", "-j", checked_id(name), "-O", columns]
    try:
        shown = run(argv, env_extra=queue.ENVIRONMENT)
    except SlurmRefused as exc:
        if _GONE.search(str(exc)):
            return []
        raise
    return [_running(row) for row in shown.split(f"{end}\n")[:-1]]


def _running(row: str) -> Running:
    """A row without its end; the working folder, its last column, may hold anything."""
    cells = row.split(queue.DELIMITER)
    own, more = cells[: len(queue.FIELDS)], cells[len(queue.FIELDS) :]
    found = queue.parse(queue.DELIMITER.join([*own, ""]))
    try:
        if found.skipped:
            raise ValueError(found.skipped[0].reason)
        uid, may_requeue, preempted, *work_dir = more
        preempted_at = text.moment(preempted, UTC)
        return Running(
            job=found.jobs[0],
            uid=int(uid),
            may_requeue=may_requeue == "1",
            preempted_at=None if preempted_at == UNKNOWN else preempted_at,
            work_dir=queue.DELIMITER.join(work_dir),
        )
    except ValueError as exc:
        raise SlurmRefused(f"squeue: a row of job {cells[0]!r} cannot be read: {exc}") from exc


def requeue(name: str) -> None:
    """Have Slurm requeue a job.

    Raises:
        SlurmRefused: no rights, or the job is not one to requeue.
        SlurmUnavailable: slurmctld does not answer; it may have been requeued all the same.
    """
    run(["scontrol", "requeue", checked_id(name)], timeout_s=60)


def checked_partition(names: str) -> str:
    """Partitions that were typed in.

    Raises:
        UsageError: no names.
    """
    if not re.fullmatch(r"[\w.-]+(,[\w.-]+)*", names):
        raise UsageError(f"--to-partition: must be names of partitions, got {names!r}")
    return names


def send_to(name: str, partition: str) -> None:
    """Put a job that waits into another partition.

    Raises:
        SlurmRefused, SlurmUnavailable: Slurm would not.
    """
    where = f"partition={checked_partition(partition)}"
    run(["scontrol", "update", f"job={checked_id(name)}", where], timeout_s=60)


def endings(name: str) -> list[Ending]:
    """All runs of a job that sacct knows; of a het job its leader's.

    Raises:
        SlurmRefused: the site keeps no records.
        SlurmUnavailable: slurmdbd is away.
    """
    columns = "JobID,Submit,Start,End,State,TimelimitRaw"
    argv = ["sacct", "-n", "-X", "-D", "-P", "-j", checked_id(name), "-o", columns]
    shown = run(argv, env_extra={"SLURM_TIME_FORMAT": "%s"})
    rows = [line.split("|") for line in shown.split("\n") if line]
    return [_ending(*cells) for job, *cells in rows if "+" not in job or job.endswith("+0")]


def _ending(submit: str, start: str, end: str, state: str, limit: str) -> Ending:
    return Ending(
        submit=text.moment(submit, UTC),
        start=text.moment(start, UTC),
        end=text.moment(end, UTC),
        state=text.base_state(state.split()[:1])[0],
        limit_s=int(limit) * 60 if limit.isdecimal() else UNKNOWN,
    )


def grace(job: QueueJob) -> Grace:
    """How long Slurm's own preemption would leave a job.

    Raises:
        SlurmRefused, SlurmUnavailable: Slurm does not tell.
    """
    config = site.site()
    argv = ["sacctmgr", "-n", "-P", "-r", "show", "qos", job.qos, "format=Name,GraceTime"]
    by_qos = config.get("PreemptType") == "preempt/qos"
    rows = [line.split("|") for line in run(argv).split("\n") if line] if by_qos else []
    times = [max(text.limit_s(cell), 0) for name, cell in rows if name == job.qos]
    if not by_qos:
        times = [one.grace_s for one in site.partitions() if one.name == job.partition]
    return Grace(
        grace_s=times[0] if times else 0,
        kill_wait_s=config.number("KillWait", 30),
        is_signalled="send_user_signal" in config.options("PreemptParameters")
        or "preempt_send_user_signal" in config.options("SlurmctldParameters"),  # Slurm 22.05
    )
