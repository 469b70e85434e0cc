"""Two phases over the GPU processes of a job: which step is due, for all and for each. Pure.

All are locked before any is checkpointed; when one fails or is late all go back, and a lock that
timed out is tried again once all have run on. The leader decides the plan; each rank (a node's
agent) does what the plan wants of it and tells what it came to. A rank that hears no more from the
leader goes back by itself.

    look ─> lock ─> checkpoint ─> hold ─> back ─> over
      └───────┴─────────┴──────────────────┘ └──> lock, the next attempt

Looking comes first: what a rank knows to be impossible is said before any process is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

#: One attempt to lock all, and how many there are.
LOCK_S = 10
ATTEMPTS = 4
#: A rank waits so much longer for the leader's word than the leader takes.
GRACE_S = 5


class Stage(StrEnum):
    """Where GPU processes are. mixed: not all of a rank's at the same. gone: there are none."""

    RUNNING = "running"
    LOCKED = "locked"
    CHECKPOINTED = "checkpointed"
    FAILED = "failed"
    MIXED = "mixed"
    GONE = "gone"


class Want(StrEnum):
    """What the plan wants of all ranks."""

    LOOK = "look"
    LOCK = "lock"
    CHECKPOINT = "checkpoint"
    HOLD = "hold"
    BACK = "back"
    OVER = "over"


#: Where all processes are when a phase has been gone through.
GOALS = {
    Want.LOOK: Stage.RUNNING,
    Want.LOCK: Stage.LOCKED,
    Want.CHECKPOINT: Stage.CHECKPOINTED,
    Want.HOLD: Stage.CHECKPOINTED,
}


class Op(StrEnum):
    """What the driver can do to a process."""

    LOCK = "lock"
    CHECKPOINT = "checkpoint"
    RESTORE = "restore"
    UNLOCK = "unlock"


