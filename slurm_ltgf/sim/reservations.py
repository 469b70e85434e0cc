"""Reservations: the earliest time at which a job fits, if running jobs use their time limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from slurm_ltgf.sim.cluster import Ask, Cluster, Nodes

IntArray = np.ndarray[Any, np.dtype[np.int64]]
BoolArray = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Held:
    """Nodes that a running job gives back at its time limit, at the latest."""

    until: int
    nodes: Nodes
    ask: Ask


def reservation(
    cluster: Cluster, held: Iterable[Held], ask: Ask, now: int
) -> tuple[int, Nodes, dict[int, int]]:
    """When a job will fit at the latest, and where.

    Args:
        held: running jobs by `until`.

    Returns:
        (time, its nodes, node -> GPUs of it that others may use beyond that time).
    """
    before, part = cluster.saved(), cluster.least_part(ask)
    found, at = None, now
    free, given = list(cluster.free), []
    usable = sum(gpus for gpus in free if gpus >= part)  # on nodes that have a part of it
    for one in held:
        given.append(one)
        for node, gpus in one.nodes:
            had, has = free[node], free[node] + gpus
            free[node] = has
            if has >= part:
                usable += has if had < part else gpus
        if usable < ask.gpus or not any(free[node] >= part for node, _ in one.nodes):
            continue  # not what it lacks
        if cluster.counts_hosts:
            for other in given:
                cluster.give(other.nodes, other.ask)
        else:  # nodes without a part of it need not be told
            there = {node for other in given for node, _ in other.nodes if free[node] >= part}
            cluster.give(tuple((n, free[n] - cluster.free[n]) for n in sorted(there)), ask)
        given.clear()
        found = cluster.find(ask)
        if found is not None:
            at = max(one.until, now + 1)  # it ends late, and may at any moment
            break
    # beside its GPUs a job needs CPUs, which others would take: then they may use nothing of a node
    spare = {n: 0 if cluster.counts_hosts else cluster.free[n] - g for n, g in found or ()}
    cluster.restore(before)
    return at, found or (), spare


class Profile:
    """What is free on every node from now on, if running jobs use their time limits.

    _free: (times, kinds, nodes), as `Cluster.state`: so much from _times[k] to _times[k + 1]; of
    GPUs alone where that is all that is looked at.
    """

    def __init__(
        self, cluster: Cluster, held: Iterable[Held], now: int, *, whole_nodes: bool = False
    ) -> None:
        self._whole_nodes = whole_nodes
        self._scratch = cluster.copy()
        ends: dict[int, list[Held]] = {now: []}
        for one in held:  # whose limit is over may end at any moment
            ends.setdefault(max(one.until, now + 1), []).append(one)
        self._times = np.array(list(ends))
        self._kinds = 3 if cluster.counts_hosts else 1
        state = cluster.state()[: self._kinds]
        given = np.zeros((len(ends), *state.shape))
        for k, group in enumerate(ends.values()):
            for one in group:
                if cluster.counts_hosts:
                    given[k] += cluster.parts(one.nodes, one.ask)
                    continue
                for node, gpus in one.nodes:
                    given[k, 0, node] += gpus
        self._free = state + given.cumsum(axis=0)

    def reserve(self, ask: Ask, limit_s: int) -> tuple[int, Nodes]:
        """Promise a job the earliest time at which it fits for so long; (time, nodes).

        Raises:
            ValueError: it does not even fit when all is free.
        """
        after = np.searchsorted(self._times, self._times + limit_s)
        for k in np.flatnonzero(self._may_fit(ask, after)):
            self._scratch.load(self._free[k : after[k]].min(axis=0))
            nodes = self._scratch.find(ask)
            if nodes is not None:
                begin = int(self._times[k])
                self._take(begin, begin + limit_s, nodes, ask)
                return begin, nodes
        raise ValueError(f"no nodes of the cluster have {ask.gpus} GPUs for a job")

    def _may_fit(self, ask: Ask, after: IntArray) -> BoolArray:
        """By time, whether nodes that have a part of its GPUs until `after` have all of them."""
        gpus = self._free[:, 0]
        lacks = np.zeros((len(gpus) + 1, gpus.shape[1]), np.int32)  # at how many times before
        np.cumsum(gpus < self._scratch.least_part(ask), axis=0, out=lacks[1:], dtype=np.int32)
        lasting = (lacks[after] == lacks[:-1]) * gpus
        return cast(BoolArray, lasting.sum(axis=1) >= ask.gpus)

    def _take(self, begin: int, end: int, nodes: Nodes, ask: Ask) -> None:
        first, after = self._cut(begin), self._cut(end)
        self._free[first:after] -= self._scratch.parts(nodes, ask)[: self._kinds]
        if self._whole_nodes and begin > self._times[0]:
            self._free[first:after, 0, [node for node, _ in nodes]] = 0

    def _cut(self, time: int) -> int:
        """The index of the row that begins at a time; made where there is none."""
        k = int(np.searchsorted(self._times, time))
        if k == len(self._times) or self._times[k] != time:
            self._times = np.insert(self._times, k, time)
            self._free = np.insert(self._free, k, self._free[k - 1], axis=0)
        return k
