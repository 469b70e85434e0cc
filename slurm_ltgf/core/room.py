"""Which jobs would have to leave so that another one fits on nodes.

One alone, if one will do, else those with the fewest GPUs. Only GPUs are counted. A job asks for
one part or several, each on a node of its own; it goes where it fits most tightly.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

Node = Hashable


class Room:
    """The nodes of a pool, as they would be if some jobs left and others came.

    Args:
        free: node -> GPUs that no job holds.
        held: job id -> node -> GPUs, of the jobs that may have to leave.
        parts: job id -> GPUs on each of its nodes, of all jobs that are asked about.

    Attributes:
        free_gpus: GPUs that no job holds.
        changes: how often it was changed: as long as that stands still, who did not fit does not.
    """

    def __init__(
        self,
        free: Mapping[Node, float],
        held: Mapping[int, Mapping[Node, float]],
        parts: Mapping[int, tuple[float, ...]],
    ) -> None:
        self._free = dict(free)
        self._open = {node for node, gpus in self._free.items() if gpus > 0}
        self._held = held
        self._parts = parts
        self._place = {node: i for i, node in enumerate(self._free)}
        self.free_gpus = sum(self._free.values())
        self.changes = 0

    @classmethod
    def counted(
        cls, free_gpus: float, held: Mapping[int, float], asks: Mapping[int, float]
    ) -> Room:
        """A pool of which only the number of free GPUs is known: any will do."""
        return cls(
            {"": free_gpus},
            {job_id: {"": gpus} for job_id, gpus in held.items()},
            {job_id: (gpus,) for job_id, gpus in {**held, **asks}.items()},
        )

    def fits(self, job_id: int) -> bool:
        """Whether a job could start now."""
        return self._places(job_id) is not None

    def take(self, job_id: int) -> None:
        """A job that fits gets nodes."""
        for node, gpus in self._places(job_id) or ():
            self._change(node, -gpus)

    def give(self, job_id: int) -> None:
        """A running job gives its GPUs back."""
        for node, gpus in self._held[job_id].items():
            self._change(node, gpus)

    def clear(self, job_id: int, movable: Iterable[int]) -> list[int] | None:
        """Running jobs that must leave for a job to fit; None: it cannot. Nothing is changed.

        Args:
            movable: those that may leave for it, the first to go first: where it makes no other
                difference, these go. Jobs of other pools do not count.
        """
        if self.fits(job_id):
            return []
        parts = self._parts[job_id]
        there = list(filter(self._held.__contains__, movable))
        if len(parts) == 1:
            one = self._alone(parts[0], there)
            if one is not None:
                return [one]
        return self._cleared(parts, there)

    def would_fit(self, going: Iterable[int], coming: Iterable[int]) -> bool:
        """Whether all that come fit if some left. Nothing is changed."""
        before = self._state()
        for job_id in going:
            self.give(job_id)
        fit = True
        for job_id in coming:
            places = self._places(job_id)
            if places is None:
                fit = False
                break
            for node, gpus in places:
                self._change(node, -gpus)
        self._restore(before)
        return fit

    def _state(self) -> tuple[dict[Node, float], set[Node], float, int]:
        return dict(self._free), set(self._open), self.free_gpus, self.changes

    def _restore(self, state: tuple[dict[Node, float], set[Node], float, int]) -> None:
        self._free, self._open, self.free_gpus, self.changes = state

    def _cleared(self, parts: tuple[float, ...], movable: Sequence[int]) -> list[int] | None:
        """Those that leave a node for each part, which costs least there; None: it cannot be."""
        before = self._state()
        on: dict[Node, list[int]] = {}
        for other in movable:
            for node in self._held[other]:
                on.setdefault(node, []).append(other)
        rank = {other: i for i, other in enumerate(movable)}
        gone: list[int] = []
        used: set[Node] = set()
        for part in sorted(parts, reverse=True):
            best = self._best(part, used, gone, on, rank)
            if best is None:
                break
            node, more = best
            used.add(node)
            gone += more
            for other in more:
                self.give(other)
        self._restore(before)
        return gone if len(used) == len(parts) else None

    def _alone(self, part: float, movable: Iterable[int]) -> int | None:
        """The first to go of those that have on a node just what a part lacks there."""
        for job_id in movable:
            held = self._held[job_id]
            if len(held) == 1:
                ((node, gpus),) = held.items()
                if gpus <= part <= self._free[node] + gpus:
                    return job_id
        return None

    def _best(
        self,
        part: float,
        used: set[Node],
        gone: list[int],
        on: Mapping[Node, list[int]],
        rank: Mapping[int, int],
    ) -> tuple[Node, list[int]] | None:
        """The node on which a part costs least, and the jobs that leave it."""
        node = self._tightest(part, used)
        if node is not None:
            return node, []
        best: tuple[tuple[float, int, int], Node, list[int]] | None = None
        for node, jobs in on.items():
            lacks = part - self._free[node]
            # whoever leaves gives no less than what is lacking
            if node in used or (best is not None and lacks > best[0][0]):
                continue
            leave = self._leave(node, lacks, [job_id for job_id in jobs if job_id not in gone])
            if not leave:
                continue
            moved = sum(sum(self._held[job_id].values()) for job_id in leave)
            cost = (moved, max(rank[job_id] for job_id in leave), self._place[node])
            if best is None or cost < best[0]:
                best = cost, node, leave
        return None if best is None else best[1:]

    def _leave(self, node: Node, lacks: float, jobs: Iterable[int]) -> list[int]:
        """Jobs that give a node so many GPUs more, none of which could stay; none: they cannot."""
        leave: list[int] = []
        for job_id in jobs:
            if lacks <= 0:
                break
            leave.append(job_id)
            lacks -= self._held[job_id][node]
        if lacks > 0:
            return []
        for job_id in tuple(leave):
            gpus = self._held[job_id][node]
            if lacks + gpus <= 0:  # a later one gave enough without it
                lacks += gpus
                leave.remove(job_id)
        return leave

    def _places(self, job_id: int) -> list[tuple[Node, float]] | None:
        """Nodes of a job's parts as they are now, tightest first; None: it does not fit."""
        found: list[tuple[Node, float]] = []
        used: set[Node] = set()
        for part in sorted(self._parts[job_id], reverse=True):
            node = self._tightest(part, used)
            if node is None:
                return None
            used.add(node)
            found.append((node, part))
        return found

    def _tightest(self, part: float, used: set[Node]) -> Node | None:
        """The node with room for a part that has least free, the first of these."""
        best: Node | None = None
        least: tuple[float, int] | None = None
        for node in self._open:
            gpus = self._free[node]
            if part <= gpus and node not in used:
                rank = (gpus, self._place[node])
                if least is None or rank < least:
                    best, least = node, rank
        return best

    def _change(self, node: Node, by: float) -> None:
        self.changes += 1
        self.free_gpus += by
        self._free[node] += by
        (self._open.add if self._free[node] > 0 else self._open.discard)(node)
