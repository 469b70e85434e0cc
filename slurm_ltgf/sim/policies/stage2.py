"""Stage 2 of LTGF kept as it happens: one tenant's waiting jobs as core.order.in_tenant sorts them.

Starving jobs by submit time, then jobs that never ran, then those that were moved by their job
index rho_j = S_j / E_j (LTGF.md section 3). A test compares it with `in_tenant` and `job_fairness`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import chain
from operator import itemgetter

from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.sim.workload import Job

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

    def __init__(self, quota_gpus: float) -> None:
        self._quota_gpus = quota_gpus
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

    def rho(self, job: Job, now: int) -> float:
        """S over E of a job that waits or runs; runs that failed are no work."""
        if now != self._now:
            self._advance(now)
        got = job.gpus * (job.kept_s + (0 if job.start is None else now - job.start))
        due = self._due[job.gpus] - self._begun[job.job_id]
        return got / due if due > 0 else float("inf")

    def _advance(self, now: int) -> None:
        if now > self._now and self._present:
            each = self._quota_gpus / self._present
            for gpus in self._due:
                self._due[gpus] += min(gpus, each) * (now - self._now)
        self._now = now


class TenantQueue:
    """One tenant's waiting jobs in order."""

    def __init__(self, tie: str, starvation_s: float, indices: Indices) -> None:
        self._tie = TIES[tie]
        self._starvation_s = starvation_s
        self._indices = indices
        self._records: dict[int, tuple[Job, PendingJob]] = {}
        self._fresh: list[tuple[_Key, PendingJob]] = []
        self._starving: list[tuple[_Key, PendingJob]] = []
        self._moved: dict[int, Job] = {}
        self._oldest: list[tuple[int, int]] = []
        self._by_rho: tuple[int, list[PendingJob]] | None = None  # as of when

    def __bool__(self) -> bool:
        """Whether any job waits."""
        return bool(self._records)

    def record(self, job: Job) -> PendingJob:
        """The record of a waiting job."""
        return self._records[job.job_id][1]

    def add(self, job: Job, record: PendingJob) -> None:
        """A job waits."""
        self._records[job.job_id] = (job, record)
        heapq.heappush(self._oldest, (record.submit, job.job_id))
        if any(hold.state in KEPT for hold in job.runs):
            self._moved[job.job_id] = job
            self._by_rho = None
        else:
            insort(self._fresh, (self._key(job, record), record), key=itemgetter(0))

    def remove(self, job: Job) -> None:
        """A job waits no more."""
        _, record = self._records.pop(job.job_id)
        if self._moved.pop(job.job_id, None) is not None:
            self._by_rho = None
        elif not _drop(self._fresh, self._key(job, record)):
            _drop(self._starving, _age(record))

    def in_order(self, now: int) -> Iterator[PendingJob]:
        """Starving, fresh, moved."""
        self._starve(now)
        record = itemgetter(1)
        first = chain(map(record, self._starving), map(record, self._fresh))
        return chain(first, self._moved_by_rho(now)) if self._moved else first

    def _moved_by_rho(self, now: int) -> Iterator[PendingJob]:
        if self._by_rho is None or self._by_rho[0] != now:
            self._by_rho = now, self._ranked(now)
        yield from self._by_rho[1]

    def _ranked(self, now: int) -> list[PendingJob]:
        rows = [
            ((self._indices.rho(job, now), *self._key(job, record)), record)
            for job, record in (self._records[job_id] for job_id in self._moved)
        ]
        rows.sort(key=itemgetter(0))
        return [record for _, record in rows]

    def _starve(self, now: int) -> None:
        while self._oldest and now - self._oldest[0][0] > self._starvation_s:
            _, job_id = heapq.heappop(self._oldest)
            job, record = self._records.get(job_id, (None, None))
            if job is None or record is None:
                continue
            self._by_rho = None
            if self._moved.pop(job_id, None) or _drop(self._fresh, self._key(job, record)):
                insort(self._starving, (_age(record), record), key=itemgetter(0))

    def _key(self, job: Job, record: PendingJob) -> _Key:
        return (self._tie(job), record.eligible, record.job_id)


_Key = tuple[float, ...]


def _age(record: PendingJob) -> _Key:
    return (record.submit, record.job_id)


def _drop(lane: list[tuple[_Key, PendingJob]], key: _Key) -> bool:
    """Take an entry out; whether it was there."""
    i = bisect_left(lane, key, key=itemgetter(0))
    if i == len(lane) or lane[i][0] != key:
        return False
    del lane[i]
    return True
