"""`ltgf daemon`: a pass every few seconds, for ever."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_ltgf.cli.app import App
from slurm_ltgf.cli.daemon_facts import Facts
from slurm_ltgf.cli.tick import line
from slurm_ltgf.errors import LtgfError, SlurmUnavailable

if TYPE_CHECKING:
    from slurm_ltgf.daemon import Notifier
    from slurm_ltgf.service.claims import Intake
    from slurm_ltgf.service.leases import LeaseView
    from slurm_ltgf.service.moves import Moves
    from slurm_ltgf.service.present import View
    from slurm_ltgf.store.ledger import Ledger

log = logging.getLogger("ltgf")


@click.command("daemon")
@click.option("--passes", type=int, hidden=True, help="End after so many passes.")
@click.pass_context
def command(ctx: click.Context, /, *, passes: int | None) -> None:
    """A pass every few seconds, for ever: run it under systemd as SlurmUser.

    Newcomers are looked for every `daemon.arrivals` and hasten the next pass. It waits out an
    outage of slurmctld or slurmdbd, says so once, and catches up. SIGTERM ends it after the pass
    under way. One daemon at a time: the lock lies beside the ledger.
    """
    from slurm_ltgf.cli.exporter import in_daemon
    from slurm_ltgf.daemon import Notifier, Rhythm, Stop, serve
    from slurm_ltgf.slurm.queue import Arrivals, arrivals

    app = App.of(ctx)
    log_to_stderr(app.verbose)
    settings = app.config.daemon
    stop = Stop().listen()
    notifier = Notifier(os.environ)
    site = _Site(app, stop, passes, notifier)
    last: list[Arrivals] = []

    def has_newcomers() -> bool:
        site.leases.go_on()
        seen = arrivals()
        newer = not last or seen.is_newer_than(last[0])
        last[:] = [seen]
        return newer

    app.ledger_path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    with app.writer_lock(), in_daemon(app, lambda: site.cluster):
        serve(
            site.one_pass,
            has_newcomers,
            rhythm=Rhythm(settings.interval_s, settings.arrivals_s, settings.retry_max_s),
            stop=stop,
            clock=time.monotonic,
            notifier=notifier,
        )


class Leases:
    """What the daemon does about leases: looks after each pass, goes on with moves in between."""

    def __init__(self, app: App, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger
        self._moves: Moves | None = None
        self._said: dict[str, str] = {}
        self.judged: LeaseView | None = None

    @property
    def moves_under_way(self) -> int | None:
        """How many moves are under way; None: not known."""
        return None if self._moves is None else len(self._moves.under_way())

    @property
    def mode(self) -> str:
        """lease.mode."""
        return self._app.config.lease.mode

    def look(self, seen: View) -> None:
        """Judge all leases; with mode "on" begin the moves of those that yield.

        Where no job could be asked to save there is nothing to advise, and nothing to say.
        """
        self.judged = None
        can_ask = bool(self._app.config.checkpoint.records)
        if self.mode == "off" or (self.mode == "advise" and not can_ask):
            return
        try:
            self._look(seen)
            self._say("leases", "")
        except SlurmUnavailable:
            raise
        except LtgfError as exc:  # the order of the queue does not depend on leases
            self._say("leases", f"leases: {exc}")
        self.go_on()

    def _look(self, seen: View) -> None:
        from slurm_ltgf.cli.lease import lease_edges
        from slurm_ltgf.cli.move_site import moves_of
        from slurm_ltgf.service.lease_begin import begin
        from slurm_ltgf.service.leases import judge

        if self._moves is None:
            self._moves = moves_of(self._app)
        judged = judge(seen, self._app.config, self._ledger, self._moves, lease_edges())
        self.judged = judged
        self._tell(judged)
        if self.mode == "on" and not judged.stopped:
            begun = begin(judged, self._moves, self._ledger, now=seen.now)
            self._say_each(
                "begin", {job: f"lease of job {job}: {why}" for job, why in begun if why}
            )

    def go_on(self) -> None:
        """The next act of each move that is under way."""
        if self._moves is None or self.mode != "on":
            return
        try:
            done = self._moves.go_on_all(now=int(time.time()))
        except LtgfError as exc:
            self._say("moves", f"moves: {exc}")
            return
        self._say("moves", "")
        self._say_each(
            "move",
            {
                move.requeue_id: problem or f"job {move.requeue_id}: {move.why}"
                for move, problem in done
            },
        )

    def _tell(self, judged: LeaseView) -> None:
        """Each change of a verdict once."""
        from slurm_ltgf.core.lease import Action

        self._say("stopped", judged.stopped, same=re.sub(r"\d+ s\b", "", judged.stopped))
        self._say("notes", "; ".join(judged.notes))
        verb = "yields" if self.mode == "on" else "would yield"
        said = {}
        for row in judged.rows:
            if row.verdict is not None and row.verdict.action is Action.YIELD:
                who = f"lease of job {row.name} ({row.tenant})"
                said[row.name] = f"{who} {verb}: {row.verdict.reason}"
        self._say_each("lease", said)

    def _say_each(self, kind: str, lines: Mapping[str, str]) -> None:
        """Lines by job, each change once; what is not said any more is news when it comes back."""
        told = {f"{kind} {job}": line for job, line in lines.items()}
        for key in [key for key in self._said if key.startswith(f"{kind} ") and key not in told]:
            del self._said[key]
        for key, said in told.items():
            self._say(key, said)

    def _say(self, key: str, line: str, *, same: str = "") -> None:
        """Log a line unless it was the last of its key; same: what it is compared by."""
        if line and self._said.get(key) != (same or line):
            log.info("%s", line)
        self._said[key] = same or line


class Claims:
    """What the daemon does about what users say of their jobs' runs: see `service.claims`."""

    def __init__(self, app: App, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger
        self._intake: Intake | None = None
        self._problem = ""

    def take_in(self) -> None:
        """Write down what holds of them; the order of the queue does not depend on it."""
        if not self._app.config.checkpoint.records:
            return
        try:
            self._intake = self._intake or self._made()
            for line in self._intake.take_in(now=int(time.time())):
                log.warning("%s", line)
            self._problem = ""
        except LtgfError as exc:
            if str(exc) != self._problem:
                log.warning("claims: %s", exc)
            self._problem = str(exc)

    def _made(self) -> Intake:
        from slurm_ltgf.checkpoint import claims
        from slurm_ltgf.service.claims import Intake
        from slurm_ltgf.service.terms import pricing_of
        from slurm_ltgf.slurm import nodes

        config = self._app.config
        intake = Intake(
            claims.Claims(Path(config.checkpoint.records)),
            self._ledger,
            self._app.cluster(),
            pricing_of(config, shards_per_gpu=nodes.capacity(()).per_gpu("shard")),
            keeps_by_default=config.fairness.requeued_work == "kept",
        )
        intake.make()
        return intake


class _Site:
    """What the daemon keeps between passes: the open ledger, the edges, and spare answers."""

    def __init__(
        self, app: App, stop: threading.Event, passes: int | None, notifier: Notifier
    ) -> None:
        from slurm_ltgf.service.edges import Memory

        self._app = app
        self._stop = stop
        self._left = passes
        self._memory = Memory()
        self._ledger = app.ledger(readonly=False)
        self._pruned_at = 0.0
        self._notifier = notifier
        self._degraded = False
        self.cluster: str | None = None
        self.leases = Leases(app, self._ledger)
        self._claims = Claims(app, self._ledger)
        self._facts = Facts(app, self._ledger)

    def one_pass(self) -> str:
        """Do a pass; the log line."""
        from slurm_ltgf.service.tick import tick

        began = time.monotonic()
        edges = self._app.edges()
        self.cluster = edges.cluster
        done = tick(
            edges,
            self._ledger,
            self._app.config,
            clock=time.time,
            memory=self._memory,
            progress=lambda _: self._notifier.say("WATCHDOG=1"),
        )
        self._tell_database(done.synced.degraded)
        self._claims.take_in()
        self.leases.look(done.view)
        took_s = time.monotonic() - began
        self._facts.leave(done, took_s, self.leases.judged, self.leases.moves_under_way)
        self._prune()
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._stop.set()
        return line(done, time.monotonic() - began)

    def _tell_database(self, reason: str) -> None:
        """Say once that slurmdbd is away, and once that it is back."""
        if bool(reason) != self._degraded:
            if reason:
                log.warning("%s; going on with the ledger and the queue until it answers", reason)
            else:
                log.warning("slurmdbd answers again")
        self._degraded = bool(reason)

    def _prune(self) -> None:
        """Once a day: drop what is too old of the audit log."""
        now = time.time()
        if now - self._pruned_at > 86400:
            before = int(now) - self._app.config.daemon.audit_days * 86400
            self._ledger.audit_prune(before)
            self._ledger.forget_counted(before)
            self._pruned_at = now


def log_to_stderr(verbose: bool) -> None:
    """Lines for the journal: its own priorities there, plain text elsewhere."""
    journal = "JOURNAL_STREAM" in os.environ
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Journal() if journal else logging.Formatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


class _Journal(logging.Formatter):
    """sd-daemon(3) priorities before each line; a newline in foreign text starts no new one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line as journald reads it."""
        level = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4}.get(record.levelno, 3)
        return f"<{level}>" + super().format(record).replace("\n", "\\n")
