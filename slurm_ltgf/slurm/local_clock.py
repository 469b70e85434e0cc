"""Wall clocks of one time zone -> UTC, by columns."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo

import numpy as np

from slurm_ltgf.core.model import IntArray

DAY_S = 86400
YEAR_S = 365 * DAY_S
#: zoneinfo knows no rules beyond, and 32-bit epoch seconds end soon after.
_LAST = 4_291_747_200


class LocalClock:
    """Reads local seconds (since 1970-01-01T00:00:00 on the wall) as epoch seconds UTC.

    A wall clock that does not exist (clocks set forward) is read with the offset before the change,
    i.e. shifted forward; of one that comes twice there are two readings.
    """

    def __init__(self, timezone_: tzinfo) -> None:
        self.timezone = timezone_
        self._fixed = isinstance(timezone_, timezone)
        self._span = (0, 0)
        self._changes: IntArray = np.empty(0, dtype=np.int64)
        self._offsets: IntArray = np.array([self._offset(0)], dtype=np.int64)

    def utc(self, local: IntArray) -> tuple[IntArray, IntArray]:
        """First and second reading of local seconds; equal but where clocks were set back."""
        if self._fixed or not local.size:
            first = local - self._offsets[0]
            return first, first.copy()
        low, high = int(local.min()), int(local.max())
        self._cover(low, high)
        before, after = self._offsets[:-1], self._offsets[1:]
        late_changes = self._changes + np.maximum(before, after)
        early_changes = self._changes + np.minimum(before, after)
        if np.searchsorted(early_changes, high, side="right") == np.searchsorted(
            late_changes, low, side="right"
        ):  # no change among them
            first = local - self._offsets[np.searchsorted(late_changes, low, side="right")]
            return first, first.copy()
        late = np.searchsorted(late_changes, local, side="right")
        early = np.searchsorted(early_changes, local, side="right")
        first = local - self._offsets[late]
        return first, np.maximum(first, local - self._offsets[early])

    def _offset(self, moment: int) -> int:
        offset = datetime.fromtimestamp(moment, self.timezone).utcoffset()
        return int((offset or timedelta(0)).total_seconds())

    def _cover(self, low: int, high: int) -> None:
        """Learn the changes of the offset between two local times."""
        low, high = low - 2 * DAY_S, min(high + 2 * DAY_S, _LAST)
        if self._span[0] <= low and high <= self._span[1]:
            return
        low, high = low - YEAR_S, min(high + YEAR_S, _LAST)
        if self._span[1]:
            low, high = min(low, self._span[0]), max(high, self._span[1])
        self._span = (low, high)
        days = range(low, high + DAY_S, DAY_S)
        offsets = [self._offset(day) for day in days]
        changed = [i for i in range(1, len(days)) if offsets[i] != offsets[i - 1]]
        changes = [self._change(days[i - 1], days[i]) for i in changed]
        self._changes = np.array(changes, dtype=np.int64)
        self._offsets = np.array([offsets[0], *(offsets[i] for i in changed)], dtype=np.int64)

    def _change(self, low: int, high: int) -> int:
        """First second with the offset of `high`; low and high are a day apart and differ."""
        new = self._offset(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._offset(middle) == new else (middle, high)
        return high
