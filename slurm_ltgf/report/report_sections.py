"""The parts of a report's page after its first screen: charts, and the tables behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_ltgf.report import present_charts, report_charts, time_charts
from slurm_ltgf.report.report_tables import (
    BUDGETS,
    CLASSES,
    FRAGMENTATION,
    MOVES,
    REQUEUES,
    USERS,
    WAITS,
    WHERE,
    Table,
)
from slurm_ltgf.report.report_words import moment
from slurm_ltgf.report.time_charts import Figure
from slurm_ltgf.report.words import gpu_hours, known, number

Result = Mapping[str, Any]


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


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: its anchor, heading, sentence, charts and the tables behind them."""

    key: str
    title: str
    lead: str
    figures: Sequence[Figure]
    tables: Sequence[Shown]
    is_wide: bool = False


def sections(result: Result, of: Mapping[str, int | None]) -> Iterator[Section]:
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
            [table_of(WAITS, result)],
            is_wide=True,
        )
    if result["classes"]:
        yield Section(
            "jobs",
            "Jobs",
            "What each job got, over what its part of its tenant's quota would have given it.",
            [report_charts.classes(result, of)],
            [table_of(CLASSES, result)],
            is_wide=True,
        )
    if result["where"]:
        yield Section(
            "where",
            "Where and who",
            "GPU-hours by partition, GPU type, node and user.",
            [report_charts.partitions(result), *report_charts.nodes(result)],
            [table_of(WHERE, result), table_of(USERS, result)],
        )
    yield from _present(result)
    if result["requeues"] or result["moves"]:
        yield Section(
            "preemption",
            "Preemptions and failures",
            _work(result),
            [report_charts.requeues(result, of)] if result["requeues"] else [],
            [table_of(REQUEUES, result), *([table_of(MOVES, result)] if result["moves"] else [])],
            is_wide=True,
        )


def _present(result: Result) -> Iterator[Section]:
    """Budgets and free GPUs at the moment the report was made."""
    budgets, pools = result["budgets"], result["fragmentation"]
    if budgets is not None and budgets["rows"]:
        yield Section(
            "budgets",
            "Budgets",
            " ".join([f"As of {moment(budgets['at'])} UTC.", *budgets["notes"]]),
            [present_charts.left(budgets), present_charts.courses(budgets)],
            [table_of(BUDGETS, result)],
        )
    if pools is not None and pools["rows"]:
        yield Section(
            "fragmentation",
            "Fragmentation",
            f"Free GPUs as of {moment(pools['at'])} UTC, and what of them no job that is asked "
            "for could be given.",
            [present_charts.pools(pools)],
            [table_of(FRAGMENTATION, result)],
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


def table_of(table: Table, result: Result) -> Shown:
    """A table of the result, as people are shown it."""
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
    if key in ("state", "level"):
        return f"pill {str(row[key]).replace(' ', '-')}"
    if key not in ("rho", "before_rho", "rho_p5"):
        return ""
    amount = known(row.get(key))
    return "rho low" if amount is not None and amount < time_charts.FAIR.value else "rho"
