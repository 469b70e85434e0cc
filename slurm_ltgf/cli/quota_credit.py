"""`ltgf quota credit`, `debit` and `log`: GPU-hours given and taken, by whom and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import render
from slurm_ltgf.cli.app import App, now
from slurm_ltgf.cli.quota_plan import author, changing, file_option, quota_file
from slurm_ltgf.errors import UsageError

if TYPE_CHECKING:
    from slurm_ltgf.store.ledger import AuditEntry
    from slurm_ltgf.store.quota_file import QuotaFile


def _arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    for add in reversed(
        (
            click.argument("account"),
            click.argument("hours"),
            click.option("--reason", required=True, help="Why; kept with your name."),
            file_option,
            click.option("--json", "json_", is_flag=True, help="Print JSON."),
        )
    ):
        function = add(function)
    return function


@click.command("credit")
@_arguments
@click.pass_context
def credit(ctx: click.Context, /, **given: Any) -> None:
    """Give an account GPU-hours beyond its budget, for this period.

    Kept in the ledger; `plan` wants GrpTRESMins higher by it, `apply` makes it so, and both forget
    it when the period ends. HOURS: like 50, 0.5 or 1:30 (hours:minutes).
    """
    _give(App.of(ctx), given, sign=1)


@click.command("debit")
@_arguments
@click.pass_context
def debit(ctx: click.Context, /, **given: Any) -> None:
    """Take GPU-hours from an account's budget, for this period; as `credit`."""
    _give(App.of(ctx), given, sign=-1)


def _give(app: App, given: dict[str, Any], *, sign: int) -> None:
    from slurm_ltgf.cli.quota_show import credit_json, credit_line
    from slurm_ltgf.service.quota_look import file_period
    from slurm_ltgf.service.quota_wanted import sum_of
    from slurm_ltgf.store.ledger import Credit

    account, minutes = given["account"].lower(), _minutes(given["hours"])
    if not given["reason"].strip():
        raise UsageError("--reason: say why")
    file = quota_file(app, given["file_"])
    budget = _budget(file, account)
    cluster, moment = app.cluster(), now()
    period = file_period(file, app.site, now=moment)
    entry = Credit(moment, account, sign * minutes, author(), given["reason"].strip())
    with changing(app) as ledger:
        ledger.credit(cluster, entry)
        total = sum_of(ledger.credits(cluster, period.start))[account]
    if given["json_"]:
        budget_gpu_s = max(budget + total, 0) * 60
        render.as_json(credit_json(entry) | {"budget_gpu_s": budget_gpu_s, "until": period.end})
        return
    click.echo(credit_line(entry))
    click.echo(
        f"budget {budget / 60:g} GPU-hours, with credits {max(budget + total, 0) / 60:g}; "
        "ltgf quota apply brings it into force"
    )


def _minutes(hours: str) -> int:
    """HOURS as minutes > 0."""
    from slurm_ltgf.store.quota_file import hours_min

    try:
        number = hours if ":" in hours else float(hours)
        minutes = hours_min(number)
    except (ValueError, OverflowError):
        minutes = None
    if not minutes:
        raise UsageError(
            f"HOURS: must be GPU-hours > 0 in whole minutes, like 50, 0.5 or 1:30, got {hours!r}"
        )
    return minutes


def _budget(file: QuotaFile, account: str) -> int:
    from slurm_ltgf.service.quota_wanted import budget_min

    budget = budget_min(file, account)
    if budget is None:
        raise UsageError(
            f"{account} has no gpu_hours in {file.name}: without a budget there is nothing to "
            "credit or debit"
        )
    return budget


@click.command("log")
@click.option("-A", "--account", metavar="NAME", help="Only of this account.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.pass_context
def log(ctx: click.Context, /, *, account: str | None, json_: bool) -> None:
    """Credits and debits ever given, and the changes that `apply` and `undo` made lately."""
    from slurm_ltgf.cli.quota_show import credit_json, credit_line
    from slurm_ltgf.service.quota_apply import ACTION

    app = App.of(ctx)
    with app.ledger(readonly=True) as ledger:
        entries = ledger.credits(app.cluster())
        writes = ledger.audit_last(100_000, action=ACTION)
    name = (account or "").lower()
    given = [entry for entry in entries if not name or entry.account == name]
    made = [w for w in reversed(writes) if not name or _is_about(w, name)]
    if json_:
        render.as_json(
            {"credits": [credit_json(e) for e in given], "changes": [_write_json(w) for w in made]}
        )
        return
    for entry in given:
        click.echo(credit_line(entry))
    for write in made:
        click.echo(_write_line(write))


def _is_about(write: AuditEntry, account: str) -> bool:
    return write.job_id == f"account {account}" or f" of {account}" in write.job_id


def _write_json(write: AuditEntry) -> dict[str, Any]:
    return {
        "time": write.time,
        "by": write.actor,
        "target": write.job_id,
        "old": write.old,
        "new": write.new,
        "why": write.reason,
    }


def _write_line(write: AuditEntry) -> str:
    from slurm_ltgf.cli.quota_show import minute

    change = " -> ".join(filter(None, (write.old, write.new)))
    what = f"{write.job_id}: {change}" if change else write.job_id
    return render.clean(f"{minute(write.time)}  {what}, by {write.actor} ({write.reason})")
