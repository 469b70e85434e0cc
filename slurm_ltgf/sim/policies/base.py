"""What the engine asks of a policy, and what it tells it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from slurm_ltgf.sim.workload import Job


class Policy(Protocol):
    """Orders waiting jobs; runs them to their end.

    period_s: also to be asked this often while jobs wait, None: only when something happened.
    """

    @property
    def name(self) -> str:
        """What it is called on the command line."""

    @property
    def period_s(self) -> int | None:
        """See above."""

    def arrived(self, job: Job, now: int) -> None:
        """A job waits from now on."""

    def started(self, job: Job, now: int) -> None:
        """A waiting job was given GPUs."""

    def ended(self, job: Job, now: int) -> None:
        """A running job gave its GPUs back."""

    def candidates(self, now: int) -> Iterator[Job]:
        """Waiting jobs in the order in which they are to be tried; ends where none may start."""
