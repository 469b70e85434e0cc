"""Slurm's periods of use: from when on it counts, and when it begins anew.

As slurmctld's priority plugin reckons PriorityUsageResetPeriod: local midnight, Sunday's, that of
the 1st of the month, of the quarter, of the year. NONE and NOW: never again.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta, tzinfo

from slurm_ltgf.core.model import NO_LIMIT
from slurm_ltgf.core.quota import Period
from slurm_ltgf.slurm import text as words
from slurm_ltgf.slurm.site import Site

#: PriorityUsageResetPeriod, lower case -> months in a period.
_MONTHS = {"monthly": 1, "quarterly": 3, "yearly": 12}
KINDS = ("none", "daily", "weekly", *_MONTHS)


def kind_of(site: Site) -> str:
    """PriorityUsageResetPeriod as one of KINDS."""
    kind = site.get("PriorityUsageResetPeriod", "none").lower()
    return kind if kind in KINDS else "none"


def half_life_of(site: Site) -> float:
    """PriorityDecayHalfLife in seconds; inf: nothing is forgotten.

    >>> half_life_of(Site({"prioritydecayhalflife": "7-00:00:00"}))
    604800.0
    """
    seconds = words.limit_s(site.get("PriorityDecayHalfLife", "00:00:00"))
    return float(seconds) if 0 < seconds < NO_LIMIT else math.inf


def period_of(kind: str, now: int, *, half_life_s: float, zone: tzinfo | None = None) -> Period:
    """The period that `now` lies in.

    Args:
        kind: one of KINDS. zone: slurmctld's; None: this machine's.

    >>> from datetime import timezone
    >>> period_of("monthly", 1795979000, half_life_s=math.inf, zone=timezone.utc)
    Period(start=1793491200, end=1796083200, half_life_s=inf)
    """
    if kind == "none":
        return Period(0, None, half_life_s)
    today = datetime.fromtimestamp(now, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    if kind in _MONTHS:
        months = _MONTHS[kind]
        first = (today.month - 1) // months * months + 1
        start = today.replace(month=first, day=1)
        after = first + months
        end = start.replace(year=start.year + (after > 12), month=(after - 1) % 12 + 1)
    else:
        back = 0 if kind == "daily" else today.isoweekday() % 7
        start = today - timedelta(days=back)
        end = start + timedelta(days=1 if kind == "daily" else 7)
    return Period(int(start.timestamp()), int(end.timestamp()), half_life_s)
