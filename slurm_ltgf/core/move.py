"""A move: one attempt to have one run of a job checkpointed, then requeued or paused; its facts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Goal(Enum):
    """What is wanted of a job."""

    CHECKPOINT = "checkpoint"
    REQUEUE = "requeue"
    PAUSE = "pause"


class State(Enum):
    """How far a move is."""

    QUEUED = "queued"
    ASKED = "asked"
    REQUEUEING = "requeueing"
    SAVED = "saved"
    PAUSED = "paused"
    REQUEUED = "requeued"
    FAILED = "failed"

    @property
    def is_end(self) -> bool:
        """Whether nothing is left to do; a paused job is left as it is."""
        return self not in (State.QUEUED, State.ASKED, State.REQUEUEING)


class Act(Enum):
    """What is to be done now. take back: end the ask, the job goes on."""

    WAIT = "wait"
    ASK = "ask"
    REQUEUE = "requeue"
    TAKE_BACK = "take back"
    CLEAR = "clear"


class Group(Enum):
    """The other moves that make room for the same job: all or none are requeued."""

    READY = "ready"
    WAITS = "waits"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Move:
    """One attempt with one run of a job. Times: epoch seconds.

    job_id: raw. board: the folder where it is asked. limits: how often it was requeued because its
    time was up. requeue_id: what Slurm is to be told, 9001_7 of an array. restart: of the run.
    started: when the run began. ask: the id it is asked under. within_s: from the ask to the
    deadline. hold_s: how long the job holds after that. saved_at: when it had saved.
    absent_since: squeue does not show the job. to_job: for whom it yields. together: how many do,
    this one too. why: the state's sentence.
    """

    job_id: int
    uid: int
    restart: int
    goal: Goal
    ask: str
    requeue_id: str
    tenant: str = ""
    gpus: float = 0.0
    nodes: str = ""
    filesystem: str = ""
    board: str = ""
    started: int = 0
    within_s: int = 600
    hold_s: int = 300
    state: State = State.QUEUED
    began: int = 0
    asked_at: int = 0
    saved_at: int | None = None
    ended_at: int | None = None
    checkpoint: str = ""
    step: int | None = None
    absent_since: int | None = None
    by: str = ""
    reason: str = ""
    to_job: int | None = None
    together: int = 1
    to_partition: str = ""
    limits: int = 0
    why: str = ""

    @property
    def deadline(self) -> int:
        """All ranks have saved until then, or the move has failed."""
        return self.asked_at + self.within_s

    @property
    def hold_until(self) -> int:
        """Until then a saved job waits for its requeue."""
        return self.deadline + self.hold_s

    @property
    def saved_gpu_s(self) -> float | None:
        """GPU-seconds of this run that the checkpoint keeps; None: there is none."""
        return None if self.saved_at is None else self.gpus * max(self.saved_at - self.started, 0)

    @property
    def lost_gpu_s(self) -> float | None:
        """GPU-seconds from the checkpoint to the requeue; None: it was not requeued."""
        if self.saved_at is None or self.ended_at is None or self.state is not State.REQUEUED:
            return None
        return self.gpus * max(self.ended_at - self.saved_at, 0)


@dataclass(frozen=True, slots=True)
class Seen:
    """What Slurm shows of the job. state: squeue's word, or the base of it."""

    state: str
    restart: int
    reason: str = ""
    eligible: int | None = None
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """What the job answered to the move's ask. phase: working, saved, failed, refused, going."""

    phase: str
    step: int | None = None
    checkpoint: str = ""
    time: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """What Slurm's records say of a job that squeue does not show any more.

    story: how it went, "" if they say nothing. was_requeued: the move's run ended by a requeue.
    """

    story: str = ""
    was_requeued: bool = False
