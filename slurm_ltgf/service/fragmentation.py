"""Fragmentation of the site's pools now: `Site` is what Slurm shows, `state` what it means.

For `ltgf frag`, the report and the exporter. Nothing here asks slurmdbd: `look` costs one squeue,
one sinfo and two short scontrol; whoever has a queue and a capacity already makes a `Site` of them
and saves the first two. What was asked for in the past comes from the ledger (`past_demand`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurm_ltgf.core.fragmentation import Demand, Kind, Parts, PoolState, parts_of, pool_state
from slurm_ltgf.core.gpus import MIG
from slurm_ltgf.core.model import NO_LIMIT, Runs
from slurm_ltgf.core.pools import Place, Shape
from slurm_ltgf.service import places as records
from slurm_ltgf.slurm.jobs import demand_tasks
from slurm_ltgf.slurm.nodes import Capacity, Node
from slurm_ltgf.slurm.queue import Queue
from slurm_ltgf.slurm.reservations import Reservation
from slurm_ltgf.slurm.shapes import amounts
from slurm_ltgf.slurm.site import Partition
from slurm_ltgf.slurm.text import expand_hostlist

RESERVED, PARTITION_LIMITS = "reservation", "partition limits"

#: What was asked for: a shape, and by how many jobs.
Asked = Sequence[tuple[Shape, int]]


@dataclass(frozen=True, slots=True)
class FragmentationEdges:
    """What fragmentation asks of Slurm."""

    queue: Callable[[], Queue]
    capacity: Callable[[], Capacity]
    reservations: Callable[[], Sequence[Reservation]]
    partitions: Callable[[], Sequence[Partition]]


@dataclass(frozen=True, slots=True)
class Site:
    """What Slurm shows at one moment."""

    now: int
    queue: Queue
    capacity: Capacity
    reservations: Sequence[Reservation] = ()
    partitions: Sequence[Partition] = ()


def look(edges: FragmentationEdges, *, now: int) -> Site:
    """The site now.

    Raises:
        SlurmUnavailable, SlurmRefused: Slurm does not tell.
    """
    return Site(
        now, edges.queue(), edges.capacity(), edges.reservations(), edges.partitions()
    )  # fmt: skip


def state(site: Site, past: Asked = ()) -> tuple[PoolState, ...]:
    """Every pool (partition × GPU type) as it is now, by name.

    A node in several partitions is in several pools: sums over pools count it more than once.

    Args:
        past: what to measure a pool by for which nothing waits.
    """
    waiting = pending_demand(site)
    default = default_types(site.capacity.nodes)
    names = {
        (name, kind)
        for node in site.capacity.nodes
        for name in node.partitions
        for kind in node.gpus
    }
    return tuple(_pool(site, *name, (waiting, past), default) for name in sorted(names))


def pending_demand(site: Site) -> list[tuple[Shape, int]]:
    """What waits for nothing but GPUs, as Slurm ranks it: the shape, and how many tasks."""
    tasks = demand_tasks(site.queue.jobs, site.now)
    ranked = sorted(site.queue.pending, key=lambda job: (-job.priority, job.submit, job.job_id))
    return [
        (shape, tasks[job.job_id])
        for job in ranked
        if tasks[job.job_id] and (shape := records.shape(job)) is not None
    ]


def past_demand(runs: Runs) -> list[tuple[Shape, int]]:
    """What jobs asked for in the past, each job once however often it was requeued.

    CPUs and memory are not in the ledger: a job is taken to have needed one CPU a node.
    """
    jobs_once = runs.take(np.unique(runs.job_id, return_index=True)[1])
    columns = jobs_once.partition, jobs_once.gres, jobs_once.gres_requested, jobs_once.nodes
    codes = np.stack([column.codes for column in columns], axis=1)
    kinds, counts = np.unique(codes, axis=0, return_counts=True)
    counted: Counter[tuple[str, str, int, int]] = Counter()
    for row, jobs in zip(kinds.tolist(), counts.tolist(), strict=True):
        partition, gres, requested, nodes = (
            column.names[code] for column, code in zip(columns, row, strict=True)
        )
        kind, gpus = records.devices(gres or requested)
        if gpus:
            counted[partition, kind, gpus, _host_count(nodes)] += jobs
    return [
        (Shape(0, partition.split(","), kind, float(gpus), nodes), jobs)
        for (partition, kind, gpus, nodes), jobs in sorted(counted.items())
    ]


def _host_count(nodes: str) -> int:
    """On how many nodes a run was; 1 where its node list cannot be read."""
    try:
        return len(expand_hostlist(nodes)) or 1
    except ValueError:
        return 1


# --- a pool ---------------------------------------------------------------------------------------


def _pool(
    site: Site, name: str, kind: str, asked: tuple[Asked, Asked], default: Mapping[str, str]
) -> PoolState:
    found = places_in(site, name, kind)
    per_node = max(place.gpus for place in found)
    waiting, past = (_kinds(which, name, kind, per_node, default.get(name, "")) for which in asked)
    if waiting:
        demand = Demand(waiting, "pending")
    else:
        demand = Demand(past, "history") if past else Demand()
    others = any(name in shape.partitions for shape, _ in asked[0])
    is_mig = bool(MIG.search(kind)) and not waiting and others
    return pool_state(name, kind, found, demand, mig=is_mig)


def _kinds(
    asked: Asked, partition: str, gpu_type: str, per_node: int, default: str
) -> tuple[Kind, ...]:
    """What was asked of a pool; who names no type is asked of the one with most GPUs."""
    found: Counter[Parts] = Counter()
    for shape, jobs in asked:
        if partition in shape.partitions and (shape.gpu_type or default) == gpu_type:
            found[parts_of(shape, per_node)] += jobs
    return tuple(Kind(parts, jobs) for parts, jobs in found.items())


def default_types(nodes: Iterable[Node]) -> dict[str, str]:
    """Partition -> the GPU type of which it has most."""
    counts: dict[str, Counter[str]] = {}
    for node in nodes:
        for name in node.partitions:
            counts.setdefault(name, Counter()).update(node.gpus)
    return {
        name: min(by_type, key=lambda kind: (-by_type[kind], kind))
        for name, by_type in counts.items()
        if by_type
    }


def places_in(site: Site, partition: str, gpu_type: str) -> list[Place]:
    """The nodes of a pool, with what keeps jobs from them."""
    limits = next((one for one in site.partitions if one.name == partition), Partition(partition))
    reserved = reserved_nodes(site)
    used = _cpus_used(site, partition) if limits.max_cpus != NO_LIMIT else {}
    found = []
    for node in site.capacity.nodes:
        if partition not in node.partitions:
            continue
        for place in records.places(node):
            if place.gpu_type == gpu_type:
                found.append(_limited(place, limits, reserved, used.get(node.name, 0.0)))
    return found


def _limited(
    place: Place, limits: Partition, reserved: Mapping[str, str], cpus_used: float
) -> Place:
    barred = place.barred
    if not barred and place.node in reserved:
        barred = RESERVED
    if not barred and limits.state not in ("UP", ""):
        barred = f"partition {limits.state.lower()}"
    left = max(limits.max_cpus - cpus_used, 0)
    if left < place.free_cpus:
        return replace(place, barred=barred, free_cpus=left, cpus_by=PARTITION_LIMITS)
    return replace(place, barred=barred)


def reserved_nodes(site: Site) -> dict[str, str]:
    """Node -> reservation that is on and has the whole node."""
    cpus = {node.name: node.cpus for node in site.capacity.nodes}
    found = {}
    for one in site.reservations:
        is_whole = one.cpus >= sum(cpus.get(name, 0) for name in one.nodes)
        if one.is_on(site.now) and is_whole:
            found.update(dict.fromkeys(one.nodes, one.name))
    return found


def _cpus_used(site: Site, partition: str) -> dict[str, float]:
    """Node -> CPUs that jobs of a partition hold there."""
    found: dict[str, float] = {}
    for job in site.queue.holding:
        nodes = expand_hostlist(job.nodes) if job.partition == partition else []
        for node in nodes:
            found[node] = found.get(node, 0.0) + amounts(job.tres).cpus / len(nodes)
    return found
