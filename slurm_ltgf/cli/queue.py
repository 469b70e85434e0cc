"""`ltgf queue`: pending jobs in LTGF order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf import __version__
from slurm_ltgf.cli import options, render
from slurm_ltgf.cli.app import App, now
from slurm_ltgf.cli.render import Column

if TYPE_CHECKING:
    from slurm_ltgf.service.present import View

COLUMNS = (
    Column("rank", "#", render.word),
    Column("job_id", "Job", render.word, numeric=False),
    Column("tenant", "Tenant", render.word, numeric=False),
    Column("user", "User", render.word, numeric=False),
    Column("partition", "Partition", render.word, numeric=False),
    Column("gpus", "GPUs", render.gpus),
    Column("tasks", "Tasks", render.word),
    Column("waited_s", "Waited", render.duration),
    Column("tag", "Tag", render.number(4)),
    Column("site_factor", "SiteFactor", render.word),
    Column("new_site_factor", "New", render.word),
    Column("turn_at", "Turn by", render.moment, numeric=False),
    Column("why", "Why", render.word, numeric=False),
)


@click.command("queue")
@click.option("-A", "--accounts", metavar="NAMES", help="Show only these tenants' jobs.")
@click.option("-u", "--user", metavar="NAMES", help="Show only these users' jobs.")
@click.option("-p", "--partition", metavar="NAMES", help="Show only jobs of these partitions.")
@options.output()
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Pending jobs in LTGF order: who goes next, by what tag, and why.

    "Turn by" is when enough GPUs are free for a job and all before it, if every running job uses
    its whole time limit.
    """
    app = App.of(ctx)
    seen = look(app)
    rows = [row for row in queue_rows(seen) if _wanted(row, given)]
    if given["json_"]:
        render.as_json(
            {
                "meta": {"version": __version__, "generated": seen.now, "cluster": app.cluster()},
                "jobs": rows,
                "held": [job.shown_id for job in seen.held],
                "warnings": list(seen.notes),
            }
        )
    elif given["parsable2"]:
        render.parsable(COLUMNS, rows, header=not given["noheader"])
    else:
        show(rows, seen)


def look(app: App) -> View:
    """The site now; the ledger is brought up to date where we may write it, else read as it is."""
    from slurm_ltgf.errors import LedgerError, SlurmUnavailable
    from slurm_ltgf.service.history import sync
    from slurm_ltgf.service.present import view

    edges = app.edges()
    queue = edges.queue()
    try:
        with app.ledger(readonly=False) as ledger:
            try:
                sync(edges, ledger, app.config, now=now(), queue=queue)
            except SlurmUnavailable as exc:
                render.note(f"note: history is as of the last sync: {exc}")
            return view(edges, ledger, app.config, queue=queue, now=now())
    except LedgerError:
        with app.ledger(readonly=True) as ledger:
            return view(edges, ledger, app.config, queue=queue, now=now())


def queue_rows(seen: View) -> list[dict[str, Any]]:
    """A row a pending record, in order."""
    new = {change.job_id: change.new for change in seen.plan.changes}
    return [
        {
            "rank": turn.rank + 1,
            "job_id": turn.job.shown_id,
            "tenant": turn.job.tenant,
            "user": turn.job.user,
            "partition": turn.job.partition,
            "gpus": turn.job.gpus,
            "tasks": turn.job.tasks,
            "waited_s": max(seen.now - turn.job.submit, 0),
            "tag": render.finite(turn.tag),
            "site_factor": turn.job.site_factor,
            "new_site_factor": new.get(turn.job.job_id, turn.job.site_factor),
            "turn_at": None if math.isinf(at) else int(at),
            "why": why(turn),
        }
        for turn, at in zip(seen.plan.turns, seen.plan.turn_at, strict=True)
    ]


def why(turn: Any) -> str:
    """What places a job, in a few words."""
    if not turn.job.demand:
        return f"cannot run yet: {turn.job.reason}"
    words = []
    if turn.below_floor:
        words.append("tenant below its floor")
    if turn.starving:
        words.append("waits long")
    if math.isinf(turn.tag):
        words.append("no share")
    if turn.charged_gpus:
        words.append(f"{turn.charged_gpus:.4g} GPUs of its tenant first")
    return "; ".join(words) or "lowest credit of its tenant"


def show(rows: list[dict[str, Any]], seen: View) -> None:
    """The table for people."""
    free = seen.capacity.gpus_free
    render.table(
        f"{len(rows)} pending, {len(seen.held)} held; {free} of "
        f"{seen.capacity.gpus_in_service} GPUs free",
        COLUMNS,
        rows,
    )
    for note in seen.notes:
        click.echo(f"note: {render.clean(note)}")


def _wanted(row: dict[str, Any], given: dict[str, Any]) -> bool:
    tenants = set((given["accounts"] or "").lower().split(",")) - {""}
    users = set((given["user"] or "").split(",")) - {""}
    partitions = set((given["partition"] or "").split(",")) - {""}
    return (
        (not tenants or row["tenant"] in tenants)
        and (not users or row["user"] in users)
        and (not partitions or bool(partitions & set(row["partition"].split(","))))
    )
