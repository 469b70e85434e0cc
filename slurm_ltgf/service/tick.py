"""One pass: sync, measure, order, write what changed.

What changed goes to slurmctld's plugin by the factor table where one is loaded, else by scontrol.

A pass is a function of (ledger, queue, tenants, capacity, now). It may be killed at any line and
run again: what it knows of Slurm it reads anew, and the ledger changes by whole transactions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_ltgf.core.factor import Change
from slurm_ltgf.core.model import UNKNOWN, Batch, Runs
from slurm_ltgf.errors import SlurmUnavailable
from slurm_ltgf.service.edges import Edges, Memory, Outage
from slurm_ltgf.service.factors import table_of
from slurm_ltgf.service.history import Synced, sync
from slurm_ltgf.service.present import View, has_run, last_written, run_of, view
from slurm_ltgf.slurm.control import Change as Write
from slurm_ltgf.slurm.control import ControlResult
from slurm_ltgf.slurm.queue import Queue
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.factor_table import FactorFile
from slurm_ltgf.store.files import FileError
from slurm_ltgf.store.ledger import AuditEntry, Ledger, StoreCounts

Way = Literal["table", "scontrol"]


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass did. deferred: writes beyond `queue.max_writes`, left for the next pass.

    by: "table" if slurmctld's plugin gives the jobs their SiteFactors, "scontrol" if we do.
    """

    view: View
    synced: Synced
    result: ControlResult
    deferred: int
    notes: tuple[str, ...] = ()
    by: Way = "scontrol"


def tick(
    edges: Edges,
    ledger: Ledger,
    config: Config,
    *,
    clock: Callable[[], float],
    dry_run: bool = False,
    memory: Memory | None = None,
    progress: Callable[[Batch], object] | None = None,
) -> Pass:
    """One pass: read the queue, sync, measure, order, write what changed.

    Slurm's database may be away: the pass then works with the ledger and the queue, says so in
    `synced.degraded`, and keeps what squeue tells of finished runs until sacct does. With a memory
    it asks a dead database less and less often.

    Raises:
        SlurmUnavailable: slurmctld does not answer.
        SlurmRefused: we may not write.
    """
    queue = edges.queue()
    now = int(clock())
    synced = _sync(edges, ledger, config, queue=queue, now=now, memory=memory, progress=progress)
    seen = view(edges, ledger, config, queue=queue, now=now, memory=memory)
    if dry_run:
        by: Way = "table" if _has_plugin(edges, clock()) else "scontrol"
        left = 0 if by == "table" else _deferred(seen, config)
        return Pass(seen, synced, ControlResult(), left, by=by)
    published, notes = _publish(edges, ledger, seen, config, clock=clock)
    if published is not None:
        return Pass(seen, synced, published, 0, by="table")
    todo = seen.plan.changes[: config.queue.max_writes]
    result = ControlResult()
    if todo:
        result = _write(edges, ledger, todo, queue=queue, reasons=_ranks(todo, seen), now=now)
    return Pass(seen, synced, result, _deferred(seen, config), notes)


def _deferred(seen: View, config: Config) -> int:
    return max(len(seen.plan.changes) - config.queue.max_writes, 0)


def _has_plugin(edges: Edges, now: float) -> bool:
    """Whether a slurmctld reads the site's table."""
    status = edges.table.status() if edges.table is not None else None
    return status is not None and status.is_alive(now)


def _ranks(changes: Sequence[Change], seen: View) -> list[str]:
    return [f"rank {change.rank + 1} of {len(seen.plan.turns)}" for change in changes]


def _publish(
    edges: Edges, ledger: Ledger, seen: View, config: Config, *, clock: Callable[[], float]
) -> tuple[ControlResult | None, tuple[str, ...]]:
    """Write the table, if the site has one; what the plugin is told anew, None: it is not there.

    A table that cannot be written is no reason to do nothing: scontrol is tried then.
    """
    if edges.table is None:
        return None, ()
    before = edges.table.labels()
    table = table_of(seen, config, generated_ns=int(clock() * 1e9))
    try:
        edges.table.write(table)
    except FileError as exc:
        return None, (f"{exc}; SiteFactors go by scontrol",)
    if not _has_plugin(edges, clock()):
        return None, ()
    told = [
        Change(turn.job.job_id, before.get(turn.job.job_id), new, turn.rank)
        for turn in seen.plan.turns
        if before.get(turn.job.job_id) != (new := table.labels[turn.job.job_id])
    ]
    _audit(ledger, told, reasons=_ranks(told, seen), now=seen.now)
    return ControlResult(written=tuple(change.job_id for change in told)), ()


