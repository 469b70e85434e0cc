"""History made ready: every run gets an end, runaways are capped, oddities are named."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN, IntArray, Run, Runs
from slurm_ltgf.core.timeline import PART_RUNS

#: Seconds a RUNNING record may outlive its limit before it counts as a runaway: slurmctld needs a
#: minute to notice a limit, and KillWait and the epilog come on top.
OVERTIME_S = 300
NAMED = 20


@dataclass(frozen=True, slots=True)
class Suspect:
    """A run whose record cannot be right, and what was done about it."""

    job_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Settled:
    """Runs that all have an end, and what was odd; `odd` counts them, `suspects` names some."""

    runs: Runs
    suspects: tuple[Suspect, ...]
    odd: int


def settle(runs: Runs, *, now: int, live: AbstractSet[int] | None = None) -> Settled:
    """Give every open run an end for the sums, never a guess that costs somebody GPU-time.

    Args:
        runs: any.
        now: epoch seconds; the moment the queue was read, or the window's end for old dumps.
        live: job ids that slurmctld holds as running or pending now; None: not asked. A run it
            lists lasts until now. A RUNNING record it does not list, or any without asking, lasts
            as long as sacct saw it run, and no longer than its time limit.

    Source:
        sacctmgr(1) "show runawayjobs": the database says RUNNING for ever when the end was lost.
    """
    unended = np.flatnonzero(runs.end == UNKNOWN).tolist()
    end, elapsed = runs.end, runs.elapsed_s
    if unended:
        end, elapsed = end.copy(), elapsed.copy()
    suspects: list[Suspect] = []
    odd = 0
    for i in unended:
        run = runs.row(i)
        end[i], elapsed[i], reason = _open_end(run, now=now, live=live)
        if reason:
            odd += 1
            suspects.append(Suspect(run.shown_id, reason))
    settled = replace(runs, end=end, elapsed_s=elapsed)
    twice, overlapping = _recorded_twice(settled)
    inconsistent = _inconsistent(settled, closed=runs.end != UNKNOWN)
    for row, reason in (*overlapping, *inconsistent):
        odd += 1
        if len(suspects) < NAMED:
            suspects.append(Suspect(settled.row(row).shown_id, reason))
    if twice:
        kept = np.ones(len(settled), dtype=np.bool_)
        kept[twice] = False
        settled = settled.take(kept)
    return Settled(settled, tuple(suspects[:NAMED]), odd)


def repeated(ids: IntArray) -> IntArray:
    """Positions of the ids that occur more than once; of all when ids are sparse."""
    if not len(ids):
        return np.arange(0)
    least, most = int(ids.min()), int(ids.max())
    if most - least > 8 * len(ids):
        return np.arange(len(ids))
    seen, again = (np.zeros(most - least + 1, dtype=np.bool_) for _ in range(2))
    parts = [slice(first, first + PART_RUNS) for first in range(0, len(ids), PART_RUNS)]
    for part in (ids[some] - least for some in parts):
        again[part[seen[part]]] = True
        in_order = np.sort(part, kind="stable")  # history mostly comes in order
        again[in_order[1:][in_order[1:] == in_order[:-1]]] = True
        seen[part] = True
    return np.flatnonzero(np.concatenate([again[ids[some] - least] for some in parts]))


def _open_end(run: Run, *, now: int, live: AbstractSet[int] | None) -> tuple[int, int, str]:
    """End, elapsed seconds, and what is odd, of a run whose end is not known."""
    if run.start == UNKNOWN:
        return now, run.elapsed_s, ""
    if live is not None and run.job_id in live:
        if run.state == "SUSPENDED" and run.elapsed_s != UNKNOWN:
            return now, run.elapsed_s, ""
        return now, max(now - run.start - run.suspended_s, 0), ""
    seen = now if run.elapsed_s == UNKNOWN else run.start + run.elapsed_s + run.suspended_s
    if run.limit_s not in (UNKNOWN, NO_LIMIT) and seen > run.start + run.limit_s + OVERTIME_S:
        return (
            run.start + run.limit_s,
            run.limit_s,
            (
                f"RUNNING {seen - run.start} s, limit {run.limit_s} s: charged to its limit only; "
                "see `sacctmgr show runawayjobs`"
            ),
        )
    if live is not None and seen < now - OVERTIME_S:
        return (
            seen,
            run.elapsed_s,
            "RUNNING in the database, unknown to slurmctld: charged as far as it was seen",
        )
    return seen, run.elapsed_s, ""


def _recorded_twice(runs: Runs) -> tuple[list[int], list[tuple[int, str]]]:
    """Rows that tell of a run again, and all rows with what is odd: a job runs once at a time.

    Such records come from dumps with and without Submit or the raw job ids, which the ledger cannot
    know for the same run, or from sacct -T, which cuts Start and End.
    """
    found = (
        _same_job(runs),
        _same_part(runs, runs.array_job, runs.array_task),
        _same_part(runs, runs.het_job, runs.het_offset),
    )
    one, two = (np.concatenate(rows) for rows in zip(*found, strict=True))
    again, odd = [], []
    for first, second in zip(one.tolist(), two.tolist(), strict=True):
        if runs.start[first] == runs.start[second] and _key(runs, first) != _key(runs, second):
            again.append(first)
            odd.append((second, "recorded twice, as in dumps of different columns: charged once"))
        else:
            common = min(runs.end[first], runs.end[second]) - runs.start[second]
            odd.append((second, f"{common} s are in another record of it too: charged twice"))
    return again, odd


def _key(runs: Runs, row: int) -> tuple[int, ...]:
    columns = (runs.submit, runs.job_id, runs.array_task, runs.het_offset)
    return tuple(int(column[row]) for column in columns)


_Pairs: TypeAlias = tuple[IntArray, IntArray]


def _same_job(runs: Runs) -> _Pairs:
    """Runs of one job id that overlap; an id alone may stand for a whole array or het job."""
    one, two = _overlapping(runs, repeated(runs.job_id), (runs.job_id,))
    same = np.ones(len(one), dtype=np.bool_)
    for part in (runs.array_task, runs.het_offset):
        same &= (part[one] == part[two]) | (part[one] == UNKNOWN) | (part[two] == UNKNOWN)
    return one[same], two[same]


def _same_part(runs: Runs, family: IntArray, part: IntArray) -> _Pairs:
    """Runs of one array task or part of a het job that overlap under its raw id and the family's.

    family: id of the array or het job; part: task or offset.
    """
    without_raw_id = np.flatnonzero((family >= 0) & (runs.job_id == family))
    without_raw_id = without_raw_id[repeated(runs.job_id[without_raw_id])]
    families = np.unique(runs.job_id[without_raw_id])
    rows = np.flatnonzero(np.isin(family, families)) if len(families) else families
    one, two = _overlapping(runs, rows, (family, part))
    same = runs.job_id[one] != runs.job_id[two]
    return one[same], two[same]


def _overlapping(runs: Runs, rows: IntArray, who: Sequence[IntArray]) -> _Pairs:
    """Rows that follow each other in time, are of the same `who`, and have time in common."""
    rows = rows[(runs.start[rows] != UNKNOWN) & (runs.elapsed_s[rows] > 0)]
    times = (runs.submit, runs.end, runs.start)
    whose = [column[rows] for column in who] + [runs.cluster.codes[rows]]
    order = np.lexsort((*(time[rows] for time in times), *whose))
    one, two = rows[order[:-1]], rows[order[1:]]
    same = runs.start[two] < runs.end[one]
    for column in whose:
        same &= column[order[:-1]] == column[order[1:]]
    return one[same], two[same]


def _inconsistent(runs: Runs, *, closed: NDArray[np.bool_]) -> list[tuple[int, str]]:
    """Finished runs whose end, start, elapsed and suspended times disagree."""
    found = []
    for first in range(0, len(runs), PART_RUNS):
        some = runs.take(slice(first, first + PART_RUNS))
        ran = closed[first : first + PART_RUNS] & (some.start != UNKNOWN)
        off: IntArray = some.end - some.start - np.maximum(some.suspended_s, 0) - some.elapsed_s
        for i in np.flatnonzero(ran & (some.elapsed_s != UNKNOWN) & (off != 0)).tolist():
            why = f"End - Start - Suspended differs from Elapsed by {off[i]} s: Elapsed is charged"
            found.append((first + i, why))
    return found
