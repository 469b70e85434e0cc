"""What the engine asks of a policy, and what it tells it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from slurm_ltgf.sim.workload import Job


class Policy(Protocol):
    """Orders waiting jobs, and says which running ones give their GPUs back.

    period_s: also to be asked this often while jobs wait, None: only when something happened.
    lease_s: running jobs are asked about again after so long; None: they run to their end.
    """

    @property
    def name(self) -> str:
        """What it is called on the command line."""

    @property
    def period_s(self) -> int | None:
        """See above."""

    @property
    def lease_s(self) -> int | None:
        """See above."""

    def arrived(self, job: Job, now: int) -> None:
        """A job waits from now on, for the first time or again."""

    def started(self, job: Job, now: int) -> None:
        """A waiting job was given GPUs."""

    def ended(self, job: Job, now: int) -> None:
        """A running job gave its GPUs back."""

    def candidates(self, now: int) -> Iterator[Job]:
        """Waiting jobs in the order in which they are to be tried; ends where none may start."""

    def yielding(self, over: Sequence[Job], free_gpus: int, now: int) -> Collection[int]:
        """Ids of those that are to be checkpointed and requeued, of jobs whose lease is over."""


class ToTheEnd:
    """What policies without leases have in common."""

    period_s: int | None = None
    lease_s: int | None = None

    def yielding(self, over: Sequence[Job], free_gpus: int, now: int) -> Collection[int]:
        """Nobody yields."""
        return ()
