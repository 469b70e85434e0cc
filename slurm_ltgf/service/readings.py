"""What metrics tell of a site, read from the ledger alone: one look, for one cluster.

The daemon and `ltgf exporter` both come through here; Slurm is asked nothing. What the ledger says
of fairness is what `ltgf fairness` says: the same function over the same window.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeVar

from slurm_ltgf.core.fairness import Fairness, TenantIndex
from slurm_ltgf.core.gpus import Pricing, gpus
from slurm_ltgf.core.history import OVERTIME_S, settle
from slurm_ltgf.core.job_fairness import JobIndices
from slurm_ltgf.core.model import UNKNOWN, Run, Window
from slurm_ltgf.service.last_look import LastLook, last_look
from slurm_ltgf.service.last_pass import LastPass, last_pass
from slurm_ltgf.service.observed import capacity_steps, shards_per_gpu
from slurm_ltgf.service.past import Answer, Question, fairness
from slurm_ltgf.service.terms import is_managed, managed, pricing_of
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger, Used

#: GPU-seconds or GPUs by GPU type; "" is untyped.
ByType = Mapping[str, float]


_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class Present:
    """What is held and waited for, as the ledger last heard. GPUs are physical ones."""

    running_jobs: int = 0
    held_gpus: ByType = field(default_factory=dict)
    suspended_jobs: int = 0
    suspended_gpus: float = 0.0
    pending_jobs: int = 0
    pending_gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Counted:
    """GPU-seconds counted for ever, physical ones by type, and what of them was taken back."""

    gpu_s: ByType = field(default_factory=dict)
    corrected_gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TenantReading:
    """A tenant: its indices over the window, its present, its counters."""

    index: TenantIndex
    present: Present
    counted: Counted


@dataclass(frozen=True, slots=True)
class JobReading:
    """A running job, told of only if the site wants it. rho None: due nothing, or not known."""

    job_id: str
    tenant: str
    gpus: float
    rho: float | None


@dataclass(frozen=True, slots=True)
class Readings:
    """One look. tenants: those there are now. left_out: how many more there are than are told of.

    counted, present: of all tenants, those left out and those that are gone too. kept_gpu_s:
    attained in the window less what requeues lost. counters: see `core.tally`. is_daemon_silent:
    its last pass is older than `site.stale_after`. look: None: there is none, or it is as old.
    """

    cluster: str
    time: int
    answer: Answer
    tenants: tuple[TenantReading, ...]
    left_out: int
    present: Present
    counted: Counted
    capacity_gpus: ByType
    kept_gpu_s: float | None
    skipped_rows: int
    counters: Mapping[tuple[str, str], float]
    last_pass: LastPass | None
    is_daemon_silent: bool = False
    look: LastLook | None = None
    jobs: tuple[JobReading, ...] = ()

    @property
    def fairness(self) -> Fairness:
        """The indices over the window."""
        return self.answer.measurement.fairness


def readings(
    ledger: Ledger,
    config: Config,
    cluster: str | None,
    *,
    now: int,
    most_tenants: int,
    most_jobs: int = 0,
) -> Readings:
    """Look once.

    Args:
        cluster: None: the site's.
        most_tenants: of more tenants those with the largest weights are told of.
        most_jobs: running jobs told of one by one, the largest first.

    Raises:
        UsageError: the ledger has several clusters, or not the one asked for.
        LedgerError: it cannot be read.
    """
    answer = fairness(ledger, config, Question(cluster=cluster, jobs=True), now=now)
    (name,) = answer.clusters
    pricing = pricing_of(config, shards_per_gpu=shards_per_gpu(ledger, name))
    open_runs = _open_runs(ledger, config, name, now=answer.known_until or now)
    used = [one for one in ledger.used(name) if is_managed(one.partition, config)]
    tenants = _tenants(answer, open_runs, used, pricing)
    last = last_pass(ledger, name)
    oldest = now - config.site.stale_after_s
    return Readings(
        cluster=name,
        time=now,
        answer=answer,
        tenants=_heaviest(tenants, most_tenants),
        left_out=max(len(tenants) - most_tenants, 0),
        present=_present(open_runs, pricing),
        counted=_counted(used, pricing),
        capacity_gpus=_capacity(ledger, config, name, answer.window),
        kept_gpu_s=_kept_gpu_s(answer.measurement.jobs),
        skipped_rows=ledger.skipped_total(),
        counters=ledger.counters(name),
        last_pass=last,
        is_daemon_silent=last is not None and last.time < oldest,
        look=_look(ledger, name, since=oldest, most=most_tenants),
        jobs=_jobs(open_runs, answer, pricing, most_jobs),
    )


def _tenants(
    answer: Answer, open_runs: Sequence[Run], used: Sequence[Used], pricing: Pricing
) -> list[TenantReading]:
    """All tenants that there are now."""
    tenant_of = answer.measurement.tenant_of.get
    present = _by_tenant(open_runs, lambda run: tenant_of(run.account))
    counted = _by_tenant(used, lambda one: tenant_of(one.account))
    return [
        TenantReading(
            row,
            _present(present.get(row.tenant, ()), pricing),
            _counted(counted.get(row.tenant, ()), pricing),
        )
        for row in answer.measurement.fairness.tenants
        if not row.deleted
    ]


def _heaviest(tenants: Iterable[TenantReading], most: int) -> tuple[TenantReading, ...]:
    """Those with the largest weights, by name; of equal ones the first by name."""
    ranked = sorted(tenants, key=lambda one: (-(one.index.weight or 0), one.index.tenant))
    return tuple(sorted(ranked[:most], key=lambda one: one.index.tenant))


def _open_runs(ledger: Ledger, config: Config, cluster: str, *, now: int) -> list[Run]:
    """Runs that are open now: a runaway, or one that Slurm has long not listed, is not."""
    runs = managed(ledger.open_runs(cluster).runs, config)
    ends = settle(runs, now=now).runs
    is_old = {
        (run.job_id, run.submit, run.start)
        for run in ends.rows()
        if run.start != UNKNOWN and run.end < now - OVERTIME_S
    }
    return [run for run in runs.rows() if (run.job_id, run.submit, run.start) not in is_old]


def _look(ledger: Ledger, cluster: str, *, since: int, most: int) -> LastLook | None:
    """The daemon's last look, if it is not too old; of so many accounts at most."""
    look = last_look(ledger, cluster)
    if look is None or look.time < since:
        return None
    return look if look.budgets is None else replace(look, budgets=look.budgets[:most])


