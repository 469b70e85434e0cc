"""`ltgf frag` of a site given as data: who may move and why not, limits, steering, all or none.

Nodes of 4 GPUs; a job of four waits; jobs of one GPU run on n1 to n3.
"""

import os
from dataclasses import dataclass, field, replace

import pytest

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.protocol import Answer, Mode, Phase, Record
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.move import Goal, Move, State
from slurm_ltgf.errors import SlurmRefused
from slurm_ltgf.service.defrag import (
    ACTOR,
    DefragEdges,
    Steering,
    begin,
    has_started,
    judge,
)
from slurm_ltgf.service.defrag_facts import Binds
from slurm_ltgf.service.fragmentation import Site
from slurm_ltgf.service.move_facts import MoveEdges
from slurm_ltgf.service.moves import Moves
from slurm_ltgf.slurm.bindings import Binding
from slurm_ltgf.slurm.nodes import Capacity, Node
from slurm_ltgf.slurm.queue import Queue, QueueJob
from slurm_ltgf.slurm.requeue import Running
from slurm_ltgf.slurm.reservations import Reservation
from slurm_ltgf.store.config import parsed
from slurm_ltgf.store.ledger import AuditEntry, Ledger
from slurm_ltgf.store.moves import MoveFiles

NOW, DAY_S, OWN, GPUS = 1_800_000_000, 86400, os.geteuid(), 4
BIG = 90


def running(job_id, node, gpus=1, **more):
    told = {
        "partition": "main", "state": "RUNNING", "start": NOW - DAY_S, "user": "ann",
        "gres": f"gpu={gpus}", "tres": f"cpu=1,node=1,gres/gpu={gpus}", "nodes": node,
    }  # fmt: skip
    return QueueJob(job_id, **{**told, **more})


def waiting(job_id, gpus, **more):
    told = {
        "partition": "main", "reason": "Resources", "submit": NOW - 99, "eligible": NOW - 99,
        "priority": 1000 - job_id, "gres": f"gpu={gpus}", "tres": f"cpu=1,node=1,gres/gpu={gpus}",
        "user": "bob",
    }  # fmt: skip
    return QueueJob(job_id, **{**told, **more})


@dataclass
class World:
    """A site, its records folder and its ledger."""

    folder: object
    jobs: list = field(default_factory=list)
    closed: set = field(default_factory=set)
    bound: dict = field(default_factory=dict)
    features: dict = field(default_factory=dict)
    reservations: list = field(default_factory=list)
    settings: str = ""
    records: bool = True
    maintenance_in_s: int | None = None
    nodes: int = 3
    not_requeued: set = field(default_factory=set)
    excluded: list = field(default_factory=list)
    now: int = NOW

    def __post_init__(self):
        (self.folder / "records").mkdir()
        self.board = Board(self.folder / "records")
        self.files = MoveFiles(self.folder / "moves")
        self.ledger = Ledger(self.folder / "ledger.db")

    @property
    def config(self):
        records = self.folder / "records" if self.records else ""
        return parsed(f'[checkpoint]\nrecords = "{records}"\n{self.settings}', "test")

    def runs(self, job_id, node, gpus=1, *, saves=True, **more):
        self.jobs.append(running(job_id, node, gpus, **more))
        if saves:
            restart = self.jobs[-1].restarts
            self.board.enter(Record(job_id, OWN, restart, Mode.APP, self.folder))
            self.board.say(Answer(job_id, restart, Phase.READY, seconds=5.0))

    @property
    def site(self):
        used = {f"n{i}": 0 for i in range(1, self.nodes + 1)}
        for job in self.jobs:
            if job.state == "RUNNING":
                used[job.nodes] += int(job.gres.removeprefix("gpu="))
        nodes = tuple(
            Node(
                name, ("main",), "mixed", frozenset({"drain"} if name in self.closed else ()),
                gres=f"gpu={GPUS}", gres_used=f"gpu={count}", cpus=64, cpus_used=count,
                memory_mb=1000,
            )
            for name, count in used.items()
        )  # fmt: skip
        return Site(self.now, Queue(tuple(self.jobs)), Capacity(nodes), self.reservations)

    @property
    def moves(self):
        edges = MoveEdges(
            self.find, lambda name: None, lambda *args: None, lambda name: [],
            lambda entry, move: self.ledger.audit([entry]),
        )  # fmt: skip
        return Moves(edges, self.files, self.config.checkpoint, Pricing())

    def find(self, name):
        return [
            Running(job, OWN, job.job_id not in self.not_requeued, None, "/nowhere")
            for job in self.jobs
            if str(job.job_id) == name
        ]

    def seen(self):
        edges = DefragEdges(
            lambda user: OWN,
            lambda: Binds(self.bound, self.features),
            lambda now: self.maintenance_in_s,
        )
        return judge(self.site, self.config, self.ledger, self.moves, edges)

    def planned(self):
        """Job that moves -> (from, to)."""
        return {
            job.job_id: (job.node, to)
            for start in self.seen().ways
            for job, to in zip(start.way.leaving, start.way.to, strict=True)
        }

    def staying(self):
        return {job.job_id: why for job, why in self.seen().staying}

    def moved(self, job_id, state, *, ago_s, restart=0):
        move = Move(
            job_id, OWN, restart, Goal.REQUEUE, "a" * 16, str(job_id), state=state, by=ACTOR,
            ended_at=self.now - ago_s if state.is_end else None, why="as it is",
        )  # fmt: skip
        self.files.write(move)

    def exclude(self, name, nodes):
        self.excluded.append((name, tuple(nodes)))


