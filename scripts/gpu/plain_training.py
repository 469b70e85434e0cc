#!/usr/bin/env python3
"""A training that knows nothing of checkpoints: a line a step, its loss to the last bit.

    plain_training.py GIB STEPS SECONDS_A_STEP [FILE: waits for it before it trains]

GIB of weights, momentum and gradients together. With 0 steps it only takes the memory, and holds it
until FILE is there. For scripts/gpu-acceptance outside.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

WIDTH = 4096
LAYER_BYTES = WIDTH * WIDTH * 4


def train(gib: float, steps: int, pace_s: float) -> None:
    """Numbers that depend on every step before."""
    torch.manual_seed(7)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.use_deterministic_algorithms(True)
    layers = max(round(gib * (1 << 30) / 3 / LAYER_BYTES), 1)
    with torch.device("cuda"):
        model = torch.nn.Sequential(
            *(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers))
        )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step in range(steps):
        began = time.monotonic()
        optimizer.zero_grad(set_to_none=False)
        value = torch.randn(64, WIDTH, device="cuda")
        for layer in model:
            value = torch.tanh(layer(value) * 4)
        loss = (value - 0.5).square().mean()
        loss.backward()
        optimizer.step()
        print(f"step {step} {loss.item().hex()}", flush=True)
        time.sleep(max(pace_s - (time.monotonic() - began), 0))
    print("done", flush=True)


def hold(gib: float, until: Path) -> None:
    """Take memory of the GPU and hold it until a file is there."""
    memory = [torch.ones(1 << 28, device="cuda") for _ in range(int(gib))]
    torch.cuda.synchronize()
    print(f"holds {len(memory)} GiB", flush=True)
    while not until.exists():
        time.sleep(0.1)
    print("done", flush=True)


def main() -> None:
    gib, steps, pace_s, *file = sys.argv[1:]
    if int(steps):
        train(float(gib), int(steps), float(pace_s))
    else:
        hold(float(gib), Path(file[0]))


if __name__ == "__main__":
    main()
