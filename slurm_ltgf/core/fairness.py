"""Long-term GPU-time fairness of tenants: attained, deserved, entitled, and their ratios.

    U_i = ∫ A_i dt                attained: GPUs held
    W_i = ∫ Q_i dt                quota: Q_i = C · w_i / Σw over all tenants, active or not
    D_i = ∫ min(dem_i, Q_i) dt    deserved: the quota, as far as it was asked for
    X_i = ∫ E_i dt                entitled: weighted max-min split of C over what was asked for

    rho = U/D    credit = U/W    share = U/X       (0/0 is idle: a state, not a number)

Source: ASTRAEA (Ye et al., TPDS 2022) for U, D, rho; LTGF.md sections 1, 2 and 6 for the rest.
Every integral is exact: a sum over the segments between events, no sampling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from slurm_ltgf.core.demand import Load, Loaded, Unpriced, load_of, used_seconds
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.model import FloatArray, IntArray, Runs, Tenant, Window
from slurm_ltgf.core.timeline import PART_RUNS, Clock, Supply, in_parts, water_fill

#: GPU-seconds: an int where it is whole (no decay, whole GPUs), else a float.
GpuSeconds: TypeAlias = int | float

LOSS, BENEFIT = 0.95, 1.05
#: Segments a block of the sweep holds: a block of float64 for 50 tenants stays in the cache.
BLOCK_CELLS = 200_000
_INT64_END = 1 << 63


@dataclass(frozen=True, slots=True)
class TenantIndex:
    """What one tenant got in the window, and what it was due. None: not known.

    weight: shares. quota_gpus: Q at the window's end. *_gpu_s: weighted GPU-seconds (decayed when
    a half-life is set). device_s: seconds of devices held, MIG slices counted as devices.
    suspended_gpu_s: GPU-seconds held while suspended, not part of attained. state: see `state_of`.
    """

    tenant: str
    weight: float | None
    quota_gpus: float | None
    attained_gpu_s: GpuSeconds
    deserved_gpu_s: float | None
    quota_gpu_s: float | None
    entitled_gpu_s: float | None
    rho: float | None
    credit: float | None
    share: float | None
    state: str
    suspended_gpu_s: GpuSeconds = 0
    device_s: int = 0
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Fairness:
    """Indices of all tenants over one window, and the cluster's in four numbers.

    jain: Jain's index of the shares U/X (1 = all alike). min_rho: the worst tenant's rho.
    max_min_gap: largest minus smallest share. mean_shortfall: mean of max(0, 1 - rho). All over
    tenants with demand and a weight; None when there are none or capacity is not known.
    """

    window: Window
    tenants: tuple[TenantIndex, ...]
    capacity_gpu_s: float | None
    attained_gpu_s: GpuSeconds
    jain: float | None
    min_rho: float | None
    max_min_gap: float | None
    mean_shortfall: float | None
    unpriced: tuple[Unpriced, ...] = ()


@dataclass(frozen=True, slots=True)
class Integrals:
    """Per tenant, (n,) float64 GPU-seconds: D, W, X; and the capacity's integral."""

    deserved: FloatArray
    quota: FloatArray
    entitled: FloatArray
    capacity: float


def fairness(
    runs: Runs,
    window: Window,
    *,
    tenants: Mapping[str, Tenant],
    tenant_of: Mapping[str, str],
    supply: Supply | None,
    pricing: Pricing,
    half_life_s: float = math.inf,
    loaded: Loaded | None = None,
) -> Fairness:
    """Indices of every tenant over the window.

    Args:
        runs: every run that overlaps the window, every end known (`history.settle`).
        tenants: all parties, active or not, by name.
        tenant_of: account name -> tenant name; accounts not in it are no party.
        supply: capacity and weights over time, its columns being the tenants; None: not known,
            then only what was attained is.
        half_life_s: seconds after which a GPU-second counts half; inf: no decay.
        loaded: `demand.load_of` these runs, where it is known already.
    """
    names = tuple(sorted(tenants))
    asked, unpriced = loaded or load_of(
        runs, window, tenants=names, tenant_of=tenant_of, pricing=pricing
    )
    clock = Clock(window, half_life_s)
    attained = attained_gpu_s(asked, clock, len(names))
    held = _held_besides(asked, runs, window, len(names))
    sums = None
    if supply is not None:
        supply = _in_order(supply, names)
        limits = [tenants[name].gpu_limit for name in names]
        sums = integrals(asked, clock, supply=supply, limits=limits)
    rows = tuple(
        _index(tenants[name], i, attained=attained[i], held=held[i], sums=sums, supply=supply)
        for i, name in enumerate(names)
    )
    return _summary(window, rows, sums=sums, unpriced=unpriced)


