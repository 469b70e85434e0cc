"""`ltgf lease`: running leases, who would yield to whom, and why."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import options, render
from slurm_ltgf.cli.app import App
from slurm_ltgf.cli.render import Column

if TYPE_CHECKING:
    from slurm_ltgf.service.leases import LeaseEdges, LeaseRow, LeaseView
    from slurm_ltgf.store.ledger import Ledger

COLUMNS = (
    Column("job_id", "Job", render.word, numeric=False),
    Column("tenant", "Tenant", render.word, numeric=False),
    Column("user", "User", render.word, numeric=False),
    Column("gpus", "GPUs", render.gpus),
    Column("ran_s", "Ran", render.duration),
    Column("left_s", "Lease left", render.duration),
    Column("verdict", "Verdict", render.word, numeric=False),
    Column("to", "To", render.word, numeric=False),
    Column("why", "Why", render.word, numeric=False),
)


@click.command("lease")
@click.option("--reset", is_flag=True, help="Allow moves again after too many have failed.")
@options.output()
@click.pass_context
def command(
    ctx: click.Context, /, *, reset: bool, json_: bool, parsable2: bool, noheader: bool
) -> None:
    """Running leases: which are over, which jobs would yield, to whom, and why.

    Nothing is done here. With lease.mode = "on" the daemon moves who yields; with "advise" it only
    logs it.
    """
    from slurm_ltgf.errors import UsageError
    from slurm_ltgf.service import leases

    app = App.of(ctx)
    if reset:
        with app.ledger(readonly=False) as ledger:
            leases.reset(ledger, now=int(time.time()))
        click.echo("failures until now count no more")
        return
    if app.config.lease.mode == "off":
        raise UsageError('lease.mode is "off": set it to "advise" or "on" in ltgf.toml')
    now = int(time.time())
    with app.ledger(readonly=True) as ledger:
        judged = look(app, ledger, now=now)
    rows = [row_of(row, now) for row in judged.rows]
    if json_:
        stopped = judged.stopped or None
        render.as_json({"stopped": stopped, "mode": app.config.lease.mode, "leases": rows})
    elif parsable2:
        render.parsable(COLUMNS, rows, header=not noheader)
    else:
        render.table("Running leases", COLUMNS, rows)
        if judged.stopped:
            click.echo(f"note: nobody yields now: {render.clean(judged.stopped)}")
        for note in judged.notes:
            click.echo(f"note: {render.clean(note)}")


def look(app: App, ledger: Ledger, *, now: int) -> LeaseView:
    """The leases as they are now; nothing is written."""
    from slurm_ltgf.cli.move_site import moves_of
    from slurm_ltgf.service.leases import judge
    from slurm_ltgf.service.present import view

    edges = app.edges()
    seen = view(edges, ledger, app.config, queue=edges.queue(), now=now)
    return judge(seen, app.config, ledger, moves_of(app), lease_edges())


def lease_edges() -> LeaseEdges:
    """What leases ask of this machine and its Slurm."""
    from slurm_ltgf.service.leases import LeaseEdges
    from slurm_ltgf.slurm import reservations, shapes

    return LeaseEdges(uid_of, shapes.nodes_asked, reservations.maintenance_in_s)


def uid_of(user: str) -> int | None:
    """A user's number here; None: there is none."""
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def row_of(row: LeaseRow, now: int) -> dict[str, Any]:
    """A lease for people and programs."""
    verdict = row.verdict
    reason = verdict.reason if verdict else ""
    return {
        "job_id": row.job.shown_id or str(row.job.job_id),
        "tenant": row.tenant,
        "user": row.job.user,
        "gpus": row.gpus,
        "ran_s": now - row.job.start,
        "left_s": max(row.ends - now, 0),
        "verdict": verdict.action.value if verdict else None,
        "to": row.to or None,
        "why": "; ".join(part for part in (reason, row.why) if part) or None,
    }
