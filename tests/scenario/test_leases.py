"""Leases of a site given as data: who yields to whom, and each reason why nobody does.

Tenant rich has had all GPUs for long and runs on both nodes of 8; poor has had none and waits.
"""

import os
from dataclasses import dataclass, field, replace

import pytest

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.protocol import Answer, Mode, Phase, Record
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.lease import Action
from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.core.move import Goal, Move, State
from slurm_ltgf.service.lease_begin import begin
from slurm_ltgf.service.leases import ACTOR, LeaseEdges, judge, reset
from slurm_ltgf.service.move_facts import MoveEdges
from slurm_ltgf.service.moves import Moves
from slurm_ltgf.service.tick import tick
from slurm_ltgf.slurm.nodes import Capacity, Node
from slurm_ltgf.slurm.requeue import Running
from slurm_ltgf.store.config import parsed
from slurm_ltgf.store.ledger import AuditEntry
from slurm_ltgf.store.moves import MoveFiles
from tests.scenario.conftest import T0

L = 3600
OWN = os.geteuid()
NO_MAINTENANCE = None


@dataclass
class World:
    """The site, a records folder, and how leases are to be looked at."""

    site: object
    folder: object
    lease: str = ""
    records: bool = True
    maintenance_in_s: int | None = NO_MAINTENANCE
    nodes_asked: dict = field(default_factory=dict)
    closed: set = field(default_factory=set)
    known_users: bool = True
    not_requeued: set = field(default_factory=set)
    requeued: list = field(default_factory=list)

    def __post_init__(self):
        (self.folder / "records").mkdir()
        self.board = Board(self.folder / "records")
        self.files = MoveFiles(self.folder / "moves")
        self.site.now = 2 * L

    @property
    def config(self):
        records = self.folder / "records" if self.records else ""
        return parsed(
            f'[queue]\nlease = "1h"\nfloor = 0.0\n[checkpoint]\nrecords = "{records}"\n'
            f"[lease]\n{self.lease}\n",
            "test",
        )

    @property
    def moves(self):
        edges = MoveEdges(self.find, self.requeued.append, self.never, lambda name: [], self.log)
        return Moves(edges, self.files, self.config.checkpoint, Pricing())

    @property
    def now(self):
        return T0 + self.site.now

    def find(self, name):
        return [
            Running(job, OWN, job.job_id not in self.not_requeued, None, "/nowhere")
            for job in self.site.jobs
            if str(job.job_id) == name
        ]

    def never(self, *args):
        raise AssertionError("no job is sent elsewhere by leases")

    def log(self, entry, move):
        self.site.ledger.audit([entry])

    def runs(self, job_id, account="rich", gpus=8, node="n0", *, start=0, **more):
        """A running job that can save, on one node or "n0,n1"."""
        self.site.running(job_id, account, gpus, start)
        told = {"user": f"u-{account}", "nodes": node, "limit_s": 9 * L, **more}
        self.site.jobs[-1] = replace(self.site.jobs[-1], **told)
        self.ready(job_id)

    def ready(self, job_id, *, restart=0, seconds=None):
        self.board.enter(Record(job_id, OWN, restart, Mode.APP, self.folder))
        self.board.say(Answer(job_id, restart, Phase.READY, seconds=seconds))

    def capacity(self):
        """Nodes with the GPUs that their jobs hold."""
        used = dict.fromkeys((f"n{i}" for i in range(self.site.nodes)), 0)
        for job in self.site.jobs:
            nodes = [node for node in job.nodes.split(",") if node]
            for node in nodes:
                used[node] += int(job.gres.removeprefix("gpu=")) // len(nodes)
        return Capacity(
            tuple(
                Node(
                    name,
                    ("main",),
                    state="mixed",
                    flags=frozenset({"drain"} if name in self.closed else ()),
                    gres="gpu=8",
                    gres_used=f"gpu={count}",
                )
                for name, count in used.items()
            )
        )

    def judged(self):
        seen = self.seen()
        edges = LeaseEdges(
            lambda user: OWN if self.known_users else None,
            lambda: self.nodes_asked,
            lambda now: self.maintenance_in_s,
        )
        return judge(seen, self.config, self.site.ledger, self.moves, edges)

    def seen(self):
        edges = replace(self.site.edges, capacity=self.capacity)
        done = tick(edges, self.site.ledger, self.config, clock=lambda: self.now, dry_run=True)
        return done.view

    def verdicts(self):
        return {row.job.job_id: row.verdict for row in self.judged().rows}

    def yields(self):
        found = self.verdicts()
        return {k: v.to for k, v in found.items() if v is not None and v.action is Action.YIELD}

    def moved(self, job_id, state, *, ended_s_ago=None, restart=0, by=ACTOR, **more):
        """A move that is written down."""
        told = {"why": "as it is", "began": self.now, "asked_at": self.now, **more}
        ended = None if ended_s_ago is None else self.now - ended_s_ago
        move = Move(
            job_id, OWN, restart, Goal.REQUEUE, "a" * 16, str(job_id),
            state=state, by=by, ended_at=ended, **told,
        )  # fmt: skip
        self.files.write(move)

    def logged(self, *times, state=State.ASKED, why="not saved within 600 s, the job runs on"):
        """Steps of moves of leases, so many seconds ago, each of another user's job."""
        self.site.ledger.audit(
            AuditEntry(self.now - ago, ACTOR, "requeue", str(70 + i), "queued", state.value, why)
            for i, ago in enumerate(times)
        )


