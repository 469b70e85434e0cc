"""What a policy decided at an instant of a simulation, job by job, and why.

The engine asks an observer whether it wants to see the instant that begins; if so it tells it, once
the instant is over, what became of every job that was looked at, in the order in which they were
tried: first the waiting jobs, then the running ones whose lease was over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

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
