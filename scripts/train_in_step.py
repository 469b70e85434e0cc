#!/usr/bin/env python3
"""A training run whose end is known to the last bit: ranks in step, checkpointed by ltgf.

    srun -n4 scripts/train_in_step.py --steps 2000 --step-ms 10 --result DIR

Pure Python, no GPU. At each step every rank draws a number, all ranks get the sum, and each folds
it into its state; floats and the generator's state are what a checkpoint must bring back exactly.
A rank that is left alone in the sum ends with an error, as NCCL does. `expected()` is the end of an
undisturbed run. A file `fault-RANK` in the checkpoint folder makes that rank die, hang for a while,
or find the disk full at its next save: a word and seconds. With --end FILE the last step is what
that file says, once it is there: well ahead of where any rank is.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from slurm_ltgf import checkpoint

ALONE_S = 120
LOOK_EVERY = 50


class State:
    """What one rank has learnt."""

    def __init__(self, rank: int) -> None:
        self.value = float(rank)
        self.random = random.Random(rank)

    def draw(self) -> float:
        """This rank's part of the step."""
        return self.random.gauss(0, 1) + self.value * 1e-3

    def learn(self, total: float) -> None:
        """Fold the sum over all ranks in."""
        self.value = self.value * 0.999 + total / 3

    def save(self, path: Path) -> None:
        """Write it down, exactly."""
        version, internal, gauss_next = self.random.getstate()
        content = {"value": self.value.hex(), "random": [version, list(internal), gauss_next]}
        path.write_text(json.dumps(content))

    def load(self, path: Path) -> None:
        """Read it back."""
        content = json.loads(path.read_text())
        version, internal, gauss_next = content["random"]
        self.value = float.fromhex(content["value"])
        self.random.setstate((version, tuple(internal), gauss_next))


class Ranks:
    """The sum over all ranks, by one socket from each rank to the first."""

    def __init__(self, rank: int, ranks: int, meeting: Path) -> None:
        self.rank = rank
        self.links: list[socket.socket] = []
        if ranks == 1:
            return
        if rank == 0:
            with socket.create_server(("", 0)) as server:
                fresh = meeting.with_name(f".{meeting.name}.new")
                host = socket.gethostbyname(socket.gethostname())
                fresh.write_text(f"{host} {server.getsockname()[1]}")
                fresh.rename(meeting)
                server.settimeout(ALONE_S)
                self.links = [server.accept()[0] for _ in range(ranks - 1)]
        else:
            self.links = [_meet(meeting)]
        for link in self.links:
            link.settimeout(ALONE_S)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def total(self, own: float) -> float:
        """The sum, the same for all, added up in one order."""
        if not self.links:
            return own
        if self.rank:
            self.links[0].sendall(struct.pack("<Id", self.rank, own))
            return float(struct.unpack("<d", _receive(self.links[0], 8))[0])
        parts = dict(struct.unpack("<Id", _receive(link, 12)) for link in self.links)
        total = sum((parts[rank] for rank in sorted(parts)), own)
        for link in self.links:
            link.sendall(struct.pack("<d", total))
        return float(total)


def _meet(meeting: Path) -> socket.socket:
    """A link to rank 0; what it wrote may be of an earlier launch, then it is not there."""
    end = time.monotonic() + ALONE_S
    while time.monotonic() < end:
        try:
            host, port = meeting.read_text().split()
            return socket.create_connection((host, int(port)), timeout=ALONE_S)
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.05)
    sys.exit("rank 0 does not come")


def _receive(link: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = link.recv(size - len(content))
        if not part:
            sys.exit("another rank is gone")
        content += part
    return content


def expected(steps: int, ranks: int) -> list[str]:
    """Every rank's value at the end of an undisturbed run."""
    states = [State(rank) for rank in range(ranks)]
    for _ in range(steps):
        parts = [state.draw() for state in states]
        total = sum(parts[1:], parts[0])
        for state in states:
            state.learn(total)
    return [state.value.hex() for state in states]


def fault(folder: Path, rank: int) -> None:
    """Do the wrong that was ordered, once."""
    path = folder / f"fault-{rank}"
    if not path.exists():
        return
    kind, _, seconds = path.read_text().partition(" ")
    path.unlink()
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "hang":
        time.sleep(float(seconds))
    elif kind == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def main(argv: Sequence[str] | None = None) -> int:
    """Train, from wherever the last checkpoint is, to the end."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--step-ms", type=float, default=10, help="how long a step takes")
    options.add_argument("--result", type=Path, help="folder for the values at the end")
    options.add_argument("--end", type=Path, help="file with the last step, looked at now and then")
    given = options.parse_args(argv)

    ckpt = checkpoint.session()
    place = ckpt.place
    state = State(place.rank)
    if ckpt.last:
        state.load(ckpt.last / f"rank-{place.rank}.json")
    ranks = Ranks(place.rank, place.ranks, place.folder / f"meeting-{place.launch}")
    step, last = ckpt.step, given.steps
    while step < last:
        step += 1
        if given.end and step % LOOK_EVERY == 0 and given.end.exists():
            last = int(given.end.read_text())
        time.sleep(given.step_ms / 1000)
        state.learn(ranks.total(state.draw()))
        if ckpt.requested(step):
            with ckpt.commit(step) as folder:
                fault(place.folder, place.rank)
                state.save(folder / f"rank-{place.rank}.json")
            if ckpt.must_stop:
                return 0
    if given.result:
        fresh = given.result / f".result-{place.rank}"
        fresh.write_text(state.value.hex())
        fresh.rename(given.result / f"result-{place.rank}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
