"""Conservative backfill promises the earliest time: as a search over all times finds it."""

import random

import numpy as np
import pytest

from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.reservations import Held, Profile
from slurm_ltgf.sim.workload import Job

NOW = 100


class Slow:
    """What is free at each second from now on; every promise by trying one second after another."""

    def __init__(self, cluster, held, *, whole_nodes):
        self.whole_nodes = whole_nodes
        self.room = cluster.copy()
        ends = {}
        for one in held:
            ends.setdefault(max(one.until, NOW + 1) - NOW, []).append(one)
        self.free = []
        for second in range(3000):
            for one in ends.get(second, ()):
                self.room.give(one.nodes, one.ask)
            self.free.append(self.room.state())

    def reserve(self, job, limit_s):
        for begin in range(len(self.free)):
            span = slice(begin, begin + limit_s)
            self.room.load(np.min(self.free[span], axis=0))
            if nodes := self.room.find(job):
                taken = self.room.parts(nodes, job)
                for free in self.free[span]:
                    free -= taken
                    if self.whole_nodes and begin:
                        free[0, [node for node, _ in nodes]] = 0
                return NOW + begin, nodes
        raise AssertionError("never")


@pytest.mark.parametrize("seed", range(30))
def test_a_promise_is_the_earliest_that_there_is(seed):
    dice = random.Random(seed)
    has_hosts = dice.random() < 0.4
    types = [
        NodeType(dice.randint(1, 4), 8, "a", cpus=64 if has_hosts else 0),
        NodeType(dice.randint(1, 4), 4, "b"),
    ]
    placement = dice.choice(["consolidated", "packed", "spread"])
    cluster, empty = Cluster(types, placement), Cluster(types, placement)
    jobs = []
    while len(jobs) < 50:
        kind, gpus = dice.choice(["", "", "a", "b"]), dice.choice([1, 1, 2, 3, 4, 8, 12, 16])
        cpus = dice.choice([0, 8, 20]) if has_hosts else 0
        job = Job(len(jobs), "t", gpus, 0, 1, dice.randint(1, 50), kind, cpus)
        if empty.find(job):
            jobs.append(job)
    held = []
    for job in jobs[:25]:
        if nodes := cluster.find(job):
            cluster.take(nodes, job)
            held.append(Held(NOW + dice.randint(-3, 40), nodes, job))
    held.sort(key=lambda one: one.until)
    whole = dice.random() < 0.5
    quick = Profile(cluster, held, NOW, whole_nodes=whole)
    slow = Slow(cluster, held, whole_nodes=whole)
    for job in jobs[25:]:
        assert quick.reserve(job, job.limit_s) == slow.reserve(job, job.limit_s)
