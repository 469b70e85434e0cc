"""Traces that are CSV files: which columns mean what, and rows that cannot be used, named.

Forms are told apart by their header; docs/reference/traces.md says what is taken from each.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from slurm_ltgf.core.model import NO_ACCOUNT, Skipped
from slurm_ltgf.errors import InputError
from slurm_ltgf.sim.workload import Job, Workload, workload

Row = Mapping[str, str]

#: Larger numbers are damage, not jobs.
MOST_GPUS, MOST_S = 1_000_000, 1 << 34
NO_GPUS, NO_TIME = "no GPUs", "no run time"
WHOLE_GPU = "jobs use a part of a GPU, and hold a whole one here"
ANY_TYPE = "jobs name several GPU types, and may run on any type here"


class Fields(NamedTuple):
    """A row that says what a job is. submit: epoch or trace seconds; limit_s None: not told.

    note: what had to be simplified; "" for nothing.
    """

    tenant: str
    gpus: int
    submit: float
    run_s: float
    user: str = ""
    limit_s: float | None = None
    gpu_type: str = ""
    cpus: int = 0
    memory_mib: int = 0
    state: str = "COMPLETED"
    note: str = ""


class LeftOut(Exception):
    """A row that is no damage, but no job either: its text says why."""


def read_csv(
    lines: Iterable[str],
    name: str,
    *,
    format: str | None = None,  # noqa: A002  the word of the command line
    limit_factor: float = 1.0,
    by_user: bool = False,
) -> Workload:
    """Read a trace.

    Args:
        format: one of FORMS; None: by the header.
        limit_factor: a job's time limit as a multiple of its run time, where the trace has none:
            what schedulers see.
        by_user: tenants are the users, where the trace names them.

    Raises:
        InputError: none of the known headers, or not CSV.
    """
    rows = csv.DictReader(lines)
    skipped: list[Skipped] = []
    found: list[tuple[int, Fields]] = []
    notes: dict[str, int] = {}
    try:
        form = FORMS[_form(set(rows.fieldnames or ()), format, name)]
        if by_user and not form.has_users:
            raise InputError(f"{name}: this form of trace names no users")
        for row in rows:
            fields = _fields(form, row)
            if isinstance(fields, str):
                skipped.append(Skipped(rows.line_num, fields, name))
            else:
                found.append((rows.line_num, fields))
                if fields.note:
                    notes[fields.note] = notes.get(fields.note, 0) + 1
    except csv.Error as exc:
        raise InputError(f"{name}: line {rows.reader.line_num}: {exc}") from exc
    jobs = _jobs(found, limit_factor, by_user=by_user)
    said = tuple(f"{count} {text}" for text, count in notes.items())
    return workload(jobs, skipped, name, said)


def read_weights(lines: Iterable[str], name: str) -> dict[str, float]:
    """Read tenants' weights: a CSV with the columns name and share.

    Raises:
        InputError: other columns, or a share that is no number >= 0.
    """
    rows = csv.DictReader(lines)
    if not {"name", "share"} <= set(rows.fieldnames or ()):
        raise InputError(f"{name}: weights need the columns name and share")
    found: dict[str, float] = {}
    for row in rows:
        try:
            share = float(row["share"])
        except (ValueError, TypeError):
            share = -1.0
        if not 0 <= share < float("inf"):
            raise InputError(
                f"{name}: line {rows.line_num}: share must be a number >= 0, got {row}"
            )
        found[row["name"]] = share
    return found


def form_of(columns: Iterable[str]) -> str | None:
    """The form that a header is of; None: of none."""
    there = {column.strip() for column in columns}
    return next((name for name, form in FORMS.items() if form.columns <= there), None)


def _form(columns: set[str], wanted: str | None, name: str) -> str:
    found = wanted or form_of(columns)
    there = ", ".join(sorted(columns))[:200]
    if found is None:
        raise InputError(f"{name}: no trace that is known here; it has the columns {there}")
    missing = FORMS[found].columns - columns
    if missing:
        raise InputError(
            f"{name}: {found} needs the columns {', '.join(sorted(missing))}; it has {there}"
        )
    return found


def _fields(form: Form, row: Row) -> Fields | str:
    """What a row says, or why it cannot be used."""
    try:
        fields = form.read(row)
        if fields.gpus < 1:
            return NO_GPUS
        if fields.run_s <= 0:
            return NO_TIME
        _sane(fields)
    except LeftOut as exc:
        return str(exc)
    except (ValueError, TypeError, KeyError, OverflowError) as exc:
        return f"{type(exc).__name__}: {exc}"
    return fields


def _sane(fields: Fields) -> None:
    times = (fields.submit, fields.run_s, fields.limit_s or 0)
    if not all(math.isfinite(time) and abs(time) <= MOST_S for time in times):
        raise ValueError("a time that no job has")
    if fields.gpus > MOST_GPUS or not 0 <= fields.cpus <= MOST_S or not fields.memory_mib >= 0:
        raise ValueError("a size that no job has")


def _jobs(found: list[tuple[int, Fields]], limit_factor: float, *, by_user: bool) -> Iterator[Job]:
    first = min((fields.submit for _, fields in found), default=0.0)
    for line, job in found:
        run_s = max(int(job.run_s), 1)
        limit_s = int(job.run_s * limit_factor) if job.limit_s is None else int(job.limit_s)
        yield Job(
            job_id=line - 1,
            tenant=(job.user if by_user else job.tenant) or NO_ACCOUNT,
            gpus=job.gpus,
            submit=int(job.submit - first),
            run_s=run_s,
            limit_s=max(limit_s, 1 if job.limit_s is None else run_s),
            gpu_type=job.gpu_type,
            cpus=job.cpus,
            memory_mib=job.memory_mib,
            state=job.state,
        )


def _time(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _philly(row: Row) -> Fields:
    return Fields(
        row["cluster"], int(row["num_gpus"]), _time(row["timestamp"]), float(row["duration"])
    )


def _astraea(row: Row) -> Fields:
    return Fields(
        row["user"], int(row["num_gpu"]), float(row["submit_time"]), float(row["duration"])
    )


def _helios(row: Row) -> Fields:
    return Fields(
        row["vc"],
        int(row["gpu_num"]),
        _time(row["submit_time"]),
        float(row["duration"]),
        user=row["user"],
        cpus=int(row.get("cpu_num") or 0),
        state=row["state"],
    )


def _openb(row: Row) -> Fields:
    gpus = int(row["num_gpu"])
    if gpus and not row["scheduled_time"]:
        raise LeftOut("never scheduled: its run time is not known")
    begun = float(row["scheduled_time"] or row["creation_time"])
    kinds = [kind for kind in (row["gpu_spec"] or "").split("|") if kind]
    partial = gpus == 1 and int(row["gpu_milli"]) < 1000
    return Fields(
        row["qos"],
        gpus,
        float(row["creation_time"]),
        float(row["deletion_time"]) - begun,
        gpu_type=kinds[0] if len(kinds) == 1 else "",
        cpus=-(-int(row["cpu_milli"]) // 1000),
        memory_mib=int(row["memory_mib"]),
        state={"Failed": "FAILED"}.get(row["pod_phase"], "COMPLETED"),
        note=WHOLE_GPU if partial else ANY_TYPE if len(kinds) > 1 else "",
    )


def _eagle(row: Row) -> Fields:
    return Fields(
        row["account"],
        int(row["gpus_req"]),
        _time(row["submit_time"]),
        float(row["run_time"]),
        user=row["user"],
        limit_s=float(row["wallclock_req"]),
        cpus=int(row["processors_req"]),
        state=row["state"],
    )


class Form(NamedTuple):
    """A form of trace: columns that it must have, and how a row of it is read."""

    columns: frozenset[str]
    read: Callable[[Row], Fields]
    has_users: bool = False


def _needs(words: str) -> frozenset[str]:
    return frozenset(words.split())


FORMS: dict[str, Form] = {
    "philly": Form(_needs("timestamp duration num_gpus cluster"), _philly),
    "helios": Form(_needs("user vc gpu_num state submit_time duration"), _helios, True),
    "astraea": Form(_needs("user num_gpu submit_time duration"), _astraea),
    "openb": Form(
        _needs(
            "qos num_gpu gpu_milli cpu_milli memory_mib gpu_spec pod_phase creation_time "
            "deletion_time scheduled_time"
        ),
        _openb,
    ),
    "eagle": Form(
        _needs("user account wallclock_req processors_req gpus_req submit_time run_time state"),
        _eagle,
        True,
    ),
}
