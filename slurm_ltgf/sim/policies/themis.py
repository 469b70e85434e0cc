"""themis: finish-time fairness; who would finish latest, against a cluster of its own, is first.

    rho = T_shared / T_isolated
    T_shared     from the job's arrival to its end if it got its GPUs now: age + work left
    T_isolated   its run time on a 1/N part of the cluster, N the mean number of jobs since it came:
                 run time · max(1, g · N / C)

Source: Mahajan et al., "Themis: fair and efficient GPU cluster scheduling", NSDI 2020, sections 3
and 4; leases of 20 minutes as there. An app of Themis is one job here, and its own estimate of the
work left is exact, from the trace. Simplified: the auction. Themis offers free GPUs to the part
1 - f of the apps with the worst rho (f = 0.8), which bid what rho each subset would give them; the
winning split maximises the product of the bids, and hidden payments keep bids honest. Here a bid is
all of a job's GPUs or none, since traces hold gangs of one size and say nothing of how placement
changes speed; then the auction has nothing to trade against fairness, and nobody lies. So the GPUs
are offered to the worst first, one after the other: f as near to 1 as it goes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from slurm_ltgf.core.model import FloatArray
from slurm_ltgf.sim.policies.queues import Preemptive
from slurm_ltgf.sim.workload import Job

#: Rows of the table of waiting jobs.
_SUBMIT, _LEFT, _RUN, _SIZE, _SEEN, _ID = range(6)


class Themis(Preemptive):
    """Largest rho first."""

    name = "themis"

    def __init__(self, gpus: int, lease_s: int = 1200) -> None:
        super().__init__(lease_s=lease_s)
        self._gpus = gpus
        self._waiting: list[Job] = []
        self._place: dict[int, int] = {}
        self._table = np.empty((6, 64))
        self._seen_at: dict[int, float] = {}
        self._present = 0
        self._seen = 0.0  # ∫ jobs present dt
        self._now = 0

    def arrived(self, job: Job, now: int) -> None:
        """One job more, unless it comes again."""
        self._count(now)
        if job.job_id not in self._seen_at:
            self._seen_at[job.job_id] = self._seen
        self._present += 1
        row = self._place[job.job_id] = len(self._waiting)
        self._waiting.append(job)
        if row == self._table.shape[1]:
            self._table = np.concatenate([self._table, np.empty_like(self._table)], axis=1)
        self._table[:, row] = self._row(job, now)

    def started(self, job: Job, now: int) -> None:
        """It waits no more; the last takes its row."""
        super().started(job, now)
        row, last = self._place.pop(job.job_id), self._waiting.pop()
        if last is not job:
            self._waiting[row], self._place[last.job_id] = last, row
            self._table[:, row] = self._table[:, len(self._waiting)]

    def ended(self, job: Job, now: int) -> None:
        """One job less, unless it comes again."""
        super().ended(job, now)
        self._count(now)
        self._present -= 1

    def queue(self, now: int, closed: Collection[str]) -> Iterator[Job]:
        """Largest rho first."""
        return self._by_rho(self._table[:, : len(self._waiting)], self._waiting, now)

    def contest(self, over: Sequence[Job], now: int) -> Iterator[Job]:
        """Largest rho first."""
        running = np.array([self._row(job, now) for job in over]).T
        table = np.concatenate([self._table[:, : len(self._waiting)], running], axis=1)
        return self._by_rho(table, [*self._waiting, *over], now)

    def _row(self, job: Job, now: int) -> tuple[float, ...]:
        worked = 0 if job.start is None else now - job.start
        left = max(job.left_s - worked, 0)
        seen = self._seen_at[job.job_id]
        return (job.submit, left, max(job.run_s, 1), job.gpus, seen, job.job_id)

    def reason(self, job: Job, now: int) -> str:
        """Its rho."""
        row = self._place.get(job.job_id)
        return "" if row is None else f"rho {self._rho(self._table[:, row : row + 1], now)[0]:.4g}"

    def _by_rho(self, table: FloatArray, jobs: Sequence[Job], now: int) -> Iterator[Job]:
        rho = self._rho(table, now)
        for row in np.lexsort((table[_ID], table[_SUBMIT], -rho)).tolist():
            yield jobs[row]

    def _rho(self, table: FloatArray, now: int) -> FloatArray:
        self._count(now)
        age = now - table[_SUBMIT]
        present = np.where(age > 0, (self._seen - table[_SEEN]) / np.maximum(age, 1), self._present)
        alone = table[_RUN] * np.maximum(table[_SIZE] * present / self._gpus, 1.0)
        rho: FloatArray = (age + table[_LEFT]) / alone
        return rho

    def _count(self, now: int) -> None:
        self._seen += self._present * (now - self._now)
        self._now = now
