"""Queues in the order of a key, and preemption by it: whoever's quantum is over competes again."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter

from slurm_ltgf.sim.cluster import Cluster, Nodes
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
    for. Who wins is decided by counting GPUs; then winners are given nodes: those of losers, or, if
    these are none that fit, of jobs that come after the winner, which may go on elsewhere. Nobody
    yields but whose nodes (or tenant's quota) a winner needs, nor for a job that does not fit then.
    """

    def __init__(self, *, lease_s: int) -> None:
        super().__init__()
        self.lease_s = self.pass_s = lease_s

    def contest(self, over: Sequence[Job], now: int) -> Iterator[Job]:
        """Waiting jobs and those whose quantum is over, in order."""
        raise NotImplementedError

    def yielding(self, over: Sequence[Job], room: Cluster, now: int) -> Collection[int]:
        """Those whose GPUs a winner can use."""
        served, losers = self._decided(over, room.free_gpus, now)
        if all(job.start is not None for job in served):
            return ()
        trial = _Trial(room)
        yielding = self._needed(served, losers, trial)
        trial.undo()
        return yielding

    def _decided(
        self, over: Sequence[Job], free_gpus: int, now: int
    ) -> tuple[list[Job], list[Job]]:
        """In order those that would be served if all over had given their GPUs back; and the rest
        of these."""
        quota = self.quota_without(over)
        unseen = {job.job_id: job for job in over}
        free = free_gpus + sum(job.gpus for job in over)
        served: list[Job] = []
        losers: list[Job] = []
        passed = 0
        for job in self.contest(over, now):
            if not free or passed > CONTEST_DEPTH:
                break
            is_over = unseen.pop(job.job_id, None) is not None
            if job.gpus <= free and _let_in(quota, job, runs=is_over):
                free -= job.gpus
                served.append(job)
            else:
                passed += 1
                losers += [job] if is_over else []
        return served, [*losers, *unseen.values()]

    def _needed(
        self, served: Sequence[Job], losers: Sequence[Job], trial: _Trial
    ) -> Collection[int]:
        """Ids of those whose nodes or quota the winners take."""
        quota = self.quota_without(losers)
        for job in losers:
            trial.give(job)
        moved: set[int] = set()
        too_many = 1 << 60  # GPUs for which there was no room even without those that come after
        kept = [job for job in served if job.start is not None]
        for i, job in enumerate(served):
            if job.start is not None or not _let_in(quota, job):
                continue
            if not trial.put(job) and job.gpus < too_many:
                after = {other.job_id for other in served[i:]}
                out = trial.put_instead(job, [other for other in kept if other.job_id in after])
                too_many = too_many if out else job.gpus
                moved |= out
                kept = [other for other in kept if other.job_id not in out]
        for job in losers if trial.placed else ():
            if not (trial.is_free(job) and _let_in(quota, job, runs=True)):
                moved.add(job.job_id)
        return moved


class _Trial:
    """What would be if; undone at the end."""

    def __init__(self, room: Cluster) -> None:
        self.placed = 0
        self._room = room
        self._done: list[tuple[bool, Nodes, Job]] = []

    def give(self, job: Job) -> None:
        """A running job gives its nodes back."""
        self._room.give(job.nodes, job)
        self._done.append((True, job.nodes, job))

    def put(self, job: Job) -> bool:
        """Place a waiting job, if it fits."""
        nodes = self._room.find(job)
        if nodes is not None:
            self._take(nodes, job)
            self.placed += 1
        return nodes is not None

    def put_instead(self, job: Job, others: Sequence[Job]) -> set[int]:
        """Place a waiting job on nodes of running ones; ids of those. Empty: it does not fit."""
        for other in others:
            self.give(other)
        self.put(job)
        out = set()
        for other in others:
            if self.is_free(other):
                self._take(other.nodes, other)
            else:
                out.add(other.job_id)
        return out

    def is_free(self, job: Job) -> bool:
        """Whether nobody took a running job's nodes."""
        return all(self._room.free[node] >= gpus for node, gpus in job.nodes)

    def undo(self) -> None:
        """The cluster as it was."""
        for gave, nodes, job in reversed(self._done):
            (self._room.take if gave else self._room.give)(nodes, job)

    def _take(self, nodes: Nodes, job: Job) -> None:
        self._room.take(nodes, job)
        self._done.append((False, nodes, job))


def _let_in(quota: Quota | None, job: Job, *, runs: bool = False) -> bool:
    return quota is None or (quota.keeps(job) if runs else quota.admits(job))


class KeyedPreemptive(KeyedQueue, Preemptive):
    """Preemptive in the order of a key."""

    def contest(self, over: Sequence[Job], now: int) -> Iterator[Job]:
        """Waiting jobs and those whose quantum is over, in order."""
        running = sorted((self.key(job, now), job) for job in over)
        return (job for _, job in heapq.merge(self._keyed(()), running, key=itemgetter(0)))
