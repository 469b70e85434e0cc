"""`ltgf resume`: end a pause."""

from __future__ import annotations

import time

import click

from slurm_ltgf.cli import moves, render
from slurm_ltgf.cli.app import App
from slurm_ltgf.cli.move_site import moves_of


@click.command("resume")
@click.argument("job_id", metavar="JOBID")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, /, *, job_id: str, json_: bool) -> None:
    """Let a job that `ltgf pause` stopped take its GPUs again."""
    move = moves_of(App.of(ctx)).resume(job_id, now=int(time.time()))
    if json_:
        render.as_json(moves.move_json(move))
        return
    click.echo(f"job {job_id}: {move.why}")
