"""Leases of a running cluster: what the verdicts are, and, if the site wants it, the moves.

The verdicts are `core.lease`'s, as in the simulator; here the site's jobs and nodes become what it
takes, and the site's guards are kept: classes by QOS, the hourly rate, quiet times, the breaker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_ltgf.core.lease import Action, Leased, LeaseRules, Verdict, contest, verdicts
from slurm_ltgf.core.lease_guards import Guards, Situation, allowance
from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.core.move import State
from slurm_ltgf.core.plan import Hold
from slurm_ltgf.service.lease_rooms import takers
from slurm_ltgf.service.move_groups import Asker, refusals
from slurm_ltgf.service.move_limits import RESET, resting, situation
from slurm_ltgf.service.moves import Moves
from slurm_ltgf.service.present import View
from slurm_ltgf.service.savers import Saver, Savers
from slurm_ltgf.service.terms import rules_of
from slurm_ltgf.slurm.jobs import QueueJob
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger

ACTOR = "ltgf lease"
ASKER = Asker(ACTOR, "lease")


@dataclass(frozen=True, slots=True)
class LeaseEdges:
    """What leases ask besides the view.

    uid_of: user's name -> uid. nodes_asked: job id -> nodes, of those that wait.
    maintenance_in_s: None: none is planned.
    """

    uid_of: Callable[[str], int | None]
    nodes_asked: Callable[[], Mapping[int, int]]
    maintenance_in_s: Callable[[int], int | None]


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A running job and its lease.

    ends: of the lease. verdict: None: it is not over. can_save: if not, a move loses its work.
    """

    job: QueueJob
    tenant: str
    gpus: float
    ends: int
    verdict: Verdict | None
    to: str = ""
    why: str = ""
    can_save: bool = True

    @property
    def name(self) -> str:
        """As squeue shows the job."""
        return self.job.shown_id or str(self.job.job_id)


@dataclass(frozen=True, slots=True)
class LeaseView:
    """All leases at one moment. stopped: why nobody may yield now; "" if some may."""

    rows: tuple[LeaseRow, ...]
    stopped: str = ""
    allowed: int = 0
    notes: tuple[str, ...] = ()


def judge(seen: View, config: Config, ledger: Ledger, moves: Moves, edges: LeaseEdges) -> LeaseView:
    """What becomes of every running job's lease, now."""
    now, lease_s = seen.now, rules_of(config).lease_s
    guards, limits = _limits(seen, config, ledger, moves, edges)
    allowed, stopped = _allowance(config, guards, limits, lease_s)
    holding = [job for job in seen.queue.holding if job.state == "RUNNING" and job.start != UNKNOWN]
    holds = {hold.job_id: hold for hold in seen.holds}
    ours = [job for job in holding if job.job_id in holds and holds[job.job_id].gpus > 0]
    refused = refusals(ledger, ASKER, now - config.lease.min_run_s)
    refused |= resting(guards, limits, ours, edges.uid_of)
    kept = _exempt(ours, seen, config, moves, refused)
    savers = Savers(config, edges.uid_of, moves.memory)
    over = [job for job in ours if now - job.start >= lease_s and job.job_id not in kept]
    expired = {job.job_id: _leased(job, holds[job.job_id], savers.saver(job)) for job in over}
    # where nobody may yield it is still told who would
    most = config.lease.concurrency if stopped else allowed
    found = _verdicts(seen, config, list(expired.values()), over, moves, edges, most)
    rows = []
    for job in ours:
        hold = holds[job.job_id]
        verdict = found.get(job.job_id)
        if job.job_id in kept and now - job.start >= lease_s:
            verdict = Verdict(job.job_id, Action.KEEP, kept[job.job_id])
        rows.append(
            LeaseRow(
                job=job,
                tenant=hold.tenant,
                gpus=hold.gpus,
                ends=int(job.start + lease_s),
                verdict=verdict,
                to=_shown(verdict, seen),
                why=savers.why.get(job.job_id, ""),
                can_save=job.job_id not in expired or expired[job.job_id].can_checkpoint,
            )
        )
    rows.sort(key=lambda row: row.ends)
    judged = LeaseView(tuple(rows), stopped, allowed, savers.notes())
    return _without_yields(judged) if stopped else judged


def reset(ledger: Ledger, *, now: int) -> None:
    """Close the breaker: failures until now count no more."""
    ledger.state_set(RESET, str(now))


