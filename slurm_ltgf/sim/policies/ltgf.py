"""ltgf: the order and the leases of core, the functions that the daemon calls, on virtual GPUs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from slurm_ltgf.core.book import Book
from slurm_ltgf.core.lease import Action, Leased, LeaseRules, candidate, verdicts, without
from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.order import Rules, Standing, Turn, jobs_in_order, jobs_in_turn, turns
from slurm_ltgf.core.room import Room
from slurm_ltgf.sim.cluster import Cluster
from slurm_ltgf.sim.explain import turn_reason
from slurm_ltgf.sim.policies.base import Base, Quota
from slurm_ltgf.sim.policies.rooms import Rooms
from slurm_ltgf.sim.policies.stage2 import Indices, Stake, TenantQueue
from slurm_ltgf.sim.workload import Job

#: Seconds between two looks at leases that are over, if no job comes meanwhile.
LEASE_PASS_S = 300
#: And if nobody had to yield at the last one.
REST_S = 1800


@dataclass(frozen=True, slots=True)
class Terms:
    """How LTGF is set.

    window_s, half_life_s: what of the past counts; either may be inf. key: "credit" or "share".
    tie: what decides between jobs of one tenant with equal rho, of stage2.TIES. rules, lease_rules:
    of core. cost_s: what a move costs, as leases are told. pass_s: leases end at multiples of it;
    whoever kept its GPUs at the end of one is asked again at each; rest_s after one in vain.
    """

    window_s: float = 86400
    half_life_s: float = math.inf
    key: str = "credit"
    tie: str = "rho"
    rules: Rules = field(default_factory=Rules)
    lease_rules: LeaseRules = field(default_factory=LeaseRules)
    cost_s: float = 25
    pass_s: int = LEASE_PASS_S
    rest_s: int = REST_S


#: A running job as leases know it, as the order does and as `TenantQueue.with_running` does.
_Known = tuple[Leased, PendingJob, Stake]


class Ltgf(Base):
    """Lowest start tag first; jobs run to their end."""

    name = "ltgf"

    def __init__(self, weights: Mapping[str, float], gpus: int, terms: Terms) -> None:
        super().__init__()
        self._terms = terms
        self._rules = terms.rules
        self._book = Book(
            weights,
            capacity_gpus=gpus,
            window_s=terms.window_s,
            half_life_s=terms.half_life_s,
            lease_s=terms.rules.lease_s,
            key=terms.key,
        )
        quotas = self._book.quotas
        self._indices = {name: Indices(quotas[name], terms.rules.rho_step) for name in weights}
        self._waiting = {
            name: TenantQueue(terms.tie, terms.rules.starvation_s, self._indices[name])
            for name in weights
        }
        self._jobs: dict[int, Job] = {}
        self._known: dict[str, Standing] = {}  # as of _known_at
        self._known_at = -1

    def arrived(self, job: Job, now: int) -> None:
        """To its place in its tenant's queue."""
        self._jobs[job.job_id] = job
        self._known.pop(job.tenant, None)
        self._book.wait(job.tenant, job.gpus, now)
        self._indices[job.tenant].arrived(job, now)
        # Slurm gives a requeued job a new submit time: it has not waited since the first one
        record = PendingJob(job.job_id, job.tenant, job.gpus, submit=now, eligible=now)
        self._waiting[job.tenant].add(job, record)

    def started(self, job: Job, now: int) -> None:
        """Its lease begins."""
        super().started(job, now)
        self._known.pop(job.tenant, None)
        self._waiting[job.tenant].remove(job)
        self._book.start(job.job_id, job.tenant, job.gpus, now, job.limit_s)

    def ended(self, job: Job, now: int) -> None:
        """What is left of its lease is given back."""
        super().ended(job, now)
        self._known.pop(job.tenant, None)
        self._book.stop(job.job_id, job.tenant, job.gpus, now)
        self._indices[job.tenant].ended(now)
        del self._jobs[job.job_id]

    def queue(self, now: int, closed: Collection[str]) -> Iterator[Job]:
        """By start tag."""
        queues = {
            name: waiting.in_order(now)
            if self.limits is None
            else _open(name, waiting.in_order(now), closed)
            for name, waiting in self._waiting.items()
            if waiting.records
        }
        standings = self._standings(queues, now)
        if self.said is None:
            found = jobs_in_turn(queues, standings, rules=self._rules)
            return map(self._jobs.__getitem__, map(attrgetter("job_id"), found))
        return self._telling_turns(turns(queues, standings, rules=self._rules, now=now), standings)

    def _telling_turns(
        self, found: Iterable[Turn], standings: Mapping[str, Standing]
    ) -> Iterator[Job]:
        """Their jobs; why each stands where it does is written down."""
        for turn in found:
            own = standings[turn.job.tenant]
            if self.said is not None:
                self.said[turn.job.job_id] = turn_reason(turn, own, self._rules.lease_s)
            yield self._jobs[turn.job.job_id]

    def _standings(self, names: Collection[str], now: int) -> dict[str, Standing]:
        if now != self._known_at:
            self._known.clear()
            self._known_at = now
        for name in names:
            if name not in self._known:
                self._known[name] = self._book.standing(name, now)
        return {name: self._known[name] for name in names}


def _open(
    tenant: str, records: Iterator[PendingJob], closed: Collection[str]
) -> Iterator[PendingJob]:
    """A tenant's jobs until it is closed."""
    for record in records:
        if tenant in closed:
            return
        yield record


