"""How moves of running jobs begin: the look before, and the two requeues that need no ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_ltgf.checkpoint.board import BoardError
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.checkpoint.protocol import Answer, Phase
from slurm_ltgf.core.ending import Cause, why_signalled
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.move import Goal, Move, State
from slurm_ltgf.core.requeue import NOT_TOLD
from slurm_ltgf.errors import SlurmRefused
from slurm_ltgf.service.move_facts import (
    Boards,
    MoveEdges,
    MoveRefused,
    Outlook,
    Wish,
    audit_entry,
    new_move,
    objections,
    the_one,
)
from slurm_ltgf.service.savers import BoardMemory
from slurm_ltgf.slurm.requeue import Running
from slurm_ltgf.store.config import Checkpoint
from slurm_ltgf.store.moves import MoveFiles


@dataclass(slots=True)
class Beginnings:
    """What begins moves; `service.moves` has what goes on with them."""

    edges: MoveEdges
    files: MoveFiles
    settings: Checkpoint
    pricing: Pricing
    requeued_before: Callable[[int], int] = lambda job_id: 0
    memory: BoardMemory = field(default_factory=BoardMemory, compare=False, repr=False)

    @property
    def boards(self) -> Boards:
        """Where jobs are asked."""
        return Boards(self.settings.records)

    def outlook(self, name: str, goal: Goal) -> Outlook:
        """A job as a move would find it, with every reason against one.

        Raises:
            MoveRefused: there is no one such job that runs.
            SlurmUnavailable, SlurmRefused: squeue failed.
        """
        return self._outlook(the_one(self.edges.find(name), name), goal)

    def _outlook(self, running: Running, goal: Goal) -> Outlook:
        job_id, uid = running.job.job_id, running.uid
        folder = self.boards.folder(running)
        found = Outlook(running, folder, move=self.files.read(job_id))
        try:
            with self.boards.open(folder, uid) as board:
                record = board.record(job_id, uid)
                found = replace(found, record=record, answer=board.answer(job_id, uid))
        except ProtocolError as exc:
            return replace(found, objections=(str(exc),))
        except BoardError as exc:
            # a job without a session has no folder; one that may not be read is another matter
            if self.settings.records or exc.__cause__ is not None:
                return replace(found, objections=(str(exc),))
        made, most = self.requeued_before(job_id), self.settings.requeues_per_job
        return replace(found, objections=tuple(objections(found, goal, made=made, most=most)))

    def begin(self, name: str, wish: Wish, *, now: int) -> Move:
        """Start a move, or take up the one of this job that is under way.

        Raises:
            MoveRefused: every reason against it, or something else is being done with the job.
            SlurmUnavailable, SlurmRefused, FileError, LockHeldError: as they come.
        """
        running = the_one(self.edges.find(name), name)
        with self.files.locked(running.job.job_id):
            found = self._outlook(running, wish.goal)
            known = found.move
            if _is_under_way(known, found.running):
                assert known is not None
                if known.goal is wish.goal:
                    return known
                raise MoveRefused(f"job {name}: a {known.goal.value} of it is under way, wait")
            if found.objections or found.record is None:
                raise MoveRefused(f"job {name}: " + "; ".join(found.objections))
            move = replace(
                new_move(
                    found.running, wish, found.record,
                    settings=self.settings, pricing=self.pricing,
                ),
                board=str(found.board), began=now, limits=known.limits if known else 0,
            )  # fmt: skip
            self.files.write(move)
        self.files.sweep(now)
        return move

    def requeue_now(self, name: str, wish: Wish, *, now: int, dry_run: bool = False) -> Move:
        """Requeue a job as it is: what it did since it started is lost.

        Raises:
            MoveRefused: there is no one such job that runs, or Slurm would not requeue it.
        """
        running = the_one(self.edges.find(name), name)
        if not running.may_requeue:
            raise MoveRefused(f"job {name}: was submitted with --no-requeue (JobRequeue=0)")
        move = new_move(running, wish, None, settings=self.settings, pricing=self.pricing)
        move = replace(move, why="requeued without checkpoint", began=now)
        if dry_run:
            return move
        self.edges.requeue(running.requeue_id)
        after = self.send(replace(move, state=State.REQUEUED, ended_at=now))
        self.edges.log(audit_entry(move, after, now=now), after)
        return after

    def after_signal(
        self, name: str, wish: Wish, *, lead_s: int, now: int, board: Path | None = None
    ) -> str:
        """For a job whose program saved and ended because Slurm sent it a signal: requeue it now.

        Only if Slurm preempts it or its time is up, and its program has not ended for another
        reason. One that is preempted gives its GPUs up sooner so, and would be over for good if
        its script ended. Returns what was done.

        Args:
            lead_s: how long before the time limit the signal was ordered.
            board: where the job answers; None: where the site asks it.

        Raises:
            MoveRefused: Slurm would not requeue it, or its budget for time limits is spent.
            SlurmRefused, SlurmUnavailable: Slurm did not.
        """
        running = the_one(self.edges.find(name), name)
        answer = self._answer(board or self.boards.folder(running), running)
        if answer is not None and answer.phase is not Phase.STOPPED:
            return "its program did not stop for Slurm's signal: nothing was done"
        why = why_signalled(
            now=now,
            end_limit=running.job.planned_end,
            preempted_at=running.preempted_at,
            lead_s=lead_s,
        )
        if why is None:
            return "Slurm neither preempts it nor is its time up soon: nothing was done"
        known = self.files.read(running.job.job_id)
        limits = (known.limits if known else 0) + (why is Cause.TIME_LIMIT)
        if limits > self.settings.limits_per_job:
            raise MoveRefused(
                f"job {name}: requeued {limits - 1} times for its time limit already"
                " (checkpoint.limits_per_job)"
            )
        if not running.may_requeue:
            raise MoveRefused(f"job {name}: was submitted with --no-requeue (JobRequeue=0)")
        move = new_move(running, wish, None, settings=self.settings, pricing=self.pricing)
        return self._requeue_stopped(_stopped(move, answer, why, now), limits, now)

    def _answer(self, folder: Path, running: Running) -> Answer | None:
        """What this run of the job said last; None: nothing, or nothing that can be read."""
        try:
            with self.boards.open(folder, running.uid) as board:
                found = board.answer(running.job.job_id, running.uid)
        except (BoardError, ProtocolError):
            return None
        return found if found is not None and found.restart == running.job.restarts else None

    def _requeue_stopped(self, move: Move, limits: int, now: int) -> str:
        """The requeue ends whoever runs this inside of the job: everything else comes before it."""
        after = replace(move, state=State.REQUEUED, ended_at=now, limits=limits)
        self.files.write(after)
        self.edges.log(audit_entry(move, after, now=now), after)
        try:
            self.edges.requeue(move.requeue_id)
        except SlurmRefused as exc:
            failed = replace(move, state=State.FAILED, ended_at=now, why=f"not requeued: {exc}")
            self.files.write(failed)
            self.edges.log(audit_entry(after, failed, now=now), failed)
            raise
        return after.why

    def send(self, move: Move) -> Move:
        """After its requeue a job waits where it was wanted to wait."""
        if move.state is not State.REQUEUED or not move.to_partition:
            return move
        try:
            self.edges.send_to(move.requeue_id, move.to_partition)
        except SlurmRefused as exc:
            return replace(move, why=f"{move.why}; not sent to {move.to_partition}: {exc}")
        return replace(move, why=f"{move.why}, in {move.to_partition}")


def _stopped(move: Move, answer: Answer | None, why: Cause, now: int) -> Move:
    """The move of a job whose program has stopped, with what the job itself says it saved."""
    done = "its time limit was near, requeued"
    if why is Cause.PREEMPTION:
        done = "preempted by Slurm, requeued at once"
    if answer is None or not answer.name:
        return replace(move, began=now, why=f"{done}; {NOT_TOLD}")
    step = "" if answer.step is None else f" at step {answer.step}"
    return replace(
        move, began=now, why=f"saved{step}; {done}", step=answer.step, checkpoint=answer.name,
        saved_at=min(max(answer.time, move.started), now),
    )  # fmt: skip


def _is_under_way(known: Move | None, running: Running) -> bool:
    """Whether a move is of this very run: job ids come again when a site counts from 1 anew."""
    if known is None or known.state.is_end:
        return False
    job = running.job
    return (known.uid, known.restart, known.started) == (running.uid, job.restarts, job.start)
