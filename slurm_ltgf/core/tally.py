"""What a move that has ended adds to the counters that metrics show."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from slurm_ltgf.core.move import Goal, Move, State
from slurm_ltgf.core.requeue import NOT_TOLD, is_fault, is_refusal

#: Upper ends of the histogram of checkpoints, in seconds; beyond the last: "+Inf".
BUCKETS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600)

CHECKPOINTS, REQUEUES = "checkpoints", "requeues"
#: (CHECKPOINT_LE, upper end of a bucket): how many were in that bucket alone.
CHECKPOINT_LE, CHECKPOINT_S = "checkpoint_s le", "checkpoint_s"
#: Seconds from the begin of a move to its requeue.
REQUEUE_S = "requeue_s"
SAVED_GPU_S, LOST_GPU_S = "saved_gpu_s", "lost_gpu_s"

#: How a move can end: with a checkpoint; without (its work is lost); in vain; the job said no; the
#: job was quicker.
RESULTS = ("saved", "unsaved", "failed", "refused", "overtaken")


def of_move(move: Move) -> Mapping[tuple[str, str], float]:
    """(Counter, label) -> by how much; GPU-seconds are weighted ones.

    Args:
        move: one that has ended.
    """
    found: dict[tuple[str, str], float] = {}
    result = result_of(move)
    if move.asked_at:
        found[CHECKPOINTS, result if move.saved_at is None else "saved"] = 1
        if move.saved_at is not None:
            took_s = max(move.saved_at - move.asked_at, 0)
            found[CHECKPOINT_LE, bucket_of(took_s)] = 1
            found[CHECKPOINT_S, ""] = took_s
    if move.goal is Goal.REQUEUE:
        found[REQUEUES, result] = 1
    if move.state is State.REQUEUED:
        found[SAVED_GPU_S, ""] = move.saved_gpu_s or 0
        found[LOST_GPU_S, ""] = _lost_gpu_s(move)
        found[REQUEUE_S, ""] = max((move.ended_at or 0) - move.began, 0)
    return found


def of_requeue(
    result: str, saved_gpu_s: float | None, lost_gpu_s: float | None
) -> dict[tuple[str, str], float]:
    """The same of a requeue that somebody else made; GPU-seconds None: not known."""
    return {
        (REQUEUES, result): 1,
        (SAVED_GPU_S, ""): saved_gpu_s or 0,
        (LOST_GPU_S, ""): lost_gpu_s or 0,
    }


def result_of(move: Move) -> str:
    """One of RESULTS."""
    if move.state is State.FAILED:
        if is_refusal(move.why):
            return "refused"
        return "failed" if is_fault(move.why) else "overtaken"
    return "unsaved" if move.saved_at is None else "saved"


def bucket_of(seconds: float) -> str:
    """The bucket's upper end, as Prometheus writes it.

    >>> bucket_of(0), bucket_of(5), bucket_of(5.5), bucket_of(10**6)
    ('1.0', '5.0', '10.0', '+Inf')
    """
    place = bisect_left(BUCKETS_S, seconds)
    return f"{BUCKETS_S[place]}.0" if place < len(BUCKETS_S) else "+Inf"


def _lost_gpu_s(move: Move) -> float:
    """Work of the run that no checkpoint has; what is not known counts as nothing."""
    if move.lost_gpu_s is not None:
        return move.lost_gpu_s
    if not move.started or move.ended_at is None or NOT_TOLD in move.why:
        return 0
    return move.gpus * max(move.ended_at - move.started, 0)
