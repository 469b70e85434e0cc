"""Slurm's times and durations <-> seconds, one text at a time. Pure.

A text that cannot be read is a ValueError that quotes it: never 0, never a guess. Text that says
"not known" is `UNKNOWN`, text that says "no limit" is `NO_LIMIT`.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo

from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN

#: NO_VAL - 1 and up (slurm.h): INFINITE 0xffffffff, NO_VAL 0xfffffffe; the 64-bit ones are larger.
SENTINEL = 0xFFFFFFFD

_UNKNOWN_WORDS = frozenset({"", "unknown", "none", "n/a", "na", "(null)", "null"})
_NO_LIMIT_WORDS = frozenset({"unlimited", "infinite"})
_UNKNOWN_LIMITS = _UNKNOWN_WORDS | {"invalid", "partition_limit", "not_set"}


def limit_s(text: str) -> int:
    """Seconds of a time limit in sbatch(1)'s grammar, where a bare integer is minutes.

    >>> [limit_s(t) for t in ("10", "10:10", "1:00:00", "3-13", "3-13:10", "3-13:10:00")]
    [600, 610, 3600, 306000, 306600, 306600]
    >>> limit_s("UNLIMITED") == NO_LIMIT, limit_s("Partition_Limit") == UNKNOWN
    (True, True)
    """
    word = text.strip().lower()
    if word in _NO_LIMIT_WORDS:
        return NO_LIMIT
    if word in _UNKNOWN_LIMITS:
        return UNKNOWN
    days, fields = _day_fields(word, text)
    if days is not None:
        hours, minutes, seconds = (*fields, 0, 0)[:3]
    elif len(fields) == 3:
        hours, minutes, seconds = fields
    else:
        hours, (minutes, seconds) = 0, (*fields, 0)[:2]
    return (((days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def elapsed_s(text: str) -> float:
    """Seconds of a duration that sacct prints: [D-][HH:]MM:SS[.mmm], or a bare count of seconds.

    >>> [elapsed_s(t) for t in ("00:10", "01:02.345", "1-00:00:00", "3600")]
    [10, 62.345, 86400, 3600]
    """
    word = text.strip()
    if word.lower() in _UNKNOWN_LIMITS:
        return UNKNOWN
    if word.isdecimal():
        return int(word)
    whole, dot, fraction = word.partition(".")
    if dot and not fraction.isdecimal():
        raise ValueError(f"cannot read duration {text!r}")
    days, fields = _day_fields(whole, text)
    if not 2 <= len(fields) <= 3:
        raise ValueError(f"cannot read duration {text!r}")
    hours, minutes, seconds = (0, 0, *fields)[-3:]
    total = (((days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    return total + float(f"0.{fraction}") if dot else total


def _day_fields(word: str, text: str) -> tuple[int | None, list[int]]:
    """'3-13:10' -> 3, [13, 10]; '13:10' -> None, [13, 10]. At most three fields."""
    days, dash, rest = word.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in (*parts, days or "0")) or (dash and not days):
        raise ValueError(f"cannot read duration {text!r}")
    if len(parts) > 3:
        raise ValueError(f"cannot read duration {text!r}")
    return (int(days) if dash else None), [int(part) for part in parts]


def duration_text(seconds: int) -> str:
    """Seconds as sacct prints them: [D-]HH:MM:SS."""
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def is_unknown(text: str) -> bool:
    """Whether a cell says "not known": empty, Unknown, None, N/A."""
    return text.strip().lower() in _UNKNOWN_WORDS


def moment(text: str, timezone: tzinfo) -> int:
    """Epoch seconds of a time that Slurm prints: ISO (local to timezone, or with offset) or epoch.

    Unknown, None, empty, 0 and NO_VAL are UNKNOWN. Of a local time that comes twice, the first.

    >>> from datetime import timezone
    >>> moment("2026-03-01T12:00:00", timezone.utc), moment("1700000000", timezone.utc)
    (1772366400, 1700000000)
    """
    word = text.strip()
    if is_unknown(word):
        return UNKNOWN
    if word.isdecimal():
        value = int(word)
        return value if 0 < value < SENTINEL else UNKNOWN
    if not re.match(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", word):
        raise ValueError(f"cannot read time {text!r}")
    try:
        read = datetime.fromisoformat(word)
    except ValueError:
        raise ValueError(f"cannot read time {text!r}") from None
    return int((read if read.tzinfo else read.replace(tzinfo=timezone)).timestamp())


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_HOUR_OF = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}
_DAY_OF = {"today": 0, "yesterday": -1, "tomorrow": 1}
_OFFSET = re.compile(r"now(?:([+-])(\d+)([a-z]*))?")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")
_MONTH_DAY = re.compile(r"(\d\d)[/.]?(\d\d)(?:[/.]?(\d\d))?")


def time_argument(text: str, now: int, timezone: tzinfo) -> int:
    """Epoch seconds of a time as Slurm's -S and -E take it; words and dates are timezone's.

    now[{+|-}count[unit]], today, yesterday, midnight, noon, HH:MM[:SS] (last one past), MMDD[YY],
    MM/DD[/YY], YYYY-MM-DD[THH:MM[:SS][Z|+HH:MM]], an epoch second, or uts and an epoch second.

    >>> from datetime import timezone
    >>> time_argument("now-7days", 1_000_000, timezone.utc)
    395200
    >>> time_argument("2026-08-21T15:38Z", 0, timezone.utc)
    1787326680
    """
    word = text.strip().lower()
    if re.fullmatch(r"(uts)?\d{7,}", word) or re.fullmatch(r"uts\d+", word):
        return _sane(int(word.removeprefix("uts")), text)
    if word.startswith("now"):
        return _sane(now + _offset(word, text), text)
    if re.match(r"\d{4}-\d\d-\d\d", word):
        return _iso_argument(text, timezone)
    return _past(word, text, now, timezone)


def _sane(moment: int, text: str) -> int:
    if not 0 <= moment < 1 << 40:
        raise ValueError(f"out of range: {text!r}")
    return moment


def _offset(word: str, text: str) -> int:
    match = _OFFSET.fullmatch(word)
    unit = _unit(match[3]) if match and match[3] else 1
    if not match or not unit:
        raise ValueError(f"cannot read time {text!r}")
    return (-1 if match[1] == "-" else 1) * int(match[2] or 0) * unit


def _unit(name: str) -> int | None:
    names = ("seconds", "minutes", "hours", "days", "weeks")
    return _UNITS[name[0]] if any(full.startswith(name) for full in names) else None


def _iso_argument(text: str, timezone: tzinfo) -> int:
    try:
        read = datetime.fromisoformat(text.strip().upper())
    except ValueError:
        raise ValueError(f"cannot read time {text!r}") from None
    return int((read if read.tzinfo else read.replace(tzinfo=timezone)).timestamp())


def _past(word: str, text: str, now: int, timezone: tzinfo) -> int:
    """The last moment of that name: a clock time to come is yesterday's, a date last year's."""
    here = datetime.fromtimestamp(now, timezone)
    midnight = here.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    clock, month_day = _CLOCK.fullmatch(word), _MONTH_DAY.fullmatch(word)
    if word in _DAY_OF:
        return int((midnight + timedelta(days=_DAY_OF[word])).timestamp())
    try:
        if month_day:
            return int(_month_day(month_day, midnight).timestamp())
        if word in _HOUR_OF:
            read = midnight.replace(hour=_HOUR_OF[word])
        elif clock:
            read = midnight.replace(
                hour=int(clock[1]), minute=int(clock[2]), second=int(clock[3] or 0)
            )
        else:
            raise ValueError
    except ValueError:
        raise ValueError(f"cannot read time {text!r}") from None
    return int((read if read <= here else read - timedelta(days=1)).timestamp())


def _month_day(match: re.Match[str], midnight: datetime) -> datetime:
    month, day = int(match[1]), int(match[2])
    if match[3]:
        return midnight.replace(year=2000 + int(match[3]), month=month, day=day)
    read = midnight.replace(month=month, day=day)
    return read if read <= midnight else read.replace(year=read.year - 1)
