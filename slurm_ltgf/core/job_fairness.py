"""Long-term GPU-time fairness of jobs inside their tenant.

    share_j(t) = Q_i(t) / (number of jobs of tenant i pending or running at t)
    E_j = ∫ min(g_j, share_j) dt    from eligible to end
    S_j = g_j · (run time that was kept)
    rho_j = S_j / E_j

Source: ASTRAEA (Ye et al., TPDS 2022), job level; LTGF.md section 3, with omega = 1.
A job that was requeued is one job: the sums run over all its runs. All integrals are clipped to the
window, both S and E, so that a job older than the window is judged by what happened inside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.demand import Load, Loaded, load_of
from slurm_ltgf.core.fairness import GpuSeconds, class_of
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.history import repeated
from slurm_ltgf.core.model import UNKNOWN, FloatArray, IntArray, Runs, Window
from slurm_ltgf.core.timeline import Clock, Supply, in_parts

#: A run that ended like this starts again from its last checkpoint, or from nothing.
REQUEUED = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL", "REQUEUE_HOLD", "SPECIAL_EXIT"})
#: A run that ended like this goes on in the job's next record with nothing lost.
RESIZED = frozenset({"RESIZING"})


@dataclass(frozen=True, slots=True)
class JobIndex:
    """One job: what it held, what of that was kept, what it was due. rho None: due nothing."""

    job_id: str
    tenant: str
    user: str
    gpus: float
    attained_gpu_s: GpuSeconds
    kept_gpu_s: GpuSeconds
    entitled_gpu_s: float | None
    rho: float | None
    klass: str


@dataclass(frozen=True, slots=True)
class JobIndices:
    """Indices of m jobs as columns; `row(i)` and `rows()` give records.

    first: (m,) row of the job's first run in `runs`. tenant: (m,) code. gpus, attained, kept,
    entitled, rho: (m,) float64; rho is nan where entitled is 0.
    """

    runs: Runs
    tenants: tuple[str, ...]
    first: IntArray
    tenant: NDArray[np.int32]
    gpus: FloatArray
    attained: FloatArray
    kept: FloatArray
    entitled: FloatArray
    rho: FloatArray

    def __len__(self) -> int:
        return len(self.first)

    def row(self, i: int) -> JobIndex:
        """Job i as a record."""
        run = self.runs.row(int(self.first[i]))
        rho = None if math.isnan(self.rho[i]) else float(self.rho[i])
        return JobIndex(
            job_id=run.shown_id,
            tenant=self.tenants[self.tenant[i]],
            user=run.user,
            gpus=float(self.gpus[i]),
            attained_gpu_s=_whole(self.attained[i]),
            kept_gpu_s=_whole(self.kept[i]),
            entitled_gpu_s=None if math.isnan(self.entitled[i]) else float(self.entitled[i]),
            rho=rho,
            klass=_class(rho, float(self.entitled[i])),
        )

    def rows(self) -> list[JobIndex]:
        """All jobs as records, in order of their first run's row."""
        return [self.row(i) for i in range(len(self))]

    def rho_by_job_id(self) -> dict[int, float]:
        """Raw job id -> rho, for jobs that are due something."""
        known = ~np.isnan(self.rho)
        ids = self.runs.job_id[self.first[known]]
        return dict(zip(ids.tolist(), self.rho[known].tolist(), strict=True))


