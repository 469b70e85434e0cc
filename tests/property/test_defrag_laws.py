"""The plan against brute force: every set of jobs that could move, every place they could go to."""

from __future__ import annotations

from itertools import combinations, permutations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_ltgf.core.defrag import Rules, Waiting, plan
from slurm_ltgf.core.fragmentation import Part
from slurm_ltgf.core.movable import Class, Movable, Room, total
from slurm_ltgf.core.way import cheapest_way

MAIN = frozenset({"main"})
NODE_GPUS = 4
ENOUGH = 99


def movable(job_id, node, *, cpus=0, klass=0, gpu_s=1):
    return Movable(job_id, node, Part(1, cpus), MAIN, Class(klass), gpu_s)


@st.composite
def sites(draw, *, most_nodes=4, most_jobs=6, with_cpus=True):
    """Small pools: free GPUs (and CPUs) of each node, and jobs of one GPU on it."""
    rooms, left = [], most_jobs
    for i in range(draw(st.integers(2, most_nodes))):
        free = draw(st.integers(1, NODE_GPUS - 1))
        count = min(draw(st.integers(1, NODE_GPUS - free)), left)
        left -= count
        cpus = float(draw(st.sampled_from([0, 1, 4, 20]))) if with_cpus else float("inf")
        jobs = [
            movable(
                10 * i + j,
                f"n{i}",
                cpus=draw(st.integers(1, 5)) if with_cpus else 0,
                klass=draw(st.integers(0, 2)),
                gpu_s=draw(st.integers(1, 3)),
            )
            for j in range(count)
        ]
        rooms.append(Room(f"n{i}", MAIN, NODE_GPUS, free, cpus, movable=jobs))
    return rooms


def parts(draw_gpus, cpus=0):
    return tuple(Part(gpus, cpus) for gpus in draw_gpus)


asked = st.lists(st.integers(2, NODE_GPUS), min_size=1, max_size=2)


def free_of(rooms):
    return {room.node: [room.gpus, room.cpus] for room in rooms}


def fits(free, node, part):
    return part.gpus <= free[node][0] and max(part.cpus, 1) <= free[node][1]


def move(free, node, part, sign):
    free[node][0] += sign * part.gpus
    free[node][1] += sign * max(part.cpus, 1)


def is_needed(room, part, gone):
    """Whether each that leaves a node has to, for the part that gets it."""
    free = {room.node: [room.gpus, room.cpus]}
    for job in gone:
        move(free, room.node, job.part, 1)
    for job in gone:
        move(free, room.node, job.part, -1)
        if fits(free, room.node, part):
            return False
        move(free, room.node, job.part, 1)
    return fits(free, room.node, part)


def brute_force(wanted, rooms, *, bound_to_rules):
    """The least key of all ways; None: there is none."""
    jobs = [job for room in rooms for job in room.movable]
    best = None
    for size in range(len(jobs) + 1):
        for gone in combinations(jobs, size):
            if best is not None and total(gone) >= best:
                continue
            if can_go(wanted, rooms, gone, bound_to_rules=bound_to_rules):
                best = total(gone)
    return best


def can_go(wanted, rooms, gone, *, bound_to_rules):
    by_node = {room.node: room for room in rooms}
    for nodes in permutations(by_node, len(wanted)):
        if bound_to_rules:
            if any(job.node not in nodes for job in gone):
                continue
            own = {node: [job for job in gone if job.node == node] for node in nodes}
            if not all(
                is_needed(by_node[node], part, own[node])
                for node, part in zip(nodes, wanted, strict=True)
            ):
                continue
        if any(works(wanted, nodes, gone, to, rooms) for to in product(by_node, repeat=len(gone))):
            return True
    return False


def works(wanted, nodes, gone, to, rooms):
    free = free_of(rooms)
    for job in gone:
        move(free, job.node, job.part, 1)
    for node, part in zip(nodes, wanted, strict=True):
        move(free, node, part, -1)
    for job, node in zip(gone, to, strict=True):
        if node == job.node:
            return False
        move(free, node, job.part, -1)
    return all(gpus >= 0 and cpus >= 0 for gpus, cpus in free.values())