class LtgfLease(Ltgf):
    """The same with leases: at the end of one, a job may be checkpointed and requeued."""

    name = "ltgf-lease"
    asks_again = True

    def __init__(self, weights: Mapping[str, float], gpus: int, terms: Terms) -> None:
        super().__init__(weights, gpus, terms)
        self.lease_s = int(terms.rules.lease_s)
        self.pass_s, self.rest_s = terms.pass_s, terms.rest_s
        self._running: dict[int, _Known] = {}

    def ended(self, job: Job, now: int) -> None:
        """It is asked no more."""
        super().ended(job, now)
        self._running.pop(job.job_id, None)

    def looks_for(self, job: Job, now: int) -> bool:
        """If none of its tenant's waits before it that is as small and was refused already."""
        return self._waiting[job.tenant].first_like(job, now)

    def yielding(self, over: Sequence[Job], room: Cluster, now: int) -> Collection[int]:
        """By the verdicts of core.lease, against the jobs that come next in the order."""
        gpus = room.free_gpus + sum(job.gpus for job in over)
        pending = self._next_to_go(gpus, over, now)
        if not pending:
            if self.said is not None:
                self.said.update((job.job_id, "no job that waits comes before it") for job in over)
            return ()
        full = self._full(pending)
        others = [job for job in pending if job.tenant not in full]
        rooms = Rooms(room, over, others)
        going = self._decide(over, others, rooms.pool_of, rooms.by_pool, now)
        for tenant, left in full.items():
            theirs = [job for job in over if job.tenant == tenant and job.job_id not in going]
            wanted = [job for job in pending if job.tenant == tenant]
            sizes = [{job.job_id: job.gpus for job in jobs} for jobs in (theirs, wanted)]
            pools = dict.fromkeys({**sizes[0], **sizes[1]}, tenant)
            going |= self._decide(theirs, wanted, pools, {tenant: Room.counted(left, *sizes)}, now)
        return going

    def _full(self, pending: Sequence[Job]) -> dict[str, float]:
        """Tenants whose first job is held back by their cap -> GPUs that they may still take.

        What these need is not a node but that a job of their own goes.
        """
        if self.limits is None:
            return {}
        quota = Quota(self.limits, self.held)
        first = {job.tenant: job for job in reversed(pending)}
        return {
            tenant: max(self.limits[tenant] - self.held[tenant], 0)
            for tenant, job in sorted(first.items())
            if not quota.fits(job)
        }

    def _decide(
        self,
        over: Sequence[Job],
        pending: Sequence[Job],
        pool_of: Mapping[int, str],
        rooms: Mapping[str, Room],
        now: int,
    ) -> set[int]:
        """Ids of those that yield."""
        standings = self._standings({job.tenant for job in (*over, *pending)}, now)
        known = [self._record(job) for job in over]
        found = verdicts(
            [leased for leased, _, _ in known],
            [self._waiting[job.tenant].records[job.job_id][1] for job in pending],
            self._contest(known, pending, standings, now),
            standings,
            pool_of=pool_of,
            rooms=rooms,
            rules=self._rules,
            lease_rules=self._terms.lease_rules,
            now=now,
            only_yields=self.said is None,
        )
        if self.said is not None:
            self.said.update((verdict.job_id, verdict.reason) for verdict in found)
        return {verdict.job_id for verdict in found if verdict.action is Action.YIELD}

    def _contest(
        self,
        over: Sequence[_Known],
        pending: Sequence[Job],
        standings: Mapping[str, Standing],
        now: int,
    ) -> list[int]:
        """Ids of all of them in the order, as core.lease.contest has it, of queues kept sorted."""
        waiting: dict[str, list[Job]] = {name: [] for name in standings}
        running: dict[str, list[Stake]] = {name: [] for name in standings}
        for job in pending:
            waiting[job.tenant].append(job)
        for leased, _, stake in over:
            running[leased.tenant].append(stake)
        queues = {
            name: self._waiting[name].with_running(waiting[name], running[name], now)
            for name in standings
        }
        again = [record for _, record, _ in over]
        found = jobs_in_order(queues, without(standings, again), rules=self._rules)
        return [record.job_id for record in found]

    def _record(self, job: Job) -> _Known:
        """What is known of a running job; made when its lease is over for the first time."""
        known = self._running.get(job.job_id)
        if known is None:
            leased = Leased(
                job.job_id,
                job.tenant,
                job.gpus,
                submit=job.submit,
                started=job.start or 0,
                restarts=job.moves,
                cost_s=self._terms.cost_s,
            )
            record = candidate(leased)
            known = leased, record, self._waiting[job.tenant].stake(job, record)
            self._running[job.job_id] = known
        return known

    def _next_to_go(self, gpus: float, over: Sequence[Job], now: int) -> list[Job]:
        """The first waiting jobs that together ask for no more GPUs than could be had.

        gpus: in all; each tenant's first jobs may have those of its own jobs that may have to go.
        """
        quota = self.quota_without(over)
        own: dict[str, int] = defaultdict(int)
        for job in over:
            if self._waiting[job.tenant].records:
                own[job.tenant] += job.gpus
        chosen: list[Job] = []
        for job in self.queue(now, () if quota is None else quota.closed):
            if quota is not None and not quota.admits(job):
                continue
            if job.gpus > max(gpus, own[job.tenant]):
                own[job.tenant] = 0
                if gpus <= 0 and max(own.values()) <= 0:
                    break
                continue
            gpus -= job.gpus
            own[job.tenant] -= job.gpus
            chosen.append(job)
        return chosen
