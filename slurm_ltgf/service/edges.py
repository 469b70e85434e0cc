"""What the use cases ask of Slurm, as arguments: real edges in production, plain ones in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slurm_ltgf.core.model import Account, Batch
from slurm_ltgf.slurm.control import Change as Write
from slurm_ltgf.slurm.control import ControlResult
from slurm_ltgf.slurm.nodes import Capacity
from slurm_ltgf.slurm.queue import Priorities, Queue
from slurm_ltgf.store.factor_table import FactorFile


class Reader(Protocol):
    """Reads history from Slurm: sacct's command line, or PySlurm."""

    def read(self, start: int, end: int) -> Iterator[Batch]:
        """Runs that overlap [start, end), open ones included."""


@dataclass(frozen=True, slots=True)
class Edges:
    """What a pass asks of Slurm, and the one thing it tells it.

    table: where slurmctld's plugin looks; None: SiteFactors are written by `write` alone.
    """

    cluster: str
    reader: Reader
    queue: Callable[[], Queue]
    priorities: Callable[[], Priorities]
    capacity: Callable[[], Capacity]
    accounts: Callable[[], list[Account]]
    write: Callable[[Sequence[Write]], ControlResult]
    table: FactorFile | None = None


@dataclass(slots=True)
class Outage:
    """An outage of slurmdbd: how often it was tried in vain, when to try again, what it said."""

    attempts: int = 0
    retry_at: int = 0
    reason: str = ""


@dataclass(slots=True)
class Memory:
    """What a daemon may remember between passes to spare Slurm; none of it is needed."""

    accounts: tuple[int, list[Account]] | None = None
    persisted_at: int = 0
    late_at: int = 0
    database: Outage = field(default_factory=Outage)
    open_runs: frozenset[tuple[int, int, int]] = field(default_factory=frozenset)