def job_fairness(
    runs: Runs,
    window: Window,
    *,
    tenants: tuple[str, ...],
    tenant_of: Mapping[str, str],
    supply: Supply | None,
    pricing: Pricing,
    half_life_s: float = math.inf,
    requeued_work_kept: bool = False,
    loaded: Loaded | None = None,
    kept: Mapping[tuple[int, int], int] | None = None,
) -> JobIndices:
    """Index of every job that used or wanted GPUs in the window.

    Args:
        runs: as for `fairness.fairness`, every end known.
        tenants: names, sorted; the supply's columns are these.
        supply: None: capacity is not known, then only what was attained is.
        requeued_work_kept: what a run that ended by requeue, preemption or node failure did is
            counted as kept (its jobs resume from a checkpoint) or as lost.
        loaded: `demand.load_of` these runs, where it is known already.
        kept: (raw job id, start) of runs that were requeued -> until when their work is in a
            checkpoint; that much is kept of them, whatever is thought of the others.
    """
    asked, _ = loaded or load_of(
        runs, window, tenants=tenants, tenant_of=tenant_of, pricing=pricing
    )
    clock = Clock(window, half_life_s)
    if supply is None:
        entitled = np.full(len(asked.rows), np.nan)
    else:
        entitled = _entitled(asked, runs.tasks, clock, supply=supply)
    attained = _attained(asked, clock)
    jobs = _jobs(runs, asked.rows)
    total_entitled, total_attained = jobs.sums(entitled), jobs.sums(attained)
    total_kept = total_attained
    if kept or not requeued_work_kept:
        requeued = is_one_of(REQUEUED, runs)[asked.rows]
        default = 1.0 if requeued_work_kept else 0.0
        attained[requeued] *= parts_kept(asked, runs, clock, requeued, kept or {}, default)
        total_kept = jobs.sums(attained)
    rho = np.full(len(jobs.first), np.nan)
    np.divide(total_kept, total_entitled, out=rho, where=total_entitled > 0)
    return JobIndices(
        runs=runs,
        tenants=tenants,
        first=asked.rows[jobs.first],
        tenant=asked.tenant[jobs.first],
        gpus=asked.ticks[jobs.first] / asked.scale,
        attained=total_attained,
        kept=total_kept,
        entitled=total_entitled,
        rho=rho,
    )


def parts_kept(
    asked: Load,
    runs: Runs,
    clock: Clock,
    requeued: NDArray[np.bool_],
    kept: Mapping[tuple[int, int], int],
    default: float,
) -> FloatArray:
    """Part of each requeued run's GPU-time in the window that is in a checkpoint, (k,)."""
    rows = asked.rows[requeued]
    start, end = asked.start[requeued], asked.end[requeued]
    keys = zip(runs.job_id[rows].tolist(), runs.start[rows].tolist(), strict=True)
    found = [kept.get(key, -1) for key in keys]
    until = np.clip(np.array(found, dtype=np.int64), start, end)
    whole = clock(end) - clock(start)
    part = np.ones(len(rows))
    np.divide(clock(until) - clock(start), whole, out=part, where=whole > 0)
    return np.where(np.array(found) < 0, default, part)


def _class(rho: float | None, entitled: float) -> str:
    if math.isnan(entitled):
        return "unknown"
    return "no share" if rho is None else class_of(rho)


def _attained(asked: Load, clock: Clock) -> FloatArray:
    if clock.is_plain:
        gpu_s: FloatArray = np.multiply(asked.used_s, asked.ticks, dtype=np.float64)
        return np.divide(gpu_s, asked.scale, out=gpu_s)
    window = clock.window
    inside = np.clip(asked.end, window.start, window.end) - np.clip(
        asked.start, window.start, window.end
    )
    kept = np.divide(asked.used_s, inside, out=np.zeros(len(inside)), where=inside > 0)
    worth: FloatArray = (clock(asked.end) - clock(asked.start)) * kept * asked.gpus
    return worth


def _entitled(asked: Load, tasks: IntArray, clock: Clock, *, supply: Supply) -> FloatArray:
    """E of each run, (n,) GPU-seconds; of all tasks where a record stands for several.

    tasks: of all runs, as asked.rows counts them.
    """
    result = np.zeros(len(asked.rows))
    n_tenants = len(supply.tenants)
    small = asked.tenant.astype(np.min_scalar_type(n_tenants))  # numpy sorts these by radix
    quotas = supply.quotas()
    for part, rows in in_parts(asked.begin, asked.end, clock.window):
        marks = np.append(supply.changes_in(part), part.start)
        by_tenant = rows[np.argsort(small[rows], kind="stable")]
        edges = np.searchsorted(small[by_tenant], np.arange(n_tenants + 1))
        for code in np.flatnonzero(np.diff(edges)).tolist():
            mine = by_tenant[edges[code] : edges[code + 1]]
            times = tasks[asked.rows[mine]]
            result[mine] += _entitled_in_tenant(
                (asked.begin[mine], asked.end[mine]),
                part,
                per_task=asked.ticks[mine] / (asked.scale * times),
                tasks=times,
                clock=clock,
                marks=marks,
                quota_at=partial(_quota_at, supply, quotas[:, code]),
            )
    return result


