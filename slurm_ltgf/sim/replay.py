"""A site's own history as a workload: what really happened, and the same jobs for other policies.

Time 0 is the beginning of the window. Jobs that ran then arrive at 0 with what was left of them;
jobs that waited then arrive a second later, so that the others hold their GPUs first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import mean, median
from typing import Any

from slurm_ltgf.core.gpus import MIG, Pricing, gpus
from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN, Skipped, Window
from slurm_ltgf.sim.backfill import Backfill
from slurm_ltgf.sim.cluster import NodeType
from slurm_ltgf.sim.engine import Outcome
from slurm_ltgf.sim.metrics import Measures
from slurm_ltgf.sim.traces import fitted
from slurm_ltgf.sim.traces.history import YEAR_S, Attempt, Past
from slurm_ltgf.sim.workload import Hold, Job, Workload, workload

AS_IT_WAS = "as it was"
LIMITS = (
    "People would have acted differently: who waits less submits more, and asks for other sizes.",
    "Arrivals, sizes and run times are those of the history.",
    "Not replayed: partitions, QOS, limits, reservations, dependencies, throttles of arrays.",
    "Not replayed: preemption between partitions, nodes that were down, CPUs and memory.",
    "Every policy begins without a past: it knows nothing of the GPU-time before the window.",
    "slurm-fairtree is Slurm's fair tree with a half-life of 7 days; this site's may differ.",
)


def limits(backfill: Backfill) -> list[str]:
    """What a replay with such a backfill does not know, in sentences."""
    passes = f"a pass every {backfill.interval_s} s" if backfill.interval_s else "at every event"
    said = {
        "easy": "Backfill is EASY: jobs waited a fifth less by it than on a real Slurm.",
        "conservative": f"Backfill: {passes}, over {backfill.depth} jobs; this site's may differ.",
        "none": "No backfill: jobs wait that Slurm would start.",
    }
    return [*LIMITS, said[backfill.kind]]


@dataclass(frozen=True, slots=True)
class History:
    """Jobs of a window. Times are seconds from its beginning.

    real: the jobs as they were, with their starts and ends. work: the same jobs to simulate, and
    what is left out. ran_before, ran_on: jobs that ran at the window's beginning, and at its end.
    """

    window: Window
    work: Workload
    real: tuple[Job, ...]
    ran_before: frozenset[int] = frozenset()
    ran_on: frozenset[int] = frozenset()

    @property
    def most_held(self) -> int:
        """The most GPUs that jobs held at once."""
        return max_held(self.real)

    def on(self, nodes: Sequence[NodeType]) -> History:
        """The history without jobs that the nodes could never run."""
        work = fitted(self.work, nodes)
        kept = {job.job_id for job in work.jobs}
        return replace(
            self,
            work=work,
            real=tuple(job for job in self.real if job.job_id in kept),
            ran_before=self.ran_before & kept,
            ran_on=self.ran_on & kept,
        )

    def as_it_was(self, capacity_gpus: int) -> Outcome:
        """The history as if a policy had done it."""
        real = tuple(replace(job, runs=list(job.runs)) for job in self.real)
        failed = sum(
            job.gpus * (held.end - held.start)
            for job in real
            for held in job.runs
            if held.state == "NODE_FAIL"
        )
        length = self.window.length_s
        return Outcome(AS_IT_WAS, real, capacity_gpus, length, failed_gpu_s=failed)


@dataclass(slots=True)
class _Reading:
    """Jobs being read."""

    window: Window
    kept: bool
    jobs: list[Job] = field(default_factory=list)
    real: list[Job] = field(default_factory=list)
    ran_before: set[int] = field(default_factory=set)
    ran_on: set[int] = field(default_factory=set)

    def add(self, past: Past) -> None:
        """Take in a job, as far as it was in the window."""
        window = self.window
        inside = [
            a
            for a in past.attempts
            if a.start < window.end and (a.end > window.start or a.start >= window.start)
        ]
        if not inside:
            return
        first, spent = inside[0], max(window.start - inside[0].start, 0)
        if spent:
            inside[0] = Attempt(window.start, first.end, max(first.work_s - spent, 1), first.state)
            self.ran_before.add(past.job_id)
        past = past._replace(attempts=tuple(inside), limit_s=_left(past, spent, len(inside)))
        job = past.job(origin=window.start, kept=self.kept)
        job.submit = _arrival(past.submit, inside[0].start, window.start, ran=spent > 0)
        if past.is_open:
            self.ran_on.add(past.job_id)
            job.run_s = job.limit_s = _open_run_s(past, job, window)
            job.left_s = job.attempt_s
        self.jobs.append(job)
        self.real.append(_as_it_was(past, job, window))


def read(
    jobs: Iterable[Past | Skipped], window: Window, *, name: str, requeued_work_kept: bool = False
) -> History:
    """The jobs of a window, from what `traces.history.past_jobs` gives.

    Args:
        window: epoch seconds; the history is known to its end, and no further.
        requeued_work_kept: requeued jobs went on from a checkpoint.
    """
    reading = _Reading(window, requeued_work_kept)
    skipped: list[Skipped] = []
    parts = 0
    for past in jobs:
        if isinstance(past, Skipped):
            skipped.append(past)
        else:
            parts += past.is_part
            reading.add(past)
    notes = [f"{parts} jobs used a part of a GPU, and hold a whole one here"] if parts else []
    work = workload(reading.jobs, skipped, name, notes)
    return History(
        window,
        work,
        tuple(sorted(reading.real, key=lambda job: (job.submit, job.job_id))),
        frozenset(reading.ran_before),
        frozenset(reading.ran_on),
    )


def _arrival(submit: int, start: int, origin: int, *, ran: bool) -> int:
    """When it arrives: running ones at 0, ones that waited already right after them."""
    if ran:
        return 0
    return submit - origin if submit >= origin else min(1, start - origin)


def _left(past: Past, spent: int, attempts: int) -> int:
    """The time limit of a job whose only attempt in the window had begun before it."""
    if past.limit_s in (UNKNOWN, NO_LIMIT) or attempts > 1:
        return past.limit_s
    return max(past.limit_s - spent, 1)


def _open_run_s(past: Past, job: Job, window: Window) -> int:
    """Run time of a job that had not ended: its time limit; without one, to the window's end."""
    if past.limit_s in (UNKNOWN, NO_LIMIT):
        return max(job.run_s, min(window.length_s, YEAR_S))
    return max(job.run_s, job.limit_s)


