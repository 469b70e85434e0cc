"""The page of `ltgf report`: one HTML file for people, that opens offline and prints; and a letter.

Everything comes from the dict that `ltgf report --json` prints. Names may be hostile: the templates
escape all text, and a Content-Security-Policy forbids all but inline style and the one script that
sorts tables, which is named by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from slurm_ltgf.report import report_charts, time_charts
from slurm_ltgf.report.report_tables import (
    CLASSES,
    MOVES,
    REQUEUES,
    SREPORT,
    TENANTS,
    USERS,
    WAITS,
    WHERE,
    Table,
)
from slurm_ltgf.report.report_words import (
    ANSWERS,
    data_notes,
    differences,
    moment,
    period,
    span,
    tiles,
)
from slurm_ltgf.report.svg import COLOURS, colour_class
from slurm_ltgf.report.time_charts import Figure
from slurm_ltgf.report.words import clean, gpu_hours, known, number, percent

Result = Mapping[str, Any]
#: Tenants named beside the answer; the table has all.
BALANCES = 5
#: Columns of the tenants that add up to the cluster's.
ADD_UP = (
    *("weight_part", "use_part", "entitled_gpu_s", "attained_gpu_s", "difference_gpu_s"),
    *("before_use_part", "quota_gpus", "weight"),
)
#: Rows of a letter's tables.
LETTER_ROWS = 25


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its words, what it is sorted by (None: unknown), whether it is a number."""

    words: str
    sort: float | str | None
    is_number: bool
    classes: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """A table as the template shows it. more: rows that are left out."""

    table: Table
    rows: Sequence[Sequence[Cell]]
    more: int
    total: int


def page(result: Result) -> str:
    """The whole page."""
    return _render("report.html.j2", _cleaned(result))


def email_page(result: Result) -> str:
    """A page for mail programs: no script, no SVG, every style inline."""
    return _render("report_email.html.j2", _cleaned(result))


def _render(name: str, result: Result) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("slurm_ltgf.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, hours=gpu_hours, percent=percent, said=_said)
    return environment.get_template(name).render(_common(result), **_PARTS[name](result))


def _said(text: str) -> Any:
    """A sentence as HTML: what stands between backticks is code, and no % stands alone."""
    from markupsafe import Markup, escape

    escaped = str(escape(text)).replace(" %", "\u00a0%")
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped))


def _common(result: Result) -> dict[str, Any]:
    """What the page and the letter both say."""
    said = result["verdict"]
    before = result["before"]
    return {
        "result": result,
        "answer": ANSWERS[said["answer"]],
        "kind": said["answer"].replace(" ", "-"),
        "verdict": said,
        "period": period(result),
        "before": "" if before is None else span(before),
        "generated": moment(result["meta"]["generated"]),
        "about": ", ".join([*result["meta"]["only_tenants"], *result["meta"]["only_users"]]),
        "tiles": tiles(result),
        "owed": said["owed"][:BALANCES],
        "ahead": said["ahead"][:BALANCES],
        "more_owed": max(len(said["owed"]) - BALANCES, 0),
        "more_ahead": max(len(said["ahead"]) - BALANCES, 0),
        "most": max((row["gpu_s"] for row in (*said["owed"], *said["ahead"])), default=1) or 1,
        "notes": list(data_notes(result)),
        "differences": differences(result),
    }


def _page_parts(result: Result) -> dict[str, Any]:
    of = time_charts.colours(result)
    script = (files("slurm_ltgf.report") / "templates" / "report.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "script": script,
        "digest": digest,
        "linked": COLOURS,
        "colours": {name: colour_class(colour) for name, colour in of.items()},
        "sections": list(_sections(result, of)),
        "beside": _of(SREPORT, result),
        "balance": report_charts.balance(result, of),
        "tenants": shown(TENANTS, _in_order(result["tenants"], of)),
        "total": _total(result["tenants"]),
    }


def _in_order(rows: Sequence[Mapping[str, Any]], of: Mapping[str, int | None]) -> list[Any]:
    """The tenants in the order of the charts."""
    place = {name: i for i, name in enumerate(of)}
    return sorted(rows, key=lambda row: place[row["tenant"]])


