"""Clusters for the tests of this folder, one a Slurm series, each for the whole session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    yield from running("/run/ltgf-test", 22000)


@pytest.fixture(scope="session")
def trixie() -> Iterator[Lab]:
    """The same with Debian 13's Slurm 24.11; the first use installs it, which takes minutes."""
    yield from running("/run/ltgf-t13", 23000, "--series", "trixie")
