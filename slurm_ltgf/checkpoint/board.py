"""The board: the folder where a job and those who ask it for checkpoints leave each other files.

It is the site's records folder (`records`), which belongs to SlurmUser and where anybody may make
files, or the job's own folder. So a file is read without following links and believed only if it is
a regular one, with one name, of the user that its name says. Every file has one writer, and is
replaced by rename.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_ltgf.checkpoint.keys import LARGEST_BYTES, ProtocolError, decode, encode
from slurm_ltgf.checkpoint.protocol import (
    Answer,
    Ask,
    Record,
    answer_of,
    ask_of,
    keys_of,
    record_keys,
    record_of,
)
from slurm_ltgf.errors import LtgfError


class Unbelievable(ProtocolError):
    """A file is not of the user that its name says, or no plain file: it counts for nothing."""


class BoardError(LtgfError):
    """The board cannot be read or written: look at the named folder."""

    exit_code = 74


@dataclass(frozen=True, slots=True)
class Board:
    """The folder where asks and answers lie: the site's records folder, or the job's own."""

    folder: Path

    # asking side

    def record(self, job_id: int, uid: int) -> Record | None:
        """How the job of this user can be checkpointed; None: it never said.

        Raises:
            ProtocolError: the file is there, but not to be believed or read.
            BoardError: the board itself cannot be read.
        """
        for name in (f"{job_id}.{uid}", "ltgf-job"):
            content = self._read(name, owners={uid})
            if content is None:
                continue
            what = str(self.folder / name)
            found = record_of(decode(content, what), uid=uid, what=what)
            if found.job_id == job_id:
                return found
        return None

    def answer(self, job_id: int, uid: int) -> Answer | None:
        """What the job of this user said last; None: nothing.

        Raises:
            ProtocolError, BoardError: as for `record`.
        """
        name = f"{job_id}.{uid}.answer"
        content = self._read(name, owners={uid})
        if content is None:
            return None
        what = str(self.folder / name)
        return answer_of(decode(content, what), what)

    def ask(self, ask: Ask) -> None:
        """Ask a job, in the name of whoever runs this; replaces what was asked before.

        Raises:
            BoardError: it cannot be written.
        """
        self._write(f"{ask.job_id}.ask.{os.geteuid()}", keys_of(ask))

    def asked(self, job_id: int) -> Ask | None:
        """What whoever runs this asked the job last.

        Raises:
            ProtocolError, BoardError: as for `record`.
        """
        return self._ask(job_id, os.geteuid())

    def clear(self, job_id: int) -> None:
        """Take back what whoever runs this asked the job: to the job, go on."""
        with contextlib.suppress(OSError):
            (self.folder / f"{job_id}.ask.{os.geteuid()}").unlink()

    # job side

    def hear(self, job_id: int, uid: int) -> Ask | None:
        """What the job of this user is asked: by root, the board's owner or the user, the last.

        Raises:
            ProtocolError, BoardError: as for `record`.
        """
        askers = {0, self._owner(), uid}
        asks = [ask for by in sorted(askers) if (ask := self._ask(job_id, by)) is not None]
        return max(asks, key=lambda ask: ask.time, default=None)

    def say(self, answer: Answer, *, uid: int | None = None) -> None:
        """Put the job's answer on the board; uid: of the job's user, whoever runs this if None.

        Raises:
            BoardError: it cannot be written.
        """
        owner = os.geteuid() if uid is None else uid
        self._write(f"{answer.job_id}.{owner}.answer", keys_of(answer))

    def enter(self, record: Record) -> None:
        """Put a job's record on the board: jobs that the SPANK plugin did not start.

        Raises:
            BoardError: it cannot be written.
        """
        self._write(f"{record.job_id}.{record.uid}", record_keys(record))

    # files

    def _owner(self) -> int:
        try:
            return self.folder.stat().st_uid
        except OSError as exc:
            raise BoardError(f"{self.folder}: {exc.strerror}") from exc

    def _ask(self, job_id: int, by: int) -> Ask | None:
        name = f"{job_id}.ask.{by}"
        try:
            content = self._read(name, owners={by})
        except Unbelievable:  # anybody may make any name: that is no ask
            return None
        if content is None:
            return None
        what = str(self.folder / name)
        found = ask_of(decode(content, what), what)
        return found if found.job_id == job_id else None

    def _read(self, name: str, *, owners: Iterable[int]) -> bytes | None:
        try:
            return read_owned(self.folder / name, owners=owners)
        except FileNotFoundError:
            if self.folder.is_dir():
                return None
            raise BoardError(f"{self.folder}: there is no such folder") from None
        except OSError as exc:
            raise BoardError(f"{self.folder / name}: {exc.strerror}") from exc

    def _write(self, name: str, keys: Mapping[str, object]) -> None:
        try:
            replace_owned(self.folder / name, encode(keys))
        except OSError as exc:
            raise BoardError(f"{self.folder / name}: cannot write: {exc.strerror}") from exc


def read_owned(path: Path, *, owners: Iterable[int]) -> bytes:
    """The content of a small file that belongs to one of `owners`; no link is followed.

    Raises:
        Unbelievable: it is a link, a pipe, a file with two names, or somebody else's.
        OSError: it cannot be opened or read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if path.is_symlink():
            raise Unbelievable(f"{path}: a link, not to be believed") from exc
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise Unbelievable(f"{path}: no plain file with one name, not to be believed")
        if found.st_uid not in set(owners):
            raise Unbelievable(f"{path}: belongs to user {found.st_uid}, not to be believed")
        return os.read(descriptor, LARGEST_BYTES + 1)
    finally:
        os.close(descriptor)


def replace_owned(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Put a small content in a file's place in one step; what a killed writer left is taken over.

    Raises:
        OSError: it cannot be written; the old file stands.
    """
    fresh = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(fresh, flags, mode)
    try:
        try:
            os.fchmod(descriptor, mode)
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        fresh.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
