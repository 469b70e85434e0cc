"""How moves of running jobs begin: the look before, and the two requeues that need no ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from slurm_ltgf.checkpoint.board import BoardError
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.core.ending import Cause, why_signalled
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.move import Goal, Move, State
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
        running = the_one(self.edges.find(name), name)
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
        job_id = the_one(self.edges.find(name), name).job.job_id
        with self.files.locked(job_id):
            found = self.outlook(name, wish.goal)
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

    def after_signal(self, name: str, wish: Wish, *, lead_s: int, now: int) -> str:
        """For a job that saved because Slurm sent it a signal: requeue it if its time is up.

        A job that is preempted is requeued by Slurm itself. Returns what was done.

        Args:
            lead_s: how long before the time limit the signal was ordered.

        Raises:
            MoveRefused: Slurm wants nothing of the job, would not requeue it, or its budget for
                time limits is spent.
        """
        running = the_one(self.edges.find(name), name)
        known = self.files.read(running.job.job_id)
        why = why_signalled(
            now=now,
            end_limit=running.job.planned_end,
            preempted_at=running.preempted_at,
            lead_s=lead_s,
        )
        if why is Cause.PREEMPTION:
            return "Slurm preempts it, and requeues it by itself"
        if why is None:
            raise MoveRefused(f"job {name}: Slurm neither preempts it nor is its time up soon")
        limits, most = known.limits if known else 0, self.settings.limits_per_job
        if limits >= most:
            raise MoveRefused(
                f"job {name}: requeued {limits} times for its time limit already"
                " (checkpoint.limits_per_job)"
            )
        if not running.may_requeue:
            raise MoveRefused(f"job {name}: was submitted with --no-requeue (JobRequeue=0)")
        move = new_move(running, wish, None, settings=self.settings, pricing=self.pricing)
        done = "its time limit was near, requeued"
        after = replace(
            move, state=State.REQUEUED, began=now, saved_at=now, ended_at=now, why=done,
            limits=limits + 1,
        )  # fmt: skip
        # the requeue ends whoever runs this inside of the job: everything else comes before it
        self.files.write(after)
        self.edges.log(audit_entry(move, after, now=now), after)
        self.edges.requeue(running.requeue_id)
        return done

    def send(self, move: Move) -> Move:
        """After its requeue a job waits where it was wanted to wait."""
        if move.state is not State.REQUEUED or not move.to_partition:
            return move
        try:
            self.edges.send_to(move.requeue_id, move.to_partition)
        except SlurmRefused as exc:
            return replace(move, why=f"{move.why}; not sent to {move.to_partition}: {exc}")
        return replace(move, why=f"{move.why}, in {move.to_partition}")


def _is_under_way(known: Move | None, running: Running) -> bool:
    """Whether a move is of this very run: job ids come again when a site counts from 1 anew."""
    if known is None or known.state.is_end:
        return False
    job = running.job
    return (known.uid, known.restart, known.started) == (running.uid, job.restarts, job.start)
