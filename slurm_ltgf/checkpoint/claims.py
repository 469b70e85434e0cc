"""What users say of their jobs' runs, left for the site to weigh against Slurm's records.

The folder is `claims` on the site's board; the daemon makes it, and takes the files away. A file is
`JOBID.UID.KEY`, and believed to be the word of UID if it belongs to that user. It is no more than
his word: see `core.claim`. Standard library alone: training images import this.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from slurm_ltgf.checkpoint.board import read_owned, replace_owned
from slurm_ltgf.checkpoint.keys import (
    LONGEST_TEXT,
    ProtocolError,
    Reader,
    decode,
    encode,
    one_line,
)

FOLDER = "claims"
_NAME = re.compile(r"(\d{1,18})\.(\d{1,10})\.([0-9a-f]{16})")


class What(StrEnum):
    """What is claimed. continued: a run went on from a checkpoint that an earlier run had made.

    stopped: a run saved for Slurm's signal, and ends. The others: a move of the user's own ended.
    """

    CONTINUED = "continued"
    STOPPED = "stopped"
    CHECKPOINT = "checkpoint"
    REQUEUE = "requeue"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class Claim:
    """One such word. time, saved_at: epoch seconds; saved_at None: nothing was saved.

    state: of a move, how it ended. name: of the checkpoint.
    """

    job_id: int
    what: What
    time: int
    saved_at: int | None = None
    step: int | None = None
    name: str = ""
    state: str = ""
    why: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Claims:
    """The folder of a board's claims."""

    board: Path

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self.board / FOLDER

    def make(self) -> None:
        """Make the folder, in which anybody may leave files; for the board's owner.

        Raises:
            ProtocolError: somebody else has taken its name.
            OSError: it cannot be made.
        """
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir()
            self.folder.chmod(0o1777)
        found = self.folder.lstat()
        owners = {0, os.geteuid(), self.board.stat().st_uid}
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:
            raise ProtocolError(
                f"{self.folder}: is no folder of ours (user {found.st_uid}): remove it, then what"
                " users' own moves saved can be told"
            )

    def leave(self, claim: Claim) -> None:
        """Leave a claim in the name of whoever runs this; where nobody takes any, nothing is left.

        Raises:
            OSError: it cannot be written.
        """
        if not self.folder.is_dir():
            return
        keys = {name: getattr(claim, name) for name in claim.__dataclass_fields__}
        name = f"{claim.job_id}.{os.geteuid()}.{os.urandom(8).hex()}"
        replace_owned(self.folder / name, encode(keys))

    def names(self) -> Iterator[str]:
        """Files that are claims by their names, in no order; of others nothing is known.

        Raises:
            OSError: the folder cannot be read.
        """
        with os.scandir(self.folder) as entries:
            yield from (entry.name for entry in entries if _NAME.fullmatch(entry.name))

    def read(self, name: str) -> tuple[int, Claim]:
        """Who claims, and what.

        Raises:
            ProtocolError: not to be believed or read.
            OSError: it is not there, or cannot be read.
        """
        uid = int(name.split(".")[1])
        path = self.folder / name
        keys = Reader(decode(read_owned(path, owners={uid}), str(path)), str(path))
        return uid, Claim(
            job_id=int(name.split(".")[0]),
            what=keys.word("what", What),
            time=keys.number("time"),
            saved_at=keys.optional("saved_at", int),
            step=keys.optional("step", int),
            name=keys.text("name"),
            state=keys.text("state"),
            why=one_line(keys.text("why"))[:LONGEST_TEXT],
            reason=one_line(keys.text("reason"))[:LONGEST_TEXT],
        )

    def remove(self, name: str) -> None:
        """Take a claim away."""
        with contextlib.suppress(OSError):
            (self.folder / name).unlink()
