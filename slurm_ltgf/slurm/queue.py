"""The queue, by one squeue: who waits, who runs, what for; and sprio's SiteFactors.

squeue -O with 'Field:' (no width: nothing is cut), \\x1f between the fields, epoch times, no column
that a user can write into. One row is one record of slurmctld (--array-unique): without it squeue
merges an array's records, and a requeued task with another priority disappears in the others.
GPUs are `tres-alloc`: of a running job what it holds, of a pending one the total it asks for, over
all nodes and tasks (22.05, seen for --gpus, --gpus-per-node, -task, -socket, --gres, arrays).

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
from datetime import UTC

from slurm_ltgf.core.model import NO_ACCOUNT, NO_LIMIT, UNKNOWN, Skipped
from slurm_ltgf.errors import SlurmRefused
from slurm_ltgf.slurm import text as words
from slurm_ltgf.slurm.run import run

DELIMITER = "\x1f"
ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
FIELDS = (
    "JobID",
    "JobArrayID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "HetJobOffset",
    "Account",
    "UserName",
    "Partition",
    "QOS",
    "State",
    "Reason",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "PriorityLong",
    "Nice",
    "tres-alloc",
    "RestartCnt",
    "NodeList",
)

#: squeue prints one word, a flag's before the state's: what the job is then.
_WORDS = {
    "PENDING": "REQUEUED REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT RESV_DEL_HOLD EXPEDITING",
    "RUNNING": "CONFIGURING RESIZING SIGNALING STOPPED POWER_UP_NODE",
    "over": "COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE"
    " OUT_OF_MEMORY REVOKED LAUNCH_FAILED RECONFIG_FAIL STAGE_OUT",
}
_BASE_OF_FLAG = {flag: base for base in ("PENDING", "RUNNING") for flag in _WORDS[base].split()}
_HOLDING = ("RUNNING", "SUSPENDED", "COMPLETING")
_FINISHED = frozenset(_WORDS["over"].split())

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
        return self.state in _HOLDING

    @property
    def is_finished(self) -> bool:
        """Whether it is over; slurmctld tells of it for MinJobAge."""
        return self.state in _FINISHED

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


# --- squeue ---------------------------------------------------------------------------------------


def snapshot() -> Queue:
    """Ask slurmctld for its whole job table: one call, 16 us a record.

    Raises:
        SlurmUnavailable, SlurmRefused: squeue failed; never an empty queue.
    """
    columns = ",".join(f"{field}:{DELIMITER}" for field in FIELDS)
    argv = ["squeue", "-h", "-a", "-t", "all", "--array-unique", "-O", columns]
    return parse(run(argv, env_extra=ENVIRONMENT))


def parse(text: str) -> Queue:
    """Read what `snapshot` asked for. A row that cannot be read is skipped and named, never 0."""
    jobs: list[QueueJob] = []
    skipped: list[Skipped] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line:
            continue
        cells = line.split(DELIMITER)
        try:
            if len(cells) != len(FIELDS) + 1:
                raise ValueError(f"expected {len(FIELDS)} columns, got {len(cells) - 1}")
            jobs.append(_job(dict(zip(FIELDS, cells, strict=False))))
        except ValueError as exc:
            skipped.append(Skipped(number, f"job {cells[0]}: {exc}", "squeue"))
    return Queue(tuple(jobs), tuple(skipped))


def _job(row: dict[str, str]) -> QueueJob:
    state, flags = _state(row["State"])
    tasks, throttle = _tasks(row)
    start, end = (words.moment(row[name], UTC) for name in ("StartTime", "EndTime"))
    pending, over = state == "PENDING", state in _FINISHED
    return QueueJob(
        job_id=int(row["JobID"]),
        shown_id=row["JobArrayID"],
        array_job=_number(row["ArrayJobID"]) if _is_array(row) else UNKNOWN,
        array_task=_number(row["ArrayTaskID"]) if row["ArrayTaskID"].isdecimal() else UNKNOWN,
        tasks=tasks,
        throttle=throttle,
        het_job=_number(row["HetJobID"]),
        het_offset=_number(row["HetJobOffset"]),
        account=_cell(row["Account"]).lower() or NO_ACCOUNT,
        user=row["UserName"],
        partition=row["Partition"],
        qos=row["QOS"],
        state=state,
        flags=flags,
        reason=row["Reason"],
        submit=words.moment(row["SubmitTime"], UTC),
        eligible=words.moment(row["EligibleTime"], UTC),
        start=UNKNOWN if pending else start,
        end=end if over else UNKNOWN,
        planned_start=start if pending else UNKNOWN,
        planned_end=UNKNOWN if over else end,
        limit_s=words.limit_s(row["TimeLimit"]),
        priority=int(row["PriorityLong"]),
        nice=int(row["Nice"]),
        gres=words.gres_of_tres(_cell(row["tres-alloc"])),
        tres=_cell(row["tres-alloc"]),
        restarts=int(row["RestartCnt"]),
        nodes=_cell(row["NodeList"]),
    )


def _is_array(row: dict[str, str]) -> bool:
    return not words.is_unknown(row["ArrayTaskID"])


def _tasks(row: dict[str, str]) -> tuple[int, int]:
    if not _is_array(row) or row["ArrayTaskID"].isdecimal():
        return 1, NO_LIMIT
    count, throttle = words.array_tasks(row["ArrayTaskID"])
    return count, NO_LIMIT if throttle is None else throttle


def _state(text: str) -> tuple[str, frozenset[str]]:
    """Squeue's word, or a list of them: base state and flags; a flag alone stands for its base.

    >>> _state("CONFIGURING"), _state("PENDING"), _state("FAILED,COMPLETING")[0]
    (('RUNNING', frozenset({'CONFIGURING'})), ('PENDING', frozenset()), 'COMPLETING')
    """
    base, flags = words.base_state(re.split(r"[,+ ]", text))
    if "COMPLETING" in flags:
        return "COMPLETING", (flags | {base}) - {"COMPLETING"}
    if base in _BASE_OF_FLAG:
        return _BASE_OF_FLAG[base], flags | {base}
    if base not in ("PENDING", *_HOLDING, *_FINISHED):
        raise ValueError(f"unknown state {text!r}")
    return base, flags


def _number(text: str) -> int:
    return UNKNOWN if words.is_unknown(text) else int(text)


def _cell(text: str) -> str:
    return "" if words.is_unknown(text) else text


# --- sprio ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Priorities:
    """What sprio tells of pending jobs; it leaves out held ones and those not yet eligible.

    site: job id -> SiteFactor. frozen: jobs whose priority was set by hand (scontrol update
    Priority=): SiteFactor does not move them and sprio shows 0 for it; they are not in site.
    """

    site: dict[int, int]
    frozen: frozenset[int] = frozenset()


def priorities() -> Priorities:
    """Ask slurmctld for the SiteFactors in force: one call, 2 us a record.

    Raises:
        SlurmRefused: the site does not run priority/multifactor, or sprio failed otherwise.
        SlurmUnavailable: slurmctld is away.
    """
    terms = DELIMITER.join(f"%{letter}" for letter in "iSYABFJPQN")
    return parse_priorities(run(["sprio", "-h", "-o", terms]))


def site_factors() -> dict[int, int]:
    """SiteFactor of each pending job that sprio lists and that SiteFactor can move."""
    return priorities().site


def parse_priorities(text: str) -> Priorities:
    """Read what `priorities` asked for: a row for each partition of a job, all with one SiteFactor.

    A job with no term at all and yet a priority above the floor of 1 got it by hand.
    """
    site: dict[int, int] = {}
    frozen: set[int] = set()
    for line in filter(None, text.split("\n")):
        try:
            job_id, factor, priority, *terms = (int(cell) for cell in line.split(DELIMITER))
        except ValueError:
            raise SlurmRefused(f"sprio: cannot read {line!r}") from None
        if priority > 1 and factor == 0 and not any(terms):
            frozen.add(job_id)
        else:
            site[job_id] = factor
    return Priorities(site, frozenset(frozen))


# --- a cheap look ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrivals:
    """slurmctld's counter of submitted jobs, each array task; since: when it was reset."""

    submitted: int
    since: int
    now: int

    def is_newer_than(self, other: Arrivals) -> bool:
        """Whether jobs may have come since the other look."""
        return (self.submitted, self.since) != (other.submitted, other.since)


def arrivals() -> Arrivals:
    """Look whether jobs came, by sdiag: 5 ms however long the queue is."""
    return parse_arrivals(run(["sdiag"], timeout_s=30))


def parse_arrivals(text: str) -> Arrivals:
    """Read sdiag's header and counter."""
    found = [
        re.search(pattern, text)
        for pattern in (
            r"Jobs submitted:\s*(\d+)",
            r"Data since .*\((\d+)\)",
            r"sdiag output at .*\((\d+)\)",
        )
    ]
    submitted, since, now = (int(match[1]) if match else UNKNOWN for match in found)
    if submitted < 0 or since < 0:
        raise SlurmRefused(f"sdiag: no 'Jobs submitted' in {text[:80]!r}")
    return Arrivals(submitted, since, now)
