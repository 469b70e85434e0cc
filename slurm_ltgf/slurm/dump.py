"""A saved sacct table -> batches of runs: `sacct -P` or `-p` with its header, or `sacct --json`.

Any column order, further columns, any delimiter that the header shows, gzip. A file that is cut
short or is something else is an `InputError`; single rows that can't be read are named (`Skipped`).

Job names, comments and the like may hold delimiters and newlines, for users choose them and Slurm
does not clean them: see `mend`. NOT A BUG: by newlines in such a text a user can forge whole rows,
and no reader can tell. Dump without these columns, as `ltgf sync --print-command` does.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from itertools import chain
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.model import Batch, IntArray, Skipped
from slurm_ltgf.errors import InputError
from slurm_ltgf.slurm.cells import Block
from slurm_ltgf.slurm.header import BYTE_ORDER_MARK, INNER_NEWLINE, Header, read_header
from slurm_ltgf.slurm.mend import Line, mend
from slurm_ltgf.slurm.rows import Rows, Site, Table

BLOCK_BYTES = 4 << 20
_HEAD_BYTES = 1 << 16
#: A block of packed data may unpack to many times its size.
_PACKED_BYTES = 1 << 19
#: More than this without one whole row is not a table.
_LONGEST_ROW = 64 << 20
#: So many rows at the beginning, all unreadable, are not a damaged table but another one.
_HOPELESS_ROWS = 100


def read_dump(
    stream: BinaryIO, *, cluster: str | None, timezone: tzinfo, now: int
) -> Iterator[Batch]:
    """Read a saved sacct table or JSON answer, block by block.

    Args:
        stream: binary; gzip is recognised.
        cluster: of rows that do not tell theirs.
        timezone: what local times in the file mean.
        now: epoch seconds UTC when the file was written; an open run without elapsed time has its
            length from it.

    Raises:
        InputError: not a sacct dump, a needed column is missing, or the file ends too early. What
            was yielded before must not be kept then.
    """
    site = Site(cluster or "", timezone, now)
    blocks = _blocks(stream)
    head = b""
    while not head.strip() and (block := next(blocks, b"")):
        head += block
    text = head.removeprefix(BYTE_ORDER_MARK)
    if text.lstrip().startswith(b"{"):
        from slurm_ltgf.slurm.sacct_json import read_json

        yield from read_json(b"".join([text, *blocks]), site)
    else:
        yield from read_text(chain([head], blocks), site)


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    head = stream.read(_HEAD_BYTES)
    packed = head.startswith(b"\x1f\x8b")
    size = _PACKED_BYTES if packed else BLOCK_BYTES
    rest = iter(lambda: stream.read(size), b"")
    return _unpacked(chain([head], rest)) if packed else chain([head], rest)


def _unpacked(blocks: Iterable[bytes]) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    for block in blocks:
        while block:
            if member.eof:
                member = zlib.decompressobj(wbits=31)
            try:
                yield member.decompress(block)
            except zlib.error as exc:
                raise InputError(f"the gzip file is damaged: {exc}") from exc
            block = member.unused_data
    if not member.eof:
        raise InputError("the gzip file is cut short")


def read_text(blocks: Iterable[bytes], site: Site) -> Iterator[Batch]:
    """Read a `sacct -P` table that comes in blocks of bytes, header first.

    Raises:
        InputError: as for `read_dump`.
    """
    blocks = iter(blocks)
    head = b""
    while b"\n" not in head.lstrip() and len(head) < _LONGEST_ROW and (block := next(blocks, b"")):
        head += block
    line, newline, rest = head.lstrip().partition(b"\n")
    if not newline:
        shown = repr(line[:60].decode("utf-8", "replace")) if line else "nothing"
        raise InputError(f"not a sacct dump: it holds {shown} and no line below it")
    above = len(head) - len(rest)
    reader = _TextReader(read_header(line), site, first_line=head[:above].count(b"\n") + 1)
    return reader.batches(chain([rest], blocks), above=above)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The lines of some rows: where each ends, its number of fields, its number in the file.

    All int64 (n_lines,). marks: where each field ends (n_fields,). next_line: of what follows.
    """

    marks: IntArray
    ends: IntArray
    fields: IntArray
    lines: IntArray
    next_line: int

    @staticmethod
    def of(rows: bytes, header: Header, first_line: int) -> _Shape:
        chars = np.frombuffer(rows, dtype=np.uint8)
        newline = chars == ord("\n")
        marks = np.flatnonzero(newline | (chars == ord(header.delimiter)))
        places = np.flatnonzero(newline[marks])
        ends = marks[places]
        lines = np.arange(first_line, first_line + len(ends), dtype=np.int64)
        inner = 0
        if header.row_end != b"\n":
            inner_newlines = np.flatnonzero(chars == ord(INNER_NEWLINE))
            lines[1:] += np.searchsorted(inner_newlines, ends[:-1])
            inner = len(inner_newlines)
        fields = np.diff(places, prepend=-1)
        return _Shape(marks, ends, fields, lines, first_line + len(ends) + inner)

    def line(self, rows: bytes, i: int) -> Line:
        """Line i of the rows."""
        return Line(i, rows[self.start(i) : int(self.ends[i])], int(self.fields[i]))

    def start(self, i: int) -> int:
        """Where line i begins; i may be one past the last."""
        return int(self.ends[i - 1]) + 1 if i else 0

    def head(self, n: int) -> _Shape:
        """The first n lines."""
        marks = self.marks[: int(self.fields[:n].sum())]
        next_line = int(self.lines[n]) if n < len(self.lines) else self.next_line
        return _Shape(marks, self.ends[:n], self.fields[:n], self.lines[:n], next_line)


