"""Nodes of the virtual cluster: which GPUs are free, and where a job goes.

Nodes are kept by the number of their free GPUs, as bits of an integer: the best node for a job is
found without looking at the others.
"""

from __future__ import annotations

from typing import Literal

Placement = Literal["consolidated", "packed", "spread"]
Nodes = tuple[tuple[int, int], ...]


class Cluster:
    """`nodes` nodes of `per_node` GPUs each.

    Placement: consolidated: on as few nodes as it can be, tightest fit first; else it waits.
    packed: the same, but split over the fullest nodes rather than wait. spread: one node if one
    has room, the emptiest first; else split.
    """

    def __init__(self, nodes: int, per_node: int, placement: Placement = "consolidated") -> None:
        if nodes < 1 or per_node < 1:
            raise ValueError(f"nodes and per_node must be > 0, got {nodes} and {per_node}")
        self.per_node = per_node
        self.placement = placement
        self.free = [per_node] * nodes
        self.free_gpus = nodes * per_node
        self._with = [0] * per_node + [(1 << nodes) - 1]

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        return len(self.free) * self.per_node

    def find(self, gpus: int, barred: int = 0) -> Nodes | None:
        """Nodes for a job, or None; nothing is taken. barred: bits of nodes it may not use."""
        if gpus > self.free_gpus:
            return None
        whole, rest = divmod(gpus, self.per_node)
        if self.placement == "spread":
            sizes = range(self.per_node, 0, -1)
        else:
            sizes = range(1, self.per_node + 1)
        found = self._consolidated(whole, rest, barred, sizes)
        if found is None and self.placement != "consolidated":
            found = self._split(gpus, barred, sizes)
        return found

    def take(self, nodes: Nodes) -> None:
        """Take GPUs of nodes."""
        for node, gpus in nodes:
            self._move(node, -gpus)

    def give(self, nodes: Nodes) -> None:
        """Give GPUs of nodes back."""
        for node, gpus in nodes:
            self._move(node, gpus)

    def _consolidated(self, whole: int, rest: int, barred: int, sizes: range) -> Nodes | None:
        chosen: list[tuple[int, int]] = []
        empty = self._with[self.per_node] & ~barred
        for _ in range(whole):
            if not empty:
                return None
            node = _lowest(empty)
            empty &= empty - 1
            chosen.append((node, self.per_node))
        if rest:
            used = sum(1 << node for node, _ in chosen)
            for size in sizes:
                there = self._with[size] & ~barred & ~used
                if size >= rest and there:
                    chosen.append((_lowest(there), rest))
                    break
            else:
                return None
        return tuple(chosen)

    def _split(self, gpus: int, barred: int, sizes: range) -> Nodes | None:
        chosen: list[tuple[int, int]] = []
        for size in sizes:
            there = self._with[size] & ~barred
            while there and gpus:
                part = min(size, gpus)
                chosen.append((_lowest(there), part))
                there &= there - 1
                gpus -= part
        return None if gpus else tuple(chosen)

    def _move(self, node: int, by: int) -> None:
        bit = 1 << node
        self._with[self.free[node]] ^= bit
        self.free[node] += by
        self._with[self.free[node]] |= bit
        self.free_gpus += by


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
