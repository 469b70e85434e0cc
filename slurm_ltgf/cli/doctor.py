"""`ltgf doctor`: what is wrong with this site's setup, with the fix for each line."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_ltgf import __version__
from slurm_ltgf.cli import render
from slurm_ltgf.cli.app import App, now
from slurm_ltgf.errors import ConfigError, SlurmUnavailable

if TYPE_CHECKING:
    from slurm_ltgf.service.doctor import Facts, Finding

FOUND, UNREACHABLE = 1, 3
COLOURS = {"ok": "green", "note": "yellow", "fix": "red"}


@click.command("doctor")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show what is in order too.")
@click.pass_context
def command(ctx: click.Context, /, *, json_: bool, verbose: bool) -> None:
    """What is wrong with this site's setup, with the fix for each finding.

    Needs no ledger and no special rights, and changes nothing. A "fix" must be mended, a "note" is
    worth knowing. Exit status: 0 nothing to fix, 1 something to fix, 3 Slurm does not answer.
    """
    from slurm_ltgf.service.doctor import examine

    app = App.of(ctx)
    try:
        facts = look(app)
    except SlurmUnavailable as exc:
        unreachable(exc, json_=json_)
        ctx.exit(UNREACHABLE)
    findings = examine(facts)
    if json_:
        as_json(findings, facts.cluster)
    else:
        show(findings, verbose=verbose or app.verbose)
    ctx.exit(FOUND if any(finding.level == "fix" for finding in findings) else 0)


def look(app: App) -> Facts:
    """The facts; unreadable settings are one of them.

    Raises:
        SlurmUnavailable: no slurmctld answers.
    """
    from slurm_ltgf.service.doctor import gather
    from slurm_ltgf.store.config import Config, config_file

    config, error, has_settings = Config(), "", True
    try:
        config = app.config
        has_settings = config_file(app.config_path, os.environ) is not None
    except ConfigError as exc:
        error = str(exc)
    path = app.ledger_option or Path(config.site.ledger)
    return gather(config, ledger=path, config_error=error, has_settings=has_settings)


def show(findings: Sequence[Finding], *, verbose: bool) -> None:
    """A line a finding, below it its fix to paste, and how many there were of each kind.

    Neighbours that say the same ("not checked: slurmdbd does not answer") share a line.
    """
    shown = [finding for finding in findings if finding.level != "ok" or verbose]
    for (level, what, fix), alike in groupby(shown, key=lambda f: (f.level, f.what, f.fix)):
        mark = click.style(f"{level:<4}", fg=COLOURS[level])
        click.echo(f"{mark}  {', '.join(f.name for f in alike)}: {render.clean(what)}")
        for line in filter(None, fix.split("\n")):
            click.echo(f"      fix: {render.clean(line)}")
    counts = Counter(finding.level for finding in findings)
    click.echo(
        f"{len(findings)} checks: {counts['fix']} to fix, {counts['note']} to know,"
        f" {counts['ok']} in order"
    )


def as_json(findings: Sequence[Finding], cluster: str) -> None:
    """The findings for programs."""
    render.as_json(
        {
            "meta": {"version": __version__, "generated": now(), "cluster": cluster},
            "reachable": True,
            "checks": [
                {"name": f.name, "level": f.level, "what": f.what, "fix": f.fix or None}
                for f in findings
            ],
        }
    )


def unreachable(exc: SlurmUnavailable, *, json_: bool) -> None:
    """Say that nothing could be checked."""
    if json_:
        check = {"name": "slurmctld", "level": "fix", "what": str(exc), "fix": None}
        meta = {"version": __version__, "generated": now(), "cluster": None}
        render.as_json({"meta": meta, "reachable": False, "checks": [check]})
    else:
        render.note(f"ltgf: slurmctld does not answer, so nothing was checked: {exc}")
