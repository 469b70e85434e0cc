"""What accounts used, hold and lately held of GPUs: the ledger and the queue put together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from slurm_ltgf.core.demand import load_of
from slurm_ltgf.core.fairness import attained_gpu_s
from slurm_ltgf.core.gpus import Pricing, gpus
from slurm_ltgf.core.history import settle
from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN, Runs, Window
from slurm_ltgf.core.quota import Period, Use, summed_up
from slurm_ltgf.core.tenants import Tree
from slurm_ltgf.core.timeline import Clock
from slurm_ltgf.service.present import live_runs
from slurm_ltgf.slurm.queue import Queue
from slurm_ltgf.store.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Past:
    """Runs of the period and of lately, and what runs now."""

    runs: Runs
    queue: Queue
    window: Window
    recent: Window

    @staticmethod
    def of(
        cluster: str, ledger: Ledger, queue: Queue, period: Period, *, recent_s: int, now: int
    ) -> Past:
        """What the ledger and the queue know, each run once and with an end."""
        first = ledger.holdings(cluster).first
        begun = now - 1 if first is None else min(first, now - 1)
        window = Window(min(max(period.start, begun), now - 1), now)
        recent = Window(min(max(now - recent_s, begun), now - 1), now)
        known = ledger.runs(cluster, Window(min(window.start, recent.start), now))
        runs, live = live_runs(known, queue, cluster, now=now)
        return Past(settle(runs, now=now, live=live).runs, queue, window, recent)

    def types(self) -> frozenset[str]:
        """Every GPU type that a run or a job has."""
        texts = {*self.runs.gres.names, *(job.gres for job in self.queue.jobs)}
        return frozenset(
            token.rpartition("=")[0].partition(":")[2]
            for text in texts
            for token in text.split(",")
        )

    def uses(self, tree: Tree, pricing: Pricing) -> dict[str, Use]:
        """Use of each account with all below it."""
        used = summed_up(tree, self._attained(self.window, pricing))
        recent = summed_up(tree, self._attained(self.recent, pricing))
        held, now = (summed_up(tree, part) for part in self._held(pricing))
        return {
            name: Use(
                used_gpu_s=used.get(name, 0),
                held_gpu_s=held.get(name, 0),
                gpus=now.get(name, 0),
                rate_gpus=recent.get(name, 0) / self.recent.length_s,
            )
            for name in {*used, *recent, *held}
        }

    def _attained(self, window: Window, pricing: Pricing) -> dict[str, float]:
        names = sorted(set(self.runs.account.names))
        load, _ = load_of(
            self.runs,
            window,
            tenants=names,
            tenant_of={name: name for name in names},
            pricing=pricing,
        )
        return dict(zip(names, attained_gpu_s(load, Clock(window), len(names)), strict=True))

    def _held(self, pricing: Pricing) -> tuple[dict[str, float], dict[str, float]]:
        """(GPU-seconds that running jobs could still use, GPUs they hold), by account."""
        seconds: dict[str, float] = {}
        devices: dict[str, float] = {}
        for account, count, left_s in self._running(pricing):
            seconds[account] = seconds.get(account, 0) + count * left_s
            devices[account] = devices.get(account, 0) + count
        return seconds, devices

    def _running(self, pricing: Pricing) -> Iterator[tuple[str, float, float]]:
        """(account, GPUs, seconds to its limit) of each job that holds GPUs."""
        for job in self.queue.holding:
            count = float(gpus(job.gres, pricing).weighted)
            if not count or job.start == UNKNOWN:
                continue
            endless = job.limit_s in (UNKNOWN, NO_LIMIT)
            left = math.inf if endless else max(job.start + job.limit_s - self.window.end, 0)
            yield job.account, count, left
