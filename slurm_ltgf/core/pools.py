"""Pools of nodes: which of a site's nodes can take which jobs, as rooms for `core.lease`.

A pool is the set of nodes of one GPU type in the partitions that a job may use. Pools that have
only some of their nodes in common are not decided in one pass: the first that has a job waits for
no other, the rest have their turn in the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurm_ltgf.core.room import Node, Room


@dataclass(frozen=True, slots=True)
class Place:
    """A node with GPUs of one type. free: GPUs that no job holds; inf CPUs, MiB: not looked at.

    barred: why no new job may start there ("drain", "reservation", ...); "": it is open.
    cpus_by: what keeps jobs from more CPUs than are free.
    """

    node: str
    partitions: frozenset[str]
    gpu_type: str
    gpus: int
    free: int
    cpus: float = math.inf
    free_cpus: float = math.inf
    memory_mb: float = math.inf
    free_memory_mb: float = math.inf
    barred: str = ""
    cpus_by: str = "CPUs"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job asks for, over all its nodes. gpus: devices. gpu_type: "" for any."""

    job_id: int
    partitions: Sequence[str]
    gpu_type: str
    gpus: float
    nodes: int = 1
    cpus: int = 0
    memory_mb: int = 0

    def parts(self, per_node: int) -> tuple[float, ...]:
        """GPUs on each of its nodes, on as few as it asked for and as can be."""
        count = max(self.nodes, math.ceil(self.gpus / per_node)) if per_node else self.nodes
        if self.gpus % count == 0:
            return (self.gpus / count,) * count
        whole, rest = divmod(self.gpus, per_node)
        if whole + (rest > 0) == count:
            return (float(per_node),) * int(whole) + ((rest,) if rest else ())
        return (math.ceil(self.gpus / count),) * count


@dataclass(frozen=True, slots=True)
class Pools:
    """Rooms by pool, and the pool of each waiting job that is decided now.

    put_off: waiting jobs whose pool shares nodes with one that is decided now.
    """

    rooms: Mapping[str, Room]
    pool_of: Mapping[int, str]
    put_off: tuple[int, ...] = ()


def pools_of(
    places: Sequence[Place],
    shapes: Iterable[Shape],
    held: Mapping[int, Mapping[str, float]],
    *,
    promised: Iterable[Shape] = (),
    types: Mapping[int, str | None] | None = None,
) -> Pools:
    """The pools of the waiting jobs, in their order.

    Args:
        places: each node once for each GPU type.
        held: running job that may have to leave -> node -> GPUs.
        promised: jobs for which others made room already: they get it first.
        types: running job -> type of the GPUs that it holds, None: not known, then it frees none;
            of nodes with one type it need not be told.
    """
    taken: dict[frozenset[tuple[str, str]], list[Shape]] = {}
    put_off = []
    known: dict[tuple[tuple[str, ...], str], frozenset[tuple[str, str]]] = {}
    for shape in (*promised, *shapes):
        kind = (tuple(shape.partitions), shape.gpu_type)
        if kind not in known:  # many jobs ask alike, of thousands of nodes
            known[kind] = _nodes_for(shape, places)
        nodes = known[kind]
        if nodes in taken:
            taken[nodes].append(shape)
        elif nodes and not any(nodes & other for other in taken):
            taken[nodes] = [shape]
        else:
            put_off.append(shape.job_id)
    by_key = {(place.node, place.gpu_type): place for place in places}
    given = {shape.job_id for shape in promised}
    rooms, pool_of = {}, {}
    for i, (nodes, asking) in enumerate(taken.items()):
        here = [by_key[key] for key in sorted(nodes)]
        room = _room(here, asking, _of_type(held, types or {}, here[0].gpu_type))
        for shape in asking:
            if shape.job_id in given and room.fits(shape.job_id):
                room.take(shape.job_id)
        rooms[str(i)] = room
        pool_of.update({shape.job_id: str(i) for shape in asking if shape.job_id not in given})
    return Pools(rooms, pool_of, tuple(job_id for job_id in put_off if job_id not in given))


def _nodes_for(shape: Shape, places: Sequence[Place]) -> frozenset[tuple[str, str]]:
    """Nodes that a job can use; of those that ask for no type, the type with most GPUs."""
    wanted = set(shape.partitions)
    fit = [place for place in places if wanted & place.partitions]
    if shape.gpu_type:
        fit = [place for place in fit if place.gpu_type == shape.gpu_type]
    elif fit:
        totals: dict[str, int] = {}
        for place in fit:
            totals[place.gpu_type] = totals.get(place.gpu_type, 0) + place.gpus
        best = max(sorted(totals), key=totals.__getitem__)
        fit = [place for place in fit if place.gpu_type == best]
    return frozenset((place.node, place.gpu_type) for place in fit)


def _of_type(
    held: Mapping[int, Mapping[str, float]], types: Mapping[int, str | None], kind: str
) -> dict[int, Mapping[str, float]]:
    """Running jobs that hold GPUs of a type, as far as is known."""
    return {job_id: on for job_id, on in held.items() if types.get(job_id, kind) == kind}


def _room(
    places: Sequence[Place], asking: Sequence[Shape], held: Mapping[int, Mapping[str, float]]
) -> Room:
    names = {place.node for place in places}
    here: dict[int, dict[Node, float]] = {
        job_id: {node: gpus for node, gpus in on.items() if node in names}
        for job_id, on in held.items()
        if names & set(on)
    }
    per_node = max(place.gpus for place in places)
    parts = {job_id: tuple(on.values()) for job_id, on in held.items() if job_id in here}
    return Room(
        {place.node: float(place.free) for place in places},
        here,
        parts | {shape.job_id: shape.parts(per_node) for shape in asking},
    )