@pytest.fixture
def world(tmp_path):
    """n1: one job of one GPU, n2: two of them, n3: a job of two; one of four waits."""
    world = World(tmp_path)
    world.runs(1, "n1")
    world.runs(2, "n2")
    world.runs(3, "n2")
    world.runs(4, "n3", 2)
    world.jobs.append(waiting(BIG, 4))
    yield world
    world.ledger.close()


def test_the_one_job_that_is_in_the_way_moves_to_where_it_fits_best(world):
    assert world.planned() == {1: ("n1", "n2")}
    seen = world.seen()
    assert (seen.stopped, seen.ways[0].way.key.gpu_s) == ("", 10.0)  # twice its last save
    assert (seen.ways[0].job.job_id, seen.ways[0].job.gpus) == (BIG, 4)


def test_jobs_of_several_gpus_stay(world):
    world.jobs = [job for job in world.jobs if job.job_id not in (1, 2, 3)]
    world.runs(5, "n1", 2)
    world.runs(6, "n2", 2)
    assert (world.planned(), world.staying()) == ({}, {})


@pytest.mark.parametrize(
    ("bound", "why"),
    [
        (Binding(requires=("n1",)), "it is bound to nodes"),
        (Binding(is_exclusive=True), "it is bound to nodes"),
        (Binding(reservation="class"), "it is bound to nodes"),
    ],
)
def test_who_is_bound_to_its_node_stays(world, bound, why):
    world.bound[1] = bound
    assert world.staying()[1].startswith(why)
    assert sorted(world.planned()) == [2, 3]


def test_who_excludes_nodes_or_wants_features_moves_within_them(world):
    world.bound[1] = Binding(excludes=("n2",))
    assert world.planned() == {1: ("n1", "n3")}
    world.bound[1] = Binding(features="h200&nvlink")
    world.features = {"n1": frozenset({"a"}), "n2": frozenset({"b"}), "n3": frozenset({"a"})}
    assert world.planned() == {1: ("n1", "n3")}


def test_what_waits_is_judged_by_its_own_bonds(world):
    world.features = {f"n{i}": frozenset({f"f{i}"}) for i in (1, 2, 3)}
    for bound in (Binding(excludes=("n1",)), Binding(features="f2"), Binding(requires=("n2",))):
        world.bound[BIG] = bound
        assert sorted(world.planned()) == [2, 3]
    for bound in (Binding(features="f1|f2"), Binding(reservation="r"), Binding(is_exclusive=True)):
        world.bound[BIG] = bound
        assert world.planned() == {}
        assert [job.job_id for job in world.seen().left_out] == [BIG]


