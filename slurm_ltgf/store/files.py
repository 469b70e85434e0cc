"""Files replaced in one step, and the one lock that says who works here."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_ltgf.errors import LtgfError


class LockHeldError(LtgfError):
    """Another process of ours is at work; wait for it or stop it."""

    exit_code = 75


class FileError(LtgfError):
    """A file of ours cannot be written or locked; the message says why."""

    exit_code = 74


def replace_text(path: Path | str, text: str, *, mode: int = 0o644, sync: bool = True) -> None:
    """Put a text (UTF-8) in a file's place; see `replace_bytes`."""
    replace_bytes(path, text.encode(), mode=mode, sync=sync)


def replace_bytes(
    path: Path | str, content: bytes, *, mode: int = 0o644, sync: bool = True
) -> None:
    """Put a content in a file's place: readers see the old one or the new one, never half.

    Args:
        path: the file; its directory must exist.
        content: all of it.
        mode: permissions of the new file.
        sync: whether it has to survive a power cut.

    Raises:
        FileError: it cannot be written; the old file stands.
    """
    path = Path(path)
    try:
        _replace(path, content, mode, sync=sync)
        if sync:
            _sync_directory(path.parent)
    except OSError as exc:
        raise FileError(f"{path}: cannot write: {exc.strerror}") from exc


def give_to_owner_of_directory(path: Path) -> None:
    """As root: let a new file belong to whom its directory does.

    The daemon runs as SlurmUser; what root makes by hand in its directory must not lock it out.
    """
    if os.geteuid() == 0:
        directory = path.parent.stat()
        os.chown(path, directory.st_uid, directory.st_gid)


@contextmanager
def lock(path: Path | str) -> Iterator[None]:
    """Hold the lock file for the time of a block; the kernel lets go of it if we are killed.

    Raises:
        LockHeldError: another process holds it; the message names the pid.
        FileError: the lock file cannot be made.
    """
    path = Path(path)
    is_new = not path.exists()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if is_new:
            give_to_owner_of_directory(path)
    except OSError as exc:
        raise FileError(f"{path}: cannot lock: {exc.strerror}") from exc
    # The file is never removed: a lock on an unlinked file excludes nobody.
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = _holder(os.read(descriptor, 32).decode("ascii", "replace"))
            raise LockHeldError(f"{path}: held by {holder}") from exc
        except OSError as exc:
            raise FileError(f"{path}: cannot lock: {exc.strerror}") from exc
        _sign(descriptor, f"{os.getpid()}\n")
        try:
            yield
        finally:
            _sign(descriptor, "")
    finally:
        os.close(descriptor)


def _sign(descriptor: int, text: str) -> None:
    """Put the holder's name into the lock; it serves messages alone, so a full disk is no error."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def _holder(text: str) -> str:
    return f"process {text.strip()}" if text.strip().isdecimal() else "another process"


def _replace(path: Path, content: bytes, mode: int, *, sync: bool) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if sync:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def _sync_directory(path: Path) -> None:
    """Make the rename itself survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
