"""Which job has which GPU of this node: by the files that the prolog writes, or by processes.

The files are those of the SPANK plugin's gpumap= or gpustat=, which dcgm-exporter and jobstats
know: one a GPU, named by its index or UUID as Slurm names it, a job's id at the begin of each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slurm_ltgf.metrics.nvml import Gpu

PROC = Path("/proc")
MOST_BYTES = 65536

_CGROUP = re.compile(r"/job_(\d{1,10})(?:/|$)", re.MULTILINE)
#: Where a job's own MPS daemon has its pipe, and so has the server that it started.
_PIPE = re.compile(rb"(?:^|\0)CUDA_MPS_PIPE_DIRECTORY=[^\0]*/(\d{1,10})/mps\.\d+/p(?:\0|$)")
_LINE = re.compile(r"^(\d{1,10})(?:\s|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Holders:
    """Jobs of each GPU, by its index. None: whether one has it is not known."""

    jobs: dict[int, frozenset[int] | None]
    job_of: dict[int, int]


def holders(gpus: Iterable[Gpu], folder: Path | None) -> Holders:
    """Who holds what. Without the files only a GPU that is worked on is known to be held."""
    jobs: dict[int, frozenset[int] | None] = {}
    job_of: dict[int, int] = {}
    for gpu in gpus:
        seen = gpu.processes or gpu.mps_clients or frozenset()
        everybody = seen | (gpu.mps_clients or frozenset()) | frozenset(gpu.use_of or ())
        found = {pid: job for pid in everybody if (job := job_of_process(pid)) is not None}
        job_of |= found
        by_files = _by_files(gpu, folder)
        by_processes = frozenset(found.values())
        jobs[gpu.index] = (by_processes or None) if by_files is None else by_files | by_processes
    return Holders(jobs, job_of)


def job_of_process(pid: int) -> int | None:
    """The job that a process belongs to: by its cgroup, or as the job's MPS server; else None."""
    try:
        found = _CGROUP.search((PROC / str(pid) / "cgroup").read_text(errors="replace"))
    except OSError:
        return None
    if found:
        return int(found[1])
    try:
        pipe = _PIPE.search((PROC / str(pid) / "environ").read_bytes())
    except OSError:  # somebody else's
        return None
    return int(pipe[1]) if pipe else None


def _by_files(gpu: Gpu, folder: Path | None) -> frozenset[int] | None:
    """None: there are no files."""
    if folder is None or not folder.is_dir():
        return None
    place = gpu.index if gpu.minor is None else gpu.minor
    names = (str(place), gpu.uuid, *gpu.mig)
    return frozenset(job for name in names for job in _in_file(folder / name))


def _in_file(path: Path) -> list[int]:
    try:
        with path.open(errors="replace") as file:
            return [int(job) for job in _LINE.findall(file.read(MOST_BYTES))]
    except OSError:
        return []
