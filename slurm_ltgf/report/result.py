"""A report as plain values: what `ltgf report --json` prints and every other form is made of.

The tenants' numbers are those of `ltgf fairness`. A report for some tenants or users holds nothing
that names others: only the cluster's own numbers are of all.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf import __version__
from slurm_ltgf.core.fairness import Fairness, TenantIndex
from slurm_ltgf.core.model import FloatArray
from slurm_ltgf.core.over_time import capacity_gpu_s
from slurm_ltgf.core.present import present_todo
from slurm_ltgf.core.pulse import Pulse, pulse
from slurm_ltgf.core.report import Facts, Rows
from slurm_ltgf.core.slurm_usage import Comparison
from slurm_ltgf.core.verdict import Circumstances, Verdict, verdict
from slurm_ltgf.report import grouping
from slurm_ltgf.report.grouping import Row
from slurm_ltgf.report.result_data import (
    Only,
    beside_sreport,
    budgets,
    fragmentation,
    quality,
    shown_budgets,
    window_of,
)

DIGITS = 6


@dataclass(frozen=True, slots=True)
class _View:
    """The facts as far as they are shown. tenants: names that may be named, None: all."""

    facts: Facts
    rows: Rows
    rows_before: Rows | None
    only: Only
    tenants: frozenset[str] | None


def result_of(
    facts: Facts,
    only: Only,
    *,
    command: str = "",
    is_demo: bool = False,
    beside: Comparison | None = None,
) -> Row:
    """The whole report. only: whom it is about. beside: what sreport says, None: not asked."""
    view = _view(facts, only)
    now, before = facts.now.fairness, facts.before.fairness if facts.before else None
    pulses = _pulses(view)
    said = verdict(now, before, *pulses, around=_around(view), only=view.tenants)
    return {
        "meta": _meta(view, command, is_demo),
        "period": window_of(facts.window),
        "asked": window_of(facts.asked),
        "before": None if facts.before is None else window_of(facts.before.fairness.window),
        "capacity_gpus": facts.gpus,
        "verdict": _verdict(said),
        "figures": _figures(now, pulses[0]),
        "figures_before": None if before is None or not pulses[1] else _figures(before, pulses[1]),
        "tenants": _tenants(now, before, view.tenants),
        "over_time": _over_time(view),
        "waits": grouping.waits(view.rows),
        "classes": _classes(view),
        "users": grouping.users(view.rows),
        "where": grouping.where(view.rows, facts.hosts),
        "requeues": grouping.requeues(view.rows),
        "moves": [asdict(move) for move in facts.moves] if only.is_all else [],
        "fragmentation": fragmentation(facts.present),
        "budgets": budgets(facts, view.tenants),
        "quality": quality(facts, only),
        "sreport": None if beside is None else beside_sreport(beside, facts, only),
    }


def _view(facts: Facts, only: Only) -> _View:
    rows, before = _taken(facts.rows, only), None
    if facts.rows_before is not None:
        before = _taken(facts.rows_before, only)
    tenants: frozenset[str] | None = only.tenants or None
    if only.users and tenants is None:
        tenants = frozenset(rows.tenants[code] for code in np.unique(rows.tenant).tolist())
    return _View(facts, rows, before, only, tenants)


def _taken(rows: Rows, only: Only) -> Rows:
    """The rows of these tenants and users."""
    if only.is_all:
        return rows
    some = np.ones(len(rows), dtype=np.bool_)
    if only.tenants:
        wanted = [name in only.tenants for name in rows.tenants]
        some &= np.array([*wanted, False], dtype=np.bool_)[rows.tenant]
    if only.users:
        known = [name in only.users for name in rows.runs.user.names]
        some &= np.array([*known, False], dtype=np.bool_)[rows.runs.user.codes]
    return rows.take(some)


def _pulses(view: _View) -> tuple[Pulse, Pulse | None]:
    """How the cluster was used, and how the jobs shown fared; now and before."""
    facts = view.facts
    quiet = _quiet(facts)
    there = facts.course.capacity[~quiet].sum()
    now = pulse(
        view.rows,
        float(facts.course.attained.sum()),
        None if np.isnan(there) else float(there),
        facts.course,
    )
    if facts.before is None or facts.rows_before is None or view.rows_before is None:
        return now, None
    supply, window = facts.before.supply, facts.before.fairness.window
    capacity = None if supply is None else capacity_gpu_s(supply, window)
    return now, pulse(view.rows_before, float(facts.rows_before.used_gpu_s.sum()), capacity)


def _quiet(facts: Facts) -> NDArray[np.bool_]:
    """Which stretches lie in a silence, of which nothing is known: (k,)."""
    edges = facts.course.edges
    quiet = np.zeros(len(edges) - 1, dtype=np.bool_)
    for silence in facts.silences:
        quiet |= (edges[:-1] >= silence.start) & (edges[1:] <= silence.end)
    unused: NDArray[np.bool_] = facts.course.attained.sum(axis=1) == 0
    return quiet & unused


def _around(view: _View) -> Circumstances:
    """What there is to know besides, and what to do about the site now."""
    facts = view.facts
    todo: tuple[str, ...] = ()
    if facts.present is not None:
        todo = tuple(present_todo(facts.present, shown_budgets(facts, view.tenants)))
    return Circumstances(
        writes=facts.writes,
        skipped=facts.skipped_total,
        suspects=facts.now.settled.odd,
        silences=len(facts.silences),
        todo=todo,
    )


def _meta(view: _View, command: str, is_demo: bool) -> Row:
    facts = view.facts
    return {
        "version": __version__,
        "generated": facts.generated,
        "cluster": "+".join(facts.clusters),
        "known_until": facts.known_until,
        "command": command,
        "demo": is_demo,
        "only_tenants": sorted(view.only.tenants),
        "only_users": sorted(view.only.users),
        "half_life_s": facts.half_life_s if facts.half_life_s < 1e15 else None,
        "requeued_work": "kept" if facts.requeued_work_kept else "lost",
    }


def _verdict(said: Verdict) -> Row:
    return {
        "answer": said.answer,
        "headline": said.headline,
        "owed": [asdict(one) for one in said.owed],
        "ahead": [asdict(one) for one in said.ahead],
        "changed": list(said.changed),
        "todo": list(said.todo),
    }


def _figures(fairness: Fairness, own: Pulse) -> Row:
    four = ("jain", "min_rho", "max_min_gap", "mean_shortfall")
    return {**asdict(own), **{name: getattr(fairness, name) for name in four}}


def _tenants(now: Fairness, before: Fairness | None, wanted: frozenset[str] | None) -> list[Row]:
    """One row a tenant: what it was due, what it got, and how that was before."""
    then = {} if before is None else {row.tenant: row for row in before.tenants}
    used = now.attained_gpu_s, 0 if before is None else before.attained_gpu_s
    weights = sum(row.weight or 0 for row in now.tenants)
    return [
        {
            "tenant": row.tenant,
            "state": row.state,
            "weight": row.weight,
            "weight_part": _part(row.weight, weights),
            "quota_gpus": row.quota_gpus,
            "entitled_gpu_s": row.entitled_gpu_s,
            "attained_gpu_s": row.attained_gpu_s,
            "difference_gpu_s": _difference(row),
            "use_part": _part(row.attained_gpu_s, used[0]),
            "share": row.share,
            "deserved_gpu_s": row.deserved_gpu_s,
            "rho": row.rho,
            "quota_gpu_s": row.quota_gpu_s,
            "credit": row.credit,
            "deleted": row.deleted,
            **_as_before(then.get(row.tenant), used[1]),
        }
        for row in now.tenants
        if wanted is None or row.tenant in wanted
    ]


def _difference(row: TenantIndex) -> float | None:
    return None if row.entitled_gpu_s is None else row.attained_gpu_s - row.entitled_gpu_s


def _as_before(row: TenantIndex | None, used: float) -> Row:
    return {
        "before_attained_gpu_s": None if row is None else row.attained_gpu_s,
        "before_use_part": None if row is None else _part(row.attained_gpu_s, used),
        "before_share": None if row is None else row.share,
        "before_rho": None if row is None else row.rho,
    }


def _part(value: float | None, whole: float) -> float | None:
    return None if value is None or not whole else value / whole


def _over_time(view: _View) -> Row:
    """Mean GPUs of each stretch, and rho at its end; nothing is known of a silence."""
    facts, found = view.facts, view.facts.course
    spans = np.diff(found.edges)
    quiet = _quiet(facts)
    shown = [
        (i, name)
        for i, name in enumerate(found.tenants)
        if view.tenants is None or name in view.tenants
    ]
    held = np.where(quiet[:, None], np.nan, found.attained / spans[:, None])
    waiting = np.where(quiet[:, None], np.nan, found.waiting / spans[:, None])
    return {
        "edges": found.edges.tolist(),
        "look_back_s": facts.look_back_s,
        "capacity_gpus": _listed(found.capacity / spans),
        "held_gpus": {name: _listed(held[:, i]) for i, name in shown},
        "waiting_gpus": {name: _listed(waiting[:, i]) for i, name in shown},
        "rho": {name: _listed(facts.rho[:, i]) for i, name in shown},
    }


def _listed(values: FloatArray) -> list[float | None]:
    return [None if np.isnan(x) else float(f"{x:.{DIGITS}g}") for x in values.tolist()]


def _classes(view: _View) -> list[Row]:
    jobs = view.facts.now.jobs
    if jobs is None:
        return []
    users = jobs.runs.user
    some = np.ones(len(jobs), dtype=np.bool_)
    if view.tenants is not None:
        some &= np.array([name in view.tenants for name in jobs.tenants])[jobs.tenant]
    if view.only.users:
        known = np.array([*(name in view.only.users for name in users.names), False])
        some &= known[users.codes[jobs.first]]
    return grouping.classes(jobs, some)
