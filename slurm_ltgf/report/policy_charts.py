"""The charts of the simulation's page: policies over time, their jobs, and each one's tenants."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from slurm_ltgf.report import charts
from slurm_ltgf.report.axes import Axis, finite
from slurm_ltgf.report.series import Mark, Series
from slurm_ltgf.report.svg import COLOURS
from slurm_ltgf.report.words import elapsed, known, number

#: Tenants with a colour of their own; the others are summed up in grey.
OWN_COLOURS = COLOURS - 1
FAIR = Mark(0.95, "0.95", shade=True)
TIME = Axis("time since the trace began", "seconds")
RHO = Axis("rho", low=0, high=2)
WORST = Axis("lowest rho", low=0, high=1.2)
SIZE = (620, 280)
#: A chart of all policies ends so many times later than half of them do.
LONGER = 1.25
#: Key of the quantiles, title, note, axis, marks.
DISTRIBUTIONS: tuple[tuple[str, str, str, Axis, tuple[Mark, ...]], ...] = (
    ("jct_s", "Completion time", "further left is sooner", Axis(kind="seconds", log=True), ()),
    ("wait_s", "Wait", "further left is sooner", Axis(kind="seconds", log=True, low=1), ()),
    (
        "job_rho",
        "Job rho",
        "the lower the line at 0.95, the fewer jobs got too little",
        Axis(low=0, high=2),
        (FAIR,),
    ),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its heading and one line on how to read it."""

    title: str
    note: str
    svg: str


