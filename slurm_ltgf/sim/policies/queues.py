"""Queues in the order of a key, and preemption by it: whoever's quantum is over competes again."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter

from slurm_ltgf.sim.cluster import Cluster
from slurm_ltgf.sim.policies.base import Base, Quota
from slurm_ltgf.sim.workload import Job

#: Sorts jobs, lowest first; ends with the job's id, so that no two are alike.
Key = tuple[float, ...]
#: Jobs that do not fit which a contest looks at, as Slurm's bf_max_job_test.
CONTEST_DEPTH = 500


class KeyedQueue(Base):
    """Waiting jobs in the order of a key that stands still while they wait."""

    def __init__(self, **terms: int) -> None:
        super().__init__(**terms)
        self._lanes: dict[str, list[tuple[Key, Job]]] = {}
        self._key_of: dict[int, Key] = {}

    def key(self, job: Job, now: int) -> Key:
        """The job's place, whether it waits or runs."""
        raise NotImplementedError

    def arrived(self, job: Job, now: int) -> None:
        """To its place."""
        key = self._key_of[job.job_id] = self.key(job, now)
        insort(self._lanes.setdefault(self._lane(job), []), (key, job))

    def started(self, job: Job, now: int) -> None:
        """Out of the queue."""
        super().started(job, now)
        self._leave(job)

    def queue(self, now: int, closed: Collection[str]) -> Iterator[Job]:
        """Lowest key first."""
        return (job for _, job in self._keyed(closed))

    def _keyed(self, closed: Collection[str]) -> Iterator[tuple[Key, Job]]:
        if self.limits is None:
            return iter(self._lanes.get("", ()))
        streams = [_open(tenant, lane, closed) for tenant, lane in self._lanes.items()]
        return heapq.merge(*streams, key=itemgetter(0))

    def _leave(self, job: Job) -> None:
        lane = self._lanes[self._lane(job)]
        del lane[bisect_left(lane, self._key_of.pop(job.job_id), key=itemgetter(0))]

    def _lane(self, job: Job) -> str:
        """A lane a tenant, where whole tenants may be left out."""
        return "" if self.limits is None else job.tenant


def _open(
    tenant: str, lane: Sequence[tuple[Key, Job]], closed: Collection[str]
) -> Iterator[tuple[Key, Job]]:
    for entry in lane:
        if tenant in closed:
            return
        yield entry


class Preemptive(Base):
    """Jobs whose quantum is over compete with the waiting ones; losers yield if that helps one.

    The quantum ends for all that have run one at the same time, so that large jobs can be made room
    for. Who wins is decided by counting GPUs; a loser yields only where a winner was found nodes
    that need its own (or its tenant's quota). Nobody yields for a job that would not fit then.
    """

    def __init__(self, *, lease_s: int) -> None:
        super().__init__()
        self.lease_s = self.pass_s = lease_s

    def contest(self, over: Sequence[Job], now: int) -> Iterator[Job]:
        """Waiting jobs and those whose quantum is over, in order."""
        raise NotImplementedError

    def yielding(self, over: Sequence[Job], room: Cluster, now: int) -> Collection[int]:
        """The losers whose GPUs a winner can use."""
        winners, losers = self._decided(over, room.free_gpus, now)
        return self._needed(winners, losers, room) if winners and losers else ()

    def _decided(
        self, over: Sequence[Job], free_gpus: int, now: int
    ) -> tuple[list[Job], list[Job]]:
        """Waiting jobs that would be served if those over had given their GPUs back; the latter
        that would not, those seen first in order."""
        quota = self.quota_without(over)
        unseen = {job.job_id: job for job in over}
        free = free_gpus + sum(job.gpus for job in over)
        winners: list[Job] = []
        losers: list[Job] = []
        passed = 0
        for job in self.contest(over, now):
            if not free or passed > CONTEST_DEPTH:
                break
            is_over = unseen.pop(job.job_id, None) is not None
            if job.gpus > free or not _let_in(quota, job, runs=is_over):
                passed += 1
                if is_over:
                    losers.append(job)
                continue
            free -= job.gpus
            if not is_over:
                winners.append(job)
        return winners, [*losers, *unseen.values()]

    def _needed(
        self, winners: Sequence[Job], losers: Sequence[Job], room: Cluster
    ) -> Collection[int]:
        """Ids of the losers whose nodes or quota the winners take; tried out, then undone."""
        quota = self.quota_without(losers)
        taken = []
        for job in losers:
            room.give(job.nodes, job)
        for job in winners:
            nodes = room.find(job) if _let_in(quota, job) else None
            if nodes is not None:
                room.take(nodes, job)
                taken.append((nodes, job))
        yielding = set()
        for job in losers if taken else ():
            is_free = all(room.free[node] >= gpus for node, gpus in job.nodes)
            if is_free and _let_in(quota, job, runs=True):
                room.take(job.nodes, job)
                taken.append((job.nodes, job))
            else:
                yielding.add(job.job_id)
        for nodes, job in taken:
            room.give(nodes, job)
        for job in losers:
            room.take(job.nodes, job)
        return yielding


def _let_in(quota: Quota | None, job: Job, *, runs: bool = False) -> bool:
    return quota is None or (quota.keeps(job) if runs else quota.admits(job))


class KeyedPreemptive(KeyedQueue, Preemptive):
    """Preemptive in the order of a key."""

    def contest(self, over: Sequence[Job], now: int) -> Iterator[Job]:
        """Waiting jobs and those whose quantum is over, in order."""
        running = sorted((self.key(job, now), job) for job in over)
        return (job for _, job in heapq.merge(self._keyed(()), running, key=itemgetter(0)))
