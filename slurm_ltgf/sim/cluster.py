"""Nodes of the virtual cluster: which GPUs are free, and where a job goes.

Nodes are kept by the number of their free GPUs, as bits of an integer: the best node for a job is
found without looking at the others. CPUs and memory are looked at where both the node type and the
job state them; a job's are spread over its nodes as its GPUs are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from slurm_ltgf.core.model import FloatArray

Placement = Literal["consolidated", "packed", "spread"]
Nodes = tuple[tuple[int, int], ...]
_Hosts = tuple[list[float] | None, ...]
Saved = tuple[list[int], int, list[int], _Hosts]


@dataclass(frozen=True, slots=True)
class NodeType:
    """`count` nodes alike, of `gpus` GPUs each. cpus, memory_mib: of a node; 0: not looked at."""

    count: int
    gpus: int
    gpu_type: str = ""
    cpus: int = 0
    memory_mib: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no cluster."""
        if self.count < 1 or self.gpus < 1 or self.cpus < 0 or self.memory_mib < 0:
            raise ValueError(f"a node type needs count and gpus > 0, got {self}")


class Ask(Protocol):
    """What a job wants of its nodes; `workload.Job` is one."""

    @property
    def gpus(self) -> int:
        """GPUs, all at once."""

    @property
    def gpu_type(self) -> str:
        """Type of all of them; "": any, but one."""

    @property
    def cpus(self) -> int:
        """CPUs of the whole job."""

    @property
    def memory_mib(self) -> int:
        """Memory of the whole job."""


@dataclass(frozen=True, slots=True)
class Plain:
    """An ask for GPUs of any type and for nothing else."""

    gpus: int
    gpu_type: str = ""
    cpus: int = 0
    memory_mib: int = 0


def is_plain(ask: Ask) -> bool:
    """It wants GPUs, of any type, and nothing else."""
    return not (ask.gpu_type or ask.cpus or ask.memory_mib)


@dataclass(frozen=True, slots=True)
class _Pool:
    """The nodes of a type. nodes: their bits."""

    type: NodeType
    nodes: int
    smallest_first: range


