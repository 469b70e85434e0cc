"""Budgets of all accounts at this moment: for `ltgf quota show`, the report and the exporter.

`states` is the one function. Limits and what Slurm counts come from slurmctld (sshare), use comes
from the ledger and from the queue. slurmdbd is not asked, and nothing is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.model import Account
from slurm_ltgf.core.quota import Period, QuotaState, Terms, Use, quota_state
from slurm_ltgf.core.tenants import ROOT, Tree
from slurm_ltgf.service.quota_period import half_life_of, kind_of, period_of
from slurm_ltgf.service.quota_use import Past
from slurm_ltgf.service.terms import pricing_of
from slurm_ltgf.slurm.budgets import BILLING, GPU, Counted
from slurm_ltgf.slurm.queue import Queue
from slurm_ltgf.slurm.site import Site
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger


@dataclass(frozen=True, slots=True)
class QuotaEdges:
    """What `states` asks of Slurm; sacctmgr and slurmdbd are not among it.

    counted: account -> what slurmctld counts (`slurm.budgets.counted`). queue: its job table.
    """

    cluster: str
    site: Site
    counted: Callable[[], Mapping[str, Counted]]
    queue: Callable[[], Queue]


@dataclass(frozen=True, slots=True)
class Rules:
    """What quota.toml says besides limits; the defaults hold where there is no such file.

    period: one of `quota_period.KINDS`; "": Slurm's. recent_s: how far back the rate of a forecast
    looks. warn, warn_at: part of a budget from which on it is warned of; of accounts with their
    own. credits_gpu_s: credits less debits of the period, by account. factors: GPU type -> what an
    hour of it counts; then budgets are limits of TRES billing, billing_per_gpu to a GPU of 1.
    """

    period: str = ""
    recent_s: int = 7 * 86400
    warn: float = 0.8
    warn_at: Mapping[str, float] = field(default_factory=dict)
    exempt: frozenset[str] = frozenset()
    credits_gpu_s: Mapping[str, int] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    billing_per_gpu: int = 100

    def terms(self, account: str) -> Terms:
        """How an account's budget is judged."""
        return Terms(self.warn_at.get(account, self.warn), account in self.exempt)


@dataclass(frozen=True, slots=True)
class QuotaView:
    """All budgets at one moment.

    states: by account and TRES: for gres/gpu every account with a budget, a GPU limit, use or jobs,
    for a type of GPU those with a budget of it. period: what `used_gpu_s` is of. decays: Slurm
    forgets by a half-life, so `counted_gpu_s` falls by itself. notes: what a reader must know to
    trust the numbers, a sentence each.
    """

    now: int
    period: Period
    states: tuple[QuotaState, ...]
    decays: bool
    notes: tuple[str, ...] = ()


def states(
    edges: QuotaEdges, ledger: Ledger, config: Config, rules: Rules | None = None, *, now: int
) -> QuotaView:
    """The budgets of a cluster now.

    Args:
        ledger: open for reading is enough.
        rules: quota.toml's; None: there is none.
        now: epoch seconds.

    Raises:
        SlurmUnavailable, SlurmRefused: slurmctld did not answer.
    """
    rules = rules or Rules()
    half_life = half_life_of(edges.site)
    period = period_of(rules.period or kind_of(edges.site), now, half_life_s=half_life)
    counters, queue = edges.counted(), edges.queue()
    tree = Tree(Account(row.account, row.parent) for row in counters.values())
    limits = {row.name: row.gpu_limit for row in ledger.accounts(edges.cluster)}
    past = Past.of(edges.cluster, ledger, queue, period, recent_s=rules.recent_s, now=now)
    found = []
    for tres in _counted_tres(counters, rules):
        pricing = _pricing(tres, config, rules, past.types())
        uses = past.uses(tree, pricing)
        for name in sorted({*counters, *uses}):
            row = counters.get(name, Counted(name))
            use = uses.get(name, Use())
            limit = limits.get(name) if tres in (GPU, BILLING) else None
            state = _state(row, tres, use, rules=rules, period=period, now=now, gpu_limit=limit)
            if _is_shown(state, tres):
                found.append(state)
    shown = tuple(sorted(found, key=lambda state: (state.account, state.tres)))
    notes = _notes(edges.site, rules, past)
    return QuotaView(now, period, shown, math.isfinite(half_life), notes)