class _TextReader:
    """Reads the rows below a header; between blocks it keeps what may belong together."""

    def __init__(self, header: Header, site: Site, *, first_line: int) -> None:
        """first_line: number in the file of the line below the header."""
        self._header = header
        self._table = Table(header.names, site)
        self._line = first_line
        self._held = b""
        self._begun = False

    def batches(self, blocks: Iterable[bytes], *, above: int) -> Iterator[Batch]:
        """Read all blocks. above: bytes up to the header's end, for the count."""
        lines_told = 0
        for rows, last in _whole_rows(blocks, self._header):
            read = self._read(self._held + self._header.normal(rows), last=last)
            self._refuse_the_hopeless(read)
            lines = self._line - 1 - lines_told
            yield Batch(read.runs, read.skipped, lines=lines, bytes=above + len(rows))
            lines_told, above = self._line - 1, 0

    def _read(self, rows: bytes, *, last: bool) -> Rows:
        shape = _Shape.of(rows, self._header, self._line)
        whole = shape.fields == self._header.width
        if not whole.all() and not last:
            kept = int(np.flatnonzero(whole)[-1]) + 1 if whole.any() else 0
            rows, self._held = rows[: shape.start(kept)], rows[shape.start(kept) :]
            shape, whole = shape.head(kept), whole[:kept]
        else:
            self._held = b""
        if len(self._held) > _LONGEST_ROW:
            raise InputError(f"line {self._line}: no whole row in {_LONGEST_ROW >> 20} MiB")
        self._line = shape.next_line
        if whole.all():
            read = self._whole(rows, shape)
        else:
            read = self._mended(rows, shape, whole, last=last)
        return replace(read, skipped=self._without_headers(read.skipped, rows, shape))

    def _without_headers(
        self, skipped: Sequence[Skipped], rows: bytes, shape: _Shape
    ) -> tuple[Skipped, ...]:
        """What was skipped but the header once more, where dumps were put into one file."""
        kept = []
        for row in skipped:
            line = shape.line(rows, int(np.searchsorted(shape.lines, row.line)))
            if not self._is_header(line, row.line):
                kept.append(row)
        return tuple(kept)

    def _is_header(self, line: Line, number: int) -> bool:
        """Whether a line that is no row is the header once more; with other columns: refused."""
        columns = self._header.columns_of(line.text)
        if columns and columns != self._header.names:
            raise InputError(
                f"line {number} is a header with other columns than the first line's:"
                " read dumps of different columns one by one"
            )
        return bool(columns)

    def _whole(self, rows: bytes, shape: _Shape) -> Rows:
        return self._table.read(Block.of(rows, shape.marks, self._header.width, shape.lines))

    def _mended(self, rows: bytes, shape: _Shape, whole: NDArray[np.bool_], *, last: bool) -> Rows:
        odd = [shape.line(rows, i) for i in np.flatnonzero(~whole).tolist()]
        for line in odd:
            self._is_header(line, int(shape.lines[line.index]))
        found = mend(odd, self._header, row_before=self._begun)
        if last:
            _refuse_a_cut_end(odd, [i for i, _ in found.refused], shape)
        refused = dict(found.refused)
        for first, end in found.forged:
            refused |= {i: _FORGED for i in range(first, end) if whole[i]}
        kept = np.array([i not in refused for i in range(len(whole))]) & whole
        rows, numbers = _rebuilt(rows, shape, kept, found.rows, self._header)
        again = _Shape.of(rows, self._header, 0)
        read = self._whole(rows, replace(again, lines=numbers))
        skipped = [Skipped(int(shape.lines[i]), why) for i, why in refused.items()]
        named = sorted((*read.skipped, *skipped), key=lambda row: row.line)
        return Rows(read.runs, read.lines, tuple(named))

    def _refuse_the_hopeless(self, read: Rows) -> None:
        if not self._begun and len(read.skipped) >= _HOPELESS_ROWS and not len(read.runs):
            first = read.skipped[0]
            raise InputError(
                f"none of the first {len(read.skipped)} rows can be read;"
                f" line {first.line}: {first.reason}"
            )
        self._begun = True


