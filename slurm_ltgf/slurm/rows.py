"""A table of sacct: its columns' meaning, and its cells -> `Runs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.model import UNKNOWN, IntArray, Runs, Skipped, Words
from slurm_ltgf.errors import InputError
from slurm_ltgf.slurm import columns, text
from slurm_ltgf.slurm.cells import Block, Cells
from slurm_ltgf.slurm.columns import Faults
from slurm_ltgf.slurm.local_clock import LocalClock
from slurm_ltgf.slurm.records import UNKNOWN_GRES, as_runs
from slurm_ltgf.slurm.vocabulary import Vocabulary

#: Long enough for 67108863_4000000.interactive.
_STEP_ID_BYTES = 32


@dataclass(frozen=True, slots=True)
class Site:
    """What a table does not say itself: its cluster, the zone of its local times, when it was read.

    now: epoch seconds UTC.
    """

    cluster: str
    timezone: tzinfo
    now: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Runs read from a table, the line of each, and the rows that could not be read."""

    runs: Runs
    lines: IntArray
    skipped: tuple[Skipped, ...]


def tres_or_unknown(tres: str) -> str:
    """GPU part of an AllocTRES; UNKNOWN_GRES if there is no list at all."""
    return text.gres_of_tres(tres.strip()) if tres.strip() else UNKNOWN_GRES


def _gres_or_unknown(gres: str) -> str:
    return text.gres_of_node(gres) if gres.strip() else UNKNOWN_GRES


def _seconds(duration: str) -> int:
    return int(text.elapsed_s(duration))


def _suspended(duration: str) -> int:
    return max(_seconds(duration), 0)


def _count(number: str) -> int:
    return int(number) if number.strip().isdecimal() else UNKNOWN


#: Run's field -> the columns that can give it, the best first, with the reading of a cell.
_TEXT_SOURCES: dict[str, tuple[tuple[str, Callable[[str], str]], ...]] = {
    "account": (("account", text.account_name),),
    "user": (("user", str.strip),),
    "partition": (("partition", str.strip),),
    "state": (("state", lambda cell: text.state(cell)[0]),),
    "gres": (
        ("alloctres", tres_or_unknown),
        ("tres", tres_or_unknown),
        ("allocgres", _gres_or_unknown),
    ),
    "gres_requested": (("reqtres", text.gres_of_tres), ("reqgres", text.gres_of_node)),
    "nodes": (("nodelist", text.node_list),),
}
_NUMBER_SOURCES: dict[str, tuple[tuple[str, Callable[[str], int]], ...]] = {
    "limit_s": (("timelimitraw", text.limit_s), ("timelimit", text.limit_s)),
    "suspended_s": (("suspended", _suspended),),
    "restarts": (("restarts", _count),),
}
_TIMES = ("submit", "eligible", "start", "end")


class Table:
    """Reads rows of one table: its header is understood once, its cells block by block."""

    def __init__(self, names: Sequence[str], site: Site) -> None:
        """`names` are the header's, lower case.

        Raises:
            InputError: a column without which GPU-time cannot be told is missing.
        """
        self._at = {name: i for i, name in reversed(list(enumerate(names)))}
        self._site = site
        self._clock = LocalClock(site.timezone)
        self._require()
        self._readers: dict[str, tuple[str, Vocabulary]] = {}
        for field, texts in _TEXT_SOURCES.items():
            self._choose(field, [(name, Vocabulary(read)) for name, read in texts])
        for field, numbers in _NUMBER_SOURCES.items():
            self._choose(field, [(name, Vocabulary(read)) for name, read in numbers])

    def _choose(self, field: str, sources: Sequence[tuple[str, Vocabulary]]) -> None:
        there = [source for source in sources if source[0] in self._at]
        if there:
            self._readers[field] = there[0]

    def _require(self) -> None:
        needed = (
            ("jobidraw", "jobid"),
            ("account",),
            ("start",),
            ("end", "elapsedraw", "elapsed"),
            ("alloctres", "tres", "allocgres"),
        )
        shown = {"jobidraw": "JobIDRaw", "alloctres": "AllocTRES", "end": "End"}
        missing = [names[0] for names in needed if not any(name in self._at for name in names)]
        if missing:
            named = ", ".join(shown.get(name, name.capitalize()) for name in missing)
            raise InputError(
                f"sacct dump without column {named}; `ltgf sync --print-command` shows how to dump"
            )

    def read(self, block: Block) -> Rows:
        """Read rows of the header's width; steps are dropped."""
        ids = block.column(self._at[self.has("jobid", "jobidraw")])
        kept = ~ids.has(ord("."), _STEP_ID_BYTES)
        lines = block.lines if kept.all() else block.lines[kept]
        read = _Reading(self, self._cells(block, kept), len(lines))
        runs, faults = as_runs(read.raw_runs(), now=self._site.now)
        faults = faults | read.faults
        if not faults:
            return Rows(runs, lines, ())
        bad = np.zeros(len(lines), dtype=bool)
        bad[list(faults)] = True
        skipped = tuple(Skipped(int(lines[row]), faults[row]) for row in sorted(faults))
        return Rows(runs.take(~bad), lines[~bad], skipped)

    def _cells(self, block: Block, kept: NDArray[np.bool_]) -> Callable[[str], Cells]:
        if kept.all():
            return lambda name: block.column(self._at[name])
        return lambda name: block.column(self._at[name]).take(kept)

    def has(self, *names: str) -> str:
        """The first of these columns that the table has, or ''."""
        return next((name for name in names if name in self._at), "")

    @property
    def clock(self) -> LocalClock:
        """The clock of the table's local times."""
        return self._clock

    @property
    def site(self) -> Site:
        """What the table does not say."""
        return self._site

    def reader(self, field: str) -> tuple[str, Vocabulary] | None:
        """Column and reader of a field, None if no column gives it."""
        return self._readers.get(field)


