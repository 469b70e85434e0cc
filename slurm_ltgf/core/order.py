"""The order of the queue: start tags, one sort for ASTRAEA's two stages.

Stage 1 of the paper picks, again and again, the tenant with the lowest credit and charges it
g · L for the job it takes. Stage 2 orders the jobs of one tenant. The same order comes from one
number a job, computed without the loop: for tenant i with its jobs in stage-2 order j_1, j_2, …

    tag(j_k) = (U_i + L · Σ_{m<k} g_{j_m}) / (W_i + Q_i · L)

sorted by (tag, tenant, position). Jobs that the loop took and Slurm has started stay charged: U_i
includes what is left of their leases, so that a burst between two passes gains nothing.
Source: ASTRAEA (Ye et al., TPDS 2022); LTGF.md section 4. Gang jobs that do not fit now are left to
Slurm's backfill: the order is ours, placement is Slurm's.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from slurm_ltgf.core.model import UNKNOWN, PendingJob


class Standing(NamedTuple):
    """A tenant's account at the moment of ordering.

    attained_gpu_s: U. due_gpu_s: W for the key "credit", X for the key "share". quota_gpus: Q now.
    held_gpus: A now. committed_gpu_s: what is left of the leases of its running jobs: the loop
    charged g · L when it took them, and as they run that turns into U. All weighted GPUs.
    """

    attained_gpu_s: float
    due_gpu_s: float
    quota_gpus: float
    held_gpus: float = 0.0
    committed_gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rules:
    """How to order.

    lease_s: L. starvation_s: a job pending longer than this goes first inside its tenant; inf:
    never. floor: a tenant holding less than this part of its quota goes before all others; 0: off.
    site_priority: inside a tenant, Slurm's own priority (without our factor) comes first. rho_step:
    jobs that had what was due count as alike until one had this factor more; 1: never alike.
    """

    lease_s: float = 3600
    starvation_s: float = 6 * 3600
    floor: float = 0.2
    site_priority: bool = False
    rho_step: float = 1.5


class Turn(NamedTuple):
    """A job's place in the queue.

    rank: 0 is the next to go. tag: start tag, inf for a tenant without entitlement. below_floor:
    it goes before all others since its tenant holds next to nothing. charged_gpus: GPUs of its
    tenant's jobs before it.
    """

    rank: int
    job: PendingJob
    tag: float
    below_floor: bool
    starving: bool
    charged_gpus: float
    key: tuple[bool, float, float]


def order(
    jobs: Iterable[PendingJob],
    standings: Mapping[str, Standing],
    *,
    rules: Rules,
    now: int,
    rho: Mapping[int, float] | None = None,
) -> list[Turn]:
    """All jobs in LTGF order.

    Args:
        jobs: pending records that are not held. A record that could not run now (demand
            False: dependency, begin time, own limits) stands behind its tenant's others and
            charges nobody.
        standings: tenant -> account; every job's tenant must be in it.
        rho: raw job id -> job index, for jobs that ran before; absent means 0: never ran.

    Returns:
        Turns by rank. Jobs of equal `key` have equal right to go first; the order between them is
        by tenant name and position, so that it is total.
    """
    by_tenant: dict[str, list[PendingJob]] = {}
    for job in jobs:
        by_tenant.setdefault(job.tenant, []).append(job)
    queues = {
        tenant: in_tenant(own, rules=rules, now=now, rho=rho or {})
        for tenant, own in by_tenant.items()
    }
    rows = _sorted(queues, standings, rules)
    return [_turn(rank, row, rules, now) for rank, row in enumerate(rows)]


def jobs_in_order(
    queues: Mapping[str, Iterable[PendingJob]],
    standings: Mapping[str, Standing],
    *,
    rules: Rules,
) -> list[PendingJob]:
    """The jobs of `order`.

    Args:
        queues: tenant -> its jobs in the order of `in_tenant`.
    """
    return [row[2] for row in _sorted(queues, standings, rules)]


def turns(
    queues: Mapping[str, Iterable[PendingJob]],
    standings: Mapping[str, Standing],
    *,
    rules: Rules,
    now: int,
) -> Iterator[Turn]:
    """Jobs in LTGF order, one after the other: whoever needs only the first few pays for these.

    Args:
        queues: tenant -> its jobs in the order of `in_tenant`.
    """
    for rank, row in enumerate(heapq.merge(*_streams(queues, standings, rules))):
        yield _turn(rank, row, rules, now)


def jobs_in_turn(
    queues: Mapping[str, Iterable[PendingJob]],
    standings: Mapping[str, Standing],
    *,
    rules: Rules,
) -> Iterator[PendingJob]:
    """The jobs of `turns`, without what else is said of them; jobs without demand are none of them.

    A tenant's next key is known before its next job is: a queue is not looked into until the turn
    comes to its tenant.
    """
    accounts = [Account(standings[tenant], rules) for tenant in sorted(queues)]
    jobs = [iter(queues[tenant]) for tenant in sorted(queues)]
    heads = [(account.key(), i) for i, account in enumerate(accounts)]
    heapq.heapify(heads)
    while heads:
        i = heads[0][1]
        job = next(jobs[i], None)
        if job is None or not job.demand:  # no demand stands last
            heapq.heappop(heads)
            continue
        yield job
        account = accounts[i]
        account.charged_gpus += job.gpus * job.tasks
        heapq.heapreplace(heads, (account.key(), i))


def in_tenant(
    jobs: Sequence[PendingJob], *, rules: Rules, now: int, rho: Mapping[int, float]
) -> list[PendingJob]:
    """Stage 2: starving jobs by submit time, then (rho in steps, eligible, id); no demand last."""
    steps = rho_steps(rules.rho_step)

    def key(job: PendingJob) -> tuple[bool, int, bool, float, float, int]:
        starving = is_starving(job, rules=rules, now=now)
        own = -(job.priority - (job.site_factor or 0)) if rules.site_priority else 0
        if starving:
            return (not job.demand, own, False, 0.0, job.submit, job.job_id)
        eligible = math.inf if job.eligible == UNKNOWN else job.eligible
        index = in_steps(rho.get(job.job_id, 0.0), steps)
        return (not job.demand, own, True, index, eligible, job.job_id)

    return sorted(jobs, key=key)


@lru_cache
def rho_steps(step: float) -> tuple[float, ...]:
    """Job indices at which a step begins, from 1 to a million; none if they count exactly."""
    if step <= 1:
        return ()
    return tuple(step**k for k in range(math.ceil(math.log(1e6) / math.log(step)) + 1))


def in_steps(rho: float, steps: Sequence[float]) -> float:
    """A job index as jobs of one tenant are compared: exact below 1, above it only in steps.

    Whoever had what was due and a little more would else take turns with others like it at every
    look, and each turn costs a checkpoint and a restore.
    """
    return rho if rho < 1 else bisect_right(steps, rho) or rho


def is_starving(job: PendingJob, *, rules: Rules, now: int) -> bool:
    """Eligible, and pending longer than the site allows."""
    return job.demand and now - job.submit > rules.starvation_s


#: (key, place of the tenant by name, job, GPUs of its tenant before it)
_Row = tuple[tuple[bool, float, float], int, PendingJob, float]


def _turn(rank: int, row: _Row, rules: Rules, now: int) -> Turn:
    key, _, job, charged = row
    starving = is_starving(job, rules=rules, now=now)
    return Turn(rank, job, key[1], not key[0], starving, charged, key)


def _sorted(
    queues: Mapping[str, Iterable[PendingJob]], standings: Mapping[str, Standing], rules: Rules
) -> list[_Row]:
    """All rows; stable: tenant name breaks ties."""
    return sorted(chain(*_streams(queues, standings, rules)), key=itemgetter(0))


def _streams(
    queues: Mapping[str, Iterable[PendingJob]], standings: Mapping[str, Standing], rules: Rules
) -> list[Iterator[_Row]]:
    """Each tenant's rows; between tenants no two are alike."""
    return [
        _tagged(i, queues[tenant], standings[tenant], rules)
        for i, tenant in enumerate(sorted(queues))
    ]