@pytest.fixture
def world(site, tmp_path):
    site.tenants(rich=1, poor=1)
    site.nodes = 2
    world = World(site, tmp_path)
    site.ran(90, "rich", -10 * L, 0, 16)
    world.runs(1, node="n0")
    world.runs(2, node="n1")
    site.pending(11, "poor", 8, submit=L)
    return world


def test_one_yields_to_the_tenant_that_had_nothing_and_one_is_renewed(world):
    found = world.verdicts()
    assert sorted(verdict.action.value for verdict in found.values()) == ["renew", "yield"]
    assert world.yields() == {2: 11}
    row = next(row for row in world.judged().rows if row.job.job_id == 2)
    assert (row.tenant, row.gpus, row.ends, row.to) == ("rich", 8, T0 + L, "11")
    assert row.verdict.reason == "poor's job 11 comes before it and can use its 8 GPUs"


def test_a_lease_that_is_not_over_has_no_verdict(world):
    world.site.now = L - 1
    assert set(world.verdicts().values()) == {None}
    world.site.now = L
    assert None not in world.verdicts().values()


def test_nobody_waits_nobody_yields(world):
    world.site.jobs.pop()
    reasons = {verdict.reason for verdict in world.verdicts().values()}
    assert reasons == {"no job before it could use its GPUs"}


def test_a_job_of_two_nodes_is_taken_for_one_of_two_nodes(world):
    world.site.jobs = [job for job in world.site.jobs if job.is_pending]
    world.runs(3, gpus=16, node="n0,n1")
    assert world.yields() == {3: 11}
    world.site.jobs.pop(0)
    world.site.pending(12, "poor", 16, submit=L)
    world.nodes_asked = {12: 2}
    assert world.yields() == {3: 12}


def test_a_job_on_a_drained_node_makes_no_room(world):
    world.closed = {"n1"}
    assert world.yields() == {1: 11}
    world.closed = {"n0", "n1"}
    assert world.yields() == {}


def test_who_waits_for_something_else_than_gpus_takes_none(world):
    world.site.jobs[-1] = replace(world.site.jobs[-1], reason="Dependency")
    assert world.yields() == {}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("min_run", "it has run 7200 s, less than 10800 s"),
        ("restarts", "it was restarted 3 times already"),
        ("cost", "a move costs 200 s: not before it has run 10000 s"),
        ("qos", "QOS serve never yields (lease.protected_qos)"),
    ],
)
def test_what_keeps_a_job_on_its_gpus(world, change, why):
    world.lease = {
        "min_run": 'min_run = "3h"',
        "restarts": "max_restarts = 3",
        "cost": 'overhead = 0.02\ncost = "25s"',
        "qos": 'protected_qos = ["serve"]',
    }[change]
    for i in (0, 1):
        job = world.site.jobs[i]
        if change == "restarts":
            world.ready(job.job_id, restart=3)
            world.site.jobs[i] = replace(job, restarts=3)
        if change == "cost":
            world.ready(job.job_id, seconds=100.0)
        if change == "qos":
            world.site.jobs[i] = replace(job, qos="serve")
    found = world.verdicts().values()
    assert {(verdict.action, verdict.reason) for verdict in found} == {(Action.KEEP, why)}


