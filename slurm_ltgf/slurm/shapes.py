"""What jobs ask for besides GPUs: nodes, CPUs and memory, and what binds them to nodes."""

from __future__ import annotations

import re
from typing import NamedTuple

from slurm_ltgf.slurm.queue import DELIMITER, ENVIRONMENT
from slurm_ltgf.slurm.run import run

_UNITS = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_MEMORY = re.compile(r"([\d.]+)([KMGTP]?)")


class Amounts(NamedTuple):
    """The parts of a job's TRES that are no GPUs. nodes: of a waiting job at least so many."""

    cpus: int = 0
    memory_mb: int = 0
    nodes: int = 1


def amounts(tres: str) -> Amounts:
    """Read a TRES list of squeue, over all nodes; what it does not tell is 0, and one node.

    >>> amounts("cpu=12,mem=1.50G,node=2,billing=12,gres/gpu=4")
    Amounts(cpus=12, memory_mb=1536, nodes=2)
    """
    cells = dict(token.partition("=")[::2] for token in tres.split(","))
    memory = _MEMORY.fullmatch(cells.get("mem", ""))
    return Amounts(
        cpus=_count(cells.get("cpu", ""), 0),
        memory_mb=round(float(memory[1]) * _UNITS[memory[2]]) if memory else 0,
        nodes=max(_count(cells.get("node", ""), 1), 1),
    )


def _count(text: str, default: int) -> int:
    return int(text) if text.isdecimal() else default


def nodes_asked() -> dict[int, int]:
    """Job id -> nodes, of all that wait: squeue's NumNodes, a lower bound.

    Raises:
        SlurmUnavailable, SlurmRefused: squeue failed.
    """
    columns = f"JobID:{DELIMITER},NumNodes:{DELIMITER}"
    found = {}
    for line in run(
        ["squeue", "-h", "-a", "-t", "PD", "-O", columns], env_extra=ENVIRONMENT
    ).splitlines():
        cells = line.split(DELIMITER)
        if len(cells) == 3 and cells[0].isdecimal():
            count = cells[1].split("-")[0]
            found[int(cells[0])] = int(count) if count.isdecimal() else 1
    return found
