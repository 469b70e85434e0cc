"""A simulated workload over time, by job size, and as distributions: what the charts draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurm_ltgf.core.fairness import LOSS
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.model import FloatArray, IntArray, Runs
from slurm_ltgf.core.over_time import course, over_the_last, ratio
from slurm_ltgf.core.timeline import Supply

HOUR_S, DAY_H = 3600, 24
#: Points of a distribution.
LEVELS = np.linspace(0, 1, 101)


@dataclass(frozen=True, slots=True)
class Hours:
    """Integrals of every whole hour, and of every 24 hours that end with one.

    tenants: names, sorted. attained, deserved, quota, entitled: (hours, n) GPU-seconds. rho,
    credit, share: (hours, n) over the last 24 hours; nan before there were so many, or where
    nothing was due.
    """

    tenants: tuple[str, ...]
    attained: FloatArray
    deserved: FloatArray
    quota: FloatArray
    entitled: FloatArray

    @property
    def rho(self) -> FloatArray:
        """U / D."""
        return _over_a_day(self.attained, self.deserved)

    @property
    def credit(self) -> FloatArray:
        """U / W."""
        return _over_a_day(self.attained, self.quota)

    @property
    def share(self) -> FloatArray:
        """U / X."""
        return _over_a_day(self.attained, self.entitled)

    def as_dict(self) -> dict[str, Any]:
        """Plain lists: times_s, held_gpus (mean of the hour), rho, credit and share by tenant."""
        by_tenant = {
            "held_gpus": self.attained / HOUR_S,
            "rho": self.rho,
            "credit": self.credit,
            "share": self.share,
        }
        times = [(hour + 1) * HOUR_S for hour in range(len(self.attained))]
        return {
            "times_s": times,
            **{
                name: {who: plain(values[:, i]) for i, who in enumerate(self.tenants)}
                for name, values in by_tenant.items()
            },
        }


@dataclass(frozen=True, slots=True)
class SizeRow:
    """Jobs of a size. gpus: its bounds, as text. Times in seconds; None: no such number."""

    gpus: str
    jobs: int
    mean_jct_s: float
    mean_wait_s: float
    p99_wait_s: float
    rho_p5: float | None
    jobs_below_095: float | None


def hours(runs: Runs, horizon: int, weights: Mapping[str, float], supply: Supply) -> Hours:
    """Integrals of every whole hour up to the horizon, by the functions of core.fairness."""
    names = tuple(sorted(weights))
    found = course(
        runs,
        np.arange(horizon // HOUR_S + 1, dtype=np.int64) * HOUR_S,
        tenants=names,
        tenant_of={name: name for name in names},
        supply=supply,
        pricing=Pricing(),
    )
    return Hours(names, found.attained, found.deserved, found.quota, found.entitled)


def quantiles(values: Mapping[str, Sequence[float] | FloatArray]) -> dict[str, list[float | None]]:
    """levels, and of each named sample its quantiles there; an empty sample has none."""
    found: dict[str, list[float | None]] = {"levels": plain(LEVELS)}
    for name, sample in values.items():
        known = np.asarray(sample, dtype=np.float64)
        known = known[~np.isnan(known)]
        found[name] = plain(np.quantile(known, LEVELS)) if len(known) else []
    return found


def by_size(
    gpus: IntArray, jct_s: FloatArray, wait_s: FloatArray, rho: FloatArray
) -> tuple[SizeRow, ...]:
    """Jobs by their GPUs, in classes that double: 1, 2-3, 4-7, 8-15, ..

    Args:
        gpus, jct_s, wait_s, rho: (jobs,); rho nan where a job is due nothing.
    """
    classes = np.frexp(gpus)[1] - 1  # floor of log2, exact
    rows = []
    for k in np.unique(classes).tolist():
        here = classes == k
        known = rho[here & ~np.isnan(rho)]
        low, high = 1 << k, (1 << (k + 1)) - 1
        rows.append(
            SizeRow(
                gpus=str(low) if low == high else f"{low}-{high}",
                jobs=int(here.sum()),
                mean_jct_s=float(jct_s[here].mean()),
                mean_wait_s=float(wait_s[here].mean()),
                p99_wait_s=float(np.quantile(wait_s[here], 0.99)),
                rho_p5=float(np.quantile(known, 0.05)) if len(known) else None,
                jobs_below_095=float((known < LOSS).mean()) if len(known) else None,
            )
        )
    return tuple(rows)


def plain(values: FloatArray) -> list[float | None]:
    """A list that JSON can say: nan as None, six significant digits."""
    return [None if np.isnan(x) else float(f"{x:.6g}") for x in values]


def _over_a_day(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """Ratio of the sums of the last 24 rows; nan in the first 23 and where nothing was due."""
    return ratio(over_the_last(top, DAY_H), over_the_last(bottom, DAY_H))
