"""Records of slurmctld's job table, and which of those that wait are demand. Pure.

What waits is demand only if a free GPU could start it. These reasons of squeue are no demand:

held                   any at priority 0; JobHeld*, *held*, JobHoldMaxRequeue
not yet eligible       Dependency*, BeginTime, Cleaning, DeadLine, FedJobLock, BurstBuffer*; or
                       eligible later
its array's throttle   JobArrayTaskLimit; tasks beyond the throttle (`demand_tasks`)
its own limit          Assoc*, QOS*, Max*Per*, *NotAllowed, Invalid*, Account*, Licenses,
                       Partition*Limit, PartitionConfig, BadConstraints
out of service         PartitionDown, PartitionInactive, Reservation*, ReqNodeNotAvail*, NodeDown,
                       Power*

Every other reason is demand: None (just changed), Priority, Resources, and those not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN, Skipped

HOLDING = ("RUNNING", "SUSPENDED", "COMPLETING")
_OVER = (
    "COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY"
    " REVOKED LAUNCH_FAILED RECONFIG_FAIL STAGE_OUT"
)
FINISHED = frozenset(_OVER.split())

_LIMITS = (
    r"Assoc|QOS|Max\w+Per|\w*NotAllowed|Invalid|Account|Licenses|Partition\w*(Limit|Config)"
    r"|BadConstraints"
)
_AWAY = r"PartitionDown|PartitionInactive|Reservation|ReqNodeNotAvail|NodeDown|Power"
_NO_DEMAND = (
    (re.compile(r"JobHeld|.*[ _]held|JobHoldMaxRequeue|ResvDelHold", re.I), "held"),
    (
        re.compile(r"Dependency|BeginTime|Cleaning|DeadLine|FedJobLock|BurstBuffer"),
        "not yet eligible",
    ),
    (re.compile(r"JobArrayTaskLimit"), "beyond its array's throttle"),
    (re.compile(_LIMITS), "capped by its own limit"),
    (re.compile(_AWAY), "the nodes it asks for are out of service"),
)


@dataclass(frozen=True, slots=True)
class QueueJob:
    """One record of slurmctld's job table. Times epoch seconds, UNKNOWN where there is none.

    shown_id: as squeue prints it (12, 25_[5-12%3], 20+1). tasks: array tasks in a pending record.
    throttle: how many of the array may run at once, or NO_LIMIT. partition: "cpu,gpu" if several.
    state: the base, or COMPLETING, which hides it; flags: squeue's word where it is none of these.
    start, end: when it did; planned_start, planned_end: what slurmctld expects.
    gres: canonical, of one task; asked for if pending. tres: the whole list.
    """

    job_id: int
    shown_id: str = ""
    array_job: int = UNKNOWN
    array_task: int = UNKNOWN
    tasks: int = 1
    throttle: int = NO_LIMIT
    het_job: int = UNKNOWN
    het_offset: int = UNKNOWN
    account: str = ""
    user: str = ""
    partition: str = ""
    qos: str = ""
    state: str = "PENDING"
    flags: frozenset[str] = frozenset()
    reason: str = ""
    submit: int = UNKNOWN
    eligible: int = UNKNOWN
    start: int = UNKNOWN
    end: int = UNKNOWN
    planned_start: int = UNKNOWN
    planned_end: int = UNKNOWN
    limit_s: int = UNKNOWN
    priority: int = UNKNOWN
    nice: int = 0
    gres: str = ""
    tres: str = ""
    restarts: int = 0
    nodes: str = ""

    @property
    def is_pending(self) -> bool:
        """Whether it waits: held and not yet eligible jobs too."""
        return self.state == "PENDING"

    @property
    def is_holding(self) -> bool:
        """Whether it holds its GPUs: running, suspended, or completing until the epilog ends."""
        return self.state in HOLDING

    @property
    def is_finished(self) -> bool:
        """Whether it is over; slurmctld tells of it for MinJobAge."""
        return self.state in FINISHED

    @property
    def is_held(self) -> bool:
        """Whether somebody or Slurm holds it."""
        return self.is_pending and self.priority == 0

    @property
    def takes_site_factor(self) -> bool:
        """Whether a pass may write to it: it waits, eligible or not, and is not held."""
        return self.is_pending and self.priority > 0


@dataclass(frozen=True, slots=True)
class Queue:
    """slurmctld's job table at one moment. skipped: rows that could not be read, by row number."""

    jobs: tuple[QueueJob, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @property
    def pending(self) -> tuple[QueueJob, ...]:
        """Records that wait."""
        return tuple(job for job in self.jobs if job.is_pending)

    @property
    def holding(self) -> tuple[QueueJob, ...]:
        """Records that hold GPUs."""
        return tuple(job for job in self.jobs if job.is_holding)

    @property
    def finished(self) -> tuple[QueueJob, ...]:
        """Records that are over."""
        return tuple(job for job in self.jobs if job.is_finished)


# --- what is demand -------------------------------------------------------------------------------


def no_demand_reason(*, priority: int, reason: str, eligible: int, now: int) -> str:
    """Why a free GPU would not start a pending job, in words; "" if it would.

    Args:
        priority: 0 = held, UNKNOWN = not known. reason: squeue's word. eligible: UNKNOWN for a
            fresh array record for up to a second: then it is taken as now.
    """
    if priority == 0:
        return "held"
    for pattern, why in _NO_DEMAND:
        if pattern.match(reason):
            return why
    return "not yet eligible" if eligible > now else ""


def is_demand(job: QueueJob, now: int) -> bool:
    """Whether the record waits for nothing but GPUs."""
    return job.is_pending and not no_demand_reason(
        priority=job.priority, reason=job.reason, eligible=job.eligible, now=now
    )


def demand_tasks(jobs: Iterable[QueueJob], now: int) -> dict[int, int]:
    """Tasks that could run now if GPUs were free: job id -> count, of every pending record.

    An array with throttle 3 and 2 running tasks asks for one more, however many wait and in
    however many records.
    """
    listed = sorted(jobs, key=lambda job: job.job_id)
    room: dict[int, int] = {}
    for job in listed:
        room[job.array_job] = min(room.get(job.array_job, NO_LIMIT), job.throttle)
    for job in listed:
        room[job.array_job] -= job.is_holding
    room[UNKNOWN] = NO_LIMIT
    asked: dict[int, int] = {}
    for job in listed:
        if job.is_pending:
            most = job.tasks if is_demand(job, now) else 0
            asked[job.job_id] = min(most, max(room[job.array_job], 0))
            room[job.array_job] -= asked[job.job_id]
    return asked
