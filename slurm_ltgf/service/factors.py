"""From a pass to the factor table: labels of the jobs that wait, and of those that will come.

A job submitted after the table was made stands behind its tenant's others. Its start tag is the
tenant's with what waits charged, and grows with what was admitted before it; the plugin counts
that. Which label a tag means is told by anchors: the jobs of the queue with the labels they have,
and beyond the last of them the places that tenants' next jobs can have, evenly spaced.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from slurm_ltgf.core.factor import LARGEST, Change
from slurm_ltgf.core.gpus import Pricing, gpus
from slurm_ltgf.core.order import Account, Rules, Standing, Turn
from slurm_ltgf.service.present import View
from slurm_ltgf.service.terms import pricing_of, rules_of
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.factor_table import FAR, NO_DUE, Anchor, FactorTable, TenantEntry

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
    """The tenant's account, what waits charged."""
    account = Account(standing or Standing(0.0, 0.0, 0.0), rules)
    return TenantEntry(
        account.spent_gpu_s,
        rules.lease_s,
        account.due,
        account.held_gpus,
        account.floor_gpus,
        waiting_gpus,
    )


def place(has_gpu_s: float, due_gpu_s: float, *, below_floor: bool) -> float:
    """A job's place on the table's axis: tags, before them who is below its floor, behind them who
    has nothing due."""
    if due_gpu_s <= 0:
        return min((1 + has_gpu_s) * NO_DUE, FAR)
    tag = min(has_gpu_s / due_gpu_s, NO_DUE / 2)
    return -1 / (1 + tag) if below_floor else tag


def _place_of(turn: Turn) -> float:
    rest, tag, has = turn.key
    return (
        place(has, 0.0, below_floor=False)
        if tag == math.inf
        else place(tag, 1, below_floor=not rest)
    )


def anchors(
    turns: Sequence[Turn], labels: Mapping[int, int], tenants: Sequence[TenantEntry]
) -> list[Anchor]:
    """The axis: what waits with its labels, then room for what may come.

    >>> anchors([], {}, [TenantEntry(5.0, 1.0, 10.0)])[:3]  # doctest: +NORMALIZE_WHITESPACE
    [Anchor(x=-2.0, label=2147483645), Anchor(x=0.5, label=2054114791),
     Anchor(x=0.6, label=1960745937)]
    """
    known = [Anchor(_place_of(turn), labels[turn.job.job_id]) for turn in turns]
    known = _rising([Anchor(FIRST, LARGEST), *(anchor for anchor in known if anchor.x < FAR)])
    probes = sorted({x for tenant in tenants for x in _probes(tenant) if x < FAR})
    due = [anchor for anchor in known if anchor.x < NO_DUE]
    rest = known[len(due) :]
    lowest = min(1, known[-1].label)
    if not rest:
        return [*due, *_room(due[-1], probes, lowest), Anchor(FAR, lowest)]
    between = [x for x in probes if x < NO_DUE]
    found = [*due, *_room(due[-1], between, min(rest[0].label + 1, due[-1].label)), *rest]
    return [*found, *_room(rest[-1], probes, lowest), Anchor(FAR, lowest)]


def _room(last: Anchor, probes: Iterable[float], lowest: int) -> Iterator[Anchor]:
    """Places behind the last, evenly spaced down to a label that is kept for who comes after."""
    places = [x for x in probes if x > last.x]
    for i, x in enumerate(places, 1):
        yield Anchor(x, last.label - (last.label - lowest) * i // (len(places) + 1))


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
    charges = [tenant.charged_gpus + more for more in PROBES]
    return [
        place(
            tenant.spent_gpu_s + tenant.lease_s * charged,
            tenant.due_gpu_s,
            below_floor=tenant.held_gpus + charged < tenant.floor_gpus,
        )
        for charged in charges
    ]


def _prices(seen: View, pricing: Pricing) -> dict[str, float]:
    """What the TRES are worth that a job here can ask for."""
    types = {kind for kind in (*seen.capacity.by_type(), *pricing.weights) if kind}
    units = ["gpu", "mps", "shard", *(f"gpu:{kind}" for kind in sorted(types))]
    worth = {f"gres/{unit}": float(gpus(f"{unit}=1", pricing).weighted) for unit in units}
    return {name: value for name, value in worth.items() if value > 0}