def test_who_cannot_save_stays(world):
    world.board.clear(1)
    world.jobs[0] = replace(world.jobs[0], restarts=1)
    assert world.staying()[1] == "it cannot save: not ready"
    world.records = False
    assert world.seen().stopped.startswith("checkpoint.records is not set")
    assert set(world.staying().values()) == {"it cannot save: no records folder"}


def test_training_moves_within_its_tolerance_and_dev_at_any_time(world):
    world.jobs[0] = replace(world.jobs[0], start=NOW - 600)
    assert world.staying()[1] == "it has run for less than 900 s"
    world.settings = "[lease]\nmin_run = 0\noverhead = 0.01\n"
    assert world.staying()[1] == "a move costs 10 s: not before it has run 1000 s"
    world.settings += 'first_qos = ["dev"]\n'
    world.jobs[0] = replace(world.jobs[0], qos="dev", start=NOW - 1)
    assert world.planned() == {1: ("n1", "n2")}


def test_dev_moves_before_training(world):
    world.settings = '[lease]\nfirst_qos = ["dev"]\n'
    world.jobs[1:3] = [replace(job, qos="dev") for job in world.jobs[1:3]]
    assert sorted(world.planned()) == [2, 3]


@pytest.mark.parametrize(("above", "moves"), [(0.3, True), (1.0, False)])
def test_who_serves_moves_only_above_so_much_fragmentation(world, above, moves):
    world.settings = f'[lease]\nprotected_qos = ["online"]\n[defrag]\nserving_above = {above}\n'
    world.jobs[:3] = [replace(job, qos="online") for job in world.jobs[:3]]
    assert world.seen().pools[0].score == 1.0
    assert bool(world.planned()) == moves
    if not moves:
        assert world.staying()[1] == (
            "QOS online serves: it moves only above 100% fragmentation"
        )  # fmt: skip


@pytest.mark.parametrize("state", [State.REQUEUED, State.FAILED])
def test_who_was_moved_is_left_alone_for_a_while(world, state):
    world.moved(1, state, ago_s=1799)
    assert world.staying()[1] == "it was moved, or was to be, less than 1800 s ago"
    world.moved(1, state, ago_s=1801)
    assert 1 in world.planned()
    world.moved(1, State.ASKED, ago_s=0)
    assert world.staying()[1].startswith("it is being moved")


def test_drained_and_reserved_nodes_take_nobody(world):
    world.closed = {"n2"}
    assert world.planned() == {1: ("n1", "n3")}
    world.reservations = [Reservation("r", ("n3",), NOW - 1, NOW + 99, cpus=64)]
    assert world.planned() == {}
    assert world.seen().pools[0].stranded == {"drain": 2, "reservation": 2}


def test_a_requeued_job_that_is_not_yet_eligible_has_its_room_first(world):
    back = waiting(7, 2, restarts=1, reason="BeginTime", eligible=NOW + 100, priority=1)
    world.jobs.append(replace(back, gres="gpu=2"))
    # it takes the two GPUs of n2 or n3; the job that moves goes to the other one
    assert world.planned() == {1: ("n1", "n3")}
    later = replace(back, eligible=NOW + 9000)
    world.jobs[-1] = later
    assert world.planned() == {1: ("n1", "n2")}


def test_room_that_is_made_already_is_not_made_again(world):
    begin(world.seen(), world.moves, world.ledger, now=NOW)
    assert [move.job_id for move in world.files.all()] == [1]
    assert world.planned() == {}, "BIG gets n1"
    world.jobs.append(waiting(91, 4))
    assert world.planned() == {}, "job 1 will take one of the four that are free on n2 and n3"
    world.nodes = 4
    starts = [start.job.job_id for start in world.seen().plans[""].starts]
    assert starts == [1, 91], "the one that moves first; n4 is free for the other"
    world.jobs = [job for job in world.jobs if job.job_id != BIG]
    assert [start.job.job_id for start in world.seen().plans[""].starts] == [91], "BIG has gone"


