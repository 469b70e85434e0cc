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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

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

    started: when this run began. cost_s: checkpoint and restore. submit: of the job.
    """

    job_id: int
    tenant: str
    gpus: float
    submit: int = 0
    started: int = 0
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
    turns: Sequence[int],
    standings: Mapping[str, Standing],
    *,
    pool_of: Mapping[int, str],
    rooms: Mapping[str, Room],
    rules: Rules,
    lease_rules: LeaseRules,
    now: int,
    only_yields: bool = False,
) -> list[Verdict]:
    """Decide for every job whose lease has ended.

    Args:
        expired: these jobs; none else may be made to yield.
        pending: records that wait, not held.
        turns: ids of all of them by the order, as `contest` has it.
        standings: of every tenant here; `held_gpus` with the expired jobs, `committed_gpu_s`
            without (their leases are over).
        pool_of: pending job id -> pool.
        rooms: pool -> its nodes, with the expired jobs on them; left as the verdicts have it.
        only_yields: nobody asks why the others keep their GPUs.

    Returns:
        A verdict for each expired job, or for each that yields, in their order.
    """
    running = {job.job_id: job for job in expired}
    waiting = {job.job_id: job for job in pending if job.demand}
    exchange = _Exchange(
        standings, rules, lease_rules, running, turns, now, explains=not only_yields
    )
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


def contest(
    expired: Iterable[Leased],
    pending: Iterable[PendingJob],
    standings: Mapping[str, Standing],
    *,
    rules: Rules,
    now: int,
    rho: Mapping[int, float] | None = None,
) -> list[int]:
    """Ids of all by the order, as if the expired jobs had given their GPUs back and waited.

    Args:
        standings: as for `verdicts`.
        rho: raw job id -> job index, of expired and pending jobs; absent means 0.
    """
    again = [candidate(job) for job in expired]
    released = without(standings, again)
    found = order([*pending, *again], released, rules=rules, now=now, rho=rho)
    return [turn.job.job_id for turn in found]


def candidate(job: Leased) -> PendingJob:
    """The record of a running job as if it waited; it does not starve: it runs."""
    return PendingJob(job.job_id, job.tenant, job.gpus, submit=NO_LIMIT, eligible=job.submit)


def without(
    standings: Mapping[str, Standing], released: Iterable[PendingJob]
) -> dict[str, Standing]:
    """Standings as if these jobs had given their GPUs back."""
    held = {name: own.held_gpus for name, own in standings.items()}
    for job in released:
        held[job.tenant] -= job.gpus
    return {
        name: Standing(
            own.attained_gpu_s,
            own.due_gpu_s,
            own.quota_gpus,
            max(held[name], 0.0),
            own.committed_gpu_s,
        )
        for name, own in standings.items()
    }


class _Exchange:
    """Who yields to whom, one taker after the other."""

    def __init__(
        self,
        standings: Mapping[str, Standing],
        rules: Rules,
        lease_rules: LeaseRules,
        running: Mapping[int, Leased],
        turns: Sequence[int],
        now: int,
        *,
        explains: bool,
    ) -> None:
        self._standings = standings
        self._rules = rules
        self._lease_rules = lease_rules
        self._running = running
        self._now = now
        self._place = {job_id: i for i, job_id in enumerate(turns)}
        self._held = {name: own.held_gpus for name, own in standings.items()}
        self._dear = {j: reason for j, job in running.items() if (reason := self._cost(job))}
        # the last in the order is the first to go
        self._movable = [j for j in reversed(turns) if j in running and j not in self._dear]
        self._in_vain: dict[tuple[str, float, int, int], int] = {}
        self._better: dict[tuple[str, str, float], bool] = {}
        self._explains = explains
        self.yielding: dict[int, Verdict] = {}
        self._objections: dict[int, str] = {}

    def objections(self) -> dict[int, str]:
        """Why jobs keep their GPUs that others could have used."""
        return (self._dear if self._in_vain else {}) | self._objections

    def make_room(self, taker: PendingJob, room: Room) -> None:
        """Let jobs yield so that the taker can start, if that is possible and worth it."""
        like_it = (taker.tenant, taker.gpus, taker.tasks, id(room))
        tried_at = self._in_vain.get(like_it)
        if tried_at == room.changes:
            return
        if room.fits(taker.job_id):
            self._start(taker, room)
            return
        if tried_at is not None:
            return  # nor was there room for one before it that is like it
        worse = self._worse_than(taker)
        # who makes way must fit elsewhere: all of them and the taker have to be given GPUs
        for movable in (self._movable, worse) if room.free_gpus >= taker.gpus else (worse,):
            going = room.clear(taker.job_id, movable) if movable else None
            if going is None:
                continue
            moving = [job_id for job_id in going if job_id not in worse]
            if self._is_possible(going, moving, taker, room):
                self._start(taker, room, going, moving)
                return
        self._in_vain[like_it] = room.changes

    def _worse_than(self, taker: PendingJob) -> list[int]:
        """Those that may yield to the taker, the last in the order first."""
        worse = []
        place, better, own, gpus = self._place, self._better, taker.tenant, taker.gpus
        after = place[taker.job_id]
        for job_id in self._movable:
            if place[job_id] < after:
                break
            job = self._running[job_id]
            swap = (job.tenant, own, job.gpus if job.gpus < gpus else gpus)
            if swap not in better:
                better[swap] = job.tenant == own or self._is_better(*swap)
            if better[swap]:
                worse.append(job_id)
            elif self._explains:
                self._objections[job_id] = f"{job.tenant} would have had no more than {own} then"
        return worse

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
        for job_id in going:
            who = f"{taker.tenant}'s job {taker.shown_id or taker.job_id}"
            job = self._running[job_id]
            room.give(job_id)
            self._movable.remove(job_id)
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

    def _cost(self, job: Leased) -> str:
        """Why the job must not be moved at all; "" if it may."""
        limits = self._lease_rules
        if not job.can_checkpoint and not limits.preempt_without_checkpoint:
            return "it cannot checkpoint"
        ran_s = self._now - job.started
        if ran_s < limits.min_run_s:
            return f"it has run {ran_s:g} s, less than {limits.min_run_s:g} s"
        if job.restarts >= limits.max_restarts:
            return f"it was restarted {job.restarts} times already"
        worth_s = job.cost_s / limits.overhead
        if ran_s < worth_s:
            return f"a move costs {job.cost_s:g} s: not before it has run {worth_s:g} s"
        return ""

    def _is_better(self, loser: str, taker: str, gpus: float) -> bool:
        """Whether the poorer of two tenants is better off at the end of the next lease."""
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
