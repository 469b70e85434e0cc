"""Charts of rows, as inline SVG: bars against a mark, bars in parts, a heat map, a field of cells.

As in `charts`: no script, identifier or outside resource, unknown is a dash or an empty place, and
all text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_ltgf.report.axes import Axis, Scale, finite, scale_over
from slurm_ltgf.report.series import Value
from slurm_ltgf.report.svg import LABEL_CELLS, group, line, rect, svg, text, tooltip
from slurm_ltgf.report.words import known, shorten

ROW, BAR = 24.0, 15.0
#: Pixels for the words at a bar's end.
ROOM = 150
#: Colours that parts may have.
STEPS = 5
#: Sides of a field's squares, the largest that fit in so many rows; cells of their names.
SIDES, ROWS_OF_CELLS, NAME_CELLS = (63, 38, 24, 16, 10), 5, 8


@dataclass(frozen=True, slots=True)
class Bullet:
    """A bar and what it is measured against. words: at its end; said: its tooltip."""

    name: str
    value: Value
    against: Value
    words: str
    said: str
    colour: int | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """A bar in parts, one value a part. words: at its end."""

    name: str
    values: Sequence[Value]
    words: str


def bullets(rows: Sequence[Bullet], *, title: str, axis: Axis, width: int = 760) -> str:
    """Horizontal bars from 0, each over a pale one that ends, with a stroke, where it should."""
    left, scale, height = _frame(
        [row.name for row in rows],
        [value for row in rows for value in (row.value, row.against)],
        axis,
        width,
    )
    parts = _grid(scale, height)
    for i, row in enumerate(rows):
        top = ROW * i + 8
        value, against = known(row.value), known(row.against)
        drawn = [tooltip(row.said)]
        if against is not None:
            drawn.append(rect(left, top, (scale.at(against) - left, BAR), "due"))
        if value is not None:
            drawn.append(rect(left, top + 3, (scale.at(value) - left, BAR - 6), "bar"))
        if against is not None:
            at = scale.at(against)
            drawn.append(line(at, top - 2, at, top + BAR + 2, "should"))
        drawn.append(text(left - 8, top + 12, row.name, "label end", LABEL_CELLS))
        end = max(scale.at(value or 0), scale.at(against or 0))
        drawn.append(text(end + 8, top + 12, row.words, "label value"))
        parts.append(group(row.colour, drawn))
    return svg(width, height, title, parts)


def part_bars(
    rows: Sequence[Parts],
    names: Sequence[str],
    *,
    title: str,
    axis: Axis,
    width: int = 760,
    kinds: Sequence[int] = range(STEPS),
) -> str:
    """Horizontal bars in parts, from 0; the i-th part has the class `p<kinds[i]>` in each."""
    sums = [math.fsum(finite(row.values)) for row in rows]
    left, scale, height = _frame([row.name for row in rows], sums, axis, width)
    parts = _grid(scale, height)
    for i, row in enumerate(rows):
        top, so_far = ROW * i + 8, 0.0
        drawn = [text(left - 8, top + 12, row.name, "label end", LABEL_CELLS)]
        for k, (name, value) in enumerate(zip(names, row.values, strict=True)):
            amount = known(value)
            if not amount:
                continue
            start, end = scale.at(so_far), scale.at(so_far + amount)
            so_far += amount
            said = f"{row.name}\n{name}: {scale.say(amount)}"
            drawn.append(rect(start, top, (end - start, BAR), f"part p{kinds[k]}", said))
        drawn.append(text(scale.at(so_far) + 8, top + 12, row.words, "label value"))
        parts.append(f'<g class="series plain">{"".join(drawn)}</g>')
    return svg(width, height, title, parts)


def heat(
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[tuple[int | None, str, str]]],
    *,
    title: str,
    width: int = 760,
) -> str:
    """A grid, a row a name: each cell a step (0 palest, None: empty), words, a tooltip."""
    left = 16 + 6.6 * max((len(shorten(name, LABEL_CELLS)) for name in rows), default=0)
    size = (width - left) / max(len(columns), 1), 28.0
    parts = [
        text(left + (k + 0.5) * size[0], 14, name, "tick middle") for k, name in enumerate(columns)
    ]
    for i, (name, line_of) in enumerate(zip(rows, cells, strict=True)):
        top = 22 + i * size[1]
        parts.append(text(left - 8, top + 18, name, "label end", LABEL_CELLS))
        for k, (step, words, said) in enumerate(line_of):
            x = left + k * size[0]
            kind = "h-none" if step is None else f"h{step}"
            parts.append(rect(x + 1, top + 1, (size[0] - 2, size[1] - 2), f"heat {kind}", said))
            parts.append(text(x + size[0] / 2, top + 18, words, f"in middle {kind}"))
    return svg(width, round(24 + len(rows) * size[1]), title, parts)


def field(cells: Sequence[tuple[str, int | None, str]], *, title: str, width: int = 760) -> str:
    """A square for each of many things, in order: its name, step (None: empty) and tooltip.

    The fewer there are the larger they are; large ones show their names.
    """
    side = next((s for s in SIDES if (width // s) * ROWS_OF_CELLS >= len(cells)), SIDES[-1])
    across = width // side
    parts = []
    for i, (name, step, said) in enumerate(cells):
        kind = "h-none" if step is None else f"h{step}"
        x, y = i % across * side, i // across * side
        parts.append(rect(x + 1, y + 1, (side - 2, side - 2), f"heat {kind}", said))
        if side == SIDES[0]:
            middle = x + side / 2, y + side / 2 + 4
            parts.append(text(*middle, name, f"in middle {kind}", NAME_CELLS))
    return svg(width, max(-(-len(cells) // across), 1) * side, title, parts)


def step_of(value: Value, bounds: Sequence[float]) -> int | None:
    """Which step a value is: how many of the rising bounds it reaches; None: not known.

    >>> step_of(70, (60, 3600)), step_of(None, (1,))
    (1, None)
    """
    amount = known(value)
    return None if amount is None else sum(amount >= bound for bound in bounds)


def _frame(
    names: Sequence[str], values: Sequence[Value], axis: Axis, width: int
) -> tuple[float, Scale, int]:
    """Where the bars begin, their scale, and the chart's height."""
    left = 16 + 6.6 * max((len(shorten(name, LABEL_CELLS)) for name in names), default=0)
    scale = scale_over([*finite(values), 0.0], axis, left, width - ROOM)
    return left, scale, round(ROW * len(names) + 30)


def _grid(scale: Scale, height: int) -> list[str]:
    """Upright lines with their values below."""
    parts = []
    for value, words in scale.ticks():
        at = scale.at(value)
        parts.append(line(at, 2, at, height - 22, "grid"))
        parts.append(text(at, height - 6, words, "tick middle"))
    return [*parts, line(scale.at(0), 2, scale.at(0), height - 22, "axis")]
