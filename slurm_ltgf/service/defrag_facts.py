"""Slurm's records as `core.defrag` takes them: rooms, jobs that may move, jobs that wait."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_ltgf.core.defrag import Waiting
from slurm_ltgf.core.fragmentation import Part, parts_of
from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.core.movable import Class, Movable, Room
from slurm_ltgf.core.move import Move, State
from slurm_ltgf.core.pools import Shape
from slurm_ltgf.service import places
from slurm_ltgf.service.fragmentation import Site, default_types, reserved_nodes
from slurm_ltgf.service.lease_rooms import promises
from slurm_ltgf.service.savers import Savers
from slurm_ltgf.slurm.bindings import Binding
from slurm_ltgf.slurm.jobs import QueueJob, demand_tasks
from slurm_ltgf.slurm.shapes import amounts
from slurm_ltgf.slurm.text import expand_hostlist
from slurm_ltgf.store.config import Config

#: Of those that wait so many are looked at, each task of an array is one.
MOST_WAITING = 256
#: A requeued job that is eligible so soon is given its room before others (cred_expire: 120 s).
SOON_S = 300
_WORDS = re.compile(r"[\w.-]+(&[\w.-]+)*")


@dataclass(frozen=True, slots=True)
class Binds:
    """What binds jobs to nodes. features: node -> its features."""

    of: Mapping[int, Binding] = field(default_factory=dict)
    features: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def avoided(self, job: QueueJob) -> frozenset[str] | None:
        """Nodes that a waiting job may not use; None: that cannot be told here."""
        own = self.of.get(job.job_id, Binding())
        if own.reservation or own.is_exclusive or (own.requires and amounts(job.tres).nodes > 1):
            return None
        found = set(own.excludes)
        if own.requires:
            found |= set(self.features) - set(own.requires)
        if own.features:
            if not _WORDS.fullmatch(own.features):
                return None
            wanted = set(own.features.split("&"))
            found |= {node for node, words in self.features.items() if not wanted <= words}
        return frozenset(found)


def klass(job: QueueJob, config: Config) -> Class:
    """A job's class, by its QOS: the site's settings of leases."""
    if job.qos in config.lease.first_qos:
        return Class.DEV
    return Class.SERVING if job.qos in config.lease.protected_qos else Class.TRAINING


# --- who may move ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Movers:
    """The running jobs of one GPU. staying: (job, why it does not move).

    scores: (partition, GPU type) -> the pool's score. tried: job id -> when, and why not.
    """

    site: Site
    config: Config
    binds: Binds
    savers: Savers
    scores: Mapping[tuple[str, str], float | None]
    known: Mapping[int, Move]
    tried: Mapping[str, tuple[int, str]]
    staying: list[tuple[QueueJob, str]] = field(default_factory=list)

    def by_type(self) -> dict[str, list[Movable]]:
        """GPU type -> those that may move."""
        kinds = {node.name: sorted(node.gpus) for node in self.site.capacity.nodes}
        found: dict[str, list[Movable]] = {}
        for job in sorted(self.site.queue.holding, key=lambda job: job.job_id):
            on = places.held(job)
            if list(on.values()) != [1.0] or job.het_job not in (UNKNOWN, 0):
                continue
            gpu_type = places.type_held(job, on, kinds)
            why = "it names no GPU type" if gpu_type is None else self._objection(job, gpu_type)
            saver = None if why else self.savers.saver(job)
            if saver is not None and saver.can_save:
                why = self._intolerance(job, saver.cost_s)
            elif saver is not None:
                why = f"it cannot save: {self.savers.why[job.job_id]}"
            if why or saver is None or gpu_type is None:
                self.staying.append((job, why))
                continue
            found.setdefault(gpu_type, []).append(self._movable(job, next(iter(on)), saver.cost_s))
        return found

    def _movable(self, job: QueueJob, node: str, cost_s: float) -> Movable:
        own, asked = self.binds.of.get(job.job_id, Binding()), amounts(job.tres)
        avoids = set(own.excludes)
        if own.features:  # what it asked for is met where the features are the same
            here = self.binds.features.get(node, frozenset())
            avoids |= {name for name, words in self.binds.features.items() if words != here}
        return Movable(
            job.job_id,
            node,
            Part(1, asked.cpus, asked.memory_mb),
            frozenset(job.partition.split(",")),
            klass(job, self.config),
            cost_s,
            frozenset(avoids),
        )

    def _objection(self, job: QueueJob, gpu_type: str) -> str:
        """Why a job stays whatever it would cost; "" for nothing."""
        own = self.binds.of.get(job.job_id, Binding())
        if job.state != "RUNNING":
            return f"it is {job.state.lower()}"
        if own.requires or own.is_exclusive or own.reservation:
            return "it is bound to nodes: named, exclusive or reserved ones"
        score = self.scores.get((job.partition, gpu_type))
        if (
            klass(job, self.config) is Class.SERVING
            and (score or 0) <= self.config.defrag.serving_above
        ):
            above = f"{self.config.defrag.serving_above:.0%}"
            return f"QOS {job.qos} serves: it moves only above {above} fragmentation"
        return self._rest(job)

    def _rest(self, job: QueueJob) -> str:
        """Why a job is left alone for a while."""
        move = self.known.get(job.job_id)
        tried_at, why = self.tried.get(str(job.job_id), (0, ""))
        if tried_at > job.start:
            return f"it cannot be moved now: {why}"
        if move is None:
            return ""
        if not move.state.is_end and move.restart == job.restarts:
            return f"it is being moved: {move.why}"
        ago_s, cooldown_s = self.site.now - (move.ended_at or 0), self.config.defrag.cooldown_s
        if move.state in (State.REQUEUED, State.FAILED) and ago_s < cooldown_s:
            return f"it was moved, or was to be, less than {cooldown_s} s ago"
        return ""

    def _intolerance(self, job: QueueJob, cost_s: float) -> str:
        """Why a move is too much for a job that trains or serves: the site's rules of leases."""
        own = self.config.lease
        if klass(job, self.config) is Class.DEV:
            return ""
        ran_s = self.site.now - job.start
        if ran_s < own.min_run_s:
            return f"it has run for less than {own.min_run_s} s"
        if job.restarts >= own.max_restarts:
            return f"it was restarted {own.max_restarts} times already"
        worth_s = cost_s / own.overhead
        if ran_s < worth_s:
            return f"a move costs {cost_s:g} s: not before it has run {worth_s:g} s"
        return ""


