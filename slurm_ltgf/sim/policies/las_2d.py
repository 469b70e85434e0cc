"""las-2d: Tiresias' discretised two-dimensional least attained service, preemptive.

    attained GPU-time   g · seconds that the job held its GPUs
    two queues          below the threshold of 18,000 GPU-s, and above; the first goes first
    inside a queue      first in, first out by the time at which the job came into it
    promotion           a job that has waited `knob` times as long as it ran goes back into the
                        first queue, and both counts begin anew

Source: Gu et al., "Tiresias: a GPU cluster manager for distributed deep learning", NSDI 2019,
section 3.2 (Discretized 2D-LAS, PROMOTEKNOB); the threshold is the one of its authors' experiments
as ASTRAEA's comparison has it. The paper preempts whenever a job comes, ends or changes its queue,
without a quantum: 900 s is the lease that ASTRAEA's comparison gives it. It leaves the knob to the
operator: 8 is our choice, none is no promotion.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from slurm_ltgf.sim.policies.queues import Key, KeyedPreemptive
from slurm_ltgf.sim.workload import Job


@dataclass(slots=True)
class _Service:
    """Of a job: its queue and when it came into it; ran_s, waited_s: since the job came or was
    promoted, without the present wait or run, which began at `since`."""

    entered: int
    since: int
    queue: int = 0
    ran_s: int = 0
    waited_s: int = 0


class Las2d(KeyedPreemptive):
    """Least attained GPU-time first, in two classes."""

    name = "las-2d"

    def __init__(
        self, lease_s: int = 900, *, threshold_gpu_s: float = 18_000, knob: float = 8
    ) -> None:
        super().__init__(lease_s=lease_s)
        self._threshold_gpu_s = threshold_gpu_s
        self._knob = knob
        self._service: dict[int, _Service] = {}
        self._promotions: list[tuple[float, int, int]] = []
        self._waiting: dict[int, Job] = {}

    def key(self, job: Job, now: int) -> Key:
        """(queue, time of entry, id)."""
        own = self._service[job.job_id]
        if job.start is not None and own.queue == 0:
            crossed = own.since + math.ceil(self._threshold_gpu_s / job.gpus) - own.ran_s
            if crossed <= now:
                return (1, crossed, job.job_id)
        return (own.queue, own.entered, job.job_id)

    def arrived(self, job: Job, now: int) -> None:
        """To the end of the first queue, or back to its place in its own."""
        own = self._service.setdefault(job.job_id, _Service(now, now))
        self._waiting[job.job_id] = job
        super().arrived(job, now)
        if own.queue and math.isfinite(self._knob):
            at = now + self._knob * own.ran_s - own.waited_s
            heapq.heappush(self._promotions, (at, job.job_id, now))

    def started(self, job: Job, now: int) -> None:
        """It waits no more."""
        super().started(job, now)
        del self._waiting[job.job_id]
        own = self._service[job.job_id]
        own.waited_s += now - own.since
        own.since = now

    def ended(self, job: Job, now: int) -> None:
        """What it ran counts; that may have brought it into the second queue."""
        super().ended(job, now)
        own = self._service[job.job_id]
        queue, entered, _ = self.key(job, now)
        own.queue, own.entered = int(queue), int(entered)
        own.ran_s += now - own.since
        own.since = now

    def queue(self, now: int, closed: Collection[str]) -> Iterator[Job]:
        """First queue first."""
        self._promote(now)
        return super().queue(now, closed)

    def contest(self, over: Sequence[Job], now: int) -> Iterator[Job]:
        """First queue first."""
        self._promote(now)
        return super().contest(over, now)

    def reason(self, job: Job, now: int) -> str:
        """Its queue."""
        own = self._service[job.job_id]
        return f"queue {own.queue + 1} since {own.entered} s, attained {job.gpus * own.ran_s} GPU-s"

    def _promote(self, now: int) -> None:
        """Jobs that have waited long enough go to the end of the first queue."""
        while self._promotions and self._promotions[0][0] <= now:
            at, job_id, since = heapq.heappop(self._promotions)
            job = self._waiting.get(job_id)
            if job is None or self._service[job_id].since != since:
                continue  # it has run since then
            self._leave(job)
            self._service[job_id] = _Service(math.ceil(at), math.ceil(at))
            super().arrived(job, now)
