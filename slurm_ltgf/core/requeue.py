"""Checkpoint, then requeue: what to do next, from what was done and what is seen now.

A move is one attempt to have one run of a job checkpointed, and, if that was the goal, requeued or
paused. It is written to disk before each act, and every act may be done twice: whoever takes a move
up after a kill sees the same next act, or that it is done. A run of a job is told by its restart
count, which Slurm raises in the moment of the requeue, so no run is ever requeued twice.

    queued ─> asked ─┬─> saved ......................... checkpoint: the end
                     ├─> paused ........................ pause: until `resume`
                     ├─> requeueing ─> requeued ........ requeue: the end
                     └─> failed ........................ the job runs on, or is over by itself
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

#: After its deadline a job has this long to say so itself.
LATE_S = 5
#: A job that squeue does not show for so long is over.
ABSENT_S = 30
#: A requeue is not begun when the job will stop holding so soon.
LEAST_HOLD_S = 3

_SAME_RUN = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "CONFIGURING"})
_ENDING = frozenset({"COMPLETING", "STAGE_OUT"})


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


class Cause(Enum):
    """Why a run ended."""

    OURS = "ltgf"
    PREEMPTION = "preemption"
    TIME_LIMIT = "time limit"
    NODE_FAILURE = "node failure"
    ADMIN = "requeued by hand"
    ITSELF = "ended by itself"


@dataclass(frozen=True, slots=True)
class Move:
    """One attempt with one run of a job. Times: epoch seconds.

    job_id: raw. requeue_id: what Slurm is to be told, 9001_7 of an array. restart: of the run.
    started: when the run began. ask: the id it is asked under. within_s: from the ask to the
    deadline. hold_s: how long the job holds after that. saved_at: when it had saved.
    to_job: for whom it yields. why: the sentence of the state.
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
    seen_at: int = 0
    requeues_sent: int = 0
    by: str = ""
    reason: str = ""
    to_job: int | None = None
    to_partition: str = ""
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
    """What the job answered to the move's ask. phase: working, saved, failed, going."""

    phase: str
    step: int | None = None
    checkpoint: str = ""
    time: int = 0
    why: str = ""


def advance(
    move: Move,
    seen: Seen | None,
    said: Said | None,
    *,
    now: int,
    may_ask: bool = True,
    group: Group = Group.READY,
) -> tuple[Move, Act]:
    """The move as it is now, with its sentence, and the act that is due.

    Args:
        seen: None: squeue does not show the job.
        said: None: nothing to this ask.
        may_ask: whether there is room for one more checkpoint on its nodes and file system.
        group: the other moves for the same job.
    """
    if move.state.is_end:
        return move, Act.WAIT
    if seen is None:
        return _absent(move, now)
    move = replace(move, seen_at=now)
    if seen.restart > move.restart:
        return _restarted(move, seen, now)
    if seen.state in _ENDING:
        return move, Act.WAIT
    if seen.state not in _SAME_RUN:
        return _end(move, State.FAILED, f"the job is {seen.state.lower()}", now), Act.CLEAR
    if move.state is State.QUEUED:
        return _queued(move, now, may_ask=may_ask)
    if move.state is State.ASKED:
        return _asked(move, said, group, now)
    return _requeueing(move, said, now)


def _queued(move: Move, now: int, *, may_ask: bool) -> tuple[Move, Act]:
    if not may_ask:
        return replace(move, why="waits: enough checkpoints are made there already"), Act.WAIT
    return replace(move, state=State.ASKED, asked_at=now, why="asked to save"), Act.ASK


def _asked(move: Move, said: Said | None, group: Group, now: int) -> tuple[Move, Act]:
    phase = said.phase if said else ""
    if said and phase in ("failed", "going"):
        why = said.why or "it went on without saving"
        return _end(move, State.FAILED, f"not saved, the job runs on: {why}", now), Act.CLEAR
    if said and phase == "saved":
        return _saved(move, said, group, now)
    if now > move.deadline + LATE_S:
        why = f"not saved within {move.within_s} s, the job runs on"
        return _end(move, State.FAILED, why, now), Act.TAKE_BACK
    working = "saves" if phase == "working" else "asked to save"
    return replace(move, why=working), Act.WAIT if phase == "working" else Act.ASK


