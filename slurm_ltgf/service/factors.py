"""From a pass to the factor table: labels of the jobs that wait, and of those that will come.

A job submitted after the table was made stands behind its tenant's others. Its start tag is the
tenant's with what waits charged, and grows with what was admitted before it; the plugin counts
that. Which label a tag means is told by anchors: the jobs of the queue with the labels they have,
and beyond the last of them the places that tenants' next jobs can have, evenly spaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from slurm_ltgf.core.factor import LARGEST, Change
from slurm_ltgf.core.gpus import Pricing, gpus
from slurm_ltgf.core.order import Account, Rules, Standing, Turn
from slurm_ltgf.service.present import View
from slurm_ltgf.service.terms import pricing_of, rules_of
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.factor_table import FAR, Anchor, FactorTable, TenantEntry

#: Before all places; the one of a tenant that holds nothing and had nothing is -1.
FIRST = -2.0
#: GPUs charged at which places of a tenant's next jobs become anchors: 0, 1, 2, 4, ... 2^20.
PROBES = (0, *(1 << k for k in range(21)))


def table_of(seen: View, config: Config, *, generated_ns: int) -> FactorTable:
    """The table that says what this pass decided."""
    rules = rules_of(config)
    names = sorted(seen.measurement.tenants)
    waiting = _waiting_gpus(seen.plan.turns)
    tenants = [
        _entry(seen.plan.standings.get(name), waiting.get(name, 0.0), rules) for name in names
    ]
    labels = wanted(seen.plan.turns, seen.plan.changes)
    index = {name: i for i, name in enumerate(names)}
    return FactorTable(
        generated_ns=generated_ns,
        stale_after_s=config.site.stale_after_s,
        anchors=anchors(seen.plan.turns, labels, tenants),
        tenants=tenants,
        accounts={
            account: index[tenant]
            for account, tenant in seen.measurement.tenant_of.items()
            if tenant in index
        },
        prices=_prices(seen, pricing_of(config, shards_per_gpu=seen.capacity.per_gpu("shard"))),
        partitions=config.site.partitions,
        labels=labels,
    )


def wanted(turns: Sequence[Turn], changes: Iterable[Change]) -> dict[int, int]:
    """Job id -> label of every job in the order, changed or not."""
    new = {change.job_id: change.new for change in changes}
    return {turn.job.job_id: new.get(turn.job.job_id, turn.job.site_factor or 0) for turn in turns}


def _waiting_gpus(turns: Sequence[Turn]) -> dict[str, float]:
    """Tenant -> GPUs that its waiting jobs are charged."""
    return {
        turn.job.tenant: turn.charged_gpus + turn.job.gpus * turn.job.tasks * turn.job.demand
        for turn in turns
        if turn.job.demand
    }


def _entry(standing: Standing | None, waiting_gpus: float, rules: Rules) -> TenantEntry:
    """Where the tenant's next job stands, what waits charged; without entitlement: last."""
    account = Account(standing, rules) if standing else None
    if account is None or account.due <= 0:
        return TenantEntry(FAR, 0.0)
    account.charged_gpus = waiting_gpus
    _, tag, _ = account.key()
    slope = min(rules.lease_s / account.due, FAR)
    return TenantEntry(min(tag, FAR), slope, max(account.floor_left_gpus, 0.0))


def place(tag: float, *, below_floor: bool) -> float:
    """A start tag on the table's axis: who is below its floor comes before all others."""
    return -1 / (1 + tag) if below_floor else min(tag, FAR)


def anchors(
    turns: Sequence[Turn], labels: Mapping[int, int], tenants: Sequence[TenantEntry]
) -> list[Anchor]:
    """The axis: what waits with its labels, then room for what may come.

    >>> anchors([], {}, [TenantEntry(0.5, 0.1)])[:3]  # doctest: +NORMALIZE_WHITESPACE
    [Anchor(x=-2.0, label=2147483645), Anchor(x=0.5, label=2054114791),
     Anchor(x=0.6, label=1960745937)]
    """
    known = [
        Anchor(place(turn.tag, below_floor=turn.below_floor), labels[turn.job.job_id])
        for turn in turns
    ]
    found = _rising([Anchor(FIRST, LARGEST), *(anchor for anchor in known if anchor.x < FAR)])
    last = found[-1]
    lowest = max((anchor.label for anchor in known if anchor.x >= FAR), default=0) + 1
    lowest = min(lowest, last.label)
    probes = sorted({x for tenant in tenants for x in _probes(tenant) if last.x < x < FAR})
    room = last.label - lowest
    found += [
        Anchor(x, last.label - room * i // (len(probes) + 1)) for i, x in enumerate(probes, 1)
    ]
    return [*found, Anchor(FAR, 1 if lowest > 1 else lowest)]


def _rising(found: list[Anchor]) -> list[Anchor]:
    """One anchor a place and no label above one before; of many with one label first and last."""
    by_place: list[Anchor] = []
    for x, group in groupby(found, key=lambda anchor: anchor.x):
        label = min(anchor.label for anchor in group)
        by_place.append(Anchor(x, min(label, by_place[-1].label) if by_place else label))
    kept: list[Anchor] = []
    for _, run in groupby(by_place, key=lambda anchor: anchor.label):
        first, *rest = run
        kept += [first, *rest[-1:]]
    return kept


def _probes(tenant: TenantEntry) -> list[float]:
    """Places of a tenant's next jobs."""
    return [
        place(tenant.base + tenant.slope * charged, below_floor=charged < tenant.floor_gpus)
        for charged in PROBES
    ]


def _prices(seen: View, pricing: Pricing) -> dict[str, float]:
    """What the TRES are worth that a job here can ask for."""
    types = {kind for kind in (*seen.capacity.by_type(), *pricing.weights) if kind}
    units = ["gpu", "mps", "shard", *(f"gpu:{kind}" for kind in sorted(types))]
    worth = {f"gres/{unit}": float(gpus(f"{unit}=1", pricing).weighted) for unit in units}
    return {name: value for name, value in worth.items() if value > 0}
