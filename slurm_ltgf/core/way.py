"""The cheapest way to make room for one job: which running jobs leave its nodes, and where to.

Rules: only jobs of one GPU move. Who moves leaves a node that the waiting job gets, and none moves
that could stay. Each finds room elsewhere at once, beside the waiting job, where it fits most
tightly. Of all ways the one with the least `Key` is taken. The search is a branch and bound over
nodes and over who leaves them, exact as long as its `BUDGET` of steps lasts and no node has more
than `EXACT_JOBS` jobs that could move; beyond, the cheapest jobs of a node leave it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from slurm_ltgf.core.fragmentation import Part, Parts
from slurm_ltgf.core.movable import Key, Movable, Room, total

EXACT_JOBS = 9
BUDGET = 4000


@dataclass(frozen=True, slots=True)
class Way:
    """How a job could start. nodes: one for each of its parts, the largest first.

    leaving: who moves; to: where each goes, in the same order; empty: no room was looked for.
    """

    nodes: tuple[str, ...]
    leaving: tuple[Movable, ...] = ()
    to: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """What it costs."""
        return total(self.leaving)


def tightest(
    parts: Sequence[Part], rooms: Iterable[Room], used: frozenset[str] = frozenset()
) -> tuple[str, ...] | None:
    """Nodes for the parts of a job without any move, where each fits most tightly; None: none."""
    left = [room for room in rooms if room.node not in used]
    nodes: list[str] = []
    for part in parts:
        fit = [room for room in left if room.holds(part)]
        if not fit:
            return None
        best = min(fit, key=lambda room: (room.gpus, room.cpus, room.node))
        nodes.append(best.node)
        left.remove(best)
    return tuple(nodes)


def cheapest_way(
    parts: Parts,
    rooms: Sequence[Room],
    everywhere: Mapping[str, Room],
    *,
    most: int,
    must_fit: bool = True,
) -> Way | None:
    """The cheapest way to let a job start; None: there is none.

    Args:
        rooms: nodes that it may use. everywhere: all nodes: its own and where others may go.
        most: so many jobs may move.
        must_fit: who moves has to find room elsewhere.
    """
    ordered = tuple(sorted(parts, key=lambda part: (part.gpus, part.cpus), reverse=True))
    return _Search(ordered, rooms, everywhere, most, must_fit=must_fit).best()


class _Search:
    """A search for one job. Rooms are changed while it tries and are as before after it."""

    def __init__(
        self,
        parts: Parts,
        rooms: Sequence[Room],
        everywhere: Mapping[str, Room],
        most: int,
        *,
        must_fit: bool,
    ) -> None:
        self._parts, self._everywhere, self._most = parts, everywhere, most
        self._must_fit = must_fit
        self._steps = BUDGET
        self._best: tuple[Key, Way] | None = None
        self._known: dict[tuple[Part, str], list[tuple[Movable, ...]]] = {}
        self._options = {part: _options(part, rooms, most) for part in set(parts)}

    def best(self) -> Way | None:
        self._try(0, -1, (), ())
        return None if self._best is None else self._best[1]

    def _try(self, i: int, last: int, nodes: tuple[str, ...], leaving: tuple[Movable, ...]) -> None:
        """Find a node for part i; parts alike take nodes in one order."""
        if i == len(self._parts):
            self._finish(nodes, leaving)
            return
        part, so_far = self._parts[i], total(leaving)
        options = self._options[part]
        is_alike = i > 0 and self._parts[i - 1] == part
        for number in range(last + 1 if is_alike else 0, len(options)):
            least, room = options[number]
            if self._is_worse(so_far.plus(least)) or self._steps <= 0:
                return  # nor can one after it be better
            if room.node in nodes:
                continue
            for going in self._covers(part, room, self._most - len(leaving)):
                self._steps -= 1
                together = (*leaving, *going)
                if not self._is_worse(total(together)):
                    self._try(i + 1, number, (*nodes, room.node), together)

    def _covers(self, part: Part, room: Room, most: int) -> Iterator[tuple[Movable, ...]]:
        """Who could leave a node for a part: so many at most, the cheapest first."""
        if (part, room.node) not in self._known:
            found = list(_covers(part, room))
            self._known[part, room.node] = found
            self._steps -= 1 << min(len(room.movable), EXACT_JOBS) >> 5
        return (some for some in self._known[part, room.node] if len(some) <= most)

    def _is_worse(self, key: Key) -> bool:
        return self._best is not None and key >= self._best[0]

    def _finish(self, nodes: tuple[str, ...], leaving: tuple[Movable, ...]) -> None:
        self._steps -= 1
        to = self._elsewhere(nodes, leaving) if self._must_fit else ()
        if to is not None:
            self._best = total(leaving), Way(nodes, leaving, to)

    def _elsewhere(
        self, nodes: tuple[str, ...], leaving: tuple[Movable, ...]
    ) -> tuple[str, ...] | None:
        """Where those that leave go; None: not all find room."""
        rooms = self._everywhere
        for job in leaving:
            rooms[job.node].give(job.part)
        for node, part in zip(nodes, self._parts, strict=True):
            rooms[node].take(part)
        try:
            return self._packed(leaving)
        finally:
            for node, part in zip(nodes, self._parts, strict=True):
                rooms[node].give(part)
            for job in leaving:
                rooms[job.node].take(job.part)

    def _packed(self, leaving: tuple[Movable, ...]) -> tuple[str, ...] | None:
        spare = [room for room in self._everywhere.values() if room.gpus > 0 and room.cpus > 0]
        if sum(room.gpus for room in spare) < len(leaving):
            return None
        order = sorted(leaving, key=lambda job: (-job.part.cpus, -job.part.memory_mb, job.job_id))
        found = self._pack(order, spare)
        return None if found is None else tuple(found[job.job_id] for job in leaving)

    def _pack(self, jobs: Sequence[Movable], spare: Sequence[Room]) -> dict[int, str] | None:
        """Room for each job, the largest first, where it fits most tightly; else tried anew."""
        if not jobs:
            return {}
        job, *rest = jobs
        tried, named = set(), _nodes(rest)
        fit = [room for room in spare if _may_go(job, room)]
        for room in sorted(fit, key=lambda room: (room.gpus, room.cpus, room.node)):
            own = room.node if room.node in named else ""
            alike = (room.gpus, room.cpus, room.memory_mb, room.partitions, own)
            if alike in tried or self._steps <= 0:
                continue
            tried.add(alike)
            self._steps -= 1 + len(spare) // 64
            room.take(job.part)
            found = self._pack(rest, spare)
            room.give(job.part)
            if found is not None:
                return {**found, job.job_id: room.node}
        return None


def _nodes(jobs: Iterable[Movable]) -> set[str]:
    return {node for job in jobs for node in (job.node, *job.avoids)}


def _may_go(job: Movable, room: Room) -> bool:
    return (
        room.node != job.node
        and room.node not in job.avoids
        and bool(room.partitions & job.partitions)
        and room.holds(job.part)
    )


def _options(part: Part, rooms: Sequence[Room], most: int) -> list[tuple[Key, Room]]:
    """Nodes that could have a part, with what that costs at least, the cheapest first."""
    found = []
    for room in rooms:
        lacks = max(math.ceil(part.gpus - room.gpus), 0)
        if lacks <= min(len(room.movable), most) and part.gpus <= room.total_gpus:
            found.append((room.least(lacks), room))
    return sorted(found, key=lambda one: (one[0], one[1].gpus, one[1].node))


def _covers(part: Part, room: Room) -> Iterator[tuple[Movable, ...]]:
    """Who could leave so that a part fits, and none of them could stay; the cheapest first."""
    jobs = room.movable
    if room.holds(part):
        yield ()
    elif len(jobs) <= EXACT_JOBS:
        lacks = max(math.ceil(part.gpus - room.gpus), 1)
        sets = (
            some
            for size in range(lacks, len(jobs) + 1)
            for some in combinations(jobs, size)
            if _is_cover(part, room, some)
        )
        yield from sorted(sets, key=total)
    else:
        yield from _greedy(part, room)


def _is_cover(part: Part, room: Room, some: Sequence[Movable]) -> bool:
    """Whether a part fits without some jobs, and would not if one of them stayed."""
    return _fits_without(part, room, some) and not any(
        _fits_without(part, room, [job for job in some if job is not one]) for one in some
    )


def _fits_without(part: Part, room: Room, gone: Sequence[Movable]) -> bool:
    return part.fits(
        room.gpus + sum(job.part.gpus for job in gone),
        room.cpus + sum(max(job.part.cpus, 1) for job in gone),
        room.memory_mb + sum(job.part.memory_mb for job in gone),
    )


def _greedy(part: Part, room: Room) -> Iterator[tuple[Movable, ...]]:
    """The cheapest leave until the part fits; then those stay after all that need not leave."""
    gone: list[Movable] = []
    for job in room.movable:
        gone.append(job)
        if _fits_without(part, room, gone):
            break
    else:
        return
    for job in reversed(tuple(gone)):
        fewer = [one for one in gone if one is not job]
        if _fits_without(part, room, fewer):
            gone = fewer
    yield tuple(gone)
