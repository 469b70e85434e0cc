"""The event loop: arrivals and ends in time order; after each instant, whoever can start does.

Jobs are tried in the policy's order, with backfill (sim.backfill). A job that yields holds its GPUs
while it is checkpointed, waits again, and restores before it works on: both are in the time line
and on its tenant's account. A run that fails gives its GPUs back, its work is lost, and the job
waits again. Same workload, same policy: the same result, to the byte.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from slurm_ltgf.sim.backfill import Backfill, Plan, plan
from slurm_ltgf.sim.cluster import Cluster, Nodes
from slurm_ltgf.sim.explain import Action, Decision, Observer
from slurm_ltgf.sim.leases import Leases
from slurm_ltgf.sim.policies.base import Policy
from slurm_ltgf.sim.reservations import Held
from slurm_ltgf.sim.waiting import Waiting
from slurm_ltgf.sim.workload import Hold, Job, Workload


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that GPUs are held without work.

    checkpoint_s, restore_s: by a job, each time it is moved. epilog_s: by nobody, from the end of
    each run until Slurm can give its GPUs to another (COMPLETING, Epilog, its own delay).
    """

    checkpoint_s: int = 5
    restore_s: int = 20
    epilog_s: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulated workload: its jobs with their runs, the GPUs of the cluster, the last instant.

    horizon: where the simulation was cut; jobs without end had not ended by then. overhead_gpu_s:
    spent on checkpoints and restores. failed_gpu_s: spent on runs that failed.
    """

    policy: str
    jobs: tuple[Job, ...]
    gpus: int
    horizon: int
    overhead_gpu_s: int = 0
    failed_gpu_s: int = 0


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    *,
    horizon: int | None = None,
    costs: Costs | None = None,
    backfill: Backfill | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Run a workload to its end, or to `horizon` seconds.

    Raises:
        ValueError: a job asks for what no nodes of the cluster have: it would wait for ever.
    """
    for job in workload.jobs:
        if job.gpus > cluster.largest(job) or (cluster.counts_hosts and not cluster.find(job)):
            kind = f" of type {job.gpu_type}" if job.gpu_type else ""
            raise ValueError(
                f"job {job.job_id} asks for {job.gpus} GPUs{kind}, {job.cpus} CPUs and "
                f"{job.memory_mib} MiB: no nodes of the cluster have that"
            )
    world = _World(workload.fresh(), cluster, policy, costs or Costs(), backfill or Backfill())
    world.observer = observer
    while (now := world.next_time()) is not None and (horizon is None or now < horizon):
        world.advance(now)
    last = world.now if horizon is None else horizon
    return Outcome(
        policy.name, tuple(world.jobs), cluster.gpus, last, world.overhead_gpu_s, world.failed_gpu_s
    )


@dataclass(slots=True)
class _Grip:
    """A running job's present hold on its GPUs.

    until: when its time limit ends it. yields_at: when its checkpoint ends; None: it has none.
    """

    job: Job
    since: int
    works_from: int
    until: int
    yields_at: int | None = None


#: (end of the time limit, job id, start of the run, what it holds)
_ByLimit = tuple[int, int, int, Held]


