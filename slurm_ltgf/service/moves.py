"""Moves of running jobs: ask them to save, then requeue or pause them. For the CLI and the daemon.

What to do is decided in `core.requeue`; here it is done: facts from Slurm, answers from the board,
the move's file before each act, the audit log after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_ltgf.checkpoint.board import Board, BoardError
from slurm_ltgf.checkpoint.protocol import (
    Action,
    Answer,
    Ask,
    Mode,
    Phase,
    ProtocolError,
    Record,
    ask_id,
    withdrawn,
)
from slurm_ltgf.core.gpus import Pricing, gpus
from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.core.requeue import Act, Goal, Group, Move, Said, Seen, State, advance
from slurm_ltgf.errors import LtgfError, SlurmRefused, SlurmUnavailable
from slurm_ltgf.slurm.requeue import Running
from slurm_ltgf.slurm.text import expand_hostlist
from slurm_ltgf.store.config import Checkpoint
from slurm_ltgf.store.ledger_records import AuditEntry
from slurm_ltgf.store.moves import MoveFiles

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
    """What moves ask of Slurm, and tell it; and the log."""

    find: Callable[[str], list[Running]]
    requeue: Callable[[str], None]
    send_to: Callable[[str, str], None]
    log: Callable[[AuditEntry, Move], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted, and why. within_s: None: what the job said, else the site's.

    hold_s: how long it holds at most, beyond that; None: the site's.
    """

    goal: Goal
    by: str
    reason: str = ""
    to_job: int | None = None
    to_partition: str = ""
    within_s: int | None = None
    hold_s: int | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a move would meet: see `Moves.outlook`. record, answer: None: there is none."""

    running: Running
    board: Board
    record: Record | None
    answer: Answer | None
    objections: tuple[str, ...] = ()


@dataclass(slots=True)
class Moves:
    """All moves of a site.

    Args:
        asked_at: by file system, when the last job there was asked.
    """

    edges: MoveEdges
    files: MoveFiles
    settings: Checkpoint
    pricing: Pricing
    requeued_before: Callable[[int], int] = lambda job_id: 0
    asked_at: dict[str, int] = field(default_factory=dict)

    # --- beginning --------------------------------------------------------------------------------

    def outlook(self, name: str, goal: Goal) -> Outlook:
        """A job as a move would find it, with every reason against one.

        Raises:
            MoveRefused: there is no one such job that runs.
            SlurmUnavailable, SlurmRefused: squeue failed.
        """
        running = self._one(name)
        board = self._board(running)
        try:
            record = board.record(running.job.job_id, running.uid)
            answer = board.answer(running.job.job_id, running.uid)
        except (BoardError, ProtocolError) as exc:
            return Outlook(running, board, None, None, (str(exc),))
        found = Outlook(running, board, record, answer)
        return replace(found, objections=tuple(self._objections(found, goal)))

    def begin(self, name: str, wish: Wish, *, now: int) -> Move:
        """Start a move, or take up the one of this job that is under way.

        Raises:
            MoveRefused: every reason against it.
            SlurmUnavailable, SlurmRefused, FileError: as they come.
        """
        found = self.outlook(name, wish.goal)
        job = found.running.job
        known = self.files.read(job.job_id)
        if known is not None and not known.state.is_end and known.restart == job.restarts:
            return known
        if found.objections or found.record is None:
            raise MoveRefused(f"job {name}: " + "; ".join(found.objections))
        move = self._new(found, wish, found.record, now=now)
        self.files.write(move)
        return move

    def requeue_now(self, name: str, wish: Wish, *, now: int, dry_run: bool = False) -> Move:
        """Requeue a job as it is: what it did since it started is lost.

        Raises:
            MoveRefused: there is no one such job that runs, or Slurm would not requeue it.
        """
        running = self._one(name)
        if not running.may_requeue:
            raise MoveRefused(f"job {name}: was submitted with --no-requeue (JobRequeue=0)")
        job = running.job
        nowhere = Record(job.job_id, running.uid, job.restarts, Mode.APP, Path("/"))
        found = Outlook(running, Board(Path("/")), nowhere, None)
        move = replace(self._new(found, wish, nowhere, now=now), why="requeued without checkpoint")
        if not dry_run:
            self.edges.requeue(running.requeue_id)
            after = replace(move, state=State.REQUEUED, ended_at=now)
            self._log(move, after, now=now)
            if wish.to_partition:
                self.edges.send_to(running.requeue_id, wish.to_partition)
        return move

    def _new(self, found: Outlook, wish: Wish, record: Record, *, now: int) -> Move:
        job = found.running.job
        within_s = wish.within_s or record.timeout_s or self.settings.timeout_s
        return Move(
            job_id=job.job_id,
            uid=found.running.uid,
            restart=job.restarts,
            goal=wish.goal,
            ask=ask_id(),
            requeue_id=found.running.requeue_id,
            tenant=job.account,
            gpus=float(gpus(job.gres, self.pricing).weighted),
            nodes=job.nodes,
            filesystem=_filesystem(record.dir),
            started=0 if job.start == UNKNOWN else job.start,
            within_s=within_s,
            hold_s=wish.hold_s or self.settings.hold_s,
            began=now,
            seen_at=now,
            by=wish.by,
            reason=wish.reason,
            to_job=wish.to_job,
            to_partition=wish.to_partition,
            why="waits for its turn",
        )

    def _one(self, name: str) -> Running:
        """The one running job of this name; of a het job its leader."""
        found = self.edges.find(name)
        active = [one for one in found if one.job.state in ("RUNNING", "SUSPENDED")]
        leaders = [one for one in active if one.job.het_offset in (UNKNOWN, 0)]
        if len(leaders) == 1 and ("_" in name or leaders[0].job.array_job == UNKNOWN):
            return leaders[0]
        if not found:
            raise MoveRefused(f"job {name}: Slurm does not know it")
        if not active:
            raise MoveRefused(f"job {name}: is {found[0].job.state.lower()}, it does not run")
        if len(found) == 1 and active:
            return active[0]
        tasks = ", ".join(one.requeue_id for one in active[:8])
        raise MoveRefused(
            f"job {name}: an array with {len(active)} running tasks, name one of them: {tasks}"
        )

    def _board(self, running: Running) -> Board:
        """Where the job is asked: the site's records, else its own folder."""
        if self.settings.records:
            return Board(Path(self.settings.records))
        return Board(Path(running.work_dir) / "ltgf-ckpt" / str(running.job.job_id))

    def _objections(self, found: Outlook, goal: Goal) -> Iterable[str]:
        running, record, answer = found.running, found.record, found.answer
        if goal is Goal.REQUEUE and not running.may_requeue:
            yield "Slurm would not requeue it: it was submitted with --no-requeue (JobRequeue=0)"
        if running.preempted_at is not None:
            yield "Slurm preempts it already"
        if record is None:
            yield (
                f"it left no checkpoint record in {found.board.folder}: submit it with --ckpt=app,"
                " or let its program call slurm_ltgf.checkpoint.session()"
            )
        elif answer is None or answer.restart != running.job.restarts:
            yield "it has not said that it is ready: its program has not come that far, or cannot"
        made = self.requeued_before(running.job.job_id)
        if goal is Goal.REQUEUE and made >= self.settings.requeues_per_job:
            yield f"ltgf requeued it {made} times already (checkpoint.requeues_per_job)"

    # --- going on ---------------------------------------------------------------------------------

    def go_on(self, move: Move, *, now: int) -> Move:
        """Do the next act of a move, if one is due; the move as it is then.

        Raises:
            FileError: it cannot be written down; nothing was done.
            BoardError: the ask cannot be written.
            SlurmUnavailable: Slurm does not answer; call again later.
        """
        seen = self._seen(move)
        board = self._board_of(move)
        said = self._said(move, board) if move.state is not State.QUEUED else None
        after, act = advance(
            move, seen, said, now=now, may_ask=self._may_ask(move, now), group=self._group(move)
        )
        if after != move:
            self.files.write(after)
        self._do(after, act, board, now=now)
        if after.state is not move.state:
            self._log(move, after, now=now)
        return after

    def try_to_go_on(self, move: Move, *, now: int) -> tuple[Move, LtgfError | None]:
        """As `go_on`; what may pass (Slurm or the board is away) is returned, not raised."""
        try:
            return self.go_on(move, now=now), None
        except (SlurmUnavailable, BoardError) as exc:
            return move, exc

    def go_on_all(self, *, now: int) -> list[tuple[Move, str]]:
        """Every move that is under way; with what went wrong, "" for nothing."""
        done = []
        for move in self.under_way():
            try:
                done.append((self.go_on(move, now=now), ""))
            except (SlurmUnavailable, BoardError, LtgfError) as exc:
                done.append((move, str(exc)))
        return done

    def under_way(self) -> list[Move]:
        """Moves that are not at their end."""
        return [move for move in self.files.all() if not move.state.is_end]

    def resume(self, name: str, *, now: int) -> Move:
        """End a pause.

        Raises:
            MoveRefused: the job is not paused by us.
        """
        running = self._one(name)
        move = self.files.read(running.job.job_id)
        if move is None or move.state is not State.PAUSED or move.restart != running.job.restarts:
            raise MoveRefused(f"job {name}: is not paused by ltgf")
        after = replace(move, state=State.SAVED, why="resumed", ended_at=now)
        self._board_of(move).ask(withdrawn(_ask_of(move), Action.RESUME, now))
        self.files.write(after)
        self._log(move, after, now=now)
        return after

    def take_back(self, move: Move, *, now: int) -> Move:
        """Give a move up: the job goes on."""
        after = replace(move, state=State.FAILED, why="taken back, the job runs on", ended_at=now)
        self.files.write(after)
        self._board_of(move).ask(withdrawn(_ask_of(move), Action.GO_ON, now))
        self._log(move, after, now=now)
        return after

    def _do(self, move: Move, act: Act, board: Board, *, now: int) -> None:
        if act is Act.ASK:
            if board.asked(move.job_id) != _ask_of(move):
                board.ask(_ask_of(move))
            self.asked_at[move.filesystem] = now
        elif act is Act.TAKE_BACK:
            board.ask(withdrawn(_ask_of(move), Action.GO_ON, now))
        elif act is Act.REQUEUE:
            self._requeue(move)
        elif act is Act.CLEAR:
            board.clear(move.job_id)
            if move.state is State.REQUEUED and move.to_partition:
                self.edges.send_to(move.requeue_id, move.to_partition)

    def _requeue(self, move: Move) -> None:
        """Only the run that saved: its restart count is looked at once more, right before."""
        seen = self._seen(move)
        if seen is None or seen.restart != move.restart or seen.state != "RUNNING":
            return
        try:
            self.edges.requeue(move.requeue_id)
        except SlurmRefused:
            again = self._seen(move)
            if again is not None and again.restart == move.restart and move.requeues_sent > 1:
                raise

    def _seen(self, move: Move) -> Seen | None:
        found = [one for one in self.edges.find(move.requeue_id) if one.job.job_id == move.job_id]
        if not found:
            return None
        job = found[0].job
        return Seen(
            state=job.state,
            restart=job.restarts,
            reason=job.reason,
            eligible=None if job.eligible == UNKNOWN else job.eligible,
            is_held=job.is_held,
        )

    def _said(self, move: Move, board: Board) -> Said | None:
        try:
            answer = board.answer(move.job_id, move.uid)
        except (BoardError, ProtocolError):
            return None
        if answer is None or answer.ask != move.ask or answer.restart != move.restart:
            return None
        phase = "" if answer.phase is Phase.READY else answer.phase.value
        return Said(phase, answer.step, answer.name, answer.time, answer.why)

    def _board_of(self, move: Move) -> Board:
        if self.settings.records:
            return Board(Path(self.settings.records))
        return Board(self._own_folder(move))

    def _own_folder(self, move: Move) -> Path:
        found = self.edges.find(move.requeue_id)
        return self._board(found[0]).folder if found else Path("/nonexistent")

    def _group(self, move: Move) -> Group:
        """The moves that began with this one to make room for the same job."""
        if move.to_job is None:
            return Group.READY
        others = [
            one
            for one in self.files.all()
            if (one.to_job, one.began) == (move.to_job, move.began) and one.job_id != move.job_id
        ]
        if any(one.state is State.FAILED for one in others):
            return Group.FAILED
        asked = [one for one in others if one.state in (State.QUEUED, State.ASKED)]
        return Group.WAITS if any(one.saved_at is None for one in asked) else Group.READY

    def _may_ask(self, move: Move, now: int) -> bool:
        """Whether there is room for one more checkpoint on its nodes and its file system."""
        others = [one for one in self.under_way() if one.job_id != move.job_id]
        asked = [one for one in others if one.state is State.ASKED]
        on_node: Counter[str] = Counter()
        for one in asked:
            on_node.update(expand_hostlist(one.nodes))
        if any(on_node[node] >= self.settings.per_node for node in expand_hostlist(move.nodes)):
            return False
        beside = sum(one.filesystem == move.filesystem for one in asked)
        rested_s = now - self.asked_at.get(move.filesystem, 0)
        return beside < self.settings.per_filesystem and (
            move.state is not State.QUEUED or rested_s >= self.settings.stagger_s
        )

    def _log(self, before: Move, after: Move, *, now: int) -> None:
        entry = AuditEntry(
            time=now,
            actor=after.by,
            action=after.goal.value,
            job_id=str(after.job_id),
            old=before.state.value,
            new=after.state.value,
            reason=_sentence(after),
        )
        self.edges.log(entry, after)


def _sentence(move: Move) -> str:
    """What happened, what it was for, and what it kept and cost."""
    parts = [move.why]
    if move.reason:
        parts.append(f"for: {move.reason}")
    if move.state.is_end and move.saved_gpu_s is not None:
        lost = "" if move.lost_gpu_s is None else f", {move.lost_gpu_s:g} GPU-s lost"
        parts.append(f"{move.saved_gpu_s:g} GPU-s saved{lost}")
    return "; ".join(parts)


def _ask_of(move: Move) -> Ask:
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


def _filesystem(folder: Path) -> str:
    """Which file system a folder is on: its device where it can be seen, else its path's top."""
    try:
        return f"device {folder.stat().st_dev}"
    except OSError:
        return "/".join(folder.parts[1:3])