def _saved(move: Move, said: Said, group: Group, now: int) -> tuple[Move, Act]:
    move = replace(move, saved_at=said.time or now, step=said.step, checkpoint=said.checkpoint)
    step = "" if said.step is None else f" at step {said.step}"
    if move.goal is Goal.CHECKPOINT:
        return _end(move, State.SAVED, f"saved{step}, the job runs on", now), Act.CLEAR
    if move.goal is Goal.PAUSE:
        return _end(move, State.PAUSED, f"paused{step}, its GPUs are free", now), Act.WAIT
    if now > move.hold_until - LEAST_HOLD_S:
        why = f"saved{step}, but too late to requeue it"
        return _end(move, State.FAILED, why, now), Act.TAKE_BACK
    if group is Group.FAILED:
        why = f"saved{step}, the job runs on: not all that were to make room could"
        return _end(move, State.FAILED, why, now), Act.TAKE_BACK
    if group is Group.WAITS:
        return replace(move, why=f"saved{step}, until all that make room have"), Act.WAIT
    why = f"saved{step}, to be requeued"
    return replace(move, state=State.REQUEUEING, requeues_sent=1, why=why), Act.REQUEUE


def _requeueing(move: Move, said: Said | None, now: int) -> tuple[Move, Act]:
    """Slurm still shows the run: it was not told, or would not."""
    if said and said.phase == "going":
        return _end(move, State.FAILED, "not requeued in time, the job runs on", now), Act.CLEAR
    if now > move.hold_until - LEAST_HOLD_S:
        why = "Slurm did not requeue it in time, the job runs on"
        return _end(move, State.FAILED, why, now), Act.TAKE_BACK
    return replace(move, requeues_sent=move.requeues_sent + 1), Act.REQUEUE


def _restarted(move: Move, seen: Seen, now: int) -> tuple[Move, Act]:
    """The run is over and the job in the queue again, by us or by somebody else."""
    if move.state is not State.REQUEUEING:
        why = "Slurm or somebody else requeued it meanwhile"
        return _end(move, State.FAILED, why, now), Act.CLEAR
    if seen.is_held:
        reason = f" ({seen.reason})" if seen.reason else ""
        why = f"saved and requeued, but it is held now{reason}: scontrol release {move.requeue_id}"
    elif seen.state == "PENDING":
        wait_s = max((seen.eligible or now) - now, 0)
        why = "saved and requeued" + (f", can start in {wait_s} s" if wait_s else "")
    else:
        why = "saved and requeued, runs again"
    return _end(move, State.REQUEUED, why, now), Act.CLEAR


def _absent(move: Move, now: int) -> tuple[Move, Act]:
    if now - max(move.seen_at, move.began) < ABSENT_S:
        return move, Act.WAIT
    return _end(move, State.FAILED, "Slurm does not know the job any more", now), Act.CLEAR


def _end(move: Move, state: State, why: str, now: int) -> Move:
    return replace(move, state=state, why=why, ended_at=now)


def cause(
    state: str,
    *,
    elapsed_s: int | None = None,
    limit_s: int | None = None,
    was_preempted: bool = False,
    was_ours: bool = False,
) -> Cause:
    """Why a run ended, from what Slurm recorded, not from when a signal came.

    Args:
        state: of the run: sacct's, or squeue's of a job that is being ended.
        elapsed_s, limit_s: of the run; None: not known, or no limit.
        was_preempted: it has a preempt time.
        was_ours: a move of ours requeued this run.
    """
    known = {
        "PREEMPTED": Cause.PREEMPTION,
        "TIMEOUT": Cause.TIME_LIMIT,
        "DEADLINE": Cause.TIME_LIMIT,
        "NODE_FAIL": Cause.NODE_FAILURE,
        "BOOT_FAIL": Cause.NODE_FAILURE,
    }
    if was_ours:
        return Cause.OURS
    if state in known:
        return known[state]
    if was_preempted:
        return Cause.PREEMPTION
    if state in ("REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"):
        return Cause.ADMIN
    if elapsed_s is not None and limit_s is not None and elapsed_s >= limit_s:
        return Cause.TIME_LIMIT
    return Cause.ITSELF


def why_signalled(
    *, now: int, end_limit: int | None, preempted_at: int | None, lead_s: int
) -> Cause | None:
    """What a signal from Slurm to a running job means; None: nothing that Slurm says.

    Args:
        end_limit: when the time limit ends the run; None: no limit.
        preempted_at: when Slurm decided to preempt it; None: it did not.
        lead_s: how long before the limit the signal was ordered; Slurm may be 60 s early.
    """
    if preempted_at is not None:
        return Cause.PREEMPTION
    if end_limit is not None and end_limit - now <= lead_s + 60:
        return Cause.TIME_LIMIT
    return None