_FORGED = "stands between the two halves of a broken row: it may be forged"


def _whole_rows(blocks: Iterable[bytes], header: Header) -> Iterator[tuple[bytes, bool]]:
    """Large pieces of the file that end with a row, and whether each is the last."""
    held: list[bytes] = []
    size = 0
    for block in blocks:
        held.append(block)
        size += len(block)
        if size >= BLOCK_BYTES:
            rows, rest = _cut(b"".join(held), header)
            if rows:
                yield rows, False
            elif size > _LONGEST_ROW:
                raise InputError(f"sacct dump without a row's end in {_LONGEST_ROW >> 20} MiB")
            held, size = [rest], len(rest)
    rows, rest = _cut(b"".join(held), header)
    if rest.strip(b"\r\n "):  # a tab may be a delimiter
        end = rest[-40:].decode("utf-8", "replace")
        raise InputError(f"the sacct dump is cut short: it ends in the middle of a row, {end!r}")
    yield rows, True


def _cut(text: bytes, header: Header) -> tuple[bytes, bytes]:
    """Whole rows, and what follows them."""
    end = text.rfind(header.row_end)
    end = end + len(header.row_end) if end >= 0 else 0
    return text[:end], text[end:]


def _rebuilt(
    rows: bytes,
    shape: _Shape,
    kept: NDArray[np.bool_],
    mended: Sequence[tuple[int, list[bytes]]],
    header: Header,
) -> tuple[bytes, IntArray]:
    """The kept lines and the mended rows in their order, and the line numbers of all."""
    texts = {i: header.delimiter.join(_without_text(cells, header)) for i, cells in mended}
    changes = np.flatnonzero(np.diff(kept, prepend=False, append=False)).tolist()
    spans = zip(changes[0::2], changes[1::2], strict=True)
    pieces = {first: rows[shape.start(first) : shape.start(end)] for first, end in spans}
    pieces |= {i: text + b"\n" for i, text in texts.items()}
    places = np.sort(np.concatenate([np.flatnonzero(kept), np.array([*texts], dtype=np.int64)]))
    return b"".join(pieces[i] for i in sorted(pieces)), shape.lines[places]


def _without_text(cells: Sequence[bytes], header: Header) -> list[bytes]:
    """Cells of a row without its free text, which may hold anything and is not used."""
    return [b"" if free else cell for cell, free in zip(cells, header.free, strict=True)]


def _refuse_a_cut_end(odd: Sequence[Line], refused: Sequence[int], shape: _Shape) -> None:
    """A table whose very last line is the beginning of a row was cut."""
    lines = list(odd)
    last = len(shape.ends) - 1
    while lines and lines[-1].index == last and not lines[-1].text.strip(b"\r "):
        lines.pop()
        last -= 1
    if lines and lines[-1].index == last and last in refused:
        raise InputError(
            f"the sacct dump is cut short: its last row, line {shape.lines[last]},"
            f" has {lines[-1].fields} fields"
        )
