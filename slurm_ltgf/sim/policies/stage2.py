"""Stage 2 of LTGF kept as it happens: one tenant's waiting jobs as core.order.in_tenant sorts them.

Starving jobs by submit time, then jobs that never ran, then those that were moved by their job
index rho_j = S_j / E_j (LTGF.md section 3). A test compares it with `in_tenant` and `job_fairness`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import itemgetter

from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.order import rho_steps
from slurm_ltgf.sim.workload import Job

_INF = float("inf")
_Key = tuple[float, ...]
#: (GPU-seconds a job got, without GPUs that it holds x time; these; its GPUs; what was due when it
#: came; key; record)
Stake = tuple[int, int, int, float, _Key, PendingJob]
#: (job index in steps, key, record)
Rated = tuple[float, _Key, PendingJob]
#: Runs whose work goes on later.
KEPT = ("PREEMPTED",)
#: What decides between jobs of one tenant with equal rho; then whoever waits longer, then the id.
TIES: dict[str, Callable[[Job], float]] = {
    "rho": lambda job: 0,
    "size": lambda job: job.gpus,
    "short": lambda job: job.gpus * job.limit_s,
}


class Indices:
    """Job indices: what each job of the tenant got over what its part of the quota would give."""

    def __init__(self, quota_gpus: float, rho_step: float) -> None:
        self._quota_gpus = quota_gpus
        self._steps = rho_steps(rho_step)
        self._present = 0
        self._now = 0
        self._due: dict[int, float] = {}  # GPUs -> ∫ min(g, Q / jobs present) dt
        self._begun: dict[int, float] = {}

    def arrived(self, job: Job, now: int) -> None:
        """The job is present from now on."""
        self._advance(now)
        self._present += 1
        if job.job_id not in self._begun:
            self._begun[job.job_id] = self._due.setdefault(job.gpus, 0.0)

    def ended(self, now: int) -> None:
        """A job is present no more; it may arrive again."""
        self._advance(now)
        self._present -= 1

    def stake(self, job: Job, key: _Key, record: PendingJob) -> Stake:
        """What `rated` has to know of a job that waits, or runs since now."""
        gpus = job.gpus if job.start is not None else 0
        got = job.gpus * job.kept_s - gpus * (job.start or 0)
        return got, gpus, job.gpus, self._begun[job.job_id], key, record

    def rated(self, stakes: Iterable[Stake], now: int) -> list[Rated]:
        """Jobs by rho = S / E in steps, then by their keys; runs that failed are no work."""
        if now != self._now:
            self._advance(now)
        due, steps = self._due, self._steps
        rows = []
        for got, runs, gpus, begun, key, record in stakes:
            own = due[gpus] - begun
            rho = (got + runs * now) / own if own > 0 else _INF
            # in_steps, without the price of a call
            rows.append((rho if rho < 1 else bisect_right(steps, rho) or rho, key, record))
        rows.sort()  # no two keys are alike
        return rows

    def _advance(self, now: int) -> None:
        if now > self._now and self._present:
            each = self._quota_gpus / self._present
            for gpus in self._due:
                self._due[gpus] += min(gpus, each) * (now - self._now)
        self._now = now


class TenantQueue:
    """One tenant's waiting jobs in order. records: by job id, with their jobs."""

    def __init__(self, tie: str, starvation_s: float, indices: Indices) -> None:
        self._tie = TIES[tie]
        self._starvation_s = starvation_s
        self._indices = indices
        self.records: dict[int, tuple[Job, PendingJob]] = {}
        self._fresh: list[tuple[_Key, PendingJob]] = []
        self._starving: list[tuple[_Key, PendingJob]] = []
        self._moved: dict[int, Stake] = {}
        self._oldest: list[tuple[int, int]] = []
        self._by_rho: tuple[int, list[Rated]] | None = None  # as of when

    def add(self, job: Job, record: PendingJob) -> None:
        """A job waits."""
        self.records[job.job_id] = (job, record)
        heapq.heappush(self._oldest, (record.submit, job.job_id))
        if any(hold.state in KEPT for hold in job.runs):
            self._moved[job.job_id] = self.stake(job, record)
            self._by_rho = None
        else:
            insort(self._fresh, (self._key(job, record), record), key=itemgetter(0))

    def remove(self, job: Job) -> None:
        """A job waits no more."""
        _, record = self.records.pop(job.job_id)
        if self._moved.pop(job.job_id, None) is not None:
            self._by_rho = None
        elif not _drop(self._fresh, self._key(job, record)):
            _drop(self._starving, _age(record))

    def first_like(self, job: Job, now: int) -> bool:
        """Whether no job waits before this one that asks for as few GPUs."""
        for record in self.in_order(now):
            if record.gpus <= job.gpus:
                return record.job_id == job.job_id
        return False

    def stake(self, job: Job, record: PendingJob) -> Stake:
        """Of a running job of the tenant, for `with_running`."""
        return self._indices.stake(job, self._key(job, record), record)

    def with_running(
        self, waiting: Iterable[Job], running: Iterable[Stake], now: int
    ) -> list[PendingJob]:
        """Some of the waiting jobs, as they come in the order, and running ones among them."""
        first: list[PendingJob] = []
        stakes = list(running)
        for job in waiting:
            moved = self._moved.get(job.job_id)
            if moved is None:
                first.append(self.records[job.job_id][1])
            else:
                stakes.append(moved)
        return first + [row[2] for row in self._indices.rated(stakes, now)]

    def in_order(self, now: int) -> Iterator[PendingJob]:
        """Starving, fresh, moved."""
        if self._oldest and now - self._oldest[0][0] > self._starvation_s:
            self._starve(now)
        first: Iterator[PendingJob] = map(itemgetter(1), self._fresh)
        if self._starving:
            first = chain(map(itemgetter(1), self._starving), first)
        return chain(first, self._moved_by_rho(now)) if self._moved else first

    def _moved_by_rho(self, now: int) -> Iterator[PendingJob]:
        if self._by_rho is None or self._by_rho[0] != now:
            self._by_rho = now, self._indices.rated(self._moved.values(), now)
        yield from map(itemgetter(2), self._by_rho[1])

    def _starve(self, now: int) -> None:
        while self._oldest and now - self._oldest[0][0] > self._starvation_s:
            since, job_id = heapq.heappop(self._oldest)
            job, record = self.records.get(job_id, (None, None))
            if job is None or record is None or record.submit != since:
                continue  # it started meanwhile, and may wait again since
            self._by_rho = None
            if self._moved.pop(job_id, None) or _drop(self._fresh, self._key(job, record)):
                insort(self._starving, (_age(record), record), key=itemgetter(0))

    def _key(self, job: Job, record: PendingJob) -> _Key:
        return (self._tie(job), record.eligible, record.job_id)


def _age(record: PendingJob) -> _Key:
    return (record.submit, record.job_id)


def _drop(lane: list[tuple[_Key, PendingJob]], key: _Key) -> bool:
    """Take an entry out; whether it was there."""
    i = bisect_left(lane, key, key=itemgetter(0))
    if i == len(lane) or lane[i][0] != key:
        return False
    del lane[i]
    return True
