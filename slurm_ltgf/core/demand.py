"""Runs made ready for integration: one tenant code, one GPU count and one demand interval a run.

Demand of a run is its GPUs from eligible to end: pending first, then running. Use is its GPUs from
start to end, in proportion of the elapsed time where Slurm says the run was suspended meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.gpus import Gpus, Pricing, gpus
from slurm_ltgf.core.model import UNKNOWN, FloatArray, IntArray, Runs, Window, Words
from slurm_ltgf.core.timeline import PART_RUNS

#: Fractions of a GPU are counted in whole ticks of 1/scale; a finer one is rounded to this.
FINEST = 1_000_000_000
#: Most ticks of one run: a float64 holds all integers below, and the ticks of 2000 such runs fit.
_MOST_TICKS = 1 << 52


@dataclass(frozen=True, slots=True)
class Load:
    """n runs that held or wanted GPUs in a window, sorted as they came.

    rows: (n,) index into the Runs they come from. tenant: (n,) int32 code into the tenants.
    ticks: (n,) int64 weighted GPUs · scale, of all tasks of the record. begin, start, end: (n,)
    int64; begin is when it became eligible, start = end where it never ran. used_s: (n,) int64,
    seconds of use in the window. price: (n,) int32 index into `prices`. scale: ticks a GPU.
    """

    rows: IntArray
    tenant: NDArray[np.int32]
    ticks: IntArray
    begin: IntArray
    start: IntArray
    end: IntArray
    used_s: IntArray
    price: NDArray[np.int32]
    prices: tuple[Gpus, ...]
    scale: int

    @property
    def gpus(self) -> FloatArray:
        """Weighted GPUs of each run: (n,) float64."""
        return self.ticks / self.scale


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Runs whose GPUs cannot be counted: how many, their seconds of use, why."""

    reason: str
    runs: int
    seconds: int


Loaded: TypeAlias = tuple[Load, tuple[Unpriced, ...]]


def load(
    runs: Runs, window: Window, *, tenant_of: Callable[[str], int], pricing: Pricing
) -> Loaded:
    """Runs that use or want GPUs in the window, and those that cannot be priced.

    Args:
        runs: every end known (`history.settle` sees to it).
        window: [start, end), epoch seconds.
        tenant_of: account -> tenant code; negative: not a tenant, left out.
        pricing: worth of GRES.
    """
    prices = tuple(gpus(text, pricing) for text in (*runs.gres.names, *runs.gres_requested.names))
    codes = np.array([tenant_of(name) for name in runs.account.names], dtype=np.int32)
    book = _Book(prices, common_scale(prices), codes, window)
    if len(runs) <= PART_RUNS:
        picked, unpriced = _load_part(runs, book, 0)
        return picked, _summed(unpriced)
    return _load_in_parts(runs, book)


def load_of(
    runs: Runs,
    window: Window,
    *,
    tenants: Sequence[str],
    tenant_of: Mapping[str, str],
    pricing: Pricing,
) -> Loaded:
    """`load` by names: code i is tenants[i]; accounts that are not in tenant_of are no party."""
    codes = {name: i for i, name in enumerate(tenants)}
    return load(
        runs,
        window,
        tenant_of=lambda account: codes.get(tenant_of.get(account, ""), -1),
        pricing=pricing,
    )


@dataclass(frozen=True, slots=True)
class _Book:
    """What all parts of a load have in common. tenant: of each account's code, < 0: none."""

    prices: tuple[Gpus, ...]
    scale: int
    tenant: NDArray[np.int32]
    window: Window


def _load_in_parts(runs: Runs, book: _Book) -> Loaded:
    """The load of many runs; a part's columns stay in the processor's cache."""
    n, at = len(runs), 0
    wide = {name: np.empty(n, dtype=np.int64) for name in _WIDE}
    narrow = {name: np.empty(n, dtype=np.int32) for name in ("tenant", "price")}
    unpriced: list[Unpriced] = []
    for first in range(0, n, PART_RUNS):
        part, odd = _load_part(runs.take(slice(first, first + PART_RUNS)), book, first)
        unpriced += odd
        for name, column in (wide | narrow).items():
            column[at : at + len(part.rows)] = getattr(part, name)
        at += len(part.rows)
    columns: dict[str, Any] = {name: column[:at] for name, column in (wide | narrow).items()}
    return Load(**columns, prices=book.prices, scale=book.scale), _summed(unpriced)


