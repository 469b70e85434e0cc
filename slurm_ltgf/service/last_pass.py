"""What the daemon's last pass saw that is in no table of the ledger: left beside it for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from slurm_ltgf.core.lease import Action
from slurm_ltgf.store.beside import leave, left
from slurm_ltgf.store.ledger import Ledger

if TYPE_CHECKING:
    from slurm_ltgf.service.leases import LeaseView


@dataclass(frozen=True, slots=True)
class LastPass:
    """One pass. time: when it began, epoch seconds.

    has_database: slurmdbd answered. waiting: records in the order. writes: SiteFactors told.
    leases: how many of each kind, None: leases are off or could not be judged. moves: under way.
    """

    time: int
    took_s: float
    has_database: bool
    waiting: int
    writes: int
    leases: Mapping[str, int] | None = None
    moves: int | None = None


def remember_pass(ledger: Ledger, cluster: str, done: LastPass) -> None:
    """Keep it in place of the one before.

    Raises:
        FileError: it cannot be written.
    """
    leave(ledger.path, "pass", cluster, asdict(done))


def last_pass(ledger: Ledger, cluster: str) -> LastPass | None:
    """The daemon's last pass; None: there was none, or another version of ltgf made it."""
    return left(ledger.path, "pass", cluster, LastPass)


def lease_kinds(judged: LeaseView) -> dict[str, int]:
    """How many leases still run, and how many of those that are over are of each verdict."""
    kinds = dict.fromkeys(("running", *(action.value for action in Action)), 0)
    for row in judged.rows:
        kinds["running" if row.verdict is None else row.verdict.action.value] += 1
    return kinds
