"""Durations as people write them: 90s, 15min, 24h, 7d, 2w; settings and options share it."""

from __future__ import annotations

import re

UNITS_S = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"([0-9]{1,12}) ?(s|min|h|d|w)")


def duration_s(text: str) -> int | None:
    """Whole seconds of a duration with its unit; None: it is none."""
    match = _DURATION.fullmatch(text.strip())
    return int(match[1]) * UNITS_S[match[2]] if match else None


def shown(seconds: int) -> str:
    """The shortest text of a duration: 3600 -> '1h', 86400 -> '24h', 604800 -> '7d'."""
    if seconds > 86400 and seconds % 86400 == 0:
        return f"{seconds // 86400}d"
    units = (("h", 3600), ("min", 60), ("s", 1))
    return next(f"{seconds // size}{unit}" for unit, size in units if seconds % size == 0)
