"""Backfill: what a job that cannot start now is promised, and who may start before it all the same.

easy: the first job that does not fit gets a reservation, the earliest time at which it fits if
running jobs use their time limits; later ones start only where they do not delay it (Mu'alem and
Feitelson, TPDS 2001). conservative: every job that is looked at gets one, as in Slurm's
sched/backfill, and none may delay any of them. none: strictly in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from slurm_ltgf.sim.cluster import Cluster, Nodes, is_plain
from slurm_ltgf.sim.explain import Action
from slurm_ltgf.sim.reservations import Held, Profile, reservation
from slurm_ltgf.sim.workload import Job

#: More GPUs than any job asks for.
_ALL = 1 << 60
Kind = Literal["easy", "conservative", "none"]


@dataclass(frozen=True, slots=True)
class Backfill:
    """How to backfill.

    interval_s: how often (Slurm's bf_interval); between, jobs start strictly in order. 0: whenever
    something happens. depth: jobs that are looked at behind the first that does not fit (Slurm's
    bf_max_job_test). whole_nodes: a reservation keeps its nodes to itself, not only the GPUs that
    its job will use: the plan of Slurm's sched/backfill knows nodes and nothing smaller.
    """

    kind: Kind = "easy"
    interval_s: int = 0
    depth: int = 500
    whole_nodes: bool = False

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        if self.kind not in ("easy", "conservative", "none"):
            raise ValueError(f"backfill is easy, conservative or none, not {self.kind!r}")
        if self.interval_s < 0 or self.depth < 0:
            raise ValueError(f"interval_s and depth must be >= 0, got {self}")


class Attempt(NamedTuple):
    """What came of trying to start a job now: see explain.Action."""

    action: Action
    nodes: Nodes = ()
    until: int | None = None


_BARRED, _NO_ROOM = Attempt("barred"), Attempt("no room")


class Plan(Protocol):
    """Attempts to start jobs, one after the other; the caller takes what starts."""

    @property
    def head(self) -> Job | None:
        """The first job that did not fit; None: all did, or the plan does not stand for long."""

    def resume(self, now: int) -> None:
        """Try further jobs later; no GPU was given back since."""

    def is_over(self, limits_s: Callable[[], Mapping[int, int]]) -> bool:
        """Whether no further job is to be tried.

        limits_s: of those that wait, the shortest time limit by GPUs (`Waiting`).
        """

    def attempt(self, job: Job) -> Attempt:
        """Try the next job of the order."""


def plan(
    rules: Backfill,
    cluster: Cluster,
    held: Callable[[], Iterable[Held]],
    now: int,
    *,
    tells: bool = True,
) -> Plan:
    """The attempts of an instant.

    Args:
        held: what running jobs hold, by the end of their limits.
        tells: whether it matters why a job does not start.
    """
    if rules.interval_s and now % rules.interval_s:
        return Easy(cluster, held, now, depth=0)
    if rules.kind == "conservative":
        return Conservative(cluster, held, now, rules)
    depth = rules.depth if rules.kind == "easy" else 0
    return Easy(cluster, held, now, depth=depth, whole_nodes=rules.whole_nodes, tells=tells)


class Easy:
    """Jobs in order, and up to `depth` behind the first that does not fit, if it is not delayed."""

    def __init__(
        self,
        cluster: Cluster,
        held: Callable[[], Iterable[Held]],
        now: int,
        *,
        depth: int,
        whole_nodes: bool = False,
        tells: bool = True,
    ) -> None:
        self._cluster = cluster
        self._tells = tells
        self._held = held
        self._now = now
        self._depth = depth
        self._whole_nodes = whole_nodes
        self._tried = 0
        self.head: Job | None = None
        self._reserved_at: int | None = None
        self._spare: dict[int, int] = {}
        # free GPUs only become fewer: if a job found no nodes, none that asks for more will;
        # apart for those that the reservation does not touch, and those that it does
        self._too_many = [_ALL, _ALL]
        self._hopeless = _ALL  # for neither, once there is a reservation
        self._has_less = False  # than when it was last asked whether it is over

    def resume(self, now: int) -> None:
        """The reservation stands; the depth counts anew."""
        self._now, self._tried, self._has_less = now, 0, True

    def is_over(self, limits_s: Callable[[], Mapping[int, int]]) -> bool:
        """The depth is reached, or whoever waits is too large, or too long for what is left."""
        if self._tried > self._depth:
            return True
        if self._reserved_at is None or not self._has_less:
            return False
        self._has_less = False
        left_s, (early, late) = self._reserved_at - self._now, self._too_many
        return all(
            gpus >= early or (gpus >= late and limit_s > left_s)
            for gpus, limit_s in limits_s().items()
        )

    def attempt(self, job: Job) -> Attempt:
        """Start it, reserve nodes for it, or leave it."""
        if job.gpus >= self._hopeless and is_plain(job):
            self._tried += 1
            return _NO_ROOM
        reserved_at, until = self._reserved_at, self._now + job.limit_s
        late = reserved_at is not None and until > reserved_at
        nodes = self._find(job, late)
        if nodes is not None:
            for node, gpus in nodes if late else ():
                if node in self._spare:
                    self._spare[node] -= gpus
            return Attempt("started" if reserved_at is None else "backfilled", nodes, until)
        self._tried += 1
        if self.head is None:
            self.head = job
        if reserved_at is None and self._depth:
            self._reserved_at, nodes, self._spare = reservation(
                self._cluster, self._held(), job, self._now
            )
            if self._whole_nodes:
                self._spare = dict.fromkeys(self._spare, 0)
            self._has_less, self._hopeless = True, max(self._too_many)
            return Attempt("reserved", nodes, self._reserved_at)
        is_barred = self._tells and late and self._find(job, late=False)
        return _BARRED if is_barred else _NO_ROOM

    def _find(self, job: Job, late: bool) -> Nodes | None:
        if job.gpus >= self._too_many[late] and is_plain(job):
            return None
        nodes = self._cluster.find(job, self._spare if late else None)
        if nodes is None and is_plain(job):
            self._too_many[late] = job.gpus
            if self._reserved_at is not None:
                self._has_less, self._hopeless = True, max(self._too_many)
        return nodes


class Conservative:
    """Every job gets a reservation, up to `depth` of those that cannot start now."""

    def __init__(
        self, cluster: Cluster, held: Callable[[], Iterable[Held]], now: int, rules: Backfill
    ) -> None:
        self._profile = Profile(cluster, held(), now, whole_nodes=rules.whole_nodes)
        self._now = now
        self._depth = rules.depth
        self._passed = 0

    @property
    def head(self) -> None:
        """It does not stand: with every job that comes all get new reservations."""

    def resume(self, now: int) -> None:
        """Never."""

    def is_over(self, limits_s: Callable[[], Mapping[int, int]]) -> bool:
        """The depth is reached."""
        return self._passed > self._depth

    def attempt(self, job: Job) -> Attempt:
        """Start it if its reservation is for now."""
        at, nodes = self._profile.reserve(job, job.limit_s)
        if at == self._now:
            action: Action = "backfilled" if self._passed else "started"
            return Attempt(action, nodes, at + job.limit_s)
        self._passed += 1
        return Attempt("reserved", nodes, at)
