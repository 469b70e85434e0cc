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
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from slurm_ltgf.report import report_charts, time_charts
from slurm_ltgf.report.pages import environment
from slurm_ltgf.report.report_sections import sections, shown, table_of
from slurm_ltgf.report.report_tables import (
    BUDGETS,
    REQUEUES,
    SREPORT,
    TENANTS,
    WAITS,
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
from slurm_ltgf.report.words import cleaned, gpu_hours, known, percent

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


def page(result: Result) -> str:
    """The whole page."""
    return _render("report.html.j2", cleaned(result))


def email_page(result: Result) -> str:
    """A page for mail programs: no script, no SVG, every style inline."""
    return _render("report_email.html.j2", cleaned(result))


def _render(name: str, result: Result) -> str:
    templates = environment()
    templates.filters.update(hours=gpu_hours, percent=percent, said=_said)
    return templates.get_template(name).render(_common(result), **_PARTS[name](result))


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
        "sections": list(sections(result, of)),
        "beside": table_of(SREPORT, result),
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
            *(table_of(one, result) for one in (REQUEUES, BUDGETS) if one.rows(result)),
        ]
    }


_PARTS = {"report.html.j2": _page_parts, "report_email.html.j2": _letter_parts}
