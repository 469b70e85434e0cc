"""How fragmented the free GPUs of a pool are, for the jobs that are asked for there.

A pool is the nodes of one GPU type in one partition. Its score is the part of its free GPUs that a
job of the demand, taken at random, could not be given (Weng et al., ATC'23, "Beware of
Fragmentation"):

    score = sum over kinds m of p_m · sum over nodes n of F_n(m)  /  free GPUs        in 0..1

p_m is the part of the jobs that are of kind m. F_n(m) is all that is free on node n if n could not
start a job of kind m now, else what of it no such job could reach because the node's CPUs or memory
end first (the paper looks at one job only, so that 7 free GPUs beside a single free CPU were not
fragmented; without CPUs and memory the two are the same). A job on several nodes counts as its
parts, each with an equal part of its p_m. What does not fit an empty pool either is no
fragmentation and counts in no score.

The second number, `variance`, is how unevenly the nodes are filled: 4 · the variance of the free
part of each node, 0..1. It knows nothing of what is asked for, see `variance`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_ltgf.core.pools import Place, Shape

Source = Literal["pending", "history", "none"]

CPUS, MEMORY, LAYOUT = "CPUs", "memory", "MIG layout"


@dataclass(frozen=True, slots=True)
class Part:
    """What a job takes of one of its nodes. cpus 0: not known, one at least; memory 0: none."""

    gpus: int
    cpus: int = 0
    memory_mb: int = 0

    def fits(self, gpus: float, cpus: float, memory_mb: float) -> bool:
        """Whether so much is enough for it."""
        return self.gpus <= gpus and max(self.cpus, 1) <= cpus and self.memory_mb <= memory_mb


Parts = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs that ask for the same. jobs: how many, each task of an array is one."""

    parts: Parts
    jobs: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one of them."""
        return sum(part.gpus for part in self.parts)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pool is measured by. source: what waits there now, else what did in the history."""

    kinds: tuple[Kind, ...] = ()
    source: Source = "none"


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node of a pool. usable: free GPUs that a job could be given; reason: why not all free."""

    node: str
    gpus: int
    free: int
    usable: int
    reason: str = ""

    @property
    def stranded(self) -> int:
        """Free GPUs that no job can be given."""
        return self.free - self.usable


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool at one moment. Counts are of GPUs as Slurm has them: a MIG slice is one.

    score, unallocatable_gpus: of `open_free_gpus`; None: nothing is free, or no demand is known.
    variance: None: no node is open.
    largest: GPUs of the largest job of whole nodes that could start now, or on one node if no node
    is free; largest_possible: what as many free GPUs could hold.
    blocked_jobs: of the demand, those for which enough GPUs are free, but not where they fit.
    too_large_jobs: those that do not fit the empty pool.
    """

    partition: str
    gpu_type: str
    nodes: tuple[NodeState, ...]
    demand: Demand
    score: float | None
    unallocatable_gpus: float | None
    variance: float | None
    largest: int
    largest_possible: int
    blocked_jobs: int = 0
    too_large_jobs: int = 0

    @property
    def name(self) -> str:
        """PARTITION/TYPE; the type is left out where the site tells none."""
        return f"{self.partition}/{self.gpu_type}" if self.gpu_type else self.partition

    @property
    def gpus(self) -> int:
        """GPUs of all its nodes."""
        return sum(node.gpus for node in self.nodes)

    @property
    def free_gpus(self) -> int:
        """GPUs that no job holds, stranded ones too."""
        return sum(node.free for node in self.nodes)

    @property
    def usable_gpus(self) -> int:
        """Free GPUs that jobs could be given, one by one."""
        return sum(node.usable for node in self.nodes)

    @property
    def stranded(self) -> dict[str, int]:
        """Reason -> free GPUs that no job can be given for it; sorted by reason."""
        found: Counter[str] = Counter()
        for node in self.nodes:
            found[node.reason] += node.stranded
        return {reason: gpus for reason, gpus in sorted(found.items()) if gpus}


def pool_state(
    partition: str, gpu_type: str, places: Sequence[Place], demand: Demand, *, mig: bool = False
) -> PoolState:
    """A pool as it is.

    Args:
        places: its nodes, closed ones too.
        mig: what is free is cut so that nothing of what waits in the partition can use it.
    """
    open_places = [place for place in places if not place.barred]
    kinds = [kind for kind in demand.kinds if _fits_empty(kind.parts, open_places)]
    least = _least(kinds)
    nodes = tuple(_node_state(place, least, mig=mig) for place in places)
    free = sum(place.free for place in open_places)
    lost = unallocatable(open_places, kinds) if kinds and free else None
    usable = [node.usable for node, place in zip(nodes, places, strict=True) if not place.barred]
    largest, possible = _largest(usable, max((place.gpus for place in open_places), default=0))
    return PoolState(
        partition,
        gpu_type,
        nodes,
        demand,
        score=None if lost is None else lost / free,
        unallocatable_gpus=lost,
        variance=variance(open_places),
        largest=largest,
        largest_possible=possible,
        blocked_jobs=_blocked(kinds, open_places, sum(usable)),
        too_large_jobs=sum(kind.jobs for kind in demand.kinds) - sum(kind.jobs for kind in kinds),
    )


