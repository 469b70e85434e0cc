"""`ltgf checkpoint`: save and go on."""

from __future__ import annotations

import click

from slurm_ltgf.cli import moves
from slurm_ltgf.cli.app import App


@click.command("checkpoint")
@moves.asking
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
