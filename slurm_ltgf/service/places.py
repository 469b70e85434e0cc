"""Slurm's nodes and jobs as places and shapes: what is free where, what jobs ask for and hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_ltgf.core.pools import Place, Shape
from slurm_ltgf.slurm.jobs import QueueJob
from slurm_ltgf.slurm.nodes import Node, parts
from slurm_ltgf.slurm.shapes import amounts
from slurm_ltgf.slurm.text import expand_hostlist


def places(node: Node) -> list[Place]:
    """A node once for each type of its GPUs, a closed one too.

    GPUs that jobs share by mps or shard are not free; a node's CPUs and memory are in all of them.
    """
    used, shared = node.gpus_used, node.gpus_shared
    return [
        Place(
            node.name,
            frozenset(node.partitions),
            kind,
            count,
            max(count - used.get(kind, 0) - shared[kind], 0),
            cpus=node.cpus,
            free_cpus=max(node.cpus - node.cpus_used, 0),
            memory_mb=node.memory_mb,
            free_memory_mb=max(node.memory_mb - node.memory_used_mb, 0),
            barred=node.closed_by,
        )
        for kind, count in node.gpus.items()
    ]


def shape(job: QueueJob, nodes: int | None = None) -> Shape | None:
    """What a job asks for in devices; None: no whole GPUs.

    Args:
        nodes: on how many nodes at least; None: as its TRES list says.
    """
    kind, count = devices(job.gres)
    if not count:
        return None
    asked = amounts(job.tres)
    return Shape(
        job.job_id, job.partition.split(","), kind, float(count), nodes or asked.nodes,
        asked.cpus, asked.memory_mb,
    )  # fmt: skip


def held(job: QueueJob) -> dict[str, float]:
    """Node -> devices of a running job; {}: not known, or no whole GPUs."""
    nodes = expand_hostlist(job.nodes)
    total = devices(job.gres)[1]
    if not nodes or not total or total % len(nodes):
        return {}
    return dict.fromkeys(nodes, total / len(nodes))


def type_held(
    job: QueueJob, on: Mapping[str, float], kinds: Mapping[str, Sequence[str]]
) -> str | None:
    """The type of the GPUs that a job holds; None: its nodes have several, and it named none."""
    there = {kind for node in on for kind in kinds.get(node, ())}
    return devices(job.gres)[0] or (there.pop() if len(there) == 1 else None)


def devices(gres: str) -> tuple[str, int]:
    """Type ("": it names none) and number of whole GPUs of canonical text."""
    found = [(kind, count) for name, kind, count in parts(gres) if name == "gpu"]
    kind = next((kind for kind, _ in found if kind), "")
    return kind, max((count for _, count in found), default=0)
