"""Leases: which running jobs keep their GPUs at the end of a lease, and which yield them to whom.

A running job holds a lease of L seconds. When it ends the job competes again with the pending ones
by the same order. If it is among those that the order would serve, the lease is renewed, at no
cost. If not, and a pending job before it could use its GPUs, it yields: it is to be checkpointed
and requeued. The least deserving yield first, and no more of them than the pending job needs on
nodes where it fits: whoever cannot let it start keeps its GPUs. A job that finds room elsewhere at
once makes way for any job, also where the order would have served it. A job keeps its GPUs where
moving it would cost more than it brings:

    it cannot checkpoint (unless the site preempts such jobs too)
    it has run for less than `min_run_s`, or was restarted `max_restarts` times
    its lease so far does not pay for a checkpoint and a restore: ran < cost / overhead
    the swap would not bring the poorer of the two tenants further: no ping-pong
    `concurrency` others yield already

Source: ASTRAEA (Ye et al., TPDS 2022), leases; LTGF.md section 5 for the guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial

from slurm_ltgf.core.model import NO_LIMIT, PendingJob
from slurm_ltgf.core.order import Rules, Standing, order
from slurm_ltgf.core.room import Room


class Action(Enum):
    """What happens to a job whose lease has ended."""

    RENEW = "renew"
    YIELD = "yield"
    KEEP = "keep"


@dataclass(slots=True)
class Leased:
    """A running job whose lease has ended. Not frozen: that would treble the cost of making one.

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
    """When a job must not yield; see the module.

    margin: by how much the poorer of the two tenants must be better off for the swap, as a part of
    what the taker gains by it.
    """

    min_run_s: float = 0.0
    max_restarts: int = 1000
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
    rooms: Mapping[str, Room],
    rules: Rules,
    lease_rules: LeaseRules,
    now: int,
    rho: Mapping[int, float] | None = None,
    only_yields: bool = False,
) -> list[Verdict]:
    """Decide for every job whose lease has ended.

    Args:
        expired: these jobs; none else may be made to yield.
        pending: records that wait, not held.
        standings: of every tenant here; `held_gpus` with the expired jobs, `committed_gpu_s`
            without (their leases are over).
        pool_of: pending job id -> pool.
        rooms: pool -> its nodes, with the expired jobs on them; left as the verdicts have it.
        rho: raw job id -> job index, of expired and pending jobs; absent means 0.
        only_yields: nobody asks why the others keep their GPUs.

    Returns:
        A verdict for each expired job, or for each that yields, in their order.
    """
    running = {job.job_id: job for job in expired}
    waiting = {job.job_id: job for job in pending if job.demand}
    turns = _turns(running, waiting, standings, rules, now=now, rho=rho)
    exchange = _Exchange(standings, rules, lease_rules, running, turns)
    for job_id in turns:
        if job_id in waiting:
            exchange.make_room(waiting[job_id], rooms[pool_of[job_id]])
    if only_yields:
        return [exchange.yielding[job_id] for job_id in running if job_id in exchange.yielding]
    reasons = exchange.objections()
    return [exchange.yielding.get(job_id) or _kept(job_id, reasons) for job_id in running]


def _kept(job_id: int, reasons: Mapping[int, str]) -> Verdict:
    if job_id in reasons:
        return Verdict(job_id, Action.KEEP, reasons[job_id])
    return Verdict(job_id, Action.RENEW, "no job before it could use its GPUs")


def _turns(
    running: Mapping[int, Leased],
    waiting: Mapping[int, PendingJob],
    standings: Mapping[str, Standing],
    rules: Rules,
    *,
    now: int,
    rho: Mapping[int, float] | None,
) -> list[int]:
    """Ids of all by the order, as if the expired ones had given their GPUs back."""
    again = [_again(job.job_id, job.tenant, job.gpus, job.submit) for job in running.values()]
    held = dict.fromkeys(standings, 0.0)
    for job in running.values():
        held[job.tenant] += job.gpus
    without = {name: _released(own, held[name]) for name, own in standings.items()}
    found = order([*waiting.values(), *again], without, rules=rules, now=now, rho=rho)
    return [turn.job.job_id for turn in found]


@lru_cache(maxsize=10_000)
def _again(job_id: int, tenant: str, gpus: float, eligible: int) -> PendingJob:
    """The record of a running job as if it waited; it does not starve: it runs."""
    return PendingJob(job_id, tenant, gpus, submit=NO_LIMIT, eligible=eligible)


