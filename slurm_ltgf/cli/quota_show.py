"""`ltgf quota show`: what is used of each budget, held by running jobs, left, and for how long."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf import __version__
from slurm_ltgf.cli import options, render
from slurm_ltgf.cli.app import App, now
from slurm_ltgf.cli.quota_plan import credits_min_of, file_option, hands_of, site_file
from slurm_ltgf.cli.render import Column

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_ltgf.core.quota import QuotaState
    from slurm_ltgf.service.quota import QuotaView
    from slurm_ltgf.store.ledger import Credit
    from slurm_ltgf.store.quota_file import QuotaFile

SHORT = 1


def percent(value: Any) -> str:
    """A ratio in percent."""
    if value is None:
        return "-"
    return "inf" if math.isinf(value) else f"{value * 100:.0f} %"


def minute(epoch: Any) -> str:
    """A moment to the minute, in this machine's zone."""
    if epoch is None:
        return "-"
    return datetime.fromtimestamp(epoch).astimezone().strftime("%Y-%m-%d %H:%M")


COLUMNS = (
    Column("account", "Account", render.word, numeric=False),
    Column("tres", "Of", render.word, numeric=False),
    Column("budget_gpu_s", "Budget", render.hours),
    Column("used_gpu_s", "Used", render.hours),
    Column("counted_gpu_s", "Slurm counts", render.hours),
    Column("held_gpu_s", "Held", render.hours),
    Column("left_gpu_s", "Left", render.hours),
    Column("ratio", "Spent", percent),
    Column("gpus", "GPUs", render.gpus),
    Column("gpu_limit", "of", render.gpus),
    Column("exhausted_at", "Runs out", minute),
    Column("returns_at", "Comes back", minute),
    Column("level", "Level", render.word, numeric=False),
)


@click.command("show")
@file_option
@click.option("-A", "--accounts", metavar="NAMES", help="Only these.")
@click.option("--check", is_flag=True, help="Exit with 1 if a budget is to be warned of, or over.")
@click.option("--toml", is_flag=True, help="Print a quota.toml of what Slurm has, and no more.")
@options.output()
@click.pass_context
def show(ctx: click.Context, /, *, file_: Path | None, toml: bool, **given: Any) -> None:
    """What is used of each budget, held by running jobs, left, and when it runs out.

    In GPU-hours of the period. Used: by history. "Slurm counts": what it enforces, which falls by
    itself where use decays. Held: what running jobs could still use. Comes back: when an account
    that ran out may run again. Needs no quota.toml; exit status 3: Slurm does not answer.
    """
    app = App.of(ctx)
    if toml:
        _toml(app)
        return
    view, credits_, extra = _view(app, file_)
    rows = [row_of(state) for state in view.states if _is_asked(state, given["accounts"])]
    if given["json_"]:
        render.as_json(_as_json(view, rows, credits_, extra, app.cluster()))
    elif given["parsable2"]:
        render.parsable(COLUMNS, rows, header=not given["noheader"])
    else:
        _table(view, rows, credits_, extra)
    short = any(row["level"] in ("warn", "over") for row in rows)
    ctx.exit(SHORT if given["check"] and short else 0)


def _toml(app: App) -> None:
    from slurm_ltgf.store.quota_toml import toml_of

    click.echo(toml_of(hands_of(app).read(), app.cluster()), nl=False)


def _view(app: App, named: Path | None) -> tuple[QuotaView, list[Credit], list[str]]:
    """All budgets, the period's credits, and where the file says otherwise than Slurm."""
    from slurm_ltgf.service.quota import states
    from slurm_ltgf.service.quota_look import file_period
    from slurm_ltgf.service.quota_wanted import rules_of
    from slurm_ltgf.store.quota_file import QuotaFile

    found = site_file(app, named)
    file = found or QuotaFile()
    edges, moment = app.quota_edges(), now()
    with app.ledger(readonly=True) as ledger:
        credits_min = credits_min_of(app, file, ledger)
        rules = rules_of(file, credits_min)
        view = states(edges, ledger, app.config, rules, now=moment)
        since = file_period(file, app.site, now=moment).start
        credits_ = ledger.credits(edges.cluster, since)
    return view, credits_, _differing(file, view, credits_min) if found else []


