"""What a pass decides: the order, the labels to write, when each job's turn may come."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from slurm_ltgf.core.factor import Change, Scale, changes
from slurm_ltgf.core.fairness import TenantIndex
from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.order import Rules, Standing, Turn, order


@dataclass(frozen=True, slots=True)
class Hold:
    """GPUs that a running job holds, weighted, since `start`; at the latest until `until`."""

    job_id: int
    tenant: str
    gpus: float
    start: int
    until: float = math.inf


@dataclass(frozen=True, slots=True)
class Plan:
    """The order, its writes, and for each rank the time before which its turn can hardly come.

    turn_at: epoch seconds, the moment at which enough GPUs are free for the job and all before it
    if every running job uses its whole time limit; inf when that never happens.
    """

    turns: tuple[Turn, ...]
    changes: tuple[Change, ...]
    turn_at: tuple[float, ...]
    standings: Mapping[str, Standing]


def plan(
    jobs: Sequence[PendingJob],
    holds: Sequence[Hold],
    indices: Iterable[TenantIndex],
    *,
    key: str,
    rules: Rules,
    scale: Scale,
    capacity_gpus: float,
    now: int,
    rho: Mapping[int, float] | None = None,
) -> Plan:
    """Decide the order of the pending jobs and what to tell Slurm.

    Args:
        jobs: pending records, held ones left out.
        holds: what runs.
        indices: of every tenant that has a job here.
        key: "credit" (U/W, the paper's) or "share" (U/X).
        capacity_gpus: weighted GPUs in service.
    """
    accounts = standings(indices, holds, key=key, lease_s=rules.lease_s, now=now)
    turns = order(jobs, accounts, rules=rules, now=now, rho=rho)
    return Plan(
        turns=tuple(turns),
        changes=tuple(changes(turns, scale)),
        turn_at=tuple(expected_turns(turns, holds, capacity_gpus=capacity_gpus, now=now)),
        standings=accounts,
    )


def standings(
    indices: Iterable[TenantIndex], holds: Sequence[Hold], *, key: str, lease_s: float, now: int
) -> dict[str, Standing]:
    """Each tenant's account as the order needs it."""
    held: dict[str, float] = {}
    committed: dict[str, float] = {}
    for hold in holds:
        left_s = max(min(hold.start + lease_s, hold.until) - now, 0.0)
        held[hold.tenant] = held.get(hold.tenant, 0.0) + hold.gpus
        committed[hold.tenant] = committed.get(hold.tenant, 0.0) + hold.gpus * left_s
    return {
        row.tenant: Standing(
            attained_gpu_s=float(row.attained_gpu_s),
            due_gpu_s=(row.quota_gpu_s if key == "credit" else row.entitled_gpu_s) or 0.0,
            quota_gpus=row.quota_gpus or 0.0,
            held_gpus=held.get(row.tenant, 0.0),
            committed_gpu_s=committed.get(row.tenant, 0.0),
        )
        for row in indices
    }


def expected_turns(
    turns: Sequence[Turn], holds: Sequence[Hold], *, capacity_gpus: float, now: int
) -> list[float]:
    """For each turn the time at which the GPUs for it and all before it are free, at the latest."""
    releases = sorted((hold.until, hold.gpus) for hold in holds)
    free = list(accumulate((gpus for _, gpus in releases), initial=0.0))
    idle = max(capacity_gpus - free[-1], 0.0)
    times = [float(now), *(max(until, now) for until, _ in releases)]
    result = []
    need = 0.0
    for turn in turns:
        if not turn.job.demand:
            result.append(math.inf)
            continue
        need += turn.job.gpus * turn.job.tasks
        i = bisect_left(free, need - idle - 1e-9)
        result.append(times[i] if i < len(times) else math.inf)
    return result


def rank_if_first(
    job: PendingJob,
    jobs: Sequence[PendingJob],
    accounts: Mapping[str, Standing],
    *,
    rules: Rules,
    now: int,
) -> int:
    """Rank the job would have if its tenant had no other job before it."""
    others = [other for other in jobs if other.tenant != job.tenant]
    turns = order([*others, job], accounts, rules=rules, now=now)
    return next(turn.rank for turn in turns if turn.job.job_id == job.job_id)