# --- rooms, and who waits -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Promised:
    """Room that others make just now. to: raw ids of those that get it. nodes: where.

    moving: raw ids of those that leave, and will want room elsewhere.
    """

    to: frozenset[int] = frozenset()
    nodes: frozenset[str] = frozenset()
    moving: frozenset[int] = frozenset()

    @staticmethod
    def of(known: Sequence[Move], site: Site) -> Promised:
        """What moves promise to jobs that still wait."""
        waits = {job.job_id for job in site.queue.pending}
        found = [move for move in promises(known, site.now) if move.to_job in waits]
        return Promised(
            frozenset(move.to_job for move in found if move.to_job is not None),
            frozenset(node for move in found for node in expand_hostlist(move.nodes)),
            frozenset(move.job_id for move in found if not move.state.is_end),
        )


def rooms(
    site: Site, gpu_type: str, movable: Iterable[Movable], promised: Promised = Promised()
) -> list[Room]:
    """Nodes of a GPU type that are open and promised to nobody, with those that may leave them."""
    closed = {one.name for one in site.partitions if one.state not in ("UP", "")}
    reserved = {*reserved_nodes(site), *promised.nodes}
    on: dict[str, list[Movable]] = {}
    for job in movable:
        on.setdefault(job.node, []).append(job)
    return [
        Room(
            place.node, place.partitions - closed, place.gpus, place.free,
            place.free_cpus, place.free_memory_mb, on.get(place.node, []),
        )
        for node in site.capacity.nodes
        if node.name not in reserved and not node.closed_by
        for place in places.places(node)
        if place.gpu_type == gpu_type and place.partitions - closed
    ]  # fmt: skip


def waiting(
    site: Site,
    config: Config,
    binds: Binds,
    left_out: Callable[[QueueJob], None],
    promised: Promised = Promised(),
) -> dict[str, list[Waiting]]:
    """GPU type -> those that wait for nothing but GPUs, as Slurm ranks them.

    Before them come those that will want room soon: that are being moved, or were requeued and are
    not yet eligible. Those for which others make room already are not among them.
    """
    default, tasks = default_types(site.capacity.nodes), demand_tasks(site.queue.jobs, site.now)
    back = {job.job_id for job in site.queue.pending if _comes_back(job, site.now)}
    back |= promised.moving
    ranked = sorted(
        (job for job in site.queue.jobs if job.is_pending or job.job_id in back),
        key=lambda job: (job.job_id not in back, -job.priority, job.submit, job.job_id),
    )
    found: dict[str, list[Waiting]] = {}
    count = 0
    for job in ranked:
        shape = None if job.job_id in promised.to else places.shape(job)
        wanted = tasks.get(job.job_id, 0) or int(job.job_id in back)
        if shape is None or not wanted or count >= MOST_WAITING:
            continue
        gpu_type = shape.gpu_type or default.get(shape.partitions[0], "")
        avoids = binds.avoided(job)
        if avoids is None:
            left_out(job)
            continue
        made = _waiting(job, shape, gpu_type, avoids, site, config)
        found.setdefault(gpu_type, []).extend([made] * min(wanted, MOST_WAITING - count))
        count += wanted
    return found


def _waiting(
    job: QueueJob, shape: Shape, gpu_type: str, avoids: frozenset[str], site: Site, config: Config
) -> Waiting:
    there = set(shape.partitions)
    counts = [n.gpus.get(gpu_type, 0) for n in site.capacity.nodes if there & set(n.partitions)]
    return Waiting(
        job.job_id,
        parts_of(shape, max(counts, default=0)),
        frozenset(there),
        shape.gpus * _wait_s(job, site.now, config),
        avoids,
    )


def _comes_back(job: QueueJob, now: int) -> bool:
    """Whether a job was requeued and only waits to be eligible again."""
    is_soon = job.eligible - now <= SOON_S
    return job.restarts > 0 and not job.is_held and job.reason in ("BeginTime", "None") and is_soon


def _wait_s(job: QueueJob, now: int, config: Config) -> float:
    """How much longer a job would wait: until Slurm expects its start, else as the site says."""
    if job.planned_start > now:
        return float(job.planned_start - now)
    return float(config.defrag.wait_s)
