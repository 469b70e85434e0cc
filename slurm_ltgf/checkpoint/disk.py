"""What it takes to be sure of files: their checksums, and that they are on the disk."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

_BLOCK_BYTES = 1 << 22


def checksum(path: Path, *, flush: bool = False) -> tuple[int, int]:
    """A file's size and CRC-32; flush: bring it to the disk first.

    Raises:
        OSError: it cannot be read.
    """
    crc, size = 0, 0
    with path.open("rb", buffering=0) as file:
        if flush:
            os.fsync(file.fileno())
        buffer = bytearray(_BLOCK_BYTES)
        while n := file.readinto(buffer):
            crc = zlib.crc32(memoryview(buffer)[:n], crc)
            size += n
    return size, crc


def sync_tree(path: Path) -> None:
    """Bring the names in a folder and in those below to the disk.

    Raises:
        OSError: it cannot.
    """
    for root, _, _ in os.walk(path):
        sync_folder(Path(root))


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk.

    Raises:
        OSError: it cannot.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