def _sync(
    edges: Edges,
    ledger: Ledger,
    config: Config,
    *,
    queue: Queue,
    now: int,
    memory: Memory | None,
    progress: Callable[[Batch], object] | None,
) -> Synced:
    outage = memory.database if memory is not None else Outage()
    if now < outage.retry_at:
        counts = _keep_finished(edges, ledger, queue, now=now)
        return Synced(counts, now, now, degraded=outage.reason)
    try:
        done = sync(edges, ledger, config, now=now, queue=queue, memory=memory, progress=progress)
    except SlurmUnavailable as exc:
        wait_s = min(config.daemon.arrivals_s * 2**outage.attempts, config.daemon.retry_max_s)
        outage.attempts = min(outage.attempts + 1, 30)
        outage.retry_at, outage.reason = now + wait_s, str(exc)
        counts = _keep_finished(edges, ledger, queue, now=now)
        return Synced(counts, now, now, degraded=str(exc))
    outage.attempts, outage.retry_at, outage.reason = 0, 0, ""
    return done


def undo(edges: Edges, ledger: Ledger, *, now: int) -> ControlResult:
    """Take back every SiteFactor of ours: Slurm orders its jobs as without us.

    Also of jobs that were held or started since: they would bring it along when they wait again.
    The plugin's table goes first, or the plugin would give each job its label again.
    """
    if edges.table is not None:
        _withdraw(edges.table)
    queue = edges.queue()
    factors = edges.priorities().site
    known = {
        job.job_id: factors.get(job.job_id, last_written(ledger, job.job_id))
        for job in (*queue.pending, *queue.holding)
    }
    todo = [Change(job, factor, 0, rank=0) for job, factor in known.items() if factor]
    if not todo:
        return ControlResult()
    return _write(edges, ledger, todo, queue=queue, reasons=["undo"] * len(todo), now=now)


def _withdraw(table: FactorFile) -> None:
    """Remove the table, and wait until a plugin that is there has seen it."""
    table.remove()
    for _ in range(50):
        status = table.status()
        if status is None or not status.is_alive(time.time()) or status.state != "ok":
            return
        time.sleep(0.1)


def _write(
    edges: Edges,
    ledger: Ledger,
    todo: Sequence[Change],
    *,
    queue: Queue,
    reasons: Sequence[str],
    now: int,
) -> ControlResult:
    """Tell Slurm, and the audit log what Slurm took."""
    shown = {job.job_id: job.shown_id for job in queue.jobs}
    result = edges.write([Write(c.job_id, c.new, shown.get(c.job_id, "")) for c in todo])
    written = frozenset(result.written)
    kept = [pair for pair in zip(todo, reasons, strict=True) if pair[0].job_id in written]
    _audit(ledger, [change for change, _ in kept], reasons=[why for _, why in kept], now=now)
    return result


def _audit(ledger: Ledger, told: Sequence[Change], *, reasons: Sequence[str], now: int) -> None:
    entries = [
        AuditEntry(
            time=now,
            actor="ltgf tick",
            action="sitefactor",
            job_id=str(change.job_id),
            old=None if change.old is None else str(change.old),
            new=str(change.new),
            reason=reason,
        )
        for change, reason in zip(told, reasons, strict=True)
    ]
    ledger.audit(entries)


def _keep_finished(edges: Edges, ledger: Ledger, queue: Queue, *, now: int) -> StoreCounts:
    """Store what slurmctld still knows of finished runs, under the key that sacct will use."""
    known = {
        (run.job_id, run.start)
        for job in queue.finished
        for run in ledger.find(str(job.job_id), edges.cluster).rows()
        if run.end != UNKNOWN
    }
    runs = [
        run_of(job, edges.cluster)
        for job in queue.finished
        if has_run(job) and (job.job_id, job.start) not in known
    ]
    if not runs:
        return StoreCounts()
    return ledger.store([Batch(Runs.of(runs))], source=f"squeue {edges.cluster}", observed_at=now)
