"""The integrals of fairness, stretch by stretch: what a period looked like while it went by.

Each stretch is measured by the functions of `fairness` over its own window, so that the stretches
of a period add up to the period: nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slurm_ltgf.core.demand import Load, effective_times, load_of
from slurm_ltgf.core.fairness import attained_gpu_s, integrals
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.model import UNKNOWN, FloatArray, IntArray, Runs, Window
from slurm_ltgf.core.timeline import Clock, Supply

#: Stretches whose runs are picked together, before each picks its own among them.
BLOCK = 24


@dataclass(frozen=True, slots=True)
class Course:
    """What each of k stretches amounts to, by tenant.

    edges: (k + 1,) epoch seconds. tenants: n names. attained, deserved, quota, entitled, as in
    `fairness`, and waiting (asked for by eligible runs before they start): (k, n) GPU-seconds.
    capacity: (k,) GPU-seconds. nan where capacity is not known; attained and waiting always are.
    """

    edges: IntArray
    tenants: tuple[str, ...]
    attained: FloatArray
    waiting: FloatArray
    deserved: FloatArray
    quota: FloatArray
    entitled: FloatArray
    capacity: FloatArray

    def __len__(self) -> int:
        return len(self.edges) - 1


def course(
    runs: Runs,
    edges: IntArray,
    *,
    tenants: Sequence[str],
    tenant_of: Mapping[str, str],
    supply: Supply | None,
    pricing: Pricing,
    limits: Sequence[float | None] | None = None,
) -> Course:
    """Measure each stretch between two edges, without decay.

    Args:
        runs: as for `fairness.fairness`: all that overlap the edges' span, every end known.
        edges: (k + 1,) epoch seconds, rising.
        tenants: names, sorted; the supply's columns are these.
        limits: each tenant's cap on GPUs at once, None: none; as long as tenants.
    """
    k, n = len(edges) - 1, len(tenants)
    attained, waiting = np.zeros((k, n)), np.zeros((k, n))
    due = np.full((3, k, n), np.nan)
    capacity = np.full(k, np.nan)
    for i, there in _stretches(runs, edges):
        window = Window(int(edges[i]), int(edges[i + 1]))
        asked, _ = load_of(there, window, tenants=tenants, tenant_of=tenant_of, pricing=pricing)
        clock = Clock(window)
        attained[i] = attained_gpu_s(asked, clock, n)
        waiting[i] = _waiting(asked, window, n)
        if supply is not None:
            sums = integrals(asked, clock, supply=supply, limits=limits or [None] * n)
            due[:, i] = sums.deserved, sums.quota, sums.entitled
            capacity[i] = sums.capacity
    deserved, quota, entitled = due
    return Course(edges, tuple(tenants), attained, waiting, deserved, quota, entitled, capacity)


def over_the_last(values: FloatArray, stretches: int) -> FloatArray:
    """Sums of so many rows up to and with each; nan in the first rows that have not so many.

    values: (k, n). Unknown (nan) in one of them is unknown.
    """
    sums = np.full(values.shape, np.nan)
    if len(values) >= stretches:
        total = np.vstack([np.zeros(values.shape[1]), values.cumsum(axis=0)])
        sums[stretches - 1 :] = total[stretches:] - total[:-stretches]
    return sums


def ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """top / bottom; nan where the bottom is nothing, or not known."""
    result = np.full(top.shape, np.nan)
    np.divide(top, bottom, out=result, where=bottom > 1e-6)
    return result


def _stretches(runs: Runs, edges: IntArray) -> Iterator[tuple[int, Runs]]:
    """Each stretch's number and the runs that meet it."""
    start, end = effective_times(runs)
    begin = np.where(start == UNKNOWN, end, start)
    begin = np.where(runs.eligible == UNKNOWN, begin, np.minimum(runs.eligible, begin))
    for first in range(0, len(edges) - 1, BLOCK):
        last = min(first + BLOCK, len(edges) - 1)
        rows = np.flatnonzero((begin < edges[last]) & (end > edges[first]))
        low, high = begin[rows], end[rows]
        for i in range(first, last):
            yield i, runs.take(rows[(low < edges[i + 1]) & (high > edges[i])])


def _waiting(asked: Load, window: Window, n: int) -> FloatArray:
    """GPU-seconds in the window from eligible to start, by tenant."""
    low, high = (np.clip(time, window.start, window.end) for time in (asked.begin, asked.start))
    waited = np.bincount(asked.tenant, weights=(high - low) * asked.gpus, minlength=n)
    return waited.astype(np.float64)


def capacity_gpu_s(supply: Supply, window: Window) -> float:
    """The capacity over a window, without decay."""
    edges = [window.start, *supply.changes_in(window).tolist(), window.end]
    steps = supply.step_at(np.array(edges[:-1], dtype=np.int64))
    return float(supply.capacity[steps] @ np.diff(edges))
