"""The scores of a pool and what is stranded in it."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ltgf.core.fragmentation import Demand, Kind, Part, PoolState, pool_state, variance
from slurm_ltgf.core.model import Run, Runs
from slurm_ltgf.core.pools import Place
from slurm_ltgf.service.fragmentation import Site, past_demand, state
from slurm_ltgf.slurm.nodes import Capacity, Node
from slurm_ltgf.slurm.queue import Queue, QueueJob
from slurm_ltgf.slurm.reservations import Reservation, parse_reservations
from slurm_ltgf.slurm.site import Partition, parse_partitions

MAIN = frozenset({"main"})
NOW = 1_800_000_000


def place(name="n1", free=8, *, gpus=8, cpus=math.inf, memory=math.inf, barred=""):
    return Place(
        name, MAIN, "", gpus, free, free_cpus=cpus, free_memory_mb=memory, barred=barred
    )  # fmt: skip


def pool(frees, *kinds, gpus=8):
    places = [place(f"n{i}", free, gpus=gpus) for i, free in enumerate(frees)]
    return pool_state("main", "", places, Demand(tuple(kinds), "pending"))


def kind(gpus, jobs=1, *, cpus=0, memory=0, nodes=1):
    return Kind((Part(gpus, cpus, memory),) * nodes, jobs)


def test_all_half_full_is_perfect_by_variance_and_lost_for_whole_node_jobs():
    half, packed = pool([4, 4, 4, 4], kind(8)), pool([8, 8, 0, 0], kind(8))
    assert (half.variance, half.score, half.largest) == (0.0, 1.0, 4)
    assert (packed.variance, packed.score, packed.largest) == (1.0, 0.0, 16)
    assert half.free_gpus == packed.free_gpus == 16


def test_the_score_follows_what_is_asked_for():
    frees = [4, 4, 4, 4]
    assert pool(frees, kind(4)).score == 0.0
    assert pool(frees, kind(8), kind(1, jobs=3)).score == 0.25
    assert pool(frees, kind(8, jobs=3), kind(1)).score == 0.75


def test_worked_by_hand_over_nodes_and_kinds():
    # of 3 + 2 + 1 free GPUs: a 1-GPU job could have all, a 2-GPU job not the last one,
    # a 3-GPU job not 2 + 1
    found = pool([3, 2, 1], kind(1, jobs=2), kind(2), kind(3))
    assert found.unallocatable_gpus == pytest.approx(0 * 2 / 4 + 1 / 4 + 3 / 4)
    assert found.score == pytest.approx(1 / 6)


def test_a_job_on_several_nodes_counts_as_its_parts():
    found = pool([8, 4], Kind((Part(8), Part(4))))
    assert found.unallocatable_gpus == pytest.approx(4 / 2)
    assert found.blocked_jobs == 0


def test_what_the_empty_pool_could_not_hold_is_no_fragmentation():
    found = pool([8, 8], kind(8, jobs=2, nodes=3), kind(16), kind(8))
    assert (found.score, found.too_large_jobs) == (0.0, 3)


@pytest.mark.parametrize("found", [pool([0, 0], kind(8)), pool([4, 4])], ids=["full", "no demand"])
def test_without_free_gpus_or_demand_there_is_no_score(found):
    assert (found.score, found.unallocatable_gpus) == (None, None)


def test_drained_nodes_are_stranded_and_in_no_score():
    places = [place("n1", 8), place("n2", 8, barred="drain")]
    found = pool_state("main", "", places, Demand((kind(8),), "pending"))
    assert (found.free_gpus, found.usable_gpus, found.stranded) == (16, 8, {"drain": 8})
    assert (found.score, found.largest_possible) == (0.0, 8)


def test_memory_strands_where_it_ends_first():
    places = [place("n1", 6, cpus=5, memory=300)]
    found = pool_state("main", "", places, Demand((kind(1, cpus=1, memory=100),), "pending"))
    assert (found.usable_gpus, found.stranded) == (3, {"memory": 3})
    assert found.score == pytest.approx(3 / 6)


def test_free_gpus_beside_no_free_cpu_can_be_given_to_nobody():
    found = pool_state("main", "", [place("n1", 4, cpus=0)], Demand((kind(1),), "history"))
    assert (found.usable_gpus, found.score, found.largest) == (0, 1.0, 0)


def test_the_largest_job_of_whole_nodes_and_what_as_many_free_gpus_could_hold():
    assert pool([7, 7, 7, 7]).largest_possible == 24
    assert (pool([7, 7, 8, 7]).largest, pool([7, 7, 8, 7]).largest_possible) == (8, 24)
    assert (pool([2, 3]).largest, pool([2, 3]).largest_possible) == (3, 5)


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 5)), min_size=1, max_size=4),
)
def test_laws_of_both_scores(frees, asked):
    kinds = [kind(gpus, jobs) for gpus, jobs in asked]
    found = pool(frees, *kinds)
    assert 0 <= found.variance <= 1 + 1e-9
    assert found.largest <= found.largest_possible <= found.free_gpus
    if found.score is None:
        assert found.free_gpus == 0
        return
    assert 0 <= found.score <= 1 + 1e-9
    mixed = pool(list(reversed(frees)), *reversed(kinds))
    assert (mixed.score, mixed.variance) == pytest.approx((found.score, found.variance))
    # no place keeps a one-GPU job out, and no empty pool any job
    assert pool(frees, kind(1)).score == 0.0
    assert pool([8] * len(frees), *kinds).score == 0.0


@given(st.lists(st.integers(0, 4), min_size=2, max_size=4))
def test_a_larger_job_never_finds_less_fragmentation(frees):
    scores = [pool(frees, kind(gpus), gpus=4).unallocatable_gpus or 0 for gpus in range(1, 5)]
    assert scores == sorted(scores)


def test_variance_of_no_node_is_not_known():
    assert variance([]) is None


# --- from Slurm's records -------------------------------------------------------------------------


def node(name="n1", used=0, *, gpus=8, kind=":h200", partitions=("main",), state="mixed", **more):
    return Node(
        name, partitions, state, gres=f"gpu{kind}={gpus}", gres_used=f"gpu{kind}={used}",
        **{"cpus": 64, "memory_mb": 1000, **more},
    )  # fmt: skip


def job(job_id=1, gpus=8, *, partition="main", kind="", **more):
    values = {
        "partition": partition, "reason": "Resources", "eligible": NOW - 9, "priority": 9,
        "gres": f"gpu{kind}={gpus}", "tres": f"cpu=1,mem=100M,node=1,gres/gpu={gpus}",
    }  # fmt: skip
    return QueueJob(job_id, **{**values, **more})


def look(nodes, jobs=(), *, reservations=(), partitions=(), past=()) -> dict[str, PoolState]:
    site = Site(NOW, Queue(tuple(jobs)), Capacity(tuple(nodes)), reservations, partitions)
    return {pool.name: pool for pool in state(site, past)}


def test_a_pool_for_each_partition_and_type():
    nodes = [node("n1", partitions=("main", "debug")), node("t1", kind=":t4", gpus=4)]
    found = look(nodes)
    assert {name: pool.gpus for name, pool in found.items()} == {
        "debug/h200": 8, "main/h200": 8, "main/t4": 4,
    }  # fmt: skip
    assert {pool.demand.source for pool in found.values()} == {"none"}


def test_a_reservation_that_is_on_strands_its_nodes():
    ours, later = (
        Reservation(name, ("n1",), start, NOW + 900, cpus=64)
        for name, start in (("class", NOW - 9), ("soon", NOW + 9))
    )
    nodes = [node("n1", 2), node("n2")]
    assert look(nodes, reservations=(ours,))["main/h200"].stranded == {"reservation": 6}
    assert look(nodes, reservations=(later,))["main/h200"].stranded == {}
    part = Reservation("cores", ("n1",), NOW - 9, NOW + 9, cpus=2)
    assert look(nodes, reservations=(part,))["main/h200"].stranded == {}


def test_partitions_strand_by_their_state_and_by_cpus_a_node():
    nodes = [node("n1", partitions=("main", "cpu"), cpus_used=2, used=1)]
    runs = job(7, 1, partition="cpu", state="RUNNING", nodes="n1", tres="cpu=2,node=1")
    limits = (Partition("main", "DRAIN"), Partition("cpu", max_cpus=6))
    found = look(nodes, [runs], partitions=limits)
    assert found["main/h200"].stranded == {"partition drain": 7}
    assert found["cpu/h200"].stranded == {"partition limits": 3}


def test_slices_that_nobody_asks_for_while_whole_gpus_are_waited_for_are_a_layout():
    nodes = [node("n1", 8), node("m1", 0, kind=":h200_1g.18gb", gpus=7)]
    found = look(nodes, [job(1, kind=":h200")])
    assert found["main/h200_1g.18gb"].stranded == {"MIG layout": 7}
    assert look(nodes)["main/h200_1g.18gb"].stranded == {}
    asks = look(nodes, [job(1, kind=":h200"), job(2, 1, kind=":h200_1g.18gb")])
    assert asks["main/h200_1g.18gb"].stranded == {}


def test_gpus_that_are_shared_are_not_free():
    shared = Node(
        "n1", ("main",), "mixed", cpus=64,
        gres="gpu:h200=8,shard:h200=32", gres_used="gpu:h200=2,shard:h200=6",
    )  # fmt: skip
    assert look([shared])["main/h200"].free_gpus == 4


def test_only_demand_counts_and_history_where_there_is_none():
    past = past_demand(
        Runs.of(
            [
                Run("c", 1, partition="main", gres="gpu:h200=4,gpu=4", nodes="n1"),
                Run("c", 1, partition="main", gres="gpu:h200=4,gpu=4", nodes="n2", restarts=1),
                Run("c", 2, partition="main", gres="gpu:h200=16,gpu=16", nodes="n[1-2]"),
                Run("c", 3, partition="main"),
            ]
        )
    )
    assert [(shape.gpus, shape.nodes, jobs) for shape, jobs in past] == [(4, 1, 1), (16, 2, 1)]
    nodes = [node("n1", 2), node("n2", 2)]
    held = job(1, 8, priority=0)
    assert look(nodes, [held], past=past)["main/h200"].demand.source == "history"
    assert look(nodes, [held], past=past)["main/h200"].score == pytest.approx(0.5)
    assert look(nodes, [job(1, 2)], past=past)["main/h200"].demand.source == "pending"


def test_an_array_counts_each_task_that_could_run():
    nodes = [node("n1", 4)]
    array = job(1, 8, array_job=1, tasks=3, throttle=2)
    found = look(nodes, [array, job(2, 1), job(3, 1)])["main/h200"]
    assert [k.jobs for k in found.demand.kinds] == [2, 2]
    assert found.score == 0.5


def test_who_names_no_type_is_asked_of_the_one_with_most_gpus():
    nodes = [node("n1"), node("t1", kind=":t4", gpus=4)]
    found = look(nodes, [job(1, 2)])
    assert (found["main/h200"].demand.source, found["main/t4"].demand.source) == (
        "pending", "none",
    )  # fmt: skip


def test_reservations_as_scontrol_prints_them():
    text = (
        "ReservationName=tst StartTime=1800000000 EndTime=1800000600 Duration=00:10:00"
        " Nodes=n[2-3] NodeCnt=2 CoreCnt=128 Flags=SPEC_NODES,MAINT TRES=cpu=128 Users=root\n"
    )
    (found,) = parse_reservations(text)
    assert (found.name, found.nodes, found.cpus) == ("tst", ("n2", "n3"), 128)
    assert [found.is_on(NOW + s) for s in (-1, 0, 599, 600)] == [False, True, True, False]


def test_cpus_a_node_of_a_partition():
    lines = "".join(
        f"PartitionName=p{i} MaxCPUsPerNode={most} State=UP\n"
        for i, most in enumerate(("16", "UNLIMITED"))
    )
    few, all_ = parse_partitions(lines)
    assert few.max_cpus == 16
    assert all_.max_cpus > 1 << 40


def test_brute_force_of_the_largest_job_of_whole_nodes():
    for frees in product(range(3), repeat=3):
        found = pool(frees, gpus=2)
        whole = sum(free == 2 for free in frees)
        assert found.largest == (2 * whole if whole else max(frees))
