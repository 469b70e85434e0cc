"""Budgets of GPU-time: used, held by running jobs, left, when they run out and when they come back.

A budget is what Slurm's GrpTRESMins allows an account, and all accounts below it, to use in a
period; here in GPU-seconds (where GPU types have factors, weighted by them). Everything is a value
of one moment: the caller says what was used and what the time is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from slurm_ltgf.core.tenants import Tree

Level = Literal["none", "exempt", "ok", "warn", "over"]


@dataclass(frozen=True, slots=True)
class Period:
    """When budgets began and when they begin anew, epoch seconds; end None: never.

    half_life_s: Slurm's PriorityDecayHalfLife, by which use against a budget is forgotten; inf: it
    is not.
    """

    start: int
    end: int | None = None
    half_life_s: float = math.inf

    def __post_init__(self) -> None:
        """Refuse a half-life that is not positive, and an end before the start."""
        if not self.half_life_s > 0:
            raise ValueError(f"half_life_s: must be > 0, got {self.half_life_s}")
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"end: must be after start {self.start}, got {self.end}")


@dataclass(frozen=True, slots=True)
class Use:
    """What an account, with all below it, has of GPUs.

    used_gpu_s: held in the period, by history. counted_gpu_s: what Slurm counts against the budget,
    less what it has forgotten; None: not known. held_gpu_s: what running jobs could still be
    charged if they use their whole limits; inf: one has none. gpus: held now. rate_gpus: GPUs held
    on average lately, by which a forecast is made.
    """

    used_gpu_s: float = 0
    counted_gpu_s: float | None = None
    held_gpu_s: float = 0
    gpus: float = 0
    rate_gpus: float = 0


@dataclass(frozen=True, slots=True)
class Terms:
    """By what a budget is judged. warn_at: part of it from which on it is warned of."""

    warn_at: float = 0.8
    is_exempt: bool = False


@dataclass(frozen=True, slots=True)
class QuotaState:
    """An account's budget at one moment; the numbers are of the account with all below it.

    budget_gpu_s: None: it has none; credits are in it. credit_gpu_s: credits less debits of the
    period. used_gpu_s, counted_gpu_s, held_gpu_s, gpus, rate_gpus: see `Use`. left_gpu_s: what is
    neither used nor held; below 0 if the limits of what runs reach beyond the budget, -inf if one
    has no limit; None: no budget. ratio: of the budget that is used (inf of a budget of 0); None:
    no budget. exhausted_at: when the budget is used up at the recent rate, now if it is; None: not
    in this period, or never. returns_at: when an account that is over may run again, or will have
    a new budget after running out; None: not to be told, or never. gpu_limit: GPUs at once, None:
    no limit. level: "none" has no budget; "exempt" is never warned of; "warn": from terms.warn_at
    on, or when running jobs may use all that is left; "over": nothing starts.
    """

    account: str
    tres: str
    level: Level
    budget_gpu_s: int | None
    credit_gpu_s: int
    used_gpu_s: float
    counted_gpu_s: float | None
    held_gpu_s: float
    left_gpu_s: float | None
    ratio: float | None
    gpus: float
    gpu_limit: float | None
    rate_gpus: float
    exhausted_at: int | None
    returns_at: int | None


def quota_state(
    account: str,
    tres: str = "gres/gpu",
    *,
    budget_gpu_s: int | None,
    use: Use,
    period: Period,
    now: int,
    terms: Terms = Terms(),
    credit_gpu_s: int = 0,
    gpu_limit: float | None = None,
) -> QuotaState:
    """Judge one budget.

    Args:
        account, tres: whose and of what.
        budget_gpu_s: GPU-seconds a period, credits included; >= 0; None: no budget.
        use: of the account and all below it.
        period: now lies in it.
        now: epoch seconds.
        terms: when to warn.
        credit_gpu_s, gpu_limit: shown as they are.
    """
    counted = use.used_gpu_s if use.counted_gpu_s is None else use.counted_gpu_s
    left = ratio = exhausted = returns = None
    if budget_gpu_s is not None:
        left = budget_gpu_s - counted - use.held_gpu_s
        ratio = counted / budget_gpu_s if budget_gpu_s else math.inf
        exhausted = exhausted_at(budget_gpu_s, counted, use.rate_gpus, period=period, now=now)
        if exhausted is not None:
            returns = returns_at(budget_gpu_s, counted, period=period, now=now)
    return QuotaState(
        account=account,
        tres=tres,
        level=_level(ratio, left, terms),
        budget_gpu_s=budget_gpu_s,
        credit_gpu_s=credit_gpu_s,
        used_gpu_s=use.used_gpu_s,
        counted_gpu_s=use.counted_gpu_s,
        held_gpu_s=use.held_gpu_s,
        left_gpu_s=left,
        ratio=ratio,
        gpus=use.gpus,
        gpu_limit=gpu_limit,
        rate_gpus=use.rate_gpus,
        exhausted_at=exhausted,
        returns_at=returns,
    )


def _level(ratio: float | None, left: float | None, terms: Terms) -> Level:
    if ratio is None or left is None:
        return "none"
    if terms.is_exempt:
        return "exempt"
    if ratio >= 1:
        return "over"
    return "warn" if ratio >= terms.warn_at or left <= 0 else "ok"


def exhausted_at(
    budget_gpu_s: float, counted_gpu_s: float, rate_gpus: float, *, period: Period, now: int
) -> int | None:
    """When the budget is used up if GPUs are held on at the same rate; now if it is.

    With half-life h, use tends to A = rate · h / ln 2: use(t) = A + (use - A) · 2^-(t/h). What is
    forgotten as fast as it is used (A <= budget) never runs out.

    Returns:
        Epoch seconds, rounded up; None: not before the period ends, or never.
    """
    if counted_gpu_s >= budget_gpu_s:
        return now
    if rate_gpus <= 0:
        return None
    half_life = period.half_life_s
    if math.isinf(half_life):
        after = (budget_gpu_s - counted_gpu_s) / rate_gpus
    else:
        ceiling = rate_gpus * half_life / math.log(2)
        if ceiling <= budget_gpu_s:
            return None
        after = half_life * math.log2((ceiling - counted_gpu_s) / (ceiling - budget_gpu_s))
    return _in_period(now, after, period)


def returns_at(
    budget_gpu_s: float, counted_gpu_s: float, *, period: Period, now: int
) -> int | None:
    """When jobs may start again after the budget has run out, if nothing runs meanwhile.

    With the next period, or when enough is forgotten: use halves each half-life.

    Returns:
        Epoch seconds; None: never by itself, or (a half-life, and not yet over) not to be told.
    """
    if math.isinf(period.half_life_s):
        return period.end
    if counted_gpu_s < budget_gpu_s or budget_gpu_s <= 0:
        return period.end
    after = period.half_life_s * math.log2(counted_gpu_s / budget_gpu_s)
    return _in_period(now, after, period) or period.end


def _in_period(now: int, after_s: float, period: Period) -> int | None:
    """The moment so long after now; None: the period ends before."""
    if not math.isfinite(after_s) or after_s > 1e11:
        return None
    then = now + math.ceil(after_s)
    return None if period.end is not None and then >= period.end else then


def summed_up(tree: Tree, own: Mapping[str, float]) -> dict[str, float]:
    """Own use of accounts -> use of each with all below it; names the tree lacks stay alone."""
    sums: dict[str, float] = {name: 0 for name in tree.accounts}
    for name, value in sorted(own.items()):
        for step in tree.path(name) if name in tree else (name,):
            sums[step] = sums.get(step, 0) + value
    return sums


def worst(levels: Iterable[Level]) -> Level:
    """The level that needs a look first."""
    order: tuple[Level, ...] = ("none", "exempt", "ok", "warn", "over")
    return max(levels, key=order.index, default="none")