def _tagged(
    place: int, jobs: Iterable[PendingJob], standing: Standing, rules: Rules
) -> Iterator[_Row]:
    """One tenant's jobs with their keys, which never fall."""
    account = Account(standing, rules)
    key, charged_gpus = account.key, 0.0
    for job in jobs:
        yield key(demand=job.demand), place, job, charged_gpus
        if job.demand:
            charged_gpus += job.gpus * job.tasks
            account.charged_gpus = charged_gpus


class Account:
    """A tenant's account as its jobs are charged to it.

    due: what a tag is a part of; 0: no entitlement. charged_gpus: of its jobs so far. The
    factor table carries these numbers: site_factor/factors.c reckons as `key` does, step by step.
    """

    __slots__ = ("_lease_s", "charged_gpus", "due", "floor_gpus", "held_gpus", "spent_gpu_s")

    def __init__(self, standing: Standing, rules: Rules) -> None:
        self._lease_s = rules.lease_s
        self.due = standing.due_gpu_s + standing.quota_gpus * rules.lease_s
        self.floor_gpus = rules.floor * standing.quota_gpus
        self.spent_gpu_s = standing.attained_gpu_s + standing.committed_gpu_s
        self.held_gpus = standing.held_gpus
        self.charged_gpus = 0.0

    def key(self, *, demand: bool = True) -> tuple[bool, float, float]:
        """Of its next job."""
        rest = not (demand and self.held_gpus + self.charged_gpus < self.floor_gpus)
        has = self.spent_gpu_s + self._lease_s * self.charged_gpus
        # tenants without entitlement all have tag inf: the one that held least goes first
        return (rest, has / self.due, 0.0) if self.due > 0 else (rest, math.inf, has)
