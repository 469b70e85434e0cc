"""A report's charts over time, and what all its charts share: figures, and a tenant's colour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_ltgf.core.report import STRETCHES
from slurm_ltgf.report import charts
from slurm_ltgf.report.axes import Axis, nice_step
from slurm_ltgf.report.report_tables import Column, Table, word
from slurm_ltgf.report.report_words import moment
from slurm_ltgf.report.series import Mark, Series
from slurm_ltgf.report.svg import COLOURS, described
from slurm_ltgf.report.words import elapsed, fixed, known, number, percent

Result = Mapping[str, Any]
#: Tenants with a colour of their own; the others are summed up in grey.
OWN_COLOURS = COLOURS - 1
FAIR = Mark(0.95, "0.95", shade=True)
SIZE = (700, 300)
#: Demand is drawn up to twice the capacity, and on to the next tick of so many.
BOUND_STEPS = 4


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its heading, one line on how to read it, and its legend: (class, words)."""

    title: str
    note: str
    svg: str
    legend: tuple[tuple[str, str], ...] = ()


def colours(result: Result) -> dict[str, int | None]:
    """Tenant -> colour's number, the same in every chart: the most entitled first."""
    rows = sorted(
        result["tenants"],
        key=lambda row: (-largest(row), row["tenant"]),
    )
    return {row["tenant"]: i if i < OWN_COLOURS else None for i, row in enumerate(rows)}


def largest(row: Mapping[str, Any]) -> float:
    """The larger of what a tenant was entitled to and what it attained."""
    return max(known(row["entitled_gpu_s"]) or 0.0, known(row["attained_gpu_s"]) or 0.0)


def held(result: Result, of: Mapping[str, int | None]) -> Figure:
    """Who held what, with capacity and what was waited for."""
    found = result["over_time"]
    x = [(one + two) / 2 for one, two in zip(found["edges"], found["edges"][1:], strict=False)]
    areas = _areas(found["held_gpus"], of)
    capacity = Series("in service", found["capacity_gpus"], None)
    wanted = Series("held and waited for", _wanted(found), None)
    most = max((v for v in map(known, found["capacity_gpus"]) if v is not None), default=None)
    bound = None if not most else BOUND_STEPS * nice_step(2 * most / BOUND_STEPS)
    is_more = bound is not None and max((v or 0 for v in wanted.values), default=0) > bound
    axis = Axis("GPUs", high=bound if is_more else None)
    title = "Who held what"
    drawn = charts.stacked_area(
        x,
        areas,
        title=title,
        x_axis=Axis(kind="date"),
        y_axis=axis,
        over=[capacity, wanted],
        size=SIZE,
    )
    used = known(result["figures"]["busy"])
    said = f"GPUs held by {', '.join(area.name for area in areas[::-1])} over the period; "
    said += f"{percent(used)} of the GPU-time was held" if used is not None else "capacity unknown"
    return Figure(
        title,
        f"GPUs held, mean of each {_step(found)}",
        described(drawn, said),
        (("over-0", "in service"), ("over-1", "held and waited for")),
    )


def _step(found: Mapping[str, Any]) -> str:
    return elapsed(found["edges"][1] - found["edges"][0])


def _areas(by_tenant: Mapping[str, Sequence[Any]], of: Mapping[str, int | None]) -> list[Series]:
    """The areas from the lowest to the highest; the small ones as one."""
    own = [Series(name, by_tenant[name], c) for name, c in of.items() if c is not None]
    rest = [by_tenant[name] for name, c in of.items() if c is None]
    if rest:
        own.append(Series(f"{len(rest)} others", _sums(rest), None))
    return own[::-1]


def _wanted(found: Mapping[str, Any]) -> list[float | None]:
    return _sums([*found["held_gpus"].values(), *found["waiting_gpus"].values()])


def _sums(columns: Sequence[Sequence[Any]]) -> list[float | None]:
    """The sum at each time; unknown where a part is."""
    return [
        None if any(known(v) is None for v in values) else math.fsum(values)
        for values in zip(*columns, strict=True)
    ]


def rho(result: Result, of: Mapping[str, int | None]) -> Figure:
    """Every large tenant's rho."""
    found = result["over_time"]
    lines = [Series(name, found["rho"][name], c) for name, c in of.items() if c is not None]
    title = "Did each get what it was due?"
    drawn = charts.line_chart(
        found["edges"][1:],
        lines,
        title=title,
        x_axis=Axis(kind="date"),
        y_axis=Axis("rho", low=0, high=2),
        marks=[FAIR],
        size=SIZE,
    )
    lows = [(min(there), one.name) for one in lines if (there := _known(one.values))]
    said = "rho over time; the lowest of each: "
    said += ", ".join(f"{name} {fixed(low, 2)}" for low, name in sorted(lows)) or "not known"
    back = elapsed(found["look_back_s"])
    note = f"rho over the {back} before; in the shade a tenant got too little"
    return Figure(title, note, described(drawn, said))


def _known(values: Sequence[Any]) -> list[float]:
    return [v for v in map(known, values) if v is not None]


#: The series as people read them: one row a moment, all tenants together.
BY_MOMENT = Table(
    "by_moment",
    "Over time, all tenants together",
    (
        Column("when", "Until, UTC", str, "end of the stretch", is_number=False),
        Column("held", "Held, GPUs", number, "mean of the stretch"),
        Column("waiting", "Waited for, GPUs", number, "mean of the stretch"),
        Column("capacity", "In service, GPUs", number, "mean of the stretch"),
        Column("worst", "Lowest rho", fixed, "of all tenants"),
        Column("who", "whose", word, "", is_number=False),
    ),
    most=STRETCHES,
)


def moments(result: Result) -> list[dict[str, Any]]:
    """The rows of that table."""
    found = result["over_time"]
    held, waiting = (_sums(list(found[key].values())) for key in ("held_gpus", "waiting_gpus"))
    rows = []
    for i, end in enumerate(found["edges"][1:]):
        rhos = [(v, name) for name, of in found["rho"].items() if (v := known(of[i])) is not None]
        worst, who = min(rhos, default=(None, None))
        rows.append(
            {
                "when": moment(end),
                "held": held[i] if held else None,
                "waiting": waiting[i] if waiting else None,
                "capacity": found["capacity_gpus"][i],
                "worst": worst,
                "who": who,
            }
        )
    return rows
