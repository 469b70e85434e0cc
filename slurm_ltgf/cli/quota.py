"""`ltgf quota`: who may use how many GPUs and GPU-hours, in a file and in Slurm."""

from __future__ import annotations

import click

from slurm_ltgf.cli import quota_credit, quota_plan, quota_show, render
from slurm_ltgf.errors import SlurmUnavailable

UNREACHABLE = 3


class QuotaGroup(click.Group):
    """Commands that exit with 3, as monitors expect, where Slurm does not answer."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Verbs in the order of use."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except SlurmUnavailable as exc:
            render.note(f"ltgf: {exc}")
            ctx.exit(UNREACHABLE)


@click.group("quota", cls=QuotaGroup)
def command() -> None:
    """Who may use how many GPUs and GPU-hours: a file, against what Slurm has.

    quota.toml says what accounts should have; `plan` shows where Slurm differs, `apply` makes it
    so, `undo` leads back. `show` tells what is used, held and left, and when it runs out.
    """


command.add_command(quota_show.show)
command.add_command(quota_plan.plan)
command.add_command(quota_plan.apply)
command.add_command(quota_plan.undo)
command.add_command(quota_credit.credit)
command.add_command(quota_credit.debit)
command.add_command(quota_credit.log)
