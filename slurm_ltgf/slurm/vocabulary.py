"""Columns of text that repeats -> codes and names, each different cell read once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.model import UNKNOWN, IntArray, Words
from slurm_ltgf.slurm.cells import WIDEST, Cells, Flags
from slurm_ltgf.slurm.columns import Faults

_SLOT_BITS = 18
_MOST_NAMES = 1 << 16
_FIRST_LOOK = 256
#: Odd numbers unknown to whoever chooses the texts.
_FACTORS = np.random.default_rng().integers(0, 1 << 63, WIDEST // 8 + 1, dtype=np.uint64) * 2 + 1


class Vocabulary:
    """Reads a column of repeating text by a function of text, each different cell once.

    It remembers the cells it met, over all blocks: those of up to 64 bytes are found again by a
    hash into `_slots` and then compared byte for byte, the others by a dict.
    """

    def __init__(self, read: Callable[[str], str] | Callable[[str], int]) -> None:
        self._read = read
        self._forget()

    def words(self, cells: Cells) -> tuple[Words, Faults]:
        """A text column; `names` holds what occurs in it."""
        codes, faults = self._coded(cells)
        met = np.flatnonzero(np.bincount(codes, minlength=1))
        index: dict[str, int] = {}
        renumbered = np.zeros(int(met[-1]) + 1 if len(met) else 1, dtype=np.int32)
        for code in met.tolist() if len(codes) else ():
            renumbered[code] = index.setdefault(str(self._values[code]), len(index))
        return Words(renumbered[codes], tuple(index)), faults

    def numbers(self, cells: Cells) -> tuple[IntArray, Faults]:
        """A column of integers."""
        codes, faults = self._coded(cells)
        return np.array(self._values, dtype=np.int64)[codes], faults

    def _forget(self) -> None:
        self._codes: dict[bytes, int] = {}
        self._values: list[str | int] = []
        self._wrong: dict[int, str] = {}
        self._slots = np.full(1 << _SLOT_BITS, -1, dtype=np.int32)
        self._packed = np.zeros((256, WIDEST // 8 + 1), dtype=np.uint64)

    def _coded(self, cells: Cells) -> tuple[NDArray[np.int32], Faults]:
        if len(self._values) > _MOST_NAMES:
            self._forget()
        packed = _packed(cells)
        slots = _slots(packed)
        codes = self._slots[slots]
        new, step = np.flatnonzero(~self._met(codes, packed)), _FIRST_LOOK
        while len(new):
            for row in new[:step].tolist():
                codes[row] = self._code(cells, row, packed[row], int(slots[row]))
            new, step = new[step:], step * 4
            codes[new] = self._slots[slots[new]]
            new = new[~self._met(codes[new], packed[new])]
        if not self._wrong:
            return codes, {}
        rows = np.flatnonzero(np.isin(codes, list(self._wrong)))
        return codes, {int(row): self._wrong[int(codes[row])] for row in rows}

    def _met(self, codes: NDArray[np.int32], packed: NDArray[np.uint64]) -> Flags:
        """Whether the texts of these codes are these, byte for byte."""
        met: Flags = (codes >= 0) & (packed[:, 0] <= WIDEST)
        for known, word in zip(self._packed.T, packed.T, strict=False):
            met &= known[codes] == word
        return met

    def _code(self, cells: Cells, row: int, packed: NDArray[np.uint64], slot: int) -> int:
        cell = cells.raw(row)
        code = self._codes.get(cell)
        if code is not None:
            return code
        code = self._codes[cell] = len(self._values)
        try:
            value = self._read(cells[row])
            if isinstance(value, int) and abs(value) >= 1 << 62:
                raise ValueError(f"out of range: {cells[row]!r}")
            self._values.append(value)
        except ValueError as exc:
            self._values.append(UNKNOWN)
            self._wrong[code] = str(exc)
        if len(cell) <= WIDEST and self._slots[slot] < 0:
            self._slots[slot] = code
            if code >= len(self._packed):
                self._packed = np.concatenate([self._packed, np.zeros_like(self._packed)])
            self._packed[code, : len(packed)] = packed
        return code


def _packed(cells: Cells) -> NDArray[np.uint64]:
    """Length and bytes of cells (the first 64) in words of 8 bytes, what is beyond their end 0."""
    lengths = cells.lengths
    width = min(WIDEST, max(8, -(-int(lengths.max(initial=0)) // 8) * 8))
    words = (
        cells.heads(width).view(np.uint64) & _end_masks()[np.minimum(lengths, width), : width // 8]
    )
    return np.column_stack([lengths.astype(np.uint64), words])


@cache
def _end_masks() -> NDArray[np.uint64]:
    """Row k: the words of k bytes of ones followed by zeros."""
    ones = np.arange(WIDEST) < np.arange(WIDEST + 1)[:, None]
    return (ones.astype(np.uint8) * np.uint8(255)).view(np.uint64)


def _slots(packed: NDArray[np.uint64]) -> NDArray[np.int64]:
    hashed = np.zeros(len(packed), dtype=np.uint64)
    for word, factor in zip(packed.T, _FACTORS, strict=False):
        hashed += word * factor
    slots: NDArray[np.int64] = (hashed >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)
    return slots
