"""A period in a few numbers: how busy the GPUs were, how jobs waited, what work was lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_ltgf.core.model import FloatArray
from slurm_ltgf.core.over_time import Course
from slurm_ltgf.core.report import Rows


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a period amounts to, for all tenants together. None: not known, or no such number.

    held_gpu_s, capacity_gpu_s: weighted, without decay. busy: their ratio. starts: runs that began.
    median_wait_s, p90_wait_s: of these, from eligible to start. waiting_jobs: at the end. requeues:
    runs that ended to start again; saved_gpu_s, lost_gpu_s: their work in the period, by whether
    it was kept. free_gpu_s: capacity that nobody held while at least as much was waited for.
    """

    held_gpu_s: float
    capacity_gpu_s: float | None
    busy: float | None
    starts: int
    median_wait_s: float | None
    p90_wait_s: float | None
    waiting_jobs: int
    requeues: int
    saved_gpu_s: float
    lost_gpu_s: float
    free_gpu_s: float | None = None


def pulse(
    rows: Rows, held_gpu_s: float, capacity_gpu_s: float | None, course: Course | None = None
) -> Pulse:
    """Sum a period up. course: its stretches, for what was free while jobs waited."""
    waits = rows.wait_s[~np.isnan(rows.wait_s)]
    again = rows.requeued
    work = rows.used_gpu_s[again]
    saved = float((work * rows.saved[again]).sum())
    return Pulse(
        held_gpu_s=held_gpu_s,
        capacity_gpu_s=capacity_gpu_s,
        busy=held_gpu_s / capacity_gpu_s if capacity_gpu_s else None,
        starts=len(waits),
        median_wait_s=_quantile(waits, 0.5),
        p90_wait_s=_quantile(waits, 0.9),
        waiting_jobs=int(rows.runs.tasks[~np.isnan(rows.waiting_s)].sum()),
        requeues=int(again.sum()),
        saved_gpu_s=saved,
        lost_gpu_s=float(work.sum()) - saved,
        free_gpu_s=None if course is None else _free_gpu_s(course),
    )


def _free_gpu_s(course: Course) -> float | None:
    """Of each stretch the smaller of what was free and what was waited for."""
    free = np.maximum(course.capacity - course.attained.sum(axis=1), 0)
    wasted = np.minimum(free, course.waiting.sum(axis=1))
    return None if np.isnan(wasted).any() else float(wasted.sum())


def _quantile(values: FloatArray, level: float) -> float | None:
    return float(np.quantile(values, level)) if len(values) else None
