"""Host memory for the fast path: taken once, ahead, touched by many threads, pinned in one piece.

PyTorch's own pinned allocator rounds up to a power of two (80 GiB asks for 128) and touches pages
one by one; the first touch is what makes pinning slow, so it is done before it is needed.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

ALIGNMENT = 256
_PAGE_BYTES = 2 << 20


def aligned(size: int) -> int:
    """A size rounded up so that what follows begins at an address that copies like."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Arena:
    """One piece of memory of this process. size: bytes, rounded up to whole huge pages."""

    def __init__(self, size: int, *, pin: bool, say: Callable[[str], None]) -> None:
        self.size = -(-max(size, 1) // _PAGE_BYTES) * _PAGE_BYTES
        self._say = say
        self._pin = pin
        self._unpin: Callable[[], Any] = _nothing
        self._memory = mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # data loaders are forked: pinned pages would be copied for each of them at once
        self._memory.madvise(mmap.MADV_DONTFORK)
        with contextlib.suppress(OSError):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self.bytes: torch.Tensor = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._thread = threading.Thread(target=self._touch, name="ltgf-arena", daemon=True)
        self._thread.start()

    def ready(self) -> Arena:
        """Wait until it is touched and pinned."""
        self._thread.join()
        return self

    def view(self, begin: int, size: int) -> torch.Tensor:
        """A part of it, as bytes."""
        return self.bytes[begin : begin + size]

    def buffer(self, begin: int, size: int) -> memoryview:
        """A part of it, for reading and writing files."""
        return memoryview(self._memory)[begin : begin + size]

    def close(self) -> None:
        """Unpin it; the memory itself goes when the last view of it goes."""
        self._thread.join()
        self._unpin()

    def _touch(self) -> None:
        self.bytes.zero_()
        if not self._pin:
            return
        address = self.bytes.data_ptr()
        error = int(_cudart().cudaHostRegister(address, self.size, 0))
        if error == 0:
            # memory that goes while it is pinned leaves a trap for whatever is mapped there next
            self._unpin = weakref.finalize(self, _unpin, address)
        else:
            gib = self.size / (1 << 30)
            self._say(f"{gib:.1f} GiB cannot be pinned (CUDA error {error}): copies are slower")


def _unpin(address: int) -> None:
    _cudart().cudaHostUnregister(address)


def _nothing() -> None:
    """Nothing to unpin."""


def _cudart() -> Any:
    return torch.cuda.cudart()