def test_a_checkpoint_that_was_quick_is_worth_it_early(world):
    world.lease = 'min_run = "0s"\ncost = "1h"'
    assert world.yields() == {}
    world.ready(2, seconds=10.0)
    assert world.yields() == {2: 11}


def test_development_yields_before_all_others(world):
    assert world.yields() == {2: 11}
    world.lease = 'first_qos = ["dev"]'
    world.site.jobs[0] = replace(world.site.jobs[0], qos="dev")
    assert world.yields() == {1: 11}


# --- what a job said ------------------------------------------------------------------------------


def told(world, job_id):
    return next(row for row in world.judged().rows if row.job.job_id == job_id).why


def test_a_job_that_left_no_record_keeps_its_gpus_and_another_yields(world):
    (world.board.folder / f"2.{OWN}").unlink()
    assert world.yields() == {1: 11}
    assert world.verdicts()[2].action is not Action.YIELD
    assert told(world, 2) == "it has no checkpoint record"


def test_what_an_earlier_run_said_does_not_count(world):
    world.site.jobs[1] = replace(world.site.jobs[1], restarts=1)
    assert world.yields() == {1: 11}
    assert told(world, 2) == "not ready"


def test_a_record_that_is_a_link_is_not_believed_and_stops_nobody_else(world, tmp_path):
    record = world.board.folder / f"2.{OWN}"
    record.rename(tmp_path / "elsewhere")
    record.symlink_to(tmp_path / "elsewhere")
    assert world.yields() == {1: 11}
    assert "a link, not to be believed" in told(world, 2)
    assert "a link, not to be believed" in world.judged().notes[0]


@pytest.mark.parametrize("content", [b"", b"\0" * 9000, b"format=1\njob_id=x\n", b"\xff\xfe"])
def test_an_answer_that_makes_no_sense_stops_nobody_else(world, content):
    (world.board.folder / f"2.{OWN}.answer").write_bytes(content)
    assert world.yields() == {1: 11}


def test_a_user_that_this_machine_does_not_know_is_told(world):
    world.known_users = False
    assert world.yields() == {}
    assert told(world, 1) == "its user is unknown"


def test_without_a_records_folder_in_the_settings_nobody_yields(world):
    world.records = False
    judged = world.judged()
    assert judged.stopped == "checkpoint.records is not set: no job can be asked to save"
    assert world.yields() == {}


def test_a_records_folder_that_is_away_is_told_and_nobody_yields(world):
    world.board.folder.rename(world.folder / "away")
    judged = world.judged()
    assert world.yields() == {}
    assert judged.notes == (f"{world.board.folder}: there is no such folder",)


# --- guards ---------------------------------------------------------------------------------------


def assert_stopped(world, why):
    """Nobody yields; who would have is told why not."""
    judged = world.judged()
    assert why in judged.stopped
    assert judged.allowed == 0
    by_id = {row.job.job_id: row.verdict for row in judged.rows}
    assert (by_id[2].action, by_id[2].reason) == (Action.KEEP, judged.stopped)
    assert begin(judged, world.moves, world.site.ledger, now=world.now) == []


def test_quiet_times_stop_all(world):
    world.lease = 'quiet = ["00:00-24:00"]'
    assert_stopped(world, "it is a quiet time (lease.quiet: 00:00-24:00)")


def test_a_maintenance_ahead_stops_all(world):
    world.maintenance_in_s = L - 1
    assert_stopped(world, "a maintenance begins in 3599 s")
    world.maintenance_in_s = L
    assert world.yields() == {2: 11}


def test_the_hourly_rate_stops_all_until_the_hour_is_over(world):
    world.lease = "per_hour = 3"
    world.logged(10, 20, L - 1)
    assert_stopped(world, "jobs that yielded within an hour: 3 (lease.per_hour)")
    world.site.now += 1
    assert world.yields() == {2: 11}


