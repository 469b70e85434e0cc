"""Slurm's history as jobs: the runs of sacct or of the ledger, put together job by job.

A job arrives when it was eligible, not when it was submitted: held, or waiting for others, it was
no demand. Of a job that was requeued all runs but the last are attempts. What cannot be replayed is
named: jobs without GPUs, jobs that never ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from slurm_ltgf.core.gpus import MIG, Pricing, gpus
from slurm_ltgf.core.history import settle
from slurm_ltgf.core.job_fairness import RESIZED
from slurm_ltgf.core.model import NO_ACCOUNT, NO_LIMIT, UNKNOWN, IntArray, Runs, Skipped
from slurm_ltgf.sim.traces.columns import NO_GPUS, WHOLE_GPU
from slurm_ltgf.sim.workload import Job, Workload, workload

#: Rows whose numbers are Python's at the same time.
PART_ROWS = 1 << 16
#: What Slurm's backfill takes for a job without limit.
YEAR_S = 365 * 86400
OPEN = frozenset({"RUNNING", "SUSPENDED"})
WAITS = "still waited when the history ended: its run time is not known"
CANCELLED = "cancelled while it waited"
NEVER_RAN = "never ran"
NOT_KNOWN = "its GPUs are not known"
STILL_RAN = "jobs still ran when the history ended: their run time is taken as far as it was seen"


class Attempt(NamedTuple):
    """A time that a job held GPUs, epoch seconds. work_s: how long it ran, not suspended."""

    start: int
    end: int
    work_s: int
    state: str


class Past(NamedTuple):
    """A job that ran, with its attempts in order, the one that ended it last.

    job_id: the raw one, or where it is not unique a counter. submit: when it was first eligible,
    epoch seconds. limit_s: UNKNOWN, NO_LIMIT or seconds. is_part: it used a part of a GPU, and has
    a whole one here. gpu_type: the one it asked for; "": any. row: its last run's row in the runs.
    """

    job_id: int
    tenant: str
    gpus: int
    gpu_type: str
    submit: int
    limit_s: int
    attempts: tuple[Attempt, ...]
    is_part: bool
    row: int

    @property
    def is_open(self) -> bool:
        """Whether it had not ended when the history did."""
        return self.attempts[-1].state in OPEN

    def run_times(self, *, kept: bool) -> tuple[tuple[int, ...], int]:
        """(lost_s, run_s) of a `Job`: attempts whose work was lost, and how long it runs then.

        A preempted attempt is no failure of the job's own: it is what the site's policy did then,
        and it is not replayed.

        Args:
            kept: requeued jobs went on from a checkpoint.
        """
        *before, last = self.attempts
        if kept:
            return (), sum(attempt.work_s for attempt in self.attempts)
        return tuple(a.work_s for a in before if a.state != "PREEMPTED"), last.work_s

    def job(self, *, origin: int, kept: bool = False, limit_factor: float = 1.0) -> Job:
        """The job to simulate. origin: the trace's beginning, epoch seconds."""
        lost_s, run_s = self.run_times(kept=kept)
        longest = max(run_s, *lost_s) if lost_s else run_s
        limit_s = YEAR_S if self.limit_s == NO_LIMIT else self.limit_s
        if limit_s == UNKNOWN:
            limit_s = max(int(longest * limit_factor), 1)
        else:
            limit_s = max(limit_s, longest)
        return Job(
            self.job_id,
            self.tenant,
            self.gpus,
            self.submit - origin,
            run_s,
            limit_s,
            self.gpu_type,
            lost_s=lost_s,
            state=self.attempts[-1].state,
        )


def read_history(
    runs: Runs, name: str, *, now: int, limit_factor: float = 1.0, by_user: bool = False
) -> Workload:
    """A workload of all the runs; one tenant an account, or by_user a user.

    Args:
        now: epoch seconds when the runs were read.
        limit_factor: see `columns.read_csv`; for jobs whose time limit is not known.
    """
    settled = settle(runs, now=now).runs
    jobs: list[Job] = []
    skipped: list[Skipped] = []
    counts = {STILL_RAN: 0, WHOLE_GPU: 0}
    for past in past_jobs(settled, name, by_user=by_user):
        if isinstance(past, Skipped):
            skipped.append(past)
            continue
        jobs.append(past.job(origin=0, limit_factor=limit_factor))
        counts[STILL_RAN] += past.is_open
        counts[WHOLE_GPU] += past.is_part
    origin = min((job.submit for job in jobs), default=0)
    for job in jobs:
        job.submit -= origin
    return workload(jobs, skipped, name, [f"{n} {text}" for text, n in counts.items() if n])


def past_jobs(
    runs: Runs,
    name: str,
    *,
    tenant_of: Mapping[str, str] | None = None,
    pricing: Pricing | None = None,
    by_user: bool = False,
) -> Iterator[Past | Skipped]:
    """Put the runs of each job together; a job that cannot be replayed is `Skipped`, and named.

    Args:
        runs: settled: each has an end.
        tenant_of: account -> tenant; None: each account is one.
        pricing: worth of GRES; physical GPUs are counted, whatever they weigh.
    """
    if not len(runs):
        return
    table = _Table(runs, name, tenant_of, pricing or Pricing(), by_user=by_user)
    order, bounds = _grouped(runs)
    ids = runs.job_id[order[bounds[:-1]]]
    is_unique = len(np.unique(ids)) == len(ids)
    first = 0
    while first < len(bounds) - 1:
        last = int(np.searchsorted(bounds, bounds[first] + PART_ROWS, side="right")) - 1
        last = max(last, first + 1)
        cut = bounds[first : last + 1]
        part = _Part(table, order[cut[0] : cut[-1]])
        for count, (begin, end) in enumerate(pairwise((cut - cut[0]).tolist()), first + 1):
            yield part.job(begin, end, None if is_unique else count)
        first = last


