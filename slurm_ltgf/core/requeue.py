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

from dataclasses import replace

from slurm_ltgf.core.move import Act, Goal, Gone, Group, Move, Said, Seen, State

#: After its deadline a job has this long to say so itself.
LATE_S = 5
#: A job that squeue does not show for so long is over.
ABSENT_S = 30
#: A requeue is not begun when the job will stop holding so soon.
LEAST_HOLD_S = 3
#: Why a job that saved runs on all the same; no checkpoint of its own has failed.
NOT_ALL = "not all that were to make room could"
_SAID_NO = "it said no"
#: Why nothing is counted of a requeue: the job did not tell.
NOT_TOLD = "whether it saved is not known"

_SAME_RUN = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "CONFIGURING"})
_ENDING = frozenset({"COMPLETING", "STAGE_OUT"})


def advance(
    move: Move,
    seen: Seen | None,
    said: Said | None,
    *,
    now: int,
    may_ask: bool = True,
    group: Group = Group.READY,
    gone: Gone | None = None,
) -> tuple[Move, Act]:
    """The move as it is now, with its sentence, and the act that is due.

    Args:
        seen: None: squeue does not show the job.
        said: None: nothing to this ask.
        may_ask: whether there is room for one more checkpoint on its nodes and file system.
        group: the other moves for the same job.
        gone: what the records say of it, where squeue has not shown it for ABSENT_S.
    """
    if move.state.is_end:
        return move, Act.WAIT
    if seen is None:
        return _absent(move, gone or Gone(), now)
    move = replace(move, absent_since=None)
    if seen.restart > move.restart or seen.state == "PENDING":
        return _restarted(move, seen, said, now)
    if seen.state in _ENDING:
        return _ending(move, now)
    if seen.state not in _SAME_RUN:
        return _end(move, State.FAILED, f"the job is {seen.state.lower()}", now), Act.CLEAR
    if move.state is State.QUEUED:
        return _queued(move, now, may_ask=may_ask)
    if move.state is State.ASKED:
        return _asked(move, said, group, can_requeue=seen.state == "RUNNING", now=now)
    return _requeueing(move, said, can_requeue=seen.state == "RUNNING", now=now)


def _queued(move: Move, now: int, *, may_ask: bool) -> tuple[Move, Act]:
    if not may_ask:
        return replace(move, why="waits: enough checkpoints are made there already"), Act.WAIT
    return replace(move, state=State.ASKED, asked_at=now, why="asked to save"), Act.ASK


def _asked(
    move: Move, said: Said | None, group: Group, *, can_requeue: bool, now: int
) -> tuple[Move, Act]:
    phase = said.phase if said else ""
    if said and phase == "refused":
        why = f"{_SAID_NO}, the job runs on: {said.why or 'without a reason'}"
        return _end(move, State.FAILED, why, now), Act.CLEAR
    if said and phase in ("failed", "going"):
        why = said.why or "it went on without saving"
        return _end(move, State.FAILED, f"not saved, the job runs on: {why}", now), Act.CLEAR
    if said and phase == "saved":
        return _saved(move, said, group, can_requeue=can_requeue, now=now)
    if now > move.deadline + LATE_S:
        why = f"not saved within {move.within_s} s, the job runs on"
        return _end(move, State.FAILED, why, now), Act.TAKE_BACK
    if said and phase == "working":
        return replace(move, why=said.why or "saves"), Act.WAIT
    return replace(move, why="asked to save"), Act.ASK


def _saved(
    move: Move, said: Said, group: Group, *, can_requeue: bool, now: int
) -> tuple[Move, Act]:
    move = _with_checkpoint(move, said, now)
    step = _at_step(move)
    if move.goal is Goal.CHECKPOINT:
        return _end(move, State.SAVED, f"saved{step}, the job runs on", now), Act.CLEAR
    if move.goal is Goal.PAUSE:
        return _end(move, State.PAUSED, f"paused{step}, its GPUs are free", now), Act.WAIT
    if now > move.hold_until - LEAST_HOLD_S:
        why = f"saved{step}, but too late to requeue it"
        return _end(move, State.FAILED, why, now), Act.TAKE_BACK
    if group is Group.FAILED:
        why = f"saved{step}, the job runs on: {NOT_ALL}"
        return _end(move, State.FAILED, why, now), Act.TAKE_BACK
    if group is Group.WAITS:
        return replace(move, why=f"saved{step}, until all that make room have"), Act.WAIT
    if not can_requeue:
        return replace(move, why=f"saved{step}, but suspended: until it runs"), Act.WAIT
    why = f"saved{step}, to be requeued"
    return replace(move, state=State.REQUEUEING, why=why), Act.REQUEUE


