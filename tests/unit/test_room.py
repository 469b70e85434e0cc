"""Which jobs leave so that another fits: nodes by hand, and laws on random ones."""

from hypothesis import given
from hypothesis import strategies as st

from slurm_ltgf.core.room import Room


def room(free, held, **asks):
    """Nodes a, b, ..; jobs by number."""
    parts = {int(name[1:]): tuple(want) for name, want in asks.items()}
    return Room(free, held, parts | {j: tuple(nodes.values()) for j, nodes in held.items()})


def test_a_job_goes_where_it_fits_most_tightly():
    nodes = room({"a": 4, "b": 2}, {}, j9=[2], j10=[4], j11=[4, 2])
    assert nodes.fits(10)
    assert nodes.fits(11)
    nodes.take(9)  # on b
    assert nodes.fits(10)
    assert not nodes.fits(11)
    assert nodes.free_gpus == 4


def test_free_gpus_on_several_nodes_are_no_room_for_one_part():
    nodes = room({"a": 2, "b": 2}, {1: {"a": 2}, 2: {"b": 2}}, j9=[4])
    assert not nodes.fits(9)
    assert nodes.clear(9, [1, 2]) == [1]
    assert nodes.clear(9, [2, 1]) == [2]


def test_one_alone_leaves_if_one_will_do_else_the_fewest_gpus():
    held = {1: {"a": 1}, 2: {"a": 5}, 3: {"b": 4}, 4: {"c": 1}, 5: {"c": 2}}
    nodes = room({"a": 2, "b": 4, "c": 5}, held, j9=[8])
    assert nodes.clear(9, [1, 2, 3, 4, 5]) == [3]
    assert nodes.clear(9, [1, 2, 4, 5]) == [4, 5]  # 3 GPUs, on a 6


def test_nobody_leaves_who_could_stay():
    """1 (1 GPU) is first to go, but with 2 (4 GPUs) the part fits without it."""
    nodes = room({"a": 0}, {1: {"a": 1}, 2: {"a": 4}}, j9=[4])
    assert nodes.clear(9, [1, 2]) == [2]


def test_only_who_may_go():
    nodes = room({"a": 0, "b": 0}, {1: {"a": 4}, 2: {"b": 4}}, j9=[4])
    assert nodes.clear(9, [2]) == [2]
    assert nodes.clear(9, []) is None


def test_a_job_on_two_nodes_gives_both():
    nodes = room(
        {"a": 0, "b": 0, "c": 0}, {1: {"a": 8, "b": 8}, 2: {"c": 8}}, j9=[8, 8], j10=[8, 4]
    )
    assert nodes.clear(9, [2, 1]) == [2, 1]
    assert nodes.clear(9, [1]) == [1]


def test_whether_all_would_fit_changes_nothing():
    nodes = room({"a": 0, "b": 2}, {1: {"a": 2}}, j9=[2])
    assert nodes.would_fit([1], [9, 1])  # 9 on a, 1 on b
    assert not nodes.would_fit([], [9, 1])
    assert nodes.free_gpus == 2


def test_counted_gpus_are_those_of_one_node():
    nodes = Room.counted(1, {1: 2, 2: 3}, {9: 4})
    assert nodes.clear(9, [1, 2]) == [2]


@st.composite
def clusters(draw):
    """Nodes of 4 GPUs with jobs of one or two nodes, and one that asks."""
    free = dict.fromkeys("abcd", 4)
    held = {}
    for job_id in range(1, draw(st.integers(0, 8)) + 1):
        on = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=2, unique=True))
        gpus = draw(st.integers(1, 4))
        if all(free[node] >= gpus for node in on):
            held[job_id] = dict.fromkeys(on, gpus)
            for node in on:
                free[node] -= gpus
    ask = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    parts = {job_id: tuple(nodes.values()) for job_id, nodes in held.items()}
    movable = draw(st.lists(st.sampled_from(sorted(held)), unique=True)) if held else []
    return Room(free, held, parts | {99: tuple(ask)}), held, movable


@given(clusters())
def test_whoever_must_leave_makes_room_and_nothing_else_does(case):
    nodes, _, movable = case
    before = nodes.free_gpus
    gone = nodes.clear(99, movable)
    assert nodes.free_gpus == before
    if nodes.fits(99):
        assert gone is not None
    if gone is None:
        return
    assert set(gone) <= set(movable)
    assert len(gone) == len(set(gone))
    assert nodes.would_fit(gone, [99])
    for job_id in gone if len(gone) == 1 else ():
        assert not nodes.would_fit(set(gone) - {job_id}, [99])


@given(clusters())
def test_one_part_finds_room_wherever_a_node_can_be_emptied_for_it(case):
    nodes, _, movable = case
    if len(nodes._parts[99]) != 1:
        return
    could = nodes.would_fit(movable, [99])
    assert (nodes.clear(99, movable) is not None) == could
