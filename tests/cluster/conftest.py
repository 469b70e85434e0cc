"""Clusters for the tests of this folder, one a Slurm series, anew for each file of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from where import PORT, STATE, STATE_TRIXIE, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab import Lab


@pytest.fixture(scope="module")
def cluster() -> Iterator[Lab]:
    """Debian 12's Slurm 22.05: 4 nodes of 8 GPUs, accounts astro=4, bio=2, chem=1."""
    yield from running(STATE, PORT)


@pytest.fixture(scope="module")
def trixie() -> Iterator[Lab]:
    """The same with Debian 13's Slurm 24.11; the first use installs it, which takes minutes."""
    yield from running(STATE_TRIXIE, PORT + 1000, "--series", "trixie")