def _differing(file: QuotaFile, view: QuotaView, credits_min: dict[str, int]) -> list[str]:
    """Budgets that Slurm has not as the file and the credits say."""
    from slurm_ltgf.service.quota_wanted import budget_min, minutes_factor

    tres = minutes_factor(file.budgets)[0]
    have = {state.account: state.budget_gpu_s for state in view.states if state.tres == tres}
    found = []
    for name in file.accounts:
        base = budget_min(file, name)
        want = None if base is None else max(base + credits_min.get(name, 0), 0) * 60
        if have.get(name) != want:
            shown = [render.hours(value) for value in (want, have.get(name))]
            found.append(
                f"{name}: {file.name} and credits say {shown[0]} GPU-hours, Slurm has {shown[1]}: "
                "ltgf quota apply"
            )
    return found


def _is_asked(state: QuotaState, accounts: str | None) -> bool:
    wanted = set((accounts or "").lower().split(",")) - {""}
    return not wanted or state.account in wanted


def row_of(state: QuotaState) -> dict[str, Any]:
    """A budget for people and programs; numbers without end stay so, for JSON see `_finite`."""
    return {
        "account": state.account,
        "tres": state.tres,
        "level": state.level,
        "budget_gpu_s": state.budget_gpu_s,
        "credit_gpu_s": state.credit_gpu_s,
        "used_gpu_s": state.used_gpu_s,
        "counted_gpu_s": state.counted_gpu_s,
        "held_gpu_s": state.held_gpu_s,
        "left_gpu_s": state.left_gpu_s,
        "ratio": state.ratio,
        "gpus": state.gpus,
        "gpu_limit": state.gpu_limit,
        "rate_gpus": state.rate_gpus,
        "exhausted_at": state.exhausted_at,
        "returns_at": state.returns_at,
    }


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    endless = math.isinf(row["held_gpu_s"])
    for key in ("held_gpu_s", "left_gpu_s", "ratio"):
        row[key] = render.finite(row[key])
    return row | {"held_endless": endless}


def _as_json(
    view: QuotaView,
    rows: list[dict[str, Any]],
    credits_: list[Credit],
    extra: list[str],
    cluster: str,
) -> dict[str, Any]:
    period = view.period
    return {
        "meta": {"version": __version__, "generated": now(), "cluster": cluster},
        "period": {
            "start": period.start,
            "end": period.end,
            "half_life_s": render.finite(period.half_life_s),
        },
        "accounts": [_finite(row) for row in rows],
        "credits": [credit_json(entry) for entry in credits_],
        "warnings": [*view.notes, *extra],
    }


def credit_json(entry: Credit) -> dict[str, Any]:
    """A credit or debit for programs."""
    return {
        "time": entry.time,
        "account": entry.account,
        "gpu_s": entry.minutes * 60,
        "by": entry.actor,
        "reason": entry.reason,
    }


def credit_line(entry: Credit) -> str:
    """A credit or debit for people."""
    word = "credit" if entry.minutes >= 0 else "debit"
    return render.clean(
        f"{minute(entry.time)}  {word} {abs(entry.minutes) / 60:g} GPU-hours, {entry.account}, "
        f"by {entry.actor}: {entry.reason}"
    )


def _table(
    view: QuotaView, rows: list[dict[str, Any]], credits_: list[Credit], extra: list[str]
) -> None:
    period = view.period
    until = "for ever" if period.end is None else f"until {minute(period.end)}"
    since = "ever" if period.start == 0 else minute(period.start)
    hidden = set() if any(row["tres"] != "gres/gpu" for row in rows) else {"tres"}
    columns = [column for column in COLUMNS if column.key not in hidden]
    render.table(f"GPU-hours since {since}, {until}", columns, rows)
    for entry in credits_:
        click.echo(credit_line(entry))
    for note in (*view.notes, *extra):
        click.echo(f"note: {render.clean(note)}")
