"""Traces in the Standard Workload Format (version 2.2): a line a job, 18 numbers, -1 for unknown.

Processors are taken as GPUs: those allocated, else those requested. A job that was checkpointed has
a summary row and a row for each time it ran (status 2, 3, 4): the summary counts; where there is
none, the job is put together from its parts.

Source: Feitelson, "The Standard Workload Format", Parallel Workloads Archive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slurm_ltgf.core.model import NO_ACCOUNT, Skipped
from slurm_ltgf.sim.traces.columns import MOST_GPUS, MOST_S, NO_GPUS
from slurm_ltgf.sim.workload import Job, Workload, workload

FIELDS = 18
PARTS = frozenset({2, 3, 4})
CANCELLED = 5
STATES = {0: "FAILED", 1: "COMPLETED", 3: "COMPLETED", 4: "FAILED", CANCELLED: "CANCELLED"}


class _Row(NamedTuple):
    """What is used of a line. Times in seconds; memory in KiB a processor."""

    job: int
    submit: int
    run: int
    processors: int
    limit: int
    memory: int
    status: int
    owner: int


def is_swf(line: str) -> bool:
    """Whether a line may be the first of such a trace."""
    if line.lstrip().startswith(";"):
        return True
    words = line.split()
    try:
        return len(words) == FIELDS and all(float(word) >= -1 for word in words)
    except ValueError:
        return False


def read_swf(
    lines: Iterable[str], name: str, *, limit_factor: float = 1.0, by_user: bool = False
) -> Workload:
    """Read a trace; its tenants are the groups, or by_user the users.

    Args:
        limit_factor: see `columns.read_csv`; for jobs without requested time.
    """
    owner = 11 if by_user else 12
    jobs: dict[int, Job] = {}
    parts: dict[int, list[tuple[int, _Row]]] = {}
    skipped: list[Skipped] = []
    prefix = "u" if by_user else "g"
    names: dict[int, str] = {-1: NO_ACCOUNT}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith(";"):
            continue
        row = _row(words, owner)
        if isinstance(row, str):
            skipped.append(Skipped(number, row, name))
        elif row.status in PARTS:
            parts.setdefault(row.job, []).append((number, row))
        elif why := _unusable(row, jobs):
            skipped.append(Skipped(number, why, name))
        else:
            tenant = names.get(row.owner) or names.setdefault(row.owner, f"{prefix}{row.owner}")
            jobs[row.job] = _job(row, tenant, limit_factor)
    for own in parts.values():
        row = _whole([row for _, row in own])
        why = "a part of a job whose summary counts" if row.job in jobs else _unusable(row, {})
        if why:
            skipped += [Skipped(number, why, name) for number, _ in own]
        else:
            tenant = names.get(row.owner) or f"{prefix}{row.owner}"
            jobs[row.job] = _job(row, tenant, limit_factor)
    skipped.sort(key=lambda one: one.line)
    return workload(jobs.values(), skipped, name)


def _row(words: list[str], owner: int) -> _Row | str:
    """What a line says, or why it cannot be read."""
    if len(words) != FIELDS:
        return f"{len(words)} fields, and not {FIELDS}"
    try:
        allocated = _whole_number(words[4])
        row = _Row(
            _whole_number(words[0]),
            _whole_number(words[1]),
            _whole_number(words[3]),
            allocated if allocated > 0 else _whole_number(words[7]),
            _whole_number(words[8]),
            _whole_number(words[9]),
            _whole_number(words[10]),
            _whole_number(words[owner]),
        )
    except (ValueError, OverflowError):
        return "a field that is no number"
    if max(row) > MOST_S or row.processors > MOST_GPUS:
        return "a number that no job has"
    return row


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _unusable(row: _Row, jobs: dict[int, Job]) -> str:
    """Why a row is no job to run; "" if it is one."""
    if row.status == CANCELLED and row.run <= 0:
        return "cancelled while it waited"
    if row.processors < 1:
        return NO_GPUS
    if row.run < 0:
        return "its run time is not known"
    if row.submit < 0:
        return "its submit time is not known"
    return "its job number occurs before" if row.job in jobs else ""


def _whole(parts: list[_Row]) -> _Row:
    """A job of its parts: only the first has a submit time."""
    submit = max(part.submit for part in parts)
    run = sum(max(part.run, 0) for part in parts)
    return parts[-1]._replace(submit=submit, run=run)


def _job(row: _Row, tenant: str, limit_factor: float) -> Job:
    run_s = max(row.run, 1)  # 0: less than half a second
    return Job(
        row.job,
        tenant,
        row.processors,
        row.submit,
        run_s,
        max(row.limit, run_s) if row.limit > 0 else max(int(run_s * limit_factor), 1),
        memory_mib=max(row.memory, 0) * row.processors >> 10,
        state=STATES.get(row.status, ""),
    )
