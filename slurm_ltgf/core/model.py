"""The records that travel: runs of jobs (as columns), tenants, windows. Nothing is computed here.

A *run* is one allocation of one job: a job that was requeued twice has three. History is a table
of runs, and a table is columns (numpy arrays of one length): a million rows take 0.1 GB, and the
integrals in `fairness` are array expressions.

Times are epoch seconds UTC, durations seconds, GPU-time GPU-seconds. In int64 columns `UNKNOWN`
(-1) means "not known" and `NO_LIMIT` "none": never 0 for either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

UNKNOWN = -1
NO_LIMIT = 1 << 60
NO_ACCOUNT = "(none)"

#: Parts of a TRES string that are about GPUs: (name, type, count), sorted. name is "gpu", "shard"
#: or "mps"; type "" is the untyped total: (("gpu", "", 4), ("gpu", "a100", 4)).
Gres = tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one job, as a row. `Runs` holds many of them as columns."""

    cluster: str
    job_id: int
    account: str = NO_ACCOUNT
    user: str = ""
    partition: str = ""
    state: str = ""
    submit: int = UNKNOWN
    eligible: int = UNKNOWN
    start: int = UNKNOWN
    end: int = UNKNOWN
    elapsed_s: int = UNKNOWN
    suspended_s: int = 0
    limit_s: int = UNKNOWN
    gres: str = ""
    gres_requested: str = ""
    array_job: int = UNKNOWN
    array_task: int = UNKNOWN
    het_job: int = UNKNOWN
    het_offset: int = UNKNOWN
    tasks: int = 1
    restarts: int = UNKNOWN
    nodes: str = ""

    @property
    def shown_id(self) -> str:
        """The id as Slurm prints it: 7700_3, 12+1 or 41."""
        if self.array_job >= 0 and self.array_task >= 0:
            return f"{self.array_job}_{self.array_task}"
        if self.het_job >= 0 and self.het_offset >= 0:
            return f"{self.het_job}+{self.het_offset}"
        return str(self.job_id)


@dataclass(frozen=True, slots=True)
class Words:
    """A column of text that repeats: `names[codes[i]]` is row i. codes: (n,) int32."""

    codes: NDArray[np.int32]
    names: tuple[str, ...]

    @staticmethod
    def of(values: Iterable[str]) -> Words:
        """Code a sequence of texts, in order of first appearance."""
        index: dict[str, int] = {}
        codes = [index.setdefault(value, len(index)) for value in values]
        return Words(np.array(codes, dtype=np.int32), tuple(index))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str:
        name: str = self.names[int(self.codes[row])]
        return name

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Words:
        """The same texts for some rows."""
        return Words(self.codes[rows], self.names)


#: Which of Run's fields are text (Words columns); the others are int64 columns.
TEXT_FIELDS = frozenset(
    {"cluster", "account", "user", "partition", "state", "gres", "gres_requested", "nodes"}
)


@dataclass(frozen=True, slots=True)
class Runs:
    """Many runs as columns: each field of `Run`, n rows; text as Words, numbers as int64 (n,)."""

    cluster: Words
    job_id: IntArray
    account: Words
    user: Words
    partition: Words
    state: Words
    submit: IntArray
    eligible: IntArray
    start: IntArray
    end: IntArray
    elapsed_s: IntArray
    suspended_s: IntArray
    limit_s: IntArray
    gres: Words
    gres_requested: Words
    array_job: IntArray
    array_task: IntArray
    het_job: IntArray
    het_offset: IntArray
    tasks: IntArray
    restarts: IntArray
    nodes: Words

    def __len__(self) -> int:
        return len(self.job_id)

    def row(self, i: int) -> Run:
        """Row i as a record."""
        values: dict[str, Any] = {
            name: getattr(self, name)[i] if name in TEXT_FIELDS else int(getattr(self, name)[i])
            for name in RUN_FIELDS
        }
        return Run(**values)

    def rows(self) -> list[Run]:
        """All rows as records; for small tables."""
        return [self.row(i) for i in range(len(self))]

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Runs:
        """Some rows, by index or mask, or by slice without copying."""
        columns: dict[str, Any] = {}
        for name in RUN_FIELDS:
            column = getattr(self, name)
            columns[name] = column.take(rows) if isinstance(column, Words) else column[rows]
        return Runs(**columns)

    @staticmethod
    def of(rows: Sequence[Run]) -> Runs:
        """Columns from records."""
        columns: dict[str, Any] = {}
        for name in RUN_FIELDS:
            values = [getattr(row, name) for row in rows]
            columns[name] = (
                Words.of(values) if name in TEXT_FIELDS else np.array(values, dtype=np.int64)
            )
        return Runs(**columns)

    @staticmethod
    def concat(parts: Sequence[Runs]) -> Runs:
        """One table from several, rows in the order given."""
        if len(parts) == 1:
            return parts[0]
        columns: dict[str, Any] = {}
        for name in RUN_FIELDS:
            pieces = [getattr(part, name) for part in parts]
            columns[name] = (
                _concat_words(pieces)
                if name in TEXT_FIELDS
                else np.concatenate([*pieces, np.empty(0, dtype=np.int64)])
            )
        return Runs(**columns)


RUN_FIELDS = tuple(f.name for f in fields(Run))


def _concat_words(pieces: Sequence[Words]) -> Words:
    index: dict[str, int] = {}
    coded = []
    for piece in pieces:
        remap = np.array(
            [index.setdefault(name, len(index)) for name in piece.names], dtype=np.int32
        )
        coded.append(remap[piece.codes] if len(piece.names) else piece.codes)
    codes = np.concatenate([*coded, np.empty(0, dtype=np.int32)])
    return Words(codes.astype(np.int32, copy=False), tuple(index))


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that could not be read, named. line 0: no line (a live answer has none)."""

    line: int
    reason: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a reader yields: runs that were read, rows that were not, and how far it got."""

    runs: Runs
    skipped: tuple[Skipped, ...] = ()
    lines: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """Half-open interval [start, end), epoch seconds UTC."""

    start: int
    end: int

    @property
    def length_s(self) -> int:
        """Seconds in the window."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Account:
    """A Slurm account. shares None: Fairshare=parent. user_shares: raw shares of its own users."""

    name: str
    parent: str = ""
    shares: int | None = 1
    user_shares: tuple[int | None, ...] = ()
    gpu_limit: float | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """A party to fairness. weight 0: no entitlement. gpu_limit: cap on GPUs at once, None: none."""

    name: str
    weight: float
    gpu_limit: float | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A pending record of the queue; an array's pending tasks are one record.

    gpus: weighted GPUs of one task. tasks: pending tasks in the record. eligible UNKNOWN: not yet.
    priority 0: held. site_factor None: not known. demand: it could run now if GPUs were free.
    """

    job_id: int
    tenant: str
    gpus: float
    submit: int
    eligible: int = UNKNOWN
    account: str = ""
    user: str = ""
    partition: str = ""
    reason: str = ""
    priority: int = UNKNOWN
    site_factor: int | None = None
    tasks: int = 1
    shown_id: str = ""
    demand: bool = True
    restarts: int = 0
