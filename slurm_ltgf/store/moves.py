"""Moves on disk: one small file a job, replaced before each act, so that a kill loses none."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from slurm_ltgf.core.move import Move
from slurm_ltgf.errors import InputError
from slurm_ltgf.store.files import FileError, LockHeldError, lock, replace_text

#: Lock files are never removed, so there are only so many; jobs that share one take turns.
LOCKS, PATIENCE_S = 64, 10
#: So long moves are remembered, and those whose job has a budget to keep.
REMEMBERED_S, COUNTED_S = 2 * 86400, 60 * 86400


@dataclass(frozen=True, slots=True)
class MoveFiles:
    """The folder of moves; made when the first is written.

    Moves that have ended are read again only if their files are others than before: a site keeps
    thousands, and looks at all each second.
    """

    folder: Path
    _ended: dict[int, tuple[tuple[int, int], Move]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def read(self, job_id: int) -> Move | None:
        """A job's move; None: there was none.

        Raises:
            InputError: its file is not as this program writes it.
            FileError: it cannot be read.
        """
        path = self._path(job_id)
        known = self._ended.get(job_id)
        try:
            if known is not None and known[0] == _stamp(path.stat()):
                return known[1]
            with path.open() as file:
                stamp = _stamp(os.fstat(file.fileno()))
                content = file.read()
        except FileNotFoundError:
            self._ended.pop(job_id, None)
            return None
        except OSError as exc:
            raise FileError(f"{path}: cannot read: {exc.strerror}") from exc
        move = _move(path, content)
        if move.state.is_end:
            self._ended[job_id] = stamp, move
        return move

    def all(self) -> list[Move]:
        """All moves, by job id.

        Raises:
            InputError, FileError: as for `read`.
        """
        try:
            stems = [path.stem for path in self.folder.iterdir() if path.suffix == ".move"]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise FileError(f"{self.folder}: cannot read: {exc.strerror}") from exc
        ids = [int(stem) for stem in stems if stem.isdecimal()]
        return [move for job_id in sorted(ids) if (move := self.read(job_id)) is not None]

    def write(self, move: Move) -> None:
        """Put a move down.

        Raises:
            FileError: it cannot be written.
        """
        self._make()
        values = asdict(move) | {"goal": move.goal.value, "state": move.state.value}
        replace_text(self._path(move.job_id), json.dumps(values, indent=0) + "\n", mode=0o640)

    def sweep(self, now: int) -> None:
        """Forget moves that ended long ago."""
        for move in self.all():
            ended_at = max(move.ended_at or 0, move.hold_until)
            if move.state.is_end and now - ended_at > (COUNTED_S if move.limits else REMEMBERED_S):
                self._path(move.job_id).unlink(missing_ok=True)

    @contextmanager
    def locked(self, job_id: int) -> Iterator[None]:
        """Work on a job's move alone; others wait a while.

        Raises:
            LockHeldError: somebody else does, for long.
        """
        self._make()
        with ExitStack() as held:
            end = time.monotonic() + PATIENCE_S
            while True:
                try:
                    held.enter_context(lock(self.folder / f"{job_id % LOCKS}.lock"))
                    break
                except LockHeldError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.05)
            yield

    def _make(self) -> None:
        try:
            self.folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as exc:
            raise FileError(f"{self.folder}: cannot be made: {exc.strerror}") from exc

    def _path(self, job_id: int) -> Path:
        return self.folder / f"{job_id}.move"


def _stamp(found: os.stat_result) -> tuple[int, int]:
    return found.st_ino, found.st_mtime_ns


def _move(path: Path, content: str) -> Move:
    try:
        return msgspec.convert(json.loads(content), Move)
    except (ValueError, msgspec.ValidationError) as exc:
        raise InputError(
            f"{path}: is no move of this program: {exc}; remove it if no requeue is under way"
        ) from exc
