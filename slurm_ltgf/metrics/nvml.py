"""What NVML, the NVIDIA driver's library, tells of this node's GPUs: the one place that asks it.

What the driver does not tell is None: a card under MIG has no utilisation of its own, an old driver
no list of MPS clients, and an unprivileged user may not see the processes of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from slurm_ltgf.errors import LtgfError

_T = TypeVar("_T")


class NvmlError(LtgfError):
    """The driver does not answer; the message says why. On a node without GPUs there is none."""

    exit_code = 74


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU now. minor: the N of /dev/nvidiaN, by which Slurm counts. mig: UUIDs of its parts.

    utilization: part of the last moments in which a kernel ran, 0..1. memory in bytes. processes:
    ids of those with a compute context; mps_clients: of those of them that come through MPS.
    use_of: process id -> its own part of utilization, of those that had some since the last look.
    """

    index: int
    uuid: str
    minor: int | None = None
    model: str = ""
    utilization: float | None = None
    memory_used: int | None = None
    memory: int | None = None
    processes: frozenset[int] | None = None
    mps_clients: frozenset[int] | None = None
    use_of: Mapping[int, float] | None = None
    mig: tuple[str, ...] = ()


@dataclass(slots=True)
class Nvml:
    """The driver, asked anew at each look."""

    _nvml: Any = None
    _seen_until: dict[str, int] = field(default_factory=dict)

    def look(self) -> list[Gpu]:
        """All GPUs of this node.

        Raises:
            NvmlError: there is no driver, or it does not answer.
        """
        nvml = self._nvml or _opened()
        try:
            found = [self._gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as exc:
            self.close()
            raise NvmlError(f"NVML: the driver does not answer: {exc}") from exc
        self._nvml = nvml
        return found

    def close(self) -> None:
        """Let go of the driver; the next look begins anew."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            _known(nvml, nvml.nvmlShutdown)

    def _gpu(self, nvml: Any, index: int) -> Gpu:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = str(nvml.nvmlDeviceGetUUID(handle))
        rates = _known(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = _known(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        return Gpu(
            index,
            uuid,
            minor=_known(nvml, lambda: int(nvml.nvmlDeviceGetMinorNumber(handle))),
            model=_known(nvml, lambda: str(nvml.nvmlDeviceGetName(handle))) or "",
            utilization=None if rates is None else rates.gpu / 100,
            memory_used=None if memory is None else int(memory.used),
            memory=None if memory is None else int(memory.total),
            processes=_pids(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
            mps_clients=_pids(nvml, lambda: nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)),
            use_of=self._use_of(nvml, handle, uuid),
            mig=_mig(nvml, handle),
        )

    def _use_of(self, nvml: Any, handle: Any, uuid: str) -> dict[int, float] | None:
        """The mean of each process's samples since the last look."""
        since = self._seen_until.get(uuid, 0)
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, since)
        except nvml.NVMLError_NotFound:
            return {}  # nobody has used it since
        except nvml.NVMLError:
            return None
        self._seen_until[uuid] = max((one.timeStamp for one in samples), default=since)
        parts: dict[int, list[float]] = {}
        for one in samples:
            if one.pid and one.smUtil <= 100:  # unused entries of the driver's buffer
                parts.setdefault(int(one.pid), []).append(one.smUtil / 100)
        return {pid: sum(some) / len(some) for pid, some in parts.items()}


def _opened() -> Any:
    try:
        import pynvml
    except ImportError as exc:
        raise NvmlError(
            "NVML: nvidia-ml-py is not installed: pip install 'slurm-ltgf[gpu]'"
        ) from exc
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as exc:
        raise NvmlError(f"NVML: no NVIDIA driver on this node: {exc}") from exc
    return pynvml


def _known(nvml: Any, ask: Callable[[], _T]) -> _T | None:
    """An answer, or None where the driver has none for this card or this user."""
    try:
        return ask()
    except nvml.NVMLError:
        return None


def _pids(nvml: Any, ask: Callable[[], Any]) -> frozenset[int] | None:
    found = _known(nvml, ask)
    return None if found is None else frozenset(int(one.pid) for one in found)


def _mig(nvml: Any, handle: Any) -> tuple[str, ...]:
    """UUIDs of the MIG devices that the card is cut into."""
    most = _known(nvml, lambda: int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))) or 0
    uuids = [_known(nvml, partial(_mig_uuid, nvml, handle, at)) for at in range(most)]
    return tuple(uuid for uuid in uuids if uuid)


def _mig_uuid(nvml: Any, handle: Any, place: int) -> str:
    return str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)))
