"""What sacct leaves open about a run, settled by rules that hold for any source.

The text, JSON and PySlurm readers all end here, so that the same job gives the same record
whichever way it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.model import UNKNOWN, IntArray, Runs, Words
from slurm_ltgf.slurm.columns import Faults
from slurm_ltgf.slurm.times import SENTINEL

#: AllocTRES of a job that ran, but was not recorded: its GPUs are not known, which is not 0.
UNKNOWN_GRES = "?"

#: Ids and seconds that are no such thing: NO_VAL and what is above it, and 34 years.
_NO_ID, _TOO_LONG_S = SENTINEL, 1 << 30

#: States of a run that has started and not ended, whatever its End says.
_OPEN = ("RUNNING", "SUSPENDED")


def as_runs(raw: Runs, *, now: int) -> tuple[Runs, Faults]:
    """Settle what sacct leaves open, by rules that are the same for every source.

    A run that never started has no start and no use. One that is open has no end. What is
    missing of start, end and elapsed follows from the others: elapsed = end - start - suspended.
    Where all three are there and disagree, they are left as they are. A resized job has a record
    for each size (see `_resized`).

    Args:
        raw: as read; gres UNKNOWN_GRES where the source has no list at all.
        now: epoch seconds UTC; the elapsed time of an open run that does not tell its own.

    Returns:
        the runs, and row -> why it is no run.
    """
    start, end, elapsed = raw.start.copy(), raw.end.copy(), raw.elapsed_s.copy()
    ran = (start != UNKNOWN) & (end != UNKNOWN) & (elapsed > 0)  # whatever the state says
    pending = _in_state(raw.state, ("PENDING",)) & ~ran
    open_ = pending | _in_state(raw.state, _OPEN)
    start[pending], end[open_], elapsed[pending] = UNKNOWN, UNKNOWN, 0
    start, elapsed = _resized(raw.submit, start, end, elapsed)
    started = start != UNKNOWN
    told = elapsed != UNKNOWN
    until = np.where(end != UNKNOWN, end, now)
    elapsed = np.where(told, elapsed, np.maximum(until - start - raw.suspended_s, 0))
    faults = _faults(
        {
            "start: not known, but the job ran": ~started & told & (elapsed > 0),
            "job id: too large": raw.job_id >= _NO_ID,
            "elapsed: longer than 34 years": started & (elapsed > _TOO_LONG_S),
            "suspended: longer than 34 years": raw.suspended_s > _TOO_LONG_S,
        }
    )
    elapsed[~started] = 0
    closed = started & (end == UNKNOWN) & ~open_ & told & _known(raw.state)
    end = np.where(closed, start + elapsed + raw.suspended_s, end)
    runs = replace(
        raw,
        submit=_first_known(raw.submit, raw.eligible, start),
        start=start,
        end=end,
        elapsed_s=elapsed,
        gres=_known_if_unused(raw.gres, elapsed),
    )
    return runs, faults


def _faults(wrong: Mapping[str, NDArray[np.bool_]]) -> Faults:
    """Row -> what is wrong with it; of several the last."""
    return {row: why for why, rows in wrong.items() for row in np.flatnonzero(rows).tolist()}


def _resized(
    submit: IntArray, start: IntArray, end: IntArray, elapsed: IntArray
) -> tuple[IntArray, IntArray]:
    """Start and elapsed of records that begin when a running job was resized.

    Slurm closes the old record (state RESIZING) and opens one whose Submit is the moment of the
    change. In 22.05 its Start and Elapsed are still the whole job's: charged as they stand, the
    time before the change would count twice. 24.11 writes that moment as Start too. No other job
    starts before it was submitted.
    """
    before = np.where((start != UNKNOWN) & (submit != UNKNOWN), submit - start, 0)
    before[(before < 0) | ((end != UNKNOWN) & (submit > end))] = 0
    later = (before > 0) & (elapsed != UNKNOWN)
    return start + before, np.where(later, np.maximum(elapsed - before, 0), elapsed)


def _in_state(state: Words, names: tuple[str, ...]) -> NDArray[np.bool_]:
    return _flags(state, lambda name: name in names)


def _known(state: Words) -> NDArray[np.bool_]:
    return _flags(state, bool)


def _flags(words: Words, test: Callable[[str], bool]) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = np.array([test(name) for name in words.names], dtype=bool)
    return flags[words.codes] if len(words.names) else np.zeros(len(words), dtype=bool)


def _first_known(*columns_: IntArray) -> IntArray:
    best = columns_[0]
    for other in columns_[1:]:
        best = np.where(best == UNKNOWN, other, best)
    return best


def _known_if_unused(gres: Words, elapsed: IntArray) -> Words:
    """A run of no seconds used nothing, also if nothing was recorded."""
    if UNKNOWN_GRES not in gres.names:
        return gres
    names = (*gres.names, "") if "" not in gres.names else gres.names
    unused = (gres.codes == names.index(UNKNOWN_GRES)) & (elapsed <= 0)
    return Words(np.where(unused, np.int32(names.index("")), gres.codes).astype(np.int32), names)
