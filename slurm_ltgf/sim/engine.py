"""The event loop: arrivals and ends in time order; after each instant, whoever can start does.

Jobs are tried in the policy's order. The first that does not fit gets a reservation, the earliest
time at which it fits if running jobs use their time limits; jobs after it start only where they do
not delay it: they end before, or stay off the reserved nodes (EASY backfill; Mu'alem and Feitelson,
TPDS 2001). Same workload, same policy: the same result, to the byte.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from slurm_ltgf.sim.cluster import Cluster, Nodes
from slurm_ltgf.sim.policies.base import Policy
from slurm_ltgf.sim.workload import Job, Workload

#: Jobs that one pass looks at behind the first that does not fit, as Slurm's bf_max_job_test.
BACKFILL_DEPTH = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulated workload: its jobs with start and end, the GPUs of the cluster, the last instant.

    horizon: where the simulation was cut; jobs without end had not ended by then.
    """

    policy: str
    jobs: tuple[Job, ...]
    gpus: int
    horizon: int


@dataclass(slots=True)
class _Running:
    """Running jobs by the time at which their limit ends them, for reservations."""

    by_limit: list[tuple[int, int]] = field(default_factory=list)
    jobs: dict[int, Job] = field(default_factory=dict)

    def add(self, job: Job, now: int) -> None:
        insort(self.by_limit, (now + job.limit_s, job.job_id))
        self.jobs[job.job_id] = job

    def remove(self, job: Job) -> None:
        del self.jobs[job.job_id]

    def releases(self) -> Iterator[tuple[int, Job]]:
        """(time, job) of those still running, by time; drops what has ended from the list."""
        if len(self.by_limit) > 2 * len(self.jobs) + 64:
            self.by_limit = [entry for entry in self.by_limit if entry[1] in self.jobs]
        for time, job_id in self.by_limit:
            job = self.jobs.get(job_id)
            if job is not None:
                yield time, job


def simulate(
    workload: Workload, cluster: Cluster, policy: Policy, *, horizon: int | None = None
) -> Outcome:
    """Run a workload to its end, or to `horizon` seconds.

    Raises:
        ValueError: a job asks for more GPUs than the cluster has: it would wait for ever.
    """
    jobs = workload.fresh()
    too_big = next((job for job in jobs if job.gpus > cluster.gpus), None)
    if too_big is not None:
        raise ValueError(
            f"job {too_big.job_id} asks for {too_big.gpus} GPUs, the cluster has {cluster.gpus}"
        )
    running = _Running()
    ends: list[tuple[int, int]] = []
    arrived = waiting = 0
    now = 0
    tick = policy.period_s
    while arrived < len(jobs) or ends:
        now = _next_time(jobs, arrived, ends, waiting=waiting, now=now, period_s=tick)
        if horizon is not None and now >= horizon:
            break
        while ends and ends[0][0] == now:
            job = running.jobs[heapq.heappop(ends)[1]]
            job.end = now
            running.remove(job)
            cluster.give(job.nodes)
            policy.ended(job, now)
        while arrived < len(jobs) and jobs[arrived].submit <= now:
            policy.arrived(jobs[arrived], now)
            arrived += 1
            waiting += 1
        if waiting and cluster.free_gpus:
            for job in _start(policy, cluster, running, now):
                heapq.heappush(ends, (now + job.run_s, job.job_id))
                waiting -= 1
    last = now if horizon is None else horizon
    return Outcome(policy.name, tuple(jobs), cluster.gpus, last)


def _next_time(
    jobs: list[Job],
    arrived: int,
    ends: list[tuple[int, int]],
    *,
    waiting: int,
    now: int,
    period_s: int | None,
) -> int:
    times = [ends[0][0]] if ends else []
    if arrived < len(jobs):
        times.append(jobs[arrived].submit)
    if period_s is not None and waiting:
        times.append(now - now % period_s + period_s)
    return min(times)


def _start(policy: Policy, cluster: Cluster, running: _Running, now: int) -> list[Job]:
    """Start what can start now; the jobs that did."""
    started: list[Job] = []
    reserved_at, barred = None, 0
    tried = 0
    for job in policy.candidates(now):
        if not cluster.free_gpus or tried > BACKFILL_DEPTH:
            break
        late = reserved_at is not None and now + job.limit_s > reserved_at
        nodes = cluster.find(job.gpus, barred if late else 0)
        if nodes is not None:
            cluster.take(nodes)
            job.start, job.nodes = now, nodes
            running.add(job, now)
            started.append(job)
        elif reserved_at is None:
            reserved_at, barred = _reservation(job, cluster, running)
        tried += reserved_at is not None
    for job in started:
        policy.started(job, now)
    return started


def _reservation(job: Job, cluster: Cluster, running: _Running) -> tuple[int, int]:
    """When the job will fit at the latest, and the bits of the nodes it will take then."""
    given: list[Nodes] = []
    found, at = None, 0
    for at, other in running.releases():  # noqa: B007  its last value is the answer
        cluster.give(other.nodes)
        given.append(other.nodes)
        found = cluster.find(job.gpus)
        if found is not None:
            break
    for nodes in given:
        cluster.take(nodes)
    return at, sum(1 << node for node, _ in found or ())
