"""What the site was seen to be: accounts, weights, GPUs in service, as steps in time."""

from __future__ import annotations

from slurm_ltgf.core.measure import CapacityStep, WeightStep
from slurm_ltgf.core.model import Account, Window
from slurm_ltgf.errors import SlurmUnavailable
from slurm_ltgf.service.edges import Edges, Memory
from slurm_ltgf.service.terms import tenancy_of
from slurm_ltgf.slurm.nodes import Capacity
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger, Step

#: Later than every observation.
LAST = 1 << 40


def observe_site(
    edges: Edges, ledger: Ledger, config: Config, *, now: int, memory: Memory | None = None
) -> tuple[list[Account], Capacity]:
    """Read accounts and nodes; note in the ledger what changed."""
    capacity = edges.capacity()
    accounts = _accounts(edges, ledger, config, now=now, memory=memory)
    if ledger.readonly:
        return accounts, capacity
    ledger.observe_capacity(edges.cluster, now, dict(capacity.by_type()))
    remember_shards(ledger, edges.cluster, capacity.per_gpu("shard"))
    tenancy = tenancy_of(config, accounts)
    ledger.observe_shares(edges.cluster, now, {t.name: t.weight for t in tenancy.tenants()})
    return accounts, capacity


def remember_shards(ledger: Ledger, cluster: str, per_gpu: int) -> None:
    """Keep how many shards a GPU has, for measuring without Slurm."""
    if per_gpu != shards_per_gpu(ledger, cluster):
        ledger.state_set(f"shards_per_gpu {cluster}", str(per_gpu))


def shards_per_gpu(ledger: Ledger, cluster: str) -> int:
    """How many shards a GPU had when the nodes were last seen; 0: not known."""
    return int(ledger.state_get(f"shards_per_gpu {cluster}") or 0)


def capacity_steps(ledger: Ledger, cluster: str, window: Window) -> list[CapacityStep]:
    """GPUs in service over a window; seen only later: as they were first seen."""
    steps = _steps(ledger.capacity(cluster, Window(window.start, LAST)), window)
    return [CapacityStep(time, values) for time, values in steps]


def weight_steps(ledger: Ledger, cluster: str, window: Window) -> list[WeightStep]:
    """Tenants' weights over a window; seen only later: as they were first seen."""
    steps = _steps(ledger.shares(cluster, Window(window.start, LAST)), window)
    return [WeightStep(time, values) for time, values in steps]


def _steps(ever: list[Step], window: Window) -> list[tuple[int, dict[str, float]]]:
    known = [(step.time, step.values) for step in ever if step.values]
    return [step for step in known if step[0] < window.end] or known[:1]


def _accounts(
    edges: Edges, ledger: Ledger, config: Config, *, now: int, memory: Memory | None
) -> list[Account]:
    if memory is not None and memory.accounts is not None:
        read_at, accounts = memory.accounts
        if now - read_at < config.daemon.associations_every_s:
            return accounts
    try:
        accounts = edges.accounts()
    except SlurmUnavailable:
        accounts = ledger.accounts(edges.cluster)
        if not accounts:
            raise
        return accounts
    known = ledger.accounts(edges.cluster)
    if not ledger.readonly and sorted(accounts, key=lambda a: a.name) != known:
        ledger.set_accounts(edges.cluster, accounts, time=now)
    if memory is not None:
        memory.accounts = (now, accounts)
    return accounts
