"""`ltgf tick`: one pass."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import render
from slurm_ltgf.cli.app import App
from slurm_ltgf.cli.queue import queue_rows
from slurm_ltgf.cli.render import Column

if TYPE_CHECKING:
    from slurm_ltgf.service.tick import Pass

BEFORE_AFTER = (
    Column("after", "After", render.word),
    Column("before", "Before", render.word),
    Column("job_id", "Job", render.word, numeric=False),
    Column("tenant", "Tenant", render.word, numeric=False),
    Column("user", "User", render.word, numeric=False),
    Column("gpus", "GPUs", render.gpus),
    Column("tasks", "Tasks", render.word),
    Column("tag", "Tag", render.number(4)),
    Column("site_factor", "SiteFactor", render.word),
    Column("new_site_factor", "New", render.word),
    Column("why", "Why", render.word, numeric=False),
)


@click.command("tick")
@click.option("--dry-run", is_flag=True, help="Write nothing to Slurm; show the queue instead.")
@click.option("--undo", is_flag=True, help="Set every job's SiteFactor to 0, and end.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, /, *, dry_run: bool, undo: bool, json_: bool) -> None:
    """One pass: sync history, order the queue, write the SiteFactors that changed.

    With --dry-run nothing is written to Slurm: the queue is shown as Slurm has it and as it would
    be. --undo leaves the queue to Slurm's own order again, of running jobs too, should they be
    requeued; stop the daemon first.
    """
    from slurm_ltgf.errors import UsageError
    from slurm_ltgf.service.tick import tick

    app = App.of(ctx)
    if undo and dry_run:
        raise UsageError("--undo writes and --dry-run does not: say one of them")
    if undo:
        _undo(app, json_=json_)
        return
    edges = app.edges()
    began = time.monotonic()
    with app.ledger(readonly=False) as ledger:
        if dry_run:
            done = tick(edges, ledger, app.config, clock=time.time, dry_run=True)
        else:
            with app.writer_lock():
                done = tick(edges, ledger, app.config, clock=time.time)
    took_s = time.monotonic() - began
    rows = before_after(done)
    if json_:
        render.as_json({**summary(done, took_s), "dry_run": dry_run, "jobs": rows})
        return
    if dry_run:
        render.table(
            "The queue as this pass would have it; nothing was written", BEFORE_AFTER, rows
        )
    click.echo(line(done, took_s))
    for text in _remarks(done):
        click.echo(f"note: {render.clean(text)}")


def _remarks(done: Pass) -> list[str]:
    degraded = done.synced.degraded
    return [
        *([f"history is as of the last sync: {degraded}"] if degraded else []),
        *done.view.notes,
        *done.notes,
        *[f"job {refusal.job_id}: {refusal.reason}" for refusal in done.result.refused],
    ]


def _undo(app: App, *, json_: bool) -> None:
    from slurm_ltgf.service.tick import undo

    with app.ledger(readonly=False) as ledger, app.writer_lock():
        result = undo(app.edges(), ledger, now=int(time.time()))
    if json_:
        render.as_json({"written": len(result.written), "vanished": len(result.vanished)})
        return
    click.echo(f"SiteFactor is 0 again for {len(result.written)} jobs")


def before_after(done: Pass) -> list[dict[str, Any]]:
    """Rows of the queue in its new order, each with its place by Slurm's priority now."""
    turns = done.view.plan.turns
    now = sorted(turns, key=lambda turn: (-turn.job.priority, turn.job.submit, turn.job.job_id))
    place = {turn.job.job_id: i + 1 for i, turn in enumerate(now)}
    return [
        {"after": row["rank"], "before": place[turn.job.job_id], **row}
        for row, turn in zip(queue_rows(done.view), turns, strict=True)
    ]


def summary(done: Pass, took_s: float) -> dict[str, Any]:
    """A pass in numbers."""
    seen = done.view
    fairness = seen.measurement.fairness
    synced = done.synced
    return {
        "tenants": len(fairness.tenants),
        "running": len(seen.holds),
        "pending": len(seen.plan.turns),
        "held": len(seen.held),
        "new_runs": synced.counts.new + synced.counts.changed,
        "changes": len(seen.plan.changes),
        "written": len(done.result.written),
        "vanished": len(done.result.vanished),
        "refused": len(done.result.refused),
        "deferred": done.deferred,
        "jain": fairness.jain,
        "min_rho": fairness.min_rho,
        "degraded": synced.degraded or None,
        "by": done.by,
        "took_s": round(took_s, 3),
    }


def line(done: Pass, took_s: float) -> str:
    """A pass in one log line."""
    values = summary(done, took_s)
    degraded = values.pop("degraded")
    shown = " ".join(f"{key}={_short(value)}" for key, value in values.items())
    return shown + (" degraded=slurmdbd" if degraded else "")


def _short(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
