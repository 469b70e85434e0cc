"""Exact integrals of step functions over a window, older time counting less if a half-life is set.

All quantities of LTGF are constant between events, so an integral is a sum over segments. A
half-life only changes the length of a segment: seen from `now`, [a, b) is worth
∫ 2^-((now-t)/h) dt = G(b) - G(a) with G(t) = h/ln 2 · 2^-((now-t)/h). Without one, G(t) = t.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from slurm_ltgf.core.model import FloatArray, IntArray, Window

#: Runs looked at together: few enough for their columns to stay in the processor's cache.
PART_RUNS = 1 << 18


@dataclass(frozen=True, slots=True)
class Clock:
    """Weight of time in a window: `clock(t)` is G(t) - G(window.start), t clipped to the window."""

    window: Window
    half_life_s: float = math.inf

    def __post_init__(self) -> None:
        """Refuse a half-life that is not positive."""
        if not self.half_life_s > 0:
            raise ValueError(f"half_life_s must be > 0, got {self.half_life_s}")

    @property
    def is_plain(self) -> bool:
        """No decay: one second is one second."""
        return math.isinf(self.half_life_s)

    def __call__(self, times: IntArray) -> FloatArray:
        """Weighted seconds from the window's start to each time; exact integers when plain."""
        inside = np.clip(times, self.window.start, self.window.end)
        if self.is_plain:
            return (inside - self.window.start).astype(np.float64)
        scale = self.half_life_s / math.log(2)
        age = (self.window.end - inside) / self.half_life_s
        oldest = self.window.length_s / self.half_life_s
        passed = oldest - age
        # 2^-age - 2^-oldest, for times near the window's start without cancellation
        near: FloatArray = np.exp2(-oldest) * np.expm1(np.minimum(passed, 1.0) * math.log(2))
        return np.where(passed < 1, near, np.exp2(-age) - np.exp2(-oldest)) * scale

    def length(self) -> float:
        """Weighted seconds of the whole window."""
        return float(self(np.array([self.window.end]))[0])


