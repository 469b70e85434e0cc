"""The cells of a block of table rows, as places in its bytes; nothing is copied until asked for.

A block of 40,000 rows is one bytes object and one array of field ends; a column of it is read by
gathering fixed-width pieces at all its cells at once. Making a Python object of every cell of a
million rows would take longer than everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.model import IntArray

Bytes2D = NDArray[np.uint8]
Flags = NDArray[np.bool_]

#: The widest piece that can be gathered, and the padding round a block that allows it.
WIDEST = 64
_PADDING = b"\n" * WIDEST


@cache
def tail_masks(width: int) -> Flags:
    """Row k: whether each of `width` bytes is among the last k. (width + 1, width)."""
    return np.arange(width) >= width - np.arange(width + 1)[:, None]


def none_set(flags: Flags) -> Flags:
    """Rows of (n, multiple of 8) flags of which none is set, eight at a time."""
    words = np.ascontiguousarray(flags).view(np.uint64).T
    union = words[0]
    for word in words[1:]:
        union = union | word
    return np.asarray(union == 0)


@dataclass(frozen=True, slots=True)
class Cells:
    """One column: cell i is text[starts[i]:ends[i]]. starts, ends: int64 (n,)."""

    text: bytes
    starts: IntArray
    ends: IntArray

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> str:
        """Cell of a row: UTF-8 whatever the locale, bad bytes as U+FFFD."""
        return self.raw(row).decode("utf-8", "replace")

    def raw(self, row: int) -> bytes:
        """Cell of a row as it is."""
        return self.text[int(self.starts[row]) : int(self.ends[row])]

    @property
    def lengths(self) -> IntArray:
        """Bytes of each cell."""
        return self.ends - self.starts

    def take(self, rows: IntArray | Flags) -> Cells:
        """Some rows of the column."""
        return Cells(self.text, self.starts[rows], self.ends[rows])

    def heads(self, width: int) -> Bytes2D:
        """The bytes from each cell's start on, beyond its end if it is shorter: (n, width)."""
        return self._gather(self.starts, width)

    def tails(self, width: int) -> Bytes2D:
        """The bytes up to each cell's end, from before its start if it is shorter: (n, width)."""
        return self._gather(self.ends - width, width)

    def _gather(self, places: IntArray, width: int) -> Bytes2D:
        # An item of `width` bytes at every byte of the text; NumPy copies those asked for.
        size = len(self.text) - width + 1
        pieces: NDArray[np.void] = np.ndarray((size,), f"V{width}", self.text, strides=(1,))
        return pieces[places].view(np.uint8).reshape(-1, width)

    def has(self, byte: int, width: int) -> Flags:
        """Whether `byte` is among the last `width` bytes of each cell."""
        inside = tail_masks(width)[np.minimum(self.lengths, width)]
        return ~none_set(np.equal(self.tails(width), byte) & inside)

    @staticmethod
    def of(values: list[bytes]) -> Cells:
        """A column of given cells."""
        lengths = np.array([len(value) for value in values], dtype=np.int64)
        ends = np.cumsum(lengths) + WIDEST
        return Cells(_PADDING + b"".join(values) + _PADDING, ends - lengths, ends)


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of equal width. marks: where each field ends, (n_rows * width,); lines: (n_rows,)."""

    text: bytes
    marks: IntArray
    width: int
    lines: IntArray

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, number: int) -> Cells:
        """The cells of a column."""
        ends = self.marks[number :: self.width].copy()
        if number:
            return Cells(self.text, self.marks[number - 1 :: self.width] + 1, ends)
        starts = np.empty_like(ends)
        starts[:1] = WIDEST
        starts[1:] = self.marks[self.width - 1 : -1 : self.width] + 1
        return Cells(self.text, starts, ends)

    @staticmethod
    def of(rows: bytes, marks: IntArray, width: int, lines: IntArray) -> Block:
        """A block of whole rows. marks: positions of all delimiters and newlines in rows."""
        return Block(_PADDING + rows + _PADDING, marks + WIDEST, width, lines)
