"""Lines of a sacct table that have not exactly one row's fields: what they are, or why not. Pure.

Free text may hold delimiters and newlines, so that a row has too many fields or is broken over
lines. A row is made of such lines only where no other reading is possible; the rest is named. What
looks like a whole row between two halves of one is refused: somebody may have put it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from itertools import pairwise

from slurm_ltgf.slurm import text
from slurm_ltgf.slurm.header import Header

#: Lines that a broken row can span at most.
_FAR = 64

_CHECKS: dict[str, Callable[[str], object]] = {
    "jobid": text.job_id,
    "jobidraw": text.job_id,
    "alloctres": text.gres_of_tres,
    "reqtres": text.gres_of_tres,
    "elapsed": text.elapsed_s,
    "elapsedraw": text.elapsed_s,
    "timelimitraw": text.limit_s,
    "timelimit": text.limit_s,
    **dict.fromkeys(("submit", "eligible", "start", "end"), lambda cell: text.moment(cell, UTC)),
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not a row: its place among all lines, its bytes, its number of fields."""

    index: int
    text: bytes
    fields: int


@dataclass(frozen=True, slots=True)
class Mended:
    """Rows found (place, cells), lines refused (place, why), spans of places to distrust."""

    rows: list[tuple[int, list[bytes]]] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    forged: list[tuple[int, int]] = field(default_factory=list)


def mend(lines: Sequence[Line], header: Header, *, row_before: bool = True) -> Mended:
    """Make rows of irregular lines where that can be done safely.

    Args:
        lines: in order; lines not among them are whole rows.
        row_before: whether a whole row precedes line 0.
    """
    found = Mended()
    halves: list[Line] = []
    for group in _groups(lines):
        _Group(group, header, found, halves).mend(whole=row_before or group[0].index > 0)
    _distrust(halves, header, found)
    return found


def _groups(lines: Sequence[Line]) -> Iterator[list[Line]]:
    group: list[Line] = []
    for line in lines:
        if group and line.index != group[-1].index + 1:
            yield group
            group = []
        group.append(line)
    if group:
        yield group


@dataclass(slots=True)
class _Group:
    """Irregular lines that follow each other."""

    lines: list[Line]
    header: Header
    found: Mended
    halves: list[Line]

    def mend(self, *, whole: bool) -> None:
        """whole: the line before ends a row."""
        i = 0
        while i < len(self.lines):
            line = self.lines[i]
            taken = 1
            if line.fields > self.header.width:
                whole = self._long(line)
            elif line.text.strip(b"\r "):
                taken, whole = self._short(i, whole=whole)
            i += taken

    def _long(self, line: Line) -> bool:
        """A line of too many fields: a row, if all that follows the other columns is free text."""
        tail, delimiter = self.header.free_tail, self.header.delimiter
        if tail < self.header.width:
            cells = line.text.split(delimiter, tail)
            rest = [b""] * (self.header.width - tail - 1)
            self.found.rows.append((line.index, [*cells, *rest]))
            return True
        names = [n for n, free in zip(self.header.names, self.header.free, strict=True) if free]
        where = f" (inside {' or '.join(names)}?)" if names else ""
        self._refuse(
            line,
            f"{line.fields} fields instead of {self.header.width}: the row can't be split safely"
            f"{where}; put free text last, or leave it out",
        )
        return False

    def _short(self, i: int, *, whole: bool) -> tuple[int, bool]:
        """A line of too few fields: how many lines are used up, and whether they end a row."""
        line = self.lines[i]
        end, cells = self._completed(i)
        if cells is not None:
            self.found.rows.append((line.index, cells))
            return end - i, True
        if whole and self.header.free[-1] and not _begins_a_row(line, self.header):
            return 1, True  # the rest of the free text that ended the row before
        self._retract(line)
        self.halves.append(line)
        self._refuse(line, f"{line.fields} fields instead of {self.header.width}")
        return 1, False

    def _completed(self, i: int) -> tuple[int, list[bytes] | None]:
        """Join the lines from i on that make exactly one row, each break inside free text."""
        fields, joined = self.lines[i].fields, self.lines[i].text
        for j in range(i + 1, min(len(self.lines), i + _FAR)):
            follower = self.lines[j]
            fields_then = fields + follower.fields - 1
            if not self.header.free[fields - 1] or fields_then > self.header.width:
                break
            fields, joined = fields_then, joined + b" " + follower.text
            if fields == self.header.width and not self._goes_on(j + 1):
                return j + 1, joined.split(self.header.delimiter)
        return i, None

    def _goes_on(self, j: int) -> bool:
        """Whether line j is a lone piece that could still belong to the row before it."""
        return j < len(self.lines) and self.lines[j].fields == 1 and self.header.free[-1]

    def _retract(self, line: Line) -> None:
        """Distrust a row put together just before a line that begins nothing."""
        rows = self.found.rows
        if rows and self.lines[0].index <= rows[-1][0] < line.index:
            index, _ = rows.pop()
            self.found.refused.append((index, "a broken row, and where it ends is not clear"))

    def _refuse(self, line: Line, why: str) -> None:
        self.found.refused.append((line.index, why))


def _begins_a_row(line: Line, header: Header) -> bool:
    """Whether the fields of a short line could be the first ones of a row."""
    cells = line.text.split(header.delimiter)
    for name, cell in zip(header.names, cells, strict=False):
        try:
            _CHECKS.get(name, str)(cell.decode("utf-8", "replace"))
        except ValueError:
            return False
    return True


def _distrust(halves: Sequence[Line], header: Header, found: Mended) -> None:
    """Find rows between two lines that together would be one row."""
    for first, second in pairwise(halves):
        apart = second.index - first.index
        complete = first.fields + second.fields - 1 == header.width
        if 1 < apart <= _FAR and complete and header.free[first.fields - 1]:
            found.forged.append((first.index, second.index))
