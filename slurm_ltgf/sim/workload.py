"""Jobs to simulate: what arrives when, how many GPUs for how long, and whose it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from slurm_ltgf.core.model import Skipped


class Hold(NamedTuple):
    """A time that a job held GPUs and did not end: it was moved, or the run failed."""

    start: int
    end: int
    state: Literal["PREEMPTED", "NODE_FAIL"] = "PREEMPTED"


@dataclass(slots=True)
class Job:
    """A job of a trace, and what became of it. Times are seconds from the trace's beginning.

    run_s: how long it runs. limit_s: its time limit, which is what a scheduler knows. gpu_type: ""
    is any. cpus, memory_mib: of the whole job; 0: it asks for none. lost_s: runs that failed and
    were requeued before the one that ended it, the seconds that each held its GPUs; their work is
    lost. state: how the trace says that it ended.

    runs: each time it held GPUs before the present one. start: of the present run, or of the last
    one; end: of the whole job. left_s: work of the present attempt not yet done and
    kept. kept_s: of runs that are over, those whose work goes on. failures: how many of lost_s have
    happened. nodes: (node, GPUs) it holds.
    """

    job_id: int
    tenant: str
    gpus: int
    submit: int
    run_s: int
    limit_s: int
    gpu_type: str = ""
    cpus: int = 0
    memory_mib: int = 0
    lost_s: tuple[int, ...] = ()
    state: str = "COMPLETED"
    start: int | None = None
    end: int | None = None
    left_s: int = -1
    kept_s: int = 0
    failures: int = 0
    runs: list[Hold] = field(default_factory=list)
    nodes: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        """All work is left at first."""
        if self.left_s < 0:
            self.left_s = self.attempt_s

    @property
    def attempt_s(self) -> int:
        """How long the present attempt runs, all of it."""
        return self.lost_s[self.failures] if self.failures < len(self.lost_s) else self.run_s

    @property
    def moves(self) -> int:
        """How often it was checkpointed and requeued."""
        return len(self.runs) - self.failures

    @property
    def first_start(self) -> int | None:
        """When it first held GPUs."""
        return self.runs[0].start if self.runs else self.start


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace, sorted by submit time, with the rows of its source that could not be used.

    notes: what had to be simplified, a sentence each.
    """

    jobs: tuple[Job, ...]
    skipped: tuple[Skipped, ...] = field(default=())
    name: str = ""
    notes: tuple[str, ...] = ()

    @property
    def tenants(self) -> tuple[str, ...]:
        """Names of all tenants, sorted."""
        return tuple(sorted({job.tenant for job in self.jobs}))

    def fresh(self) -> list[Job]:
        """Copies of the jobs, as before any run."""
        return [
            Job(
                job.job_id,
                job.tenant,
                job.gpus,
                job.submit,
                job.run_s,
                job.limit_s,
                job.gpu_type,
                job.cpus,
                job.memory_mib,
                job.lost_s,
                job.state,
            )
            for job in self.jobs
        ]


def workload(
    jobs: Iterable[Job],
    skipped: Sequence[Skipped] = (),
    name: str = "",
    notes: Sequence[str] = (),
) -> Workload:
    """A workload of jobs in any order."""
    ordered = sorted(jobs, key=lambda job: (job.submit, job.job_id))
    return Workload(tuple(ordered), tuple(skipped), name, tuple(notes))
