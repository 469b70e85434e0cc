"""ltgf: the order and the leases of core, the functions that the daemon calls, on virtual GPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from slurm_ltgf.core.book import Book
from slurm_ltgf.core.lease import Action, Leased, LeaseRules, verdicts
from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.order import Rules, turns
from slurm_ltgf.sim.cluster import Cluster
from slurm_ltgf.sim.explain import turn_reason
from slurm_ltgf.sim.policies.base import Base
from slurm_ltgf.sim.workload import Job


class Ltgf(Base):
    """Lowest start tag first, by the key "credit"; jobs run to their end.

    Inside a tenant jobs go by the time they came: those that never ran have job index 0, and those
    that were moved come back behind them.
    """

    name = "ltgf"

    def __init__(
        self,
        weights: Mapping[str, float],
        gpus: int,
        *,
        window_s: float,
        rules: Rules,
    ) -> None:
        super().__init__()
        self._book = Book(weights, capacity_gpus=gpus, window_s=window_s, lease_s=rules.lease_s)
        self._rules = rules
        self._waiting: dict[str, dict[int, PendingJob]] = {name: {} for name in weights}
        self._jobs: dict[int, Job] = {}

    def arrived(self, job: Job, now: int) -> None:
        """To the end of its tenant's queue."""
        self._jobs[job.job_id] = job
        self._waiting[job.tenant][job.job_id] = PendingJob(
            job.job_id, job.tenant, job.gpus, submit=job.submit, eligible=now
        )

    def started(self, job: Job, now: int) -> None:
        """Its lease begins."""
        super().started(job, now)
        del self._waiting[job.tenant][job.job_id]
        self._book.start(job.job_id, job.tenant, job.gpus, now, job.limit_s)

    def ended(self, job: Job, now: int) -> None:
        """What is left of its lease is given back."""
        super().ended(job, now)
        self._book.stop(job.job_id, job.tenant, job.gpus, now)
        del self._jobs[job.job_id]

    def queue(self, now: int, closed: Collection[str]) -> Iterator[Job]:
        """By start tag."""
        queues = {name: jobs.values() for name, jobs in self._waiting.items() if jobs}
        standings = {name: self._book.standing(name, now) for name in queues}
        for turn in turns(queues, standings, rules=self._rules, now=now):
            if self.said is not None:
                own = standings[turn.job.tenant]
                self.said[turn.job.job_id] = turn_reason(turn, own, self._rules.lease_s)
            yield self._jobs[turn.job.job_id]


class LtgfLease(Ltgf):
    """The same with leases: at the end of one, a job may be checkpointed and requeued."""

    name = "ltgf-lease"

    def __init__(
        self,
        weights: Mapping[str, float],
        gpus: int,
        *,
        window_s: float,
        rules: Rules,
        lease_rules: LeaseRules,
        cost_s: float,
    ) -> None:
        super().__init__(weights, gpus, window_s=window_s, rules=rules)
        self.lease_s = int(rules.lease_s)
        self._lease_rules = lease_rules
        self._cost_s = cost_s

    def yielding(self, over: Sequence[Job], room: Cluster, now: int) -> Collection[int]:
        """By the verdicts of core.lease, against the jobs that come next in the order."""
        free_gpus = room.free_gpus
        pending = self._next_to_go(sum(job.gpus for job in over) + free_gpus, now)
        names = {job.tenant for job in over} | {job.tenant for job in pending}
        found = verdicts(
            [self._leased(job, now) for job in over],
            pending,
            {name: self._book.standing(name, now) for name in names},
            pool_of={job.job_id: "" for job in pending},
            free_gpus={"": float(free_gpus)},
            rules=self._rules,
            lease_rules=self._lease_rules,
            now=now,
        )
        if self.said is not None:
            self.said.update((verdict.job_id, verdict.reason) for verdict in found)
        return {verdict.job_id for verdict in found if verdict.action is Action.YIELD}

    def _next_to_go(self, gpus: float, now: int) -> list[PendingJob]:
        """The first waiting jobs that together ask for no more GPUs than could be had."""
        queues = {name: jobs.values() for name, jobs in self._waiting.items() if jobs}
        standings = {name: self._book.standing(name, now) for name in queues}
        chosen: list[PendingJob] = []
        for turn in turns(queues, standings, rules=self._rules, now=now):
            gpus -= turn.job.gpus
            if gpus < 0:
                break
            chosen.append(turn.job)
        return chosen

    def _leased(self, job: Job, now: int) -> Leased:
        return Leased(
            job.job_id,
            job.tenant,
            job.gpus,
            submit=job.submit,
            ran_s=now - (job.start if job.start is not None else now),
            restarts=job.moves,
            cost_s=self._cost_s,
        )
