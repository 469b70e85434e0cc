"""GPU-time of tenants kept as it happens: the integrals of `fairness`, one event at a time.

For whoever walks through time (the simulator). The same numbers as `fairness.attained_gpu_s` and
`plan.standings` over a sliding window, without reading the window again: a test compares them.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping

from slurm_ltgf.core.order import Standing


class Attained:
    """∫ of one step function over the last `window_s` seconds: GPUs held by one tenant."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self.level = 0.0
        self._total = 0.0
        self._since = 0.0
        self._past: deque[tuple[float, float, float]] = deque([(0.0, 0.0, 0.0)])

    def change(self, by: float, now: float) -> None:
        """The level rises (or falls) by so much from now on; times never fall."""
        self._total += self.level * (now - self._since)
        self._since = now
        self.level += by
        self._past.append((now, self._total, self.level))

    def gpu_s(self, now: float) -> float:
        """Integral over (now - window_s, now]."""
        total = self._total + self.level * (now - self._since)
        edge = now - self.window_s
        past = self._past
        while len(past) > 1 and past[1][0] <= edge:
            past.popleft()
        time, before, level = past[0]
        return total - before - level * max(edge - time, 0.0)


class Book:
    """What every tenant held in the window, holds now, and has still to run of its leases.

    Args:
        weights: tenant -> share. capacity_gpus: GPUs in service, constant.
        window_s, lease_s: T and L.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        *,
        capacity_gpus: float,
        window_s: float,
        lease_s: float,
    ) -> None:
        total = sum(weights.values()) or 1.0
        self.quotas = {name: capacity_gpus * w / total for name, w in weights.items()}
        self.window_s = window_s
        self.lease_s = lease_s
        self._held = {name: Attained(window_s) for name in weights}
        self._leases: dict[str, list[tuple[float, int, float]]] = {name: [] for name in weights}
        self._open: dict[int, float] = {}
        self._gpus_in_lease = dict.fromkeys(weights, 0.0)
        self._ends_in_lease = dict.fromkeys(weights, 0.0)

    def start(self, job_id: int, tenant: str, gpus: float, now: float, limit_s: float) -> None:
        """A job takes GPUs now; its lease ends with its time limit at the latest."""
        end = now + min(self.lease_s, limit_s)
        self._held[tenant].change(gpus, now)
        heapq.heappush(self._leases[tenant], (end, job_id, gpus))
        self._open[job_id] = end
        self._gpus_in_lease[tenant] += gpus
        self._ends_in_lease[tenant] += gpus * end

    def stop(self, job_id: int, tenant: str, gpus: float, now: float) -> None:
        """A job gives its GPUs back now."""
        self._expire(tenant, now)
        self._held[tenant].change(-gpus, now)
        end = self._open.pop(job_id, None)
        if end is not None:
            self._gpus_in_lease[tenant] -= gpus
            self._ends_in_lease[tenant] -= gpus * end

    def standing(self, tenant: str, now: float) -> Standing:
        """The tenant's account as the order needs it, by the key "credit"."""
        self._expire(tenant, now)
        quota = self.quotas[tenant]
        return Standing(
            attained_gpu_s=self._held[tenant].gpu_s(now),
            due_gpu_s=quota * self.window_s,
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
