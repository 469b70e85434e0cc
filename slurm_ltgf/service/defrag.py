"""The plan against fragmentation for a running cluster, and its moves.

What the plan is made of comes from Slurm's records and the site's settings; `core.defrag` makes it.
Nothing is done before `begin`: then those that make room for one job are asked to save, requeued
when all have, and kept away from the nodes that they made free (`steer`), until the job for which
they did has started. The GPUs are Slurm's to give: the plan looks at those that wait in Slurm's own
order, so that the first for which a node becomes free is the one that it was made free for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurm_ltgf.core.defrag import Plan, Rules, Start, plan
from slurm_ltgf.core.fragmentation import PoolState
from slurm_ltgf.core.lease_guards import Guards, Situation, allowance
from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.core.move import Move
from slurm_ltgf.errors import SlurmRefused
from slurm_ltgf.service.defrag_facts import Binds, Movers, Promised, rooms, waiting
from slurm_ltgf.service.fragmentation import Asked, Site, state
from slurm_ltgf.service.move_groups import Asker, Leaver, begin_group, refusals
from slurm_ltgf.service.move_limits import resting, situation
from slurm_ltgf.service.moves import Moves
from slurm_ltgf.service.savers import Savers
from slurm_ltgf.slurm.jobs import Queue, QueueJob
from slurm_ltgf.slurm.text import expand_hostlist
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger
from slurm_ltgf.store.ledger_records import AuditEntry

ACTOR = "ltgf frag"
ASKER = Asker(ACTOR, "defrag")
STEERED, SET_BACK = "exclude nodes", "set back"


@dataclass(frozen=True, slots=True)
class DefragEdges:
    """What the plan asks of Slurm besides the site. maintenance_in_s: None: none is planned."""

    uid_of: Callable[[str], int | None]
    binds: Callable[[], Binds]
    maintenance_in_s: Callable[[int], int | None]


@dataclass(frozen=True, slots=True)
class DefragView:
    """The plan of each GPU type, and what it is about.

    staying: jobs of one GPU that do not move, with the reason. stopped: why nobody may move now, ""
    if some may: `allowed`. left_out: jobs that wait and are bound in a way that is not judged here.
    """

    site: Site
    pools: tuple[PoolState, ...]
    plans: Mapping[str, Plan]
    staying: tuple[tuple[QueueJob, str], ...] = ()
    left_out: tuple[QueueJob, ...] = ()
    allowed: int = 0
    stopped: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ways(self) -> list[Start]:
        """Every start that needs moves."""
        return [start for made in self.plans.values() for start in made.ways]

    @property
    def jobs(self) -> dict[int, QueueJob]:
        """The queue by raw id."""
        return {job.job_id: job for job in self.site.queue.jobs}


def judge(
    site: Site, config: Config, ledger: Ledger, moves: Moves, edges: DefragEdges, past: Asked = ()
) -> DefragView:
    """The plan as it would be now; nothing is done.

    Where nobody may move it is told all the same what would be done.
    """
    pools = state(site, past)
    guards, limits = _limits(site, config, ledger, moves, edges)
    savers = Savers(config, edges.uid_of, moves.memory)
    binds, known = edges.binds(), moves.files.all()
    promised = Promised.of(known, site)
    movers = Movers(
        site,
        config,
        binds,
        savers,
        {(pool.partition, pool.gpu_type): pool.score for pool in pools},
        {move.job_id: move for move in known},
        refusals(ledger, ASKER, site.now - config.defrag.cooldown_s)
        | resting(guards, limits, site.queue.holding, edges.uid_of),
    )
    movable = movers.by_type()
    left_out: list[QueueJob] = []
    queued = waiting(site, config, binds, left_out.append, promised)
    allowed, stopped = _allowance(config, guards, limits)
    rules = Rules(config.defrag.concurrency if stopped else allowed, config.defrag.buffer)
    plans = {}
    for gpu_type in sorted(queued):
        there = rooms(site, gpu_type, movable.get(gpu_type, ()), promised)
        made = plan(there, queued[gpu_type], rules)
        rules = Rules(rules.most - made.key.jobs, rules.buffer)
        plans[gpu_type] = made
    return DefragView(
        site, pools, plans, tuple(movers.staying), tuple(left_out), allowed, stopped,
        savers.notes(),
    )  # fmt: skip


def _limits(
    site: Site, config: Config, ledger: Ledger, moves: Moves, edges: DefragEdges
) -> tuple[Guards, Situation]:
    """The site's limits, in [lease] where it has them, and what counts for them now."""
    own, shared = config.defrag, config.lease
    found = situation(
        ledger,
        moves,
        ACTOR,
        now=site.now,
        maintenance_in_s=edges.maintenance_in_s(site.now),
        rest_s=shared.breaker_rest_s,
    )
    guards = Guards(
        own.concurrency, own.per_hour, shared.quiet, shared.breaker, shared.breaker_rest_s, "defrag"
    )
    return guards, found


