"""Which running jobs can save, and what that costs: the site's records, each job asked once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from slurm_ltgf.checkpoint.board import Board, BoardError
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.slurm.jobs import QueueJob
from slurm_ltgf.store.config import Config


class Saver(NamedTuple):
    """Whether a job can save. cost_s: of saving and restoring, twice its last save if known."""

    can_save: bool
    cost_s: float


class Savers:
    """What the board tells of running jobs. why: job id -> why it cannot save.

    Args:
        uid_of: user's name -> uid.
    """

    def __init__(self, config: Config, uid_of: Callable[[str], int | None]) -> None:
        self._uid_of = uid_of
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
        try:
            record = self._board.record(job.job_id, uid)
            answer = self._board.answer(job.job_id, uid)
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