@dataclass(frozen=True, slots=True)
class Supply:
    """What there is to share, as steps: from times[k] on, capacity[k] GPUs and weights[k] shares.

    times: (k,) int64, ascending, times[0] <= window start. capacity: (k,) float64, GPUs (weighted).
    weights: (k, n) float64, one column a tenant, in the order of `tenants`.
    """

    tenants: tuple[str, ...]
    times: IntArray
    capacity: FloatArray
    weights: FloatArray

    @staticmethod
    def constant(tenants: dict[str, float], capacity_gpus: float) -> Supply:
        """The same capacity and weights at all times."""
        names = tuple(sorted(tenants))
        return Supply(
            tenants=names,
            times=np.array([np.iinfo(np.int64).min // 2]),
            capacity=np.array([float(capacity_gpus)]),
            weights=np.array([[float(tenants[n]) for n in names]]).reshape(1, len(names)),
        )

    def quotas(self) -> FloatArray:
        """Q_i of each step: (k, n) GPUs, capacity · w_i / Σw over all tenants; 0 when Σw is 0."""
        total = self.weights.sum(axis=1, keepdims=True)
        part = np.divide(self.weights, total, out=np.zeros_like(self.weights), where=total > 0)
        quotas: FloatArray = part * self.capacity[:, None]
        return quotas

    def step_at(self, times: IntArray) -> IntArray:
        """Index of the step in force at each time."""
        return np.maximum(np.searchsorted(self.times, times, side="right") - 1, 0)

    def changes_in(self, window: Window) -> IntArray:
        """Times strictly inside the window at which a step begins."""
        inside = (self.times > window.start) & (self.times < window.end)
        return self.times[inside]


def in_parts(begin: IntArray, end: IntArray, window: Window) -> Iterator[tuple[Window, IntArray]]:
    """The window in equal parts, each with the intervals [begin, end) that meet it, (n,) each.

    So a long history costs as much for each run as a short one, whose columns fit the processor's
    cache: what is worked on together is what was there at one time.
    """
    n = len(begin)
    count = max(min(-(-n // PART_RUNS), window.length_s), 1)
    cuts = [window.start + window.length_s * k // count for k in range(count + 1)]
    zones = [slice(first, first + PART_RUNS) for first in range(0, n, PART_RUNS)]
    reach = [(zone, int(begin[zone].min()), int(end[zone].max())) for zone in zones]
    for low, high in pairwise(cuts):
        rows = [
            zone.start + np.flatnonzero((begin[zone] < high) & (end[zone] > low))
            for zone, least, most in reach
            if least < high and most > low
        ]
        yield Window(low, high), np.concatenate([*rows, np.empty(0, dtype=np.int64)])


def water_fill(demand: FloatArray, weights: FloatArray, capacity: FloatArray) -> FloatArray:
    """Split capacity by weighted max-min, demand-capped, for many instants at once.

    Args:
        demand: (n, r) GPUs that n tenants ask for at r instants, >= 0.
        weights: (n,) shares, >= 0; a tenant of weight 0 gets only what the others leave.
        capacity: (r,) GPUs.

    Returns:
        (n, r) entitlement E: 0 <= E <= demand, column sums min(capacity, Σ demand).

    Source:
        LTGF.md section 1 (E_i); progressive filling, the water level found by Newton's method on
        the concave function f(level) = Σ min(demand, level·w) - capacity.
    """
    has_share = weights > 0
    if has_share.all():
        return np.minimum(demand, weights[:, None] * water_level(demand, weights, capacity))
    entitled = np.zeros_like(demand)
    if has_share.any():
        entitled[has_share] = water_fill(demand[has_share], weights[has_share], capacity)
    left = capacity - entitled.sum(axis=0)
    rest = demand[~has_share]
    if rest.any() and (left > 0).any():
        equal = np.ones(len(rest))
        entitled[~has_share] = water_fill(rest, equal, np.maximum(left, 0.0))
    return entitled


#: Instants between two that are solved from scratch; those between start from the one before.
STRIDE = 32


def water_level(demand: FloatArray, weights: FloatArray, capacity: FloatArray) -> FloatArray:
    """Level at which Σ min(demand, level·w) = capacity, per instant; inf where demand is smaller.

    demand (n, r), weights (n,) all > 0, capacity (r,). The instants are in order, so that most have
    the same tenants satisfied as one shortly before; this changes how long it takes, no result.
    """
    level = np.full(demand.shape[1], np.inf)
    short = np.flatnonzero(demand.sum(axis=0) > capacity)
    if len(short) == len(level):
        return _levels(demand, weights, capacity)
    if len(short):
        level[short] = _levels(demand.take(short, axis=1), weights, capacity[short])
    return level


def _levels(demand: FloatArray, weights: FloatArray, capacity: FloatArray) -> FloatArray:
    """Root of f(level) = Σ min(demand, level·w) - capacity, where Σ demand > capacity always.

    With the tenants S satisfied, f is linear: level = (capacity - Σ_S demand) / Σ_notS w. That is
    the root if exactly the tenants S have demand <= level·w.
    """
    total, r = weights.sum(), len(capacity)
    anchors = demand[:, ::STRIDE]
    start = _newton(anchors, weights, capacity[::STRIDE], capacity[::STRIDE] / total)
    satisfied = anchors <= weights[:, None] * start
    free = total - weights @ satisfied
    near, start, free = (np.repeat(x, STRIDE, axis=-1)[..., :r] for x in (satisfied, start, free))
    room = capacity - np.einsum("ij,ij->j", demand, near.astype(np.float64))
    some = free > total * 1e-12
    level: FloatArray = np.divide(room, free, out=start.copy(), where=some)
    off = np.flatnonzero(~some | ((demand <= weights[:, None] * level) != near).any(axis=0))
    level[off] = _newton(demand.take(off, axis=1), weights, capacity[off], start[off])
    return level


def _newton(
    demand: FloatArray, weights: FloatArray, capacity: FloatArray, guess: FloatArray
) -> FloatArray:
    """The root of `_levels` by Newton's method from a guess.

    f is concave: from the right of the root one step lands left of it, and from the left no step
    overshoots, so after the first step each one only adds tenants to the satisfied ones.
    """
    level, total = guess.copy(), weights.sum()
    left = np.arange(len(level))
    first = True
    while len(left):
        at = level[left]
        satisfied = (demand <= weights[:, None] * at).astype(np.float64)
        free = total - weights @ satisfied
        room = capacity - np.einsum("ij,ij->j", demand, satisfied)
        floor = capacity / total if first else at
        better = np.divide(room, free, out=floor.copy(), where=free > total * 1e-12)
        better = np.maximum(better, floor)
        level[left] = better
        moved = np.flatnonzero(np.abs(better - at) > at * 1e-15)
        left, demand, capacity = left[moved], demand.take(moved, axis=1), capacity[moved]
        first = False
    return level