def _limits(
    seen: View, config: Config, ledger: Ledger, moves: Moves, edges: LeaseEdges
) -> tuple[Guards, Situation]:
    """The site's limits, and what counts for them now."""
    own = config.lease
    found = situation(
        ledger,
        moves,
        ACTOR,
        now=seen.now,
        maintenance_in_s=edges.maintenance_in_s(seen.now),
        rest_s=own.breaker_rest_s,
    )
    return Guards(own.concurrency, own.per_hour, own.quiet, own.breaker, own.breaker_rest_s), found


def _allowance(
    config: Config, guards: Guards, limits: Situation, lease_s: float
) -> tuple[int, str]:
    if not config.checkpoint.records and not config.lease.preempt_without_checkpoint:
        return 0, "checkpoint.records is not set: no job can be asked to save"
    return allowance(guards, limits, lease_s=lease_s)


def _exempt(
    ours: Sequence[QueueJob],
    seen: View,
    config: Config,
    moves: Moves,
    refusals: Mapping[str, tuple[int, str]],
) -> dict[int, str]:
    """Running jobs that no verdict may touch, and why."""
    own, found = config.lease, {}
    protected = set(own.protected_qos)
    known = {move.job_id: move for move in moves.files.all()}
    for job in ours:
        move = known.get(job.job_id)
        tried_at, why = refusals.get(str(job.job_id), (0, ""))
        if job.qos in protected:
            found[job.job_id] = f"QOS {job.qos} never yields (lease.protected_qos)"
        elif tried_at > job.start:
            found[job.job_id] = f"it cannot be moved now: {why}"
        elif move is None or move.restart != job.restarts:
            continue
        elif not move.state.is_end:
            found[job.job_id] = f"it is being moved: {move.why}"
        elif move.state is State.FAILED and seen.now - (move.ended_at or 0) < own.min_run_s:
            found[job.job_id] = f"not again so soon: {move.why}"
    return found


def _leased(job: QueueJob, hold: Hold, saver: Saver) -> Leased:
    """A job whose lease is over."""
    return Leased(
        job.job_id,
        hold.tenant,
        hold.gpus,
        submit=job.submit,
        started=job.start,
        restarts=job.restarts,
        can_checkpoint=saver.can_save,
        cost_s=saver.cost_s,
    )


# --- verdicts -------------------------------------------------------------------------------------


def _verdicts(
    seen: View,
    config: Config,
    expired: Sequence[Leased],
    over: Sequence[QueueJob],
    moves: Moves,
    edges: LeaseEdges,
    allowed: int,
) -> dict[int, Verdict]:
    if not expired:
        return {}
    those = takers(seen, over, moves.files.all(), edges.nodes_asked())
    waiting = [job for job in those.waiting if job.job_id in those.pools.pool_of]
    if not waiting:
        return {
            job.job_id: Verdict(job.job_id, Action.RENEW, "no job before it could use its GPUs")
            for job in expired
        }
    own, rules = config.lease, rules_of(config)
    rho = seen.measurement.jobs.rho_by_job_id() if seen.measurement.jobs is not None else {}
    standings = those.standings(seen.plan.standings, rules.lease_s)
    turns = contest(expired, those.waiting, standings, rules=rules, now=seen.now, rho=rho)
    first = {job.job_id for job in over if job.qos in set(own.first_qos)}
    turns = [*(job for job in turns if job not in first), *(job for job in turns if job in first)]
    limits = LeaseRules(
        min_run_s=own.min_run_s,
        max_restarts=own.max_restarts,
        overhead=own.overhead,
        margin=own.margin,
        concurrency=max(allowed, 0),
        preempt_without_checkpoint=own.preempt_without_checkpoint,
    )
    found = verdicts(
        expired,
        waiting,
        turns,
        standings,
        pool_of=those.pools.pool_of,
        rooms=those.pools.rooms,
        rules=rules,
        lease_rules=limits,
        now=seen.now,
    )
    return {verdict.job_id: verdict for verdict in found}


def _shown(verdict: Verdict | None, seen: View) -> str:
    if verdict is None or verdict.to is None:
        return ""
    return next(
        (job.shown_id or str(job.job_id) for job in seen.jobs if job.job_id == verdict.to), ""
    )


def _without_yields(judged: LeaseView) -> LeaseView:
    """The same, where moves are stopped: who would yield keeps its GPUs, and is told why."""
    rows = [
        row
        if row.verdict is None or row.verdict.action is not Action.YIELD
        else replace(row, verdict=replace(row.verdict, action=Action.KEEP, reason=judged.stopped))
        for row in judged.rows
    ]
    return replace(judged, rows=tuple(rows))
