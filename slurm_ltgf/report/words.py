"""How values are said on a page: numbers, durations and names that may be hostile.

Unknown (None, NaN, infinite) is a dash, never 0.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

DASH = "–"
#: Units of time, largest first: seconds, short name, smallest value (s) that is said in it.
UNITS = ((86400, "d", 172800), (3600, "h", 5400), (60, "min", 90), (1, "s", 0))


def known(value: Any) -> float | None:
    """The value as a finite float; None where it is not a number or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def clean(text: str) -> str:
    """The text with what cannot be seen (control, bidi, half surrogates) written out as escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def cleaned(value: Any) -> Any:
    """A result with every text in it, names of keys too, as `clean` has it."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(inner) for key, inner in value.items()}
    return [cleaned(inner) for inner in value] if isinstance(value, list | tuple) else value


def shorten(text: str, cells: int) -> str:
    """The text in at most so many cells (a wide character takes two), with an ellipsis if cut.

    >>> shorten("vision-group", 7)
    'vision…'
    """
    widths = [2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text]
    if sum(widths) <= cells:
        return text
    room, kept = cells - 1, 0
    while kept < len(widths) and room >= widths[kept]:
        room -= widths[kept]
        kept += 1
    return text[:kept] + "…"


def number(value: Any, digits: int = 3) -> str:
    """A number with so many significant digits, whole ones in full, thousands apart.

    >>> number(0.02134), number(22009), number(1234.6), number(None)
    ('0.0213', '22,009', '1,235', '–')
    """
    amount = known(value)
    if amount is None:
        return DASH
    if amount == int(amount) and abs(amount) < 1e15:
        return f"{int(amount):,}"
    before = math.floor(math.log10(abs(amount))) + 1
    decimals = max(digits - max(before, 0), 0) if before > 0 else digits - before
    return f"{amount:,.{min(decimals, 6)}f}"


def counted(count: int, one: str, more: str = "") -> str:
    """So many of something; more: its plural, if it is not by an s.

    >>> counted(1, "job"), counted(2000, "job"), counted(2, "stretch", "stretches")
    ('1 job', '2,000 jobs', '2 stretches')
    """
    return f"{number(count)} {one if count == 1 else more or f'{one}s'}"


def trimmed(value: Any) -> str:
    """A number with at most three decimals, as few as it takes.

    >>> trimmed(0.5), trimmed(1200), trimmed(1 / 3)
    ('0.5', '1,200', '0.333')
    """
    amount = known(value)
    return DASH if amount is None else f"{amount:,.3f}".rstrip("0").rstrip(".")


def fixed(value: Any, decimals: int = 3) -> str:
    """A number with so many decimals."""
    amount = known(value)
    return DASH if amount is None else f"{amount:,.{decimals}f}"


def percent(value: Any) -> str:
    """A part of one in percent, one decimal.

    >>> percent(0.0421)
    '4.2 %'
    """
    amount = known(value)
    return DASH if amount is None else f"{100 * amount:.1f} %"


def duration(value: Any) -> str:
    """Seconds in the unit that suits them: 45 s, 12.5 min, 5.21 h, 3.4 d."""
    return durations([value])[0]


def durations(values: Sequence[Any]) -> list[str]:
    """Seconds in the one unit, with the decimals, that suit their median: easy to compare.

    Values too far apart for one unit are each said in their own.

    >>> durations([3600, 7200, 9000, None])
    ['1.00 h', '2.00 h', '2.50 h', '–']
    >>> durations([30, 7200, 864000])
    ['30 s', '2.00 h', '10.0 d']
    """
    there = [s for s in map(known, values) if s is not None]
    sizes = [abs(s) for s in there if s]
    if sizes and max(sizes) > 100 * min(sizes):
        return [duration(value) for value in values]
    middle = median(there) if there else 0
    size, unit, _ = next(u for u in UNITS if abs(middle) >= u[2])
    whole = unit == "s" and (middle >= 10 or all(s == int(s) for s in there))
    decimals = 0 if whole else 2 if middle < 10 * size else 1
    return [DASH if known(s) is None else f"{s / size:,.{decimals}f} {unit}" for s in values]


def elapsed(seconds: float) -> str:
    """Seconds to the second unit below the largest, for a moment on a clock that began at 0.

    >>> elapsed(0), elapsed(3600), elapsed(3 * 86400 + 14 * 3600 + 59)
    ('0 s', '1 h', '3 d 14 h')
    """
    left = round(abs(seconds))
    largest = next((i for i, (size, _, _) in enumerate(UNITS) if left >= size), len(UNITS) - 1)
    (size, unit, _), *below = UNITS[largest : largest + 2]
    words = f"{'-' if seconds < 0 else ''}{left // size} {unit}"
    if below and (more := left % size // below[0][0]):
        words += f" {more} {below[0][1]}"
    return words


def gpu_hours(value: Any) -> str:
    """GPU-seconds as GPU-hours."""
    amount = known(value)
    return DASH if amount is None else number(amount / 3600)
