"""Where each tensor's memory lies in the arena and in the file, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from slurm_ltgf.checkpoint.arena import Arena, aligned


@dataclass(frozen=True, slots=True)
class Piece:
    """The memory of one or more tensors. begin: in the arena, bytes. storage: None if only read."""

    begin: int
    size: int
    storage: Any = None

    @property
    def is_on_gpu(self) -> bool:
        """Whether it is a GPU's memory."""
        return self.storage is not None and self.storage.device.type == "cuda"


@dataclass(frozen=True, slots=True)
class Shape:
    """One tensor in its piece. offset: in elements, as stride."""

    piece: int
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Layout:
    """Pieces and tensors, numbered as they come; tensors that share memory share a piece."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.shapes: list[Shape] = []
        self.size = 0
        self._known: dict[tuple[str, int], int] = {}
        self._views: dict[int, int] = {}

    def number(self, value: Any) -> int | None:
        """A tensor's number; None: it is none, or one that is spread over ranks (DTensor)."""
        if not isinstance(value, torch.Tensor) or hasattr(value, "to_local"):
            return None
        tensor = value.detach()
        self.shapes.append(
            Shape(
                piece=self._piece(tensor.untyped_storage()),
                dtype=str(tensor.dtype).removeprefix("torch."),
                offset=int(tensor.storage_offset()),
                shape=tuple(tensor.shape),
                stride=tuple(tensor.stride()),
            )
        )
        return len(self.shapes) - 1

    def _piece(self, storage: Any) -> int:
        key = (str(storage.device), storage.data_ptr())
        if storage.nbytes() == 0 or key not in self._known:
            self._known[key] = len(self.pieces)
            self.pieces.append(Piece(self.size, storage.nbytes(), storage))
            self.size += aligned(storage.nbytes())
        return self._known[key]

    def keys(self) -> dict[str, Any]:
        """As the index holds it."""
        return {
            "pieces": [[piece.begin, piece.size] for piece in self.pieces],
            "tensors": [
                [one.piece, one.dtype, one.offset, one.shape, one.stride] for one in self.shapes
            ],
        }

    @classmethod
    def of(cls, index: Mapping[str, Any]) -> Layout:
        """From an index."""
        made = cls()
        made.size = index["size"]
        made.pieces = [Piece(begin, size) for begin, size in index["pieces"]]
        made.shapes = [
            Shape(piece, dtype, offset, tuple(shape), tuple(stride))
            for piece, dtype, offset, shape, stride in index["tensors"]
        ]
        return made

    def tensor(self, number: int, arena: Arena) -> torch.Tensor:
        """A tensor whose memory is the arena's."""
        shape = self.shapes[number]
        piece = self.pieces[shape.piece]
        dtype = getattr(torch, shape.dtype)
        flat = arena.view(piece.begin, piece.size // dtype.itemsize * dtype.itemsize).view(dtype)
        made = torch.as_strided(
            flat, shape.shape, shape.stride, flat.storage_offset() + shape.offset
        )
        self._views[id(made)] = piece.begin + aligned(piece.size)
        return made

    def end_of(self, view: torch.Tensor) -> int:
        """The byte of the file up to which it must be read to have this tensor."""
        return self._views[id(view)]


def bytes_of(piece: Piece) -> torch.Tensor:
    """A piece's memory where it lives, as bytes."""
    empty = torch.empty(0, dtype=torch.uint8, device=piece.storage.device)
    return empty.set_(piece.storage, 0, (piece.size,))


def pieces_of(piece: Piece, part: int) -> Iterator[tuple[int, int]]:
    """A piece in parts: where each begins in it, and its size."""
    for begin in range(0, piece.size, part):
        yield begin, min(part, piece.size - begin)
