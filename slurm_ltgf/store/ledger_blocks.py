"""Finished runs as packed blocks: rows of integers <-> bytes, in the order of their key. Pure.

A row is the fields of `Run` as integers, text as a word's id: an (n, 22) array. The key is
(submit, job id, start, array task, het offset); submit comes first because job ids wrap and
requeued jobs keep theirs, while neighbours in time are what a window asks for.

Each column of a block is stored as its smallest value and the distances from it, in the fewest
bytes that hold them (0, 1, 2, 4 or 8): about 30 bytes a run instead of 110 in a table.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.model import NO_LIMIT, RUN_FIELDS, UNKNOWN, IntArray
from slurm_ltgf.store.ledger_schema import Row

#: (n, 22) integers, columns as in RUN_FIELDS; int32 when every value fits.
RowArray = NDArray[np.signedinteger[Any]]
BoolArray = NDArray[np.bool_]

COLUMN = {name: i for i, name in enumerate(RUN_FIELDS)}
#: How a time limit of NO_LIMIT is written: 2^60 would cost 8 bytes a row wherever one is.
NO_LIMIT_CODE = -2
#: Rows of a block when it is cut; one that grows is cut again at half as much more.
BLOCK_ROWS = 1024
#: Of two searches for ids, the widest range there is.
NEVER = (1 << 62, UNKNOWN)

_SUBMIT, _JOB, _START, _END, _ELIGIBLE, _ELAPSED, _TASK, _HET, _ARRAY_JOB, _HET_JOB = (
    COLUMN[name]
    for name in (
        "submit", "job_id", "start", "end", "eligible", "elapsed_s", "array_task", "het_offset",
        "array_job", "het_job",
    )
)  # fmt: skip
_CLUSTER = COLUMN["cluster"]
_STORED = [i for i in range(len(RUN_FIELDS)) if i != _CLUSTER]
_HEADER = np.dtype([("base", "<i8"), ("width", "u1")])
_WIDTHS = np.array([1, 1 << 8, 1 << 16, 1 << 32], dtype=np.uint64)
_DTYPES = tuple(np.dtype(code) for code in ("u1", "u1", "<u2", "<u4", "<u8"))


class DamagedError(ValueError):
    """A block's bytes are not what was written."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of a block: its rows, or None where nothing changed, and what was met.

    replaced: the old rows that came again, the same or others.
    """

    rows: RowArray | None
    new: int
    changed: int
    replaced: RowArray


def routing(rows: RowArray) -> IntArray:
    """(submit, job id) as one integer of the same order, (n,): it says which block a row is in."""
    submit = rows[:, _SUBMIT].astype(np.int64) + (1 - (1 << 31))
    return (submit << 32) | (rows[:, _JOB].astype(np.int64) + 1)


def route(submit: int, job_id: int) -> int:
    """`routing` of one row."""
    return ((submit + 1 - (1 << 31)) << 32) | (job_id + 1)


def begins(rows: RowArray) -> IntArray:
    """Since when each run matters: it waits from eligible (or submit) on, at the latest it runs."""
    waits = np.where(rows[:, _ELIGIBLE] >= 0, rows[:, _ELIGIBLE], rows[:, _SUBMIT])
    start = rows[:, _START]
    begin = np.where((start >= 0) & ((waits < 0) | (start < waits)), start, waits)
    return np.where(begin < 0, rows[:, _END], begin).astype(np.int64)


def reaches(rows: RowArray, begin: IntArray) -> IntArray:
    """When each finished run ceases to matter; at least a second after it began.

    Where Elapsed is longer than from Start to End, Elapsed is what is charged.
    """
    start, elapsed = rows[:, _START].astype(np.int64), rows[:, _ELAPSED]
    charged = np.where((start >= 0) & (elapsed >= 0), start + elapsed, begin)
    return np.maximum(np.maximum(charged, rows[:, _END]), begin + 1)


def sorted_rows(rows: RowArray) -> RowArray:
    """The rows in the order of their key; of several with one key the last of them alone."""
    order = _key_order(rows)
    rows = rows if order is None else rows[order]
    same = _same_key_as_next(rows)
    return rows[~same] if same.any() else rows


def merged(old: RowArray, fresh: RowArray) -> Merged:
    """One block's rows and newer ones for it; both sorted, a key once in each."""
    if not len(old):
        return Merged(fresh, len(fresh), 0, old)
    both = np.concatenate([old, fresh])
    order = _key_order(both)
    both = both if order is None else both[order]
    same = _same_key_as_next(both)
    pairs = np.flatnonzero(same)
    changed = int((both[pairs] != both[pairs + 1]).any(axis=1).sum())
    new = len(fresh) - len(pairs)
    return Merged(both[~same] if new or changed else None, new, changed, both[pairs])


