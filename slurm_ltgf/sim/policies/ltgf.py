"""ltgf: the order of `core.order`, the function that the daemon calls, on the virtual cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurm_ltgf.core.book import Book
from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.order import Rules, turns
from slurm_ltgf.sim.workload import Job


class Ltgf:
    """Lowest start tag first, by the key "credit"; jobs run to their end.

    Jobs that never ran have job index 0: inside a tenant they go by eligible time and id, which is
    the order they came in, and starving ones are its first.
    """

    name = "ltgf"
    period_s = None

    def __init__(
        self,
        weights: Mapping[str, float],
        gpus: int,
        *,
        window_s: float,
        lease_s: float,
        starvation_s: float,
        floor: float,
    ) -> None:
        self._book = Book(weights, capacity_gpus=gpus, window_s=window_s, lease_s=lease_s)
        self._rules = Rules(lease_s=lease_s, starvation_s=starvation_s, floor=floor)
        self._waiting: dict[str, dict[int, PendingJob]] = {name: {} for name in weights}
        self._jobs: dict[int, Job] = {}

    def arrived(self, job: Job, now: int) -> None:
        """To the end of its tenant's queue."""
        self._jobs[job.job_id] = job
        self._waiting[job.tenant][job.job_id] = PendingJob(
            job.job_id, job.tenant, job.gpus, submit=job.submit, eligible=job.submit
        )

    def started(self, job: Job, now: int) -> None:
        """Its lease begins."""
        del self._waiting[job.tenant][job.job_id]
        self._book.start(job.job_id, job.tenant, job.gpus, now, job.limit_s)

    def ended(self, job: Job, now: int) -> None:
        """What is left of its lease is given back."""
        self._book.stop(job.job_id, job.tenant, job.gpus, now)
        del self._jobs[job.job_id]

    def candidates(self, now: int) -> Iterator[Job]:
        """By start tag."""
        queues = {name: jobs.values() for name, jobs in self._waiting.items() if jobs}
        standings = {name: self._book.standing(name, now) for name in queues}
        for turn in turns(queues, standings, rules=self._rules, now=now):
            yield self._jobs[turn.job.job_id]
