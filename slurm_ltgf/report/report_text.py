"""A report as text: the words for a terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slurm_ltgf.report.report_tables import (
    BUDGETS,
    CLASSES,
    FRAGMENTATION,
    REQUEUES,
    TABLES,
    TENANTS,
    USERS,
    WAITS,
    WHERE,
    Column,
    Table,
)
from slurm_ltgf.report.report_words import ANSWERS, data_notes, differences, period, tiles
from slurm_ltgf.report.words import clean, gpu_hours, percent

Result = Mapping[str, Any]
SHORT = ("tenant", "state", "use_part", "entitled_gpu_s", "attained_gpu_s", "share", "rho")
TENANTS_SHORT = tuple(column for column in TENANTS.columns if column.key in SHORT)
IN_MARKDOWN = (TENANTS, WAITS, CLASSES, REQUEUES, WHERE, USERS, BUDGETS, FRAGMENTATION)
#: A spreadsheet takes a text that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def words(result: Result) -> Iterator[str]:
    """The answer in lines: what, how, who, and what to do."""
    said = result["verdict"]
    yield f"{result['meta']['cluster']}, {period(result)}"
    yield f"Was it fair? {ANSWERS[said['answer']]}. {said['headline']}"
    yield "  ".join(f"{tile.title}: {tile.value}" for tile in tiles(result))
    for title, rows in (("Owed", said["owed"]), ("Ahead", said["ahead"])):
        for row in rows:
            yield f"{title}: {_balance(row)}"
    for title, sentences in (("Changed", said["changed"]), ("To do", said["todo"])):
        for sentence in sentences:
            yield f"{title}: {sentence}"
    for note in data_notes(result):
        yield f"note: {note}"


def _balance(row: Mapping[str, Any]) -> str:
    return (
        f"{row['tenant']} {gpu_hours(row['gpu_s'])} GPU-hours ({percent(row['share'])} of its part)"
    )


def as_json(result: Result) -> str:
    """The whole result; no NaN."""
    return json.dumps(result, indent=1, allow_nan=False) + "\n"


def as_csv(result: Result) -> str:
    """All tables in one: the column `table` says which a row is of; plain numbers, keys as in JSON.

    Texts that a spreadsheet would take for a formula begin with an apostrophe.
    """
    rows = [*_sentences(result), *_figures(result)]
    for table in TABLES:
        rows += [{"table": table.key, **_flat(row)} for row in table.rows(result)]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({key: _harmless(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without its series."""
    return {key: value for key, value in row.items() if not isinstance(value, list)}


def _sentences(result: Result) -> Iterator[dict[str, Any]]:
    """The verdict as rows."""
    said = result["verdict"]
    yield {"table": "verdict", "what": "answer", "text": said["answer"]}
    yield {"table": "verdict", "what": "headline", "text": said["headline"]}
    for what in ("changed", "todo"):
        for sentence in said[what]:
            yield {"table": "verdict", "what": what, "text": sentence}


def _figures(result: Result) -> Iterator[dict[str, Any]]:
    """The numbers of the cluster as rows: now, and before."""
    before = result["figures_before"] or {}
    for key, value in result["figures"].items():
        yield {"table": "figures", "what": key, "value": value, "before": before.get(key)}


def _harmless(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def as_markdown(result: Result) -> str:
    """The words and the tables."""
    said = result["verdict"]
    lines = [f"# GPU fairness report: {_cell(result['meta']['cluster'])}, {period(result)}", ""]
    lines += [f"**{ANSWERS[said['answer']]}.** {_cell(said['headline'])}", ""]
    lines += [f"- {tile.title}: {tile.value}" for tile in tiles(result)]
    for title, rows in (("Who is owed", said["owed"]), ("Who is ahead", said["ahead"])):
        lines += ["", f"## {title}", "", *(f"- {_cell(_balance(row))}" for row in rows)]
        lines += [] if rows else ["Nobody."]
    for title, sentences in (("What changed", said["changed"]), ("What to do", said["todo"])):
        lines += ["", f"## {title}", "", *(f"- {_cell(sentence)}" for sentence in sentences)]
    for table in IN_MARKDOWN:
        lines += _section(table, table.rows(result))
    lines += ["", "## Data quality", "", *(f"- {_cell(note)}" for note in data_notes(result))]
    lines += ["", "## Beside sreport", "", *(f"- {text}" for text in differences(result))]
    return "\n".join(lines) + "\n"


def _section(table: Table, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table with its heading; what is too long is cut, and said to be."""
    lines = ["", f"## {table.title}", ""]
    if not rows:
        return [*lines, "None."]
    lines.append(_line([column.title for column in table.columns]))
    lines.append(_line(["--:" if column.is_number else "---" for column in table.columns]))
    lines += [_line(_said(table.columns, row)) for row in rows[: table.most]]
    if len(rows) > table.most:
        lines += ["", f"And {len(rows) - table.most} more: .csv and .json have all."]
    return lines


def _said(columns: Sequence[Column], row: Mapping[str, Any]) -> list[str]:
    return [column.say(row.get(column.key)) for column in columns]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    """Text that Markdown shows as it is."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~&" else c for c in clean(text))
