"""Leases: which running jobs keep their GPUs at the end of a lease, and which yield them to whom.

A running job holds a lease of L seconds. When it ends the job competes again with the pending ones
by the same order. If it is among those that the order would serve, the lease is renewed, at no
cost. If not, and a pending job before it could use its GPUs, it yields: it is to be checkpointed
and requeued. It keeps its GPUs all the same where yielding would cost more than it brings:

    it cannot checkpoint (unless the site preempts such jobs too)
    it has run for less than `min_run_s`, or was restarted `max_restarts` times
    its lease so far does not pay for a checkpoint and a restore: ran < cost / overhead
    the swap would not raise the lower of the two tenants' credits by `margin`: no ping-pong
    `concurrency` others yield already

Source: ASTRAEA (Ye et al., TPDS 2022), leases; LTGF.md section 5 for the guards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.order import Rules, Standing, order


class Action(Enum):
    """What happens to a job whose lease has ended."""

    RENEW = "renew"
    YIELD = "yield"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Leased:
    """A running job whose lease has ended.

    pool: what its GPUs are exchangeable with (partition and GPU type). ran_s: since this run began.
    cost_s: checkpoint and restore. submit: of the job.
    """

    job_id: int
    tenant: str
    gpus: float
    pool: str = ""
    submit: int = 0
    ran_s: float = 0.0
    restarts: int = 0
    can_checkpoint: bool = True
    cost_s: float = 25.0


@dataclass(frozen=True, slots=True)
class LeaseRules:
    """When a job must not yield; see the module. margin: part of the lower credit."""

    min_run_s: float = 0.0
    max_restarts: int = 20
    overhead: float = 0.02
    margin: float = 0.05
    concurrency: int = 4
    preempt_without_checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a job whose lease has ended, in a sentence; to: the job that it yields to."""

    job_id: int
    action: Action
    reason: str
    to: int | None = None


def verdicts(
    expired: Sequence[Leased],
    pending: Iterable[PendingJob],
    standings: Mapping[str, Standing],
    *,
    pool_of: Mapping[int, str],
    free_gpus: Mapping[str, float],
    rules: Rules,
    lease_rules: LeaseRules,
    now: int,
    rho: Mapping[int, float] | None = None,
) -> list[Verdict]:
    """Decide for every job whose lease has ended.

    Args:
        expired: these jobs; none else may be made to yield.
        pending: records that wait, not held.
        standings: of every tenant here; `held_gpus` with the expired jobs, `committed_gpu_s`
            without (their leases are over).
        pool_of: pending job id -> pool.
        free_gpus: pool -> GPUs that no job holds.

    Returns:
        A verdict for each expired job, in their order.
    """
    running = {job.job_id: job for job in expired}
    waiting = {job.job_id: job for job in pending if job.demand}
    served = _served(running, waiting, standings, pool_of, free_gpus, rules, now=now, rho=rho)
    takers = [waiting[job_id] for job_id in served if job_id in waiting]
    losers = [job for job in expired if job.job_id not in served]
    exchange = _Exchange(standings, rules, lease_rules, dict(free_gpus))
    decided = {
        job.job_id: Verdict(job.job_id, Action.RENEW, "among those that the order serves")
        for job in expired
        if job.job_id in served
    }
    for taker in takers:
        decided |= exchange.make_room(taker, pool_of[taker.job_id], losers, decided)
    for job in losers:
        if job.job_id not in decided:
            decided[job.job_id] = Verdict(
                job.job_id, Action.KEEP, "no job before it could use its GPUs"
            )
    return [decided[job.job_id] for job in expired]


def _served(
    running: Mapping[int, Leased],
    waiting: Mapping[int, PendingJob],
    standings: Mapping[str, Standing],
    pool_of: Mapping[int, str],
    free_gpus: Mapping[str, float],
    rules: Rules,
    *,
    now: int,
    rho: Mapping[int, float] | None,
) -> list[int]:
    """Ids of jobs that the order would serve if the expired ones had given their GPUs back."""
    room = dict(free_gpus)
    for job in running.values():
        room[job.pool] = room.get(job.pool, 0.0) + job.gpus
    again = [
        PendingJob(job.job_id, job.tenant, job.gpus, submit=job.submit, eligible=job.submit)
        for job in running.values()
    ]
    without = {name: _released(own, name, running) for name, own in standings.items()}
    served = []
    for turn in order([*waiting.values(), *again], without, rules=rules, now=now, rho=rho):
        job_id, gpus = turn.job.job_id, turn.job.gpus
        pool = running[job_id].pool if job_id in running else pool_of[job_id]
        if gpus <= room.get(pool, 0.0):
            room[pool] -= gpus
            served.append(job_id)
    return served


