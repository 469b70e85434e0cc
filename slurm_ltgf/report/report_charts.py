"""The charts of a report, each with a heading, a note on how to read it, and a description."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from slurm_ltgf.report import rows_charts
from slurm_ltgf.report.axes import Axis
from slurm_ltgf.report.report_tables import CAUSES
from slurm_ltgf.report.rows_charts import Bullet, Parts, step_of
from slurm_ltgf.report.svg import COLOURS, described
from slurm_ltgf.report.time_charts import Figure, largest
from slurm_ltgf.report.words import (
    DASH,
    counted,
    duration,
    fixed,
    gpu_hours,
    known,
    number,
    percent,
)

Result = Mapping[str, Any]
#: Widths of a chart that stands alone, and of one beside another.
WIDE, HALF = 1180, 700
#: Rows of a chart by tenant; the table has all.
MOST_ROWS = 24
#: Seconds from which a wait is of the next deeper colour.
WAIT_STEPS = (60, 600, 3600, 6 * 3600)
#: Parts of the busiest from which a node is of the next deeper colour.
USE_STEPS = (0.2, 0.4, 0.6, 0.8)
CLASS_PARTS = (("loss", "Loss"), ("fair", "Fair"), ("benefit", "Benefit"), ("no_share", "No share"))


def balance(result: Result, of: Mapping[str, int | None]) -> Figure:
    """Attained against entitled."""
    rows = {row["tenant"]: row for row in result["tenants"]}
    shown = [rows[name] for name in of if largest(rows[name]) > 0][:MOST_ROWS]
    bars = [
        Bullet(
            row["tenant"],
            _in_hours(row["attained_gpu_s"]),
            _in_hours(row["entitled_gpu_s"]),
            f"{gpu_hours(row['attained_gpu_s'])} h, {_share(row)}",
            f"{row['tenant']}\nattained {gpu_hours(row['attained_gpu_s'])} GPU-hours\n"
            f"entitled {gpu_hours(row['entitled_gpu_s'])} GPU-hours\nrho {fixed(row['rho'])}",
            of[row["tenant"]],
        )
        for row in shown
    ]
    title = "Entitlement against attained"
    drawn = rows_charts.bullets(bars, title=title, axis=Axis("GPU-hours"), width=WIDE)
    said = "; ".join(f"{bar.name} {bar.words}" for bar in bars)
    note = (
        "GPU-hours; the stroke is what a fair split of all GPUs over time would have given, the "
        "bar what the tenant held"
    )
    return Figure(title, note, described(drawn, said or "nobody used or wanted GPUs"))


def _share(row: Mapping[str, Any]) -> str:
    return "no entitlement" if row["share"] is None else f"{percent(row['share'])} of it"


def waiting(result: Result, of: Mapping[str, int | None]) -> Figure:
    """Typical wait by tenant and size."""
    rows = {(row["tenant"], row["gpus"]): row for row in result["waits"]}
    there = {size for _, size in rows}
    sizes = sorted(there, key=lambda size: (size != "all", _first(size)))
    names = [name for name in of if (name, "all") in rows][:MOST_ROWS]
    cells = [[_wait_cell(rows.get((name, size)), name, size) for size in sizes] for name in names]
    title = "How long jobs waited, by tenant and GPUs of a job"
    drawn = rows_charts.heat(names, sizes, cells, title=title, width=WIDE)
    said = "; ".join(f"{name} {duration(rows[name, 'all']['median_wait_s'])}" for name in names)
    return Figure(
        title,
        "wait from eligible to start that half of the jobs did not exceed; the deeper, the longer",
        described(drawn, f"median waits of jobs of all sizes: {said or 'none'}"),
        tuple(zip(("h0", "h1", "h2", "h3", "h4"), _wait_words(), strict=True)),
    )


def _wait_words() -> list[str]:
    return ["under 1 min", "1 min and more", "10 min", "1 h", "6 h and more"]


def _first(size: str) -> float:
    return 0.5 if size == "<1" else float(size.split("-")[0]) if size != "all" else 0


def _wait_cell(row: Mapping[str, Any] | None, name: str, size: str) -> tuple[int | None, str, str]:
    if row is None or not row["starts"]:
        waits = "" if row is None else f"\n{number(row['waiting'])} still wait"
        return None, "", f"{name}, {size} GPUs: none started{waits}"
    said = (
        f"{name}, {size} GPUs: {number(row['starts'])} started\nhalf within "
        f"{duration(row['median_wait_s'])}, 90 % within {duration(row['p90_wait_s'])}\n"
        f"longest {duration(row['max_wait_s'])}; {number(row['waiting'])} still wait"
    )
    return step_of(row["median_wait_s"], WAIT_STEPS), duration(row["median_wait_s"]), said


def classes(result: Result, of: Mapping[str, int | None]) -> Figure:
    """Jobs of each tenant by class, as parts of all its jobs."""
    rows = {row["tenant"]: row for row in result["classes"]}
    bars = []
    for name in [name for name in of if name in rows][:MOST_ROWS]:
        row = rows[name]
        values = [row[key] / row["jobs"] for key, _ in CLASS_PARTS]
        words = f"{counted(row['jobs'], 'job')}, {percent(values[0])} loss"
        bars.append(Parts(name, values, words))
    title = "Jobs by what they got of their part"
    axis = Axis(kind="percent", low=0, high=1)
    drawn = rows_charts.part_bars(
        bars, [t for _, t in CLASS_PARTS], title=title, axis=axis, width=WIDE
    )
    said = "; ".join(f"{bar.name} {bar.words}" for bar in bars)
    return Figure(
        title,
        "loss: less than 95 % of the job's part of its tenant's quota; benefit: more than 105 %",
        described(drawn, said or "no jobs"),
        tuple((f"p{i}", words) for i, (_, words) in enumerate(CLASS_PARTS)),
    )


def partitions(result: Result) -> Figure:
    """GPU-hours of each partition and GPU type."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for row in result["where"]:
        sums[row["partition"] or DASH, row["gpu_type"] or "any type"] += row["gpu_s"]
    ordered = sorted(sums, key=lambda key: (-sums[key], key))[:MOST_ROWS]
    kinds = sorted({kind for _, kind in ordered})
    bars = [
        Bullet(
            f"{name}, {kind}" if len(kinds) > 1 else name,
            _in_hours(sums[name, kind]),
            None,
            f"{gpu_hours(sums[name, kind])} h",
            f"{name}, {kind}: {gpu_hours(sums[name, kind])} GPU-hours",
            kinds.index(kind) % COLOURS,
        )
        for name, kind in ordered
    ]
    title = "By partition and GPU type"
    drawn = rows_charts.bullets(bars, title=title, axis=Axis("GPU-hours"), width=HALF)
    said = "; ".join(f"{bar.name} {bar.words}" for bar in bars)
    return Figure(title, "GPU-hours held; physical GPUs", described(drawn, said or "none"))