_WIDE = ("rows", "ticks", "begin", "start", "end", "used_s")


def _load_part(runs: Runs, book: _Book, first: int) -> tuple[Load, list[Unpriced]]:
    """The load of some runs; the first of them is row `first` of all."""
    start, end = effective_times(runs)
    never_ran = start == UNKNOWN
    price = np.where(never_ran, runs.gres_requested.codes + len(runs.gres.names), runs.gres.codes)
    begin = np.where(runs.eligible == UNKNOWN, np.where(never_ran, end, start), runs.eligible)
    start = np.where(never_ran, end, start)
    begin = np.minimum(begin, start)
    worth = np.array([round(p.weighted * book.scale) for p in book.prices], dtype=np.int64)
    tenant = _take(book.tenant, runs.account)
    ticks = worth[price] * runs.tasks
    window = book.window
    inside = (begin < window.end) & (end > window.start) & (end > begin) & (tenant >= 0)
    rows = np.flatnonzero(inside & (ticks > 0))

    def used_s(some: IntArray) -> IntArray:
        return used_seconds(runs.elapsed_s[some], start[some], end[some], window)

    picked = Load(
        rows=rows + first,
        tenant=tenant[rows],
        ticks=ticks[rows],
        begin=begin[rows],
        start=start[rows],
        end=end[rows],
        used_s=used_s(rows),
        price=price[rows].astype(np.int32, copy=False),
        prices=book.prices,
        scale=book.scale,
    )
    return picked, _unpriced(book.prices, price, inside, used_s)


def effective_times(runs: Runs) -> tuple[IntArray, IntArray]:
    """Start and end of each run, the end moved out where Elapsed says the run was longer.

    (n,) each. sacct's End can lie before Start, or before Start + Elapsed, after a clock step or a
    requeue; Elapsed is what Slurm charged.
    """
    elapsed = np.maximum(runs.elapsed_s, 0)
    end = np.where(runs.start == UNKNOWN, runs.end, np.maximum(runs.end, runs.start + elapsed))
    return runs.start, end


def used_seconds(elapsed_s: IntArray, start: IntArray, end: IntArray, window: Window) -> IntArray:
    """Seconds of use inside the window, (n,) int64; all arguments (n,).

    Elapsed leaves out suspended time, and sacct does not say when in the run that was: it is spread
    evenly over the run, in whole seconds whose sum over any cut of time is exactly Elapsed.
    """
    low = np.clip(start, window.start, window.end)
    high = np.clip(end, window.start, window.end)
    span = end - start
    elapsed = np.where(elapsed_s == UNKNOWN, span, elapsed_s)
    plain: IntArray = np.maximum(high - low, 0)
    uneven = (elapsed != span) & (span > 0)
    if not uneven.any():
        return plain
    width = np.where(span > 0, span, 1)
    before = elapsed * (low - start) // width
    until = elapsed * (high - start) // width
    spread: IntArray = np.where(uneven, until - before, plain)
    return spread


def common_scale(prices: tuple[Gpus, ...]) -> int:
    """Smallest number that makes every count of GPUs whole, at most FINEST."""
    most = max((price.weighted for price in prices), default=Fraction(0))
    finest = min(FINEST, int(_MOST_TICKS / most)) if most else FINEST
    scale = 1
    for price in prices:
        scale = math.lcm(scale, price.weighted.denominator)
        if scale > finest:
            return finest
    return scale


def _take(codes: NDArray[np.int32], words: Words) -> NDArray[np.int32]:
    return codes[words.codes] if len(codes) else np.empty(0, dtype=np.int32)


def _unpriced(
    prices: tuple[Gpus, ...],
    price: IntArray,
    inside: NDArray[np.bool_],
    used_s: Callable[[IntArray], IntArray],
) -> list[Unpriced]:
    found = []
    for code, worth in enumerate(prices):
        if not worth.unpriced:
            continue
        mine = np.flatnonzero(inside & (price == code))
        if len(mine):
            found.append(Unpriced(worth.unpriced, len(mine), int(used_s(mine).sum())))
    return found


def _summed(parts: Iterable[Unpriced]) -> tuple[Unpriced, ...]:
    """One entry a reason, by reason."""
    found: dict[str, Unpriced] = {}
    for part in parts:
        old = found.get(part.reason, Unpriced(part.reason, 0, 0))
        found[part.reason] = Unpriced(part.reason, old.runs + part.runs, old.seconds + part.seconds)
    return tuple(found[reason] for reason in sorted(found))