def _released(own: Standing, tenant: str, running: Mapping[int, Leased]) -> Standing:
    gpus = sum(job.gpus for job in running.values() if job.tenant == tenant)
    return Standing(
        own.attained_gpu_s,
        own.due_gpu_s,
        own.quota_gpus,
        max(own.held_gpus - gpus, 0.0),
        own.committed_gpu_s,
    )


class _Exchange:
    """Who yields to whom, one taker after the other."""

    def __init__(
        self,
        standings: Mapping[str, Standing],
        rules: Rules,
        lease_rules: LeaseRules,
        free: dict[str, float],
    ) -> None:
        self._standings = standings
        self._rules = rules
        self._lease_rules = lease_rules
        self._free = free
        self._held = {name: own.held_gpus for name, own in standings.items()}
        self._yielding = 0

    def make_room(
        self,
        taker: PendingJob,
        pool: str,
        losers: Sequence[Leased],
        decided: Mapping[int, Verdict],
    ) -> dict[int, Verdict]:
        """Verdicts that let the taker start; none yields where not all that it needs can be had."""
        free = self._free.get(pool, 0.0)
        if free >= taker.gpus:
            self._free[pool] = free - taker.gpus
            self._held[taker.tenant] = self._held.get(taker.tenant, 0.0) + taker.gpus
            return {}
        found: dict[int, Verdict] = {}
        chosen: list[Leased] = []
        for job in losers:
            if job.pool != pool or job.job_id in decided:
                continue
            objection = self._objection(job, taker, len(chosen))
            if objection:
                found[job.job_id] = Verdict(job.job_id, Action.KEEP, objection)
                continue
            chosen.append(job)
            free += job.gpus
            if free >= taker.gpus:
                break
        if free < taker.gpus:
            return found
        self._swap(chosen, taker, pool, free)
        return found | {
            job.job_id: Verdict(
                job.job_id,
                Action.YIELD,
                f"{taker.tenant}'s job {taker.shown_id or taker.job_id} comes before it and "
                f"can use its {job.gpus:g} GPUs",
                taker.job_id,
            )
            for job in chosen
        }

    def _swap(self, chosen: Sequence[Leased], taker: PendingJob, pool: str, free: float) -> None:
        self._free[pool] = free - taker.gpus
        self._yielding += len(chosen)
        for job in chosen:
            self._held[job.tenant] -= job.gpus
        self._held[taker.tenant] = self._held.get(taker.tenant, 0.0) + taker.gpus

    def _objection(self, job: Leased, taker: PendingJob, chosen: int) -> str:
        """Why the job must not yield to the taker; "" if it may."""
        limits = self._lease_rules
        if not job.can_checkpoint and not limits.preempt_without_checkpoint:
            return "it cannot checkpoint"
        if job.ran_s < limits.min_run_s:
            return f"it has run {job.ran_s:g} s, less than {limits.min_run_s:g} s"
        if job.restarts >= limits.max_restarts:
            return f"it was restarted {job.restarts} times already"
        worth_s = job.cost_s / limits.overhead
        if job.ran_s < worth_s:
            return f"a move costs {job.cost_s:g} s: not before it has run {worth_s:g} s"
        if self._yielding + chosen >= limits.concurrency:
            return f"{limits.concurrency} jobs yield already"
        if not self._improves(job, taker):
            return f"{job.tenant} would have had no more than {taker.tenant} then"
        return ""

    def _improves(self, job: Leased, taker: PendingJob) -> bool:
        """Whether the lower of the two credits at the end of the next lease rises by the margin."""
        if job.tenant == taker.tenant:
            return True
        gpus = min(job.gpus, taker.gpus)
        before = min(self._credit(job.tenant, 0.0), self._credit(taker.tenant, 0.0))
        after = min(self._credit(job.tenant, -gpus), self._credit(taker.tenant, gpus))
        return after > before * (1 + self._lease_rules.margin)

    def _credit(self, tenant: str, more_gpus: float) -> float:
        own = self._standings[tenant]
        due = own.due_gpu_s + own.quota_gpus * self._rules.lease_s
        held = self._held.get(tenant, 0.0) + more_gpus
        has = own.attained_gpu_s + own.committed_gpu_s + held * self._rules.lease_s
        return has / due if due > 0 else float("inf")