def _total(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A cell for each column of the tenants: sums of what adds up, if there is more than one."""
    sums = {key: [v for row in rows if (v := known(row[key])) is not None] for key in ADD_UP}
    return [
        column.say(math.fsum(sums[column.key])) if sums.get(column.key) else ""
        for column in TENANTS.columns
    ] * (len(rows) > 1)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: its anchor, heading, sentence, charts and the tables behind them."""

    key: str
    title: str
    lead: str
    figures: Sequence[Figure]
    tables: Sequence[Shown]
    is_wide: bool = False


def _sections(result: Result, of: Mapping[str, int | None]) -> Iterator[Section]:
    """The parts after the tenants, those that have something to show."""
    yield Section(
        "over-time",
        "Over time",
        "Who held the GPUs while the period went by, and whether each got its due.",
        [time_charts.held(result, of), time_charts.rho(result, of)],
        [shown(time_charts.BY_MOMENT, time_charts.moments(result))],
    )
    if result["waits"]:
        yield Section(
            "waiting",
            "Waiting",
            "From the moment a job could run to its start; a job that is requeued waits again.",
            [report_charts.waiting(result, of)],
            [_of(WAITS, result)],
            is_wide=True,
        )
    if result["classes"]:
        yield Section(
            "jobs",
            "Jobs",
            "What each job got, over what its part of its tenant's quota would have given it.",
            [report_charts.classes(result, of)],
            [_of(CLASSES, result)],
            is_wide=True,
        )
    if result["where"]:
        yield Section(
            "where",
            "Where and who",
            "GPU-hours by partition, GPU type, node and user.",
            [report_charts.partitions(result), *report_charts.nodes(result)],
            [_of(WHERE, result), _of(USERS, result)],
        )
    if result["requeues"] or result["moves"]:
        yield Section(
            "preemption",
            "Preemptions and failures",
            _work(result),
            [report_charts.requeues(result, of)] if result["requeues"] else [],
            [_of(REQUEUES, result), *([_of(MOVES, result)] if result["moves"] else [])],
            is_wide=True,
        )


def _work(result: Result) -> str:
    """What was saved and lost, in a sentence."""
    own = result["figures"]
    kept = result["meta"]["requeued_work"]
    return (
        f"{number(own['requeues'])} runs ended to start again: of their work in the period "
        f"{gpu_hours(own['saved_gpu_s'])} GPU-hours were saved and {gpu_hours(own['lost_gpu_s'])} "
        f"lost. Where no checkpoint is known it counts as {kept} (fairness.requeued_work)."
    )


def _of(table: Table, result: Result) -> Shown:
    return shown(table, table.rows(result))


def shown(table: Table, rows: Sequence[Mapping[str, Any]], most: int | None = None) -> Shown:
    """A table's rows in words, as many as people are shown."""
    most = table.most if most is None else most
    if table.key == "where":
        rows = sorted(rows, key=lambda row: -row["gpu_s"])
    cells = [
        [
            Cell(
                column.say(row.get(column.key)),
                _sort(row.get(column.key)),
                column.is_number,
                _classes(column.key, row),
            )
            for column in table.columns
        ]
        for row in rows[:most]
    ]
    return Shown(table, cells, max(len(rows) - most, 0), len(rows))


def _sort(value: Any) -> float | str | None:
    amount = known(value)
    return float(f"{amount:.6g}") if amount is not None else value if value is not True else 1.0


def _classes(key: str, row: Mapping[str, Any]) -> str:
    """What a cell looks like: a state's pill, a rho that is too low."""
    if key == "state":
        return f"pill {str(row['state']).replace(' ', '-')}"
    if key not in ("rho", "before_rho", "rho_p5"):
        return ""
    amount = known(row.get(key))
    return "rho low" if amount is not None and amount < time_charts.FAIR.value else "rho"


def _letter_parts(result: Result) -> dict[str, Any]:
    waits = [row for row in result["waits"] if row["gpus"] == "all"]
    short = ("tenant", "starts", "median_wait_s", "p90_wait_s", "waiting")
    columns = tuple(column for column in WAITS.columns if column.key in short)
    by_tenant = Table(WAITS.key, "Waiting", columns, LETTER_ROWS)
    keys = ("tenant", "state", "entitled_gpu_s", "attained_gpu_s", "share", "rho")
    own = tuple(column for column in TENANTS.columns if column.key in keys)
    balance = Table(TENANTS.key, "Tenants", own, LETTER_ROWS)
    return {
        "tables": [
            shown(balance, result["tenants"]),
            shown(by_tenant, waits),
            *([_of(REQUEUES, result)] if result["requeues"] else []),
        ]
    }


_PARTS = {"report.html.j2": _page_parts, "report_email.html.j2": _letter_parts}


def _cleaned(value: Any) -> Any:
    """The same with every text made visible."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {_cleaned(key): _cleaned(inner) for key, inner in value.items()}
    return [_cleaned(inner) for inner in value] if isinstance(value, list | tuple) else value
