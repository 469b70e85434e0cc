"""The event loop: arrivals and ends in time order; after each instant, whoever can start does.

Jobs are tried in the policy's order. The first that does not fit gets a reservation, the earliest
time at which it fits if running jobs use their time limits; jobs after it start only where they do
not delay it: they end before, or stay off the reserved nodes (EASY backfill; Mu'alem and Feitelson,
TPDS 2001). A job that yields holds its GPUs while it is checkpointed, waits again, and restores
before it works on: both are in the time line and on its tenant's account.
Same workload, same policy: the same result, to the byte.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass

from slurm_ltgf.sim.cluster import Cluster, Nodes
from slurm_ltgf.sim.policies.base import Policy
from slurm_ltgf.sim.workload import Job, Workload

#: Jobs that one pass looks at behind the first that does not fit, as Slurm's bf_max_job_test.
BACKFILL_DEPTH = 500
#: Leases are looked at in passes, this often: the daemon's default interval.
PASS_S = 30


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that a job holds its GPUs without working, each time it is moved."""

    checkpoint_s: int = 5
    restore_s: int = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulated workload: its jobs with their runs, the GPUs of the cluster, the last instant.

    horizon: where the simulation was cut; jobs without end had not ended by then. overhead_gpu_s:
    spent on checkpoints and restores.
    """

    policy: str
    jobs: tuple[Job, ...]
    gpus: int
    horizon: int
    overhead_gpu_s: int = 0


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    *,
    horizon: int | None = None,
    costs: Costs | None = None,
) -> Outcome:
    """Run a workload to its end, or to `horizon` seconds.

    Raises:
        ValueError: a job asks for more GPUs than the cluster has: it would wait for ever.
    """
    too_big = next((job for job in workload.jobs if job.gpus > cluster.gpus), None)
    if too_big is not None:
        raise ValueError(
            f"job {too_big.job_id} asks for {too_big.gpus} GPUs, the cluster has {cluster.gpus}"
        )
    world = _World(workload.fresh(), cluster, policy, costs or Costs())
    while (now := world.next_time()) is not None and (horizon is None or now < horizon):
        world.advance(now)
    last = world.now if horizon is None else horizon
    return Outcome(policy.name, tuple(world.jobs), cluster.gpus, last, world.overhead_gpu_s)


@dataclass(slots=True)
class _Grip:
    """A running job's present hold on its GPUs. yields_at: its checkpoint ends then; else None."""

    job: Job
    since: int
    works_from: int
    yields_at: int | None = None


