"""One job for the requeue helper: what Slurm shows of it, and `scontrol requeue`.

Asked by squeue -O alone: `scontrol show job` mixes texts of the user (its name, its comment) into
its key=value lines. An array task is requeued under ARRAY_TASK: the raw id of an array's last task
is the whole array's, and would requeue them all. A het job is requeued as a whole, by its leader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC

from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.errors import SlurmRefused, UsageError
from slurm_ltgf.slurm import queue, text
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
    fields = (*queue.FIELDS, *_EXTRA)
    columns = ",".join(f"{field}:{queue.DELIMITER}" for field in fields)
    argv = ["squeue", "-h", "-a", "-t", "all", "-r", "-j", checked_id(name), "-O", columns]
    try:
        shown = run(argv, env_extra=queue.ENVIRONMENT)
    except SlurmRefused as exc:
        if _GONE.search(str(exc)):
            return []
        raise
    return [_running(line) for line in shown.split("\n") if line]


def _running(line: str) -> Running:
    cells = line.split(queue.DELIMITER)
    own, more = cells[: len(queue.FIELDS)], cells[len(queue.FIELDS) : -1]
    found = queue.parse(queue.DELIMITER.join([*own, ""]))
    if len(more) < len(_EXTRA) or not found.jobs:
        why = found.skipped[0].reason if found.skipped else f"{len(cells)} columns"
        raise SlurmRefused(f"squeue: a row of job {cells[0]} cannot be read: {why}")
    uid, may_requeue, preempted, *work_dir = more
    preempted_at = text.moment(preempted, UTC)
    return Running(
        job=found.jobs[0],
        uid=int(uid),
        may_requeue=may_requeue == "1",
        preempted_at=None if preempted_at == UNKNOWN else preempted_at,
        work_dir=queue.DELIMITER.join(work_dir),
    )


def requeue(name: str) -> None:
    """Have Slurm requeue a job.

    Raises:
        SlurmRefused: no rights, or the job is not one to requeue.
        SlurmUnavailable: slurmctld does not answer; it may have been requeued all the same.
    """
    run(["scontrol", "requeue", checked_id(name)], timeout_s=60)


def send_to(name: str, partition: str) -> None:
    """Put a job that waits into another partition.

    Raises:
        SlurmRefused, SlurmUnavailable: Slurm would not.
    """
    if not re.fullmatch(r"[\w.-]+(,[\w.-]+)*", partition):
        raise UsageError(f"--to-partition: must be names of partitions, got {partition!r}")
    run(["scontrol", "update", f"job={checked_id(name)}", f"partition={partition}"], timeout_s=60)
