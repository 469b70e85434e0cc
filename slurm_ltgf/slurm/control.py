"""SiteFactor of jobs, through scontrol: the only writer to Slurm. Never Priority=, never a hold.

`scontrol update Priority=N` freezes a job's priority and releases holds; SiteFactor is one addend
of it, leaves age, fairshare, QOS and nice alone, and 0 undoes it. Numbers go in, no text does.

What scontrol 22.05 does, seen on a real cluster:

- With -Q it prints nothing about failures; without, one line each on stderr, and goes on.
- `job=25`, an array, also changes its running tasks; `job=25_[5-12]`, exactly the pending ones,
  is one update, splits nothing off and leaves the running ones alone. Steps (0-6:2) it refuses.
- `job=20`, a het job's leader, changes all its components; `job=20+0` only that one.
- A held job stays held, at priority 0. A job whose priority was set by hand does not move.
- With slurmctld away it tries 9 s for each job, then says "Unexpected message received".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from slurm_ltgf.errors import SlurmRefused, SlurmUnavailable
from slurm_ltgf.slurm.run import run

#: scontrol's own range: SiteFactor is stored with an offset of 2^31.
SITE_FACTOR_MAX = 2147483645
TARGETS_A_LINE = 500
UPDATES_A_SECOND = 100

_TASKS = r"\d+(?:-\d+(?::\d+)?)?(?:,\d+(?:-\d+(?::\d+)?)?)*"
_SHOWN_ID = re.compile(rf"(\d+)(?:\+(\d+)|_(?:(\d+)|\[({_TASKS})(?:%\d+)?\]))?")
_OF_TASKS = re.compile(r"(?P<array>\d+)_\[?(?P<first>\d+)[^:]*: (?P<why>.+)")
_OF_JOB = re.compile(r"(?P<why>.+?) for job (?P<target>\S+)")
_DONE = "No error"
_VANISHED = frozenset(
    {
        "Invalid job id specified",
        "Job has already finished",
        "Job/step already completing or completed",
    }
)
_NO_RIGHTS = frozenset({"Access/permission denied", "Invalid user id"})
_AWAY = re.compile(
    r"unexpected message|unable to contact|connect|timed out|not responding|communication", re.I
)


@dataclass(frozen=True, slots=True)
class Change:
    """A SiteFactor to write. shown_id: of arrays and het jobs, as `QueueJob` has it."""

    job_id: int
    value: int
    shown_id: str = ""

    def __post_init__(self) -> None:
        if not 0 < int(self.job_id) < 1 << 32:
            raise ValueError(f"job id: must be 1..2^32-1, got {self.job_id}")
        if abs(int(self.value)) > SITE_FACTOR_MAX:
            raise ValueError(
                f"site factor of job {self.job_id}: must be within +/-{SITE_FACTOR_MAX},"
                f" got {self.value}"
            )


@dataclass(frozen=True, slots=True)
class Refusal:
    """A job that Slurm would not change, and its words."""

    job_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class ControlResult:
    """What became of the changes, as job ids. vanished: finished or gone meanwhile.

    commands: update lines sent, in calls of scontrol (one, or none when there was nothing to do).
    """

    written: tuple[int, ...] = ()
    vanished: tuple[int, ...] = ()
    refused: tuple[Refusal, ...] = ()
    commands: int = 0
    calls: int = 0


def set_site_factors(changes: Iterable[Change]) -> ControlResult:
    """Write SiteFactors by one scontrol that reads its commands from stdin (some 600 a second).

    Raises:
        SlurmRefused: this user is no operator; nothing was written.
        SlurmUnavailable: slurmctld is away. Some may be written: the next pass sees which.
    """
    todo = list(changes)
    if not todo:
        return ControlResult()
    lines = commands(todo)
    _reach()
    return outcome(todo, _scontrol(lines, timeout_s=60 + len(todo) / UPDATES_A_SECOND), len(lines))


def _reach() -> None:
    """See that a slurmctld answers: 4 ms, where an update to a dead one takes 9 s a job."""
    try:
        run(["scontrol", "ping"], timeout_s=30)
    except SlurmRefused as exc:
        raise SlurmUnavailable(str(exc)) from exc


def undo_all(jobs: Iterable[tuple[int, str]]) -> ControlResult:
    """Give every job SiteFactor 0: (job id, shown id) of all pending and running records.

    Held ones too: they stay held, and must not come back with our factor when released.
    """
    return set_site_factors(Change(job_id, 0, shown_id) for job_id, shown_id in jobs)


def commands(changes: Sequence[Change]) -> list[str]:
    """The lines that scontrol gets: jobs of one value together, in one order always.

    >>> commands([Change(5, 7), Change(25, -1, "25_[5-12%3]"), Change(9, 7), Change(20, 7, "20+0")])
    ['update job=25_[5-12] sitefactor=-1', 'update job=5,9,20+0 sitefactor=7']
    """
    ordered = sorted(changes, key=lambda change: (change.value, change.job_id, change.shown_id))
    lines = []
    for value, group in groupby(ordered, key=lambda change: change.value):
        targets = [target(change) for change in group]
        for first in range(0, len(targets), TARGETS_A_LINE):
            names = ",".join(targets[first : first + TARGETS_A_LINE])
            lines.append(f"update job={names} sitefactor={int(value)}")
    return lines


def target(change: Change) -> str:
    """How scontrol must be told of this record and of nothing else; built from numbers alone.

    >>> target(Change(25, 0, "25_[1-7:3,9%2]")), target(Change(27, 0, "25_2")), target(Change(5, 0))
    ('25_[1,4,7,9]', '25_2', '5')
    """
    match = _SHOWN_ID.fullmatch(change.shown_id or str(change.job_id))
    if not match:
        raise ValueError(f"cannot read job id {change.shown_id!r}")
    job, offset, task, tasks = match.groups()
    if tasks:
        return f"{int(job)}_[{','.join(_without_steps(tasks))}]"
    if task:
        return f"{int(job)}_{int(task)}"
    return f"{int(job)}+{int(offset)}" if offset else str(int(change.job_id))


def _without_steps(tasks: str) -> Iterator[str]:
    for part in tasks.split(","):
        bounds, _, step = part.partition(":")
        if step:
            first, last = (int(bound) for bound in bounds.split("-"))
            yield from (str(task) for task in range(first, last + 1, int(step)))
        else:
            yield part


def _scontrol(lines: Sequence[str], *, timeout_s: float) -> str:
    """What scontrol says on stderr; its exit code says only that some line failed."""
    argv = ["sh", "-c", "scontrol 2>&1 >/dev/null || :"]
    return run(argv, input="".join(f"{line}\n" for line in lines), timeout_s=timeout_s)


def outcome(changes: Sequence[Change], said: str, sent: int = 0) -> ControlResult:
    """Say of each change what became of it, from the lines that scontrol printed.

    Raises:
        SlurmRefused: no rights, or words that belong to no job.
        SlurmUnavailable: slurmctld did not answer.
    """
    told = _told(changes, said)
    denied = [c for c, why in told.items() if why & _NO_RIGHTS]
    if denied:
        raise SlurmRefused(
            f"scontrol update SiteFactor: {min(told[denied[0]] & _NO_RIGHTS)} for"
            f" {len(denied)} of {len(changes)} jobs, first {target(denied[0])};"
            " run as SlurmUser, root or an operator (sacctmgr modify user … adminlevel=operator)"
        )
    written, vanished, refused = [], [], []
    for change in changes:
        why = told.get(change, set())
        if not why or _DONE in why:
            written.append(change.job_id)
        elif why <= _VANISHED:
            vanished.append(change.job_id)
        else:
            refused.append(Refusal(change.job_id, "; ".join(sorted(why - _VANISHED))))
    return ControlResult(tuple(written), tuple(vanished), tuple(refused), sent, 1)


def _told(changes: Sequence[Change], said: str) -> dict[Change, set[str]]:
    """What scontrol said of each change; of changes it said nothing about, it wrote all."""
    by_target = {target(change): change for change in changes}
    arrays: dict[int, list[Change]] = {}
    for name, change in by_target.items():
        if "_" in name:
            arrays.setdefault(int(name.partition("_")[0]), []).append(change)
    told: dict[Change, set[str]] = {}
    for line in filter(None, (line.strip() for line in said.splitlines())):
        of_tasks, of_job = _OF_TASKS.fullmatch(line), _OF_JOB.fullmatch(line)
        found, why = None, line
        if of_tasks:
            found = _holder(arrays.get(int(of_tasks["array"]), []), int(of_tasks["first"]))
            why = of_tasks["why"]
        elif of_job:
            found, why = by_target.get(of_job["target"]), of_job["why"]
        if found is None or _AWAY.search(why):
            kind = SlurmUnavailable if _AWAY.search(line) else SlurmRefused
            raise kind(f"scontrol update SiteFactor: {line[:200]}")
        told.setdefault(found, set()).add(why)
    return told


def _holder(changes: Sequence[Change], task: int) -> Change | None:
    """Which change the task belongs to; scontrol cuts long task lists, the first id is whole."""
    if len(changes) == 1:
        return changes[0]
    return next((change for change in changes if _has_task(target(change), task)), None)


def _has_task(name: str, task: int) -> bool:
    for part in name.partition("_")[2].strip("[]").split(","):
        first, _, last = part.partition("-")
        if int(first) <= task <= int(last or first):
            return True
    return False
