"""`ltgf report`: a period in one page for people, and the same as tables for programs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import options, render, results
from slurm_ltgf.cli.app import App, now
from slurm_ltgf.cli.fairness import question_of
from slurm_ltgf.cli.history_source import demo_ledger, ledger_of
from slurm_ltgf.errors import UsageError

if TYPE_CHECKING:
    from slurm_ltgf.core.present import Present
    from slurm_ltgf.core.report import Facts
    from slurm_ltgf.core.slurm_usage import Comparison
    from slurm_ltgf.report.result_data import Only
    from slurm_ltgf.store.ledger import Ledger

DEFAULT_WINDOW = "7d"


@click.command("report")
@options.interval
@click.option(
    "--window",
    metavar="DURATION",
    help=f"Length of the period: 24h, 30d, infinite; default: {DEFAULT_WINDOW}.",
)
@click.option(
    "-o", "output", multiple=True, metavar="FILE",
    help="Write .html, .md, .csv or .json; {date} in the name is the period's last day.",
)  # fmt: skip
@click.option("--email", is_flag=True, help="With -o FILE.html: a page that mail programs show.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.option(
    "-A", "--accounts", "--tenant", "accounts", metavar="NAMES", help="About these tenants alone."
)
@click.option("-u", "--user", metavar="NAMES", help="About these users' jobs alone.")
@click.option("--capacity", type=float, metavar="GPUS", help="GPUs in service, at all times.")
@click.option("--weights", metavar="a=3,b=1", help="Tenants' weights, in place of their own.")
@click.option("-M", "--cluster", metavar="NAME", help="Cluster; several or 'all' with --combined.")
@click.option("--combined", is_flag=True, help="Report on several clusters as one.")
@click.option(
    "--from-file", metavar="FILE", help="A saved sacct dump in place of the ledger; - is stdin."
)
@click.option("--timezone", metavar="ZONE", help="What local times in the dump mean.")
@click.option("--sreport", is_flag=True, help="Also ask sreport, and lay both side by side.")
@click.option("--demo", is_flag=True, help="About an invented site, to see what a report is.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """A period in one page for people: was it fair, who is owed, what changed, what to do.

    From the ledger, or a saved dump with no Slurm near. The page is one file that opens offline:
    words first, then charts with their tables. Numbers are those of `ltgf fairness`.
    """
    from slurm_ltgf.report.grouping import pandas_
    from slurm_ltgf.report.result import result_of

    pandas_()
    for path in given["output"]:
        results.refuse_output(path)
    if given["email"] and not any(Path(path).suffix == ".html" for path in given["output"]):
        raise UsageError("--email is for -o FILE.html: there is none")
    command_line = results.words(ctx, without=("output", "json_"))
    shows_itself = given["from_file"] is not None
    with nullcontext() if shows_itself else render.working("reading and measuring the history"):
        facts, beside = _facts(App.of(ctx), given)
        only = _only(given)
        result = result_of(facts, only, command=command_line, is_demo=given["demo"], beside=beside)
    if given["json_"]:
        render.as_json(result)
    elif not given["output"]:
        _print(result)
    for path in given["output"]:
        written = _named(path, result["period"]["end"])
        _write(written, result, email=given["email"])
        render.note(f"written: {written}")


def _facts(app: App, given: dict[str, Any]) -> tuple[Facts, Comparison | None]:
    """What there is to report, and what sreport says of it if that is asked."""
    from slurm_ltgf.service.report import facts
    from slurm_ltgf.service.sreport import compare

    if given["window"] is None:
        given = given | {"window": DEFAULT_WINDOW}
    question = question_of(given | {"jobs": True})
    if given["sreport"] and (given["demo"] or given["from_file"]):
        raise UsageError("--sreport is asked of a live Slurm: not with --demo or --from-file")
    if not given["demo"]:
        with ledger_of(app, given) as ledger:
            found = facts(ledger, app.config, question, now=now())
            if not given["from_file"]:
                found = replace(found, present=_present(app, ledger, found))
            return found, compare(ledger, found) if given["sreport"] else None
    for name, option in (("from_file", "--from-file"), ("cluster", "-M")):
        if given[name]:
            raise UsageError(f"--demo is about an invented site: it has no {option}")
    from slurm_ltgf.sim.demo import END
    from slurm_ltgf.sim.demo_present import demo_present
    from slurm_ltgf.store.config import Config

    with demo_ledger(app) as ledger:
        found = facts(ledger, Config(), question, now=END)
    return replace(found, present=demo_present(found)), None


def _present(app: App, ledger: Ledger, found: Facts) -> Present | None:
    """The site now, as far as Slurm tells."""
    from slurm_ltgf.cli.frag import fragmentation_edges
    from slurm_ltgf.cli.quota_plan import site_rules
    from slurm_ltgf.service.report_present import present

    return present(
        ledger,
        app.config,
        found,
        pools=lambda: fragmentation_edges(app),
        budgets=app.quota_edges,
        rules=lambda: site_rules(app, ledger),
    )


def _only(given: dict[str, Any]) -> Only:
    from slurm_ltgf.report.result_data import Only

    tenants = set((given["accounts"] or "").lower().split(",")) - {""}
    users = set((given["user"] or "").split(",")) - {""}
    return Only(frozenset(tenants), frozenset(users))


def _named(path: str, end: int) -> str:
    """The file's name with the day of the period's last second, UTC."""
    day = datetime.fromtimestamp(end - 1, UTC).strftime("%Y-%m-%d")
    return path.replace("{date}", day)


def _write(path: str, result: dict[str, Any], *, email: bool) -> None:
    """Write a report whole or not at all, in the form that the file's name asks for.

    Raises:
        FileError: it cannot be written; what was there stands.
    """
    from slurm_ltgf.report import report_page, report_text
    from slurm_ltgf.store.files import replace_text

    suffix = Path(path).suffix
    if suffix == ".html":
        text = report_page.email_page(result) if email else report_page.page(result)
    elif suffix == ".json":
        text = report_text.as_json(result)
    elif suffix == ".csv":
        text = report_text.as_csv(result)
    else:
        text = report_text.as_markdown(result)
    replace_text(path, text)


def _print(result: dict[str, Any]) -> None:
    """The words and the tenants, for a terminal."""
    from slurm_ltgf.report import report_text

    for line in report_text.words(result):
        click.echo(render.clean(line))
    columns = [
        render.Column(column.key, column.title, column.say, numeric=column.is_number)
        for column in report_text.TENANTS_SHORT
    ]
    render.table("Tenants", columns, result["tenants"])