def _as_it_was(past: Past, job: Job, window: Window) -> Job:
    *before, last = past.attempts
    runs = [
        Hold(
            attempt.start - window.start,
            attempt.end - window.start,
            "PREEMPTED" if attempt.state == "PREEMPTED" else "NODE_FAIL",
        )
        for attempt in before
    ]
    is_open = past.is_open or last.end > window.end
    return replace(
        job,
        runs=runs,
        failures=sum(held.state == "NODE_FAIL" for held in runs),
        start=last.start - window.start,
        end=None if is_open else last.end - window.start,
        left_s=0,
    )


def max_held(jobs: Iterable[Job]) -> int:
    """The most GPUs that jobs with starts and ends held at once."""
    changes: Counter[int] = Counter()
    for job in jobs:
        times = [(held.start, held.end) for held in job.runs]
        for start, end in (*times, (job.start, job.end)):
            if start is not None:
                changes[start] += job.gpus
            if end is not None:
                changes[end] -= job.gpus
    held = most = 0
    for _, by in sorted(changes.items()):
        held += by
        most = max(most, held)
    return most


def machine(by_type: Mapping[str, float], per_node: int) -> list[NodeType]:
    """Nodes of `per_node` GPUs that together have so many of each type, one smaller where needed.

    Slices of GPUs (MIG) are put together to whole ones without type.
    """
    if any(MIG.search(kind) for kind in by_type):
        whole = (
            count * gpus(f"gpu:{kind}=1" if kind else "gpu=1", Pricing()).gpus
            for kind, count in ((kind, int(count)) for kind, count in by_type.items())
        )
        by_type = {"": float(sum(whole))}
    nodes = []
    for kind, count in sorted(by_type.items()):
        full, rest = divmod(int(count), per_node)
        nodes += [NodeType(full, per_node, kind)] if full else []
        nodes += [NodeType(1, rest, kind)] if rest else []
    return nodes


# --- who would have had what ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """A tenant under a policy. held_gpu_s: attained; preemptions: its jobs that were moved."""

    policy: str
    mean_wait_s: float | None
    median_wait_s: float | None
    attained_gpu_s: float
    rho: float | None
    share: float | None
    preemptions: int


def changes(
    outcomes: Sequence[Outcome], measured: Sequence[Measures], ran_before: frozenset[int]
) -> list[dict[str, Any]]:
    """Each tenant under each policy, in the order given; jobs that ran before waited for none.

    Returns:
        tenants with weight, number of jobs, and their `Change`s in plain types.
    """
    found: dict[str, dict[str, Any]] = {}
    for outcome, own in zip(outcomes, measured, strict=True):
        waits: dict[str, list[int]] = {}
        moves: Counter[str] = Counter()
        for job in outcome.jobs:
            moves[job.tenant] += job.moves
            if job.job_id not in ran_before:
                begun = outcome.horizon if job.first_start is None else job.first_start
                waits.setdefault(job.tenant, []).append(begun - job.submit)
        for row in own.tenants:
            there = waits.get(row.tenant, [])
            tenant = found.setdefault(
                row.tenant,
                {"tenant": row.tenant, "weight": row.weight, "jobs": len(there), "policies": []},
            )
            change = Change(
                own.policy,
                mean(there) if there else None,
                median(there) if there else None,
                row.attained_gpu_s,
                row.rho,
                row.share,
                moves[row.tenant],
            )
            tenant["policies"].append(asdict(change))
    return list(found.values())
