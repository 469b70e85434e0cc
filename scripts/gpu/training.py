#!/usr/bin/env python3
"""A training of a given size on one GPU that does what it is told, line by line, on its stdin.

    training.py GIB          weights, momentum and gradients together, all of them live

Every command is answered by one line of JSON. For scripts/gpu-acceptance checkpoint.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from slurm_ltgf import checkpoint
from slurm_ltgf.checkpoint.torch import Stage

WIDTH = 8192
LAYER_BYTES = WIDTH * WIDTH * 4
GIB = 1 << 30


class Training:
    """A stack of matrices, trained on numbers that its random generator makes."""

    def __init__(self, gib: float) -> None:
        torch.manual_seed(7)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.use_deterministic_algorithms(True)
        layers = max(round(gib * GIB / 3 / LAYER_BYTES), 1)
        with torch.device("cuda"):
            self.model = torch.nn.Sequential(
                *(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers))
            )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.stage = Stage(model=self.model, optimizer=self.optimizer)
        self.live_bytes = 3 * layers * LAYER_BYTES

    def do_step(self, count: str = "1") -> dict[str, Any]:
        """Some steps; their losses to the last bit."""
        losses = []
        began = time.monotonic()
        for _ in range(int(count)):
            self.one()
            losses.append(self.loss.item().hex())
        return {"losses": losses, "step_s": (time.monotonic() - began) / int(count)}

    def one(self) -> None:
        self.optimizer.zero_grad(set_to_none=False)
        value = torch.randn(64, WIDTH, device="cuda")
        for layer in self.model:
            value = torch.tanh(layer(value) * 4)
        self.loss = (value - 0.5).square().mean()
        self.loss.backward()
        self.optimizer.step()

    def do_sum(self) -> dict[str, Any]:
        """A sum over every bit of the weights."""
        total = 0
        for weight in self.model.parameters():
            total ^= int(weight.detach().view(torch.int32).sum(dtype=torch.int64).item())
        return {"sum": total}

    def do_prepare(self) -> dict[str, Any]:
        """Take and pin the host memory of the fast path."""
        began = time.monotonic()
        size = self.stage.prepare()
        self.stage._reserve([]).ready()
        return {"bytes": size, "seconds": time.monotonic() - began}

    def do_pause(self) -> dict[str, Any]:
        return timed(self.stage.pause)

    def do_resume(self) -> dict[str, Any]:
        return timed(self.stage.resume)

    def do_save(self, path: str) -> dict[str, Any]:
        """As people do it: weights, optimizer and random generators by torch.save."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "cpu": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(),
        }
        found = timed(lambda: torch.save(state, path))
        return {**found, "bytes": Path(path).stat().st_size}

    def do_load(self, path: str) -> dict[str, Any]:
        def load() -> None:
            state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            torch.set_rng_state(state["cpu"])
            torch.cuda.set_rng_state(state["cuda"])

        return timed(load)

    def do_limit(self) -> dict[str, Any]:
        """The machine's own limit: the best of five copies of 4 GiB of pinned memory each way."""
        host = torch.empty(4 * GIB, dtype=torch.uint8, pin_memory=True)
        device = torch.empty(4 * GIB, dtype=torch.uint8, device="cuda")
        best = [0.0, 0.0]
        for _ in range(5):
            for way, (to, of) in enumerate(((host, device), (device, host))):
                took = timed(lambda to=to, of=of: to.copy_(of, non_blocking=True))["seconds"]
                best[way] = max(best[way], 4 * GIB / took / 1e9)
        del host, device
        torch.cuda.empty_cache()
        return {"out_gb_s": best[0], "in_gb_s": best[1]}

    def do_hoard(self, gib: str) -> dict[str, Any]:
        """Take memory and free it: PyTorch keeps it."""
        parts = [torch.ones(GIB // 4, device="cuda") for _ in range(int(gib))]
        torch.cuda.synchronize()
        del parts
        return {"reserved": torch.cuda.memory_reserved()}

    def do_empty(self) -> dict[str, Any]:
        """Give back what PyTorch keeps."""
        return timed(torch.cuda.empty_cache)

    def do_overhead(self, folder: str) -> dict[str, Any]:
        """What asking costs: alone, and in a loop of steps, with and without in turns."""
        os.environ.update(SLURM_JOB_ID="1", LTGF_CKPT_RECORDS=folder, LTGF_CKPT_DIR=f"{folder}/d")
        session = checkpoint.session()
        calls, began = 300_000, time.perf_counter()
        for number in range(calls):
            session.requested(number)
        each_s = (time.perf_counter() - began) / calls
        with_s, without_s, step = [], [], calls
        for turn in range(10):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(100):
                self.one()
                step += 1
                if turn % 2:
                    session.requested(step)
            torch.cuda.synchronize()
            (with_s if turn % 2 else without_s).append((time.perf_counter() - began) / 100)
        return {
            "call_s": each_s,
            "step_with_s": sorted(with_s),
            "step_without_s": sorted(without_s),
            "steps": 500,
        }


def timed(work: Any) -> dict[str, Any]:
    """Seconds from an idle GPU to an idle GPU."""
    torch.cuda.synchronize()
    began = time.monotonic()
    work()
    torch.cuda.synchronize()
    return {"seconds": time.monotonic() - began}


def main() -> None:
    """Do what is told."""
    training = Training(float(sys.argv[1]))
    print(json.dumps({"live_bytes": training.live_bytes}), flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        try:
            answer = getattr(training, f"do_{name}")(*words)
        except (RuntimeError, OSError) as exc:
            answer = {"error": str(exc).splitlines()[0]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
