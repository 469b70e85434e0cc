"""Programs on a GPU that are told what to do, and the driver's whole cycle over one of them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TRAINING = ROOT / "scripts" / "gpu" / "training.py"


class Program:
    """A training that runs, and answers."""

    def __init__(self, gib: float, **variables: str) -> None:
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        env.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", **variables)
        self.process = subprocess.Popen(
            [sys.executable, str(TRAINING), str(gib)], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.live_bytes: int = self.answer()["live_bytes"]

    def answer(self) -> dict[str, Any]:
        """What it says next. RuntimeError: it died."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the training died: exit {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def tell(self, *words: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def do(self, *words: object) -> dict[str, Any]:
        """Tell it something; its answer."""
        self.tell(*words)
        return self.answer()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            assert self.process.stdin
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def program(gib: float, **variables: str) -> Iterator[Program]:
    found = Program(gib, **variables)
    try:
        yield found
    finally:
        found.end()


def driver_cycle(pid: int) -> dict[str, Any]:
    """Lock, checkpoint, restore, unlock by the driver: seconds of each, GPU memory between."""
    from slurm_ltgf.checkpoint.driver import Cuda, start
    from slurm_ltgf.checkpoint.phases import Op

    device, took = Cuda(), {}
    for op in (Op.LOCK, Op.CHECKPOINT, Op.RESTORE, Op.UNLOCK):
        call = start(device, op, pid, timeout_s=10)
        call.is_done(300)
        took[str(op)] = call.seconds
        if call.error:
            return {**took, "error": call.error}
        if op is Op.CHECKPOINT:
            took["gpu_mib_meanwhile"] = used_mib()
    pause_s, resume_s = took["lock"] + took["checkpoint"], took["restore"] + took["unlock"]
    return {**took, "pause_s": pause_s, "resume_s": resume_s}


def used_mib() -> int:
    """GPU memory in use, all GPUs."""
    smi = shutil.which("nvidia-smi", path="/usr/local/nvidia/bin:/usr/bin:/usr/local/bin")
    done = subprocess.run(
        [str(smi), "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sum(map(int, done.stdout.split()))
