"""What users say of their jobs' runs, weighed against sacct's records and written down.

`checkpoint.claims` has the files, `core.claim` what is believed. A claim is taken away once it is
written down, or once Slurm's records have not borne it out for an hour.
"""

from __future__ import annotations

import pwd
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from slurm_ltgf.checkpoint.claims import Claim, Claims, What
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.core.claim import Run, Weighed, weigh
from slurm_ltgf.core.ending import Ending
from slurm_ltgf.core.gpus import Pricing, gpus
from slurm_ltgf.core.model import Run as Record
from slurm_ltgf.core.tally import of_requeue
from slurm_ltgf.store.files import FileError
from slurm_ltgf.store.ledger import Ledger
from slurm_ltgf.store.ledger_records import AuditEntry

#: So many of one user are looked at in a pass, and of all users.
OF_ONE, AT_ONCE = 50, 500
#: Slurm's records may come so late.
PATIENCE_S = 3600
#: What no record of Slurm's bears out is written down once in so long, a job.
APART_S = 60
#: How a user's own move may end.
_STATES = frozenset({"requeued", "saved", "failed", "paused"})


@dataclass(slots=True)
class Intake:
    """Takes in what users say.

    keeps_by_default: the site counts the work of requeued runs as kept where nothing is known: then
    nobody's word can make his job look better served.
    """

    claims: Claims
    ledger: Ledger
    cluster: str
    pricing: Pricing
    keeps_by_default: bool = False
    _uids: dict[str, int | None] = field(default_factory=dict)

    def make(self) -> None:
        """Make the folder, so that users leave their claims.

        Raises:
            ProtocolError: somebody else has taken its name.
            FileError: it cannot be made.
        """
        try:
            self.claims.make()
        except OSError as exc:
            raise FileError(f"{self.claims.folder}: cannot be made: {exc.strerror}") from exc

    def take_in(self, *, now: int) -> list[str]:
        """Take in what lies there; lines for the log.

        Raises:
            FileError: the folder cannot be read.
            LedgerError: it cannot be written down; it lies there still.
        """
        self._uids.clear()
        lines: list[str] = []
        for name, uid, claim in self._read():
            runs = self._runs(claim.job_id, uid)
            found = _weighed(claim, runs)
            is_possible = max(claim.time, claim.saved_at or 0) <= now + APART_S
            if found is not None and is_possible:
                lines += self._write_down(claim, found, runs, now)
            elif is_possible and now - claim.time < PATIENCE_S:
                continue
            self.claims.remove(name)
        return lines

    def _read(self) -> list[tuple[str, int, Claim]]:
        """Claims in the order in which they were made; what is none is removed."""
        of: dict[str, list[str]] = {}
        try:
            for name in self.claims.names():
                of.setdefault(name.split(".")[1], []).append(name)
        except OSError as exc:
            raise FileError(f"{self.claims.folder}: cannot be read: {exc.strerror}") from exc
        names = (name for uid in sorted(of) for name in sorted(of[uid])[:OF_ONE])
        found = []
        for name in islice(names, AT_ONCE):
            try:
                found.append((name, *self.claims.read(name)))
            except (ProtocolError, OSError):
                self.claims.remove(name)
        return sorted(found, key=lambda one: (one[2].time, one[0]))

    def _runs(self, job_id: int, uid: int) -> list[Run]:
        """All runs of a job of this user, as recorded."""
        found = self.ledger.find(str(job_id), self.cluster).rows()
        return [
            _run_of(row, self.pricing)
            for row in found
            if row.job_id == job_id and row.start >= 0 and self._uid_of(row.user) == uid
        ]

    def _uid_of(self, user: str) -> int | None:
        if user not in self._uids:
            try:
                self._uids[user] = pwd.getpwnam(user).pw_uid
            except KeyError:
                self._uids[user] = None
        return self._uids[user]

    # --- what is written down ---------------------------------------------------------------------

    def _write_down(
        self, claim: Claim, found: Weighed, runs: Sequence[Run], now: int
    ) -> Iterator[str]:
        if claim.what in (What.CONTINUED, What.STOPPED):
            yield from self._run(claim, found)
        else:
            later = (run.start for run in runs if run.start > found.run.start)
            self._move(claim, found, until=min(later, default=now + 1))

    def _run(self, claim: Claim, found: Weighed) -> Iterator[str]:
        """A run that saved before it ended, whoever ended it; told once."""
        run, state = found.run, found.run.ending.state
        log = self.ledger.audit_last(50, job_id=str(run.job_id), action="run", since=run.end)
        is_told = any(entry.time == run.end for entry in log) or self._kept(run) is not None
        is_unfinished = claim.what is What.STOPPED and state != "CANCELLED"
        if is_told or not (run.was_requeued or is_unfinished):
            return
        why = "saved" if claim.step is None else f"saved at step {claim.step}"
        if run.was_requeued:
            why += " before it ended"
        else:
            why += (
                f" for Slurm's signal and ended unfinished: Slurm calls it {state.lower()} and does"
                " not start it again"
            )
            yield f"job {run.shown_id}: {why}; `scontrol requeue {run.shown_id}` does"
        self._put(run.end, f"job of {run.user}", "run", state.lower(), [why], found)

    def _move(self, claim: Claim, found: Weighed, *, until: int) -> None:
        """A move that the user made himself. until: when the next run began, if it has."""
        run, action, is_requeue = found.run, claim.what.value, claim.state == "requeued"
        if is_requeue and (claim.what is not What.REQUEUE or not run.was_requeued):
            return
        since = run.start if is_requeue else until - 1 - APART_S
        log = self.ledger.audit_last(1000, job_id=str(run.job_id), action=action, since=since)
        if is_requeue:  # once a run, whoever tells it
            log = [entry for entry in log if entry.new == "requeued" and entry.time < until]
        if log:
            return
        state = claim.state if claim.state in _STATES else "failed"
        words = [claim.why, f"for: {claim.reason}" if claim.reason else ""]
        time = run.end if is_requeue else until - 1
        self._put(time, f"ltgf {action} by {run.user}", action, state, words, found)
        if is_requeue:
            result = "unsaved" if found.saved_at is None else "saved"
            amounts = of_requeue(result, found.saved_gpu_s, found.lost_gpu_s)
            event = f"requeue {run.job_id} {run.ending.start}"
            self.ledger.count(self.cluster, event, amounts, time=time)

    def _put(
        self, time: int, actor: str, action: str, new: str, words: list[str], found: Weighed
    ) -> None:
        run = found.run
        if found.saved_at is not None and run.was_requeued and not self.keeps_by_default:
            kept_until = max(found.saved_at, self._kept(run) or 0)
            self.ledger.keep(self.cluster, run.job_id, run.start, until=kept_until)
        reason = "; ".join(filter(None, [*words, _sums(found)]))
        self.ledger.audit([AuditEntry(time, actor, action, str(run.job_id), None, new, reason)])

    def _kept(self, run: Run) -> int | None:
        """Until when the run's work is known to be kept."""
        return self.ledger.kept(self.cluster, run.start).get((run.job_id, run.start))


def _weighed(claim: Claim, runs: Sequence[Run]) -> Weighed | None:
    ends_run = claim.what in (What.CONTINUED, What.STOPPED) or claim.state == "requeued"
    return weigh(runs, time=claim.time, saved_at=claim.saved_at, ends_run=ends_run)


def _run_of(row: Record, pricing: Pricing) -> Run:
    worth = gpus(row.gres, pricing)
    return Run(
        Ending(row.submit, row.start, row.end, row.state, row.limit_s),
        None if worth.unpriced else float(worth.weighted),
        job_id=row.job_id,
        shown_id=row.shown_id,
        user=row.user,
    )


def _sums(found: Weighed) -> str:
    """As the log tells them of the site's own moves, but as the user's word."""
    if found.saved_gpu_s is None:
        return ""
    lost = "" if found.lost_gpu_s is None else f", {found.lost_gpu_s:g} GPU-s lost"
    return f"{found.saved_gpu_s:g} GPU-s saved{lost}, as its user says"
