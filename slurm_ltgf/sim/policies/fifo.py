"""fifo: one queue over all tenants by time of arrival, no quotas (what Slurm does unconfigured)."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_ltgf.sim.policies.base import ToTheEnd
from slurm_ltgf.sim.workload import Job


class Fifo(ToTheEnd):
    """First in, first out."""

    name = "fifo"

    def __init__(self) -> None:
        self._waiting: dict[int, Job] = {}

    def arrived(self, job: Job, now: int) -> None:
        """To the end of the queue."""
        self._waiting[job.job_id] = job

    def started(self, job: Job, now: int) -> None:
        """Out of the queue."""
        del self._waiting[job.job_id]

    def ended(self, job: Job, now: int) -> None:
        """Nothing to note."""

    def candidates(self, now: int) -> Iterator[Job]:
        """As they came."""
        return iter(self._waiting.values())