def _released(own: Standing, gpus: float) -> Standing:
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
        running: Mapping[int, Leased],
        turns: Sequence[int],
    ) -> None:
        self._standings = standings
        self._rules = rules
        self._lease_rules = lease_rules
        self._running = running
        self._place = {job_id: i for i, job_id in enumerate(turns)}
        self._held = {name: own.held_gpus for name, own in standings.items()}
        costs = {job_id: self._cost_objection(job) for job_id, job in running.items()}
        self._dear = {job_id: reason for job_id, reason in costs.items() if reason}
        # the last in the order is the first to go
        movable = (j for j in reversed(turns) if j in running and j not in self._dear)
        self._rank = {job_id: i for i, job_id in enumerate(movable)}
        self._in_vain: set[tuple[str, float, int, int]] = set()
        self._better: dict[tuple[str, str, float], bool] = {}
        self.yielding: dict[int, Verdict] = {}
        self._objections: dict[int, str] = {}

    def objections(self) -> dict[int, str]:
        """Why jobs keep their GPUs that others could have used."""
        return (self._dear if self._in_vain else {}) | self._objections

    def make_room(self, taker: PendingJob, room: Room) -> None:
        """Let jobs yield so that the taker can start, if that is possible and worth it."""
        if room.fits(taker.job_id):
            self._start(taker, room)
            return
        like_it = (taker.tenant, taker.gpus, taker.tasks, id(room))
        if like_it in self._in_vain:
            return  # nor was there room for one before it that is like it
        # who makes way must fit elsewhere: all of them and the taker have to be given GPUs
        rules: list[Callable[[int], bool]] = [partial(self._may_go, taker)]
        if room.free_gpus >= taker.gpus:
            rules.insert(0, _anybody)
        for may_go in rules:
            if not any(map(may_go, self._rank)):
                continue
            going = room.clear(taker.job_id, self._rank, may_go)
            if going is None:
                continue
            moving = [job_id for job_id in going if not self._may_go(taker, job_id)]
            if self._is_possible(going, moving, taker, room):
                self._start(taker, room, going, moving)
                return
        self._in_vain.add(like_it)

    def _is_possible(
        self, going: Sequence[int], moving: Sequence[int], taker: PendingJob, room: Room
    ) -> bool:
        """Whether so many may yield, and those that only make way find room elsewhere at once."""
        if len(self.yielding) + len(going) > self._lease_rules.concurrency:
            reason = (
                f"{len(going)} jobs would have to yield and {len(self.yielding)} yield already: "
                f"no more than {self._lease_rules.concurrency} may at once"
            )
            self._objections.update(dict.fromkeys(going, reason))
            return False
        return not moving or room.would_fit(going, [taker.job_id, *moving])

    def _start(
        self,
        taker: PendingJob,
        room: Room,
        going: Sequence[int] = (),
        moving: Sequence[int] = (),
    ) -> None:
        """The taker gets its nodes; of those that go, the moving ones get others."""
        who = f"{taker.tenant}'s job {taker.shown_id or taker.job_id}"
        for job_id in going:
            job = self._running[job_id]
            room.give(job_id)
            del self._rank[job_id]
            if job_id in moving:
                reason = f"it makes way for {who} and can start again elsewhere at once"
            else:
                reason = f"{who} comes before it and can use its {job.gpus:g} GPUs"
                self._held[job.tenant] -= job.gpus
            self.yielding[job_id] = Verdict(job_id, Action.YIELD, reason, taker.job_id)
        for job_id in (taker.job_id, *moving):
            room.take(job_id)
        self._held[taker.tenant] = self._held.get(taker.tenant, 0.0) + taker.gpus
        self._better.clear()

    def _may_go(self, taker: PendingJob, job_id: int) -> bool:
        """Whether the job may yield to the taker."""
        if self._place[job_id] < self._place[taker.job_id]:
            return False
        job = self._running[job_id]
        if not self._improves(job, taker):
            self._objections[job_id] = (
                f"{job.tenant} would have had no more than {taker.tenant} then"
            )
            return False
        return True

    def _cost_objection(self, job: Leased) -> str:
        """Why the job must not be moved at all; "" if it may."""
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
        return ""

    def _improves(self, job: Leased, taker: PendingJob) -> bool:
        """Whether the poorer of the two tenants is better off at the end of the next lease."""
        if job.tenant == taker.tenant:
            return True
        gpus = min(job.gpus, taker.gpus)
        swap = (job.tenant, taker.tenant, gpus)
        if swap not in self._better:
            self._better[swap] = self._is_better(*swap)
        return self._better[swap]

    def _is_better(self, loser: str, taker: str, gpus: float) -> bool:
        before = min(self._state(loser, 0.0), self._state(taker, 0.0))
        gained = self._state(taker, gpus)
        after = min(self._state(loser, -gpus), gained)
        if before[0] != after[0]:
            return after > before
        gain = gained[1] - self._state(taker, 0.0)[1]
        return after[1] - before[1] > self._lease_rules.margin * gain

    def _state(self, tenant: str, more_gpus: float) -> tuple[bool, float]:
        """(above the floor, credit at the end of the next lease) with so many GPUs more."""
        own = self._standings[tenant]
        due = own.due_gpu_s + own.quota_gpus * self._rules.lease_s
        held = self._held.get(tenant, 0.0) + more_gpus
        has = own.attained_gpu_s + own.committed_gpu_s + held * self._rules.lease_s
        credit = has / due if due > 0 else float("inf")
        return held >= self._rules.floor * own.quota_gpus, credit


def _anybody(job_id: int) -> bool:
    """Whoever finds room elsewhere makes way."""
    return True