def _grouped(runs: Runs) -> tuple[IntArray, IntArray]:
    """Rows by job and then by start, those that never started last; and where each job begins."""
    begun = np.where(runs.start == UNKNOWN, NO_LIMIT, runs.start)
    who = (runs.het_offset, runs.array_task, runs.job_id, runs.cluster.codes)
    order = np.lexsort((begun, *who))
    new = np.zeros(len(order) - 1, dtype=np.bool_)
    for column in who:
        own = column[order]
        new |= own[1:] != own[:-1]
    return order, np.concatenate([[0], np.flatnonzero(new) + 1, [len(order)]])


class _Table:
    """What the texts of some runs mean, once a text."""

    def __init__(
        self,
        runs: Runs,
        name: str,
        tenant_of: Mapping[str, str] | None,
        pricing: Pricing,
        *,
        by_user: bool,
    ) -> None:
        self.runs = runs
        self.name = name
        owners = runs.user if by_user else runs.account
        known = tenant_of or {}
        self.tenants = [known.get(owner, owner) or NO_ACCOUNT for owner in owners.names]
        self.owners = owners.codes
        self.gpus = [_held(text, pricing) for text in runs.gres.names]
        self.types = [_type_asked(text) for text in runs.gres_requested.names]


def _held(text: str, pricing: Pricing) -> tuple[int, bool]:
    """(GPUs, whether a part of one was rounded up); UNKNOWN GPUs if that cannot be told."""
    worth = gpus(text, pricing)
    if worth.unpriced:
        return UNKNOWN, False
    return -(-worth.gpus.numerator // worth.gpus.denominator), worth.gpus.denominator > 1


def _type_asked(text: str) -> str:
    """The GPU type of canonical GRES text; "" for none, several, or a slice of one."""
    names = [part.rpartition("=")[0].partition(":") for part in text.split(",") if part]
    kinds = {kind for name, _, kind in names if name == "gpu" and kind}
    kind = kinds.pop() if len(kinds) == 1 else ""
    return "" if MIG.search(kind) else kind


class _Part:
    """Some rows of a table as Python's numbers, in the order of their jobs."""

    def __init__(self, table: _Table, rows: IntArray) -> None:
        runs = table.runs
        self._table = table
        self._rows: list[int] = rows.tolist()
        columns = (runs.job_id, runs.submit, runs.eligible, runs.start, runs.end)
        self._id, self._submit, self._eligible, self._start, self._end = (
            column[rows].tolist() for column in columns
        )
        self._elapsed: list[int] = runs.elapsed_s[rows].tolist()
        self._limit: list[int] = runs.limit_s[rows].tolist()
        self._state = [runs.state.names[code] for code in runs.state.codes[rows].tolist()]
        self._gpus = [table.gpus[code] for code in runs.gres.codes[rows].tolist()]

    def job(self, first: int, end: int, count: int | None) -> Past | Skipped:
        """The job of some rows. count: its id; None: the raw one."""
        ran = [i for i in range(first, end) if self._has_run(i)]
        why = self._why_not(first, end, ran)
        if why:
            return Skipped(0, why, f"{self._table.name}: job {self._id[first]}")
        attempts, held = self._attempts(ran)
        last = self._rows[ran[-1]]
        arrived = next(
            t for t in (self._eligible[first], self._submit[first], attempts[0].start) if t >= 0
        )
        table = self._table
        return Past(
            self._id[first] if count is None else count,
            table.tenants[int(table.owners[last])],
            held,
            table.types[int(table.runs.gres_requested.codes[last])],
            min(arrived, attempts[0].start),
            self._limit[ran[-1]],
            attempts,
            self._gpus[ran[-1]][1],
            last,
        )

    def _has_run(self, i: int) -> bool:
        return bool(self._start[i] != UNKNOWN and (self._elapsed[i] > 0 or self._gpus[i][0]))

    def _why_not(self, first: int, end: int, ran: Sequence[int]) -> str:
        """Why the job cannot be replayed; "" if it can."""
        if not ran:
            state = self._state[end - 1]
            return {"PENDING": WAITS, "CANCELLED": CANCELLED}.get(state, NEVER_RAN)
        if any(self._gpus[i][0] == UNKNOWN for i in ran):
            return NOT_KNOWN
        return "" if self._gpus[ran[-1]][0] else NO_GPUS

    def _attempts(self, ran: Sequence[int]) -> tuple[tuple[Attempt, ...], int]:
        """The attempts, and the GPUs held. One that was resized holds the most of its sizes."""
        found: list[Attempt] = []
        start, work, held = UNKNOWN, 0, 0
        for i in ran:
            start = self._start[i] if start == UNKNOWN else start
            count = self._gpus[i][0]
            work += self._elapsed[i] * count
            held = max(held, count)
            if self._state[i] not in RESIZED or i == ran[-1]:
                work_s = max(round(work / held) if held else self._elapsed[i], 1)
                found.append(Attempt(start, max(self._end[i], start), work_s, self._state[i]))
                start, work, held = UNKNOWN, 0, 0 if i != ran[-1] else held
        return tuple(found), held