def _allowance(config: Config, guards: Guards, limits: Situation) -> tuple[int, str]:
    """How many jobs may move now; if none, why."""
    if not config.checkpoint.records:
        return 0, "checkpoint.records is not set: no job can be asked to save"
    return allowance(guards, limits, lease_s=config.defrag.wait_s)


# --- doing it -------------------------------------------------------------------------------------


def begin(seen: DefragView, moves: Moves, ledger: Ledger, *, now: int) -> list[tuple[str, str]]:
    """Start the moves of the plan, those for one job together; (job, what stood against it)."""
    jobs, done = seen.jobs, []
    for start in seen.ways:
        to = jobs[start.job.job_id]
        leavers = [
            Leaver(
                moved.job_id,
                jobs[moved.job_id].shown_id or str(moved.job_id),
                f"room on {moved.node} for job {to.shown_id or to.job_id}, which waits for"
                f" {start.job.gpus} GPUs",
                start.job.job_id,
            )
            for moved in start.way.leaving
        ]
        done += begin_group(leavers, ASKER, moves, ledger, now=now)
    return done


@dataclass(frozen=True, slots=True)
class Steering:
    """Keeps jobs that moved away from nodes, for a while.

    Slurm changes a job's excluded nodes only while it waits. So they are set when the job has been
    requeued, and set back as soon as that is no longer needed; a job that started before keeps them
    until it waits again: then the next `set_back` does it.
    """

    exclude: Callable[[str, Sequence[str]], None]
    ledger: Ledger

    def keep_off(self, move: Move, nodes: Sequence[str], own: Sequence[str], *, now: int) -> str:
        """Have a requeued job start anywhere but on some nodes; what stood against it.

        Args:
            own: nodes that its user excluded.
        """
        wanted = sorted({*own, *nodes})
        try:
            self.exclude(move.requeue_id, wanted)
        except SlurmRefused as exc:  # it may run already
            return str(exc)
        self._log(move.job_id, own, wanted, f"job {move.requeue_id}: made room there", now)
        return ""

    def set_back(self, waiting: Mapping[int, tuple[str, Sequence[str]]], *, now: int) -> list[str]:
        """Give jobs that wait the excluded nodes that they had before; their names.

        Args:
            waiting: raw job id -> (name for scontrol, nodes that it excludes now).
        """
        done = []
        for job_id, (name, excluded) in waiting.items():
            last = self.ledger.audit_last(1, job_id=str(job_id), action=STEERED, actor=ACTOR)
            if not last or last[0].reason == SET_BACK or last[0].new != _text(excluded):
                continue
            before = json.loads(last[0].old or "[]")
            try:
                self.exclude(name, before)
            except SlurmRefused:
                continue  # it started just now
            self._log(job_id, excluded, before, SET_BACK, now)
            done.append(name)
        return done

    def _log(self, job_id: int, old: Sequence[str], new: Sequence[str], why: str, now: int) -> None:
        entry = AuditEntry(now, ACTOR, STEERED, str(job_id), _text(old), _text(new), why)
        self.ledger.audit([entry])


def _text(nodes: Sequence[str]) -> str:
    return json.dumps(sorted(nodes))


def has_started(start: Start, seen: DefragView, queue: Queue) -> bool:
    """Whether a job for which others made room runs; of an array, a task where they did."""
    before = seen.jobs[start.job.job_id]
    array = before.array_job
    return any(
        job.job_id == before.job_id
        or (
            array != UNKNOWN
            and job.array_job == array
            and bool(set(expand_hostlist(job.nodes)) & set(start.way.nodes))
        )
        for job in queue.holding
    )
