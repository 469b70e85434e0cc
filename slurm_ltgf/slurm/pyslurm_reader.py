"""History through PySlurm 25.11 instead of sacct: no process, no text.

NOT RUN HERE: PySlurm builds only against its own Slurm release (25.11), which this project's test
machines do not have. It is written from PySlurm's documentation of `pyslurm.db.Job`.

Two limits of PySlurm to know: its filter has no counterpart of `sacct -D`, so that the earlier runs
of a requeued job are missing and its tenant is charged for the last one only; and pending tasks of
an array are one job whose tasks are counted from `array_tasks_waiting`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slurm_ltgf.core.model import UNKNOWN, Batch, Run, Runs, Skipped
from slurm_ltgf.errors import ConfigError, SlurmUnavailable
from slurm_ltgf.slurm import text
from slurm_ltgf.slurm.records import UNKNOWN_GRES, as_runs


class PyslurmReader:
    """Reads runs from slurmdbd through PySlurm; the interface of `SacctReader`."""

    def __init__(self, cluster: str | None = None) -> None:
        """cluster: None is the local one."""
        self._chosen = {"clusters": [cluster]} if cluster else {}

    def read(self, start: int, end: int) -> Iterator[Batch]:
        """Read all runs of a window, epoch seconds UTC.

        Raises:
            ConfigError: PySlurm is not installed, or not for this Slurm.
            SlurmUnavailable: slurmdbd gives no answer.
        """
        try:
            import pyslurm
        except (ImportError, RuntimeError) as exc:
            raise ConfigError(f"PySlurm cannot be used: {exc}") from exc
        chosen = pyslurm.db.JobFilter(start_time=start, end_time=end, **self._chosen)
        try:
            jobs = list(pyslurm.db.Jobs.load(chosen))
        except pyslurm.RPCError as exc:
            raise SlurmUnavailable(f"PySlurm: {exc}") from exc
        runs, faults = as_runs(Runs.of([_run(job) for job in jobs]), now=end)
        skipped = tuple(Skipped(0, why, f"job {jobs[row].id}") for row, why in faults.items())
        yield Batch(runs.take(_rows_without(len(jobs), faults)), skipped)


def _rows_without(n: int, faults: dict[int, str]) -> Any:
    import numpy as np

    return np.array([row not in faults for row in range(n)], dtype=bool)


def _run(job: Any) -> Run:
    waiting = job.array_tasks_waiting
    return Run(
        cluster=job.cluster or "",
        job_id=job.id,
        account=text.account_name(job.account or ""),
        user=job.user_name or "",
        partition=job.partition or "",
        state=text.state(job.state or "")[0],
        submit=_known(job.submit_time),
        eligible=_known(job.eligible_time),
        start=_known(job.start_time),
        end=_known(job.end_time),
        elapsed_s=_known(job.elapsed_time),
        suspended_s=job.suspended_time or 0,
        limit_s=text.limit_s(str(job.time_limit or "")),
        gres=_gres(job.allocated_tres) if job.allocated_tres else UNKNOWN_GRES,
        gres_requested=_gres(job.requested_tres) if job.requested_tres else "",
        array_job=_known(job.array_id),
        array_task=_known(job.array_task_id),
        het_job=_known(job.heterogeneous_id),
        het_offset=_known(job.heterogeneous_offset),
        tasks=text.array_tasks(waiting)[0] if waiting else 1,
        restarts=_known(job.requeue_count),
        nodes=text.node_list(job.nodelist or ""),
    )


def _gres(tres: Any) -> str:
    """Canonical text of TrackableResources.gres: names "gpu", "gpu:h200", "mps" -> a count."""
    return text.gres_of_tres(",".join(f"gres/{n}={g.count}" for n, g in tres.gres.items()))


def _known(value: int | None) -> int:
    return UNKNOWN if value is None else value
