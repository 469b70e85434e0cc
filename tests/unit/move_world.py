"""A job, its Slurm and a helper that can be killed at any act, for tests of moves."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.protocol import Action, Answer, Ask, Mode, Phase, Record
from slurm_ltgf.core.ending import Ending
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.core.move import Goal, Move
from slurm_ltgf.errors import SlurmRefused, SlurmUnavailable
from slurm_ltgf.service.move_facts import MoveEdges, Wish
from slurm_ltgf.service.moves import Moves
from slurm_ltgf.slurm.jobs import QueueJob
from slurm_ltgf.slurm.requeue import Running
from slurm_ltgf.store.config import Checkpoint
from slurm_ltgf.store.moves import MoveFiles

BEGAN = 1_800_000_000
OWN = os.geteuid()


class Killed(BaseException):
    """The helper, by SIGKILL."""


@dataclass
class Slurm:
    """One job, as squeue and scontrol show it."""

    now: int = BEGAN
    job_id: int = 7
    state: str = "RUNNING"
    restart: int = 0
    may_requeue: bool = True
    preempted_at: int | None = None
    end_limit: int = UNKNOWN
    priority: int = 1000
    away_until: int = 0
    hidden_until: int = 0
    refuses: bool = False
    ends_completing: int = 0
    requeued_by_us: Counter[int] = field(default_factory=Counter)
    partition: str = "gpu"

    def find(self, name: str) -> list[Running]:
        if self.now < self.away_until:
            raise SlurmUnavailable("squeue: no answer in 120 s")
        if self.now < self.hidden_until or self.state == "GONE":
            return []
        job = QueueJob(
            self.job_id, state=self.state, restarts=self.restart, start=BEGAN - 1000,
            submit=BEGAN - 2000, eligible=self.now + 6, gres="gpu=4", account="astro",
            priority=self.priority, nodes="n1", planned_end=self.end_limit,
        )  # fmt: skip
        return [Running(job, OWN, self.may_requeue, self.preempted_at, "/nowhere")]

    def requeue(self, name: str) -> None:
        if self.now < self.away_until:
            raise SlurmUnavailable("scontrol requeue: no answer in 60 s")
        if self.refuses or self.state not in ("RUNNING", "SUSPENDED"):
            raise SlurmRefused("scontrol requeue (exit 1): Requested operation is disabled")
        self.requeued_by_us[self.restart] += 1
        self.begin_requeue()

    def begin_requeue(self) -> None:
        if self.state in ("RUNNING", "SUSPENDED"):
            self.state, self.ends_completing = "COMPLETING", self.now + 3
            self.restart += 1

    def tick(self) -> None:
        self.now += 1
        if self.state == "COMPLETING" and self.now >= self.ends_completing:
            self.state = "PENDING"

    def endings(self, name: str) -> list[Ending]:
        last = Ending(BEGAN - 2000, BEGAN - 1000, self.now, "COMPLETED")
        return [last]


@dataclass
class Job:
    """A program that speaks the protocol. takes_s: to save; None: it never does."""

    slurm: Slurm
    board: Board
    takes_s: int | None = 2
    fails: bool = False
    heard: Ask | None = None
    done: set[str] = field(default_factory=set)
    since: int = 0
    holds: Ask | None = None

    def say(self, phase: Phase, ask: str = "", **more: object) -> None:
        values = {"time": self.slurm.now, **more}
        self.board.say(Answer(self.slurm.job_id, self.slurm.restart, phase, ask, **values))

    def tick(self) -> None:
        if self.slurm.state != "RUNNING":
            self.heard = self.holds = None
            return
        ask = self.board.hear(self.slurm.job_id, OWN)
        is_mine = ask is not None and ask.restart == self.slurm.restart
        if self.holds is not None:
            self._hold(ask)
        elif self.heard is not None:
            self._save(self.heard)
        elif is_mine and ask.id not in self.done and ask.action not in (
            Action.GO_ON, Action.RESUME,
        ):  # fmt: skip
            self.heard, self.since = ask, self.slurm.now
            self.done.add(ask.id)
            self.say(Phase.WORKING, ask.id)

    def _hold(self, ask: Ask | None) -> None:
        own = self.holds
        is_over = ask is None or ask.id != own.id or ask.action in (Action.GO_ON, Action.RESUME)
        if is_over or self.slurm.now >= own.hold_until:
            self.say(Phase.GOING, own.id)
            self.holds = None

    def _save(self, ask: Ask) -> None:
        if self.slurm.now > ask.deadline or (self.fails and self.slurm.now > self.since):
            self.say(Phase.FAILED, ask.id, why="the disk is full")
            self.heard = None
        elif self.takes_s is not None and self.slurm.now - self.since >= self.takes_s:
            self.say(Phase.SAVED, ask.id, step=500, name="step-000000500")
            self.heard = None
            self.holds = ask if ask.action in (Action.REQUEUE, Action.PAUSE) else None


class Site:
    """A job, its Slurm, and a helper whose every act can be its last."""

    def __init__(self, folder: Path, **checkpoint: object) -> None:
        self.slurm, self.log = Slurm(), []
        records, self.ckpt = folder / "records", folder / "ckpt"
        for one in (records, self.ckpt, self.ckpt / "step-000000500"):
            one.mkdir(parents=True)
        self.board = Board(records)
        self.job = Job(self.slurm, self.board)
        self.kill_at: int | None = None
        self.acts = self.kills = 0
        self.settings = Checkpoint(
            records=str(records), timeout_s=20, hold_s=30, stagger_s=0, **checkpoint
        )
        self.files = MoveFiles(folder / "moves")
        self.board.enter(Record(7, OWN, 0, Mode.APP, self.ckpt))
        self.job.say(Phase.READY)

    def moves(self) -> Moves:
        """As a new process has them."""
        slurm = self.slurm
        edges = MoveEdges(
            slurm.find,
            self.mortal(slurm.requeue),
            self.mortal(lambda name, where: setattr(slurm, "partition", where)),
            slurm.endings,
            self.mortal(lambda entry, move: self.log.append((entry, move))),
        )
        return Moves(edges, self.files, self.settings, Pricing())

    def begin(self, goal: Goal = Goal.REQUEUE, **wish: object) -> Move:
        return self.moves().begin("7", Wish(goal, by="test", **wish), now=self.slurm.now)

    def tick(self) -> None:
        self.slurm.tick()
        self.job.tick()

    def go_on(self, move: Move) -> Move:
        return self.moves().try_to_go_on(move, now=self.slurm.now)[0]

    def to_the_end(self, move: Move, limit: int = 200) -> Move:
        for _ in range(limit):
            move = self.go_on(move)
            if move.state.is_end:
                return move
            self.tick()
        raise AssertionError(f"no end: {move}")

    def mortal(self, act):
        """An act before or after which the helper may be killed."""

        def acted(*args, **kwargs):
            self._maybe_die()
            result = act(*args, **kwargs)
            self._maybe_die()
            return result

        return acted

    def _maybe_die(self) -> None:
        self.acts += 1
        if self.kill_at is not None and self.acts >= self.kill_at:
            self.kill_at = None
            raise Killed
