"""Leases of the virtual cluster: when they end, and who keeps its GPUs until others need them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from slurm_ltgf.sim.policies.base import Policy
from slurm_ltgf.sim.workload import Job


class Leases:
    """Of running jobs, on the terms of a policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._ends: list[tuple[int, int]] = []  # (end, job id)
        self._running: dict[int, tuple[int, Job]] = {}  # by job id, with the end
        self._over: dict[int, Job] = {}
        self._rests_until = 0

    def grant(self, job: Job, now: int) -> int | None:
        """Begin a lease; when it ends. None: the policy has none."""
        if self._policy.lease_s is None:
            return None
        end = -(-(now + self._policy.lease_s) // self._policy.pass_s) * self._policy.pass_s
        self._running[job.job_id] = end, job
        heapq.heappush(self._ends, (end, job.job_id))
        return end

    def renew(self, jobs: Iterable[Job], now: int, *, in_vain: bool) -> int | None:
        """Let jobs keep their GPUs; when they are asked for them again.

        in_vain: nobody had to yield.
        """
        if self._policy.asks_again:
            self._rests_until = now + self._policy.rest_s if in_vain else 0
            return max(self._next_pass(now), self._rests_until)
        until = None
        for job in jobs:
            until = self.grant(job, now)
        return until

    def drop(self, job: Job) -> None:
        """A job gives its GPUs back."""
        self._running.pop(job.job_id, None)
        self._over.pop(job.job_id, None)

    def looks(self, now: int) -> Iterator[int]:
        """When to look at leases next, if jobs wait."""
        if self._ends:
            yield max(self._ends[0][0], now + 1)
        if self._over:
            yield max(self._next_pass(now), self._rests_until)

    def over(self, now: int, new: Iterable[Job]) -> list[Job]:
        """Jobs to be asked for their GPUs now.

        new: jobs that came just now and found no room.
        """
        ended: dict[int, Job] = {}
        while self._ends and self._ends[0][0] <= now:
            end, job_id = heapq.heappop(self._ends)
            if self._running.get(job_id, (None, None))[0] == end:
                ended[job_id] = self._running.pop(job_id)[1]
        if not self._policy.asks_again:
            return list(ended.values())
        self._over.update(ended)
        is_time = now % self._policy.pass_s == 0 and now >= self._rests_until
        if self._over and (is_time or any(self._policy.looks_for(job, now) for job in new)):
            return list(self._over.values())
        return []

    def _next_pass(self, now: int) -> int:
        return (now // self._policy.pass_s + 1) * self._policy.pass_s