class Cluster:
    """Nodes of one or several types; a job runs on nodes of one type.

    Placement: consolidated: on as few nodes as it can be, tightest fit first; else it waits.
    packed: the same, but split over the fullest nodes rather than wait. spread: one node if one
    has room, the emptiest first; else split.
    """

    def __init__(self, types: Sequence[NodeType], placement: Placement = "consolidated") -> None:
        self.types = tuple(types)
        self.placement = placement
        self.free = [kind.gpus for kind in types for _ in range(kind.count)]
        self.free_gpus = self.gpus = sum(self.free)
        self._with = [0] * (max(self.free) + 1)
        self._pools: list[_Pool] = []
        first = 0
        for kind in types:
            bits = ((1 << kind.count) - 1) << first
            first += kind.count
            self._with[kind.gpus] |= bits
            self._pools.append(_Pool(kind, bits, range(1, kind.gpus + 1)))
        # None: no node type states any, so that nothing is kept
        self._cpus = _kept([(kind.count, kind.cpus) for kind in types])
        self._memory_mib = _kept([(kind.count, kind.memory_mib) for kind in types])

    @property
    def counts_hosts(self) -> bool:
        """Whether CPUs or memory are looked at."""
        return self._cpus is not None or self._memory_mib is not None

    def largest(self, ask: Ask) -> int:
        """GPUs of the type that has most of them, of those that the job may run on."""
        return max((p.type.count * p.type.gpus for p in self._for(ask)), default=0)

    def least_part(self, ask: Ask) -> int:
        """GPUs that each of a job's nodes gives at least, wherever it is placed."""
        if self.placement != "consolidated":
            return 1
        return min(ask.gpus % p.type.gpus or p.type.gpus for p in self._for(ask))

    def find(self, ask: Ask, spare: Mapping[int, int] | None = None) -> Nodes | None:
        """Nodes for a job, or None; nothing is taken.

        Args:
            spare: node -> GPUs that may be used of it at most.
        """
        if ask.gpus > self.free_gpus:
            return None
        if spare:
            hidden = [(n, self.free[n] - most) for n, most in spare.items() if self.free[n] > most]
            for node, gpus in hidden:
                self._move(node, -gpus)
            found = self._find(ask)
            for node, gpus in hidden:
                self._move(node, gpus)
            return found
        return self._find(ask)

    def take(self, nodes: Nodes, ask: Ask) -> None:
        """Take GPUs of nodes, and the job's CPUs and memory with them."""
        for node, gpus in nodes:
            self._move(node, -gpus)
        if self.counts_hosts:
            self._move_hosts(nodes, ask, -1)

    def give(self, nodes: Nodes, ask: Ask) -> None:
        """Give GPUs of nodes back."""
        for node, gpus in nodes:
            self._move(node, gpus)
        if self.counts_hosts:
            self._move_hosts(nodes, ask, 1)

    def saved(self) -> Saved:
        """The present state, to be given to `restore`."""
        hosts = (self._cpus, self._memory_mib)
        copies = tuple(None if part is None else list(part) for part in hosts)
        return list(self.free), self.free_gpus, list(self._with), copies

    def restore(self, saved: Saved) -> None:
        """Be again as it was when `saved`; only once."""
        self.free, self.free_gpus, self._with, (self._cpus, self._memory_mib) = saved

    def copy(self) -> Cluster:
        """Another one in the same state."""
        other = Cluster(self.types, self.placement)
        other.load(self.state())
        return other

    def state(self) -> FloatArray:
        """What is free: (3, nodes) of GPUs, CPUs and memory in MiB; inf where not looked at."""
        inf = [float("inf")] * len(self.free)
        return np.array([self.free, self._cpus or inf, self._memory_mib or inf])

    def load(self, state: FloatArray) -> None:
        """Be in a state that `state` gave, or the least of several."""
        self.free = [int(gpus) for gpus in state[0]]
        self.free_gpus = sum(self.free)
        self._with = [0] * len(self._with)
        for node, gpus in enumerate(self.free):
            self._with[gpus] |= 1 << node
        if self._cpus is not None:
            self._cpus = list(map(float, state[1]))
        if self._memory_mib is not None:
            self._memory_mib = list(map(float, state[2]))

    def parts(self, nodes: Nodes, ask: Ask) -> FloatArray:
        """What a job takes of every node, as in `state`."""
        taken = np.zeros((3, len(self.free)))
        for node, gpus in nodes:
            shares = (_part(total, gpus, ask.gpus) for total in (ask.cpus, ask.memory_mib))
            taken[:, node] = gpus, *shares
        return taken

    def _for(self, ask: Ask) -> Iterator[_Pool]:
        for pool in self._pools:
            if not ask.gpu_type or ask.gpu_type == pool.type.gpu_type:
                yield pool

    def _find(self, ask: Ask) -> Nodes | None:
        for split in (False, True) if self.placement != "consolidated" else (False,):
            for pool in self._pools:
                if ask.gpu_type and ask.gpu_type != pool.type.gpu_type:
                    continue
                found = self._split(ask, pool) if split else self._consolidated(ask, pool)
                if found is not None:
                    return found
        return None

    def _sizes(self, pool: _Pool) -> range:
        return pool.smallest_first[::-1] if self.placement == "spread" else pool.smallest_first

    def _consolidated(self, ask: Ask, pool: _Pool) -> Nodes | None:
        per_node = pool.type.gpus
        whole, rest = divmod(ask.gpus, per_node)
        chosen: list[tuple[int, int]] = []
        used = 0
        if whole:
            for empty in self._each(self._with[per_node] & pool.nodes, per_node, ask):
                chosen.append((empty, per_node))
                used |= 1 << empty
                if len(chosen) == whole:
                    break
            else:
                return None
        if rest:
            for size in self._sizes(pool):
                there = self._with[size] & pool.nodes & ~used if size >= rest else 0
                if there:
                    node = next(self._each(there, rest, ask), None)
                    if node is not None:
                        chosen.append((node, rest))
                        break
            else:
                return None
        return tuple(chosen)

    def _split(self, ask: Ask, pool: _Pool) -> Nodes | None:
        chosen: list[tuple[int, int]] = []
        gpus = ask.gpus
        for size in self._sizes(pool):
            for node in self._each(self._with[size] & pool.nodes, min(size, gpus), ask):
                part = min(size, gpus)
                chosen.append((node, part))
                gpus -= part
                if not gpus:
                    return tuple(chosen)
        return None

    def _each(self, bits: int, gpus: int, ask: Ask) -> Iterator[int]:
        """The nodes of bits that have CPUs and memory for so many of the job's GPUs."""
        while bits:
            lowest = bits & -bits
            bits ^= lowest
            node = lowest.bit_length() - 1
            if self._cpus is not None and self._cpus[node] < _part(ask.cpus, gpus, ask.gpus):
                continue
            if self._memory_mib is not None and self._memory_mib[node] < _part(
                ask.memory_mib, gpus, ask.gpus
            ):
                continue
            yield node

    def _move(self, node: int, by: int) -> None:
        bit = 1 << node
        free = self.free[node]
        self._with[free] ^= bit
        self._with[free + by] |= bit
        self.free[node] = free + by
        self.free_gpus += by

    def _move_hosts(self, nodes: Nodes, ask: Ask, sign: int) -> None:
        for node, gpus in nodes:
            if self._cpus is not None:
                self._cpus[node] += sign * _part(ask.cpus, gpus, ask.gpus)
            if self._memory_mib is not None:
                self._memory_mib[node] += sign * _part(ask.memory_mib, gpus, ask.gpus)


def _part(total: int, gpus: int, of: int) -> int:
    """What a node gives of a job's CPUs or memory: as its GPUs, rounded up."""
    return -(-total * gpus // of)


def _kept(stated: Sequence[tuple[int, int]]) -> list[float] | None:
    """One number a node; types that state none have any amount."""
    if not any(amount for _, amount in stated):
        return None
    return [float(amount or "inf") for count, amount in stated for _ in range(count)]
