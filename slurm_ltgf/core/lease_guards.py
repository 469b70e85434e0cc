"""When no job may be moved at all, whatever the verdicts: quiet times, the hourly rate, failures.

Each guard gives its sentence; none of them knows a clock or a file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HOUR_S = 3600
_QUIET = re.compile(r"(?:(mon|tue|wed|thu|fri|sat|sun) )?(\d\d):(\d\d)-(\d\d):(\d\d)", re.I)


@dataclass(frozen=True, slots=True)
class Guards:
    """The site's limits. quiet: see `quiet_time`. section: of the settings that cap numbers."""

    concurrency: int = 4
    per_hour: int = 60
    quiet: Sequence[str] = ()
    breaker: int = 5
    breaker_rest_s: int = HOUR_S
    section: str = "lease"


class Failure(NamedTuple):
    """A checkpoint or requeue that failed. whose: the user's number, or anything that tells."""

    time: int
    whose: int


@dataclass(frozen=True, slots=True)
class Situation:
    """What counts for the guards. Times: epoch seconds; weekday 0 is Monday, minute of the day.

    begun: when moves of leases began. reset: when an admin closed the breaker.
    maintenance_in_s: None: none is planned.
    """

    now: int
    weekday: int
    minute: int
    under_way: int = 0
    begun: Sequence[int] = ()
    failed: Sequence[Failure] = ()
    reset: int = 0
    maintenance_in_s: int | None = None


def allowance(guards: Guards, seen: Situation, *, lease_s: float) -> tuple[int, str]:
    """How many jobs may begin to yield now; if none, why."""
    for window in guards.quiet:
        if quiet_time(window, seen.weekday, seen.minute):
            return 0, f"it is a quiet time (lease.quiet: {window})"
    ahead_s = seen.maintenance_in_s
    if ahead_s is not None and ahead_s < lease_s:
        what = "a lease would be over" if guards.section == "lease" else "a move would be worth it"
        return 0, f"a maintenance begins in {max(ahead_s, 0)} s, before {what}"
    most_of_one = (guards.breaker + 1) // 2  # nobody alone stops the moves of all
    until = broken_until(guards, seen.failed, reset=seen.reset, most_of_one=most_of_one)
    if until is not None and seen.now < until:
        return 0, (
            f"{guards.breaker} checkpoints failed within an hour: no moves for {until - seen.now}"
            " s, or until `ltgf lease --reset`"
        )
    made = sum(seen.now - HOUR_S < time <= seen.now for time in seen.begun)
    if made >= guards.per_hour:
        return 0, f"jobs that yielded within an hour: {made} ({guards.section}.per_hour)"
    if seen.under_way >= guards.concurrency:
        return 0, f"jobs that yield just now: {seen.under_way} ({guards.section}.concurrency)"
    return min(guards.concurrency - seen.under_way, guards.per_hour - made), ""


def set_aside(guards: Guards, seen: Situation) -> dict[int, int]:
    """Those of whose checkpoints alone so many failed -> for how many seconds they rest."""
    found = {}
    for whose in {failure.whose for failure in seen.failed}:
        own = [failure for failure in seen.failed if failure.whose == whose]
        until = broken_until(guards, own, reset=seen.reset)
        if until is not None and seen.now < until:
            found[whose] = until - seen.now
    return found


def broken_until(
    guards: Guards, failed: Iterable[Failure], *, reset: int, most_of_one: int | None = None
) -> int | None:
    """When moves are allowed again after failures; None: there were not enough.

    Args:
        reset: failures until then do not count. most_of_one: so many of one's count at most.
    """
    counted = sorted(failure for failure in failed if failure.time > reset)
    for i in range(len(counted) - 1, -1, -1):
        last = counted[i].time
        of = Counter(whose for time, whose in counted[: i + 1] if last - time < HOUR_S)
        if sum(min(n, most_of_one or n) for n in of.values()) >= guards.breaker:
            return last + guards.breaker_rest_s
    return None


def quiet_time(window: str, weekday: int, minute: int) -> bool:
    """Whether a moment is in '22:00-06:00' or 'Mon 08:00-12:00'; one may go beyond midnight.

    >>> quiet_time("22:00-06:00", 2, 60), quiet_time("mon 08:00-12:00", 1, 540)
    (True, False)

    Raises:
        ValueError: the text is no such window.
    """
    match = _QUIET.fullmatch(window.strip())
    if not match:
        raise ValueError(f"must be like '22:00-06:00' or 'Mon 08:00-12:00', got {window!r}")
    day = match[1]
    begin, end = (60 * int(match[i]) + int(match[i + 1]) for i in (2, 4))
    is_today = day is None or DAYS[weekday] == day.lower()
    if begin <= end:
        return is_today and begin <= minute < end
    was_yesterday = day is None or DAYS[weekday - 1] == day.lower()
    return (is_today and minute >= begin) or (was_yesterday and minute < end)
