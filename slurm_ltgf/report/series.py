"""What charts are drawn from: named series, marks, bars; and how long series are thinned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurm_ltgf.report.axes import finite
from slurm_ltgf.report.words import known

MOST = 300
Point = tuple[float, float]
Value = float | int | None


@dataclass(frozen=True, slots=True)
class Series:
    """A named series: values beside the chart's x (None: unknown) and its colour's number.

    colour: the same number is the same colour in every chart; None is grey (a rest).
    """

    name: str
    values: Sequence[Value]
    colour: int | None


@dataclass(frozen=True, slots=True)
class Mark:
    """A value to compare with: a dashed line with a label; shaded below it if asked."""

    value: float
    label: str
    shade: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a bar chart: its value (None: unknown), the words for it, and whether it is best."""

    name: str
    value: Value
    words: str
    best: bool = False
    colour: int | None = None


def thin(values: Sequence[Value], most: int = MOST) -> list[int]:
    """Positions to draw: all, or each stretch's lowest and highest; a stretch of gaps stays one.

    >>> thin([0, 9, 1, 2, 3, -5, 4, 4], most=4)
    [0, 1, 5, 7]
    """
    if len(values) <= most:
        return list(range(len(values)))
    chosen: list[int] = []
    for begin, end in stretches(len(values), most // 2):
        there = [(v, i) for i in range(begin, end) if (v := known(values[i])) is not None]
        chosen += sorted({min(there)[1], max(there)[1]}) if there else [begin]
    return chosen


def stretches(n: int, parts: int) -> Iterator[tuple[int, int]]:
    """Cut n positions into so many stretches, begin and end of each."""
    for part in range(parts):
        yield part * n // parts, (part + 1) * n // parts


def evenly(stair: list[Point]) -> list[Point]:
    """At most MOST steps of a staircase, its last one among them."""
    if len(stair) <= MOST:
        return stair
    return [stair[end - 1] for _, end in stretches(len(stair), MOST)]


def stairs_of(values: Sequence[Value], levels: Sequence[float] | None) -> list[Point]:
    """The rising steps (value, part at or below it) of quantiles, or of a sample."""
    if levels is None:
        there = sorted(finite(values))
        return [(value, (i + 1) / len(there)) for i, value in enumerate(there)]
    pairs = zip(map(known, values), levels, strict=True)
    return [(value, level) for value, level in pairs if value is not None]


def stack(x: Sequence[float], series: Sequence[Series]) -> tuple[list[float], list[list[float]]]:
    """Times and, at each, the running sums from 0 over the series; [] where one is unknown."""
    times, sums = [], []
    for begin, end in stretches(len(x), min(len(x), MOST)):
        means = []
        for one in series:
            there = finite(one.values[begin:end])
            means.append(sum(there) / len(there) if there else None)
        times.append(x[(begin + end - 1) // 2])
        heights = [m for m in means if m is not None]
        sums.append(running(heights) if len(heights) == len(means) else [])
    return times, sums


def running(heights: Sequence[float]) -> list[float]:
    """Running sums from 0; what is below 0 counts as 0."""
    sums = [0.0]
    for height in heights:
        sums.append(sums[-1] + max(height, 0.0))
    return sums


def same_length(x: Sequence[float], series: Sequence[Series]) -> None:
    """Refuse series that are not as long as the axis."""
    for one in series:
        if len(one.values) != len(x):
            raise ValueError(f"{one.name}: {len(one.values)} values beside {len(x)} on the axis")
