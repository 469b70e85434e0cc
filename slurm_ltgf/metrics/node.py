"""A node's GPUs as families of samples: held against used, per GPU and, if wanted, per job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from slurm_ltgf.metrics.gpu_jobs import Holders, holders
from slurm_ltgf.metrics.nvml import Gpu, Nvml
from slurm_ltgf.metrics.samples import filled, label


def families(nvml: Nvml, folder: Path | None, *, most_jobs: int) -> Iterator[Any]:
    """All families of this node.

    Args:
        folder: of the GPU-to-job files; None: there is none.
        most_jobs: jobs told of one by one, those with most GPUs first.

    Raises:
        NvmlError: the driver does not answer.
    """
    gpus = nvml.look()
    held = holders(gpus, folder)
    yield from _of_gpus(gpus, held)
    yield from _of_jobs(gpus, held, most_jobs)


def _of_gpus(gpus: Sequence[Gpu], held: Holders) -> Iterator[Any]:
    infos = [((str(gpu.index), label(gpu.uuid), label(gpu.model)), 1.0) for gpu in gpus]
    yield from filled("ltgf_node_gpu_info", infos)
    values: dict[str, list[float | None]] = {
        "ltgf_node_gpu_utilization_ratio": [gpu.utilization for gpu in gpus],
        "ltgf_node_gpu_memory_used_bytes": [gpu.memory_used for gpu in gpus],
        "ltgf_node_gpu_memory_bytes": [gpu.memory for gpu in gpus],
        "ltgf_node_gpu_processes": [_count(gpu.processes) for gpu in gpus],
        "ltgf_node_gpu_mps_clients": [_count(gpu.mps_clients) for gpu in gpus],
        "ltgf_node_gpu_jobs": [_count(held.jobs[gpu.index]) for gpu in gpus],
    }
    for name, found in values.items():
        places = [(str(gpu.index),) for gpu in gpus]
        yield from filled(name, zip(places, found, strict=True))


def _count(some: Iterable[int] | None) -> int | None:
    return None if some is None else len(frozenset(some))


def _of_jobs(gpus: Sequence[Gpu], held: Holders, most: int) -> Iterator[Any]:
    of_job: dict[int, list[Gpu]] = {}
    for gpu in gpus:
        for job in held.jobs[gpu.index] or ():
            of_job.setdefault(job, []).append(gpu)
    told = sorted(of_job, key=lambda job: (-len(of_job[job]), job))[:most]
    counts = [((str(job),), float(len(of_job[job]))) for job in told]
    yield from filled("ltgf_node_job_gpus", counts)
    used = [((str(job),), _used(job, of_job[job], held)) for job in told]
    yield from filled("ltgf_node_job_used_gpus", used)


def _used(job: int, gpus: Iterable[Gpu], held: Holders) -> float | None:
    """GPUs' worth of utilisation; None: the driver does not tell whose it is."""
    total = 0.0
    for gpu in gpus:
        part = _part(job, gpu, held)
        if part is None:
            return None
        total += part
    return total


def _part(job: int, gpu: Gpu, held: Holders) -> float | None:
    """A job's part of one GPU's utilisation: all of it if it is alone there."""
    if held.jobs[gpu.index] == frozenset({job}):
        return gpu.utilization
    if gpu.utilization is None or gpu.use_of is None:
        return None
    if any(pid not in held.job_of for pid in gpu.use_of):
        return None
    return sum(part for pid, part in gpu.use_of.items() if held.job_of[pid] == job)
