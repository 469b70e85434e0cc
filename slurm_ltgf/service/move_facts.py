"""What stands before a move: which job, where it is asked, and every reason against it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.protocol import Action, Answer, Ask, Phase, Record, ask_id
from slurm_ltgf.core.ending import Ending
from slurm_ltgf.core.gpus import Pricing, gpus
from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.core.move import Goal, Move, State
from slurm_ltgf.errors import LtgfError
from slurm_ltgf.service import user_folders
from slurm_ltgf.slurm.requeue import Running
from slurm_ltgf.store.config import Checkpoint
from slurm_ltgf.store.ledger_records import AuditEntry

_ACTION = {
    Goal.CHECKPOINT: Action.CHECKPOINT,
    Goal.REQUEUE: Action.REQUEUE,
    Goal.PAUSE: Action.PAUSE,
}


class MoveRefused(LtgfError):
    """The job cannot be moved as asked; nothing was touched. Do what the message says."""

    exit_code = 77


class MoveFailed(LtgfError):
    """The job was asked and did not save in time, or was not requeued: it runs on. Try later."""

    exit_code = 75


@dataclass(frozen=True, slots=True)
class MoveEdges:
    """What moves ask of Slurm, and tell it; and the log. endings: of a job that is gone."""

    find: Callable[[str], list[Running]]
    requeue: Callable[[str], None]
    send_to: Callable[[str, str], None]
    endings: Callable[[str], list[Ending]]
    log: Callable[[AuditEntry, Move], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted, and why. within_s: None: what the job said, else the site's.

    hold_s: how long it holds at most, beyond that; None: the site's. together: how many jobs make
    room for to_job, all or none.
    """

    goal: Goal
    by: str
    reason: str = ""
    to_job: int | None = None
    together: int = 1
    to_partition: str = ""
    within_s: int | None = None
    hold_s: int | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a move would meet. record, answer: None: there is none. move: the job's last one."""

    running: Running
    board: Path
    record: Record | None = None
    answer: Answer | None = None
    move: Move | None = None
    objections: tuple[str, ...] = ()


def the_one(found: Sequence[Running], name: str) -> Running:
    """The one running job of this name; of a het job its leader.

    Raises:
        MoveRefused: there is none, or several.
    """
    active = [one for one in found if one.job.state in ("RUNNING", "SUSPENDED")]
    leaders = [one for one in active if one.job.het_offset in (UNKNOWN, 0)]
    if len(leaders) == 1 and ("_" in name or leaders[0].job.array_job == UNKNOWN):
        return leaders[0]
    if not found:
        raise MoveRefused(f"job {name}: Slurm does not know it")
    if not active:
        raise MoveRefused(f"job {name}: is {found[0].job.state.lower()}, it does not run")
    if len(found) == 1:
        return active[0]
    tasks = ", ".join(one.requeue_id for one in active[:8])
    raise MoveRefused(
        f"job {name}: an array with {len(active)} running tasks, name one of them: {tasks}"
    )


def objections(found: Outlook, goal: Goal, *, made: int, most: int) -> Iterator[str]:
    """Every reason against a move.

    Args:
        made: how often ltgf requeued the job. most: how often it may.
    """
    running, record, answer = found.running, found.record, found.answer
    if goal is Goal.REQUEUE and not running.may_requeue:
        yield "Slurm would not requeue it: it was submitted with --no-requeue (JobRequeue=0)"
    if running.preempted_at is not None:
        yield "Slurm preempts it already"
    if record is None:
        yield (
            f"it left no checkpoint record in {found.board}: submit it with --ckpt=app,"
            " or let its program call slurm_ltgf.checkpoint.session()"
        )
    elif answer is None or answer.restart != running.job.restarts:
        yield "it has not said that it is ready: its program has not come that far, or cannot"
    elif is_paused(found):
        yield f"it is paused: ltgf resume {running.requeue_id} first"
    if goal is Goal.REQUEUE and made >= most:
        yield f"ltgf requeued it {made} times already (checkpoint.requeues_per_job)"


def is_paused(found: Outlook) -> bool:
    """Whether the job stands still, as its last move wanted; by itself it goes on in the end."""
    move, answer = found.move, found.answer
    if move is None or answer is None or move.state is not State.PAUSED:
        return False
    is_same = (answer.restart, answer.ask) == (found.running.job.restarts, move.ask)
    return is_same and answer.phase is Phase.SAVED


def new_move(
    running: Running, wish: Wish, record: Record | None, *, settings: Checkpoint, pricing: Pricing
) -> Move:
    """The move of a wish, not yet begun."""
    job = running.job
    return Move(
        job_id=job.job_id,
        uid=running.uid,
        restart=job.restarts,
        goal=wish.goal,
        ask=ask_id(),
        requeue_id=running.requeue_id,
        tenant=job.account,
        gpus=float(gpus(job.gres, pricing).weighted),
        nodes=job.nodes,
        filesystem=user_folders.filesystem(record.dir) if record else "",
        started=0 if job.start == UNKNOWN else job.start,
        within_s=wish.within_s or (record and record.timeout_s) or settings.timeout_s,
        hold_s=wish.hold_s or settings.hold_s,
        by=wish.by,
        reason=wish.reason,
        to_job=wish.to_job,
        together=wish.together,
        to_partition=wish.to_partition,
        why="waits for its turn",
    )


def ask_of(move: Move) -> Ask:
    """What a move asks the job."""
    return Ask(
        id=move.ask,
        job_id=move.job_id,
        restart=move.restart,
        action=_ACTION[move.goal],
        deadline=move.deadline,
        hold_until=move.hold_until,
        time=move.asked_at,
        by=move.by,
        reason=move.reason,
    )


def audit_entry(before: Move, after: Move, *, now: int) -> AuditEntry:
    """What the log says of a step: what happened, what it was for, what it kept and cost."""
    parts = [after.why]
    if after.reason:
        parts.append(f"for: {after.reason}")
    if after.state.is_end and after.saved_gpu_s is not None:
        lost = "" if after.lost_gpu_s is None else f", {after.lost_gpu_s:g} GPU-s lost"
        parts.append(f"{after.saved_gpu_s:g} GPU-s saved{lost}")
    return AuditEntry(
        time=now,
        actor=after.by,
        action=after.goal.value,
        job_id=str(after.job_id),
        old=before.state.value,
        new=after.state.value,
        reason="; ".join(parts),
    )


@dataclass(frozen=True, slots=True)
class Boards:
    """Boards of jobs: the site's records folder, else each job's own.

    In a folder of the job's user root acts as that user: whatever links lie there lead nowhere
    that the user could not go.
    """

    records: str = ""

    def folder(self, running: Running) -> Path:
        """Where the job is asked."""
        if self.records:
            return Path(self.records)
        return Path(running.work_dir) / "ltgf-ckpt" / str(running.job.job_id)

    @contextmanager
    def open(self, folder: Path, uid: int) -> Iterator[Board]:
        """A board, as whoever may use it."""
        if str(folder) == self.records:
            yield Board(folder)
            return
        with acting_as(uid):
            yield Board(folder)

    def lacks(self, record: Record, name: str) -> bool:
        """Whether the job's folder can be seen from here, without the checkpoint that it named."""
        return bool(name) and user_folders.has(record.dir, name, uid=record.uid) is False


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """As root, be another user for the time of a block; anybody else stays who they are."""
    if os.geteuid() != 0 or uid == 0:
        yield
        return
    groups, gid = os.getgroups(), os.getegid()
    own = user_folders.group_of(uid)
    os.setgroups([own])
    os.setegid(own)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)
