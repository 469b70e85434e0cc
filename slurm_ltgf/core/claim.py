"""What a user says of a run of his job, weighed against what Slurm recorded of it.

A user's word is believed only where it costs him: a run that was requeued counts as lost work
unless a checkpoint is known, so to say that some of it was kept makes his job look better served,
never worse. What he says is bounded by the run that Slurm recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_ltgf.core.ending import Cause, Ending
from slurm_ltgf.core.model import UNKNOWN

#: Clocks of nodes and slurmctld may differ by so much.
SKEW_S = 5
REQUEUED = frozenset({Cause.PREEMPTION, Cause.NODE_FAILURE, Cause.REQUEUE})


@dataclass(frozen=True, slots=True)
class Run:
    """A run as Slurm recorded it. ending.end: UNKNOWN while it runs. gpus: None: not known.

    job_id: raw. shown_id, user: as Slurm prints them.
    """

    ending: Ending
    gpus: float | None
    job_id: int = 0
    shown_id: str = ""
    user: str = ""

    @property
    def start(self) -> int:
        """When it began."""
        return self.ending.start

    @property
    def end(self) -> int:
        """When it ended; UNKNOWN."""
        return self.ending.end

    @property
    def was_requeued(self) -> bool:
        """Whether the job goes on after it."""
        return self.end != UNKNOWN and self.ending.cause in REQUEUED


@dataclass(frozen=True, slots=True)
class Weighed:
    """What holds of a claim.

    saved_at: the checkpoint, within the run; None: there is none. saved_gpu_s, lost_gpu_s: None:
    nothing was saved; the run was not requeued, or its GPUs are not known.
    """

    run: Run
    saved_at: int | None
    saved_gpu_s: float | None = None
    lost_gpu_s: float | None = None


def weigh(
    runs: Sequence[Run], *, time: int, saved_at: int | None, ends_run: bool
) -> Weighed | None:
    """What holds of a claim; None: Slurm's records do not bear it out, or not yet.

    Args:
        runs: all runs of the job, as recorded.
        time: when it was said. saved_at: the checkpoint that it speaks of.
        ends_run: whether a run that goes on belies it.
    """
    moment = time if saved_at is None else saved_at
    run = max((run for run in runs if _covers(run, moment)), key=_order, default=None)
    if run is None or (ends_run and run.end == UNKNOWN):
        return None
    if saved_at is None:
        return Weighed(run, None)
    at = max(saved_at, run.start)
    at = at if run.end == UNKNOWN else min(at, run.end)
    if run.gpus is None:
        return Weighed(run, at)
    lost = run.gpus * (run.end - at) if run.was_requeued else None
    return Weighed(run, at, run.gpus * (at - run.start), lost)


def _covers(run: Run, moment: int) -> bool:
    is_open = run.end == UNKNOWN
    return run.start - SKEW_S <= moment and (is_open or moment <= run.end + SKEW_S)


def _order(run: Run) -> tuple[int, int]:
    return run.start, run.ending.submit
