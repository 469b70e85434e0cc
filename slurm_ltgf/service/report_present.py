"""The present of a report: pools and budgets as Slurm shows them now, or why it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from slurm_ltgf.core.history import settle
from slurm_ltgf.core.model import FloatArray, IntArray, Window
from slurm_ltgf.core.over_time import course
from slurm_ltgf.core.present import Budget, Present, budget_course
from slurm_ltgf.core.quota import summed_up
from slurm_ltgf.core.report import Facts
from slurm_ltgf.core.tenants import Tree
from slurm_ltgf.errors import LtgfError
from slurm_ltgf.service.fragmentation import FragmentationEdges, look, past_demand, state
from slurm_ltgf.service.quota import QuotaEdges, QuotaView, Rules, states
from slurm_ltgf.service.terms import pricing_of
from slurm_ltgf.slurm.budgets import GPU
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger

#: A report of a time that ended longer ago tells nothing of now.
RECENT_S = 86400


def present(
    ledger: Ledger,
    config: Config,
    facts: Facts,
    *,
    pools: Callable[[], FragmentationEdges],
    budgets: Callable[[], QuotaEdges],
    rules: Callable[[], Rules] = Rules,
) -> Present | None:
    """The site now; None: the report is of a time long ago, or of several clusters.

    What cannot be asked for is left out, and `lacking` says why: a report is made without Slurm.
    """
    now = facts.generated
    if len(facts.clusters) > 1 or now - facts.window.end > RECENT_S:
        return None
    found, lacking = Present(now), []
    try:
        site = look(pools(), now=now)
        runs = facts.now.settled.runs
        found = replace(found, pools=state(site, past_demand(runs)))
    except LtgfError as exc:
        lacking.append(f"Fragmentation is left out: {exc}")
    try:
        edges = budgets()
        if edges.cluster in facts.clusters:
            view = states(edges, ledger, config, rules(), now=now)
            courses = tuple(_courses(ledger, config, facts, view))
            found = replace(found, budgets=courses, period=view.period, notes=view.notes)
    except LtgfError as exc:
        lacking.append(f"Budgets are left out: {exc}")
    return replace(found, lacking=tuple(lacking))


def _courses(ledger: Ledger, config: Config, facts: Facts, view: QuotaView) -> list[Budget]:
    """Every budget; those of GPUs with their course."""
    rows = [state for state in view.states if state.budget_gpu_s is not None]
    if not rows:
        return []
    edges = facts.course.edges
    if view.now > edges[-1]:
        edges = np.append(edges, view.now)
    (cluster,) = facts.clusters
    used = _used(ledger, config, cluster, edges)
    length = facts.window.length_s
    ends = [view.now + length, *([view.period.end] if view.period.end else [])]
    none: FloatArray = np.zeros(len(edges) - 1)
    return [
        budget_course(row, used.get(row.account, none), edges, view.period, until=min(ends))
        if row.tres == GPU
        else Budget(row)
        for row in rows
    ]


def _used(
    ledger: Ledger, config: Config, cluster: str, edges: IntArray
) -> Mapping[str, FloatArray]:
    """GPU-seconds of each account, with all below it, between the edges; types weigh alike."""
    window = Window(int(edges[0]), int(edges[-1]))
    runs = settle(ledger.runs(cluster, window), now=window.end).runs
    names = sorted(set(runs.account.names))
    pricing = replace(pricing_of(config), weights={})
    found = course(
        runs, edges, tenants=names, tenant_of={name: name for name in names},
        supply=None, pricing=pricing,
    )  # fmt: skip
    tree = Tree(ledger.accounts(cluster))
    sums = [summed_up(tree, dict(zip(names, row, strict=True))) for row in found.attained.tolist()]
    accounts = {name for row in sums for name in row}
    return {name: np.array([row.get(name, 0.0) for row in sums]) for name in accounts}
