"""Charts as inline SVG from plain lists: lines, stacked areas, step CDFs, horizontal bars.

Every function answers one `<svg>` as text, without script, identifier or outside resource; a page
that shows it includes templates/charts.css. None, NaN and infinite values are gaps: unknown is not
zero. Series of more than `MOST` points are thinned: lines keep each stretch's lowest and highest
value, stacked areas its mean. Names may be hostile: all text is escaped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from slurm_ltgf.report.axes import Axis, finite, scale_over
from slurm_ltgf.report.series import (
    Bar,
    Mark,
    Point,
    Series,
    Value,
    evenly,
    running,
    same_length,
    stack,
    stairs_of,
    thin,
)
from slurm_ltgf.report.svg import (
    LABEL_CELLS,
    Frame,
    apart,
    colour_class,
    frame,
    group,
    line,
    nothing,
    path,
    rect,
    svg,
    text,
    tooltip,
)
from slurm_ltgf.report.words import DASH, known, number, shorten

HITS = 48


def line_chart(
    x: Sequence[float],
    series: Sequence[Series],
    *,
    title: str,
    x_axis: Axis,
    y_axis: Axis,
    marks: Sequence[Mark] = (),
    uprights: Sequence[Mark] = (),
    size: tuple[int, int] = (760, 280),
) -> str:
    """Lines over x, each with its name at its right end.

    x: n values, rising; each series n values, else ValueError. size: width, height in pixels.
    uprights: marks at values of x.
    """
    same_length(x, series)
    ys = [v for one in series for v in finite(one.values)] + [mark.value for mark in marks]
    plot = frame(x, ys, x_axis, y_axis, size=size, right=130)
    ends = [_last(one.values, plot) for one in series]
    labels = apart([end + 4 for end in ends], plot.top + 4, plot.bottom)
    drawn = []
    for one, height in zip(series, labels, strict=True):
        pieces = list(_pieces(plot, x, one.values))
        if pieces:
            name = text(plot.right + 8, height, one.name, "label", LABEL_CELLS)
            span = f"{one.name}\n{_span(plot, one.values)}"
            drawn.append(group(one.colour, [tooltip(span), path(pieces, "line"), name]))
    lines = [*_marks(plot, marks), *_marks(plot, uprights, upright=True)]
    parts = [*_shades(plot, marks), *drawn, *lines, *_hits(plot, x, series)]
    return plot.draw(title, parts if drawn else [nothing(plot)])


def stacked_area(
    x: Sequence[float],
    series: Sequence[Series],
    *,
    title: str,
    x_axis: Axis,
    y_axis: Axis,
    column: Sequence[Value] | None = None,
    column_title: str = "",
    over: Sequence[Series] = (),
    marks: Sequence[Mark] = (),
    size: tuple[int, int] = (760, 300),
) -> str:
    """Areas on top of each other, the first one lowest, each with its name at the right.

    x: n values, rising; each series n values, else ValueError. Where one value is unknown the whole
    stack has a gap; a series without any value is left out. column: one value a series, stacked the
    same way at the right edge, to compare with (a quota).
    """
    same_length(x, series)
    column = list(column) if column is not None else [None] * len(series)
    kept = [(s, c) for s, c in zip(series, column, strict=True) if finite(s.values)]
    shown = [one for one, _ in kept]
    times, sums = stack(x, shown)
    dues = running([known(c) or 0.0 for _, c in kept])
    tops = [s[-1] for s in sums if s] + dues[-1:] + [mark.value for mark in marks]
    tops += [v for one in over for v in finite(one.values)]
    plot = frame(x, tops, x_axis, y_axis, size=size, right=152)
    ends = dues if dues[-1] > 0 else next((s for s in reversed(sums) if s), dues)
    middles = [(plot.y.at(a) + plot.y.at(b)) / 2 + 4 for a, b in pairwise(ends)]
    labels = apart(middles, plot.top + 4, plot.bottom)
    drawn = []
    for i, one in enumerate(shown):
        marks_of = [tooltip(one.name), path(_ribbons(plot, times, sums, i), "area", closed=True)]
        low, high = plot.y.at(dues[i]), plot.y.at(dues[i + 1])
        if low > high:
            marks_of.append(rect(plot.right + 6, high, (14, low - high), "area", one.name))
        marks_of.append(text(plot.right + 26, labels[i], one.name, "label", LABEL_CELLS))
        drawn.append(group(one.colour, marks_of))
    if column_title and dues[-1] > 0:
        drawn.append(text(plot.right + 6, 11, column_title, "axis-title"))
    lines = [_line_over(plot, x, one, i) for i, one in enumerate(over)]
    parts = [*drawn, *lines, *_marks(plot, marks), *_hits(plot, x, [*over, *shown[::-1]])]
    return plot.draw(title, parts if shown else [nothing(plot)])


def step_cdf(
    series: Sequence[Series],
    *,
    title: str,
    x_axis: Axis,
    levels: Sequence[float] | None = None,
    marks: Sequence[Mark] = (),
    size: tuple[int, int] = (400, 300),
) -> str:
    """What part of all is at or below x: one rising staircase a series.

    Each series' values are its quantiles at `levels` (0..1, rising; the same number of them, else
    ValueError), or without levels a sample in any order. Unknown values are left out. Names are
    shown in tooltips alone: a page shows one legend for its charts.
    """
    if levels is not None:
        same_length(levels, series)
    stairs = [stairs_of(one.values, levels) for one in series]
    xs = [x for stair in stairs for x, _ in stair] + [mark.value for mark in marks]
    plot = frame(xs, (0.0, 1.0), x_axis, Axis(kind="percent", low=0, high=1), size=size, right=16)
    drawn = []
    for one, stair in zip(series, stairs, strict=True):
        corners: list[Point] = []
        before = plot.bottom
        for value, level in evenly(stair):
            across, up = plot.x.at(value) if _drawable(plot, value) else plot.left, plot.y.at(level)
            corners += [(across, before), (across, up)]
            before = up
        if corners:
            corners.append((plot.right, before))
            drawn.append(group(one.colour, [tooltip(one.name), path([corners], "line")]))
    hits = _level_hits(plot, series, stairs)
    parts = [*_shades(plot, marks, upright=True), *drawn, *_marks(plot, marks, upright=True), *hits]
    return plot.draw(title, parts if drawn else [nothing(plot)])


def bars(
    rows: Sequence[Bar],
    *,
    title: str,
    axis: Axis | None = None,
    marks: Sequence[Mark] = (),
    width: int = 400,
) -> str:
    """Horizontal bars from 0, one a row in the given order, each with its words at its end."""
    rows = list(rows)
    left = 8 + 6.4 * max((len(shorten(row.name, LABEL_CELLS)) for row in rows), default=0)
    values = [*finite([row.value for row in rows]), *(mark.value for mark in marks), 0.0]
    scale = scale_over(values, axis or Axis(), left, width - 76)
    height = 20 * len(rows) + 8
    parts = [line(scale.at(0), 2, scale.at(0), height - 2, "axis")]
    for i, row in enumerate(rows):
        top, value = 20.0 * i + 4, known(row.value)
        end, zero = scale.at(value or 0), scale.at(0)
        name = text(left - 6, top + 12, row.name, "label end", LABEL_CELLS)
        words = text(max(end, zero) + 6, top + 12, row.words or DASH, "label value")
        box = rect(min(zero, end), top, (abs(end - zero), 15), "bar") if value is not None else ""
        kind = "best" if row.best else "plain" if row.colour is None else colour_class(row.colour)
        said = tooltip(f"{row.name}: {row.words}")
        parts.append(f'<g class="series {kind}">{said}{box}{name}{words}</g>')
    for mark in marks:
        at = scale.at(mark.value)
        parts.append(line(at, 0, at, height, "mark"))
    return svg(width, height, title, parts)


def _line_over(plot: Frame, x: Sequence[float], one: Series, i: int) -> str:
    """A line above areas; its name is in the legend and the tooltips."""
    drawn = path(_pieces(plot, x, one.values), "over")
    return f'<g class="over-line-{i}">{tooltip(one.name)}{drawn}</g>'


def _ribbons(
    plot: Frame, times: list[float], sums: list[list[float]], i: int
) -> Iterator[list[Point]]:
    """The i-th area as closed pieces, one between each two gaps."""
    upper: list[Point] = []
    lower: list[Point] = []
    for time, heights in zip([*times, 0.0], [*sums, []], strict=True):
        if heights:
            upper.append((plot.x.at(time), plot.y.at(heights[i + 1])))
            lower.append((plot.x.at(time), plot.y.at(heights[i])))
        elif upper:
            yield upper + lower[::-1]
            upper, lower = [], []


def _pieces(plot: Frame, x: Sequence[float], values: Sequence[Value]) -> Iterator[list[Point]]:
    """A line's pieces in pixels, one between each two gaps."""
    piece: list[Point] = []
    for i in thin(values):
        value = known(values[i])
        if value is not None and (value > 0 or not plot.y.axis.log):
            piece.append((plot.x.at(x[i]), plot.y.at(value)))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _shades(plot: Frame, marks: Sequence[Mark], *, upright: bool = False) -> Iterator[str]:
    """What lies below (upright: left of) each mark that is to be shaded."""
    for mark in marks:
        if mark.shade and upright:
            width = plot.x.at(mark.value) - plot.left
            yield rect(plot.left, plot.top, (width, plot.bottom - plot.top), "shade")
        elif mark.shade:
            at = plot.y.at(mark.value)
            yield rect(plot.left, at, (plot.right - plot.left, plot.bottom - at), "shade")