def attained_gpu_s(asked: Load, clock: Clock, n_tenants: int) -> list[GpuSeconds]:
    """U of each tenant: Σ GPUs · seconds held, exact (integers) without a half-life."""
    if not clock.is_plain:
        seconds = asked.used_s.astype(np.float64)
        low, high = clock(asked.start), clock(asked.end)
        inside = np.clip(asked.end, clock.window.start, clock.window.end) - np.clip(
            asked.start, clock.window.start, clock.window.end
        )
        kept = np.divide(seconds, inside, out=np.zeros_like(seconds), where=inside > 0)
        weighted = np.bincount(
            asked.tenant, weights=(high - low) * kept * asked.gpus, minlength=n_tenants
        )
        return [float(x) for x in weighted]
    exact = _sums(asked, n_tenants, lambda part: (asked.used_s[part], asked.ticks[part]))
    return [_plain(Fraction(x, asked.scale)) for x in exact]


def integrals(
    asked: Load, clock: Clock, *, supply: Supply, limits: Sequence[float | None]
) -> Integrals:
    """D, W and X of each tenant: one sweep over the instants at which demand or supply changes."""
    n = len(supply.tenants)
    total = Integrals(np.zeros(n), np.zeros(n), np.zeros(n), 0.0)
    if n == 0:
        here = supply.step_at(np.append(clock.window.start, supply.changes_in(clock.window)))
        edges = [clock.window.start, *supply.changes_in(clock.window), clock.window.end]
        spans = np.diff(clock(np.array(edges, dtype=np.int64)))
        return replace(total, capacity=float(supply.capacity[here] @ spans))
    for part, rows in in_parts(asked.begin, asked.end, clock.window):
        events = _demand_events(asked, rows, part, marks=supply.changes_in(part))
        sums = _sweep(events, part, clock, supply=supply, limits=limits, scale=asked.scale)
        total = Integrals(
            total.deserved + sums.deserved,
            total.quota + sums.quota,
            total.entitled + sums.entitled,
            total.capacity + sums.capacity,
        )
    return total


_Events: TypeAlias = tuple[IntArray, IntArray, FloatArray]