def _by_tenant(
    rows: Iterable[_Row], tenant_of: Callable[[_Row], str | None]
) -> dict[str, list[_Row]]:
    found: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        name = tenant_of(row)
        if name is not None:
            found[name].append(row)
    return found


def _present(runs: Sequence[Run], pricing: Pricing) -> Present:
    running = [run for run in runs if run.start != UNKNOWN and run.state != "SUSPENDED"]
    suspended = [run for run in runs if run.start != UNKNOWN and run.state == "SUSPENDED"]
    pending = [run for run in runs if run.start == UNKNOWN]
    held: defaultdict[str, Fraction] = defaultdict(Fraction)
    for run in running:
        for kind, count in gpus(run.gres, pricing).by_type:
            held[kind] += count
    return Present(
        running_jobs=len(running),
        held_gpus={kind: float(count) for kind, count in held.items()},
        suspended_jobs=len(suspended),
        suspended_gpus=float(sum(gpus(run.gres, pricing).gpus for run in suspended)),
        pending_jobs=sum(run.tasks for run in pending),
        pending_gpus=float(
            sum(gpus(run.gres_requested, pricing).gpus * run.tasks for run in pending)
        ),
    )


def _counted(used: Sequence[Used], pricing: Pricing) -> Counted:
    sums: defaultdict[str, Fraction] = defaultdict(Fraction)
    corrected = Fraction(0)
    for one in used:
        worth = gpus(one.gres, pricing)
        for kind, count in worth.by_type:
            sums[kind] += count * one.counted_s
        corrected += worth.gpus * one.corrected_s
    return Counted({kind: float(total) for kind, total in sums.items()}, float(corrected))


def _capacity(ledger: Ledger, config: Config, cluster: str, window: Window) -> ByType:
    if config.fairness.capacity_gpus:
        return {"": config.fairness.capacity_gpus}
    steps = capacity_steps(ledger, cluster, window)
    return steps[-1].gpus if steps else {}


def _kept_gpu_s(jobs: JobIndices | None) -> float | None:
    return None if jobs is None else math.fsum(jobs.kept.tolist())


def _jobs(
    open_runs: Sequence[Run], answer: Answer, pricing: Pricing, most: int
) -> tuple[JobReading, ...]:
    """The largest running jobs; of equal ones the first by id."""
    measured = answer.measurement
    if most <= 0 or measured.jobs is None:
        return ()
    rho = measured.jobs.rho_by_job_id()
    running = [
        (float(gpus(run.gres, pricing).gpus), run)
        for run in open_runs
        if run.start != UNKNOWN and run.state != "SUSPENDED"
    ]
    largest = sorted(running, key=lambda pair: (-pair[0], pair[1].job_id))[:most]
    return tuple(
        JobReading(run.shown_id, measured.tenant_of.get(run.account, ""), held, rho.get(run.job_id))
        for held, run in largest
        if held > 0
    )
