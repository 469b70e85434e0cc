"""The queue, by one squeue: who waits, who runs, what for; and sprio's SiteFactors.

squeue -O with 'Field:' (no width: nothing is cut), \\x1f between the fields, epoch times, no column
that a user can write into. GPUs are `tres-alloc`: of a running job what it holds, of a pending one
the total it asks for, over all nodes and tasks (seen on 22.05 and 24.11 for --gpus,
--gpus-per-node, -task, -socket, --gres, arrays).

Arrays are asked for task by task (-r) and put together by job id, which gives slurmctld's own
records. By itself squeue merges the waiting records of an array into one row with one of their
priorities, so that a requeued task with another SiteFactor disappears; --array-unique stops that,
in 22.05 only. -r leaves out the throttle (%3): a second, short call tells it, where nothing merged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC

from slurm_ltgf.core.model import NO_ACCOUNT, UNKNOWN, Skipped
from slurm_ltgf.errors import SlurmRefused
from slurm_ltgf.slurm import text as words
from slurm_ltgf.slurm.jobs import (
    FINISHED,
    HOLDING,
    Queue,
    QueueJob,
    demand_tasks,
    is_demand,
    no_demand_reason,
)
from slurm_ltgf.slurm.run import run

__all__ = [
    "Arrivals",
    "Priorities",
    "Queue",
    "QueueJob",
    "arrivals",
    "demand_tasks",
    "is_demand",
    "no_demand_reason",
    "priorities",
    "site_factors",
    "snapshot",
]

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

_TASK = FIELDS.index("ArrayTaskID")

#: squeue prints one word, a flag's before the state's: what the job is then.
_FLAGS = {
    "PENDING": "REQUEUED REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT RESV_DEL_HOLD EXPEDITING",
    "RUNNING": "CONFIGURING RESIZING SIGNALING STOPPED POWER_UP_NODE",
}
_BASE_OF_FLAG = {flag: base for base, flags in _FLAGS.items() for flag in flags.split()}


# --- squeue ---------------------------------------------------------------------------------------


def snapshot() -> Queue:
    """Ask slurmctld for its whole job table: 20 us a job, 4 us more for each task of an array.

    Raises:
        SlurmUnavailable, SlurmRefused: squeue failed; never an empty queue.
    """
    found = parse(_squeue("-t", "all", "-r", fields=FIELDS))
    if not any(job.is_pending and job.tasks > 1 for job in found.jobs):
        return found
    limits = throttles(_squeue("-t", "PD", fields=("ArrayJobID", "ArrayTaskID")))
    return replace(found, jobs=tuple(_throttled(job, limits) for job in found.jobs))


def _squeue(*options: str, fields: Iterable[str]) -> str:
    columns = ",".join(f"{field}:{DELIMITER}" for field in fields)
    return run(["squeue", "-h", "-a", *options, "-O", columns], env_extra=ENVIRONMENT)


def parse(text: str) -> Queue:
    """Read what `snapshot` asked for: the rows of one job id are the tasks of one record.

    A row that cannot be read is skipped and named, never 0.
    """
    records: dict[str, tuple[int, list[str]]] = {}
    tasks: dict[str, list[str]] = {}
    skipped: list[Skipped] = []
    for number, line in enumerate(text.split("\n"), 1):
        cells = line.split(DELIMITER)
        if len(cells) == len(FIELDS) + 1:
            records.setdefault(cells[0], (number, cells))
            tasks.setdefault(cells[0], []).append(cells[_TASK])
        elif line:
            reason = f"job {cells[0]}: expected {len(FIELDS)} columns, got {len(cells) - 1}"
            skipped.append(Skipped(number, reason, "squeue"))
    jobs: list[QueueJob] = []
    for job_id, (number, cells) in records.items():
        try:
            row = dict(zip(FIELDS, cells, strict=False))
            jobs.append(_array(_job(row), tasks[job_id]))
        except ValueError as exc:
            skipped.append(Skipped(number, f"job {job_id}: {exc}", "squeue"))
    return Queue(tuple(jobs), tuple(skipped))


def _array(job: QueueJob, tasks: list[str]) -> QueueJob:
    """The record with all its tasks."""
    if len(tasks) == 1:
        return job
    ranges = task_ranges([int(task) for task in tasks])
    shown = f"{job.array_job}_[{ranges}]"
    return replace(job, array_task=UNKNOWN, tasks=len(tasks), shown_id=shown)


def task_ranges(tasks: Iterable[int]) -> str:
    """Write array tasks as Slurm does, without steps.

    >>> task_ranges([5, 10, 6, 11, 12])
    '5-6,10-12'
    """
    found: list[list[int]] = []
    for task in sorted(tasks):
        if found and task == found[-1][1] + 1:
            found[-1][1] = task
        else:
            found.append([task, task])
    return ",".join(f"{a}-{b}" if a < b else str(a) for a, b in found)


def throttles(text: str) -> dict[int, int]:
    """Read the second call: array job -> how many of its tasks may run at once."""
    found = {}
    for line in filter(None, text.split("\n")):
        array_job, tasks, _ = line.split(DELIMITER)
        if "%" in tasks:
            found[int(array_job)] = int(tasks.rpartition("%")[2])
    return found


def _throttled(job: QueueJob, limits: Mapping[int, int]) -> QueueJob:
    limit = limits.get(job.array_job)
    if limit is None or not job.is_pending:
        return job
    return replace(job, throttle=limit, shown_id=job.shown_id.replace("]", f"%{limit}]"))


def _job(row: dict[str, str]) -> QueueJob:
    state, flags = _state(row["State"])
    start, end = (words.moment(row[name], UTC) for name in ("StartTime", "EndTime"))
    task = _number(row["ArrayTaskID"])
    pending, over = state == "PENDING", state in FINISHED
    return QueueJob(
        job_id=int(row["JobID"]),
        shown_id=row["JobArrayID"],
        array_job=UNKNOWN if task == UNKNOWN else int(row["ArrayJobID"]),
        array_task=task,
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
    if base not in ("PENDING", *HOLDING, *FINISHED):
        raise ValueError(f"unknown state {text!r}")
    return base, flags


def _number(text: str) -> int:
    return UNKNOWN if words.is_unknown(text) else int(text)


def _cell(text: str) -> str:
    return "" if words.is_unknown(text) else text


# --- sprio ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Priorities:
    """What sprio tells of pending jobs that are eligible and not held.

    It leaves out an array that has reached its throttle too (and any job for its first moment).

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
