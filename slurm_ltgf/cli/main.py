"""The `ltgf` command: which subcommands there are, and how errors leave it."""

from __future__ import annotations

import errno
import importlib
import sys
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from slurm_ltgf import __version__
from slurm_ltgf.errors import LedgerError, LtgfError

#: Subcommand -> (module, one line of help); a module is imported when its command runs.
COMMANDS = {
    "init": ("init", "Write a first ltgf.toml from what Slurm says."),
    "doctor": ("doctor", "What is wrong with this site's setup, with the fix for each finding."),
    "sync": ("sync", "Read history from sacct, or a saved dump, into the ledger."),
    "fairness": ("fairness", "Who got how much GPU-time, against what was due."),
    "report": ("report", "A period in one page for people: was it fair, who is owed, what to do."),
    "queue": ("queue", "Pending jobs in LTGF order."),
    "explain": ("explain", "Why a job is where it is."),
    "tick": ("tick", "One pass: sync, order, write SiteFactors."),
    "daemon": ("daemon", "A pass every few seconds, for ever."),
    "lease": ("lease", "Running leases: who would yield to whom, and why."),
    "quota": ("quota", "Who may use how many GPUs and GPU-hours: a file, against what Slurm has."),
    "frag": ("frag", "How fragmented the free GPUs are, and which moves would help."),
    "checkpoint": ("checkpoint", "Have a running job save its work, and go on."),
    "requeue": ("requeue", "Have a running job save its work, then requeue it."),
    "pause": ("pause", "Have a running job free its GPUs, and keep its place."),
    "resume": ("resume", "End a pause."),
    "node": ("node", "The agent of a node: checkpoints jobs from outside, by driver and CRIU."),
    "exporter": ("exporter", "Metrics for Prometheus: over HTTP, or in a file."),
    "simulate": ("simulate", "What other policies would do with a trace."),
    "replay": ("replay", "What other policies would have done with this site's history."),
}


class LazyGroup(click.Group):
    """A group that imports a subcommand's module only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of a user's day."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, its module imported now."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"slurm_ltgf.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and options that begin so; no subcommand is imported for it."""
        named = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="ltgf")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Configuration file; default $LTGF_CONFIG, ~/.config/ltgf/ltgf.toml, /etc/ltgf/ltgf.toml.",
)
@click.option(
    "--ledger", type=click.Path(path_type=Path), help="Ledger file; default: site.ledger."
)
@click.option("-v", "--verbose", is_flag=True, help="Say more, on standard error.")
@click.pass_context
def cli(ctx: click.Context, config: Path | None, ledger: Path | None, verbose: bool) -> None:
    """Long-term GPU-time fairness for Slurm."""
    ctx.obj = {"config": config, "ledger": ledger, "verbose": verbose}


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line; every LtgfError becomes one line and its exit code."""
    sys.exit(run(argv))


def run(argv: list[str] | None = None, **extra: Any) -> int:
    """Run the command line and return its exit code."""
    try:
        result = cli.main(args=argv, prog_name="ltgf", standalone_mode=False, **extra)
    except LtgfError as exc:
        click.echo(f"ltgf: {exc}", err=True)
        return exc.exit_code
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except OSError as exc:
        if exc.errno != errno.ENOSPC:
            raise
        click.echo(f"ltgf: the output cannot be written: {exc.strerror}", err=True)
        return LedgerError.exit_code
    except SystemExit as exc:  # click: a shell's completion is done (0), or a broken pipe
        return 141 if exc.code else 0
    return result if isinstance(result, int) else 0