def _quota_at(supply: Supply, quota: FloatArray, times: IntArray) -> FloatArray:
    return quota[supply.step_at(times)]


def _entitled_in_tenant(
    interval: tuple[IntArray, IntArray],
    window: Window,
    *,
    per_task: FloatArray,
    tasks: IntArray,
    clock: Clock,
    marks: IntArray,
    quota_at: Callable[[IntArray], FloatArray],
) -> FloatArray:
    """E in the window of each of one tenant's n runs that meet it.

    The share is a step function of time, the same for all of them.
    """
    low, high = (np.clip(times, window.start, window.end) for times in interval)
    n = len(low)
    times = np.concatenate([low, high, marks])
    order = np.argsort(times, kind="stable")  # history mostly comes in order
    place = np.empty(len(times), dtype=np.int64)
    place[order] = np.arange(len(times))
    times = times[order]
    change = np.concatenate([tasks, -tasks, np.zeros(len(marks), dtype=np.int64)])
    active = np.cumsum(change[order])
    length = np.diff(clock(np.append(times, window.end)))
    share = quota_at(times) / np.maximum(active, 1)
    entitled = np.empty(n)
    for gpus in np.unique(per_task):
        # integral up to each event; events of one instant are 0 apart, so any of them will do
        until = np.concatenate([[0.0], np.cumsum(np.minimum(gpus, share) * length)])
        same = per_task == gpus
        entitled[same] = until[place[n : 2 * n][same]] - until[place[:n][same]]
    return entitled * tasks


def is_one_of(states: AbstractSet[str], runs: Runs) -> NDArray[np.bool_]:
    """Whether each run's state is one of these, (n,)."""
    named = np.array([name in states for name in (*runs.state.names, "")], dtype=np.bool_)
    return named[runs.state.codes]


@dataclass(frozen=True, slots=True)
class _Jobs:
    """Which runs are one job. Positions of m jobs' first runs, and of all later runs.

    first: (m,) ascending. later: (k,). job: (k,) the later runs' place in `first`.
    """

    first: IntArray
    later: IntArray
    job: IntArray

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum over each job's runs, (m,); values: one a run."""
        total: FloatArray = values[self.first]
        np.add.at(total, self.job, values[self.later])
        return total


def _jobs(runs: Runs, rows: IntArray) -> _Jobs:
    """The jobs that these rows belong to.

    Runs of one id are one job as long as each run but the last ended by requeue or resize: job ids
    are used again after MaxJobId, and by a rebuilt cluster.
    """
    several = repeated(runs.job_id[rows])  # few: most jobs run once
    order, same = _by_job(runs, rows[several])
    repeats = np.flatnonzero(same)
    goes_on = is_one_of(REQUEUED | RESIZED, runs.take(rows[several[order[repeats]]]))
    begins = np.ones(len(several), dtype=np.bool_)
    begins[repeats[goes_on] + 1] = False
    head = np.maximum.accumulate(np.where(begins, np.arange(len(several)), 0))
    later = several[order[~begins]]
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[later] = False
    first = np.flatnonzero(is_first)
    return _Jobs(first, later, np.searchsorted(first, several[order[head[~begins]]]))


def _by_job(runs: Runs, rows: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    """Order of the rows by job and time; (n - 1,) which are of the same job as the next one.

    Where a dump has no raw ids, the tasks of an array have one id, and so have parts of a het job.
    """
    submit, start = runs.submit[rows], runs.start[rows]
    when = np.where(submit == UNKNOWN, start, submit)
    columns = (runs.array_task, runs.het_offset, runs.job_id, runs.cluster.codes)
    job = [column[rows] for column in columns]
    order = np.lexsort((start, when, *job))
    same = np.ones(max(len(rows) - 1, 0), dtype=np.bool_)
    for column in job:
        same &= column[order[1:]] == column[order[:-1]]
    return order, same


def _whole(value: float) -> GpuSeconds:
    return int(value) if float(value).is_integer() else float(value)