def found_key(wanted, rooms):
    way = cheapest_way(wanted, rooms, {room.node: room for room in rooms}, most=ENOUGH)
    if way is None:
        return None
    assert works(wanted_in_order(wanted), way.nodes, way.leaving, way.to, rooms)
    return way.key


def wanted_in_order(wanted):
    return tuple(sorted(wanted, key=lambda part: (part.gpus, part.cpus), reverse=True))


@settings(max_examples=150, deadline=None)
@given(sites(most_nodes=3, most_jobs=5), asked, st.integers(0, 9))
def test_the_cheapest_way_with_cpus_is_that_of_brute_force(rooms, gpus, cpus):
    wanted = parts(gpus, cpus)
    before = free_of(rooms)
    expected = brute_force(wanted_in_order(wanted), rooms, bound_to_rules=True)
    assert found_key(wanted, rooms) == expected
    assert free_of(rooms) == before


@settings(max_examples=150, deadline=None)
@given(sites(most_nodes=3, most_jobs=5, with_cpus=False), asked)
def test_where_gpus_alone_count_no_way_at_all_is_cheaper(rooms, gpus):
    """Also none by which jobs leave nodes that the waiting one does not get."""
    wanted = parts(gpus)
    assert found_key(wanted, rooms) == brute_force(wanted, rooms, bound_to_rules=False)


@settings(max_examples=150, deadline=None)
@given(
    sites(most_nodes=3, most_jobs=4),
    st.lists(st.tuples(asked, st.integers(1, 2)), min_size=1, max_size=3),
    st.integers(0, 4),
    st.sampled_from([0.0, 0.05, 0.25]),
)
def test_a_plan_keeps_account_of_every_gpu_and_of_its_limits(rooms, jobs, most, buffer):
    waiting = [Waiting(i, parts(gpus, cpus), MAIN, 5.0) for i, (gpus, cpus) in enumerate(jobs)]
    before, where = free_of(rooms), {j.job_id: j.node for r in rooms for j in r.movable}
    found = plan(rooms, waiting, Rules(most, buffer))
    moved = [job.job_id for start in found.ways for job in start.way.leaving]
    assert len(moved) == len(set(moved)) <= most
    free = {node: list(amounts) for node, amounts in before.items()}
    for start in found.starts:
        assert start.way.key.gpu_s <= start.job.worth_gpu_s
        for job, to in zip(start.way.leaving, start.way.to, strict=True):
            assert job.node == where[job.job_id] != to
            move(free, job.node, job.part, 1)
            move(free, to, job.part, -1)
        for node, part in zip(start.way.nodes, wanted_in_order(start.job.parts), strict=True):
            move(free, node, part, -1)
        assert all(gpus >= 0 and cpus >= 0 for gpus, cpus in free.values())
        if start.way.leaving:
            left = sum(gpus for gpus, _ in free.values())
            assert left >= buffer * NODE_GPUS * len(rooms)
    assert free == free_of(rooms)
    assert len(found.starts) + len(found.blocked) == len(waiting)
    assert found.gain_gpus == sum(start.job.gpus for start in found.ways)


@settings(max_examples=150, deadline=None)
@given(sites(most_nodes=3, most_jobs=4), asked)
def test_the_gain_for_one_that_waits_is_the_best_there_is(rooms, gpus):
    wanted = wanted_in_order(parts(gpus))
    possible = brute_force(wanted, rooms, bound_to_rules=True)
    found = plan(rooms, [Waiting(1, wanted, MAIN, float("inf"))], Rules(ENOUGH, 0.0))
    if possible is None:
        assert not found.starts
    else:
        assert found.key == possible
        assert found.gain_gpus == (sum(gpus) if possible.jobs else 0)


@settings(max_examples=100, deadline=None)
@given(sites(), st.lists(asked, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_are_told_does_not_matter(rooms, jobs, random):
    waiting = [Waiting(i, parts(gpus), MAIN, 9.0) for i, gpus in enumerate(jobs)]
    copies = [
        Room(r.node, r.partitions, r.total_gpus, r.gpus, r.cpus, movable=list(r.movable))
        for r in rooms
    ]
    random.shuffle(copies)
    first, second = (plan(some, waiting, Rules(4)) for some in (rooms, copies))
    assert (first.starts, first.blocked) == (second.starts, second.blocked)
