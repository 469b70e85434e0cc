"""What the engine asks of a policy and tells it, and what the policies here have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from slurm_ltgf.sim.cluster import Cluster
from slurm_ltgf.sim.workload import Job

#: Seconds between two looks at leases: the daemon's default interval.
PASS_S = 30


class Policy(Protocol):
    """Orders waiting jobs, and says which running ones give their GPUs back.

    name: its canonical spec. period_s: also to be asked this often while jobs wait, None: only when
    something happened. lease_s: running jobs are asked about again after so long; None: they run to
    their end. pass_s: leases end at multiples of this; where it is lease_s they end together.
    asks_again: who keeps its GPUs at the end of its lease is asked again at the next multiple of
    pass_s; else after another lease. rest_s: it is not, for so long, after a look in vain.
    tick_s: it decides at multiples of this, whether jobs wait or not, and never between; None: as
    things happen.
    """

    @property
    def name(self) -> str:
        """See above."""

    @property
    def period_s(self) -> int | None:
        """See above."""

    @property
    def lease_s(self) -> int | None:
        """See above."""

    @property
    def pass_s(self) -> int:
        """See above."""

    @property
    def asks_again(self) -> bool:
        """See above."""

    @property
    def rest_s(self) -> int:
        """See above."""

    @property
    def tick_s(self) -> int | None:
        """See above."""

    @property
    def is_open(self) -> bool:
        """Whether every waiting job is a candidate: no quota keeps one out."""

    def arrived(self, job: Job, now: int) -> None:
        """A job waits from now on, for the first time or again."""

    def started(self, job: Job, now: int) -> None:
        """A waiting job was given GPUs."""

    def ended(self, job: Job, now: int) -> None:
        """A running job gave its GPUs back."""

    def candidates(self, now: int) -> Iterator[Job]:
        """Waiting jobs in the order in which they are to be tried; ends where none may start."""

    def yielding(self, over: Sequence[Job], room: Cluster, now: int) -> Collection[int]:
        """Ids of those that are to be checkpointed and requeued, of jobs whose lease is over.

        room: the cluster as it is; whoever tries something on it leaves it as it was.
        """

    def looks_for(self, job: Job, now: int) -> bool:
        """Whether to look at leases at once, for a job that came now and found no room.

        Only of a policy that asks again.
        """

    def evicted(self, now: int) -> Mapping[int, int]:
        """At a tick: ids of running jobs that stop now, and the seconds of work each loses."""


class Quota:
    """How many GPUs each tenant may hold; counts as jobs are let in.

    A job that would put its tenant above the limit waits, and so do the tenant's jobs behind it:
    else small ones would keep a large one out for ever. A job larger than the limit is let in when
    its tenant holds nothing else.

    Args:
        limits: tenant -> GPUs; tenants not in it may hold any number.
        held: tenant -> GPUs held at first; not changed.
    """

    def __init__(self, limits: Mapping[str, float], held: Mapping[str, int]) -> None:
        self._limits = limits
        self._held = dict(held)
        self.closed: set[str] = set()

    def admits(self, job: Job) -> bool:
        """Let a job in, or close its tenant."""
        tenant = job.tenant
        if tenant in self.closed:
            return False
        if not self.fits(job):
            self.closed.add(tenant)
            return False
        self._held[tenant] = self._held.get(tenant, 0) + job.gpus
        return True

    def keeps(self, job: Job) -> bool:
        """Let a running job in; if it may not, that closes nobody out."""
        if not self.fits(job):
            return False
        self._held[job.tenant] = self._held.get(job.tenant, 0) + job.gpus
        return True

    def fits(self, job: Job) -> bool:
        """Whether the job may be let in."""
        held = self._held.get(job.tenant, 0)
        return not held or held + job.gpus <= self._limits.get(job.tenant, float("inf"))

    def gives(self, job: Job) -> None:
        """A job of before is out again."""
        self._held[job.tenant] -= job.gpus


class Base:
    """What policies have in common: what tenants hold, and a cap on it. Jobs run to their end.

    limits: GPUs that a tenant may hold (`cap=`); None: any number. said: while it is a dict, the
    policy writes down in it why a job stands where it does, by job id (`sim.explain`).
    """

    name = ""
    period_s: int | None = None
    lease_s: int | None = None
    pass_s: int = PASS_S
    asks_again: bool = False
    rest_s: int = 0
    tick_s: int | None = None
    limits: Mapping[str, float] | None = None
    said: dict[int, str] | None = None

    def __init__(self) -> None:
        self.held: dict[str, int] = defaultdict(int)

    @property
    def is_open(self) -> bool:
        """Without a cap."""
        return self.limits is None

    def arrived(self, job: Job, now: int) -> None:
        """A job waits."""
        raise NotImplementedError

    def started(self, job: Job, now: int) -> None:
        """Its tenant holds more."""
        self.held[job.tenant] += job.gpus

    def ended(self, job: Job, now: int) -> None:
        """Its tenant holds less."""
        self.held[job.tenant] -= job.gpus

    def candidates(self, now: int) -> Iterator[Job]:
        """By the policy's order, as far as quotas allow."""
        if self.limits is None:
            return self._told(self.queue(now, ()), now)
        quota = Quota(self.limits, self.held)
        return self._told(filter(quota.admits, self.queue(now, quota.closed)), now)

    def reason(self, job: Job, now: int) -> str:
        """Why a waiting job stands where it does, in a few words; "": no more than its age."""
        return ""

    def _told(self, jobs: Iterator[Job], now: int) -> Iterator[Job]:
        """The same jobs, with their reasons written down if somebody wants to know."""
        if self.said is None:
            return jobs
        return self._telling(jobs, self.said, now)

    def _telling(self, jobs: Iterator[Job], said: dict[int, str], now: int) -> Iterator[Job]:
        for job in jobs:
            said.setdefault(job.job_id, self.reason(job, now))
            yield job

    def queue(self, now: int, closed: Collection[str]) -> Iterator[Job]:
        """Waiting jobs in order. closed: tenants, more and more, whose jobs need not be told."""
        raise NotImplementedError

    def yielding(self, over: Sequence[Job], room: Cluster, now: int) -> Collection[int]:
        """Nobody yields."""
        return ()

    def looks_for(self, job: Job, now: int) -> bool:
        """It waits for the next look."""
        return False

    def evicted(self, now: int) -> Mapping[int, int]:
        """Nobody is stopped."""
        return {}

    def quota_without(self, out: Iterable[Job]) -> Quota | None:
        """Quotas as if these jobs had given their GPUs back; None: there are none."""
        if self.limits is None:
            return None
        quota = Quota(self.limits, self.held)
        for job in out:
            quota.gives(job)
        return quota
