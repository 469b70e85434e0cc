"""Which nodes can take which waiting jobs: types, partitions, promises, several nodes."""

import pytest

from slurm_ltgf.core.pools import Place, Shape, pools_of

MAIN = frozenset({"main"})


def place(node, *, partitions=MAIN, kind="h200", gpus=8, free=0):
    return Place(node, frozenset(partitions), kind, gpus, free)


def shape(job_id, gpus=8, *, partitions=("main",), kind="", nodes=1):
    return Shape(job_id, partitions, kind, float(gpus), nodes)


NODES = [place("n1"), place("n2", free=4), place("n3", free=8)]


def pool(found, job_id):
    return found.rooms[found.pool_of[job_id]]


def test_jobs_that_can_use_the_same_nodes_share_a_pool():
    found = pools_of(NODES, [shape(1), shape(2, 4)], {})
    assert found.pool_of[1] == found.pool_of[2]
    assert pool(found, 1).free_gpus == 12
    assert found.put_off == ()


def test_a_type_that_is_asked_for_is_a_pool_of_its_own():
    places = [*NODES, place("t1", kind="t4", gpus=4, free=4)]
    found = pools_of(places, [shape(1, kind="h200"), shape(2, 4, kind="t4")], {})
    assert found.pool_of[1] != found.pool_of[2]
    assert pool(found, 2).free_gpus == 4


def test_who_asks_for_no_type_is_decided_on_the_one_with_most_gpus():
    places = [place("t1", kind="t4", gpus=4, free=4), *NODES]
    found = pools_of(places, [shape(1, 2)], {})
    assert pool(found, 1).free_gpus == 12


def test_a_node_with_two_types_is_in_the_pools_of_both():
    places = [place("n1", free=1), place("n1", kind="t4", gpus=4, free=4)]
    found = pools_of(places, [shape(1, kind="h200"), shape(2, kind="t4")], {})
    assert [pool(found, job_id).free_gpus for job_id in (1, 2)] == [1, 4]


@pytest.mark.parametrize(
    ("partitions", "kind"), [(("debug",), ""), (("main",), "t4"), ((), "")], ids=str
)
def test_who_can_use_no_node_is_in_no_pool(partitions, kind):
    found = pools_of(NODES, [shape(1, partitions=partitions, kind=kind)], {})
    assert (dict(found.pool_of), found.put_off) == ({}, (1,))


def test_without_open_nodes_there_are_no_pools():
    assert dict(pools_of([], [shape(1)], {7: {"n1": 8.0}}).rooms) == {}


def test_partitions_that_overlap_take_turns():
    """n2 is in both: decided in one pass, its GPUs would be given away twice."""
    places = [
        place("n1", free=8),
        place("n2", partitions={"main", "debug"}, free=8),
        place("n3", partitions={"debug"}, free=8),
    ]
    found = pools_of(places, [shape(1), shape(2, partitions=("debug",)), shape(3)], {})
    assert set(found.pool_of) == {1, 3}
    assert found.put_off == (2,)
    others = pools_of(places, [shape(2, partitions=("debug",)), shape(1)], {})
    assert set(others.pool_of) == {2}


def test_partitions_that_do_not_overlap_are_decided_together():
    places = [place("n1", free=8), place("n3", partitions={"debug"}, free=8)]
    found = pools_of(places, [shape(1), shape(2, partitions=("debug",))], {})
    assert set(found.pool_of) == {1, 2}
    assert found.pool_of[1] != found.pool_of[2]


def test_a_job_of_two_partitions_sees_the_nodes_of_both():
    places = [place("n1", free=8), place("n3", partitions={"debug"}, free=8)]
    found = pools_of(places, [shape(1, 16, partitions=("main", "debug"), nodes=2)], {})
    assert pool(found, 1).fits(1)


def test_a_drained_node_is_no_place_and_its_jobs_make_no_room():
    """Who runs on n9, which is not open, frees nothing for the job that waits."""
    held = {7: {"n9": 8.0}, 8: {"n1": 8.0}}
    room = pool(pools_of([place("n1")], [shape(1)], held), 1)
    assert room.clear(1, [7, 8]) == [8]
    assert room.clear(1, [7]) is None


def test_a_running_job_that_is_on_such_a_node_too_gives_what_it_has_elsewhere():
    held = {7: {"n9": 8.0, "n1": 8.0}}
    room = pool(pools_of([place("n1")], [shape(1)], held), 1)
    assert room.clear(1, [7]) == [7]
    assert not room.would_fit([7], [1, 7])


@pytest.mark.parametrize(
    ("gpus", "nodes", "per_node", "parts"),
    [
        (8, 1, 8, (8,)),
        (16, 1, 8, (8, 8)),
        (16, 4, 8, (4, 4, 4, 4)),
        (12, 1, 8, (6, 6)),
        (20, 1, 8, (8, 8, 4)),
        (7, 2, 8, (4, 4)),
        (3, 1, 0, (3,)),
    ],
)
def test_a_job_of_several_nodes_asks_for_a_part_on_each(gpus, nodes, per_node, parts):
    assert shape(1, gpus, nodes=nodes).parts(per_node) == parts


@pytest.mark.parametrize(
    ("gpus", "nodes", "per_node"), [(20, 1, 8), (7, 2, 8), (13, 3, 8), (5, 1, 8)]
)
def test_parts_are_never_less_than_the_whole_nor_more_than_a_node(gpus, nodes, per_node):
    found = shape(1, gpus, nodes=nodes).parts(per_node)
    assert sum(found) >= gpus
    assert max(found) <= per_node


def test_a_job_of_two_nodes_needs_two_that_are_clear():
    held = {7: {"n1": 8.0}, 8: {"n2": 4.0}}
    room = pool(pools_of(NODES, [shape(1, 16, nodes=2)], held), 1)
    assert room.clear(1, [7, 8]) == [8]  # n3 is free, n2 costs least
    room = pool(pools_of(NODES[:2], [shape(1, 16, nodes=2)], held), 1)
    assert sorted(room.clear(1, [7, 8])) == [7, 8]
    assert room.clear(1, [7]) is None


def test_gpus_that_were_freed_for_a_job_are_not_given_to_another():
    """Others made room for job 1: it has n3, and nobody is asked for it again."""
    found = pools_of(NODES, [shape(2)], {7: {"n1": 8.0}}, promised=[shape(1)])
    assert set(found.pool_of) == {2}
    room = pool(found, 2)
    assert room.free_gpus == 4
    assert not room.fits(2)
    assert room.clear(2, [7]) == [7]


def test_a_promise_that_is_not_there_yet_takes_nothing():
    found = pools_of(NODES[:2], [shape(2, 4)], {}, promised=[shape(1)])
    assert pool(found, 2).fits(2)


def test_a_promised_job_that_no_node_can_take_is_nobodys_turn():
    found = pools_of(NODES, [shape(2)], {}, promised=[shape(1, kind="t4")])
    assert (set(found.pool_of), found.put_off) == ({2}, ())