class _World:
    """Everything that changes with time."""

    def __init__(
        self, jobs: list[Job], cluster: Cluster, policy: Policy, costs: Costs, backfill: Backfill
    ) -> None:
        self.jobs = jobs
        self.now = 0
        self.overhead_gpu_s = self.failed_gpu_s = 0
        self.observer: Observer | None = None
        self._cluster = cluster
        self._policy = policy
        self._costs = costs
        self._backfill = backfill
        self._arrived = 0
        self._waiting = Waiting()
        self._grips: dict[int, _Grip] = {}
        self._releases: list[tuple[int, int, int]] = []  # (time, job id, since) ends and yields
        self._leases = Leases(policy)
        self._by_limit: list[_ByLimit] = []
        self._epilogs: deque[_ByLimit] = deque()
        self._standing: Plan | None = None  # of the last instant at which GPUs were given back
        self._seen: list[Decision] | None = None

    def next_time(self) -> int | None:
        """The next instant at which something happens; None: nothing will."""
        times = [self._releases[0][0]] if self._releases else []
        if self._arrived < len(self.jobs):
            times.append(self.jobs[self._arrived].submit)
        waits = bool(self._waiting)
        if self._policy.tick_s and (waits or self._grips):
            times.append(self.now - self.now % self._policy.tick_s + self._policy.tick_s)
        if self._epilogs and waits:
            times.append(self._epilogs[0][0])
        if not times:
            return None
        if waits:
            periods = (self._policy.period_s, self._backfill.interval_s)
            times += [self.now - self.now % each + each for each in periods if each]
            times += self._leases.looks(self.now)
        return min(times)

    def advance(self, now: int) -> None:
        """Let everything happen that happens at an instant."""
        self.now = now
        self._seen = [] if self.observer is not None and self.observer.wants(now) else None
        has_news = self._release() or any(
            period_s and now % period_s == 0
            for period_s in (self._policy.period_s, self._backfill.interval_s)
        )
        first = self._arrived
        while self._arrived < len(self.jobs) and self.jobs[self._arrived].submit <= now:
            self._wait(self.jobs[self._arrived])
            self._arrived += 1
        if has_news:
            self._standing = None
        if self._policy.tick_s:
            self._tick(self._policy.tick_s)
        elif (has_news or first < self._arrived) and self._is_anybody_startable():
            self._start(self.jobs[first : self._arrived])
        if self._waiting:
            self._end_leases(self.jobs[first : self._arrived])
        if self._seen and self.observer is not None:
            self.observer.decided(now, self._seen)

    def _tick(self, tick_s: int) -> None:
        """Let a policy that decides at multiples of its tick stop jobs, then start others."""
        if self.now % tick_s:
            return
        for job_id, lost_s in self._policy.evicted(self.now).items():
            grip = self._grips[job_id]
            self._tell(grip.job, "yielded", grip.job.nodes, self._checkpoint(grip, lost_s))
        self._release()
        if self._waiting and self._cluster.free_gpus:
            self._standing = None
            self._start([])

    # --- ends and yields --------------------------------------------------------------------------

    def _release(self) -> bool:
        """Take GPUs back from whoever ends now; whether somebody did."""
        released = self._clean()
        while self._releases and self._releases[0][0] <= self.now:
            _, job_id, since = heapq.heappop(self._releases)
            grip = self._grips.get(job_id)
            if grip is None or grip.since != since:
                continue  # of an earlier run
            if grip.yields_at is not None and grip.yields_at > self.now:
                continue  # it was to end now, but is being checkpointed
            released = True
            del self._grips[job_id]
            self._leases.drop(grip.job)
            del self._by_limit[bisect_left(self._by_limit, (grip.until, job_id, since))]
            self._vacate(grip)
            self._policy.ended(grip.job, self.now)
            if grip.yields_at is not None:
                self._again(grip.job, Hold(grip.since, self.now))
            elif grip.job.failures < len(grip.job.lost_s):
                self.failed_gpu_s += grip.job.gpus * (self.now - grip.since)
                grip.job.failures += 1
                grip.job.left_s = grip.job.attempt_s
                self._again(grip.job, Hold(grip.since, self.now, "NODE_FAIL"))
            else:
                grip.job.left_s, grip.job.end = 0, self.now
        return released

    def _vacate(self, grip: _Grip) -> None:
        """Give the GPUs of a run that is over back, or let its epilog hold them."""
        job, until = grip.job, self.now + self._costs.epilog_s
        if until == self.now:
            self._cluster.give(job.nodes, job)
            return
        entry = (until, job.job_id, grip.since, Held(until, job.nodes, job))
        insort(self._by_limit, entry)
        self._epilogs.append(entry)

    def _clean(self) -> bool:
        """Take GPUs back from epilogs that end now; whether any does."""
        ended = False
        while self._epilogs and self._epilogs[0][0] <= self.now:
            *key, held = self._epilogs.popleft()
            del self._by_limit[bisect_left(self._by_limit, tuple(key))]
            self._cluster.give(held.nodes, held.ask)
            ended = True
        return ended

    def _again(self, job: Job, held: Hold) -> None:
        job.runs.append(held)
        if held.state == "PREEMPTED":
            job.kept_s += held.end - held.start
        job.start = None
        self._wait(job)

    def _wait(self, job: Job) -> None:
        self._policy.arrived(job, self.now)
        self._waiting.add(job)

    def _end_leases(self, new: list[Job]) -> None:
        """Ask the policy about jobs whose lease is over. new: jobs that came just now."""
        over = self._leases.over(self.now, [job for job in new if job in self._waiting])
        if not over:
            return
        yielding = self._policy.yielding(over, self._cluster, self.now)
        for job in over:
            if job.job_id in yielding:
                self._tell(job, "yielded", job.nodes, self._checkpoint(self._grips[job.job_id]))
        kept = [job for job in over if job.job_id not in yielding]
        until = self._leases.renew(kept, self.now, in_vain=not yielding)
        for job in kept if self._seen is not None else ():
            self._tell(job, "kept", job.nodes, until)

    def _checkpoint(self, grip: _Grip, lost_s: int = 0) -> int:
        """Begin to checkpoint a job; when it gives its GPUs back."""
        worked = max(self.now - grip.works_from - lost_s, 0)
        grip.job.left_s = max(grip.job.left_s - worked, 1)
        self._leases.drop(grip.job)
        grip.yields_at = self.now + self._costs.checkpoint_s
        self.overhead_gpu_s += grip.job.gpus * self._costs.checkpoint_s
        heapq.heappush(self._releases, (grip.yields_at, grip.job.job_id, grip.since))
        return grip.yields_at

    # --- starts -----------------------------------------------------------------------------------

    def _is_anybody_startable(self) -> bool:
        """Whether anybody waits for whom there may be nodes, or somebody looks on."""
        if not self._waiting or not self._cluster.free_gpus:
            return False
        return self._seen is not None or self._cluster.find(self._waiting.least()) is not None

    def _start(self, new: list[Job]) -> None:
        """Start what can start now. new: jobs that came just now.

        While no GPU is given back, those that could not start still cannot: only the new ones are
        tried, unless the order has another head than the job with the reservation; or somebody
        looks on, who wants to see all of them.
        """
        if (
            self._standing is not None
            and self._seen is None
            and self._policy.is_open
            and self._standing.head is next(self._policy.candidates(self.now), None)
        ):
            self._standing.resume(self.now)
            self._try(self._standing, new)
            return
        tells = self._seen is not None
        attempts = plan(self._backfill, self._cluster, self._by_limits, self.now, tells=tells)
        self._try(attempts, self._policy.candidates(self.now))
        self._standing = attempts if attempts.head is not None else None

    def _try(self, attempts: Plan, jobs: Iterable[Job]) -> None:
        """Try jobs in turn, start those that can."""
        started: list[Job] = []
        for job in jobs:
            if not self._cluster.free_gpus or attempts.is_over(self._waiting.shortest_limits_s):
                break
            tried = attempts.attempt(job)
            if tried.action in ("started", "backfilled"):
                self._hold(job, tried.nodes)
                started.append(job)
            if self._seen is not None:
                self._tell(job, tried.action, tried.nodes, tried.until)
        for job in started:
            self._policy.started(job, self.now)

    def _hold(self, job: Job, nodes: Nodes) -> None:
        restore_s = self._costs.restore_s if job.left_s < job.attempt_s else 0
        self._cluster.take(nodes, job)
        self._waiting.remove(job)
        job.start, job.nodes = self.now, nodes
        until = self.now + job.limit_s
        self._grips[job.job_id] = _Grip(job, self.now, self.now + restore_s, until)
        self.overhead_gpu_s += job.gpus * restore_s
        end = self.now + restore_s + job.left_s
        heapq.heappush(self._releases, (end, job.job_id, self.now))
        insort(self._by_limit, (until, job.job_id, self.now, Held(until, nodes, job)))
        self._leases.grant(job, self.now)

    def _by_limits(self) -> Iterator[Held]:
        """What running jobs hold, by the time at which their limit ends them."""
        return map(itemgetter(3), self._by_limit)

    # --- what an observer is told -----------------------------------------------------------------

    def _tell(self, job: Job, action: Action, nodes: Nodes = (), until: int | None = None) -> None:
        if self._seen is not None:
            self._seen.append(Decision(job.job_id, job.tenant, job.gpus, action, nodes, until))
