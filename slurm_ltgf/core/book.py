"""GPU-time of tenants kept as it happens: the integrals of `fairness`, one event at a time.

For whoever walks through time (the simulator). The same numbers as `fairness.fairness` and
`plan.standings` over a sliding window, without reading the window again: a test compares them.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping

from slurm_ltgf.core.order import Standing


class Level:
    """∫ of one step function over the last `window_s` seconds.

    With a half-life a second counts half when it is so old: D(t) = ∫ level · 2^-((t-s)/h) ds over
    all s < t is kept, and the window's part of it is D(now) - 2^-(T/h) · D(now - T).
    """

    def __init__(self, window_s: float, half_life_s: float = math.inf) -> None:
        self.window_s = window_s
        self.level = 0.0
        self._half_life_s = half_life_s
        self._total = 0.0
        self._since = 0.0
        self._past: deque[tuple[float, float, float]] = deque([(0.0, 0.0, 0.0)])
        self._old = _kept(window_s, half_life_s)

    def change(self, by: float, now: float) -> None:
        """The level rises (or falls) by so much from now on; times never fall."""
        self._total = self._until(now, self._since, self._total, self.level)
        self._since = now
        self.level += by
        if self.window_s < math.inf:
            self._past.append((now, self._total, self.level))

    def gpu_s(self, now: float) -> float:
        """Integral over (now - window_s, now]."""
        total = self._until(now, self._since, self._total, self.level)
        edge = now - self.window_s
        past = self._past
        while len(past) > 1 and past[1][0] <= edge:
            past.popleft()
        time, before, level = past[0]
        if edge > time:
            before = self._until(edge, time, before, level)
        return total - before * self._old

    def _until(self, now: float, since: float, total: float, level: float) -> float:
        """The integral at a later time, the level having stood still."""
        if self._half_life_s == math.inf:
            return total + level * (now - since)
        kept = _kept(now - since, self._half_life_s)
        return total * kept + level * (1 - kept) * self._half_life_s / math.log(2)


class Book:
    """What every tenant held in the window, holds now, and has still to run of its leases.

    Args:
        weights: tenant -> share. capacity_gpus: GPUs in service, constant.
        window_s, half_life_s, lease_s: T, h and L; window and half-life may be inf.
        key: what `Standing.due_gpu_s` is: "credit" the quota's integral, "share" the entitlement's,
            for which the book must be told of waiting jobs too.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        *,
        capacity_gpus: float,
        window_s: float,
        lease_s: float,
        half_life_s: float = math.inf,
        key: str = "credit",
    ) -> None:
        total = sum(weights.values()) or 1.0
        self.quotas = {name: capacity_gpus * w / total for name, w in weights.items()}
        self.lease_s = lease_s
        self._span_s = _span(window_s, half_life_s)
        self._held = {name: Level(window_s, half_life_s) for name in weights}
        self._entitled: Entitlements | None = None
        if key == "share":
            self._entitled = Entitlements(weights, capacity_gpus, window_s, half_life_s)
        self._leases: dict[str, list[tuple[float, int, float]]] = {name: [] for name in weights}
        self._open: dict[int, float] = {}
        self._gpus_in_lease = dict.fromkeys(weights, 0.0)
        self._ends_in_lease = dict.fromkeys(weights, 0.0)

    def wait(self, tenant: str, gpus: float, now: float) -> None:
        """A job asks for GPUs from now on, until it stops."""
        if self._entitled is not None:
            self._entitled.ask(tenant, gpus, now)

    def start(self, job_id: int, tenant: str, gpus: float, now: float, limit_s: float) -> None:
        """A job that waited takes GPUs now; its lease ends with its time limit at the latest."""
        end = now + min(self.lease_s, limit_s)
        self._held[tenant].change(gpus, now)
        heapq.heappush(self._leases[tenant], (end, job_id, gpus))
        self._open[job_id] = end
        self._gpus_in_lease[tenant] += gpus
        self._ends_in_lease[tenant] += gpus * end

    def stop(self, job_id: int, tenant: str, gpus: float, now: float) -> None:
        """A job gives its GPUs back now, and asks for none."""
        self._expire(tenant, now)
        self._held[tenant].change(-gpus, now)
        self.wait(tenant, -gpus, now)
        end = self._open.pop(job_id, None)
        if end is not None:
            self._gpus_in_lease[tenant] -= gpus
            self._ends_in_lease[tenant] -= gpus * end

    def standing(self, tenant: str, now: float) -> Standing:
        """The tenant's account as the order needs it."""
        self._expire(tenant, now)
        quota = self.quotas[tenant]
        if self._entitled is not None:
            due = self._entitled.gpu_s(tenant, now)
        else:
            due = quota * (self._span_s if self._span_s < math.inf else now)
        return Standing(
            attained_gpu_s=self._held[tenant].gpu_s(now),
            due_gpu_s=due,
            quota_gpus=quota,
            held_gpus=self._held[tenant].level,
            committed_gpu_s=self._ends_in_lease[tenant] - self._gpus_in_lease[tenant] * now,
        )

    def _expire(self, tenant: str, now: float) -> None:
        leases = self._leases[tenant]
        while leases and leases[0][0] <= now:
            end, job_id, gpus = heapq.heappop(leases)
            if self._open.get(job_id) == end:
                del self._open[job_id]
                self._gpus_in_lease[tenant] -= gpus
                self._ends_in_lease[tenant] -= gpus * end