def test_the_limits_of_the_site(world):
    world.settings = "[defrag]\nconcurrency = 1\nper_hour = 1\n"
    assert world.seen().allowed == 1
    world.settings = '[lease]\nquiet = ["00:00-24:00"]\n'
    assert world.seen().stopped.startswith("it is a quiet time")
    world.settings = ""
    world.maintenance_in_s = 60
    assert world.seen().stopped.startswith("a maintenance begins in 60 s")
    world.maintenance_in_s = None
    world.settings = "[defrag]\nper_hour = 1\n"
    entry = AuditEntry(NOW - 60, ACTOR, "requeue", "8", "queued", "asked", "asked to save")
    world.ledger.audit([entry])
    assert world.seen().stopped == "jobs that yielded within an hour: 1 (defrag.per_hour)"
    assert world.planned() == {1: ("n1", "n2")}, "it is still told what would be done"


def test_a_start_is_worth_what_is_waited_for(world):
    world.settings = '[defrag]\nwait = "2s"\n'
    assert world.planned() == {}, "4 GPUs for 2 s are less than 10 GPU-seconds"
    (blocked,) = world.seen().plans[""].blocked
    assert blocked.why == "its moves cost 10 GPU-seconds, more than its start now is worth (8)"
    world.jobs[-1] = replace(world.jobs[-1], planned_start=NOW + 100)
    assert world.planned() == {1: ("n1", "n2")}


# --- doing it -------------------------------------------------------------------------------------


def test_all_that_make_room_for_a_job_begin_or_none(world):
    world.bound[1] = Binding(requires=("n1",))
    assert begin(world.seen(), world.moves, world.ledger, now=NOW) == [("2", ""), ("3", "")]
    moves = {move.job_id: move for move in world.files.all()}
    assert {(m.to_job, m.together, m.by, m.goal) for m in moves.values()} == {
        (BIG, 2, ACTOR, Goal.REQUEUE)
    }
    assert "room on n2 for job 90, which waits for 4 GPUs" in moves[2].reason


def test_who_is_refused_is_left_alone_and_others_make_room(world):
    world.not_requeued = {1}
    ((name, why),) = begin(world.seen(), world.moves, world.ledger, now=NOW)
    assert (name, "--no-requeue" in why, world.files.all()) == ("1", True, [])
    assert sorted(world.planned()) == [2, 3]
    assert world.staying()[1].startswith("it cannot be moved now: Slurm would not requeue it")


def test_who_moved_is_kept_off_and_set_back_as_soon_as_may_be(world):
    steering = Steering(world.exclude, world.ledger)
    move = Move(1, OWN, 0, Goal.REQUEUE, "a" * 16, "1", state=State.REQUEUED, by=ACTOR)
    assert steering.keep_off(move, ["n1"], ["n9"], now=NOW) == ""
    assert steering.set_back({1: ("1", ("n1", "n9"))}, now=NOW + 1) == ["1"]
    assert world.excluded == [("1", ("n1", "n9")), ("1", ("n9",))]
    assert steering.set_back({1: ("1", ("n9",))}, now=NOW + 2) == [], "once"
    # what its user changed meanwhile is not touched
    steering.keep_off(move, ["n1"], [], now=NOW + 3)
    assert steering.set_back({1: ("1", ("n1", "n5"))}, now=NOW + 4) == []
    assert steering.set_back({2: ("2", ("n1",))}, now=NOW + 4) == [], "nor other jobs"


def test_a_job_that_started_before_it_could_be_steered_is_no_error(world):
    def refuses(name, nodes):
        raise SlurmRefused("Job is no longer pending execution")

    steering = Steering(refuses, world.ledger)
    move = Move(1, OWN, 0, Goal.REQUEUE, "a" * 16, "1", state=State.REQUEUED, by=ACTOR)
    assert "no longer pending" in steering.keep_off(move, ["n1"], [], now=NOW)
    assert world.ledger.audit_last(9, action="exclude nodes") == []


def test_who_started_and_which_task_of_an_array(world):
    seen = world.seen()
    (start,) = seen.ways
    assert has_started(start, seen, Queue((running(BIG, "n2", 4),)))
    assert not has_started(start, seen, Queue((waiting(BIG, 4), running(91, "n1", 4))))
    world.jobs[-1] = replace(world.jobs[-1], array_job=80, tasks=3)
    seen = world.seen()
    for node, started in (("n1", True), ("n2", False)):
        task = running(91, node, 4, array_job=80)
        assert has_started(start, seen, Queue((waiting(BIG, 4), task))) == started