def _marks(plot: Frame, marks: Sequence[Mark], *, upright: bool = False) -> Iterator[str]:
    for mark in marks:
        if upright:
            at = plot.x.at(mark.value)
            yield line(at, plot.top, at, plot.bottom, "mark")
            yield text(at + 4, plot.top + 10, mark.label, "mark-label")
        else:
            at = plot.y.at(mark.value)
            yield line(plot.left, at, plot.right, at, "mark")
            yield text(plot.left + 4, at - 4, mark.label, "mark-label")


def _hits(plot: Frame, x: Sequence[float], series: Sequence[Series]) -> Iterator[str]:
    """Invisible strips over the plot whose tooltips say every value at their middle."""
    if not len(x):
        return
    pixels = [plot.x.at(value) for value in x]
    strips = min(len(x), HITS)
    width = (plot.right - plot.left) / strips
    for strip in range(strips):
        middle = plot.left + (strip + 0.5) * width
        after = min(bisect_left(pixels, middle), len(x) - 1)
        i = min((max(after - 1, 0), after), key=lambda i: abs(pixels[i] - middle))
        values = [(one.name, known(one.values[i])) for one in series]
        said = [f"{name}  {DASH if v is None else plot.y.say(v)}" for name, v in values]
        words = "\n".join([plot.x.say(x[i]), *said])
        area = (width, plot.bottom - plot.top)
        yield rect(plot.left + strip * width, plot.top, area, "hit", words)


def _level_hits(
    plot: Frame, series: Sequence[Series], stairs: Sequence[list[Point]]
) -> Iterator[str]:
    """Invisible bands whose tooltips say what so many percent of all stay below."""
    height = (plot.bottom - plot.top) / 20
    for band in range(20):
        level = (band + 0.5) / 20
        said = []
        for one, stair in zip(series, stairs, strict=True):
            value = next((v for v, q in stair if q >= level - 1e-9), None)
            said.append(f"{one.name}  {DASH if value is None else plot.x.say(value)}")
        words = "\n".join([f"{number(100 * level)} % are at or below", *said])
        top = plot.bottom - (band + 1) * height
        yield rect(plot.left, top, (plot.right - plot.left, height), "hit", words)


def _drawable(plot: Frame, value: float) -> bool:
    return value > 0 or not plot.x.axis.log


def _last(values: Sequence[Value], plot: Frame) -> float:
    """Height in pixels of the last known value."""
    there = finite(values)
    return plot.y.at(there[-1]) if there else plot.bottom


def _span(plot: Frame, values: Sequence[Value]) -> str:
    there = finite(values)
    return f"from {plot.y.say(min(there))} to {plot.y.say(max(there))}"
