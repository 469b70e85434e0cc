"""`ltgf checkpoint`: save and go on."""

from __future__ import annotations

import click

from slurm_ltgf.cli import moves
from slurm_ltgf.cli.app import App


@click.command("checkpoint")
@click.argument("job_id", metavar="JOBID")
@click.option("--reason", default="", metavar="TEXT", help="For the log and the job's owner.")
@click.option("--within", metavar="DURATION", help="Time to save; default: the job's, the site's.")
@click.option("--dry-run", is_flag=True, help="Ask nothing; show what stands against it.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    job_id: str,
    reason: str,
    within: str | None,
    dry_run: bool,
    json_: bool,
) -> None:
    """Have a running job save its work, and go on."""
    wish = moves.wish_of("checkpoint", reason=reason, within=within)
    moves.carry_out(App.of(ctx), job_id, wish, json_=json_, dry_run=dry_run)
