"""The plan against fragmentation: which jobs of one GPU move where, and who would start then.

Those that wait are looked at in the queue's order. Who fits takes its nodes; for who does not the
cheapest way is looked for (`way`); if there is one, and it is allowed and worth it, its moves are
in the plan, and the next is looked at as if they were done. So nobody gets room that one before it
needs, and who would start by itself has nobody moved for it.

A way is not taken where it needs more moves than are allowed now, where it leaves less free than
the buffer, or where it costs more GPU-seconds than the start is worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from slurm_ltgf.core.fragmentation import Parts
from slurm_ltgf.core.movable import Key, Movable, Room, total
from slurm_ltgf.core.way import Way, cheapest_way, tightest

#: For so many that stay blocked it is told what would help.
EXPLAINED = 32


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that waits. worth_gpu_s: what it is worth to start it now, inf: whatever it costs.

    avoids: nodes of its partitions that it may not use.
    """

    job_id: int
    parts: Parts
    partitions: frozenset[str]
    worth_gpu_s: float
    avoids: frozenset[str] = frozenset()

    @property
    def gpus(self) -> int:
        """GPUs of all its nodes."""
        return sum(part.gpus for part in self.parts)


@dataclass(frozen=True, slots=True)
class Rules:
    """most: moves that are allowed now. buffer: part of all GPUs that stays free, 0..1."""

    most: int
    buffer: float = 0.05


@dataclass(frozen=True, slots=True)
class Start:
    """A job that could start, and how; without moves it would by itself."""

    job: Waiting
    way: Way


@dataclass(frozen=True, slots=True)
class Blocked:
    """A job that stays waiting. leaving: who would have to leave at least; (): nobody who can."""

    job: Waiting
    why: str
    leaving: tuple[Movable, ...] = ()

    @property
    def key(self) -> Key:
        """What these moves would cost."""
        return total(self.leaving)


@dataclass(slots=True)
class Plan:
    """What would start, in the queue's order, and what stays blocked."""

    starts: list[Start] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)

    @property
    def ways(self) -> list[Start]:
        """Those for which jobs move."""
        return [start for start in self.starts if start.way.leaving]

    @property
    def gain_gpus(self) -> int:
        """GPUs of the jobs that moves let start."""
        return sum(start.job.gpus for start in self.ways)

    @property
    def key(self) -> Key:
        """What all moves cost."""
        return total(job for start in self.ways for job in start.way.leaving)


def plan(rooms: Sequence[Room], waiting: Iterable[Waiting], rules: Rules) -> Plan:
    """The plan for nodes of one GPU type.

    Args:
        rooms: nodes that are open; left as they would be then.
        waiting: in the queue's order.
    """
    planner = _Planner(rooms, rules)
    for job in waiting:
        planner.look_at(job)
    return planner.plan


class _Planner:
    def __init__(self, rooms: Sequence[Room], rules: Rules) -> None:
        self._rooms = {room.node: room for room in rooms}
        self._rules = rules
        self._left = rules.most
        self._changes = 0
        self._in_vain: dict[tuple[object, ...], tuple[int, Blocked]] = {}
        self._explained = 0
        self.plan = Plan()

    def look_at(self, job: Waiting) -> None:
        rooms = [
            room
            for room in self._rooms.values()
            if room.partitions & job.partitions and room.node not in job.avoids
        ]
        like_it = (job.parts, job.partitions, job.avoids, job.worth_gpu_s)
        changes, known = self._in_vain.get(like_it, (-1, None))
        if known is not None and changes == self._changes:
            self.plan.blocked.append(Blocked(job, known.why, known.leaving))
            return
        ordered = sorted(job.parts, key=lambda part: (part.gpus, part.cpus), reverse=True)
        nodes = tightest(ordered, rooms)
        if nodes is not None:
            self._start(job, Way(nodes))
            return
        way = None
        why = self._buffer_objection(job)
        if self._left and not why:
            way = cheapest_way(job.parts, rooms, self._rooms, most=self._left)
            why = "" if way is None else _price_objection(job, way)
        if way is not None and not why:
            self._start(job, way)
            return
        blocked = Blocked(job, why, way.leaving) if way else self._explain(job, rooms, why)
        self._in_vain[like_it] = self._changes, blocked
        self.plan.blocked.append(blocked)

    def _buffer_objection(self, job: Waiting) -> str:
        """Whether a start would leave less free than the buffer, in words; "" if not."""
        total_gpus = sum(room.total_gpus for room in self._rooms.values())
        left = sum(room.gpus for room in self._rooms.values()) - job.gpus
        if left >= self._rules.buffer * total_gpus or left < 0:
            return ""
        return (
            f"{left:g} of {total_gpus} GPUs would stay free, less than the buffer of"
            f" {self._rules.buffer:.0%}"
        )

    def _explain(self, job: Waiting, rooms: Sequence[Room], why: str) -> Blocked:
        """Why a job stays blocked, and who would have to leave at least.

        Args:
            why: if it is known already.
        """
        self._explained += 1
        if self._explained > EXPLAINED:
            return Blocked(job, why or "no moves let it start")
        every = sum(len(room.movable) for room in rooms)
        way = cheapest_way(job.parts, rooms, self._rooms, most=every)
        if way is not None:
            needs = f"it would need {len(way.leaving)} moves: {self._left} are allowed now"
            return Blocked(job, why or needs, way.leaving)
        way = cheapest_way(job.parts, rooms, self._rooms, most=every, must_fit=False)
        if way is None:
            return Blocked(job, "no node would have room for it, whichever jobs moved")
        free = sum(room.gpus for room in rooms)
        lacks = f": {free:g} GPUs are free" if free < job.gpus else ""
        return Blocked(job, f"who would have to leave finds no room elsewhere{lacks}", way.leaving)

    def _start(self, job: Waiting, way: Way) -> None:
        rooms = self._rooms
        for moved in way.leaving:
            rooms[moved.node].give(moved.part)
            rooms[moved.node].movable.remove(moved)
        parts = sorted(job.parts, key=lambda part: (part.gpus, part.cpus), reverse=True)
        for node, part in zip(way.nodes, parts, strict=True):
            rooms[node].take(part)
        for moved, node in zip(way.leaving, way.to, strict=True):
            rooms[node].take(moved.part)
        self._left -= len(way.leaving)
        self._changes += 1
        self.plan.starts.append(Start(job, way))


def _price_objection(job: Waiting, way: Way) -> str:
    """Whether a way costs more than the start is worth, in words; "" if not."""
    if way.key.gpu_s <= job.worth_gpu_s:
        return ""
    return (
        f"its moves cost {way.key.gpu_s:g} GPU-seconds, more than its start now is worth"
        f" ({job.worth_gpu_s:g})"
    )
