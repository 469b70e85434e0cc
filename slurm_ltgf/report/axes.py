"""Axes of charts: from values to pixels, and where ticks go and what they say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from slurm_ltgf.report.words import elapsed, known, number, percent

MINUTE, HOUR, DAY = 60, 3600, 86400
#: Steps between ticks of time, in seconds, and ticks of a logarithmic axis of time.
STEPS = (1, 2, 5, 10, 15, 30, *(MINUTE * n for n in (1, 2, 5, 10, 15, 30)))
STEPS += tuple(HOUR * n for n in (1, 2, 3, 6, 12))
STEPS += tuple(DAY * n for n in (1, 2, 4, 7, 14, 28, 91, 182, 365))
LOG_TIMES = (1, 10, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY, 30 * DAY, 365 * DAY)


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis shows.

    kind: number, seconds (a duration), date (epoch seconds, shown in UTC) or percent (parts of 1).
    low, high: bounds; None follows the values. Values beyond a bound are drawn on it, and the tick
    there says so. log: logarithmic; values at or below its low end are drawn there.
    """

    title: str = ""
    kind: Literal["number", "seconds", "date", "percent"] = "number"
    log: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis laid over pixels: start is where `low` is drawn, end where `high` is."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float
    cut: bool

    def at(self, value: float) -> float:
        """The pixel of a value, held within the axis."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.axis.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Where ticks go (values) and what they say, at least 40 (across) or 24 pixels apart."""
        apart = 52 if self.end > self.start else 26
        room = max(int(abs(self.end - self.start) / apart), 1)
        values = self._log_ticks() if self.axis.log else self._even_ticks(room)
        chosen: list[float] = []
        for value in values:
            if not chosen or abs(self.at(value) - self.at(chosen[-1])) >= apart * 0.75:
                chosen.append(value)
        step = chosen[1] - chosen[0] if len(chosen) > 1 else self.high - self.low
        texts = [(value, self._tick(value, step)) for value in chosen]
        if self.cut and texts and math.isclose(texts[-1][0], self.high):
            texts[-1] = (texts[-1][0], f"≥ {texts[-1][1]}")
        return texts

    def say(self, value: float) -> str:
        """A value of this axis in words, for tooltips."""
        kind = self.axis.kind
        if kind == "date":
            return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M UTC")
        shown = {"seconds": elapsed, "percent": percent, "number": number}[kind]
        return shown(value)

    def _even_ticks(self, room: int) -> list[float]:
        least = (self.high - self.low) / room
        if self.axis.kind in ("seconds", "date") and least >= 1:
            whole = math.ceil(least / STEPS[-1]) * STEPS[-1]
            step: float = next((s for s in STEPS if s >= least), whole)
        else:
            step = nice_step(least)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _log_ticks(self) -> list[float]:
        if self.axis.kind == "seconds":
            steps: Iterable[float] = LOG_TIMES
        else:
            low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            steps = [10.0**power for power in range(low, high + 1)]
        inside = [s for s in steps if self.low * 0.999 <= s <= self.high * 1.001]
        return inside if len(inside) > 1 else [self.low, self.high]

    def _tick(self, value: float, step: float) -> str:
        kind = self.axis.kind
        if kind == "seconds":
            return _clock(value, value if self.axis.log else step)
        if kind == "date":
            form = "%d %b" if step >= DAY else "%d %b %H:%M" if step >= MINUTE else "%H:%M:%S"
            return datetime.fromtimestamp(value, UTC).strftime(form)
        return f"{100 * value:.4g} %" if kind == "percent" else f"{value:,.6g}"


def scale_over(values: Iterable[float], axis: Axis, start: float, end: float) -> Scale:
    """The scale of an axis for these values (finite ones), never of zero length.

    A linear axis of numbers or parts starts at 0 unless values are negative; an upright one ends
    on a tick.
    """
    there = [v for v in values if not axis.log or v > 0]
    low, high = min(there, default=1.0), max(there, default=1.0)
    cut = axis.high is not None and high > axis.high
    if axis.kind in ("number", "percent") and not axis.log:
        low, high = min(low, 0.0), max(high, 0.0)
    low = low if axis.low is None else axis.low
    high = high if axis.high is None else axis.high
    if axis.log:
        low = max(low, high * 1e-12, 1e-300)
    if not high - low > max(1e-12 * abs(low), 1e-12 * abs(high), 1e-200):
        high = low * 2 if axis.log else low + max(abs(low) * 1e-6, 1.0)
    if end < start and axis.kind == "number" and not axis.log and axis.high is None:
        step = nice_step((high - low) / max(int((start - end) / 52), 1))
        high = math.ceil(high / step - 1e-9) * step
    return Scale(axis, low, high, start, end, cut)


def nice_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `least`.

    >>> nice_step(0.3), nice_step(12), nice_step(5)
    (0.5, 20.0, 5.0)
    """
    power = 10.0 ** math.floor(math.log10(least))
    step = next(f * power for f in (1.0, 2.0, 5.0, 10.0) if f * power >= least * (1 - 1e-9))
    return float(f"{step:.6g}")


def finite(values: Sequence[float | None]) -> list[float]:
    """The values that are known."""
    return [v for v in map(known, values) if v is not None]


def _clock(value: float, step: float) -> str:
    if value == 0:
        return "0"
    size, unit = next(((s, u) for s, u in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")) if step >= s),
                      (1, "s"))  # fmt: skip
    return f"{value / size:.4g} {unit}"
