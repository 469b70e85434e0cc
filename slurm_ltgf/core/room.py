"""Which jobs would have to leave so that another one fits on nodes.

One alone, if one will do, else those with the fewest GPUs. Only GPUs are counted. A job asks for
one part or several, each on a node of its own; it goes where it fits most tightly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

Node = Hashable


class Room:
    """The nodes of a pool, as they would be if some jobs left and others came.

    Args:
        free: node -> GPUs that no job holds.
        held: job id -> node -> GPUs, of the jobs that may have to leave.
        parts: job id -> GPUs on each of its nodes, of all jobs that are asked about.
    """

    def __init__(
        self,
        free: Mapping[Node, float],
        held: Mapping[int, Mapping[Node, float]],
        parts: Mapping[int, tuple[float, ...]],
    ) -> None:
        self._free = dict(free)
        self._open = {node for node, gpus in free.items() if gpus > 0}
        self._held = held
        self._parts = parts
        self._on: dict[Node, list[int]] = {}
        self._place = {node: i for i, node in enumerate(self._free)}
        self._size = {job_id: sum(nodes.values()) for job_id, nodes in held.items()}
        self._at_most: dict[Node, float] = {}  # GPUs that all of them together could leave
        for job_id, nodes in held.items():
            for node, gpus in nodes.items():
                self._on.setdefault(node, []).append(job_id)
                self._at_most[node] = self._at_most.get(node, 0.0) + gpus

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

    @property
    def free_gpus(self) -> float:
        """GPUs that no job holds."""
        return sum(self._free.values())

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

    def keep(self, job_id: int) -> None:
        """It does not, after all."""
        for node, gpus in self._held[job_id].items():
            self._change(node, -gpus)

    def clear(
        self, job_id: int, rank: Mapping[int, int], may_go: Callable[[int], bool]
    ) -> list[int] | None:
        """Running jobs that must leave for a job to fit; None: it cannot. Nothing is changed.

        Args:
            rank: running job -> 0 for the first to go, in this order, of those that may; where it
                makes no other difference, these go.
            may_go: whether one of them may leave for this job.
        """
        if self.fits(job_id):
            return []
        parts = self._parts[job_id]
        if len(parts) == 1:
            one = self._alone(parts[0], rank, may_go)
            if one is not None:
                return [one]
        gone: list[int] = []
        used: set[Node] = set()
        for part in sorted(parts, reverse=True):
            best = self._best(part, used, gone, rank, may_go)
            if best is None:
                break
            node, more = best
            used.add(node)
            gone += more
            for other in more:
                self.give(other)
        for other in gone:
            self.keep(other)
        return gone if len(used) == len(parts) else None

    def would_fit(self, going: Iterable[int], coming: Iterable[int]) -> bool:
        """Whether all that come fit if some left. Nothing is changed."""
        before = dict(self._free), set(self._open)
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
        self._free, self._open = before
        return fit

    def _alone(
        self, part: float, rank: Mapping[int, int], may_go: Callable[[int], bool]
    ) -> int | None:
        """The first to go of those that have on a node just what a part lacks there."""
        for job_id in rank:
            if job_id not in self._held:
                continue  # of another pool
            held = self._held[job_id]
            if len(held) == 1:
                node, gpus = next(iter(held.items()))
                if gpus <= part <= self._free[node] + gpus and may_go(job_id):
                    return job_id
        return None

    def _best(
        self,
        part: float,
        used: set[Node],
        gone: list[int],
        rank: Mapping[int, int],
        may_go: Callable[[int], bool],
    ) -> tuple[Node, list[int]] | None:
        """The node on which a part costs least, and the jobs that leave it."""
        node = self._tightest(part, used)
        if node is not None:
            return node, []
        best: tuple[tuple[float, int, int], Node, list[int]] | None = None
        for node, at_most in self._at_most.items():
            lacks = part - self._free[node]
            # whoever leaves gives no less than what is lacking
            if node in used or lacks > at_most or (best is not None and lacks > best[0][0]):
                continue
            leave = self._leave(node, lacks, gone, rank, may_go)
            if leave is None:
                continue
            moved = sum(self._size[job_id] for job_id in leave)
            cost = (moved, max(rank[job_id] for job_id in leave), self._place[node])
            if best is None or cost < best[0]:
                best = cost, node, leave
        return None if best is None else best[1:]

    def _leave(
        self,
        node: Node,
        lacks: float,
        gone: list[int],
        rank: Mapping[int, int],
        may_go: Callable[[int], bool],
    ) -> list[int] | None:
        """Jobs that give a node so many GPUs more; none of them could stay."""
        if lacks <= 0:
            return []
        held = self._held
        there = [j for j in self._on.get(node, ()) if j in rank and j not in gone]
        if sum(held[job_id][node] for job_id in there) < lacks:
            return None
        leave: list[int] = []
        for job_id in sorted(there, key=rank.__getitem__):
            if lacks > 0 and may_go(job_id):
                leave.append(job_id)
                lacks -= held[job_id][node]
        if lacks > 0:
            return None
        for job_id in tuple(leave):
            if lacks + held[job_id][node] <= 0:  # a later one gave enough without it
                lacks += held[job_id][node]
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
        self._free[node] += by
        (self._open.add if self._free[node] > 0 else self._open.discard)(node)
