"""The plan against fragmentation, by small examples; against brute force: tests/property."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from slurm_ltgf.core.defrag import Rules, Waiting, plan
from slurm_ltgf.core.fragmentation import Part
from slurm_ltgf.core.movable import Class, Movable, Room

MAIN = frozenset({"main"})
DEV, TRAINING, SERVING = Class.DEV, Class.TRAINING, Class.SERVING


def job(job_id, node="", *, klass=TRAINING, gpu_s=25.0, cpus=0, partitions=MAIN, avoids=()):
    part, where = Part(1, cpus), frozenset(partitions)
    return Movable(job_id, node, part, where, klass, gpu_s, frozenset(avoids))


def room(node, free, *jobs, gpus=8, cpus=math.inf, partitions=MAIN):
    own = [replace(one, node=node) for one in jobs]
    return Room(node, frozenset(partitions), gpus, free, cpus, movable=own)


def waits(job_id, *gpus, cpus=0, worth=math.inf, avoids=(), partitions=MAIN):
    parts = tuple(Part(count, cpus) for count in gpus)
    return Waiting(job_id, parts, frozenset(partitions), worth, frozenset(avoids))


def planned(rooms, *waiting, most=9, buffer=0.0):
    return plan(rooms, waiting, Rules(most, buffer))


def moves(found):
    return {
        moved.job_id: (moved.node, to)
        for start in found.ways
        for moved, to in zip(start.way.leaving, start.way.to, strict=True)
    }


def test_one_job_leaves_for_the_fullest_node_with_room():
    rooms = [room("n1", 7, job(1)), room("n2", 6, job(2), job(3)), room("n3", 1), room("n4", 0)]
    found = planned(rooms, waits(9, 8))
    assert moves(found) == {1: ("n1", "n3")}
    assert (found.gain_gpus, found.key.gpu_s, found.blocked) == (8, 25.0, [])


def test_who_fits_has_nobody_moved():
    found = planned([room("n1", 7, job(1)), room("n2", 8)], waits(9, 8))
    assert (moves(found), [start.way.nodes for start in found.starts]) == ({}, [("n2",)])


def test_the_first_in_the_queue_is_served_first():
    rooms = [room("n1", 7, job(1)), room("n2", 1, job(2))]
    found = planned(rooms, waits(8, 8), waits(9, 1))
    assert [start.job.job_id for start in found.starts] == [8]
    assert [blocked.job.job_id for blocked in found.blocked] == [9]
    other_way = planned([room("n1", 7, job(1)), room("n2", 1, job(2))], waits(9, 1), waits(8, 8))
    assert [start.job.job_id for start in other_way.starts] == [9]


def test_dev_before_training_before_serving():
    def on(*klasses):
        rooms = [room(f"n{i}", 7, job(i, klass=k)) for i, k in enumerate(klasses)]
        return list(moves(planned([*rooms, room("x", 1, gpus=1)], waits(9, 8))))

    assert on(SERVING, TRAINING, DEV) == [2]
    assert on(SERVING, TRAINING) == [1]
    rooms = [room("n1", 7, job(1)), room("n2", 5, *(job(i, klass=DEV) for i in (2, 3, 4)))]
    assert sorted(moves(planned([*rooms, room("x", 3, gpus=3)], waits(9, 8)))) == [2, 3, 4]


def test_of_a_class_the_cheapest():
    rooms = [room("n1", 7, job(1, gpu_s=90.0)), room("n2", 6, job(2), job(3)), room("n3", 4)]
    assert sorted(moves(planned(rooms, waits(9, 8)))) == [2, 3]


def test_cpus_can_make_more_leave_than_gpus_would():
    few = [room(name, 1, cpus=4) for name in ("n2", "n3")]
    rooms = [room("n1", 6, job(1, cpus=4), job(2, cpus=4), cpus=0), *few]
    assert sorted(moves(planned(rooms, waits(9, 2, cpus=8)))) == [1, 2]


def test_who_leaves_needs_its_cpus_elsewhere():
    rooms = [room("n1", 7, job(1, cpus=4)), room("n2", 1, cpus=3), room("n3", 2, cpus=4)]
    assert moves(planned(rooms, waits(9, 8))) == {1: ("n1", "n3")}


def test_a_gang_gets_a_node_for_each_part():
    rooms = [room("n1", 7, job(1)), room("n2", 8), room("n3", 7, job(3)), room("n4", 3)]
    found = planned(rooms, waits(9, 8, 8))
    assert len(moves(found)) == 1
    assert sorted(found.ways[0].way.nodes) == ["n1", "n2"]
    four = planned([room(f"n{i}", 7, job(i)) for i in range(4)], waits(9, 8, 8))
    assert (len(moves(four)), four.gain_gpus) == (2, 16)


def test_partitions_bind_who_waits_and_who_moves():
    debug = frozenset({"debug"})
    rooms = [room("n1", 7, job(1)), room("d1", 7, gpus=8, partitions=debug)]
    (blocked,) = planned(rooms, waits(9, 8)).blocked
    assert "finds no room elsewhere" in blocked.why
    rooms = [room("n1", 7, job(1, partitions=("debug",))), room("d1", 7, partitions=debug)]
    assert moves(planned(rooms, waits(9, 8))) == {1: ("n1", "d1")}
    assert planned(rooms, waits(9, 8, partitions=debug)).ways == []


def test_nodes_that_jobs_avoid():
    rooms = [room("n1", 7, job(1, avoids=("n3",))), room("n2", 2), room("n3", 1)]
    assert moves(planned(rooms, waits(9, 8))) == {1: ("n1", "n2")}
    rooms = [room("n1", 7, job(1)), room("n2", 6, job(2), job(3)), room("n3", 4)]
    assert sorted(moves(planned(rooms, waits(9, 8, avoids=("n1",))))) == [2, 3]


@pytest.mark.parametrize(("buffer", "starts"), [(0.05, True), (0.0501, False)])
def test_a_buffer_stays_free(buffer, starts):
    # 20 GPUs, 9 free: 1 is left, which is 5 %
    rooms = [room("n1", 7, job(1)), room("n2", 2, gpus=12)]
    found = planned(rooms, waits(9, 8), buffer=buffer)
    assert bool(found.ways) == starts
    if not starts:
        (blocked,) = found.blocked
        assert blocked.why.startswith("1 of 20 GPUs would stay free, less than the buffer of")
        assert [one.job_id for one in blocked.leaving] == [1]


def test_the_buffer_binds_nobody_who_starts_without_moves():
    assert len(planned([room("n1", 8)], waits(9, 8), buffer=0.5).starts) == 1


def test_no_more_moves_than_are_allowed_now_and_the_rest_is_told():
    def rooms():
        return [room("n1", 6, job(1), job(2)), room("n2", 6, job(3), job(4)), room("x", 8)]

    found = planned(rooms(), waits(8, 8), waits(9, 8), waits(7, 8), most=2)
    assert [start.job.job_id for start in found.starts] == [8, 9]
    assert found.key.jobs == 2
    blocked, _ = planned([*rooms()[:1], room("x", 7)], waits(8, 8), waits(9, 8), most=1).blocked
    assert blocked.why == "it would need 2 moves: 1 are allowed now"
    assert [one.job_id for one in blocked.leaving] == [1, 2]


def test_a_move_must_be_worth_it():
    def found(worth):
        return planned([room("n1", 7, job(1)), room("n2", 4)], waits(9, 8, worth=worth))

    assert found(25.0).ways
    (blocked,) = found(24.0).blocked
    assert blocked.why == (
        "its moves cost 25 GPU-seconds, more than its start now is worth (24)"
    )  # fmt: skip


def test_who_is_moved_once_stays():
    rooms = [room("n1", 7, job(1)), room("n2", 7, job(2)), room("n3", 7, job(3))]
    found = planned(rooms, waits(8, 8), waits(9, 8))
    where = moves(found)
    assert len(where) == 2
    assert where == {1: ("n1", "n2"), 3: ("n3", "n2")}


def test_a_node_that_is_too_small_is_no_way():
    (blocked,) = planned(
        [room("n1", 3, job(1), gpus=4), room("n2", 3, gpus=4)], waits(9, 8)
    ).blocked
    assert blocked.why == "no node would have room for it, whichever jobs moved"


def test_many_alike_that_stay_blocked_are_looked_at_once(monkeypatch):
    from slurm_ltgf.core import defrag

    calls = []
    search = defrag.cheapest_way
    monkeypatch.setattr(defrag, "cheapest_way", lambda *a, **k: calls.append(1) or search(*a, **k))
    rooms = [room(f"n{i}", 3) for i in range(50)]
    found = planned(rooms, *(waits(i, 8) for i in range(200)))
    assert len(found.blocked) == 200
    assert len(calls) <= 3
