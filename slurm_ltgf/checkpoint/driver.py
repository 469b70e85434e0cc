"""The CUDA driver's checkpoint of one process: lock, checkpoint, restore, unlock, each with an end.

A checkpoint by the driver moves a process's GPU memory into its host memory and gives the GPU back;
the process stands still in its next CUDA call meanwhile. Calls of the driver cannot be broken off,
so each is made in a child of its own, which is waited for as long as the caller likes: what it does
goes on, and `states` shows when it came to an end.

Needs cuda-core (`pip install slurm-ltgf[gpu]`) and a driver of release 570 or later.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from slurm_ltgf.checkpoint.phases import Op, Stage
from slurm_ltgf.errors import LtgfError

#: The most that a child tells: a pipe holds it, so it need not wait to be read.
_LINE_BYTES = 60_000
#: A driver that does not say where its processes are within so long hangs.
STATES_S = 20.0


class DriverError(LtgfError):
    """The driver did not do it: which, to which process, why."""

    exit_code = 75


class Device(Protocol):
    """What can lock and checkpoint the GPU memory of processes."""

    def state(self, pid: int) -> Stage | None:
        """Where a process is; None: it has no GPU memory."""

    def act(self, op: Op, pid: int, timeout_s: float) -> None:
        """Do it; returns when it is done. timeout_s: of the lock alone.

        Raises:
            DriverError: it is not done.
        """


class Cuda:
    """The real driver, by cuda-core."""

    def __init__(self) -> None:
        if importlib.util.find_spec("cuda") is None or not _has_checkpoint():
            raise DriverError(
                "cuda.core.checkpoint cannot be imported: pip install 'slurm-ltgf[gpu]'"
            )
        from cuda.core import checkpoint

        self._process: Callable[[int], Any] = checkpoint.Process
        self._gpus: dict[str, str] = {}

    def remap(self, gpus: Mapping[str, str]) -> None:
        """Which GPU takes whose place at a restore, by UUID; {}: they are the same ones."""
        self._gpus = {
            old.removeprefix("GPU-"): new.removeprefix("GPU-") for old, new in gpus.items()
        }

    def state(self, pid: int) -> Stage | None:
        """Where a process is; None: it has no GPU memory, or is gone."""
        try:
            return Stage(str(self._process(pid).state))
        except Exception:  # of the driver's many, all mean that it does not know the process
            return None

    def act(self, op: Op, pid: int, timeout_s: float) -> None:
        """Do it; returns when it is done."""
        process = self._process(pid)
        try:
            if op is Op.LOCK:
                process.lock(timeout_ms=max(int(timeout_s * 1000), 1))
            elif op is Op.CHECKPOINT:
                process.checkpoint()
            elif op is Op.RESTORE:
                process.restore(self._gpus or None)
            else:
                process.unlock()
        except Exception as exc:  # the driver's errors have no common class
            raise DriverError(f"{op} of process {pid}: {_first_line(exc)}") from exc


class Missing:
    """No driver's checkpoint on this node: processes run on, and preflight says why."""

    def __init__(self, why: str) -> None:
        self._why = why

    def remap(self, gpus: Mapping[str, str]) -> None:
        """Nothing is restored here."""

    def state(self, pid: int) -> Stage | None:
        """Where a process with the driver's library is, as nobody can have touched it."""
        return Stage.RUNNING

    def act(self, op: Op, pid: int, timeout_s: float) -> None:
        """Cannot be done."""
        raise DriverError(f"{op} of process {pid}: {self._why}")


def _has_checkpoint() -> bool:
    try:
        return importlib.util.find_spec("cuda.core.checkpoint") is not None
    except ImportError:
        return False


def _first_line(exc: Exception) -> str:
    return (str(exc) or type(exc).__name__).strip().splitlines()[0][:300]


@dataclass(slots=True)
class Call:
    """One thing that a child does. answer: what it told; None: it is at it."""

    pid: int
    pipe: int
    began: float
    answer: str | None = None

    def is_done(self, wait_s: float = 0.0) -> bool:
        """Whether it has come to an end, be it well or not."""
        if self.answer is None and select.select([self.pipe], [], [], wait_s)[0]:
            parts = iter(lambda: os.read(self.pipe, _LINE_BYTES), b"")
            self.answer = b"".join(parts).decode(errors="replace") or "!died"
            os.close(self.pipe)
            os.waitpid(self.pid, 0)
        return self.answer is not None

    @property
    def error(self) -> str:
        """Why it failed; "" if it did not, or is not done."""
        told = self.answer or ""
        return told.removeprefix("!") if told.startswith("!") else ""

    @property
    def seconds(self) -> float:
        """For how long it is at it."""
        return time.monotonic() - self.began

    def kill(self) -> None:
        """Wait no more."""
        if self.answer is None:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            self.is_done(5.0)


def call(work: Callable[[], str]) -> Call:
    """Do something in a child: it tells one line, or why it could not (`LtgfError`, `OSError`)."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _in_child(work, writer)
    os.close(writer)
    return Call(pid, reader, time.monotonic())


def _in_child(work: Callable[[], str], writer: int) -> NoReturn:
    code = 1
    try:
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            line = "=" + work()
            code = 0
        except (LtgfError, OSError) as exc:
            line = f"!{exc}"
        except BaseException as exc:  # a child must not come back out of its function
            line = f"!{type(exc).__name__}: {exc}"
        os.write(writer, line.encode(errors="replace")[:_LINE_BYTES])
    finally:
        os._exit(code)


def result(done: Call, wait_s: float, what: str) -> str:
    """What a child told, once it has.

    Raises:
        DriverError: it failed, or takes longer.
    """
    if not done.is_done(wait_s):
        done.kill()
        raise DriverError(f"{what}: no answer in {wait_s:g} s")
    if done.error:
        raise DriverError(f"{what}: {done.error}")
    return (done.answer or "=")[1:]


def start(device: Device, op: Op, pid: int, *, timeout_s: float) -> Call:
    """Begin something; `Call.is_done` tells when the driver is through with it."""

    def work() -> str:
        device.act(op, pid, timeout_s)
        return ""

    return call(work)


def states(device: Device, pids: Iterable[int]) -> dict[int, Stage]:
    """Where processes are; those without GPU memory are left out.

    Raises:
        DriverError: the driver does not answer.
    """
    asked = [pid for pid in pids if may_have_gpu(pid)]
    if not asked:
        return {}

    def work() -> str:
        found = ((pid, device.state(pid)) for pid in asked)
        return " ".join(f"{pid}={stage}" for pid, stage in found if stage is not None)

    told = result(call(work), STATES_S, "where GPU processes are")
    pairs: Mapping[str, str] = dict(word.split("=") for word in told.split())
    return {int(pid): Stage(stage) for pid, stage in pairs.items()}


def may_have_gpu(pid: int) -> bool:
    """Whether a process has the CUDA driver's library; a checkpointed one has it still."""
    try:
        with Path(f"/proc/{pid}/maps").open("rb") as file:
            return any(b"libcuda.so" in line for line in file)
    except OSError:
        return False