def tenant_colours(policies: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """Tenant -> colour's number, the same under every policy; None for all but the largest.

    The order of the result is that of the page: by quota, the largest first, then by name.
    """
    quotas: dict[str, float] = {}
    for policy in policies:
        for row in policy.get("tenants") or []:
            quotas.setdefault(row["tenant"], known(row.get("quota_gpus")) or 0.0)
        for name in series(policy, "held_gpus") | series(policy, "rho"):
            quotas.setdefault(name, 0.0)
    ordered = sorted(quotas, key=lambda name: (-quotas[name], name))
    return {name: i if i < OWN_COLOURS else None for i, name in enumerate(ordered)}


def over_time(policies: Sequence[Mapping[str, Any]], gpus: Any) -> list[Figure]:
    """The tenant that is worst off and the GPUs in use, one line a policy."""
    timed = [(i, policy) for i, policy in enumerate(policies) if times(policy)]
    if not timed:
        return []
    grid = sorted({t for _, policy in timed for t in times(policy)})
    end = LONGER * median(times(policy)[-1] for _, policy in timed)
    cut = f"; {elapsed(grid[-1])} in all, here the first {elapsed(end)}" if grid[-1] > end else ""
    grid = [t for t in grid if t <= end or not cut]
    worst = [
        Series(policy["policy"], _on(grid, policy, _across(policy, "rho", min)), i)
        for i, policy in timed
    ]
    busy = [
        Series(policy["policy"], _on(grid, policy, _across(policy, "held_gpus", sum)), i)
        for i, policy in timed
    ]
    return [
        Figure(
            "The tenant that is worst off",
            f"lowest rho of all tenants; below the line somebody gets too little{cut}",
            charts.line_chart(
                grid,
                worst,
                title="Lowest rho of all tenants under each policy",
                x_axis=TIME,
                y_axis=WORST,
                marks=[FAIR],
                size=SIZE,
            ),
        ),
        Figure(
            "GPUs in use",
            f"all tenants together{cut}",
            charts.line_chart(
                grid,
                busy,
                title="GPUs in use under each policy",
                x_axis=TIME,
                y_axis=Axis("GPUs"),
                marks=_capacity(gpus),
                size=SIZE,
            ),
        ),
    ]


def distributions(policies: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Staircases over all jobs, one line a policy: completion time, wait, rho."""
    found = []
    for key, title, note, axis, marks in DISTRIBUTIONS:
        having = [
            (i, policy["policy"], policy["quantiles"])
            for i, policy in enumerate(policies)
            if (policy.get("quantiles") or {}).get(key)
        ]
        if having:
            levels = having[0][2]["levels"]
            shown = [Series(name, own[key], i) for i, name, own in having]
            name = f"{title}, part of all jobs"
            drawn = charts.step_cdf(shown, title=name, x_axis=axis, levels=levels, marks=marks)
            found.append(Figure(title, note, drawn))
    return found


def tenant_charts(
    policy: Mapping[str, Any], colours: Mapping[str, int | None], gpus: Any
) -> list[Figure]:
    """Who held what beside the quotas, and every large tenant's rho."""
    if not times(policy):
        return []
    rho, areas = series(policy, "rho"), _areas(policy, colours)
    lines = [Series(t, rho[t], c) for t, c in colours.items() if c is not None and t in rho]
    return [
        Figure(
            "Who held what",
            "GPUs held, beside each tenant's quota",
            charts.stacked_area(
                times(policy),
                [area for area, _ in areas],
                title=f"{policy['policy']}: GPUs held by each tenant",
                x_axis=TIME,
                y_axis=Axis("GPUs"),
                column=[quota for _, quota in areas],
                column_title="quota",
                marks=_capacity(gpus),
                size=SIZE,
            ),
        ),
        Figure(
            "Did each get what it was due?",
            "rho over the 24 hours before; below the line a tenant got too little",
            charts.line_chart(
                times(policy),
                lines,
                title=f"{policy['policy']}: rho of each tenant",
                x_axis=TIME,
                y_axis=RHO,
                marks=[FAIR],
                size=SIZE,
            ),
        ),
    ]


def _areas(
    policy: Mapping[str, Any], colours: Mapping[str, int | None]
) -> list[tuple[Series, float | None]]:
    """The areas from the lowest to the highest, each with its quota; the small ones as one."""
    held = series(policy, "held_gpus")
    rows = policy.get("tenants") or []
    quotas = {row["tenant"]: known(row.get("quota_gpus")) for row in rows}
    areas = [
        (Series(name, held[name], colour), quotas.get(name))
        for name, colour in colours.items()
        if colour is not None and name in held
    ]
    rest = [name for name, colour in colours.items() if colour is None and name in held]
    if rest:
        due = sum(quotas.get(name) or 0.0 for name in rest)
        areas.append((Series(f"{len(rest)} others", _sums([held[n] for n in rest]), None), due))
    return areas[::-1]


def _capacity(gpus: Any) -> list[Mark]:
    return [] if known(gpus) is None else [Mark(float(gpus), f"{number(gpus)} GPUs")]


def times(policy: Mapping[str, Any]) -> list[float]:
    """Times of a policy's series, in seconds; [] where it has none."""
    return [float(t) for t in (policy.get("series") or {}).get("times_s") or []]


def series(policy: Mapping[str, Any], key: str) -> dict[str, list[Any]]:
    """Tenant -> values at those times; {} where the policy has none."""
    return dict((policy.get("series") or {}).get(key) or {})


def _across(
    policy: Mapping[str, Any], key: str, reduce: Callable[[list[float]], float]
) -> list[float | None]:
    """The tenants' values put together at each time, those that are known."""
    columns = zip(*series(policy, key).values(), strict=True)
    found = [finite(column) for column in columns] or [[] for _ in times(policy)]
    return [reduce(column) if column else None for column in found]


def _on(
    grid: Sequence[float], policy: Mapping[str, Any], values: Sequence[float | None]
) -> list[float | None]:
    """A policy's values at other times: the last one before, unknown before and after all."""
    own = times(policy)
    at = [bisect_right(own, t) - 1 if t <= own[-1] else -1 for t in grid]
    return [values[i] if i >= 0 else None for i in at]


def _sums(columns: Sequence[Sequence[Any]]) -> list[float | None]:
    """The sum at each time; unknown where a part is."""
    rows = [(finite(values), len(values)) for values in zip(*columns, strict=True)]
    return [sum(there) if len(there) == n else None for there, n in rows]
