"""Why the driver cannot checkpoint a job: asked of its processes before anything is done to them.

A checkpoint that the driver begins and cannot end loses the job (NCCL's default settings: it
succeeds, and the restore fails). So every known reason is looked for first, and each says what to
do. What cannot be told is a reason too.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
#: The first release whose checkpoint PyTorch and NVML survive.
LEAST_DRIVER = (570,)
#: Of a process that is checkpointed, beside its GPU memory.
SPARE_BYTES = 1 << 30
_VARIABLE = re.compile(r"(NCCL|CUDA)_\w+|WORLD_SIZE|SLURM_STEP_NUM_TASKS|OMPI_COMM_WORLD_SIZE")
#: The driver's own mappings lie below this address.
_OWN_BELOW = 1 << 40
_APP = "let the program save itself: --ckpt=app"
GpuBytes = Callable[[Iterable[int]], Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One GPU process. gpu_bytes: None if nobody can tell. ranks: that work together with it."""

    pid: int
    name: str = ""
    gpu_bytes: int | None = None
    has_mps: bool = False
    has_mig: bool = False
    has_managed: bool = False
    has_nccl: bool = False
    ranks: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """A node and the GPU processes of a job on it. driver: its release; None: there is none.

    room_bytes: of host memory that the job may still take; None if nobody can tell.
    """

    driver: tuple[int, ...] | None
    machine: str
    has_api: bool
    room_bytes: int | None
    processes: tuple[ProcessFacts, ...]


def verdict(pids: Iterable[int], *, has_api: bool = True) -> tuple[str, dict[str, int]]:
    """Why processes that have GPU memory cannot be checkpointed, "" if they can.

    And how many bytes they have of each GPU, by its UUID: to be free when they are to go on.
    """
    pids = list(pids)
    used = gpu_memory(pids)
    facts = look(pids, has_api=has_api, gpu_bytes=lambda asked: _sums(used))
    needs: dict[str, int] = {}
    for by_gpu in used.values():
        for gpu, size in by_gpu.items():
            needs[gpu] = needs.get(gpu, 0) + size
    return "; ".join(refusals(facts)), needs


def _sums(used: Mapping[int, Mapping[str, int]]) -> dict[int, int]:
    return {pid: sum(by_gpu.values()) for pid, by_gpu in used.items()}


def refusals(facts: Facts) -> list[str]:
    """Every reason not to try, with what to do; nothing: it can be tried."""
    return [*_of_node(facts), *_of_memory(facts), *_of_processes(facts.processes)]


def _of_node(facts: Facts) -> Iterator[str]:
    if facts.driver is None:
        yield "no NVIDIA driver is loaded on the node"
    elif facts.driver < LEAST_DRIVER:
        found, least = ".".join(map(str, facts.driver)), LEAST_DRIVER[0]
        yield (
            f"driver {found}: checkpoints that NVML and PyTorch survive need release {least}"
            f" or later; update it, or {_APP}"
        )
    if facts.machine != "x86_64":
        yield f"the driver checkpoints on x86_64 alone, this is {facts.machine}; {_APP}"
    if not facts.has_api:
        yield "cuda.core.checkpoint is missing on the node: pip install 'slurm-ltgf[gpu]'"
    if not facts.processes:
        yield "no process of the job uses a GPU on the node (yet)"


def _of_memory(facts: Facts) -> Iterator[str]:
    unknown = [one.pid for one in facts.processes if one.gpu_bytes is None]
    if unknown:
        yield f"process {unknown[0]}: nobody can tell how much GPU memory it has; {_APP}"
        return
    if not facts.processes:
        return
    needed = sum(one.gpu_bytes or 0 for one in facts.processes) + SPARE_BYTES
    if facts.room_bytes is None:
        yield "nobody can tell how much host memory is free on the node"
    elif facts.room_bytes < needed:
        yield (
            f"its GPU memory needs {_gib(needed)} of host memory and the job may take"
            f" {_gib(facts.room_bytes)} more: ask for more by --mem, or {_APP}"
        )


def _of_processes(processes: Iterable[ProcessFacts]) -> Iterator[str]:
    for one in processes:
        who = f"process {one.pid}" + (f" ({one.name})" if one.name else "")
        if one.has_mps:
            yield f"{who} is a client of MPS, which the driver cannot checkpoint; {_APP}"
        if one.has_mig:
            yield f"{who} uses a MIG instance, which the driver cannot checkpoint; {_APP}"
        if one.has_managed:
            yield f"{who} has managed (UVM) memory, which the driver cannot checkpoint; {_APP}"
        if one.has_nccl and one.ranks > 1 and not nccl_can(one.environment):
            yield (
                f"{who} uses NCCL with peer-to-peer memory: its checkpoint succeeds and its"
                " restore fails, which loses the job. Start it with NCCL_P2P_DISABLE=1"
                f" NCCL_CUMEM_HOST_ENABLE=0 (slower on NVLink), or {_APP}"
            )