def test_who_waits_for_its_checkpoint_is_of_the_hourly_rate_already(world):
    world.lease = "per_hour = 2"
    world.site.pending(12, "poor", 8, submit=L)
    world.logged(10)
    world.moved(1, State.QUEUED, to_job=11)
    assert_stopped(world, "jobs that yielded within an hour: 2 (lease.per_hour)")


def test_checkpoints_that_fail_stop_all_until_they_rested_or_an_admin_says_so(world):
    world.lease = 'breaker = 3\nbreaker_rest = "6h"'
    world.logged(10, 20, 30, state=State.FAILED)
    assert_stopped(world, "3 checkpoints failed within an hour: no moves for 21590 s")
    world.site.now += 5 * L
    assert_stopped(world, "3 checkpoints failed within an hour: no moves for 3590 s")
    reset(world.site.ledger, now=world.now)
    assert world.yields() == {2: 11}


@pytest.mark.parametrize(
    "why",
    [
        "saved at step 9, the job runs on: not all that were to make room could",
        "it said no, the job runs on: this program cannot pause in place",
        "the job is completed",
        "the job ended before it was saved",
        "Slurm or somebody else requeued it meanwhile",
        "Slurm does not know the job any more",
    ],
)
def test_moves_that_ended_without_a_failed_checkpoint_do_not_count(world, why):
    world.lease = "breaker = 2"
    world.logged(10, 20, 30, state=State.FAILED, why=why)
    assert world.yields() == {2: 11}


@pytest.mark.parametrize(
    "why",
    [
        "not saved, the job runs on: the disk is full; for: poor's job 11",
        "saved at step 9, but too late to requeue it",
        "Slurm did not requeue it in time, the job runs on",
        "not requeued in time, the job runs on",
    ],
)
def test_moves_that_came_to_nothing_count(world, why):
    world.lease = "breaker = 2"
    world.logged(10, 20, state=State.FAILED, why=why)
    assert_stopped(world, "2 checkpoints failed")


def test_a_user_whose_checkpoints_fail_is_left_alone_and_the_others_are_not(world):
    world.lease = "breaker = 2"
    for job_id in (70, 71):
        world.moved(job_id, State.FAILED, ended_s_ago=20)  # both are our own user's
    world.logged(10, 20, state=State.FAILED)
    judged = world.judged()
    assert judged.stopped == ""
    why = {row.verdict.reason for row in judged.rows if row.verdict is not None}
    assert len(why) == 1
    assert "2 checkpoints of" in why.pop()


def test_a_requeue_that_a_person_wants_is_not_of_the_hourly_rate(world):
    world.lease = "per_hour = 1"
    entry = AuditEntry(world.now, "ltgf requeue by ann", "requeue", "7", "queued", "asked", "")
    world.site.ledger.audit([entry])
    assert world.yields() == {2: 11}


# --- moves ----------------------------------------------------------------------------------------


def test_begin_writes_the_move_down_with_whom_it_is_for(world):
    judged = world.judged()
    assert begin(judged, world.moves, world.site.ledger, now=world.now) == [("2", "")]
    move = world.files.read(2)
    assert (move.state, move.goal, move.to_job, move.by) == (State.QUEUED, Goal.REQUEUE, 11, ACTOR)
    assert move.reason == "poor's job 11 comes before it and can use its 8 GPUs"
    assert move.began == world.now
    assert world.requeued == []


def test_a_job_that_is_being_moved_is_left_alone_and_its_taker_is_served(world):
    world.moved(2, State.ASKED, to_job=11, why="saves")
    found = world.verdicts()
    assert (found[2].action, found[2].reason) == (Action.KEEP, "it is being moved: saves")
    assert found[1].action is Action.RENEW
    world.site.pending(12, "poor", 8, submit=L)
    assert world.yields() == {1: 12}


def test_as_many_as_may_yield_at_once_stop_the_next(world):
    world.lease = "concurrency = 1"
    world.site.pending(12, "poor", 8, submit=L)
    world.moved(1, State.ASKED, to_job=11)
    assert_stopped(world, "jobs that yield just now: 1 (lease.concurrency)")


