"""The virtual cluster as core.lease sees it: a room a node type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

from slurm_ltgf.core.room import Node, Room
from slurm_ltgf.sim.cluster import Cluster, Nodes
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
        self.pool_of.update(dict.fromkeys((job.job_id for job in (*over, *pending)), pool))
        free: dict[Node, float] = dict(
            zip(nodes, self._cluster.free[nodes.start : nodes.stop], strict=True)
        )
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
            {job.job_id: _held(job.nodes) for job in over},
            _Parts({job.job_id: job.gpus for job in (*over, *pending)}, per_node),
        )


class _Parts(dict[int, tuple[float, ...]]):
    """Job id -> GPUs on each of its nodes, on as few as can be; told when it is asked for."""

    def __init__(self, gpus: Mapping[int, int], per_node: int) -> None:
        super().__init__()
        self._gpus = gpus
        self._per_node = per_node

    def __missing__(self, job_id: int) -> tuple[float, ...]:
        """Of a job that was not asked about before."""
        whole, rest = divmod(self._gpus[job_id], self._per_node)
        parts = (float(self._per_node),) * whole + ((float(rest),) if rest else ())
        self[job_id] = parts
        return parts


@lru_cache(maxsize=100_000)
def _held(nodes: Nodes) -> Mapping[Node, float]:
    """Node -> GPUs of it."""
    return dict(nodes)
