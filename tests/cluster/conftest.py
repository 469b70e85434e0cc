"""Clusters for the tests of this folder, one a Slurm series, each for the whole session.

Two sessions at once need a state directory and ports of their own: LTGF_TEST_STATE=/run/other
LTGF_TEST_PORT=12000, below those that the kernel gives to outgoing connections (32768). Workers of
pytest-xdist each have theirs, 2,600 ports apart: the second series takes the path with -t13 and the
port + 1000, and some tests start a cluster between.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
STATE = os.environ.get("LTGF_TEST_STATE", "/run/ltgf-test") + (f"-{WORKER}" if WORKER else "")
STATE_TRIXIE = f"{STATE}-t13"
PORT = int(os.environ.get("LTGF_TEST_PORT", "22000")) + 2600 * WORKER


def running(state: str, port: int, *args: str) -> Iterator[Lab]:
    lab = Lab(Path(state), port)
    lab.down("--purge")  # what a killed session left
    try:
        lab.up(*args)
        yield lab
    finally:
        lab.down("--purge")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Lab]:
    """Debian 12's Slurm 22.05: 4 nodes of 8 GPUs, accounts astro=4, bio=2, chem=1."""
    yield from running(STATE, PORT)


@pytest.fixture(scope="session")
def trixie() -> Iterator[Lab]:
    """The same with Debian 13's Slurm 24.11; the first use installs it, which takes minutes."""
    yield from running(STATE_TRIXIE, PORT + 1000, "--series", "trixie")
