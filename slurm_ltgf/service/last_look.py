"""Fragmentation and budgets as the daemon last saw them: left beside the ledger for metrics.

They need Slurm's queue, nodes and counters, which nobody should be asked for at each scrape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from slurm_ltgf.store.beside import leave, left
from slurm_ltgf.store.ledger import Ledger

if TYPE_CHECKING:
    from slurm_ltgf.core.fragmentation import PoolState
    from slurm_ltgf.core.quota import QuotaState


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of one GPU type in one partition; see `core.fragmentation.PoolState`."""

    partition: str
    gpu_type: str
    score: float | None
    variance: float | None
    free: int
    stranded: Mapping[str, int]
    largest: int
    largest_possible: int
    blocked_jobs: int

    @staticmethod
    def of(state: PoolState) -> Pool:
        """What of a pool is told."""
        return Pool(
            state.partition,
            state.gpu_type,
            state.score,
            state.variance,
            state.free_gpus,
            state.stranded,
            state.largest,
            state.largest_possible,
            state.blocked_jobs,
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """An account's budget of GPU-time; see `core.quota.QuotaState`.

    gpu_type: "" for all types. held_gpu_s: None: a running job has no limit.
    """

    account: str
    gpu_type: str
    budget_gpu_s: int
    used_gpu_s: float
    held_gpu_s: float | None
    exhausted_at: int | None

    @property
    def ratio(self) -> float:
        """Part of the budget that is used; inf of a budget of 0."""
        return self.used_gpu_s / self.budget_gpu_s if self.budget_gpu_s else math.inf

    @staticmethod
    def of(state: QuotaState) -> Budget | None:
        """What of a budget is told; None: the account has none."""
        if state.budget_gpu_s is None:
            return None
        counted = state.used_gpu_s if state.counted_gpu_s is None else state.counted_gpu_s
        held = state.held_gpu_s if math.isfinite(state.held_gpu_s) else None
        kind = state.tres.partition(":")[2]
        return Budget(state.account, kind, state.budget_gpu_s, counted, held, state.exhausted_at)


@dataclass(frozen=True, slots=True)
class LastLook:
    """One look. time: epoch seconds. None: it could not be had."""

    time: int
    pools: tuple[Pool, ...] | None = None
    budgets: tuple[Budget, ...] | None = None


def look_of(
    time: int, pools: Iterable[PoolState] | None, budgets: Iterable[QuotaState] | None
) -> LastLook:
    """A look at what these say."""
    of_budgets = None if budgets is None else (Budget.of(state) for state in budgets)
    return LastLook(
        time,
        None if pools is None else tuple(Pool.of(state) for state in pools),
        None if of_budgets is None else tuple(one for one in of_budgets if one is not None),
    )


def remember_look(ledger: Ledger, cluster: str, look: LastLook) -> None:
    """Keep it in place of the one before.

    Raises:
        FileError: it cannot be written.
    """
    leave(ledger.path, "look", cluster, asdict(look))


def last_look(ledger: Ledger, cluster: str) -> LastLook | None:
    """The daemon's last look; None: there was none, or another version of ltgf made it."""
    return left(ledger.path, "look", cluster, LastLook)
