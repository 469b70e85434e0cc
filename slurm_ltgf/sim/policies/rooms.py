"""The virtual cluster as core.lease sees it: a room a node type."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from slurm_ltgf.core.room import Node, Room
from slurm_ltgf.sim.cluster import Cluster
from slurm_ltgf.sim.workload import Job


class Rooms:
    """Pools are node types, by number; a job that asks for none gets that with most GPUs to give.

    Args:
        over: running jobs that may have to leave.
        pending: waiting ones.
    """

    def __init__(self, cluster: Cluster, over: Sequence[Job], pending: Sequence[Job]) -> None:
        self._cluster = cluster
        self.pool_of: dict[int, str] = {}
        self.by_pool: dict[str, Room] = {}
        if len(cluster.types) == 1:
            self._add(0, range(cluster.types[0].count), over, pending)
            return
        ends = list(accumulate(kind.count for kind in cluster.types))
        nodes = [
            range(end - kind.count, end) for end, kind in zip(ends, cluster.types, strict=True)
        ]
        there = [[job for job in over if job.nodes[0][0] in span] for span in nodes]
        free = [
            sum(cluster.free[node] for node in span) + sum(job.gpus for job in jobs)
            for span, jobs in zip(nodes, there, strict=True)
        ]
        wanted: list[list[Job]] = [[] for _ in nodes]
        for job in pending:
            fit = [
                i
                for i, kind in enumerate(cluster.types)
                if not job.gpu_type or job.gpu_type == kind.gpu_type
            ]
            wanted[max(fit, key=free.__getitem__)].append(job)
        for i, span in enumerate(nodes):
            self._add(i, span, there[i], wanted[i])

    def _add(self, kind: int, nodes: range, over: Sequence[Job], pending: Sequence[Job]) -> None:
        pool = str(kind)
        self.pool_of.update((job.job_id, pool) for job in (*over, *pending))
        free: dict[Node, float] = {node: self._cluster.free[node] for node in nodes}
        if self._cluster.placement != "consolidated":
            self.by_pool[pool] = Room.counted(
                sum(free.values()),
                {job.job_id: job.gpus for job in over},
                {job.job_id: job.gpus for job in pending},
            )
            return
        per_node = self._cluster.types[kind].gpus
        self.by_pool[pool] = Room(
            free,
            {job.job_id: dict(job.nodes) for job in over},
            {job.job_id: _parts(job.gpus, per_node) for job in (*over, *pending)},
        )


@lru_cache
def _parts(gpus: int, per_node: int) -> tuple[float, ...]:
    """GPUs on each node, on as few as can be."""
    whole, rest = divmod(gpus, per_node)
    return (float(per_node),) * whole + ((float(rest),) if rest else ())
