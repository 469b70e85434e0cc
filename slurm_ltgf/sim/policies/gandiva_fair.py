"""gandiva-fair: tickets per active user, gang-aware split stride scheduling in time quanta.

    pass of a user   GPU-time of its jobs over its tickets; the lowest goes first, and is charged
                     g · quantum for the job it takes before the next choice
    pass of a job    time that it ran; a user's tickets are split over its jobs by their GPUs, so
                     that each of them runs equally long
    gangs            a job that does not fit the GPUs left in this quantum is passed over, keeps its
                     pass, and so comes first in the next
    newcomers        a user (a job) that was away comes back at the lowest pass of those present:
                     who asked for nothing has saved nothing

Source: Chaudhary et al., "Balancing efficiency and fairness in heterogeneous GPU clusters for deep
learning", EuroSys 2020, split stride and gang-aware scheduling; its quantum is one minute, on
servers that suspend and resume a job in well under a second. Here a move costs 25 s of GPU-time,
so the default is 900 s; lease=60 is the paper's. Left out: its split into a scheduler
a server with migration between them (the engine places jobs over the whole cluster), and trading
between GPU generations. Users are tenants, tickets their weights.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter

from slurm_ltgf.sim.policies.queues import Preemptive
from slurm_ltgf.sim.workload import Job

#: (pass, submit time, id, job).
_Entry = tuple[float, int, int, Job]


class GandivaFair(Preemptive):
    """Lowest pass first, of users and then of their jobs."""

    name = "gandiva-fair"

    def __init__(self, tickets: Mapping[str, float], lease_s: int = 900) -> None:
        super().__init__(lease_s=lease_s)
        self._tickets = tickets
        self._pass = dict.fromkeys(tickets, 0.0)
        self._own: dict[int, float] = {}  # job id -> pass when its present wait or run began
        self._lanes: dict[str, list[_Entry]] = {name: [] for name in tickets}
        self._running: dict[str, dict[int, Job]] = {name: {} for name in tickets}
        self._now = 0

    def arrived(self, job: Job, now: int) -> None:
        """At the lowest pass of those present, or at its own if that is higher."""
        self._charge(now)
        lane, running = self._lanes[job.tenant], self._running[job.tenant]
        if not lane and not running:
            present = [p for name, p in self._pass.items() if self._is_active(name)]
            self._pass[job.tenant] = max(self._pass[job.tenant], min(present, default=0.0))
        if job.job_id not in self._own:
            there = chain(lane[:1], (self._entry(other, now) for other in running.values()))
            self._own[job.job_id] = min((entry[0] for entry in there), default=0.0)
        insort(lane, self._entry(job, now))

    def started(self, job: Job, now: int) -> None:
        """It waits no more."""
        self._charge(now)
        super().started(job, now)
        lane = self._lanes[job.tenant]
        del lane[bisect_left(lane, (self._own[job.job_id], job.submit, job.job_id))]
        self._running[job.tenant][job.job_id] = job

    def ended(self, job: Job, now: int) -> None:
        """Its pass has risen by the time that it ran."""
        self._charge(now)
        super().ended(job, now)
        self._own[job.job_id] = self._entry(job, now)[0]
        del self._running[job.tenant][job.job_id]

    def queue(self, now: int, closed: Collection[str]) -> Iterator[Job]:
        """Waiting jobs by stride."""
        return self._by_stride((), now, closed)

    def contest(self, over: Sequence[Job], now: int) -> Iterator[Job]:
        """Waiting jobs and those whose quantum is over, by stride."""
        return self._by_stride(over, now, ())

    def reason(self, job: Job, now: int) -> str:
        """Its tenant's pass and its own."""
        return (
            f"pass {self._pass[job.tenant]:.4g} of its tenant, {self._own[job.job_id]:.4g} its own"
        )

    def _by_stride(self, over: Iterable[Job], now: int, closed: Collection[str]) -> Iterator[Job]:
        self._charge(now)
        again: dict[str, list[_Entry]] = {}
        for job in over:
            again.setdefault(job.tenant, []).append(self._entry(job, now))
        streams = [
            self._tagged(name, lane, sorted(again.get(name, ())), closed)
            for name, lane in self._lanes.items()
            if lane or name in again
        ]
        return (job for _, job in heapq.merge(*streams, key=itemgetter(0)))

    def _tagged(
        self, user: str, lane: list[_Entry], over: list[_Entry], closed: Collection[str]
    ) -> Iterator[tuple[tuple[float, str], Job]]:
        """A user's jobs with its pass as it will be before each of them is chosen."""
        tickets = self._tickets[user] or 1e-9
        charged = self.held[user] - sum(entry[3].gpus for entry in over)
        for _, _, _, job in heapq.merge(lane, over) if over else lane:
            if user in closed:
                return
            yield (self._pass[user] + charged * self.pass_s / tickets, user), job
            charged += job.gpus

    def _entry(self, job: Job, now: int) -> _Entry:
        ran_s = 0 if job.start is None else now - job.start
        return (self._own[job.job_id] + ran_s, job.submit, job.job_id, job)

    def _is_active(self, user: str) -> bool:
        return bool(self._lanes[user] or self._running[user])

    def _charge(self, now: int) -> None:
        """Users' passes up to now."""
        if now > self._now:
            for name, gpus in self.held.items():
                self._pass[name] += gpus * (now - self._now) / (self._tickets[name] or 1e-9)
            self._now = now
