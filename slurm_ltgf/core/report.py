"""What a report tells of a period: its facts, and one row for each run with GPUs, as columns.

Nothing is summed up here that `fairness` sums up already, and nothing is said in words: grouping is
report/'s, the verdict is `verdict`'s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.demand import Load, load_of
from slurm_ltgf.core.gpus import Gpus, Pricing
from slurm_ltgf.core.job_fairness import REQUEUED, is_one_of, parts_kept
from slurm_ltgf.core.measure import Measurement
from slurm_ltgf.core.model import UNKNOWN, FloatArray, IntArray, Runs, Skipped, Window
from slurm_ltgf.core.over_time import Course
from slurm_ltgf.core.present import Present
from slurm_ltgf.core.timeline import Clock

#: A chart has about so many stretches.
STRETCHES = 168
#: A silence is named from so many seconds on, if so many records would be expected in it.
SILENCE_S, EXPECTED = 12 * 3600, 50


@dataclass(frozen=True, slots=True)
class Rows:
    """m runs that held or wanted GPUs in a window.

    runs: them. tenant: (m,) code into tenants. price: (m,) code into prices, the worth of what each
    holds (or wants). gpus: (m,) weighted GPUs. used_s: (m,) seconds held in the window, suspended
    time left out. wait_s: (m,) from eligible to start, nan where it did not start in the window.
    waiting_s: (m,) how long it has waited at the window's end, nan where it does not. left: (m,)
    whether it was cancelled in the window before it ever ran. requeued: (m,) whether it ended in
    the window to start again. saved: (m,) the part of its work that is in a checkpoint, or is taken
    as kept. in_checkpoint: (m,) whether that is known of this very run.
    """

    runs: Runs
    tenants: tuple[str, ...]
    tenant: NDArray[np.int32]
    price: NDArray[np.int32]
    prices: tuple[Gpus, ...]
    gpus: FloatArray
    used_s: IntArray
    wait_s: FloatArray
    waiting_s: FloatArray
    left: NDArray[np.bool_]
    requeued: NDArray[np.bool_]
    saved: FloatArray
    in_checkpoint: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.tenant)

    @property
    def used_gpu_s(self) -> FloatArray:
        """Weighted GPU-seconds held in the window, (m,)."""
        return self.used_s * self.gpus

    def take(self, some: NDArray[np.bool_]) -> Rows:
        """Some of the rows, (m,) whether."""
        columns = {name: getattr(self, name) for name in _COLUMNS}
        kept = {name: column[some] for name, column in columns.items()}
        return replace(self, runs=self.runs.take(some), **kept)


_COLUMNS = (
    *("tenant", "price", "gpus", "used_s", "wait_s", "waiting_s"),
    *("left", "requeued", "saved", "in_checkpoint"),
)


@dataclass(frozen=True, slots=True)
class MoveCount:
    """How many moves of a kind ended so: goal (checkpoint, requeue, pause), result."""

    goal: str
    result: str
    moves: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything a report is made of.

    asked: the period asked for; window: what of it the history covers. before, rows_before: of the
    period of that length right before, None: there is no history of it. course: the window's
    stretches; rho: (k, n) of the tenants, each over the last look_back_s. gpus: in service at the
    end, weighted. hosts: node list -> its nodes. moves: of the audit log; writes: SiteFactors set.
    silences: stretches of the window without any record. notes: what a reader must know. present:
    the site now, None: nothing is told of it.
    """

    clusters: tuple[str, ...]
    asked: Window
    window: Window
    generated: int
    known_until: int | None
    gpus: float | None
    now: Measurement
    before: Measurement | None
    rows: Rows
    rows_before: Rows | None
    course: Course
    rho: FloatArray
    look_back_s: int
    hosts: Mapping[str, Sequence[str]]
    moves: tuple[MoveCount, ...]
    writes: int
    skipped: tuple[Skipped, ...]
    skipped_total: int
    silences: tuple[Window, ...]
    notes: tuple[str, ...]
    half_life_s: float = math.inf
    requeued_work_kept: bool = False
    present: Present | None = None


def rows(
    runs: Runs,
    window: Window,
    *,
    tenants: Sequence[str],
    tenant_of: Mapping[str, str],
    pricing: Pricing,
    requeued_work_kept: bool,
    kept: Mapping[tuple[int, int], int],
) -> Rows:
    """The runs that held or wanted GPUs in the window, with what a report says of each.

    Args:
        runs: as for `fairness.fairness`, every end known.
        requeued_work_kept, kept: see `job_fairness`.
    """
    asked, _ = load_of(runs, window, tenants=tenants, tenant_of=tenant_of, pricing=pricing)
    mine = runs.take(asked.rows)
    ran = mine.start != UNKNOWN
    started = ran & (asked.start >= window.start) & (asked.start < window.end)
    waits = ~(ran & (asked.start < window.end)) & (asked.end >= window.end)
    requeued = ran & is_one_of(REQUEUED, mine) & (asked.end <= window.end)
    saved, known = _saved(asked, runs, requeued, kept, 1.0 if requeued_work_kept else 0.0)
    return Rows(
        runs=mine,
        tenants=tuple(tenants),
        tenant=asked.tenant,
        price=asked.price,
        prices=asked.prices,
        gpus=asked.gpus,
        used_s=asked.used_s,
        wait_s=np.where(started, asked.start - asked.begin, np.nan),
        waiting_s=np.where(waits, window.end - asked.begin, np.nan),
        left=~ran & (asked.end < window.end) & (asked.end >= window.start),
        requeued=requeued,
        saved=saved,
        in_checkpoint=known,
    )


def _saved(
    asked: Load,
    runs: Runs,
    requeued: NDArray[np.bool_],
    kept: Mapping[tuple[int, int], int],
    default: float,
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The part of each run's work that is saved, and of which runs a checkpoint is known."""
    saved = np.ones(len(requeued))
    known = np.zeros(len(requeued), dtype=np.bool_)
    some = np.flatnonzero(requeued)
    if len(some):
        clock = Clock(Window(int(asked.start[some].min()), int(asked.end[some].max()) + 1))
        saved[some] = parts_kept(asked, runs, clock, requeued, kept, default)
        rows = asked.rows[some]
        keys = zip(runs.job_id[rows].tolist(), runs.start[rows].tolist(), strict=True)
        known[some] = [key in kept for key in keys]
    return saved, known


def edges_of(window: Window) -> IntArray:
    """The edges of a window's stretches, each of the same length to a second."""
    k = max(min(STRETCHES, window.length_s), 1)
    edges: IntArray = np.round(np.linspace(window.start, window.end, k + 1)).astype(np.int64)
    return edges


def silences(runs: Runs, window: Window) -> tuple[Window, ...]:
    """Stretches of a window in which nothing was submitted, began or ended, though much would be.

    Either nobody used the cluster, or that part of its history is missing: a report must say so.
    """
    told = np.concatenate([runs.submit, runs.start, runs.end])
    told = np.unique(told[(told > window.start) & (told < window.end)])
    marks = np.concatenate([[window.start], told, [window.end]])
    length = np.diff(marks)
    quiet = (length >= SILENCE_S) & (length * len(told) >= EXPECTED * window.length_s)
    return tuple(Window(int(marks[i]), int(marks[i + 1])) for i in np.flatnonzero(quiet))
