"""Clusters for the tests of this folder, one a Slurm series, each for the whole session.

Two sessions at once need a state directory and ports of their own: LTGF_TEST_STATE=/run/other
LTGF_TEST_PORT=31000 (the second series takes that path with -t13 and that port + 1000).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE = os.environ.get("LTGF_TEST_STATE", "/run/ltgf-test")
STATE_TRIXIE = f"{STATE.removesuffix('-test')}-t13"
PORT = int(os.environ.get("LTGF_TEST_PORT", "22000"))


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