def _counted_tres(counters: Mapping[str, Counted], rules: Rules) -> list[str]:
    """What budgets may be of: GPUs (or billing, where types have factors), and types of them."""
    typed = {name for row in counters.values() for name in row.limit if name.startswith(f"{GPU}:")}
    return [BILLING if rules.factors else GPU, *sorted(typed)]


def _pricing(tres: str, config: Config, rules: Rules, types: frozenset[str]) -> Pricing:
    """Worth of GRES for one TRES: of a type of GPU nothing else counts."""
    kind = tres.removeprefix(GPU).removeprefix(":")
    weights = dict(rules.factors)
    if tres.startswith(f"{GPU}:"):
        weights = dict.fromkeys(types | {""}, 0.0) | {kind: 1.0}
    return replace(pricing_of(config), weights=weights)


def _state(
    row: Counted,
    tres: str,
    use: Use,
    *,
    rules: Rules,
    period: Period,
    now: int,
    gpu_limit: float | None,
) -> QuotaState:
    """One account's budget of one TRES; minutes of Slurm become GPU-seconds."""
    unit = 60 / rules.billing_per_gpu if tres == BILLING else 60
    limit, counted = row.limit.get(tres), row.used.get(tres)
    return quota_state(
        row.account,
        tres,
        budget_gpu_s=None if limit is None else round(limit * unit),
        use=replace(use, counted_gpu_s=None if counted is None else counted * unit),
        period=period,
        now=now,
        terms=rules.terms(row.account),
        credit_gpu_s=rules.credits_gpu_s.get(row.account, 0) if tres in (GPU, BILLING) else 0,
        gpu_limit=gpu_limit,
    )


def _is_shown(state: QuotaState, tres: str) -> bool:
    """Whether there is something to tell of an account."""
    if state.budget_gpu_s is not None or tres not in (GPU, BILLING):
        return state.budget_gpu_s is not None
    if state.account == ROOT:
        return state.gpu_limit is not None
    return bool(state.gpu_limit is not None or state.used_gpu_s or state.gpus)


def _notes(site: Site, rules: Rules, past: Past) -> tuple[str, ...]:
    """What a reader must know."""
    notes = period_notes(site, rules)
    if not len(past.runs):
        notes += ("the ledger has no runs: use is not known; `ltgf sync` reads them",)
    return notes


def period_notes(site: Site, rules: Rules) -> tuple[str, ...]:
    """How Slurm counts against budgets, where that is not what one would think."""
    notes = []
    half_life = half_life_of(site)
    if math.isfinite(half_life):
        notes.append(
            f"Slurm forgets: what it counts against budgets halves every {half_life / 86400:g} "
            "days (PriorityDecayHalfLife), so a budget is no sum over a period; "
            "PriorityDecayHalfLife=0 with a PriorityUsageResetPeriod, or a QOS with flag NoDecay, "
            "makes it one"
        )
    elif kind_of(site) == "none":
        notes.append(
            "Slurm never begins anew (PriorityUsageResetPeriod=NONE, PriorityDecayHalfLife=0): a "
            "budget that is used up stays so until it is raised"
        )
    if rules.period and rules.period != kind_of(site):
        notes.append(
            f"quota.toml says period {rules.period!r}, Slurm counts by "
            f"PriorityUsageResetPeriod={kind_of(site).upper()}: set it in slurm.conf"
        )
    if "limits" not in enforced(site):
        notes.append(
            "Slurm stops no job for a budget: AccountingStorageEnforce lacks 'limits' in slurm.conf"
        )
    return tuple(notes)


def enforced(site: Site) -> frozenset[str]:
    """What AccountingStorageEnforce has on; "safe" and "all" have limits on too."""
    words = set(site.get("AccountingStorageEnforce").lower().split(",")) - {""}
    return frozenset(words | ({"limits"} if words & {"safe", "all"} else set()))