def test_a_job_whose_move_failed_is_not_asked_again_so_soon(world):
    world.moved(2, State.FAILED, ended_s_ago=899, why="not saved, the job runs on: full")
    found = world.verdicts()
    assert found[2].reason == "not again so soon: not saved, the job runs on: full"
    assert world.yields() == {1: 11}
    world.site.now += 1
    assert world.yields() == {2: 11}


def test_the_move_of_an_earlier_run_is_the_past(world):
    world.moved(2, State.FAILED, ended_s_ago=1, restart=0)
    world.site.jobs[1] = replace(world.site.jobs[1], restarts=1)
    world.ready(2, restart=1)
    assert world.yields() == {2: 11}


def test_gpus_that_were_just_freed_are_their_takers(world):
    """Job 2 was requeued for job 11, which Slurm has not started yet."""
    world.site.jobs[1] = replace(
        world.site.jobs[1], state="PENDING", start=UNKNOWN, nodes="", restarts=1, reason="BeginTime"
    )
    world.moved(2, State.REQUEUED, ended_s_ago=10, to_job=11)
    world.site.pending(12, "poor", 8, submit=L)
    assert world.yields() == {1: 12}
    world.moved(2, State.REQUEUED, ended_s_ago=121, to_job=11)
    assert world.yields() == {1: 12}  # 11 takes what is free, by its turn


@pytest.mark.parametrize("last", [1, 2])
def test_those_that_make_room_for_one_job_are_requeued_in_one_breath(world, last):
    world.runs(3, gpus=4, node="n1")
    for job_id, taker in ((1, 11), (2, 11), (3, 12)):
        world.moved(job_id, State.ASKED, to_job=taker, board=str(world.board.folder))
    for job_id in ({1, 2} - {last}, {last}):
        for one in job_id:
            world.board.say(Answer(one, 0, Phase.SAVED, "a" * 16, step=9, time=world.now))
        world.moves.go_on_all(now=world.now)
        assert len(world.requeued) in (0, 2)
    assert sorted(world.requeued) == ["1", "2"]


def test_one_that_cannot_be_begun_does_not_hinder_the_others(world):
    world.site.pending(12, "poor", 8, submit=L)
    judged = world.judged()
    (world.board.folder / f"2.{OWN}").unlink()
    done = dict(begin(judged, world.moves, world.site.ledger, now=world.now))
    assert "left no checkpoint record" in done["2"]
    assert done.get("1", "") == ""


def begun(world):
    return dict(begin(world.judged(), world.moves, world.site.ledger, now=world.now))


def test_who_cannot_be_moved_is_left_alone_a_while_and_another_makes_room(world):
    world.not_requeued = {2}
    assert "--no-requeue" in begun(world)["2"]
    assert world.files.all() == []
    assert "it cannot be moved now: Slurm would not requeue it" in world.verdicts()[2].reason
    assert begun(world) == {"1": ""}
    (world.folder / "moves" / "1.move").unlink()
    world.site.now += 901
    assert world.yields() == {2: 11}


def test_of_those_that_make_room_together_all_begin_or_none(world):
    world.site.jobs = [job for job in world.site.jobs if job.is_pending]
    world.runs(1, node="n0")
    world.runs(2, gpus=4, node="n1")
    world.runs(3, gpus=4, node="n1")
    world.lease = 'protected_qos = ["online"]'
    world.site.jobs[1] = replace(world.site.jobs[1], qos="online")
    assert world.yields() == {2: 11, 3: 11}
    world.not_requeued = {3}
    assert begun(world).keys() == {"2", "3"}
    assert world.files.all() == []


def test_where_the_site_says_so_a_job_that_cannot_save_loses_its_work(world):
    (world.board.folder / f"2.{OWN}").unlink()
    world.runs(1, node="n0", qos="online")
    world.site.jobs = [job for job in world.site.jobs if job.qos or job.job_id != 1]
    world.lease = 'protected_qos = ["online"]\npreempt_without_checkpoint = true'
    assert begun(world) == {"2": ""}
    assert world.requeued == ["2"]
    (move,) = world.files.all()
    assert (move.state, move.to_job, move.saved_at) == (State.REQUEUED, 11, None)
    assert [entry.new for entry in world.site.ledger.audit_last(9, job_id="2")] == ["requeued"]
