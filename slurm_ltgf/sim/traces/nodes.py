"""The machine to simulate: lists of nodes, read from files or words, and the jobs that fit it."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from slurm_ltgf.core.model import Skipped
from slurm_ltgf.errors import InputError, UsageError
from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.workload import Job, Workload

_SPEC = re.compile(r"(\d{1,6})x(\d{1,4})((?::[\w.\- ]+)*)")
_MEMORY = {"M": 1, "G": 1 << 10, "T": 1 << 20}
_OPENB = {"sn", "cpu_milli", "memory_mib", "gpu", "model"}
TOO_LARGE = "no nodes of the cluster have what it asks for"
NO_SUCH_TYPE = "the cluster has no GPU of its type"


def read_nodes(text: str) -> list[NodeType]:
    """Nodes of words, NODESxGPUS[:TYPE][:CPUSc][:MEMORYG] and more after commas, or of a file.

    A file is one of openb's node lists; its nodes without GPU are left out.

    Raises:
        UsageError: neither words that are nodes, nor a file.
        InputError: the file is something else.

    >>> read_nodes("16x8:a100:128c:1000G,2x4")[0]
    NodeType(count=16, gpus=8, gpu_type='a100', cpus=128, memory_mib=1024000)
    """
    specs = [_SPEC.fullmatch(part.strip()) for part in text.split(",")]
    if all(specs):
        return [_of_words(spec) for spec in specs if spec is not None]
    try:
        with Path(text).open(newline="", encoding="utf-8", errors="replace") as lines:
            return _of_openb(csv.DictReader(lines), text)
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        raise UsageError(
            f"{text}: neither nodes like 16x8:a100:128c:1000G nor a file: {why}"
        ) from exc


def _of_words(spec: re.Match[str]) -> NodeType:
    kind, cpus, memory_mib = "", 0, 0
    for word in filter(None, spec[3].split(":")):
        if re.fullmatch(r"\d{1,9}c", word):
            cpus = int(word[:-1])
        elif re.fullmatch(r"\d{1,9}[MGT]", word):
            memory_mib = int(word[:-1]) * _MEMORY[word[-1]]
        elif re.fullmatch(r"\d+[A-Za-z]", word):
            raise UsageError(f"{spec[0]}: {word} is neither CPUs (128c) nor memory (M, G, T)")
        else:
            kind = word
    try:
        return NodeType(int(spec[1]), int(spec[2]), kind, cpus, memory_mib)
    except ValueError as exc:
        raise UsageError(f"{spec[0]}: {exc}") from exc


def _of_openb(rows: csv.DictReader[str], name: str) -> list[NodeType]:
    columns = set(rows.fieldnames or ())
    if not columns >= _OPENB:
        raise InputError(f"{name}: a list of nodes needs the columns {', '.join(sorted(_OPENB))}")
    counts: Counter[tuple[str, int, int, int]] = Counter()
    try:
        for row in rows:
            gpus, cpus = int(row["gpu"]), int(row["cpu_milli"]) // 1000
            if gpus:
                counts[row["model"] or "", gpus, cpus, int(row["memory_mib"])] += 1
        found = [
            NodeType(count, gpus, kind, cpus, memory_mib)
            for (kind, gpus, cpus, memory_mib), count in sorted(counts.items())
        ]
    except (ValueError, TypeError, csv.Error) as exc:
        raise InputError(f"{name}: line {rows.line_num}: {exc}") from exc
    if not found:
        raise InputError(f"{name}: no node with a GPU")
    return found


def fitted(work: Workload, nodes: Sequence[NodeType]) -> Workload:
    """The workload without what the nodes could never run; those jobs are named.

    Where no node tells its type, jobs of a type run on any. Types are compared without case.
    """
    kinds = {kind.gpu_type.lower(): kind.gpu_type for kind in nodes if kind.gpu_type}
    cluster = Cluster(nodes)
    known: dict[tuple[int, str, int, int], tuple[str | None, str]] = {}
    jobs: list[Job] = []
    out: list[Skipped] = []
    untyped = 0
    for job in work.jobs:
        ask = (job.gpus, job.gpu_type, job.cpus, job.memory_mib)
        if ask not in known:
            known[ask] = _fit(job, kinds, cluster)
        kind, why = known[ask]
        if kind is None:
            out.append(Skipped(0, why, f"{work.name}: job {job.job_id}"))
            continue
        untyped += bool(job.gpu_type and not kind)
        jobs.append(job if kind == job.gpu_type else replace(job, gpu_type=kind))
    notes = [f"{untyped} jobs ask for a GPU type; the nodes tell none"] if untyped else []
    return Workload(tuple(jobs), (*work.skipped, *out), work.name, (*work.notes, *notes))


def _fit(job: Job, kinds: dict[str, str], cluster: Cluster) -> tuple[str | None, str]:
    """The type that a job is to ask for, None if it can never run, and why not."""
    kind = kinds.get(job.gpu_type.lower()) if kinds and job.gpu_type else ""
    if kind is None:
        return None, NO_SUCH_TYPE
    asked = replace(job, gpu_type=kind)
    if job.gpus > cluster.largest(asked) or (cluster.counts_hosts and not cluster.find(asked)):
        return None, TOO_LARGE
    return kind, ""
