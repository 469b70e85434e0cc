"""Which processes of which jobs are on this node, as slurmd says: `scontrol listpids`."""

from __future__ import annotations

from slurm_ltgf.errors import SlurmRefused
from slurm_ltgf.slurm import requeue
from slurm_ltgf.slurm.run import run
from slurm_ltgf.slurm.text import expand_hostlist


def processes(node: str) -> dict[int, frozenset[int]]:
    """Job id -> the processes of its steps; jobs without any are left out. For root, on the node.

    Raises:
        SlurmUnavailable, SlurmRefused: scontrol cannot tell.
    """
    try:
        shown = run(["scontrol", "listpids", "*", node], timeout_s=20)
    except SlurmRefused as exc:
        if "No job steps" in str(exc):
            return {}
        raise
    found: dict[int, set[int]] = {}
    for line in shown.splitlines():
        pid, job_id, *_ = [*line.split(), "", ""]
        if pid.isdecimal() and job_id.isdecimal() and int(pid) > 1:
            found.setdefault(int(job_id), set()).add(int(pid))
    return {job_id: frozenset(pids) for job_id, pids in found.items()}


def seat(job_id: int, node: str) -> tuple[int, int, int, int] | None:
    """A running job's user, its restart count, this node's number in it, and how many it has.

    None: Slurm does not show it running here.

    Raises:
        SlurmUnavailable, SlurmRefused: squeue failed.
    """
    for one in requeue.find(str(job_id)):
        nodes = expand_hostlist(one.job.nodes)
        if one.job.job_id == job_id and one.job.state == "RUNNING" and node in nodes:
            return one.uid, one.job.restarts, nodes.index(node), len(nodes)
    return None