def nodes(result: Result) -> list[Figure]:
    """Every node's GPU-hours, as a field of squares; nothing where no node is known."""
    sums: dict[str, float] = defaultdict(float)
    for row in result["where"]:
        if row["node"] is not None:
            sums[row["node"]] += row["gpu_s"]
    most = max(sums.values(), default=0.0)
    if not most:
        return []
    cells = [
        (name, step_of(sums[name] / most, USE_STEPS), f"{name}: {gpu_hours(sums[name])} GPU-hours")
        for name in sorted(sums)
    ]
    title = f"By node ({number(len(cells))})"
    drawn = rows_charts.field(cells, title=title, width=HALF)
    said = f"{counted(len(cells), 'node')}; the busiest has {gpu_hours(most)} GPU-hours"
    note = "a square a node, by name; the deeper, the more GPU-hours of the busiest one's"
    return [Figure(title, note, described(drawn, said))]


def requeues(result: Result, of: Mapping[str, int | None]) -> Figure:
    """Work of runs that ended to start again: saved and lost, by tenant."""
    sums: dict[str, list[float]] = {}
    counts: dict[str, int] = defaultdict(int)
    for row in result["requeues"]:
        pair = sums.setdefault(row["tenant"], [0.0, 0.0])
        pair[0] += row["lost_gpu_s"] / 3600
        pair[1] += row["saved_gpu_s"] / 3600
        counts[row["tenant"]] += row["runs"]
    bars = [
        Parts(name, sums[name], f"{counted(counts[name], 'run')}, {number(sums[name][0])} h lost")
        for name in [name for name in of if name in sums][:MOST_ROWS]
    ]
    title = "Work of runs that ended to start again"
    names = ("lost, GPU-hours", "saved, GPU-hours")
    drawn = rows_charts.part_bars(bars, names, title=title, axis=Axis("GPU-hours"), width=WIDE)
    said = "; ".join(f"{bar.name} {bar.words}" for bar in bars)
    return Figure(
        title,
        f"GPU-hours held by runs that were {', '.join(list(CAUSES.values())[:3])}",
        described(drawn, said or "none"),
        (("p0", "lost"), ("p1", "saved")),
    )


def _in_hours(gpu_s: Any) -> float | None:
    amount = known(gpu_s)
    return None if amount is None else amount / 3600
