#!/usr/bin/env python3
"""Fragmentation of a large cluster: Alibaba's openb as Slurm would show it, 6,212 GPUs.

Its jobs of one GPU are put on nodes in the order in which they came, each on the emptiest node that
has CPUs and memory for it, until all GPUs are held; then a seeded fifth of them ends. So every node
has some GPUs free and few have all. The trace's jobs of more GPUs wait.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from slurm_ltgf.core.defrag import Plan, Rules, plan
from slurm_ltgf.service.defrag_facts import Binds, Movers, rooms, waiting
from slurm_ltgf.service.fragmentation import Site, state
from slurm_ltgf.service.savers import Saver
from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.traces import read_trace
from slurm_ltgf.sim.traces.nodes import fitted, read_nodes
from slurm_ltgf.sim.workload import Job
from slurm_ltgf.slurm.jobs import QueueJob
from slurm_ltgf.slurm.nodes import Capacity, Node
from slurm_ltgf.slurm.queue import Queue
from slurm_ltgf.store.config import Config, parsed

OPENB = Path(__file__).resolve().parents[2] / "shared" / "traces" / "openb"
NOW = 1_800_000_000
CONFIG = parsed("[defrag]\nbuffer = 0.05", "scripts/bench")

Row = tuple[str, str, str, bool | None]


class EverybodySaves:
    """Stands for the records of checkpoints: every job can save, for 25 s."""

    why: dict[int, str] = {}

    def saver(self, job: QueueJob) -> Saver:
        """What the site's records would tell of a job."""
        return Saver(True, float(CONFIG.lease.cost_s))


def figures(times: int) -> list[Row]:
    """The rows of the table; none where the trace is not."""
    if not OPENB.is_dir():
        return []
    site = spread(OPENB)
    took, found = [], {}
    for _ in range(times):
        began = time.perf_counter()
        scores = {(p.partition, p.gpu_type): p.score for p in state(site)}
        scored = time.perf_counter()
        found = plans(site, CONFIG, scores, most=1_000_000)
        took.append((scored - began, time.perf_counter() - scored))
    score_s, plan_s = min(took, key=sum)
    running, queued = len(site.queue.holding), len(site.queue.pending)
    name = f"{len(site.capacity.nodes):,} nodes, {running:,} jobs run, {queued} wait"
    all_s = score_s + plan_s
    told = f"{all_s:.2f} s: scores {score_s:.2f}, plan {plan_s:.2f}"
    return [
        (name, "< 2 s", told, all_s < 2),
        ("what the plan does", "", outcome(site, found), None),
    ]


def outcome(site: Site, found: dict[str, Plan]) -> str:
    """How many jobs start by how many moves."""
    starts = [start for made in found.values() for start in made.starts]
    ways = [start for made in found.values() for start in made.ways]
    blocked = sum(len(made.blocked) for made in found.values())
    moves, gpus = (sum(len(s.way.leaving) for s in ways), sum(s.job.gpus for s in ways))
    pools = state(site)
    free = sum(pool.free_gpus for pool in pools)
    lost = sum(pool.unallocatable_gpus or 0 for pool in pools)
    return (
        f"{free:,} GPUs free, {lost:,.0f} not for what waits; {len(starts) - len(ways)} jobs start"
        f" by themselves, {len(ways)} with {gpus} GPUs after {moves} moves, {blocked} stay"
    )


def plans(
    site: Site, config: Config, scores: dict[tuple[str, str], float | None], *, most: int
) -> dict[str, Plan]:
    """The plan of each GPU type."""
    binds = Binds()
    movable = Movers(site, config, binds, EverybodySaves(), scores, {}, {}).by_type()  # type: ignore[arg-type]
    rules = Rules(most, config.defrag.buffer)
    return {
        kind: plan(rooms(site, kind, movable.get(kind, ())), jobs, rules)
        for kind, jobs in waiting(site, config, binds, print).items()
    }


def spread(folder: Path) -> Site:
    """The site."""
    types = read_nodes(str(folder / "openb_node_list_gpu_node.csv"))
    work = fitted(read_trace(folder / "openb_pod_list_default.csv"), types)
    cluster = Cluster(types, "spread")
    dice, runs = random.Random(1), []
    for job in work.jobs:
        nodes = cluster.find(job) if job.gpus == 1 else None
        if nodes is not None:
            cluster.take(nodes, job)
            runs.append((job, nodes))
    for job, nodes in list(runs):
        if dice.random() < 0.2:
            cluster.give(nodes, job)
            runs.remove((job, nodes))
    kinds = [kind for kind in types for _ in range(kind.count)]
    jobs = [running(job, f"n{nodes[0][0]}") for job, nodes in runs]
    jobs += [queued(job) for job in work.jobs if job.gpus > 1]
    free = cluster.state()
    nodes_now = [
        node(f"n{i}", kind, [float(amount) for amount in free[:, i]])
        for i, kind in enumerate(kinds)
    ]
    return Site(NOW, Queue(tuple(jobs)), Capacity(tuple(nodes_now)))


def node(name: str, kind: NodeType, free: list[float]) -> Node:
    """A node as sinfo shows it. free: GPUs, CPUs, MiB."""
    gpus, cpus, memory_mib = free
    return Node(
        name, ("main",), "mixed",
        gres=f"gpu:{kind.gpu_type}={kind.gpus}",
        gres_used=f"gpu:{kind.gpu_type}={kind.gpus - int(gpus)}",
        cpus=kind.cpus, cpus_used=kind.cpus - int(cpus),
        memory_mb=kind.memory_mib, memory_used_mb=kind.memory_mib - int(memory_mib),
    )  # fmt: skip


def running(job: Job, name: str) -> QueueJob:
    """A job that has run for a day."""
    return QueueJob(
        job.job_id, account=job.tenant, user="u", partition="main", state="RUNNING",
        start=NOW - 86400, gres=f"gpu={job.gpus}", tres=tres(job), nodes=name,
    )  # fmt: skip


def queued(job: Job) -> QueueJob:
    """A job that waits, and names no type."""
    return QueueJob(
        job.job_id, account=job.tenant, user="u", partition="main", reason="Resources",
        submit=NOW - 600, eligible=NOW - 600, priority=1, gres=f"gpu={job.gpus}", tres=tres(job),
    )  # fmt: skip


def tres(job: Job) -> str:
    """What it holds or asks for."""
    return f"cpu={job.cpus},mem={job.memory_mib}M,node=1,gres/gpu={job.gpus}"


if __name__ == "__main__":
    for row in figures(3):
        print(*row, sep=" | ")