@dataclass(frozen=True, slots=True)
class Plan:
    """What all are to do for one ask. until: of this phase; times: epoch seconds.

    key: the ask's id. restart: the run of the job. why: of going back; "" is no trouble.
    """

    key: str
    restart: int
    want: Want
    until: int
    deadline: int
    hold_until: int
    attempt: int = 1
    retry: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What one rank says. key, attempt, want: of the plan it speaks of. why: what failed in it."""

    rank: int
    key: str
    attempt: int
    want: Want
    stage: Stage
    why: str = ""

    def speaks_of(self, plan: Plan) -> bool:
        """Whether it has seen this attempt."""
        return (self.key, self.attempt) == (plan.key, plan.attempt)


def begin(key: str, restart: int, *, deadline: int, hold_until: int, now: int) -> Plan:
    """The plan for a new ask."""
    until = min(now + LOCK_S, deadline)
    return Plan(key, restart, Want.LOOK, until, deadline, hold_until)


def decide(plan: Plan, told: Sequence[Told | None], *, now: int, is_taken_back: bool) -> Plan:
    """The leader's next plan.

    Args:
        told: by every rank, in order; None: nothing yet.
        is_taken_back: whether whoever asked has ended it.
    """
    heard = [one if one is not None and one.speaks_of(plan) else None for one in told]
    if plan.want is Want.OVER:
        return plan
    if plan.want is Want.BACK:
        return _after_back(plan, heard, now)
    if is_taken_back:
        return _back(plan, "" if plan.want is Want.HOLD else "the ask was taken back")
    if plan.want is Want.HOLD:
        return _holding(plan, heard, now)
    trouble = _trouble(plan, heard, now)
    if trouble:
        may_retry = plan.want is Want.LOCK and plan.attempt < ATTEMPTS
        return _back(plan, trouble, retry=may_retry and now + GRACE_S < plan.deadline)
    are_there = all(one is not None and _is_there(one, plan) for one in heard)
    return _next(plan, now) if are_there else plan


def _next(plan: Plan, now: int) -> Plan:
    if plan.want is Want.LOOK:
        return replace(plan, want=Want.LOCK, until=min(now + LOCK_S, plan.deadline))
    if plan.want is Want.LOCK:
        return replace(plan, want=Want.CHECKPOINT, until=plan.deadline)
    return replace(plan, want=Want.HOLD, until=plan.hold_until)


def give_up(plan: Plan, why: str) -> Plan:
    """The plan, with all to go back."""
    return replace(plan, want=Want.BACK, retry=False, why=why)


def _is_there(one: Told, plan: Plan) -> bool:
    """Whether a rank has come to the end of this phase."""
    is_asked = plan.want is not Want.LOOK or one.want is Want.LOOK
    return one.stage is GOALS[plan.want] and is_asked


def _trouble(plan: Plan, heard: Sequence[Told | None], now: int) -> str:
    """Why the attempt cannot succeed any more; "" if it can."""
    for rank, one in enumerate(heard):
        if one is None:
            continue
        if one.why:
            return f"node {rank}: {one.why}"
        if one.stage in (Stage.GONE, Stage.FAILED):
            return f"node {rank}: its GPU processes are {one.stage}"
    if now < plan.until:
        return ""
    late = [rank for rank, one in enumerate(heard) if one is None or not _is_there(one, plan)]
    what = "heard of" if plan.want is Want.LOOK else str(GOALS[plan.want])
    return f"not {what} in time: node {', '.join(map(str, late[:8]))}" if late else ""


def _holding(plan: Plan, heard: Sequence[Told | None], now: int) -> Plan:
    if now >= plan.hold_until:
        return _back(plan, "")
    for rank, one in enumerate(heard):
        if one is not None and one.want is Want.HOLD and one.stage is not Stage.CHECKPOINTED:
            return _back(plan, f"node {rank}: its GPU processes are {one.stage}")
    return plan


def _back(plan: Plan, why: str, *, retry: bool = False) -> Plan:
    return replace(plan, want=Want.BACK, retry=retry, why=why)


def _after_back(plan: Plan, heard: Sequence[Told | None], now: int) -> Plan:
    """Until every rank has said that its processes run; a broken one is not waited for."""
    done = (Stage.RUNNING, Stage.GONE, Stage.FAILED)
    if not all(one is not None and one.want is Want.BACK and one.stage in done for one in heard):
        return plan
    is_whole = all(one is not None and one.stage is Stage.RUNNING for one in heard)
    if plan.retry and is_whole and now + GRACE_S < plan.deadline:
        until = min(now + LOCK_S, plan.deadline)
        return Plan(
            plan.key, plan.restart, Want.LOCK, until, plan.deadline, plan.hold_until,
            attempt=plan.attempt + 1,
        )  # fmt: skip
    return replace(plan, want=Want.OVER, retry=False)


def in_effect(plan: Plan | None, *, now: int) -> Want:
    """What a rank takes the plan for: one whose time is over by far means to go back."""
    if plan is None:
        return Want.BACK
    is_old = plan.want not in (Want.BACK, Want.OVER) and now > plan.until + GRACE_S
    return Want.BACK if is_old else plan.want


def duty(want: Want, stage: Stage) -> Op | None:
    """What is to be done to one process."""
    if want is Want.LOCK and stage is Stage.RUNNING:
        return Op.LOCK
    if want is Want.CHECKPOINT and stage is Stage.LOCKED:
        return Op.CHECKPOINT
    if want in (Want.BACK, Want.OVER):
        return {Stage.CHECKPOINTED: Op.RESTORE, Stage.LOCKED: Op.UNLOCK}.get(stage)
    return None


def together(stages: Sequence[Stage]) -> Stage:
    """Where a rank is, from where its processes are.

    >>> together([Stage.LOCKED, Stage.RUNNING]).value
    'mixed'
    """
    if not stages:
        return Stage.GONE
    if Stage.FAILED in stages:
        # those that are not broken are brought back first
        others = [one for one in stages if one is not Stage.FAILED]
        return Stage.FAILED if all(one is Stage.RUNNING for one in others) else Stage.MIXED
    return stages[0] if len(set(stages)) == 1 else Stage.MIXED