def unallocatable(places: Iterable[Place], kinds: Sequence[Kind]) -> float:
    """Free GPUs that a job of the demand, taken at random, could not be given: its expectation."""
    weights: dict[Part, float] = {}
    for kind in kinds:
        for part in kind.parts:
            weights[part] = weights.get(part, 0.0) + kind.jobs / len(kind.parts)
    lost = [
        weight * _lost(place, part)
        for place in places
        if place.free
        for part, weight in weights.items()
    ]
    return math.fsum(lost) / math.fsum(weights.values())


def _lost(place: Place, part: Part) -> int:
    """F_n(m): what is free on a node and cannot be allocated to jobs of one kind."""
    if not part.fits(place.free, place.free_cpus, place.free_memory_mb):
        return place.free
    by_gpus = place.free // part.gpus
    by_cpus = place.free_cpus // max(part.cpus, 1)
    by_memory = place.free_memory_mb // part.memory_mb if part.memory_mb else math.inf
    return int(by_gpus - min(by_gpus, by_cpus, by_memory)) * part.gpus


def variance(places: Sequence[Place]) -> float | None:
    """How unevenly nodes are filled, 0..1: 4 · the variance of the free part of each.

    It misleads: where all nodes are half full it is 0, its best, though no node can take a job of
    a whole one; packed on half of the nodes, the same jobs give 1, its worst, and all fits.

    >>> main = frozenset({"main"})
    >>> variance([Place(f"n{i}", main, "", 8, 4) for i in range(4)])
    0.0
    >>> variance([Place(f"n{i}", main, "", 8, 8 * (i % 2)) for i in range(4)])
    1.0
    """
    parts = [place.free / place.gpus for place in places if place.gpus]
    if not parts:
        return None
    mean = math.fsum(parts) / len(parts)
    return 4 * math.fsum((part - mean) ** 2 for part in parts) / len(parts)


def parts_of(shape: Shape, per_node: int) -> Parts:
    """What a job takes of each of its nodes; CPUs and memory as its GPUs, rounded up."""
    total = math.ceil(shape.gpus)
    return tuple(
        Part(gpus, -(-shape.cpus * gpus // total), -(-shape.memory_mb * gpus // total))
        for gpus in (math.ceil(part) for part in shape.parts(per_node))
    )


# --- a node ---------------------------------------------------------------------------------------


def _least(kinds: Sequence[Kind]) -> tuple[Part, Part]:
    """The parts that ask for the fewest CPUs, and the least memory, for each of their GPUs."""
    parts = [part for kind in kinds for part in kind.parts] or [Part(1)]
    return (
        min(parts, key=lambda part: max(part.cpus, 1) / part.gpus),
        min(parts, key=lambda part: part.memory_mb / part.gpus),
    )


def _node_state(place: Place, least: tuple[Part, Part], *, mig: bool) -> NodeState:
    """How many of a node's free GPUs jobs could be given, and why not all."""
    if place.barred or mig:
        reason = (place.barred or LAYOUT) if place.free else ""
        return NodeState(place.node, place.gpus, place.free, 0, reason)
    of_cpus, of_memory = least
    by_cpus = place.free_cpus * of_cpus.gpus // max(of_cpus.cpus, 1)
    by_memory = (
        place.free_memory_mb * of_memory.gpus // of_memory.memory_mb
        if of_memory.memory_mb
        else math.inf
    )
    usable = int(max(min(place.free, by_cpus, by_memory), 0))
    short = place.cpus_by if by_cpus <= by_memory else MEMORY
    return NodeState(
        place.node, place.gpus, place.free, usable, short if usable < place.free else ""
    )


# --- jobs in a pool -------------------------------------------------------------------------------


def _fits_empty(parts: Parts, places: Sequence[Place]) -> bool:
    return _fits(parts, [(place.gpus, place.cpus, place.memory_mb) for place in places])


def _fits(parts: Parts, rooms: Sequence[tuple[float, float, float]]) -> bool:
    """Whether each part finds a node of its own, the largest first, where it fits most tightly."""
    left = sorted(rooms)
    for part in sorted(parts, key=lambda part: (part.gpus, part.cpus), reverse=True):
        room = next((room for room in left if part.fits(*room)), None)
        if room is None:
            return False
        left.remove(room)
    return True


def _blocked(kinds: Sequence[Kind], places: Sequence[Place], usable: int) -> int:
    rooms = [(place.free, place.free_cpus, place.free_memory_mb) for place in places]
    return sum(kind.jobs for kind in kinds if kind.gpus <= usable and not _fits(kind.parts, rooms))


def _largest(usable: Sequence[int], per_node: int) -> tuple[int, int]:
    """The largest job that could start, and the largest that as many free GPUs could hold."""
    total, whole = sum(usable), sum(gpus >= per_node for gpus in usable)
    if not per_node:
        return 0, 0
    now = whole * per_node if whole else max(usable, default=0)
    return now, min(total // per_node, len(usable)) * per_node or total
