"""History into the ledger: new records, late ones too; nothing is written without news."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurm_ltgf.core.model import UNKNOWN, Batch, Runs, Window
from slurm_ltgf.service.edges import Edges, Memory
from slurm_ltgf.slurm.queue import Queue, demand_tasks
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger, StoreCounts

SACCT = "sacct"
#: A pass without news still tells readers of the ledger this often how far the history goes.
HEARTBEAT_S = 60
FIRST_SYNC_S = 30 * 86400
#: A run whose end was not recorded is looked for this often, and given up after that long.
LATE_S, FORGET_S = 600, 30 * 86400


@dataclass(frozen=True, slots=True)
class Synced:
    """What a sync did. start, end: the interval that was read; degraded: why it could not be."""

    counts: StoreCounts
    start: int
    end: int
    degraded: str = ""


def sync(
    edges: Edges,
    ledger: Ledger,
    config: Config,
    *,
    now: int,
    queue: Queue | None = None,
    start: int | None = None,
    progress: Callable[[Batch], object] | None = None,
    memory: Memory | None = None,
) -> Synced:
    """Read new history into the ledger.

    Args:
        queue: slurmctld's, as just read: it knows which waiting jobs are held, depend on others or
            are beyond their array's throttle, and so no demand; sacct does not.
        start: read from here on; default: the watermark less `daemon.overlap`, for records that
            arrive late, and as far back as the oldest open run that sacct no longer lists.
        memory: when nothing is new in what this daemon saw last time, nothing is written.

    Raises:
        SlurmUnavailable: the database does not answer; the ledger is as it was.
    """
    watermark = ledger.synced_until(edges.cluster)
    first = start if start is not None else _sync_start(watermark, config, now)
    first = min(first, now - 1)
    batches: Iterable[Batch] = edges.reader.read(first, now)
    if queue is not None:
        tasks = demand_tasks(queue.jobs, now)
        batches = (replace(batch, runs=_as_demand(batch.runs, tasks)) for batch in batches)
    if start is None and watermark is not None:
        recent = list(batches)
        recent += _late(edges, ledger, recent, first=first, now=now, memory=memory)
        seen = _open_keys(recent)
        if memory is not None and _no_news(ledger, recent, seen, memory, now=now):
            return Synced(StoreCounts(open=len(seen)), first, now)
        batches = recent
        if memory is not None:
            memory.open_runs, memory.persisted_at = seen, now
    counts = ledger.store(
        batches,
        source=f"{SACCT} {edges.cluster}",
        observed_at=now,
        replace_open=edges.cluster,
        until=(edges.cluster, max(now, watermark or 0)),
        progress=progress,
    )
    return Synced(counts, first, now)


def _sync_start(watermark: int | None, config: Config, now: int) -> int:
    if watermark is not None:
        return min(watermark, now) - config.daemon.overlap_s
    window = config.fairness.window_s
    return now - int(window if window < math.inf else FIRST_SYNC_S)


def _as_demand(runs: Runs, tasks: Mapping[int, int]) -> Runs:
    """The runs, those that wait only as far as they are demand now."""
    waits = (runs.end == UNKNOWN) & (runs.start == UNKNOWN)
    if not waits.any():
        return runs
    asked = np.array([tasks.get(job, 0) for job in runs.job_id.tolist()], dtype=np.int64)
    kept = ~waits | (asked > 0)
    return replace(runs, tasks=np.where(waits, asked, runs.tasks)).take(kept)


def _late(
    edges: Edges,
    ledger: Ledger,
    recent: Sequence[Batch],
    *,
    first: int,
    now: int,
    memory: Memory | None,
) -> Iterator[Batch]:
    """Runs that were open and are not in the answer: they ended before its interval.

    Their records are looked for where they began. One that is not there yet (slurmctld hands its
    records over late after an outage) stays open, charged as far as it was seen.
    """
    listed = {job for batch in recent for job in batch.runs.job_id.tolist()}
    held = ledger.open_runs(edges.cluster).runs
    missing = [
        run
        for run in held.rows()
        if run.job_id not in listed and run.start >= 0 and now - run.start < FORGET_S
    ]
    if not missing:
        return
    found: set[tuple[int, int]] = set()
    begin = min(run.start for run in missing)
    if begin < first and (memory is None or now - memory.late_at >= LATE_S):
        if memory is not None:
            memory.late_at = now
        for batch in edges.reader.read(begin, first):
            yield batch
            runs = batch.runs
            found.update(zip(runs.job_id.tolist(), runs.start.tolist(), strict=True))
    kept = [run for run in missing if (run.job_id, run.start) not in found]
    yield Batch(Runs.of(kept))


def _open_keys(batches: Iterable[Batch]) -> frozenset[tuple[int, int, int]]:
    found: set[tuple[int, int, int]] = set()
    for batch in batches:
        runs = batch.runs
        is_open = runs.end == UNKNOWN
        columns = (runs.job_id[is_open], runs.submit[is_open], runs.start[is_open])
        found.update(zip(*(column.tolist() for column in columns), strict=True))
    return frozenset(found)


def _no_news(
    ledger: Ledger,
    batches: Sequence[Batch],
    seen: frozenset[tuple[int, int, int]],
    memory: Memory,
    *,
    now: int,
) -> bool:
    """Whether the ledger has every finished run of the answer, and the same ones are open."""
    if seen != memory.open_runs or now - memory.persisted_at >= HEARTBEAT_S:
        return False
    if any(batch.skipped for batch in batches):
        return False
    finished = [batch.runs.take(batch.runs.end != UNKNOWN) for batch in batches]
    told = set().union(*(_outcomes(runs) for runs in finished))
    begins = [int(runs.submit.min()) for runs in finished if len(runs)]
    if not begins:
        return True
    window = Window(min(begins) - 1, now)
    return told <= _outcomes(ledger.runs(None, window, include_open=False))


def _outcomes(runs: Runs) -> set[tuple[int, ...]]:
    columns = (runs.job_id, runs.submit, runs.start, runs.end, runs.elapsed_s)
    return set(zip(*(column.tolist() for column in columns), strict=True))
