"""slurm-fairtree: Slurm's priority/multifactor with Fair Tree, one account a tenant below the root.

    usage      GPU-seconds, halved every half_life_s, brought up to date every calc_period_s and
               when a job ends; what a job adds for d seconds is itself halved for d seconds
    LF = S / U  share over usage (both normalised among siblings), infinite where usage is 0
    fairshare  rank of the account by LF over the number of accounts (1 for the first); tied
               accounts all have the first's
    priority   weight_fairshare · fairshare + weight_age · min(age / max_age_s, 1)
               age since the job came, the last time it did

Source: slurm.conf(5) PriorityDecayHalfLife, PriorityCalcPeriod, PriorityMaxAge; fair_tree.shtml.
GPU-seconds are the usage as if TRESBillingWeights were GRES/gpu=1 alone.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping
from operator import itemgetter

from slurm_ltgf.sim.policies.base import Base
from slurm_ltgf.sim.workload import Job


class SlurmFairTree(Base):
    """Highest priority first; priorities stand still between two calculations."""

    name = "slurm-fairtree"

    def __init__(
        self,
        weights: Mapping[str, float],
        *,
        half_life_s: float = 7 * 86400,
        calc_period_s: int = 300,
        weight_fairshare: float = 100_000,
        weight_age: float = 1_000,
        max_age_s: float = 7 * 86400,
    ) -> None:
        super().__init__()
        self._calc_period_s = self.period_s = calc_period_s
        self._weights = dict(weights)
        self._half_life_s = half_life_s
        self._points = (weight_fairshare, weight_age, max_age_s)
        self.held.update(dict.fromkeys(weights, 0))
        self._usage = dict.fromkeys(weights, 0.0)
        self._fairshare = dict.fromkeys(weights, 1.0)
        self._calculated = 0
        self._fresh: dict[int, tuple[Job, int]] = {}  # started since then, and when
        self._held_before = dict.fromkeys(weights, 0)  # by all others that run
        self._waiting: dict[str, dict[int, tuple[int, Job]]] = {name: {} for name in weights}

    def arrived(self, job: Job, now: int) -> None:
        """To the end of its account's queue: age alone tells jobs of one account apart."""
        self._calculate(now)
        self._waiting[job.tenant][job.job_id] = (now, job)

    def started(self, job: Job, now: int) -> None:
        """The account holds more."""
        self._calculate(now)
        del self._waiting[job.tenant][job.job_id]
        self._fresh[job.job_id] = (job, now)
        super().started(job, now)

    def ended(self, job: Job, now: int) -> None:
        """The account holds less."""
        self._calculate(now)
        _, since = self._fresh.pop(job.job_id, (job, None))
        if since is None:
            self._held_before[job.tenant] -= job.gpus
        self._usage[job.tenant] += job.gpus * self._counted(
            self._calculated if since is None else since, now
        )
        super().ended(job, now)

    def queue(self, now: int, closed: Collection[str]) -> Iterator[Job]:
        """By priority, then by age and id."""
        self._calculate(now)
        streams = [self._of(name, now) for name, jobs in self._waiting.items() if jobs]
        return (job for _, job in heapq.merge(*streams, key=itemgetter(0)))

    def reason(self, job: Job, now: int) -> str:
        """Its account's standing."""
        used = self._usage[job.tenant] / 3600
        return f"fairshare {self._fairshare[job.tenant]:.3f}, usage {used:.4g} GPU-h"

    def _of(self, tenant: str, now: int) -> Iterator[tuple[tuple[float, int, int], Job]]:
        weight_fairshare, weight_age, max_age_s = self._points
        base = weight_fairshare * self._fairshare[tenant]
        for since, job in self._waiting[tenant].values():
            age = min((self._calculated - since) / max_age_s, 1.0)
            yield (-(base + weight_age * max(age, 0.0)), since, job.job_id), job

    def _calculate(self, now: int) -> None:
        """Bring usage and fairshare up to the last multiple of the period."""
        until = now - now % self._calc_period_s
        if until <= self._calculated:
            return
        self._add(1)
        self._add((until - self._calculated) // self._calc_period_s)
        self._rank()

    def _add(self, periods: int) -> None:
        """Let periods pass; what was started since the last calculation is in the first of them."""
        until = self._calculated + self._calc_period_s
        fade = self._calc_period_s / self._half_life_s
        counted = self._counted(self._calculated, until)
        kept, times = math.exp2(-periods * fade), float(periods)
        if fade:  # the sum of 2^(-k fade) for k from 0 to periods - 1
            times = math.expm1(-periods * fade * math.log(2)) / math.expm1(-fade * math.log(2))
        for name, held in self._held_before.items():
            self._usage[name] = self._usage[name] * kept + held * counted * times
        for job, since in self._fresh.values():
            self._usage[job.tenant] += job.gpus * self._counted(since, until)
            self._held_before[job.tenant] += job.gpus
        self._fresh.clear()
        self._calculated += periods * self._calc_period_s

    def _counted(self, since: int, until: int) -> float:
        """Seconds that slurmctld counts of a time (_apply_new_usage in priority_multifactor.c)."""
        return (until - since) * math.exp2(-(until - since) / self._half_life_s)

    def _rank(self) -> None:
        shares, used = sum(self._weights.values()) or 1.0, sum(self._usage.values())
        level = {
            name: _level_fs(weight / shares, self._usage[name], used)
            for name, weight in self._weights.items()
        }
        ordered = sorted(level, key=lambda name: (-level[name], name))
        n = len(ordered)
        rank = {level[name]: (n - i) / n for i, name in reversed(list(enumerate(ordered)))}
        self._fairshare = {name: rank[level[name]] for name in ordered}  # tied: the first's


def _level_fs(share: float, usage: float, of: float) -> float:
    """LF = S / U, 0 .. inf; 0 for an account without a share."""
    if share <= 0:
        return 0.0
    return share * of / usage if usage > 0 else math.inf
