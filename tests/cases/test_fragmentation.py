"""Cases of kind fragmentation: the field log's inputs and right answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurm_ltgf.core.defrag import Plan, Rules, Waiting, plan
from slurm_ltgf.core.fragmentation import Part, parts_of
from slurm_ltgf.core.movable import Class, Movable, Room
from slurm_ltgf.service.fragmentation import Site, state
from slurm_ltgf.service.places import shape
from slurm_ltgf.slurm.nodes import Capacity, Node
from slurm_ltgf.slurm.queue import Queue, QueueJob

INPUTS = Path(__file__).parent / "inputs"
NOW = 1_800_000_000
MAIN, COST_GPU_S = frozenset({"main"}), 25.0


def text(name: str) -> str:
    return (INPUTS / f"frg-{name}.txt").read_text()


def waiting(job_id: int, gpus: int, *, cpus: int = 1, nodes: int = 1) -> QueueJob:
    return QueueJob(
        job_id,
        partition="main",
        reason="Resources",
        eligible=NOW - 60,
        priority=1000 - job_id,
        gres=f"gpu={gpus}",
        tres=f"cpu={cpus},node={nodes},gres/gpu={gpus}",
    )


def node(name: str, *, gpus: int, used: int, cpus: int = 64, cpus_used: int = 0) -> Node:
    return Node(
        name, ("main",), "mixed", gres=f"gpu={gpus}", gres_used=f"gpu={used}",
        cpus=cpus, cpus_used=cpus_used,
    )  # fmt: skip


def site(nodes: list[Node], jobs: list[QueueJob]) -> Site:
    return Site(NOW, Queue(tuple(jobs)), Capacity(tuple(nodes)))


def test_frg_01_one_gpu_jobs_spread_over_nodes_block_a_larger_one():
    per_node = int(re.findall(r"nodes x (\d+) GPUs", text("01"))[0])
    running = re.findall(r"(\w)\((\d)\) on (n\d)", text("01"))
    pending = re.findall(r"(\w)\((\d)\)(?! on)", text("01"))
    nodes = [node(name, gpus=per_node, used=int(gpus)) for _, gpus, name in running]
    jobs = [waiting(i, int(gpus)) for i, (_, gpus) in enumerate(pending)]
    (pool,) = state(site(nodes, jobs))
    assert (pool.free_gpus, pool.largest, pool.largest_possible) == (5, 3, 4)
    assert pool.blocked_jobs == 1, "D"
    # C(2) fits on both nodes; D(4), every second job, could be given none of the 5
    assert pool.score == pytest.approx(0.5)


def frg_01(*, wanted: str = "CD", running: str = "AB") -> tuple[Plan, dict[str, int]]:
    """The plan of the case, for some of its jobs; the pending ones' ids by letter."""
    per_node = int(re.findall(r"nodes x (\d+) GPUs", text("01"))[0])
    ids = {letter: i for i, letter in enumerate("ABCD")}
    rooms = {name: Room(name, MAIN, per_node, per_node) for name in ("n1", "n2")}
    for letter, gpus, name in re.findall(r"(\w)\((\d)\) on (n\d)", text("01")):
        if letter not in running:
            continue
        rooms[name].gpus -= int(gpus)
        if gpus == "1":
            job = Movable(ids[letter], name, Part(1), MAIN, Class.TRAINING, COST_GPU_S)
            rooms[name].movable.append(job)
    pending = [
        Waiting(ids[letter], (Part(int(gpus)),), MAIN, 3600.0 * int(gpus))
        for letter, gpus in re.findall(r"(\w)\((\d)\)(?! on)", text("01"))
        if letter in wanted
    ]
    return plan(list(rooms.values()), pending, Rules(10)), ids


def test_frg_01_the_plan_names_the_one_move_that_lets_the_larger_job_start():
    found, ids = frg_01(wanted="D")
    (start,) = found.ways
    assert (start.job.job_id, start.way.nodes) == (ids["D"], ("n1",))
    assert [job.job_id for job in start.way.leaving] == [ids["A"]]
    assert (start.way.to, start.way.key.gpu_s) == (("n2",), COST_GPU_S)


def test_frg_01_with_both_c_goes_to_n2_and_a_is_named_as_what_d_waits_for():
    """A has no room elsewhere then: nothing is moved, D starts when A ends."""
    found, ids = frg_01()
    (start,) = found.starts
    assert (start.job.job_id, start.way.nodes, start.way.leaving) == (ids["C"], ("n2",), ())
    (blocked,) = found.blocked
    assert blocked.job.job_id == ids["D"]
    assert [(job.job_id, job.node) for job in blocked.leaving] == [(ids["A"], "n1")]
    assert blocked.key.gpu_s == COST_GPU_S
    assert blocked.why == "who would have to leave finds no room elsewhere: 3 GPUs are free"


def test_frg_01_nothing_is_proposed_where_d_would_fit_anyway():
    found, ids = frg_01(running="B")
    assert [start.job.job_id for start in found.starts] == [ids["C"], ids["D"]]
    assert (found.ways, found.blocked) == ([], [])


def test_frg_03_gpus_without_cpus_are_stranded_and_not_promised():
    gpus, cpus = map(int, re.findall(r"(\d+) GPU/(\d+) CPU", text("03"))[0])
    used, cpus_used = map(int, re.findall(r"with (\d+) GPU \+ (\d+) CPU", text("03"))[0])
    count, asked, needs = map(
        int, re.findall(r"(\d+) pending jobs of (\d+) GPU \+ (\d+) CPU", text("03"))[0]
    )
    nodes = [node("n1", gpus=gpus, used=used, cpus=cpus, cpus_used=cpus_used)]
    (pool,) = state(site(nodes, [waiting(i, asked, cpus=needs) for i in range(count)]))
    assert (pool.free_gpus, pool.usable_gpus, pool.stranded) == (7, 4, {"CPUs": 3})
    assert pool.largest == 4
    assert pool.demand.source == "pending"
    assert pool.score == pytest.approx(3 / 7)


@pytest.mark.parametrize(("per_node", "wanted"), [(8, {79: 2, 92: 1}), (4, {79: 3, 92: 2})])
def test_frg_04_numnodes_is_only_a_lower_bound(per_node, wanted):
    """The case looks at 79 on nodes of 8 alone; on nodes of 4 it takes three."""
    jobs = []
    for row in text("04").split(" ; ")[:2]:
        job_id, nodes = map(int, re.findall(r"(\d+) PD nodes=(\d+)", row)[0])
        kind, gpus = re.findall(r"tres-per-(\w+) gpu:(\d+)", row)[0]
        tasks = int(re.findall(r"ntasks=(\d+)", row)[0]) if kind == "task" else 1
        # squeue's tres-alloc has a waiting job's total, over all nodes and tasks
        jobs.append(waiting(job_id, int(gpus) * tasks, nodes=nodes))
    shapes = [found for job in jobs if (found := shape(job))]
    assert {one.job_id: len(parts_of(one, per_node)) for one in shapes} == wanted
    nodes = [node(f"n{i}", gpus=per_node, used=0) for i in range(4)]
    (pool,) = state(site(nodes, jobs))
    assert sum(kind.gpus * kind.jobs for kind in pool.demand.kinds) == 18
