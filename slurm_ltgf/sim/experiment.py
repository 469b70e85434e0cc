"""One simulation as plain values, so that another process or another machine can run it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_ltgf.errors import InputError, UsageError
from slurm_ltgf.sim.backfill import Backfill
from slurm_ltgf.sim.cluster import Cluster, NodeType, Placement
from slurm_ltgf.sim.engine import Costs, Outcome, simulate
from slurm_ltgf.sim.explain import Explainer, Moment, SeenAll
from slurm_ltgf.sim.metrics import Measures, measures
from slurm_ltgf.sim.policies import Site, make
from slurm_ltgf.sim.traces import fitted, read_trace
from slurm_ltgf.sim.traces.generated import generated
from slurm_ltgf.sim.workload import Workload


@dataclass(frozen=True, slots=True)
class Source:
    """Where a workload comes from.

    path: a trace, "-" is standard input, None: a seeded one. format, by_user, limit_factor: see
    `traces.read_trace`. gpus: the cluster that the seeded one is to keep busy. weights: these
    tenants' shares; all others have the seeded ones, or 1 in a trace.
    """

    path: str | None = None
    format: str | None = None
    by_user: bool = False
    limit_factor: float = 1.0
    seed: int = 1
    gpus: int = 64
    weights: tuple[tuple[str, float], ...] = ()

    def load(self) -> Loaded:
        """Read or make it.

        Raises:
            InputError: the trace cannot be read.
        """
        given = dict(self.weights)
        if self.path is None:
            work, weights = generated(gpus=self.gpus, seed=self.seed)
            return Loaded(_limited(work, self.limit_factor), weights | given)
        work = read_trace(
            self.path,
            format=self.format,
            limit_factor=self.limit_factor,
            by_user=self.by_user,
        )
        return Loaded(work, dict.fromkeys(work.tenants, 1.0) | given)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A workload and the weights of all tenants of the cluster."""

    workload: Workload
    weights: Mapping[str, float]

    def fitted(self, nodes: Sequence[NodeType]) -> Loaded:
        """The same without jobs that the nodes could never run; they are among the skipped.

        Raises:
            InputError: no job is left.
        """
        work = fitted(self.workload, nodes)
        if not work.jobs:
            why = f": {work.skipped[-1].reason}" if work.skipped else ""
            raise InputError(f"{work.name}: no job in it that could be simulated{why}")
        return Loaded(work, self.weights)


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is simulated: a workload, a cluster, a policy. Times are seconds from the beginning.

    policy: a spec, see `policies.make`. horizon: None: until the last job has ended.
    """

    policy: str
    nodes: tuple[NodeType, ...]
    source: Source = field(default_factory=Source)
    placement: Placement = "consolidated"
    backfill: Backfill = field(default_factory=Backfill)
    horizon: int | None = None
    costs: Costs = field(default_factory=Costs)

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        return sum(kind.count * kind.gpus for kind in self.nodes)


def alike(gpus: int, per_node: int) -> tuple[NodeType, ...]:
    """Nodes alike that together have so many GPUs; one smaller node if `gpus` is below `per_node`.

    Raises:
        UsageError: no whole number of nodes.
    """
    per_node = min(per_node, gpus)
    if gpus % per_node:
        raise UsageError(f"--gpus {gpus} is no multiple of --gpus-per-node {per_node}")
    return (NodeType(gpus // per_node, per_node),)


def run(experiment: Experiment, loaded: Loaded) -> Measures:
    """Simulate, and measure what came of it.

    Raises:
        UsageError: the policy is none.
        InputError: a job that the cluster could never run; see `Loaded.fitted`.
    """
    return measures(_outcome(experiment, loaded), loaded.weights)


def explain(experiment: Experiment, loaded: Loaded, times: Sequence[int]) -> list[Moment]:
    """What was decided at the first instants at or after `times` at which anything was.

    Raises:
        UsageError, InputError: as `run`.
    """
    watcher = Explainer(times)
    with contextlib.suppress(SeenAll):
        _outcome(experiment, loaded, watcher)
    return watcher.moments


def policy_name(spec: str, site: Site | None = None) -> str:
    """The name by which a policy's spec is shown, the same for specs that mean the same.

    Raises:
        UsageError: no such policy, key or value.
    """
    return make(spec, site or Site({"a": 1.0}, 8)).name


def _outcome(experiment: Experiment, loaded: Loaded, observer: Explainer | None = None) -> Outcome:
    cluster = Cluster(experiment.nodes, experiment.placement)
    costs = experiment.costs
    site = Site(loaded.weights, cluster.gpus, cost_s=costs.checkpoint_s + costs.restore_s)
    policy = make(experiment.policy, site)
    if observer is not None:
        observer.listen(policy)
    try:
        return simulate(
            loaded.workload,
            cluster,
            policy,
            horizon=experiment.horizon,
            costs=costs,
            backfill=experiment.backfill,
            observer=observer,
        )
    except ValueError as exc:
        raise InputError(f"{loaded.workload.name}: {exc}") from exc


def _limited(work: Workload, factor: float) -> Workload:
    jobs = [replace(job, limit_s=max(int(job.run_s * factor), 1)) for job in work.jobs]
    return replace(work, jobs=tuple(jobs))