class Entitlements:
    """∫ of each tenant's entitlement: the weighted max-min split of C over what tenants ask for."""

    def __init__(
        self,
        weights: Mapping[str, float],
        capacity_gpus: float,
        window_s: float,
        half_life_s: float,
    ) -> None:
        self._weights = weights
        self._capacity_gpus = capacity_gpus
        self._asked = dict.fromkeys(weights, 0.0)
        self._due = {name: Level(window_s, half_life_s) for name in weights}
        self._changed_at: float | None = None

    def ask(self, tenant: str, gpus: float, now: float) -> None:
        """A tenant asks for so many GPUs more, or fewer, from now on."""
        self._settle(now)
        self._asked[tenant] += gpus
        self._changed_at = now

    def gpu_s(self, tenant: str, now: float) -> float:
        """X of the tenant over the window."""
        self._settle(now)
        return self._due[tenant].gpu_s(now)

    def _settle(self, now: float) -> None:
        """Split anew as of the last change; one split an instant is enough."""
        if self._changed_at is None or now <= self._changed_at:
            return
        for name, gpus in split(self._capacity_gpus, self._asked, self._weights).items():
            by = gpus - self._due[name].level
            if by:
                self._due[name].change(by, self._changed_at)
        self._changed_at = None


def split(
    capacity: float, asked: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    """Weighted max-min: nobody gets more than it asks, the rest in proportion to weights.

    The same as `timeline.water_fill` of one instant, without arrays: tenants by what they ask per
    share; each gets all of that, or its part of what is left if that is less. Those without a
    share divide equally what is left then.
    """
    wanted = {name: gpus for name, gpus in asked.items() if gpus > 0}
    given = _filled(capacity, {name: g for name, g in wanted.items() if weights[name] > 0}, weights)
    others = {name: gpus for name, gpus in wanted.items() if name not in given}
    left = capacity - sum(given.values())
    if others and left > 0:
        given |= _filled(left, others, dict.fromkeys(others, 1.0))
    return {name: given.get(name, 0.0) for name in asked}


def _filled(
    left: float, asked: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    given = {}
    shares = sum(weights[name] for name in asked)
    for per_share, name in sorted((gpus / weights[name], name) for name, gpus in asked.items()):
        given[name] = min(per_share, max(left, 0.0) / shares) * weights[name]
        left -= given[name]
        shares -= weights[name]
    return given


def _kept(seconds: float, half_life_s: float) -> float:
    """What is left of 1 after so many seconds."""
    if half_life_s == math.inf:
        return 1.0
    return math.exp2(-seconds / half_life_s)


def _span(window_s: float, half_life_s: float) -> float:
    """∫ of a level of 1 over the window."""
    if half_life_s == math.inf:
        return window_s
    return (1 - _kept(window_s, half_life_s)) * half_life_s / math.log(2)
