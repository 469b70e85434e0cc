"""Where the clusters of this test session are: their state directories and ports.

Two sessions at once need a state directory and ports of their own: LTGF_TEST_STATE=/run/other
LTGF_TEST_PORT=12000, below those that the kernel gives to outgoing connections (32768). Workers of
pytest-xdist each have theirs, 2,600 ports apart: the second series takes the path with -t13 and the
port + 1000, and some tests start a cluster between.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from lab import Lab

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
