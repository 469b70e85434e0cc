"""fifo-static: a queue a tenant, each inside its fixed quota, run to completion (YARN-CS).

Source: the capacity scheduler without borrowing, as ASTRAEA and Tiresias compare with it. A job
larger than its tenant's quota would never run: it may when its tenant holds nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from slurm_ltgf.sim.policies.base import ToTheEnd
from slurm_ltgf.sim.workload import Job


class FifoStatic(ToTheEnd):
    """First in, first out, within quotas Q_i = C · w_i / Σw."""

    name = "fifo-static"

    def __init__(self, weights: Mapping[str, float], gpus: int) -> None:
        total = sum(weights.values()) or 1.0
        self._quota = {name: gpus * weight / total for name, weight in weights.items()}
        self._held = dict.fromkeys(weights, 0)
        self._waiting: dict[str, dict[int, Job]] = {name: {} for name in weights}

    def arrived(self, job: Job, now: int) -> None:
        """To the end of its tenant's queue."""
        self._waiting[job.tenant][job.job_id] = job

    def started(self, job: Job, now: int) -> None:
        """Out of the queue, into what the tenant holds."""
        del self._waiting[job.tenant][job.job_id]
        self._held[job.tenant] += job.gpus

    def ended(self, job: Job, now: int) -> None:
        """The tenant holds less."""
        self._held[job.tenant] -= job.gpus

    def candidates(self, now: int) -> Iterator[Job]:
        """Of each tenant those at the head that its quota has room for, oldest first."""
        heads = [self._within(name) for name in self._waiting]
        return heapq.merge(*heads, key=lambda job: (job.submit, job.job_id))

    def _within(self, tenant: str) -> Iterator[Job]:
        held = self._held[tenant]
        for job in self._waiting[tenant].values():
            if held and held + job.gpus > self._quota[tenant]:
                return
            held += job.gpus
            yield job
