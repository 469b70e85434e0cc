"""On how many nodes waiting jobs ask to be: squeue's NumNodes, a lower bound."""

from __future__ import annotations

from slurm_ltgf.slurm.queue import DELIMITER, ENVIRONMENT
from slurm_ltgf.slurm.run import run


def nodes_asked() -> dict[int, int]:
    """Job id -> nodes, of all that wait.

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
