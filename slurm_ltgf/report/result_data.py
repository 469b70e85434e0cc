"""A report's data: whom it is about, what to know of the history, and what sreport says of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from slurm_ltgf.core.fragmentation import PoolState
from slurm_ltgf.core.model import Window
from slurm_ltgf.core.pool_figures import pool_figures
from slurm_ltgf.core.present import Budget, Present
from slurm_ltgf.core.report import Facts
from slurm_ltgf.core.slurm_usage import Comparison
from slurm_ltgf.report.grouping import Row

#: Reasons of rows that could not be read, and silences, that are named; more are counted.
NAMED = 30


@dataclass(frozen=True, slots=True)
class Only:
    """Whom a report is about: these tenants, these users; empty: all."""

    tenants: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()

    @property
    def is_all(self) -> bool:
        """Whether it is about everybody."""
        return not self.tenants and not self.users


def window_of(window: Window) -> Row:
    """A window as JSON has it."""
    return {"start": window.start, "end": window.end}


def beside_sreport(found: Comparison, facts: Facts, only: Only) -> Row:
    """What sreport says, of the accounts and users shown."""
    tenant_of = facts.now.tenant_of
    rows = [
        row
        for row in found.rows
        if (not only.tenants or tenant_of.get(row.account) in only.tenants)
        and (not only.users or row.user in only.users)
    ]
    return {
        "window": None if found.window is None else window_of(found.window),
        "rolled_up_until": found.rolled_up_until,
        "rows": [
            {**asdict(row), "difference_s": row.difference_s, "alike": row.is_alike} for row in rows
        ],
        "notes": list(found.notes),
    }


def fragmentation(present: Present | None) -> Row | None:
    """The pools now; None: they were not asked for."""
    if present is None or present.pools is None:
        return None
    return {"at": present.at, "rows": [_pool(pool) for pool in present.pools]}


def _pool(pool: PoolState) -> Row:
    """A pool, by the names of `ltgf frag --json`."""
    return {
        "pool": pool.name,
        **pool_figures(pool),
        "why": ", ".join(f"{gpus} {reason}" for reason, gpus in pool.stranded.items()),
    }


def shown_budgets(facts: Facts, tenants: frozenset[str] | None) -> list[Budget]:
    """The budgets of accounts whose tenants may be named, the nearest to their end first."""
    there = facts.present.budgets if facts.present is not None else None
    tenant_of = facts.now.tenant_of
    found = [
        one
        for one in there or ()
        if tenants is None or tenant_of.get(one.state.account, one.state.account) in tenants
    ]
    return sorted(found, key=lambda one: (-(one.state.ratio or 0), one.state.account))


def budgets(facts: Facts, tenants: frozenset[str] | None) -> Row | None:
    """The budgets now; None: they were not asked for."""
    present = facts.present
    if present is None or present.budgets is None or present.period is None:
        return None
    period = present.period
    return {
        "at": present.at,
        "period": {"start": period.start, "end": period.end},
        "half_life_s": period.half_life_s if math.isfinite(period.half_life_s) else None,
        "rows": [_budget(one) for one in shown_budgets(facts, tenants)],
        "notes": list(present.notes),
    }


def _budget(one: Budget) -> Row:
    """A budget; what has no limit is null, as JSON has no word for it."""
    row = asdict(one.state)
    for key in ("held_gpu_s", "left_gpu_s", "ratio"):
        if row[key] is not None and not math.isfinite(row[key]):
            row[key] = None
    return {**row, "times": list(one.times), "left": list(one.left)}


def quality(facts: Facts, only: Only) -> Row:
    """What there is to know of the data; whose a suspect job is, is said to all who see all."""
    suspects = facts.now.settled.suspects if only.is_all else ()
    return {
        "notes": [*facts.notes, *(facts.present.lacking if facts.present else ())],
        "skipped": _reasons((row.reason, row.source, row.line) for row in facts.skipped),
        "skipped_total": facts.skipped_total,
        "suspects": [asdict(one) for one in suspects],
        "suspects_total": facts.now.settled.odd,
        "silences": [window_of(one) for one in facts.silences[:NAMED]],
        "over": _over(facts),
    }


def _reasons(rows: Iterable[tuple[str, str, int]]) -> list[Row]:
    """Each reason once: how many of the named rows have it, and where the first is."""
    counts: Counter[str] = Counter()
    first: dict[str, tuple[str, int]] = {}
    for reason, source, line in rows:
        counts[reason] += 1
        first.setdefault(reason, (source, line))
    return [
        {"reason": reason, "rows": n, "source": first[reason][0], "line": first[reason][1] or None}
        for reason, n in counts.most_common(NAMED)
    ]


def _over(facts: Facts) -> list[Row]:
    """Stretches in which more GPUs were held than were in service."""
    found = facts.course
    held = found.attained.sum(axis=1)
    rows: Sequence[int] = np.flatnonzero(held > found.capacity * (1 + 1e-6)).tolist()
    spans = np.diff(found.edges)
    return [
        {
            "start": int(found.edges[i]),
            "end": int(found.edges[i + 1]),
            "held_gpus": held[i] / spans[i],
            "capacity_gpus": found.capacity[i] / spans[i],
        }
        for i in rows
    ]
