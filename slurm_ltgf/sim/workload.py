"""Jobs to simulate: what arrives when, how many GPUs for how long, and whose it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_ltgf.core.model import Skipped


@dataclass(slots=True)
class Job:
    """A job of a trace, and what became of it. Times are seconds from the trace's beginning.

    run_s: how long it runs. limit_s: its time limit, which is what a scheduler knows. start, end:
    None until then. nodes: (node, GPUs) it holds.
    """

    job_id: int
    tenant: str
    gpus: int
    submit: int
    run_s: int
    limit_s: int
    start: int | None = None
    end: int | None = None
    nodes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace, sorted by submit time, with the rows of its source that could not be used."""

    jobs: tuple[Job, ...]
    skipped: tuple[Skipped, ...] = field(default=())
    name: str = ""

    @property
    def tenants(self) -> tuple[str, ...]:
        """Names of all tenants, sorted."""
        return tuple(sorted({job.tenant for job in self.jobs}))

    def fresh(self) -> list[Job]:
        """Copies of the jobs, as before any run."""
        return [Job(j.job_id, j.tenant, j.gpus, j.submit, j.run_s, j.limit_s) for j in self.jobs]


def workload(jobs: Sequence[Job], skipped: Sequence[Skipped] = (), name: str = "") -> Workload:
    """A workload of jobs in any order."""
    ordered = sorted(jobs, key=lambda job: (job.submit, job.job_id))
    return Workload(tuple(ordered), tuple(skipped), name)
