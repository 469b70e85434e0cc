"""Moves of running jobs: ask them to save, then requeue or pause them. For the CLI and the daemon.

What to do is decided in `core.requeue`; here it is done: facts from Slurm, answers from the board,
the move's file before each act, the audit log after. What ends a move is done before it is written
down as ended, so that a kill in between leaves no job holding still.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_ltgf.checkpoint.board import BoardError
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.checkpoint.protocol import Action, Phase, withdrawn
from slurm_ltgf.core.ending import story, was_requeued
from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.core.move import Act, Goal, Gone, Group, Move, Said, Seen, State
from slurm_ltgf.core.requeue import advance, is_absent, refused
from slurm_ltgf.errors import LedgerError, LtgfError, SlurmRefused, SlurmUnavailable
from slurm_ltgf.service.move_begin import Beginnings
from slurm_ltgf.service.move_facts import MoveRefused, ask_of, audit_entry, is_paused
from slurm_ltgf.slurm.text import expand_hostlist
from slurm_ltgf.store.files import LockHeldError

#: The moves of a group have all begun after so long, or never will.
BEGIN_S = 30


@dataclass(slots=True)
class Moves(Beginnings):
    """All moves of a site."""

    def go_on(self, move: Move, *, now: int) -> Move:
        """Do the next act of a move, if one is due; the move as it is then.

        Raises:
            FileError: it cannot be written down; nothing was done.
            BoardError: the ask cannot be written.
            LockHeldError: somebody else is at it.
            SlurmUnavailable: Slurm does not answer; call again later.
        """
        with self.files.locked(move.job_id):
            known = self.files.read(move.job_id)
            if known is None or known.ask != move.ask:
                return replace(move, state=State.FAILED, why="over; the job has another move now")
            return known if known.state.is_end else self._go_on(known, now)

    def try_to_go_on(self, move: Move, *, now: int) -> tuple[Move, LtgfError | None]:
        """As `go_on`; what may pass (Slurm or the board is away) is returned, not raised."""
        try:
            return self.go_on(move, now=now), None
        except (SlurmUnavailable, BoardError, LockHeldError, LedgerError) as exc:
            return move, exc

    def go_on_all(self, *, now: int) -> list[tuple[Move, str]]:
        """Every move that is under way on the site's board; with what went wrong, "" for nothing.

        Moves by root in a job's own folder are for who began them: it may be on a file system that
        hangs.

        Those that make room for one job are requeued in one breath: what one gives free would be
        another's before the next is told.
        """
        done: dict[int, tuple[Move, str]] = {}
        todo = [move for move in self.under_way() if move.board == self.settings.records]
        while todo:
            before = todo.pop(0)
            try:
                after, problem = self.go_on(before, now=now), ""
            except LtgfError as exc:
                after, problem = before, str(exc)
            done[before.job_id] = after, problem
            if before.state is State.ASKED and after.state is State.REQUEUEING:
                waited = [one for one, _ in done.values() if one.state is State.ASKED]
                mates = [one for one in (*waited, *todo) if _are_one_group(one, after)]
                todo = mates + [one for one in todo if one not in mates]
        return list(done.values())

    def under_way(self) -> list[Move]:
        """Moves that are not at their end."""
        return [move for move in self.files.all() if not move.state.is_end]

    def resume(self, name: str, *, now: int) -> Move:
        """End a pause.

        Raises:
            MoveRefused: the job is not paused by us.
        """
        found = self.outlook(name, Goal.PAUSE)
        move = found.move
        if move is None or not is_paused(found):
            raise MoveRefused(f"job {name}: is not paused by ltgf")
        with self.files.locked(move.job_id):
            after = replace(move, state=State.SAVED, why="resumed", ended_at=now)
            self._withdraw(move, Action.RESUME, now)
            self.edges.log(audit_entry(move, after, now=now), after)
            self.files.write(after)
        return after

    def take_back(self, move: Move, *, now: int) -> Move:
        """Give a move up: the job goes on. One that came to its end meanwhile stays as it is."""
        with self.files.locked(move.job_id):
            known = self.files.read(move.job_id)
            if known is None or known.ask != move.ask or known.state.is_end:
                return known or move
            if known.state is State.REQUEUEING:
                return self._go_on(known, now)
            why = "taken back, the job runs on"
            after = replace(known, state=State.FAILED, why=why, ended_at=now)
            return self._finish(known, after, Act.TAKE_BACK, now)

    def _go_on(self, before: Move, now: int) -> Move:
        seen = self._seen(before)
        said = self._said(before) if before.state is not State.QUEUED else None
        after, act = advance(
            before, seen, said,
            now=now, may_ask=self._may_ask(before, now), group=self._group(before, now),
            gone=self._gone(before) if seen is None and is_absent(before, now) else None,
        )  # fmt: skip
        if after.state.is_end:
            return self._finish(before, after, act, now)
        if after != before:
            self.files.write(after)
        if act is Act.ASK:
            self._ask(after)
        if after.state is not before.state:
            self.edges.log(audit_entry(before, after, now=now), after)
        return self._requeue(after, now) if act is Act.REQUEUE else after

    def _finish(self, before: Move, after: Move, act: Act, now: int) -> Move:
        """Do the last act, log it, and then write down that the move has ended."""
        try:
            if act is Act.TAKE_BACK:
                self._withdraw(after, Action.GO_ON, now)
            elif act is Act.CLEAR:
                with self.boards.open(Path(after.board), after.uid) as board:
                    board.clear(after.job_id)
        except BoardError:
            if now <= after.hold_until:
                raise  # later the job goes on by itself
        after = self.send(after)
        self.edges.log(audit_entry(before, after, now=now), after)
        self.files.write(after)
        return after

    def _ask(self, move: Move) -> None:
        with self.boards.open(Path(move.board), move.uid) as board:
            if board.asked(move.job_id) != ask_of(move):
                board.ask(ask_of(move))

    def _withdraw(self, move: Move, action: Action, now: int) -> None:
        with self.boards.open(Path(move.board), move.uid) as board:
            board.ask(withdrawn(ask_of(move), action, now))

    def _requeue(self, move: Move, now: int) -> Move:
        """Only the run that saved: its restart count is looked at once more, right before."""
        if not _can_requeue(self._seen(move), move):
            return move
        try:
            self.edges.requeue(move.requeue_id)
        except SlurmRefused as exc:
            if _can_requeue(self._seen(move), move):
                after, act = refused(move, str(exc), now)
                return self._finish(move, after, act, now)
        return move

    # --- looking ----------------------------------------------------------------------------------

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

    def _gone(self, move: Move) -> Gone:
        try:
            runs = self.edges.endings(move.requeue_id)
        except SlurmRefused:
            return Gone()
        return Gone(story(runs), was_requeued(runs, move.started))

    def _said(self, move: Move) -> Said | None:
        """What the job answered to this ask, believed if it can be."""
        try:
            with self.boards.open(Path(move.board), move.uid) as board:
                answer = board.answer(move.job_id, move.uid)
                record = board.record(move.job_id, move.uid)
        except (BoardError, ProtocolError):
            return None
        if answer is None or answer.ask != move.ask or answer.restart != move.restart:
            return None
        is_news = answer.phase is Phase.SAVED and answer.name != move.checkpoint
        if is_news and record and self.boards.lacks(record, answer.name):
            why = f"it saved {answer.name}, which is not seen in {record.dir} yet"
            return Said(Phase.WORKING.value, why=why)
        phase = "" if answer.phase is Phase.READY else answer.phase.value
        return Said(phase, answer.step, answer.name, answer.time, answer.why)

    def _group(self, move: Move, now: int) -> Group:
        """The moves that began with this one to make room for the same job.

        One that has not begun soon never will: it was refused, or its asker was killed.
        """
        if move.to_job is None:
            return Group.READY
        others = [
            one
            for one in self.files.all()
            if _are_one_group(one, move) and one.job_id != move.job_id
        ]
        if any(one.state is State.FAILED for one in others):
            return Group.FAILED
        if len(others) + 1 < move.together:
            return Group.WAITS if now - move.began <= BEGIN_S else Group.FAILED
        asked = [one for one in others if one.state in (State.QUEUED, State.ASKED)]
        return Group.WAITS if any(one.saved_at is None for one in asked) else Group.READY

    def _may_ask(self, move: Move, now: int) -> bool:
        """Whether there is room for one more checkpoint on its nodes and its file system."""
        if move.state is not State.QUEUED:
            return True
        others = [one for one in self.files.all() if one.job_id != move.job_id]
        saving = [one for one in others if one.state is State.ASKED and one.saved_at is None]
        on_node = Counter(node for one in saving for node in expand_hostlist(one.nodes))
        if any(on_node[node] >= self.settings.per_node for node in expand_hostlist(move.nodes)):
            return False
        there = [one for one in others if one.filesystem == move.filesystem]
        if sum(one in saving for one in there) >= self.settings.per_filesystem:
            return False
        last = max((one.asked_at for one in there), default=0)
        return now - last >= self.settings.stagger_s


def _are_one_group(one: Move, other: Move) -> bool:
    return one.to_job is not None and (one.to_job, one.began) == (other.to_job, other.began)


def _can_requeue(seen: Seen | None, move: Move) -> bool:
    return seen is not None and seen.restart == move.restart and seen.state == "RUNNING"
