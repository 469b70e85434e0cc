"""Columns of cells -> numpy columns: gathered and read all at once where usual, exact always.

Every function returns values and `Faults`: row -> why its cell cannot be read. A row with a fault
has a meaningless value. What the fast way does not recognise is read cell by cell, by `text`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.model import UNKNOWN, IntArray
from slurm_ltgf.slurm import text
from slurm_ltgf.slurm.cells import Bytes2D, Cells, none_set, tail_masks
from slurm_ltgf.slurm.local_clock import LocalClock
from slurm_ltgf.slurm.times import SENTINEL

Faults = dict[int, str]
Mask = NDArray[np.bool_]

_ZERO = np.uint8(ord("0"))
_NINE = np.uint8(9)


# Numbers


def _number(chars: Bytes2D, lengths: IntArray) -> tuple[IntArray, Mask]:
    """Integers that end at the right edge of (n, 8 or 16) bytes, and whether each is one."""
    width = chars.shape[1]
    inside = tail_masks(width)[np.clip(lengths, 0, width)]
    digits = (chars - _ZERO) * inside
    good = none_set(digits > _NINE) & (lengths > 0) & (lengths <= width)
    pairs = digits[:, 0::2] * np.uint8(10) + digits[:, 1::2]
    # NumPy before 2 takes a scalar that fits for one of the array's own type: widen the array.
    fours = pairs[:, 0::2].astype(np.uint16) * np.uint16(100) + pairs[:, 1::2]
    values = fours[:, 0].astype(np.int64)
    for four in fours.T[1:]:
        values = values * 10_000 + four
    return np.where(good, values, UNKNOWN), good


def _plain_integers(cells: Cells) -> tuple[IntArray, Mask]:
    lengths = cells.lengths
    short = lengths.max(initial=0) <= 8
    return _number(cells.tails(8 if short else 16), lengths)


def integers(cells: Cells, read: Callable[[str], int]) -> tuple[IntArray, Faults]:
    """A column mostly of plain digits; `read` takes the other cells."""
    values, good = _plain_integers(cells)
    return values, _one_by_one(cells, ~good, values, read)


def _one_by_one(cells: Cells, rows: Mask, values: IntArray, read: Callable[[str], int]) -> Faults:
    """Read some rows by a function of text, each different cell once."""
    faults: Faults = {}
    known: dict[bytes, int | str] = {}
    for row in np.flatnonzero(rows).tolist():
        cell = cells.raw(row)
        if cell not in known:
            known[cell] = _value_or_reason(cells[row], read)
        value = known[cell]
        if isinstance(value, str):
            faults[row] = value
        else:
            values[row] = value
    return faults


def _value_or_reason(cell: str, read: Callable[[str], int]) -> int | str:
    try:
        value = read(cell)
    except (ValueError, OverflowError) as exc:
        return str(exc)
    return value if abs(value) < 1 << 62 else f"out of range: {cell!r}"


_CLOCK = b"..:..:.."


def durations(cells: Cells) -> tuple[IntArray, Faults]:
    """Seconds of a column of [D-]HH:MM:SS, or of plain seconds."""
    values, good = _plain_integers(cells)
    if good.all():
        return values, {}
    clock = cells.tails(8)
    digits = clock - _ZERO
    pairs = digits[:, [0, 3, 6]].astype(np.int64) * 10 + digits[:, [1, 4, 7]]
    shaped = (digits[:, [0, 1, 3, 4, 6, 7]] <= _NINE).all(axis=1)
    shaped &= (clock[:, 2] == _CLOCK[2]) & (clock[:, 5] == _CLOCK[5]) & (cells.lengths == 8)
    values = np.where(shaped, pairs @ np.array([3600, 60, 1]), values)
    return values, _one_by_one(cells, ~(good | shaped), values, lambda c: int(text.elapsed_s(c)))


# Times. A column is ISO in 19 characters or epoch seconds, with a few words ("Unknown") between.

_ISO_CHARS = 19
_ISO_WIDTH = 24
#: A time XOR this is its digits' values, and 0 at the marks between them.
_ISO_ZERO = np.frombuffer(b"0000-00-00T00:00:00".ljust(_ISO_WIDTH, b"\0"), dtype=np.uint8)
_ISO_MOST = np.array([9 if c == "0" else 0 for c in "0000-00-00T00:00:00"] + [255] * 5, np.uint8)
_FIRST_YEAR, _LAST_YEAR = 1970, 2105


def moments(cells: Cells, clock: LocalClock) -> tuple[IntArray, IntArray, Faults]:
    """Epoch seconds of a time column, twice: as first and as second reading of a local time.

    The two differ only for local times that came twice, when clocks were set back.
    """
    iso = cells.lengths == _ISO_CHARS
    first, second = np.zeros(len(cells), np.int64), np.zeros(len(cells), np.int64)
    if iso.any():
        local, shaped = _local_seconds(cells.heads(_ISO_WIDTH))
        iso &= shaped
        first[iso], second[iso] = clock.utc(local[iso])
    rest = ~iso
    if rest.any():
        numbers, good = _plain_integers(cells)
        first, second = np.where(rest, numbers, first), np.where(rest, numbers, second)
        rest &= ~good
    faults = _one_by_one(cells, rest, first, lambda cell: text.moment(cell, clock.timezone))
    second = np.where(rest, first, second)
    return _sane(first), _sane(second), faults


def _sane(values: IntArray) -> IntArray:
    """UNKNOWN for 0 and for NO_VAL (which would be in the year 2106)."""
    return np.where((values <= 0) | (values >= SENTINEL), UNKNOWN, values)


def _local_seconds(chars: Bytes2D) -> tuple[IntArray, Mask]:
    """Seconds since 1970-01-01 on local clocks, and whether each is one. chars: (n, 24)."""
    digits = chars ^ _ISO_ZERO
    good = none_set(digits > _ISO_MOST)
    century, year, month, day, hour, minute, second = (
        (digits[:, i] * np.uint8(10) + digits[:, i + 1]).astype(np.int64)
        for i in (0, 2, 5, 8, 11, 14, 17)
    )
    good &= (hour < 24) & (minute < 60) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    place = ((century * 100 + year - _FIRST_YEAR) * 12 + month - 1) * 31 + day - 1
    calendar = _calendar()
    good &= (place >= 0) & (place < len(calendar))
    days = calendar[np.where(good, place, 0)]
    return ((days * 24 + hour) * 60 + minute) * 60 + second, good & (days >= 0)


@cache
def _calendar() -> IntArray:
    """Days since 1970-01-01 at ((year - 1970) * 12 + month - 1) * 31 + day - 1; -1: no such."""
    day = np.arange(f"{_FIRST_YEAR}-01-01", f"{_LAST_YEAR + 1}-01-01", dtype="datetime64[D]")
    month = day.astype("datetime64[M]")
    place = month.astype(np.int64) * 31 + (day - month).astype(np.int64)
    calendar = np.full((_LAST_YEAR - _FIRST_YEAR + 1) * 372, -1, dtype=np.int64)
    calendar[place] = day.astype(np.int64)
    return calendar


# Job ids


def job_ids(cells: Cells) -> tuple[dict[str, IntArray], Faults]:
    """Columns job, array_job, array_task, het_job, het_offset, tasks of a JobID column."""
    n = len(cells)
    names = ("array_job", "array_task", "het_job", "het_offset")
    columns = {name: np.full(n, UNKNOWN, dtype=np.int64) for name in names}
    columns["tasks"] = np.ones(n, dtype=np.int64)
    columns["job"], good = _plain_integers(cells)
    _array_tasks(cells, columns, good)
    faults: Faults = {}
    for row in np.flatnonzero(~good).tolist():
        try:
            _one_id(text.job_id(cells[row]), row, columns)
        except ValueError as exc:
            faults[row] = str(exc)
    return columns, faults


def _array_tasks(cells: Cells, columns: dict[str, IntArray], good: Mask) -> None:
    """Read the rows like 7700_3 and mark them good."""
    rows = np.flatnonzero(~good)
    odd = cells.take(rows)
    # The last underscore of the last 16 bytes; if there is none, the cell is no number before it.
    after = (odd.tails(16)[:, ::-1] == ord("_")).argmax(axis=1)
    cut = odd.ends - after - 1
    job, job_good = _plain_integers(Cells(odd.text, odd.starts, np.maximum(cut, odd.starts)))
    task, task_good = _plain_integers(Cells(odd.text, np.maximum(cut + 1, odd.starts), odd.ends))
    task_good &= (after > 0) & (task < SENTINEL)
    read = rows[job_good & task_good]
    columns["job"][read] = columns["array_job"][read] = job[job_good & task_good]
    columns["array_task"][read] = task[job_good & task_good]
    good[read] = True


def _one_id(read: text.JobId, row: int, columns: dict[str, IntArray]) -> None:
    columns["job"][row] = read.job
    columns["array_task"][row] = read.array_task
    columns["het_offset"][row] = read.het_offset
    columns["tasks"][row] = read.tasks
    if read.is_array:
        columns["array_job"][row] = read.job
    if read.het_offset != UNKNOWN:
        columns["het_job"][row] = read.job
