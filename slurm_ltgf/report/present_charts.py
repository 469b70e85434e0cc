"""A report's charts of the present: what is left of budgets, and what could use the free GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurm_ltgf.report import charts, rows_charts
from slurm_ltgf.report.axes import Axis
from slurm_ltgf.report.report_charts import HALF, MOST_ROWS, WIDE
from slurm_ltgf.report.report_tables import when
from slurm_ltgf.report.rows_charts import Parts
from slurm_ltgf.report.series import Mark, Series
from slurm_ltgf.report.svg import described
from slurm_ltgf.report.time_charts import OWN_COLOURS, SIZE, Figure
from slurm_ltgf.report.words import fixed, gpu_hours, known, number, percent

Result = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]
#: Budgets with a line of their own, the nearest to their end.
LINES = 8
#: Colours of the parts of a budget, and of a pool.
USED, HELD = (1, 4, 2), (1, 2, 0)


def left(budgets: Result) -> Figure:
    """Of each budget what is used, what running jobs hold, and what is left."""
    bars = [_bar(row) for row in _with_budget(budgets["rows"])[:MOST_ROWS]]
    title = "What is left"
    axis = Axis(kind="percent", low=0)
    names = ("used", "held by running jobs", "left")
    drawn = rows_charts.part_bars(bars, names, title=title, axis=axis, width=HALF, kinds=USED)
    said = "; ".join(f"{bar.name}: {bar.words}" for bar in bars)
    note = "parts of each budget; running jobs hold what they would use up to their time limits"
    return Figure(title, note, described(drawn, said or "no budget"), _legend(names, USED))


def _with_budget(rows: Rows) -> Rows:
    return [row for row in rows if row["budget_gpu_s"]]


def _bar(row: Mapping[str, Any]) -> Parts:
    budget = row["budget_gpu_s"]
    used = (known(row["ratio"]) or 0.0, known(row["held_gpu_s"]))
    held = max(1 - used[0], 0.0) if used[1] is None else used[1] / budget
    rest = known(row["left_gpu_s"])
    words = "limits unknown" if rest is None else f"{gpu_hours(abs(rest))} h {_side(rest)}"
    return Parts(row["account"], [used[0], held, max(1 - used[0] - held, 0.0)], words)


def _side(rest: float) -> str:
    return "left" if rest >= 0 else "over"


def courses(budgets: Result) -> Figure:
    """What was and will be left of budgets over time, at the recent rate."""
    rows = [row for row in _with_budget(budgets["rows"]) if row["times"]][:LINES]
    times = rows[0]["times"] if rows else []
    lines = [Series(row["account"], row["left"], i % OWN_COLOURS) for i, row in enumerate(rows)]
    title = "Until when they last"
    now = Mark(budgets["at"], "now")
    drawn = charts.line_chart(
        times,
        lines,
        title=title,
        x_axis=Axis(kind="date"),
        y_axis=Axis("left", "percent", low=0, high=1),
        uprights=[now] if times else [],
        size=SIZE,
    )
    said = "; ".join(
        f"{row['account']} {percent(row['left'][-1])} left at the end"
        + (f", runs out {when(row['exhausted_at'])} UTC" if row["exhausted_at"] else "")
        for row in rows
    )
    note = "parts of each budget; after the stroke, if GPUs are held on as lately"
    return Figure(title, note, described(drawn, said or "no budget of GPUs"))


def pools(found: Result) -> Figure:
    """GPUs of each pool: held, free for what is asked for, free for nobody."""
    bars = []
    for row in found["rows"][:MOST_ROWS]:
        free = row["free_gpus"]
        lost = min(known(row["unallocatable_gpus"]) or 0.0, free)
        stuck = free - row["usable_gpus"]
        idle = max(free - lost - stuck, 0)
        score = "nothing free" if not free else f"score {fixed(row['score'], 2)}"
        words = f"{number(free)} of {number(row['gpus'])} free, {score}"
        bars.append(Parts(row["pool"], [row["gpus"] - free, idle, lost + stuck], words))
    title = "Free GPUs by partition and type"
    names = ("held", "free", "free, but not for what is asked for")
    drawn = rows_charts.part_bars(
        bars, names, title=title, axis=Axis("GPUs"), width=WIDE, kinds=HELD
    )
    said = "; ".join(f"{bar.name}: {bar.words}" for bar in bars)
    note = "score: the part of the free GPUs that a job asked for, taken at random, could not have"
    return Figure(title, note, described(drawn, said or "no GPUs"), _legend(names, HELD))


def _legend(names: Sequence[str], kinds: Sequence[int]) -> tuple[tuple[str, str], ...]:
    return tuple((f"p{kind}", words) for kind, words in zip(kinds, names, strict=True))