def _sweep(
    changes: _Events,
    window: Window,
    clock: Clock,
    *,
    supply: Supply,
    limits: Sequence[float | None],
    scale: int,
) -> Integrals:
    """The integrals over a part of the clock's window, `changes` being `_demand_events` in it."""
    n = len(supply.tenants)
    times, tenant, delta = changes
    is_new = np.append(True, times[1:] != times[:-1])
    row_times, row_of = times[is_new], np.cumsum(is_new) - 1
    length = np.diff(clock(np.append(row_times, window.end)))
    step = supply.step_at(row_times)
    caps = np.array([[np.inf if limit is None else limit] for limit in limits])
    deserved, entitled = np.zeros(n), np.zeros(n)
    demand = np.zeros(n, dtype=np.int64)
    block = max(BLOCK_CELLS // max(n, 1), 1)
    quotas = supply.quotas()
    for first, last in _blocks(step, block):
        events = slice(*np.searchsorted(row_of, [first, last]))
        width = last - first
        cells = tenant[events] * width + (row_of[events] - first)
        change = np.bincount(cells, weights=delta[events], minlength=n * width)
        ticks = change.astype(np.int64).reshape(n, width)
        ticks[:, 0] += demand
        ticks = np.cumsum(ticks, axis=1)
        demand = ticks[:, -1]
        wanted = np.minimum(ticks / scale, caps)
        here, span = step[first], length[first:last]
        deserved += np.minimum(wanted, quotas[here][:, None]) @ span
        room = np.full(width, supply.capacity[here])
        entitled += water_fill(wanted, supply.weights[here], room) @ span
    spans = np.bincount(step, weights=length, minlength=len(supply.times))
    return Integrals(deserved, spans @ quotas, entitled, capacity=float(spans @ supply.capacity))


def state_of(*, weight: float | None, rho: float | None, share: float | None, asked: bool) -> str:
    """One word for a tenant: idle, no share, unknown, loss, fair or benefit.

    idle: asked for nothing. no share: weight 0, so it is due nothing. loss: rho < 0.95; benefit:
    rho > 1.05, as the paper classes jobs.
    """
    if not asked:
        return "idle"
    if weight is not None and weight == 0:
        return "no share"
    if rho is None:
        return "unknown"
    return class_of(rho)


def class_of(rho: float) -> str:
    """loss below 0.95, benefit above 1.05, fair between (ASTRAEA's classes)."""
    if rho < LOSS:
        return "loss"
    return "benefit" if rho > BENEFIT else "fair"


def jain(values: Sequence[float]) -> float | None:
    """Jain's index (Σx)² / (n Σx²): 1 when all are alike, 1/n when one has all; None for none."""
    squares = math.fsum(x * x for x in values)
    if not values or squares == 0:
        return None
    return math.fsum(values) ** 2 / (len(values) * squares)


def _in_order(supply: Supply, names: tuple[str, ...]) -> Supply:
    """The supply with one column a tenant, in the order of names; weight 0 where it has none."""
    if supply.tenants == names:
        return supply
    column = {name: i for i, name in enumerate(supply.tenants)}
    weights = np.zeros((len(supply.times), len(names)))
    for i, name in enumerate(names):
        if name in column:
            weights[:, i] = supply.weights[:, column[name]]
    return Supply(names, supply.times, supply.capacity, weights)


def _demand_events(asked: Load, rows: IntArray, window: Window, *, marks: IntArray) -> _Events:
    """Changes of demand in time order: times (m,), tenant codes (m,), ticks (m,), exact in float.

    rows: those that meet the window. marks: further instants that must appear, with no change of
    demand; the window's start always does.
    """
    low = np.maximum(asked.begin[rows], window.start)
    high = asked.end[rows]
    ends = np.flatnonzero(high < window.end)
    who, ticks = asked.tenant[rows], asked.ticks[rows]
    marks = np.append(marks, window.start)
    nobody = np.zeros(len(marks), dtype=np.int64)
    times = np.concatenate([low, high[ends], marks])
    tenant = np.concatenate([who, who[ends], nobody]).astype(np.int64)
    delta = np.concatenate([ticks, -ticks[ends], nobody]).astype(np.float64)
    order = np.argsort(times, kind="stable")  # history mostly comes in order
    return times[order], tenant[order], delta[order]


def _blocks(step: IntArray, size: int) -> list[tuple[int, int]]:
    """Row ranges of at most `size` rows that lie within one step of the supply."""
    edges = [0, *(np.flatnonzero(np.diff(step)) + 1).tolist(), len(step)]
    return [
        (first, min(first + size, right))
        for left, right in pairwise(edges)
        for first in range(left, right, size)
    ]


def _sums(asked: Load, n: int, factors: Callable[[slice], tuple[IntArray, IntArray]]) -> list[int]:
    """Exact integer sums by tenant of products; in halves so that no float64 sum leaves 2^53.

    factors: of a part of the rows; the parts stay in the processor's cache.
    """
    sums = [0] * n
    for first in range(0, len(asked.rows), PART_RUNS):
        part = slice(first, first + PART_RUNS)
        a, b = factors(part)
        if int(a.max(initial=0)) * int(b.max(initial=0)) >= _INT64_END:
            for who, x, y in zip(asked.tenant[part].tolist(), a.tolist(), b.tolist(), strict=True):
                sums[who] += x * y
            continue
        high, low = (
            np.bincount(asked.tenant[part], weights=half, minlength=n).tolist()
            for half in _halves(a * b)
        )
        sums = [x + (int(h) << 20) + int(k) for x, h, k in zip(sums, high, low, strict=True)]
    return sums


def _halves(values: IntArray) -> tuple[IntArray, IntArray]:
    return values >> 20, values & ((1 << 20) - 1)


def _held_besides(asked: Load, runs: Runs, window: Window, n: int) -> list[tuple[GpuSeconds, int]]:
    """(suspended GPU-seconds, device-seconds) of each tenant."""
    devices = np.array([p.devices for p in asked.prices], dtype=np.int64)

    def suspended(part: slice) -> tuple[IntArray, IntArray]:
        whole = np.maximum(runs.suspended_s[asked.rows[part]], 0)
        some = np.flatnonzero(whole)  # few
        start, end = asked.start[part][some], asked.end[part][some]
        whole[some] = used_seconds(whole[some], start, end, window)
        return whole, asked.ticks[part]

    waiting = _sums(asked, n, suspended)
    seconds = _sums(asked, n, lambda part: (asked.used_s[part], devices[asked.price[part]]))
    return [
        (_plain(Fraction(ticks, asked.scale)), whole)
        for ticks, whole in zip(waiting, seconds, strict=True)
    ]


def _index(
    tenant: Tenant,
    i: int,
    *,
    attained: GpuSeconds,
    held: tuple[GpuSeconds, int],
    sums: Integrals | None,
    supply: Supply | None,
) -> TenantIndex:
    suspended, device_s = held
    common = {
        "tenant": tenant.name,
        "attained_gpu_s": attained,
        "suspended_gpu_s": suspended,
        "device_s": device_s,
        "deleted": tenant.deleted,
    }
    if sums is None or supply is None:
        state = state_of(weight=None, rho=None, share=None, asked=attained > 0)
        unknown = dict.fromkeys(_NEED_CAPACITY)
        return TenantIndex(**common, **unknown, weight=tenant.weight, state=state)  # type: ignore[arg-type]
    deserved, quota, entitled = (
        float(sums.deserved[i]),
        float(sums.quota[i]),
        float(sums.entitled[i]),
    )
    weight = float(supply.weights[-1, i])
    rho, share = _ratio(attained, deserved), _ratio(attained, entitled)
    return TenantIndex(
        **common,  # type: ignore[arg-type]
        weight=weight,
        quota_gpus=float(supply.quotas()[-1, i]),
        deserved_gpu_s=deserved,
        quota_gpu_s=quota,
        entitled_gpu_s=entitled,
        rho=rho,
        credit=_ratio(attained, quota),
        share=share,
        state=state_of(
            weight=weight, rho=rho, share=share, asked=attained > 0 or entitled > 0 or deserved > 0
        ),
    )


_NEED_CAPACITY = (
    "quota_gpus",
    "deserved_gpu_s",
    "quota_gpu_s",
    "entitled_gpu_s",
    "rho",
    "credit",
    "share",
)


def _summary(
    window: Window,
    rows: tuple[TenantIndex, ...],
    *,
    sums: Integrals | None,
    unpriced: tuple[Unpriced, ...],
) -> Fairness:
    active = [row for row in rows if row.state not in ("idle", "unknown", "no share")]
    shares = [row.share for row in active if row.share is not None]
    rhos = [row.rho for row in active if row.rho is not None]
    total = sum(row.attained_gpu_s for row in rows)
    return Fairness(
        window=window,
        tenants=rows,
        capacity_gpu_s=None if sums is None else sums.capacity,
        attained_gpu_s=total,
        jain=jain(shares),
        min_rho=min(rhos, default=None),
        max_min_gap=max(shares) - min(shares) if shares else None,
        mean_shortfall=math.fsum(max(0.0, 1 - r) for r in rhos) / len(rhos) if rhos else None,
        unpriced=unpriced,
    )


def _ratio(top: float, bottom: float) -> float | None:
    return top / bottom if bottom > 0 else None


def _plain(value: Fraction) -> GpuSeconds:
    return value.numerator if value.denominator == 1 else float(value)
