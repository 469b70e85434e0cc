"""When the next maintenance begins: reservations with the flag MAINT, from scontrol."""

from __future__ import annotations

import re
from datetime import UTC

from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.slurm.run import run
from slurm_ltgf.slurm.times import moment

_START = re.compile(r"\bStartTime=(\S+)")
_END = re.compile(r"\bEndTime=(\S+)")
_FLAGS = re.compile(r"\bFlags=(\S+)")


def maintenance_in_s(now: int) -> int | None:
    """Seconds until a maintenance that is not over begins, 0 while one is; None: none is planned.

    Raises:
        SlurmUnavailable, SlurmRefused: scontrol failed.
    """
    text = run(["scontrol", "-o", "show", "reservation"], env_extra={"SLURM_TIME_FORMAT": "%s"})
    return parse(text, now)


def parse(text: str, now: int) -> int | None:
    """Read what scontrol printed, a reservation a line.

    >>> parse("ReservationName=m StartTime=100 EndTime=200 Flags=MAINT,SPEC_NODES Users=root", 40)
    60
    >>> parse("No reservations in the system", 40) is None
    True
    """
    found = []
    for line in text.splitlines():
        start, end, flags = (pattern.search(line) for pattern in (_START, _END, _FLAGS))
        if start is None or end is None or flags is None or "MAINT" not in flags[1].split(","):
            continue
        begins, ends = moment(start[1], UTC), moment(end[1], UTC)
        if begins != UNKNOWN and ends > now:
            found.append(max(begins - now, 0))
    return min(found, default=None)