def nccl_can(environment: Mapping[str, str]) -> bool:
    """Whether NCCL was told to share no GPU memory between processes.

    >>> nccl_can({"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_HOST_ENABLE": "0"})
    True
    """
    is_alone = environment.get("NCCL_P2P_DISABLE") == "1"
    host = environment.get("NCCL_CUMEM_HOST_ENABLE") == "0"
    shm = environment.get("NCCL_SHM_DISABLE") == "1" and environment.get("NCCL_CUMEM_ENABLE") == "0"
    return is_alone and (host or shm)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


# --- looking --------------------------------------------------------------------------------------


def look(pids: Iterable[int], *, has_api: bool, gpu_bytes: GpuBytes) -> Facts:
    """The facts of this node and of these processes, which have GPU memory."""
    pids = sorted(pids)
    used = gpu_bytes(pids)
    return Facts(
        driver=driver_release(),
        machine=platform.machine(),
        has_api=has_api,
        room_bytes=room_bytes(pids),
        processes=tuple(facts_of(pid, used.get(pid)) for pid in pids),
    )


def driver_release() -> tuple[int, ...] | None:
    """The loaded driver's; None: there is none."""
    try:
        text = (PROC / "driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"\s(\d+(?:\.\d+)+)\s", text)
    return tuple(map(int, found[1].split("."))) if found else None


def facts_of(pid: int, gpu_bytes: int | None) -> ProcessFacts:
    """What /proc shows of one process; its variables are those that it was started with."""
    environment = _environment(pid)
    maps = _read(pid, "maps")
    return ProcessFacts(
        pid=pid,
        name=_read(pid, "comm").strip(),
        gpu_bytes=gpu_bytes,
        has_mps=_has_mps(environment),
        has_mig="MIG-" in environment.get("CUDA_VISIBLE_DEVICES", "") or _has_capability(pid),
        has_managed=has_managed(maps),
        has_nccl="libnccl" in maps,
        ranks=max(
            int(environment.get(name, "")) if environment.get(name, "").isdecimal() else 1
            for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
        ),
        environment=environment,
    )


def has_managed(maps: str) -> bool:
    """Whether a process has managed memory: the device's mappings other than the driver's own.

    The driver maps one for itself in every CUDA process, at a low address.

    >>> has_managed("204a00000-204c00000 rw-s 204a00000 00:06 144    /dev/nvidia-uvm")
    False
    """
    lines = [line for line in maps.splitlines() if line.endswith("/dev/nvidia-uvm")]
    return any(int(line.partition("-")[0], 16) >= _OWN_BELOW for line in lines)


def _has_mps(environment: Mapping[str, str]) -> bool:
    pipe = environment.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"
    return os.path.lexists(f"{pipe}/control")


def _has_capability(pid: int) -> bool:
    """Whether it has a MIG instance open; NVML opens 1 and 2 (MIG's config and monitor) always."""
    with contextlib.suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                found = re.fullmatch(r"/dev/nvidia-caps/nvidia-cap(\d+)", str(entry.readlink()))
                if found is not None and int(found[1]) > 2:
                    return True
    return False


def _environment(pid: int) -> dict[str, str]:
    pairs = (word.partition("=") for word in _read(pid, "environ").split("\0"))
    return {name: value for name, _, value in pairs if _VARIABLE.fullmatch(name)}


def _read(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_text(errors="replace")
    except OSError:
        return ""


def room_bytes(pids: Iterable[int]) -> int | None:
    """How much host memory these processes may still take: the machine's and their cgroups'."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _file(PROC / "meminfo"), re.MULTILINE)
    if found is None:
        return None
    return min([int(found[1]) * 1024, *(room for pid in pids for room in _cgroup_rooms(pid))])


def _cgroup_rooms(pid: int) -> Iterator[int]:
    """What is left of the limit of each cgroup (version 2) above a process."""
    found = re.search(r"^0::(/.*)$", _read(pid, "cgroup"), re.MULTILINE)
    group = Path(found[1].lstrip("/")) if found else Path()
    for folder in (group, *group.parents):
        most = _file(CGROUPS / folder / "memory.max").strip()
        now = _file(CGROUPS / folder / "memory.current").strip()
        if most.isdecimal() and now.isdecimal():
            yield max(int(most) - int(now), 0)


def _file(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def gpu_memory(pids: Iterable[int]) -> dict[int, dict[str, int]]:
    """Of each process and GPU, by its UUID; who is left out is not known to NVML."""
    wanted, found = set(pids), dict[int, dict[str, int]]()
    for uuid, device, nvml in _devices():
        for one in nvml.nvmlDeviceGetComputeRunningProcesses(device):
            if one.pid in wanted and one.usedGpuMemory is not None:
                found.setdefault(one.pid, {})[uuid] = int(one.usedGpuMemory)
    return found


def free_memory() -> dict[str, int]:
    """Bytes of each GPU that nobody has, by its UUID; {}: NVML cannot tell."""
    return {
        uuid: int(nvml.nvmlDeviceGetMemoryInfo(device).free) for uuid, device, nvml in _devices()
    }


def _devices() -> Iterator[tuple[str, Any, Any]]:
    """GPUs, as long as NVML tells of them: UUID, handle, NVML itself."""
    try:
        import pynvml
    except ImportError:
        return
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            device = pynvml.nvmlDeviceGetHandleByIndex(index)
            yield pynvml.nvmlDeviceGetUUID(device), device, pynvml
        pynvml.nvmlShutdown()