class _Reading:
    """One block of rows being read; collects the faults."""

    def __init__(self, table: Table, cells: Callable[[str], Cells], n: int) -> None:
        self._table = table
        self._cells = cells
        self._n = n
        self.faults: Faults = {}

    def raw_runs(self) -> Runs:
        fields: dict[str, IntArray | Words] = self._ids()
        fields["cluster"] = self._cluster()
        for field in _TEXT_SOURCES:
            fields[field] = self._words(field)
        for field in _NUMBER_SOURCES:
            fields[field] = self._numbers(field)
        fields["elapsed_s"] = self._elapsed()
        fields |= self._times(fields)
        return Runs(**fields)  # type: ignore[arg-type]

    def _noted(self, name: str, faults: Faults) -> None:
        for row, reason in faults.items():
            self.faults.setdefault(row, f"{name}: {reason}")

    def _blank(self, value: int = UNKNOWN) -> IntArray:
        return np.full(self._n, value, dtype=np.int64)

    def _ids(self) -> dict[str, IntArray | Words]:
        shown, raw = self._table.has("jobid"), self._table.has("jobidraw")
        read, faults = columns.job_ids(self._cells(shown or raw))
        self._noted(shown or raw, faults)
        job = read.pop("job")
        if shown and raw:
            job, faults = columns.integers(self._cells(raw), lambda cell: text.job_id(cell).job)
            self._noted(raw, faults)
        return {"job_id": job, **read}

    def _cluster(self) -> Words:
        default = self._table.site.cluster
        if not self._table.has("cluster"):
            return Words(np.zeros(self._n, dtype=np.int32), (default,))
        words, _ = Vocabulary(lambda cell: cell.strip() or default).words(self._cells("cluster"))
        return words

    def _words(self, field: str) -> Words:
        source = self._table.reader(field)
        if source is None:
            return Words(np.zeros(self._n, dtype=np.int32), ("",))
        words, faults = source[1].words(self._cells(source[0]))
        self._noted(source[0], faults)
        return words

    def _numbers(self, field: str) -> IntArray:
        source = self._table.reader(field)
        if source is None:
            return self._blank(0 if field == "suspended_s" else UNKNOWN)
        values, faults = source[1].numbers(self._cells(source[0]))
        self._noted(source[0], faults)
        return values

    def _elapsed(self) -> IntArray:
        name = self._table.has("elapsedraw", "elapsed")
        if not name:
            return self._blank()
        values, faults = columns.durations(self._cells(name))
        self._noted(name, faults)
        return values

    def _times(self, fields: dict[str, IntArray | Words]) -> dict[str, IntArray | Words]:
        first: dict[str, IntArray] = {}
        second: dict[str, IntArray] = {}
        for name in _TIMES:
            first[name], second[name] = self._moments(name)
        elapsed, suspended = fields["elapsed_s"], fields["suspended_s"]
        assert not isinstance(elapsed, Words)
        assert not isinstance(suspended, Words)
        lasted = np.where(elapsed == UNKNOWN, UNKNOWN, elapsed + suspended)
        start = (first["start"], second["start"])
        end = (first["end"], second["end"])
        begun = np.maximum(first["submit"], first["eligible"])
        first["start"], first["end"] = _agreeing(start, end, begun, lasted)
        if not self._table.has("end"):
            known = (first["start"] != UNKNOWN) & (lasted != UNKNOWN)
            first["end"] = np.where(known, first["start"] + lasted, UNKNOWN)
        if not self._table.has("eligible"):
            first["eligible"] = first["submit"].copy()
        return dict(first)

    def _moments(self, name: str) -> tuple[IntArray, IntArray]:
        if not self._table.has(name):
            return self._blank(), self._blank()
        first, second, faults = columns.moments(self._cells(name), self._table.clock)
        self._noted(name, faults)
        return first, second


def _agreeing(
    start: tuple[IntArray, IntArray],
    end: tuple[IntArray, IntArray],
    waits: IntArray,
    lasted: IntArray,
) -> tuple[IntArray, IntArray]:
    """Of the readings of a start and an end, those that agree with how long the job lasted.

    Only times in the hour that comes twice have two. If none agrees, or how long it lasted is not
    known, no job starts before it waits or ends before it starts; else the first stands.
    """
    twice = (start[0] != start[1]) | (end[0] != end[1])
    if not twice.any():
        return start[0], end[0]
    best_start = np.where(start[0] < waits, start[1], start[0])
    best_end = np.where(end[0] < best_start, end[1], end[0])
    open_ = twice & (lasted >= 0) & (start[0] != UNKNOWN) & (end[0] != UNKNOWN)
    for least in (waits, np.full_like(waits, UNKNOWN)):
        for s, e in ((0, 0), (0, 1), (1, 1), (1, 0)):
            fits = open_ & (end[e] - start[s] == lasted) & (start[s] >= least)
            best_start[fits], best_end[fits] = start[s][fits], end[e][fits]
            open_ &= ~fits
    return best_start, best_end
