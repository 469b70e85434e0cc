"""Traces that are CSV files: which columns mean what, and rows that cannot be used, named.

Known forms, recognised by their header:

    philly      timestamp,duration,num_gpus,gpu_time,cluster        (adaptdl's Philly; cluster = VC)
    astraea     job_id,user,num_gpu,submit_time,…,duration          (Helios and ASTRAEA's simulator)
    openb       name,cpu_milli,memory_mib,num_gpu,gpu_milli,…       (Alibaba; one tenant a qos)
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from slurm_ltgf.core.model import Skipped
from slurm_ltgf.errors import InputError
from slurm_ltgf.sim.workload import Job, Workload, workload

Row = Mapping[str, str]
#: (tenant, GPUs, submit in epoch or trace seconds, run time in seconds)
Fields = tuple[str, int, float, float]


def read_csv(lines: Iterable[str], name: str, *, limit_factor: float = 1.0) -> Workload:
    """Read a trace.

    Args:
        limit_factor: a job's time limit as a multiple of its run time: what schedulers see.

    Raises:
        InputError: none of the known headers.
    """
    rows = csv.DictReader(lines)
    read = _reader(set(rows.fieldnames or ()), name)
    found: list[tuple[int, Fields]] = []
    skipped: list[Skipped] = []
    for line, row in enumerate(rows, 2):
        try:
            tenant, gpus, submit, run = read(row)
        except (ValueError, TypeError, KeyError) as exc:
            skipped.append(Skipped(line, f"{type(exc).__name__}: {exc}", name))
            continue
        if gpus < 1 or run <= 0:
            skipped.append(Skipped(line, f"{gpus} GPUs for {run:g} s: nothing to run", name))
        else:
            found.append((line, (tenant, gpus, submit, run)))
    first = min((fields[2] for _, fields in found), default=0.0)
    jobs = [
        Job(
            job_id=line - 1,
            tenant=tenant,
            gpus=gpus,
            submit=int(submit - first),
            run_s=max(int(run), 1),
            limit_s=max(int(run * limit_factor), 1),
        )
        for line, (tenant, gpus, submit, run) in found
    ]
    return workload(jobs, skipped, name)


def read_weights(lines: Iterable[str], name: str) -> dict[str, float]:
    """Read tenants' weights: a CSV with the columns name and share.

    Raises:
        InputError: other columns, or a share that is no number >= 0.
    """
    rows = csv.DictReader(lines)
    if not {"name", "share"} <= set(rows.fieldnames or ()):
        raise InputError(f"{name}: weights need the columns name and share")
    found: dict[str, float] = {}
    for line, row in enumerate(rows, 2):
        try:
            share = float(row["share"])
        except (ValueError, TypeError):
            share = -1.0
        if not 0 <= share < float("inf"):
            raise InputError(f"{name}: line {line}: share must be a number >= 0, got {row}")
        found[row["name"]] = share
    return found


def _reader(columns: set[str], name: str) -> Callable[[Row], Fields]:
    for known, read in _FORMS:
        if known <= columns:
            return read
    there = ", ".join(sorted(columns))[:200]
    raise InputError(f"{name}: no trace that is known here; it has the columns {there}")


def _philly(row: Row) -> Fields:
    submit = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp()
    return row["cluster"], int(row["num_gpus"]), submit, float(row["duration"])


def _astraea(row: Row) -> Fields:
    return row["user"], int(row["num_gpu"]), float(row["submit_time"]), float(row["duration"])


def _openb(row: Row) -> Fields:
    begun = row["scheduled_time"] or row["creation_time"]
    run = float(row["deletion_time"]) - float(begun)
    return row["qos"], int(row["num_gpu"]), float(row["creation_time"]), run


_FORMS: tuple[tuple[set[str], Callable[[Row], Fields]], ...] = (
    ({"timestamp", "duration", "num_gpus", "cluster"}, _philly),
    ({"user", "num_gpu", "submit_time", "duration"}, _astraea),
    ({"qos", "num_gpu", "gpu_milli", "creation_time", "deletion_time"}, _openb),
)
