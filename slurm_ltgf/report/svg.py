"""Parts that all charts share: the frame with its axes, labels that keep apart, paths, tooltips.

Colours and type come from templates/charts.css, which a page with charts includes once. Classes:
`c0`..`c11` is a colour, `k<n>` the series' own number, so that a page can light up one series in
all its charts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from slurm_ltgf.report.axes import Axis, Scale, scale_over
from slurm_ltgf.report.series import Point
from slurm_ltgf.report.words import clean, shorten

COLOURS = 12
LABEL_CELLS = 16
LINE_HEIGHT = 14.0


@dataclass(frozen=True, slots=True)
class Frame:
    """A chart's plot area: its size, its margins and the two scales."""

    width: int
    height: int
    x: Scale
    y: Scale

    @property
    def left(self) -> float:
        """Pixel of the plot's left edge."""
        return self.x.start

    @property
    def right(self) -> float:
        """Pixel of the plot's right edge."""
        return self.x.end

    @property
    def top(self) -> float:
        """Pixel of the plot's upper edge."""
        return self.y.end

    @property
    def bottom(self) -> float:
        """Pixel of the plot's lower edge."""
        return self.y.start

    def draw(self, title: str, inside: Iterable[str]) -> str:
        """The whole chart: axes, what is inside, and the frame that says its name aloud."""
        return svg(self.width, self.height, title, [*self._axes(), *inside])

    def _axes(self) -> list[str]:
        parts = []
        for value, words in self.y.ticks():
            at = self.y.at(value)
            parts.append(line(self.left, at, self.right, at, "grid"))
            parts.append(text(self.left - 6, at + 4, words, "tick end"))
        for value, words in self.x.ticks():
            at = self.x.at(value)
            parts.append(line(at, self.bottom, at, self.bottom + 4, "axis"))
            parts.append(text(at, self.bottom + 16, words, "tick middle"))
        parts.append(line(self.left, self.bottom, self.right, self.bottom, "axis"))
        parts.append(text(self.left - 6, 11, self.y.axis.title, "axis-title", 60))
        middle = (self.left + self.right) / 2
        parts.append(text(middle, self.height - 4, self.x.axis.title, "axis-title middle", 60))
        return parts


def frame(
    xs: Iterable[float],
    ys: Iterable[float],
    x_axis: Axis,
    y_axis: Axis,
    *,
    size: tuple[int, int],
    right: int,
) -> Frame:
    """Lay a plot out: size (width, height) in pixels, `right` pixels kept free for labels."""
    width, height = size
    foot = 40 if x_axis.title else 24
    x = scale_over(xs, x_axis, 52, width - right)
    y = scale_over(ys, y_axis, height - foot, 22)
    return Frame(width, height, x, y)


def svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """An inline SVG that scales with its box and is announced by its title."""
    name = escape(clean(title))
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{name}"'
        f' style="min-width:{0.8 * width:.0f}px">{"".join(parts)}</svg>'
    )


def nothing(plot: Frame) -> str:
    """What stands in a chart without any value."""
    middle = (plot.left + plot.right) / 2, (plot.top + plot.bottom) / 2
    return text(*middle, "nothing to show", "tick middle")


def described(chart: str, words: str) -> str:
    """The chart with a description, which is read aloud after its title."""
    head, _, rest = chart.partition(">")
    return f"{head}><desc>{escape(clean(words))}</desc>{rest}"


def text(x: float, y: float, words: str, classes: str, cells: int = 40) -> str:
    """A text, cut to so many cells; nothing where it is empty."""
    if not words:
        return ""
    shown = escape(shorten(clean(words), cells))
    return f'<text class="{classes}" x="{pixel(x)}" y="{pixel(y)}">{shown}</text>'


def line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    """A straight line."""
    ends = f'x1="{pixel(x1)}" y1="{pixel(y1)}" x2="{pixel(x2)}" y2="{pixel(y2)}"'
    return f'<line class="{classes}" {ends}/>'


def rect(x: float, y: float, size: tuple[float, float], classes: str, title: str = "") -> str:
    """A rectangle of a size (width, height), with a tooltip if there is a title."""
    ends = f'x="{pixel(x)}" y="{pixel(y)}" width="{pixel(size[0])}" height="{pixel(size[1])}"'
    return f'<rect class="{classes}" {ends}>{tooltip(title)}</rect>'


def tooltip(words: str) -> str:
    """What a browser shows when the pointer rests on the mark; lines are kept."""
    lines = [clean(part) for part in words.split("\n")]
    return f"<title>{escape(chr(10).join(lines))}</title>" if words else ""


def path(pieces: Iterable[Sequence[Point]], classes: str, *, closed: bool = False) -> str:
    """A path of one or more pieces through points in pixels; a lone point is a dot."""
    drawn = []
    for piece in pieces:
        points = [f"{pixel(x)} {pixel(y)}" for x, y in piece]
        if len(points) == 1:
            points.append(points[0])
        drawn.append(f"M{'L'.join(points)}{'Z' if closed else ''}")
    return f'<path class="{classes}" d="{"".join(drawn)}"/>' if drawn else ""


def group(colour: int | None, parts: Iterable[str]) -> str:
    """All marks of one series; colour: its number, None for the grey of a rest."""
    return f'<g class="series {colour_class(colour)}">{"".join(parts)}</g>'


def colour_class(colour: int | None) -> str:
    """Classes that give a series its colour, its number and, beyond the sixth, its dashes."""
    if colour is None:
        return "c-rest k-rest"
    dashes = 2 if colour >= COLOURS else (colour % COLOURS) // (COLOURS // 2)
    return f"c{colour % COLOURS} k{colour}" + (f" d{dashes}" if dashes else "")


def apart(wanted: Sequence[float], low: float, high: float) -> list[float]:
    """Heights near the wanted ones, in their order, a line apart, between low and high if they fit.

    >>> apart([50.0, 50.0, 10.0], 0, 100)
    [50.0, 64.0, 10.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    gap = min(LINE_HEIGHT, (high - low) / max(len(wanted) - 1, 1))
    placed = list(wanted)
    floor = low
    for i in order:
        placed[i] = floor = max(wanted[i], floor)
        floor += gap
    ceiling = high
    for i in reversed(order):
        placed[i] = ceiling = min(placed[i], ceiling)
        ceiling -= gap
    return placed


def pixel(value: float) -> str:
    """A pixel with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")
