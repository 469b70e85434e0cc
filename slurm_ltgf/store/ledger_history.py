"""The history in the ledger: runs in, runs out. Nothing here knows the file, only its tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from slurm_ltgf.core.model import RUN_FIELDS, Batch, IntArray, Runs, Skipped, Window
from slurm_ltgf.errors import LedgerError
from slurm_ltgf.store import ledger_blocks as blocks
from slurm_ltgf.store.ledger_blocks import COLUMN, BoolArray
from slurm_ltgf.store.ledger_merge import BLOCK_SELECT, OPEN_SELECT, Intake, opened
from slurm_ltgf.store.ledger_pile import no_runs, runs_of, words_used
from slurm_ltgf.store.ledger_records import SKIPPED_NAMED, Records
from slurm_ltgf.store.ledger_schema import Row
from slurm_ltgf.store.ledger_words import Vocabulary

#: Rows held in memory before the writing begins: about a million.
PILE_BYTES = 96 << 20

_JOB_ID = re.compile(r"(?P<base>\d{1,18})(?P<part>[_+]\d+)?(?:_\[.*\])?(?:\..*)?")


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """What a store did: finished runs by outcome, open runs now held, rows not read."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    open: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class OpenRuns:
    """Pending and running runs as last seen. listed: squeue itself named them. Columns (n,)."""

    runs: Runs
    seen_at: IntArray
    listed: BoolArray


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the ledger has of a cluster. first, last: epoch seconds; None without finished runs."""

    finished: int
    open: int
    first: int | None
    last: int | None


class History(Records):
    """Finished and open runs by window, by job and by cluster."""

    def store(
        self,
        batches: Iterable[Batch],
        *,
        source: str,
        observed_at: int,
        replace_open: str | None = None,
        until: tuple[str, int] | None = None,
        progress: Callable[[Batch], object] | None = None,
        pile_bytes: int = PILE_BYTES,
    ) -> StoreCounts:
        """Take in what a reader yields, in one transaction; if the reader raises, nothing.

        Args:
            batches: tables of runs, any order; of a run that occurs twice the last counts.
            source: where they are from; its skipped rows replace those of its last store.
            observed_at: when they were seen, epoch seconds.
            replace_open: the batches list all open runs of this cluster: others are dropped.
            until: (cluster, epoch seconds) up to which its history is now complete.
            progress: called with each batch once it is taken in.
            pile_bytes: rows held in memory, 88 bytes each, before the writing begins, and from
                then on between two writes. Where nothing is slow, like a file, less is faster.

        Returns:
            Counts. A run met again after a pile of other rows is counted once more.

        Raises:
            LedgerError: the file cannot be written.
            ValueError: a batch has a number that no run can have.
        """
        intake = Intake(self._db, Vocabulary(self._db), observed_at, replace_open)
        skipped: list[Skipped] = []
        total = 0
        with ExitStack() as stack:
            for batch in batches:
                total += len(batch.skipped)
                skipped.extend(batch.skipped[: max(0, SKIPPED_NAMED - len(skipped))])
                intake.pile.add(batch.runs)
                if intake.pile.nbytes > pile_bytes:
                    self._write_from_now_on(stack)
                    intake.merge()
                if progress is not None:
                    progress(batch)
            self._write_from_now_on(stack)
            intake.merge()
            held = intake.merge_open()
            intake.count_use()
            self._put_skipped(source, skipped, total, observed_at)
            if until is not None:
                self._put_watermark(*until)
        return StoreCounts(intake.new, intake.changed, intake.unchanged, held, total)

    def runs(
        self, cluster: str | Sequence[str] | None, window: Window, *, include_open: bool = True
    ) -> Runs:
        """All runs that waited or ran in the window: [eligible or submit or start, end) meets it.

        Args:
            cluster: one, several, or None for all.
            window: epoch seconds, half-open. A run without length belongs to its second.
            include_open: also the pending and running ones, whose end is not known.

        Returns:
            Finished runs in the order of (cluster, submit, job id), then the open ones.
        """
        with self._db.reading():
            ids = self._cluster_ids(cluster)
            tables = [self._finished(i, window) for i in ids]
            tables += [self._open(i, window) for i in ids if include_open]
            return self._as_runs(tables)

    def find(self, job: str, cluster: str | Sequence[str] | None = None) -> Runs:
        """All runs of a job, by any id that Slurm prints: 41, 7700, 7700_3, 7700_[4-9], 12+1.

        The id of an array or a heterogeneous job finds all of it; a step's id finds its job.
        """
        base, part = _split_id(job)
        if base is None:
            return no_runs()
        with self._db.reading():
            ids = self._cluster_ids(cluster)
            tables = [_with_id(table, base) for i in ids for table in self._may_hold(i, base)]
            found = self._as_runs(tables)
        if part is None:
            return found
        own = [i for i in range(len(found)) if found.row(i).shown_id == f"{base}{part}"]
        return found.take(np.array(own, dtype=np.int64))

    def open_runs(self, cluster: str) -> OpenRuns:
        """Pending and running runs of a cluster, with when and by whom they were seen."""
        with self._db.reading():
            rows = [
                row for i in self._cluster_ids(cluster) for row in self._db.rows(OPEN_SELECT, (i,))
            ]
            table = _columns(rows)
            return OpenRuns(self._as_runs([table[:-2]]), table[-2], table[-1].astype(np.bool_))

    def clusters(self) -> list[str]:
        """The names of all clusters with runs, sorted."""
        return [name for name, _ in self._clusters()]

    def holdings(self, cluster: str) -> Holdings:
        """How many runs of a cluster there are, and since when and until when."""
        with self._db.reading():
            finished, open_runs, first, last = 0, 0, None, None
            for i in self._cluster_ids(cluster):
                sql = "SELECT total(n), min(begin), max(reach) FROM blocks WHERE cluster = ?"
                ((finished, first, last),) = self._db.rows(sql, (i,))
                sql = "SELECT count(*) FROM open_runs WHERE cluster = ?"
                ((open_runs,),) = self._db.rows(sql, (i,))
        return Holdings(int(finished), open_runs, first, last)

    def damages(self) -> list[str]:
        """What is wrong with the blocks of finished runs, a line each; reads all of them."""
        found = []
        for cluster, first in self._db.rows("SELECT cluster, first FROM blocks"):
            try:
                self._block(cluster, first)
            except LedgerError as exc:
                found.append(str(exc))
        return found

    def _write_from_now_on(self, stack: ExitStack) -> None:
        if not self._db.is_writing:
            stack.enter_context(self._db.writing())

    def _clusters(self) -> list[tuple[str, int]]:
        sql = """SELECT text, id FROM words WHERE id IN (SELECT DISTINCT cluster FROM blocks
            UNION SELECT DISTINCT cluster FROM open_runs) ORDER BY text"""
        return [(name, i) for name, i in self._db.rows(sql)]

    def _cluster_ids(self, cluster: str | Sequence[str] | None) -> list[int]:
        wanted = {cluster} if isinstance(cluster, str) else set(cluster or ())
        return [i for name, i in self._clusters() if cluster is None or name in wanted]

    def _finished(self, cluster: int, window: Window) -> IntArray:
        sql = """SELECT first, n FROM blocks WHERE cluster = ? AND reach > ? AND begin < ?
            ORDER BY first"""
        heads = self._db.rows(sql, (cluster, window.start, window.end))
        table = np.empty((len(blocks.COLUMN), sum(n for _, n in heads)), dtype=np.int64)
        at = 0
        for first, _ in heads:
            part = self._block(cluster, first)
            begin = blocks.begins(part.T)
            inside = (begin < window.end) & (blocks.reaches(part.T, begin) > window.start)
            to = at + int(inside.sum())
            table[:, at:to] = part if inside.all() else part[:, inside]
            at = to
        return table[:, :at]

    def _open(self, cluster: int, window: Window) -> IntArray:
        table = _columns(self._db.rows(OPEN_SELECT, (cluster,)))[:-2]
        return table[:, blocks.begins(table.T) < window.end]

    def _may_hold(self, cluster: int, job: int) -> Iterator[IntArray]:
        sql = """SELECT first FROM blocks WHERE cluster = ?1 AND (job_min <= ?2 AND job_max >= ?2
            OR family_min <= ?2 AND family_max >= ?2) ORDER BY first"""
        for (first,) in self._db.rows(sql, (cluster, job)):
            yield self._block(cluster, first)
        yield _columns(self._db.rows(OPEN_SELECT, (cluster,)))[:-2]

    def _block(self, cluster: int, first: int) -> IntArray:
        ((body,),) = self._db.rows(BLOCK_SELECT, (cluster, first))
        return opened(body, cluster)

    def _as_runs(self, tables: Sequence[IntArray]) -> Runs:
        filled = [table for table in tables if table.shape[1]]
        if not filled:
            return no_runs()
        table = filled[0] if len(filled) == 1 else np.concatenate(filled, axis=1)
        return runs_of(table, Vocabulary(self._db).texts(words_used(table).tolist()))


def _columns(rows: Sequence[Row]) -> IntArray:
    """Rows of open_runs as columns, (24, n)."""
    table = np.array(rows, dtype=np.int64).reshape(len(rows), len(RUN_FIELDS) + 2)
    return np.ascontiguousarray(table.T)


def _with_id(table: IntArray, job: int) -> IntArray:
    ids = table[[COLUMN["job_id"], COLUMN["array_job"], COLUMN["het_job"]]]
    return table[:, (ids == job).any(axis=0)]


def _split_id(job: str) -> tuple[int | None, str | None]:
    """'7700_3.batch' -> (7700, '_3'); '7700_[4-9]' -> (7700, None); no id -> (None, None)."""
    match = _JOB_ID.fullmatch(job.strip())
    return (int(match["base"]), match["part"]) if match else (None, None)
