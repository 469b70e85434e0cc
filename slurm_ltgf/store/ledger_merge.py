"""Rows into the ledger: finished runs into their blocks, open ones beside them.

What is stored does not depend on the order of what came: a finished run beats an open one of the
same submission, a started one a pending one, a later observation an earlier one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from slurm_ltgf.core.model import RUN_FIELDS, IntArray
from slurm_ltgf.errors import LedgerError
from slurm_ltgf.store import ledger_blocks as blocks
from slurm_ltgf.store.ledger_blocks import COLUMN, RowArray
from slurm_ltgf.store.ledger_counts import UseChange, used_s
from slurm_ltgf.store.ledger_pile import Pile, renumbered
from slurm_ltgf.store.ledger_schema import Database, Row
from slurm_ltgf.store.ledger_words import Vocabulary

#: One submission of one task: what a finished run and the open one before it have in common.
Submission = tuple[int, int, int, int]

_SUBMISSION = [COLUMN[name] for name in ("job_id", "submit", "array_task", "het_offset")]
_START = COLUMN["start"]
_LOWEST = -(1 << 63)

_HEADS = """SELECT first FROM blocks WHERE cluster = ?1 AND first <= ?3 AND first >=
    coalesce((SELECT max(first) FROM blocks WHERE cluster = ?1 AND first <= ?2), ?4)
    ORDER BY first"""
BLOCK_SELECT = "SELECT body FROM blocks WHERE cluster = ? AND first = ?"
_UPDATE = """UPDATE blocks SET first = ?, n = ?, begin = ?, reach = ?, job_min = ?, job_max = ?,
    family_min = ?, family_max = ?, body = ? WHERE cluster = ? AND first = ?"""
_INSERT = """INSERT INTO blocks (cluster, first, n, begin, reach, job_min, job_max, family_min,
    family_max, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""

_OPEN_COLUMNS = ", ".join(f'"{name}"' for name in RUN_FIELDS)
OPEN_SELECT = f"SELECT {_OPEN_COLUMNS}, seen_at, listed FROM open_runs WHERE cluster = ?"
_OPEN_DELETE = """DELETE FROM open_runs WHERE cluster = ? AND job_id = ? AND submit = ?
    AND array_task = ? AND het_offset = ?"""
_OPEN_PUT = f"""INSERT OR REPLACE INTO open_runs ({_OPEN_COLUMNS}, seen_at, listed)
    VALUES ({", ".join("?" * (len(RUN_FIELDS) + 2))})"""


@dataclass(frozen=True, slots=True)
class Observation:
    """Open runs of one cluster as seen at one time; listing: whoever is absent is no more."""

    cluster: int
    seen_at: int
    listing: bool = False
    rows: list[Row] = field(default_factory=list)
    finished: set[Submission] = field(default_factory=set)


def submission(row: Sequence[int]) -> Submission:
    """The part of a row that says whose run it is."""
    job_id, submit, task, offset = (row[i] for i in _SUBMISSION)
    return job_id, submit, task, offset


def merge_finished(
    db: Database, cluster: int, rows: RowArray, use: UseChange
) -> tuple[int, int, int]:
    """Put finished runs of one cluster into their blocks: (new, changed, unchanged).

    use: is told what that changes.
    """
    fresh = blocks.sorted_rows(rows)
    use.add(fresh, used_s(fresh))
    new = changed = 0
    for first, part in _routed(db, cluster, fresh):
        old = part[:0] if first is None else _stored(db, cluster, first)
        outcome = blocks.merged(old, part)
        new, changed = new + outcome.new, changed + outcome.changed
        use.add(outcome.replaced, -used_s(outcome.replaced))
        if outcome.rows is not None:
            _replace(db, cluster, outcome.rows, first)
    return new, changed, len(fresh) - new - changed


def submissions_among(rows: RowArray, held: IntArray) -> set[Submission]:
    """Whose runs these are, as far as `held` (see `blocks.routing`) has their submission."""
    return {submission(row) for row in rows[np.isin(blocks.routing(rows), held)].tolist()}


def held_routes(db: Database, cluster: int) -> IntArray:
    """`blocks.routing` of the open runs of a cluster."""
    found = db.rows("SELECT submit, job_id FROM open_runs WHERE cluster = ?", (cluster,))
    return np.array([blocks.route(submit, job) for submit, job in found], dtype=np.int64)


def merge_open(db: Database, seen: Observation, use: UseChange) -> int:
    """Bring the open runs of a cluster up to date; how many of the observed ones it holds now.

    use: is told what that changes.
    """
    held = {submission(row): row for row in db.rows(OPEN_SELECT, (seen.cluster,))}
    fresh = _latest(seen)
    strangers = [row for key, row in fresh.items() if key not in held]
    over = seen.finished | _finished_among(db, seen.cluster, strangers)
    gone = [key for key in held if key in over or (seen.listing and key not in fresh)]
    accepted = {key: row for key, row in fresh.items() if key not in over}
    puts = [_kept(held.get(key), row, seen) for key, row in accepted.items()]
    if gone:
        db.run_many(_OPEN_DELETE, [(seen.cluster, *key) for key in gone])
    changes = [row for row in puts if held.get(submission(row)) != row]
    if changes:
        db.run_many(_OPEN_PUT, changes)
    before = [*gone, *(submission(row) for row in changes)]
    use.add_open([held[key] for key in before if key in held], sign=-1)
    use.add_open(changes, sign=1)
    return len(accepted)


def _latest(seen: Observation) -> dict[Submission, Row]:
    """One row a submission: a started one if there is one, else the last."""
    fresh: dict[Submission, Row] = {}
    for row in seen.rows:
        key = submission(row)
        if key not in fresh or row[_START] >= 0 or fresh[key][_START] < 0:
            fresh[key] = row
    return fresh


def _kept(held: Row | None, row: Row, seen: Observation) -> Row:
    """The row to hold: the newer one; a started one falls back to pending only if listed so."""
    if held is None:
        return (*row, seen.seen_at, int(seen.listing))
    seen_at, listed = held[-2:]
    older = seen.seen_at < seen_at
    if older or (held[_START] >= 0 > row[_START] and not seen.listing):
        return held
    return (*row, seen.seen_at, int(seen.listing or listed))


def _finished_among(db: Database, cluster: int, rows: list[Row]) -> set[Submission]:
    """Which of these submissions have a finished run in the ledger already."""
    if not rows:
        return set()
    table = np.array(rows, dtype=np.int64)
    table = table[np.argsort(blocks.routing(table), kind="stable")]
    known: set[Submission] = set()
    for first, part in _routed(db, cluster, table):
        if first is not None:
            stored = _stored(db, cluster, first)
            known |= submissions_among(stored, blocks.routing(part))
    return known & {submission(row) for row in rows}


def _routed(db: Database, cluster: int, rows: RowArray) -> Iterator[tuple[int | None, RowArray]]:
    """Sorted rows by the block they belong to: (its first key, or None: there is none, rows)."""
    if not len(rows):
        return
    keys = blocks.routing(rows)
    found = db.rows(_HEADS, (cluster, int(keys[0]), int(keys[-1]), _LOWEST))
    if not found:
        yield None, rows
        return
    firsts = np.array([first for (first,) in found], dtype=np.int64)
    bounds = np.searchsorted(keys, firsts[1:], side="left").tolist()
    starts = [0, *bounds]
    for i, (at, to) in enumerate(zip(starts, [*bounds, len(rows)], strict=True)):
        if to > at:
            yield int(firsts[i]), rows[at:to]


def _replace(db: Database, cluster: int, rows: RowArray, first: int | None) -> None:
    for piece in blocks.cut(rows):
        values = (*blocks.head(piece), blocks.packed(piece))
        if first is not None:
            db.run(_UPDATE, (*values, cluster, first))
            first = None
        else:
            db.run(_INSERT, (cluster, *values))


def _stored(db: Database, cluster: int, first: int) -> RowArray:
    ((body,),) = db.rows(BLOCK_SELECT, (cluster, first))
    return opened(body, cluster).T


def opened(body: bytes, cluster: int) -> IntArray:
    """A block's columns; a damaged one is a LedgerError."""
    try:
        return blocks.unpacked(body, cluster)
    except blocks.DamagedError as exc:
        raise LedgerError(f"the ledger is damaged ({exc}): restore the file or sync anew") from exc


class Intake:
    """One store while its batches come in; `merge` and `merge_open` need a transaction."""

    def __init__(
        self, db: Database, words: Vocabulary, observed_at: int, listing: str | None
    ) -> None:
        self.pile = Pile()
        self.new = self.changed = self.unchanged = 0
        self._db = db
        self._words = words
        self._observed_at = observed_at
        self._listing = listing
        self._seen: dict[int, Observation] = {}
        self._use: defaultdict[int, UseChange] = defaultdict(UseChange)

    def merge(self) -> None:
        """Put the pile's finished runs into the ledger; keep its open ones for the end."""
        taken = self.pile.take()
        numbers = self._words.ids(taken.words)
        finished = renumbered(taken.finished, numbers)
        for cluster in np.unique(finished[:, 0]).tolist():
            own = finished[:, 0] == cluster
            rows = finished if own.all() else finished[own]
            new, changed, unchanged = merge_finished(self._db, cluster, rows, self._use[cluster])
            self.new, self.changed = self.new + new, self.changed + changed
            self.unchanged += unchanged
            held = held_routes(self._db, cluster)
            self._observation(cluster).finished.update(submissions_among(rows, held))
        for row in renumbered(taken.open, numbers).tolist():
            self._observation(row[0]).rows.append(tuple(row))

    def merge_open(self) -> int:
        """Bring the open runs up to date; how many of the observed ones are held now."""
        if self._listing is not None:
            self._observation(self._number(self._listing))
        return sum(
            merge_open(self._db, seen, self._use[seen.cluster]) for seen in self._seen.values()
        )

    def count_use(self) -> None:
        """Count for ever what `merge` and `merge_open` changed."""
        for cluster, change in self._use.items():
            change.write(self._db, cluster)

    def _observation(self, cluster: int) -> Observation:
        if cluster not in self._seen:
            listing = self._listing is not None and cluster == self._number(self._listing)
            self._seen[cluster] = Observation(cluster, self._observed_at, listing)
        return self._seen[cluster]

    def _number(self, word: str) -> int:
        return int(self._words.ids([word])[0])
