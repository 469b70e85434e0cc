"""Runs on their way into the ledger and out of it: columns <-> rows of integers. Pure.

A pile holds what came so far as (n, 22) integers, so that nothing is locked while a slow sacct
is still talking; its words are numbered by the pile and renumbered when the ledger knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_ltgf.core.model import RUN_FIELDS, TEXT_FIELDS, UNKNOWN, IntArray, Run, Runs, Words
from slurm_ltgf.store.ledger_blocks import COLUMN, BoolArray, RowArray, coded, decoded

#: States after which a run gets no more GPU-time, whatever its end says.
TERMINAL_STATES = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL",
        "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REQUEUED", "REVOKED", "TIMEOUT",
    }
)  # fmt: skip

TEXT_COLUMNS = [COLUMN[name] for name in RUN_FIELDS if name in TEXT_FIELDS]


def is_terminal(state: str) -> bool:
    """Whether a state is an end: 'COMPLETED', 'CANCELLED by 1000'; not 'RUNNING', not ''."""
    return state.split(" ", 1)[0].rstrip("+") in TERMINAL_STATES


@dataclass(frozen=True, slots=True)
class Taken:
    """What a pile held: finished and open rows in the order they came, and their words."""

    finished: RowArray
    open: RowArray
    words: tuple[str, ...]


class Pile:
    """Runs of several batches as integers, until they are taken."""

    def __init__(self) -> None:
        self._clear()

    @property
    def nbytes(self) -> int:
        """Memory of the rows held."""
        return sum(part.nbytes for part in self._finished) + sum(p.nbytes for p in self._open)

    def add(self, runs: Runs) -> None:
        """Append a table's rows.

        Raises:
            ValueError: a number that no run can have, with the field's name.
        """
        if not len(runs):
            return
        rows = self._coded(runs)
        ends = np.array([is_terminal(state) for state in runs.state.names], dtype=np.bool_)
        finished = (runs.end != UNKNOWN) | ends[runs.state.codes]
        if finished.all():
            self._finished.append(rows)
            return
        self._finished.append(rows[finished])
        self._open.append(rows[~finished])

    def take(self) -> Taken:
        """Hand everything over; the pile is empty afterwards."""
        taken = Taken(_joined(self._finished), _joined(self._open), tuple(self._words))
        self._clear()
        return taken

    def _clear(self) -> None:
        self._words: dict[str, int] = {}
        self._finished: list[RowArray] = []
        self._open: list[RowArray] = []

    def _coded(self, runs: Runs) -> RowArray:
        columns = []
        for name in RUN_FIELDS:
            column: Words | IntArray = getattr(runs, name)
            columns.append(
                self._numbered(column) if isinstance(column, Words) else coded(column, name)
            )
        narrow = all(int(column.max()) < 1 << 31 for column in columns)
        rows: RowArray = np.empty((len(runs), len(columns)), dtype=np.int32 if narrow else np.int64)
        for i, column in enumerate(columns):
            rows[:, i] = column
        return rows

    def _numbered(self, words: Words) -> IntArray:
        known = self._words
        numbers = [known.setdefault(name, len(known)) for name in words.names]
        return np.array(numbers, dtype=np.int64)[words.codes]


def renumbered(rows: RowArray, numbers: IntArray) -> RowArray:
    """The rows with word i called numbers[i]; in place."""
    for i in TEXT_COLUMNS:
        rows[:, i] = numbers[rows[:, i]]
    return rows


def words_used(columns: IntArray) -> IntArray:
    """The ids of all words in a table of columns, (22, n), ascending."""
    used = [np.flatnonzero(_is_used(columns[i])) for i in TEXT_COLUMNS]
    return np.unique(np.concatenate(used)) if columns.shape[1] else np.empty(0, dtype=np.int64)


def runs_of(columns: IntArray, texts: dict[int, str]) -> Runs:
    """Columns as stored, (22, n), as the records that travel."""
    made: dict[str, Words | IntArray] = {}
    for name, column in zip(RUN_FIELDS, columns, strict=True):
        made[name] = _words(column, texts) if name in TEXT_FIELDS else decoded(column, name)
    return Runs(**made)  # type: ignore[arg-type]


def no_runs() -> Runs:
    """An empty table."""
    return Runs.of(list[Run]())


def _words(ids: IntArray, texts: dict[int, str]) -> Words:
    # An array lookup by id, not a dictionary's per row: a million rows have a dozen accounts.
    used = _is_used(ids)
    codes = np.cumsum(used, dtype=np.int32) - np.int32(1)
    names = tuple(texts[i] for i in np.flatnonzero(used).tolist())
    return Words(codes[ids].astype(np.int32, copy=False), names)


def _is_used(ids: IntArray) -> BoolArray:
    used = np.zeros(int(ids.max(initial=UNKNOWN)) + 1, dtype=np.bool_)
    used[ids] = True
    return used


def _joined(parts: Sequence[RowArray]) -> RowArray:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([*parts, np.empty((0, len(RUN_FIELDS)), dtype=np.int32)])