def cut(rows: RowArray) -> Iterator[RowArray]:
    """Sorted rows in pieces of about BLOCK_ROWS; equal (submit, job id) stay together."""
    keys = routing(rows)
    at = 0
    while len(rows) - at > BLOCK_ROWS * 3 // 2:
        to = int(np.searchsorted(keys, keys[at + BLOCK_ROWS], side="left"))
        if to <= at:
            to = int(np.searchsorted(keys, keys[at], side="right"))
        yield rows[at:to]
        at = to
    if at < len(rows):
        yield rows[at:]


def head(rows: RowArray) -> Row:
    """What the table tells of a block: first, n, begin, reach, and the ranges of its ids."""
    begin = begins(rows)
    jobs = rows[:, _JOB]
    families = np.concatenate([rows[:, _ARRAY_JOB], rows[:, _HET_JOB]])
    families = families[families >= 0]
    family = (int(families.min()), int(families.max())) if len(families) else NEVER
    return (
        route(int(rows[0, _SUBMIT]), int(rows[0, _JOB])),
        len(rows),
        int(begin.min()),
        int(reaches(rows, begin).max()),
        int(jobs.min()),
        int(jobs.max()),
        *family,
    )


def packed(rows: RowArray) -> bytes:
    """A block's bytes: checksum, number of rows, each column's base and width, the columns."""
    table = rows[:, _STORED].astype(np.int64)
    base = table.min(axis=0)
    above = (table - base).view(np.uint64)
    widths = np.searchsorted(_WIDTHS, above.max(axis=0), side="right")
    header = np.empty(len(_STORED), dtype=_HEADER)
    header["base"] = base
    header["width"] = widths
    parts = [len(rows).to_bytes(4, "little"), header.tobytes()]
    parts += [
        above[:, i].astype(_DTYPES[width]).tobytes() for i, width in enumerate(widths) if width
    ]
    content = b"".join(parts)
    return zlib.crc32(content).to_bytes(4, "little") + content


def unpacked(body: bytes, cluster: int) -> IntArray:
    """A block's columns, (22, n) int64.

    Raises:
        DamagedError: the checksum is another than when it was written.
    """
    if len(body) < 8 or zlib.crc32(memoryview(body)[4:]) != int.from_bytes(body[:4], "little"):
        raise DamagedError("checksum of a block is wrong")
    n = int.from_bytes(body[4:8], "little")
    header = np.frombuffer(body, dtype=_HEADER, count=len(_STORED), offset=8)
    columns = np.empty((len(RUN_FIELDS), n), dtype=np.int64)
    columns[_CLUSTER] = cluster
    at = 8 + header.nbytes
    for i, base, width in zip(_STORED, header["base"], header["width"].tolist(), strict=True):
        if width:
            dtype = _DTYPES[width]
            columns[i] = np.frombuffer(body, dtype=dtype, count=n, offset=at)
            at += n * dtype.itemsize
            columns[i] += base
        else:
            columns[i] = base
    return columns


def coded(column: IntArray, name: str) -> IntArray:
    """A column of numbers as it is stored: a limit of NO_LIMIT as a small code.

    Raises:
        ValueError: a number below UNKNOWN, or an id or submit time beyond 32 bits.
    """
    if len(column) and int(column.min()) < UNKNOWN:
        raise ValueError(f"{name}: must be >= 0, or -1 for unknown, got {int(column.min())}")
    if name in {"job_id", "submit"} and len(column) and int(column.max()) >= (1 << 32) - 1:
        raise ValueError(f"{name}: must be below 2^32 - 1, got {int(column.max())}")
    return np.where(column == NO_LIMIT, NO_LIMIT_CODE, column) if name == "limit_s" else column


def decoded(column: IntArray, name: str) -> IntArray:
    """The inverse of `coded`."""
    return np.where(column == NO_LIMIT_CODE, NO_LIMIT, column) if name == "limit_s" else column


def _key_order(rows: RowArray) -> IntArray | None:
    """The stable order by key; None: they are in it."""
    keys = routing(rows)
    if (keys[1:] > keys[:-1]).all():
        return None
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    if (keys[1:] > keys[:-1]).all():
        return order
    return np.lexsort((rows[:, _HET], rows[:, _TASK], rows[:, _START], routing(rows)))


def _same_key_as_next(rows: RowArray) -> BoolArray:
    """Which rows have the key of the row after them, (n,)."""
    same = np.zeros(len(rows), dtype=np.bool_)
    keys = routing(rows)
    near = np.flatnonzero(keys[1:] == keys[:-1])
    if len(near):
        rest = rows[:, [_START, _TASK, _HET]]
        same[near] = (rest[near] == rest[near + 1]).all(axis=1)
    return same
