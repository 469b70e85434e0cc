"""Why a pending job is where it is: its tenant's account, who goes before it, what would help."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_ltgf.core.fairness import TenantIndex
from slurm_ltgf.core.order import Rules, Turn
from slurm_ltgf.core.plan import Plan, rank_if_first


@dataclass(frozen=True, slots=True)
class Ahead:
    """Jobs of one tenant that go before: records, tasks, their GPUs; and the tenant's account."""

    tenant: str
    jobs: int
    tasks: int
    gpus: float
    index: TenantIndex


@dataclass(frozen=True, slots=True)
class Explanation:
    """A pending job's place with everything it follows from.

    jobs_behind: pending records after it. rank_alone: its rank if its tenant had no other job
    before it. turn_at: see `Plan`. sentences: the same in words.
    """

    turn: Turn
    of: int
    index: TenantIndex
    ahead: tuple[Ahead, ...]
    rank_alone: int
    turn_at: float
    sentences: tuple[str, ...]


def explain(
    job_id: int,
    plan: Plan,
    indices: Mapping[str, TenantIndex],
    *,
    rules: Rules,
    now: int,
) -> Explanation | None:
    """Explain a pending job; None: it is not in the order."""
    turn = next((t for t in plan.turns if t.job.job_id == job_id), None)
    if turn is None:
        return None
    before = [t for t in plan.turns[: turn.rank] if t.job.demand]
    ahead = _ahead(before, indices)
    alone = rank_if_first(
        turn.job, [t.job for t in plan.turns], plan.standings, rules=rules, now=now
    )
    return Explanation(
        turn=turn,
        of=len(plan.turns),
        index=indices[turn.job.tenant],
        ahead=ahead,
        rank_alone=alone,
        turn_at=plan.turn_at[turn.rank],
        sentences=tuple(_sentences(turn, plan, indices, ahead=ahead, alone=alone, rules=rules)),
    )


def _ahead(before: Sequence[Turn], indices: Mapping[str, TenantIndex]) -> tuple[Ahead, ...]:
    names = sorted({turn.job.tenant for turn in before})
    groups = {name: [turn.job for turn in before if turn.job.tenant == name] for name in names}
    rows = [
        Ahead(
            tenant=name,
            jobs=len(jobs),
            tasks=sum(job.tasks for job in jobs),
            gpus=sum(job.gpus * job.tasks for job in jobs),
            index=indices[name],
        )
        for name, jobs in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.gpus, row.tenant)))


def _sentences(
    turn: Turn,
    plan: Plan,
    indices: Mapping[str, TenantIndex],
    *,
    ahead: Sequence[Ahead],
    alone: int,
    rules: Rules,
) -> list[str]:
    job, own = turn.job, indices[turn.job.tenant]
    said = [_place(turn, len(plan.turns), ahead), _account(own), _tag(turn, plan, rules)]
    if not job.demand:
        said.append(
            f"It could not run now even with free GPUs: Slurm's reason is {job.reason!r}. "
            "Until that ends it stands behind its tenant's other jobs and costs them nothing."
        )
    if turn.starving:
        said.append(
            f"It has waited longer than {_hours(rules.starvation_s)}, so it goes first inside "
            f"{job.tenant}."
        )
    if turn.below_floor:
        said.append(
            f"{job.tenant} holds less than {rules.floor:.0%} of its quota now, so its next jobs "
            "go before those of all tenants that hold more."
        )
    said += [_against(own, row.index) for row in ahead if row.tenant != job.tenant][:3]
    return said + _what_would_help(turn, plan, ahead=ahead, alone=alone, rules=rules)


def _place(turn: Turn, of: int, ahead: Sequence[Ahead]) -> str:
    gpus = sum(row.gpus for row in ahead)
    if not ahead:
        return f"Job {turn.job.shown_id} is the next to go, of {of} pending."
    names = ", ".join(f"{row.tenant} {row.gpus:.4g} GPUs in {_jobs(row.jobs)}" for row in ahead[:5])
    return (
        f"Job {turn.job.shown_id} is number {turn.rank + 1} of {of} pending; "
        f"{gpus:.4g} GPUs are asked for before it ({names})."
    )


def _account(own: TenantIndex) -> str:
    if own.quota_gpu_s is None or own.credit is None:
        return f"Tenant {own.tenant} has no share of its own: it gets what the others leave."
    return (
        f"Tenant {own.tenant} (weight {own.weight:g}, quota {own.quota_gpus:.4g} GPUs) has had "
        f"{_hours(own.attained_gpu_s)} of GPU-time of its quota's {_hours(own.quota_gpu_s)} in the "
        f"window: credit {own.credit:.3f}. The lowest credit goes first."
    )


def _tag(turn: Turn, plan: Plan, rules: Rules) -> str:
    if math.isinf(turn.tag):
        return "Its tag is infinite: it goes after all jobs of tenants with a share."
    own = plan.standings[turn.job.tenant]
    return (
        f"Its tag is {turn.tag:.4f} = ({_hours(own.attained_gpu_s)} attained + "
        f"{_hours(own.committed_gpu_s)} left of running leases + "
        f"{turn.charged_gpus:.4g} GPUs of its tenant's jobs before it x a lease of "
        f"{_hours(rules.lease_s)}) / ({_hours(own.due_gpu_s)} due + {own.quota_gpus:.4g} GPUs x "
        f"{_hours(rules.lease_s)}); tags are served in rising order."
    )


def _against(own: TenantIndex, other: TenantIndex) -> str:
    if other.credit is None or own.credit is None:
        return f"{other.tenant} goes before it."
    theirs, ours = f"{other.credit:.2%}", f"{own.credit:.2%}"
    if theirs == ours:
        return f"{other.tenant} has had {theirs} of its quota, as much as {own.tenant}."
    less = "less" if other.credit < own.credit else "more"
    return f"{other.tenant} has had {theirs} of its quota, {less} than {own.tenant}'s {ours}."


def _what_would_help(
    turn: Turn, plan: Plan, *, ahead: Sequence[Ahead], alone: int, rules: Rules
) -> list[str]:
    said = []
    own_ahead = next((row for row in ahead if row.tenant == turn.job.tenant), None)
    if own_ahead is not None and alone < turn.rank:
        said.append(
            f"Before it come {_jobs(own_ahead.jobs)} of its own tenant ({own_ahead.gpus:.4g} "
            f"GPUs); without them it would be number {alone + 1}."
        )
    standing = plan.standings[turn.job.tenant]
    if ahead and standing.due_gpu_s > 0 and not math.isinf(turn.tag):
        gain = rules.lease_s / (standing.due_gpu_s + standing.quota_gpus * rules.lease_s)
        said.append(
            f"Each GPU that its tenant's jobs before it do not ask for lowers its tag by "
            f"{gain:.4f}; each hour without running jobs lowers the tenant's credit as old use "
            "leaves the window."
        )
    return said


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _hours(seconds: float) -> str:
    if math.isinf(seconds):
        return "for ever"
    return f"{seconds / 3600:.4g} h" if seconds >= 3600 else f"{seconds:.4g} s"