def _with_checkpoint(move: Move, said: Said, now: int) -> Move:
    """What the job says it saved; its clock may be wrong, or a lie."""
    saved_at = min(max(said.time, move.asked_at), now)
    return replace(move, saved_at=saved_at, step=said.step, checkpoint=said.checkpoint)


def _at_step(move: Move) -> str:
    return "" if move.step is None else f" at step {move.step}"


def _requeueing(move: Move, said: Said | None, *, can_requeue: bool, now: int) -> tuple[Move, Act]:
    """Slurm still shows the run: it was not told, or would not."""
    if said and said.phase == "going":
        return _end(move, State.FAILED, "not requeued in time, the job runs on", now), Act.CLEAR
    if now > move.hold_until - LEAST_HOLD_S:
        why = "Slurm did not requeue it in time, the job runs on"
        return _end(move, State.FAILED, why, now), Act.TAKE_BACK
    if not can_requeue:
        return move, Act.WAIT
    return move, Act.REQUEUE


def refused(move: Move, why: str, now: int) -> tuple[Move, Act]:
    """Slurm said no to the requeue, and the run is still there."""
    why = f"saved{_at_step(move)}, but not requeued, the job runs on: {why}"
    return _end(move, State.FAILED, why, now), Act.TAKE_BACK


def is_fault(why: str) -> bool:
    """Whether a failed move's sentence tells of a checkpoint or a requeue that did not work.

    A job that cannot or will not save is no fault of the site's, nor is one that ended.

    >>> is_fault("not saved within 600 s, the job runs on"), is_fault("the job is completed")
    (True, False)
    >>> is_fault("it said no, the job runs on: this program cannot pause in place")
    False
    """
    parts = ("not saved", "saved", "not requeued", "Slurm did not requeue")
    return why.startswith(parts) and NOT_ALL not in why


def is_refusal(why: str) -> bool:
    """Whether a failed move's sentence tells of a job that cannot or will not save."""
    return why.startswith(_SAID_NO)


def _restarted(move: Move, seen: Seen, said: Said | None, now: int) -> tuple[Move, Act]:
    """The run is over and the job in the queue again, by us or by somebody else."""
    if said and said.phase == "saved":
        move = _with_checkpoint(move, said, now)
    if move.saved_at is None or move.goal is not Goal.REQUEUE:
        why = "Slurm or somebody else requeued it meanwhile"
        return _end(move, State.FAILED, why, now), Act.CLEAR
    if seen.state in _ENDING and now <= move.hold_until:
        return replace(move, why="requeued, its processes are being ended"), Act.WAIT
    whose = "" if move.state is State.REQUEUEING else " by Slurm or somebody else"
    why = f"saved{_at_step(move)} and requeued{whose}"
    if seen.is_held:
        reason = f" ({seen.reason})" if seen.reason else ""
        why += f", but it is held now{reason}: scontrol release {move.requeue_id}"
    elif seen.state == "PENDING":
        wait_s = max((seen.eligible or now) - now, 0)
        why += f", can start in {wait_s} s" if wait_s else ""
    else:
        why += ", is still being ended" if seen.state in _ENDING else ", runs again"
    return _end(move, State.REQUEUED, why, now), Act.CLEAR


def _ending(move: Move, now: int) -> tuple[Move, Act]:
    """The run is being ended; whether the job is then requeued is not seen yet."""
    if move.state is State.REQUEUEING or now <= move.hold_until:
        return move, Act.WAIT
    return _end(move, State.FAILED, "the job ended before it was saved", now), Act.CLEAR


def _absent(move: Move, gone: Gone, now: int) -> tuple[Move, Act]:
    """A requeue may hide the job for seconds, and a kill this program for hours."""
    since = now if move.absent_since is None else move.absent_since
    if now - since < ABSENT_S:
        return replace(move, absent_since=since), Act.WAIT
    story = f": {gone.story}" if gone.story else ""
    if gone.was_requeued and move.saved_at is not None and move.goal is Goal.REQUEUE:
        why = f"saved{_at_step(move)} and requeued, and over by now{story}"
        return _end(move, State.REQUEUED, why, now), Act.CLEAR
    return _end(move, State.FAILED, f"Slurm does not know the job any more{story}", now), Act.CLEAR


def is_absent(move: Move, now: int) -> bool:
    """Whether squeue has not shown the job for so long that its records are to be asked."""
    return move.absent_since is not None and now - move.absent_since >= ABSENT_S


def _end(move: Move, state: State, why: str, now: int) -> Move:
    return replace(move, state=state, why=why, ended_at=now)