class _World:
    """Everything that changes with time."""

    def __init__(self, jobs: list[Job], cluster: Cluster, policy: Policy, costs: Costs) -> None:
        self.jobs = jobs
        self.now = 0
        self.overhead_gpu_s = 0
        self._cluster = cluster
        self._policy = policy
        self._costs = costs
        self._arrived = 0
        self._waiting = 0
        self._grips: dict[int, _Grip] = {}
        self._releases: list[tuple[int, int, int]] = []  # (time, job id, since) ends and yields
        self._leases: list[tuple[int, int, int]] = []
        self._by_limit: list[tuple[int, int, int]] = []

    def next_time(self) -> int | None:
        """The next instant at which something happens; None: nothing will."""
        times = [heap[0][0] for heap in (self._releases,) if heap]
        if self._arrived < len(self.jobs):
            times.append(self.jobs[self._arrived].submit)
        if not times:
            return None
        if self._waiting:
            if self._policy.period_s is not None:
                times.append(self.now - self.now % self._policy.period_s + self._policy.period_s)
            if self._leases:
                times.append(max(self._leases[0][0], self.now + 1))
        return min(times)

    def advance(self, now: int) -> None:
        """Let everything happen that happens at an instant."""
        self.now = now
        before = (self._arrived, len(self._grips))
        self._release()
        while self._arrived < len(self.jobs) and self.jobs[self._arrived].submit <= now:
            self._wait(self.jobs[self._arrived])
            self._arrived += 1
        period_s = self._policy.period_s
        has_news = before != (self._arrived, len(self._grips)) or (
            period_s is not None and now % period_s == 0
        )
        if has_news and self._waiting and self._cluster.free_gpus:
            self._start()
        if self._waiting:
            self._end_leases()

    # --- ends and yields --------------------------------------------------------------------------

    def _release(self) -> None:
        while self._releases and self._releases[0][0] <= self.now:
            _, job_id, since = heapq.heappop(self._releases)
            grip = self._grips.get(job_id)
            if grip is None or grip.since != since:
                continue  # of an earlier run
            if grip.yields_at is not None and grip.yields_at > self.now:
                continue  # it was to end now, but is being checkpointed
            del self._grips[job_id]
            self._cluster.give(grip.job.nodes)
            self._policy.ended(grip.job, self.now)
            if grip.yields_at is None:
                grip.job.left_s, grip.job.end = 0, self.now
            else:
                grip.job.runs.append((grip.since, self.now))
                grip.job.start = None
                self._wait(grip.job)

    def _wait(self, job: Job) -> None:
        self._policy.arrived(job, self.now)
        self._waiting += 1

    def _end_leases(self) -> None:
        """Ask the policy about jobs whose lease is over; the others' leases begin anew."""
        over: list[Job] = []
        while self._leases and self._leases[0][0] <= self.now:
            _, job_id, since = heapq.heappop(self._leases)
            grip = self._grips.get(job_id)
            if grip is not None and grip.since == since and grip.yields_at is None:
                over.append(grip.job)
        if not over:
            return
        yielding = self._policy.yielding(over, self._cluster.free_gpus, self.now)
        for job in over:
            if job.job_id in yielding:
                self._checkpoint(self._grips[job.job_id])
            else:
                self._grant_lease(job, self._grips[job.job_id].since)

    def _checkpoint(self, grip: _Grip) -> None:
        worked = max(self.now - grip.works_from, 0)
        grip.job.left_s = max(grip.job.left_s - worked, 1)
        grip.yields_at = self.now + self._costs.checkpoint_s
        self.overhead_gpu_s += grip.job.gpus * self._costs.checkpoint_s
        heapq.heappush(self._releases, (grip.yields_at, grip.job.job_id, grip.since))

    # --- starts -----------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start what can start now."""
        started: list[Job] = []
        reserved_at, barred = None, 0
        tried = 0
        for job in self._policy.candidates(self.now):
            if not self._cluster.free_gpus or tried > BACKFILL_DEPTH:
                break
            late = reserved_at is not None and self.now + job.limit_s > reserved_at
            nodes = self._cluster.find(job.gpus, barred if late else 0)
            if nodes is not None:
                self._hold(job, nodes)
                started.append(job)
            elif reserved_at is None:
                reserved_at, barred = self._reservation(job)
            tried += reserved_at is not None
        for job in started:
            self._policy.started(job, self.now)
        self._waiting -= len(started)

    def _hold(self, job: Job, nodes: Nodes) -> None:
        restore_s = self._costs.restore_s if job.runs else 0
        self._cluster.take(nodes)
        job.start, job.nodes = self.now, nodes
        self._grips[job.job_id] = _Grip(job, self.now, self.now + restore_s)
        self.overhead_gpu_s += job.gpus * restore_s
        end = self.now + restore_s + job.left_s
        heapq.heappush(self._releases, (end, job.job_id, self.now))
        insort(self._by_limit, (self.now + job.limit_s, job.job_id, self.now))
        self._grant_lease(job, self.now)

    def _grant_lease(self, job: Job, since: int) -> None:
        if self._policy.lease_s is not None:
            end = -(-(self.now + self._policy.lease_s) // PASS_S) * PASS_S
            heapq.heappush(self._leases, (end, job.job_id, since))

    def _reservation(self, job: Job) -> tuple[int, int]:
        """When the job will fit at the latest, and the bits of the nodes it will take then."""
        given: list[Nodes] = []
        found, at = None, 0
        for at, other in self._by_limits():  # noqa: B007  its last value is the answer
            self._cluster.give(other.nodes)
            given.append(other.nodes)
            found = self._cluster.find(job.gpus)
            if found is not None:
                break
        for nodes in given:
            self._cluster.take(nodes)
        return at, sum(1 << node for node, _ in found or ())

    def _by_limits(self) -> Iterator[tuple[int, Job]]:
        """(time, job) of running jobs by the time at which their limit ends them."""
        if len(self._by_limit) > 2 * len(self._grips) + 64:
            self._by_limit = [entry for entry in self._by_limit if self._is_held(entry)]
        for entry in self._by_limit:
            if self._is_held(entry):
                yield entry[0], self._grips[entry[1]].job

    def _is_held(self, entry: tuple[int, int, int]) -> bool:
        grip = self._grips.get(entry[1])
        return grip is not None and grip.since == entry[2]
