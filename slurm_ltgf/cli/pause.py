"""`ltgf pause`: free the GPUs, keep the place."""

from __future__ import annotations

import click

from slurm_ltgf.cli import moves
from slurm_ltgf.cli.app import App


@click.command("pause")
@moves.asking
@click.option("--for", "long", default="24h", metavar="DURATION", help="It goes on after this.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    job_id: str,
    reason: str,
    within: str | None,
    long: str,
    dry_run: bool,
    json_: bool,
) -> None:
    """Have a running job free its GPUs' memory and stand still until `ltgf resume`.

    To Slurm it runs on and holds its GPUs: other jobs can use them only if they share them (shard,
    mps), or in the same allocation.
    """
    from slurm_ltgf.core.duration import duration_s
    from slurm_ltgf.errors import UsageError

    hold_s = duration_s(long)
    if not hold_s:
        raise UsageError(f"--for: must be a duration like 30min or 24h, got {long!r}")
    wish = moves.wish_of("pause", reason=reason, within=within, hold_s=hold_s)
    moves.carry_out(App.of(ctx), job_id, wish, json_=json_, dry_run=dry_run)
