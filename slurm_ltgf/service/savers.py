"""Which running jobs can save, and what that costs: the site's records, each job asked once."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from slurm_ltgf.checkpoint.board import Board, BoardError
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.slurm.jobs import QueueJob
from slurm_ltgf.store.config import Config

T = TypeVar("T")
#: A file and its state: inode, time of the last change, size. A user can set no change's time.
_Stamp = tuple[int, int, int]


class Saver(NamedTuple):
    """Whether a job can save. cost_s: of saving and restoring, twice its last save if known."""

    can_save: bool
    cost_s: float


class BoardMemory:
    """Board files that were read before: they are read again only where they are others.

    A daemon looks at thousands at each pass, and the board may be on a network's file system.
    """

    def __init__(self) -> None:
        self._before: dict[str, tuple[_Stamp, object]] = {}
        self._now: dict[str, tuple[_Stamp, object]] = {}

    def begin(self) -> None:
        """A new look: what was asked for neither in the last nor in this one is forgotten."""
        self._before, self._now = self._now, {}

    def recall(self, path: str, read: Callable[[], T]) -> T:
        """What `read` gives, or gave of the same file. Raises what it raises."""
        try:
            found = os.lstat(path)
        except OSError:
            return read()
        stamp = found.st_ino, found.st_ctime_ns, found.st_size
        known = self._now.get(path) or self._before.get(path)
        if known is None or known[0] != stamp:
            known = stamp, read()
        self._now[path] = known
        return cast("T", known[1])


class Savers:
    """What the board tells of running jobs. why: job id -> why it cannot save.

    Args:
        uid_of: user's name -> uid.
        memory: of the looks before; a new one is begun.
    """

    def __init__(
        self,
        config: Config,
        uid_of: Callable[[str], int | None],
        memory: BoardMemory | None = None,
    ) -> None:
        self._uid_of = cache(uid_of)
        self._memory = memory or BoardMemory()
        self._memory.begin()
        self._default_s = float(config.lease.cost_s)
        records = config.checkpoint.records
        self._board = Board(Path(records)) if records else None
        self._problem = ""
        self.why: dict[int, str] = {}

    def notes(self) -> tuple[str, ...]:
        """What is wrong with the board."""
        return (self._problem,) if self._problem else ()

    def saver(self, job: QueueJob) -> Saver:
        """Whether a job can save, and what it costs."""
        uid = self._uid_of(job.user)
        if self._board is None or uid is None:
            why = "no records folder" if uid is not None else "its user is unknown"
            return self._cannot(job, why)
        board, recall, job_id = self._board, self._memory.recall, job.job_id
        name = f"{board.folder}/{job_id}.{uid}"
        try:
            record = recall(name, lambda: board.record(job_id, uid))
            answer = recall(f"{name}.answer", lambda: board.answer(job_id, uid))
        except (BoardError, ProtocolError) as exc:
            self._problem = str(exc)
            return self._cannot(job, self._problem)
        if record is None or answer is None or answer.restart != job.restarts:
            return self._cannot(
                job, "it has no checkpoint record" if record is None else "not ready"
            )
        cost_s = self._default_s if answer.seconds is None else max(2 * answer.seconds, 1.0)
        return Saver(True, cost_s)

    def _cannot(self, job: QueueJob, why: str) -> Saver:
        self.why[job.job_id] = why
        return Saver(False, self._default_s)
