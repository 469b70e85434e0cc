"""What a policy decided at an instant of a simulation, job by job, and why.

The engine asks an observer whether it wants to see the instant that begins; if so it tells it, once
the instant is over, what became of every job that was looked at, in the order in which they were
tried: first the waiting jobs, then the running ones whose lease was over. The policy says why they
stand in that order: it writes a sentence a job into `said` while that is a dict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from slurm_ltgf.core.duration import duration_s
from slurm_ltgf.core.order import Standing, Turn

_CLOCK = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,6}):([0-9]{2}):([0-9]{2})")
_PARTS = re.compile(r"(?:[0-9]{1,12}(?:s|min|h|d|w))+")

#: started: it was first in the order, or all before it started. backfilled: it started although one
#: before it could not. reserved: the first that did not fit, `until` is when it will at the latest.
#: barred: there is room, but it would delay a reservation. no room: no nodes for it. yielded: its
#: lease is over, it is checkpointed until `until` and waits again. kept: its lease is over, and the
#: next one runs until `until`.
Action = Literal["started", "backfilled", "reserved", "barred", "no room", "yielded", "kept"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one job. Times are seconds from the trace's beginning.

    nodes: (node, GPUs) it got, holds or will get. until: see `Action`; of a job that started, when
    its time limit ends it. reason: the engine's or the policy's, in words; "" for none.
    """

    job_id: int
    tenant: str
    gpus: int
    action: Action
    nodes: tuple[tuple[int, int], ...] = ()
    until: int | None = None
    reason: str = ""


class Observer(Protocol):
    """Who looks on while a workload is simulated; it changes nothing."""

    def wants(self, now: int) -> bool:
        """Whether it wants to be told of this instant: asked before anything happens in it."""

    def decided(self, now: int, rows: Sequence[Decision]) -> None:
        """What happened at an instant that it wanted, in the order of trial; never without rows."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant of which it was asked what was decided; `at` is the first one from `asked` on."""

    asked: int
    at: int
    rows: tuple[Decision, ...]


class SeenAll(Exception):
    """Ends a simulation of which nothing more is to be seen."""


class Explainer:
    """An observer of a few instants; `moments` are those that came."""

    def __init__(self, times: Sequence[int]) -> None:
        self._asked = sorted(set(times))
        self._said: dict[int, str] = {}
        self._policy: Any = None
        self.moments: list[Moment] = []

    def listen(self, policy: object) -> None:
        """Hear what the policy says; without a policy that tells, reasons are the engine's."""
        self._policy = policy

    def wants(self, now: int) -> bool:
        """Whether the time has come; SeenAll where none is left to come."""
        if not self._asked:
            raise SeenAll
        is_time = now >= self._asked[0]
        self._said = {}
        if hasattr(self._policy, "said"):
            self._policy.said = self._said if is_time else None
        return is_time

    def decided(self, now: int, rows: Sequence[Decision]) -> None:
        """Keep it, with the policy's reasons."""
        told = tuple(replace(row, reason=self._reason(row)) for row in rows)
        while self._asked and self._asked[0] <= now:
            self.moments.append(Moment(self._asked.pop(0), now, told))

    def _reason(self, row: Decision) -> str:
        return "; ".join(filter(None, (self._said.get(row.job_id, ""), row.reason)))


def time_of(text: str) -> int | None:
    """Seconds of a time since the beginning, None: it is none.

    >>> time_of("90"), time_of("3d4h"), time_of("15min"), time_of("3-04:00:05"), time_of("soon")
    (90, 273600, 900, 273605, None)
    """
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) <= 12:
        return int(text)
    if clock := _CLOCK.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return 86400 * days + 3600 * hours + 60 * minutes + seconds
    if not _PARTS.fullmatch(text):
        return None
    return sum(duration_s(part) or 0 for part in re.findall(r"[0-9]+[a-z]+", text))


def turn_reason(turn: Turn, own: Standing, lease_s: float) -> str:
    """Why an LTGF turn comes where it does: its tag, and what that is made of."""
    if math.isinf(turn.tag):
        return "no share: after all tenants that have one"
    had, due = (own.attained_gpu_s + own.committed_gpu_s) / 3600, own.due_gpu_s / 3600
    parts = [f"tag {turn.tag:.4f}", f"had {had:.4g} of {due:.4g} GPU-h"]
    if turn.charged_gpus:
        parts.append(f"{turn.charged_gpus * lease_s / 3600:.4g} asked for before it")
    if turn.below_floor:
        parts.append(f"holds {own.held_gpus:g} of its {own.quota_gpus:.3g} GPUs: first")
    if turn.starving:
        parts.append("waited long")
    return ", ".join(parts)
