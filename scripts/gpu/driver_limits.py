"""What the driver's checkpoint cannot do: managed memory, a resume while the GPU is full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from programs import driver_cycle, program

Check = Callable[..., None]


def limits(check: Check) -> dict[str, Any]:
    """Whom the driver refuses, how managed memory shows, and a resume while the GPU is full."""
    from slurm_ltgf.checkpoint.driver import Cuda, start
    from slurm_ltgf.checkpoint.phases import Op
    from slurm_ltgf.checkpoint.preflight import verdict

    device = Cuda()
    seen: dict[str, Any] = {}
    none = device.state(os.getpid())
    check("a process without GPU has no state", none, ok=none is None)
    with program(2) as one:
        one.do("step", 2)
        pid = one.process.pid

        def act(op: Op) -> str:
            call = start(device, op, pid, timeout_s=10)
            call.is_done(60)
            return str(call.error)

        said, needs = verdict([pid])
        check("preflight of a plain training", said or f"nothing; {needs}", ok=not said)
        act(Op.LOCK)
        act(Op.CHECKPOINT)
        with hog():
            seen["restore on a full GPU"] = act(Op.RESTORE) or "done"
            seen["state then"] = str(device.state(pid))
        seen["restore once it is free"] = act(Op.RESTORE) or "done"
        # not to the training's good: why the agent looks for room before it restores
        print(f"      {seen}", flush=True)
        one.process.kill()
    seen["managed"] = managed(check)
    return seen


@contextmanager
def hog() -> Iterator[None]:
    """Another program that has all of the GPU's memory."""
    code = (
        "import torch\nkept = []\nfor size in (1 << 30, 1 << 26):\n    try:\n"
        "        while True: kept.append(torch.empty(size, dtype=torch.uint8, device='cuda'))\n"
        "    except torch.OutOfMemoryError: pass\n"
        "print(1, flush=True)\nimport sys; sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout
    assert child.stdin
    child.stdout.readline()
    try:
        yield
    finally:
        child.stdin.close()
        child.wait(30)


MANAGED = """
import sys
from cuda.bindings import driver
print(driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(0), file=sys.stderr)
err, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)
if sys.argv[1] == "managed":
    err, at = driver.cuMemAllocManaged(64 << 20, 1)
    driver.cuMemsetD8(at, 1, 64 << 20)
else:
    err, at = driver.cuMemAlloc(64 << 20)
driver.cuCtxSynchronize()
print(err, flush=True)
sys.stdin.readline()
err, = driver.cuCtxSynchronize()
print(err, flush=True)
"""


def managed(check: Check) -> dict[str, Any]:
    """What /proc shows of managed memory, and what the driver says to its checkpoint."""
    from slurm_ltgf.checkpoint.preflight import has_managed

    seen: dict[str, Any] = {}
    for kind in ("plain", "managed"):
        child = subprocess.Popen(
            [sys.executable, "-c", MANAGED, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert child.stdout
        assert child.stdin
        first = child.stdout.readline().strip()
        maps = Path(f"/proc/{child.pid}/maps").read_text().splitlines()
        lines = [line for line in maps if line.endswith("/dev/nvidia-uvm")]
        fds = [str(path.readlink()) for path in Path(f"/proc/{child.pid}/fd").iterdir()]
        cycle = driver_cycle(child.pid)
        seen[kind] = {
            "said": first, "maps": lines, "cycle": cycle,
            "fds": sorted({fd for fd in fds if "nvidia" in fd}),
        }  # fmt: skip
        print(f"      {kind}: {json.dumps(seen[kind])}", flush=True)
        child.stdin.close()
        seen[kind]["then"] = child.stdout.readline().strip()
        child.wait(30)
    told = {kind: has_managed("\n".join(seen[kind]["maps"])) for kind in seen}
    check("managed memory is told by the maps", told, ok=told == {"plain": False, "managed": True})
    refused = seen["managed"]["cycle"].get("error", "")
    check("the driver refuses it, the process goes on", refused, ok=bool(refused))
    return seen
