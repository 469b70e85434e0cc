"""Why runs of a job ended, from what Slurm recorded, never from when a signal came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN

#: Slurm may send a signal this much before the time that was ordered (sbatch(1), --signal).
EARLY_S = 60
_STATES = {
    "PREEMPTED": "preempted",
    "TIMEOUT": "ended by its time limit",
    "DEADLINE": "ended by its time limit",
    "NODE_FAIL": "lost by its node",
    "BOOT_FAIL": "lost by its node",
    "REQUEUED": "requeued",
    "REQUEUE_HOLD": "requeued",
    "SPECIAL_EXIT": "requeued",
}


class Cause(Enum):
    """Why a run ended, or is being ended."""

    PREEMPTION = "preempted"
    TIME_LIMIT = "ended by its time limit"
    NODE_FAILURE = "lost by its node"
    REQUEUE = "requeued"
    ITSELF = "ended by itself"


@dataclass(frozen=True, slots=True)
class Ending:
    """One record of a job in sacct -D: a run that ended, or is going on.

    state: base word. Times: epoch seconds, UNKNOWN. limit_s: NO_LIMIT, UNKNOWN.
    """

    submit: int
    start: int
    end: int
    state: str
    limit_s: int = UNKNOWN

    @property
    def cause(self) -> Cause:
        """Why it ended."""
        if self.state in _STATES:
            return Cause(_STATES[self.state])
        known = UNKNOWN not in (self.start, self.end) and self.limit_s not in (UNKNOWN, NO_LIMIT)
        is_killed = self.state in ("CANCELLED", "FAILED")
        if is_killed and known and self.end - self.start >= self.limit_s:
            return Cause.TIME_LIMIT
        return Cause.ITSELF


def story(endings: Sequence[Ending]) -> str:
    """What became of a job: the newest record by submission tells the end, the others how often.

    >>> story([Ending(5, 6, 9, "COMPLETED"), Ending(1, 2, 4, "PREEMPTED")])
    'preempted once, completed'
    """
    if not endings:
        return ""
    *before, last = sorted(endings, key=lambda one: (one.submit, one.start))
    often = Counter(one.cause.value for one in before)
    parts = [f"{word} {_times(count)}" for word, count in often.items()]
    return ", ".join([*parts, last.state.lower().replace("_", " ")])


def was_requeued(endings: Sequence[Ending], start: int) -> bool:
    """Whether the run that began then was ended by a requeue, and not for good."""
    newest = max(endings, key=lambda one: (one.submit, one.start), default=None)
    return any(
        one.start == start and (one is not newest or one.cause is Cause.REQUEUE) for one in endings
    )


def why_signalled(
    *, now: int, end_limit: int, preempted_at: int | None, lead_s: int
) -> Cause | None:
    """What a signal from Slurm to a running job means; None: nothing that Slurm says.

    Args:
        end_limit: when the time limit ends the run; UNKNOWN: there is none.
        preempted_at: when Slurm decided to preempt it; None: it did not.
        lead_s: how long before the limit the signal was ordered.
    """
    if preempted_at is not None:
        return Cause.PREEMPTION
    if end_limit != UNKNOWN and end_limit - now <= lead_s + EARLY_S:
        return Cause.TIME_LIMIT
    return None


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
