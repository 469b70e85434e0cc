"""`ltgf frag --apply`: the moves of the plan, until they have ended and who waited has started."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import frag, frag_show, render
from slurm_ltgf.cli.app import App
from slurm_ltgf.cli.moves import PATIENCE, POLL_S, interrupts, sentence
from slurm_ltgf.cli.render import Column

if TYPE_CHECKING:
    from slurm_ltgf.core.movable import Movable
    from slurm_ltgf.core.move import Move
    from slurm_ltgf.service.defrag import DefragView, Steering
    from slurm_ltgf.service.fragmentation import Site
    from slurm_ltgf.service.moves import Moves
    from slurm_ltgf.store.ledger import Ledger

DONE = (
    Column("job_id", "Job", render.word, numeric=False),
    Column("from", "From", render.word, numeric=False),
    Column("result", "Result", render.word, numeric=False),
    Column("why", "What happened", render.word, numeric=False),
)
STARTED = (
    Column("job_id", "Job", render.word, numeric=False),
    Column("gpus", "GPUs", render.gpus),
    Column("started", "Started", render.word, numeric=False),
    Column("nodes", "Room was made on", render.word, numeric=False),
)


def apply(app: App, site: Site, *, json_: bool) -> None:
    """Make the moves that the plan has now, wait, and say what came of them.

    Raises:
        MoveFailed: a job was not moved, or one for which others made room has not started.
        LockHeldError: another --apply is at it.
    """
    from slurm_ltgf.cli.move_site import moves_of
    from slurm_ltgf.service.defrag import Steering
    from slurm_ltgf.slurm import bindings
    from slurm_ltgf.store.files import lock

    with lock(Path(f"{app.ledger_path}.frag.lock")), app.ledger(readonly=False) as ledger:
        seen = frag.plan(app, site, ledger)
        run = _Run(seen, moves_of(app), Steering(bindings.exclude, ledger), app.verbose)
        run.set_back()
        run.take_up()
        if seen.ways and not seen.stopped:
            run.begin(ledger)
        run.to_the_end(app.config.defrag.start_within_s)
    _report(app, run, json_=json_)


def _report(app: App, run: _Run, *, json_: bool) -> None:
    from slurm_ltgf.service.move_facts import MoveFailed

    if json_:
        answer = frag.as_json(app, list(run.seen.pools), run.seen)
        render.as_json(answer | {"applied": {"moves": run.moved, "starts": run.starts}})
    else:
        frag_show.plan(run.seen)
        if run.moved:
            render.table("Moved", DONE, run.moved)
            render.table("For", STARTED, [r | {"started": _word(r)} for r in run.starts])
    lost = [row["job_id"] for row in run.moved if row["result"] != "requeued"]
    late = [row["job_id"] for row in run.starts if not row["started"]]
    if lost:
        raise MoveFailed(f"not moved, they run on: jobs {', '.join(lost)}")
    if late:
        raise MoveFailed(f"room was made, but not started yet: jobs {', '.join(late)}")


def _word(row: Mapping[str, Any]) -> str:
    return "yes" if row["started"] else "not yet"


@dataclass
class _Run:
    """One --apply. moved, starts: what came of it, as rows."""

    seen: DefragView
    moves: Moves
    steering: Steering
    verbose: bool = False
    moved: list[dict[str, Any]] = field(default_factory=list)
    starts: list[dict[str, Any]] = field(default_factory=list)
    _ended: set[int] = field(default_factory=set)
    _said: dict[int, str] = field(default_factory=dict)
    _begun: frozenset[int] = frozenset()
    _failures: int = 0

    @property
    def _moves(self) -> dict[int, tuple[Movable, str]]:
        """Job that the plan moves -> its record, and where it has room."""
        return {
            job.job_id: (job, to)
            for start in self.seen.ways
            for job, to in zip(start.way.leaving, start.way.to, strict=True)
        }

    def set_back(self) -> None:
        """What an earlier --apply excluded and could not set back."""
        from slurm_ltgf.slurm import bindings, queue
        from slurm_ltgf.slurm.requeue import requeue_id

        bound = bindings.bindings()
        waiting = {
            job.job_id: (requeue_id(job), bound[job.job_id].excludes)
            for job in queue.snapshot().pending
            if job.job_id in bound and bound[job.job_id].excludes
        }
        self.steering.set_back(waiting, now=int(time.time()))

    def take_up(self) -> None:
        """Go on with what an --apply began that was killed."""
        from slurm_ltgf.service.defrag import ACTOR

        ours = [move.job_id for move in self.moves.under_way() if move.by == ACTOR]
        self._begun = frozenset(ours)

    def begin(self, ledger: Ledger) -> None:
        """Ask those that are to move."""
        from slurm_ltgf.service.defrag import begin

        by_name = {frag_show.name(self.seen, i): job for i, (job, _) in self._moves.items()}
        begun = begin(self.seen, self.moves, ledger, now=int(time.time()))
        refused = {by_name[name].job_id: why for name, why in begun if why}
        for job_id, why in refused.items():
            self._row(job_id, self._moves[job_id][0].node, "refused", why)
        for start in self.seen.ways:
            together = {job.job_id for job in start.way.leaving}
            if not together & set(refused):
                self._begun |= together

    def to_the_end(self, start_within_s: int) -> None:
        """Go on until all moves have ended, and who waited has started or is late.

        Raises:
            MoveFailed: Slurm, or the records folder, has not answered for long.
        """
        if not self._begun:
            return
        with interrupts() as interrupted:
            while self._go_on(interrupted):
                time.sleep(POLL_S)
            self._wait_for_starts(start_within_s, interrupted)
        self.set_back()

    def _go_on(self, interrupted: Callable[[], bool]) -> bool:
        """The next act of each move; whether one is left."""
        from slurm_ltgf.service.move_facts import MoveFailed

        now = int(time.time())
        problems = [said for _, said in self.moves.go_on_all(now=now) if said]
        self._failures = self._failures + 1 if problems else 0
        if self._failures > PATIENCE:
            raise MoveFailed(f"{problems[0]}; call again to go on")
        for job_id in sorted(self._begun - self._ended):
            move = self.moves.files.read(job_id)
            if move is None:  # somebody removed its file: nothing is known of it any more
                self._ended.add(job_id)
                continue
            if interrupted() and not move.state.is_end:
                move = self.moves.take_back(move, now=now)
            self._tell(move)
            if move.state.is_end:
                self._end(move, now)
        return self._ended < self._begun

    def _end(self, move: Move, now: int) -> None:
        """A move came to its end: keep the job away from the nodes that were made free."""
        from slurm_ltgf.core.move import State
        from slurm_ltgf.slurm import bindings

        self._ended.add(move.job_id)
        if move.state is not State.REQUEUED:
            self._row(move.job_id, move.nodes, "failed", sentence(move))
            return
        nodes = {node for start in self.seen.ways for node in start.way.nodes} | {move.nodes}
        nodes -= {to for job, to in self._moves.values() if job.job_id == move.job_id}
        own = bindings.bindings().get(move.job_id, bindings.Binding()).excludes
        against = self.steering.keep_off(move, sorted(nodes), own, now=now)
        note = f"; not kept off {' '.join(sorted(nodes))}: {against}" if against else ""
        self._row(move.job_id, move.nodes, "requeued", sentence(move) + note)

    def _wait_for_starts(self, within_s: int, interrupted: Callable[[], bool]) -> None:
        from slurm_ltgf.core.move import State
        from slurm_ltgf.service.defrag import has_started
        from slurm_ltgf.slurm import queue

        ends = {job_id: self.moves.files.read(job_id) for job_id in self._begun}
        gone = {j for j, move in ends.items() if move and move.state is State.REQUEUED}
        waits = [s for s in self.seen.ways if {j.job_id for j in s.way.leaving} <= gone]
        until, started = time.monotonic() + within_s, set[int]()
        while waits and len(started) < len(waits) and time.monotonic() < until:
            now = queue.snapshot()
            started |= {i for i, one in enumerate(waits) if has_started(one, self.seen, now)}
            if interrupted():
                break
            time.sleep(POLL_S)
        self.starts = [
            {
                "job_id": frag_show.name(self.seen, one.job.job_id),
                "gpus": one.job.gpus,
                "started": i in started,
                "nodes": " ".join(one.way.nodes),
            }
            for i, one in enumerate(waits)
        ]

    def _row(self, job_id: int, node: str, result: str, why: str) -> None:
        name = frag_show.name(self.seen, job_id)
        self.moved.append({"job_id": name, "from": node, "result": result, "why": why})

    def _tell(self, move: Move) -> None:
        """On a terminal every change is a line."""
        if sys.stderr.isatty() and self._said.get(move.job_id) != move.why:
            said = f"  {time.strftime('%H:%M:%S')} job {move.requeue_id}: {move.why}"
            click.echo(render.clean(said), err=True)
        self._said[move.job_id] = move.why
