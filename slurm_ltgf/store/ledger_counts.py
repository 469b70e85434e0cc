"""What the ledger counts for ever, for metrics: use by account, and what moves came to.

No number here ever falls. Use is told in two numbers, `counted_s` less `corrected_s`, which is the
sum over all runs in the ledger since these tables are there (version 3 of the file): where Slurm's
records are corrected downwards, or two stores disagree, the second grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slurm_ltgf.core.model import IntArray
from slurm_ltgf.store.ledger_blocks import COLUMN, RowArray
from slurm_ltgf.store.ledger_schema import Database, Row

#: A RUNNING record that outlives its limit by more is a runaway and counts as far as the limit.
OVERTIME_S = 300
#: A century; more tasks than an array can have.
MOST_S, MOST_TASKS = 1 << 32, 1 << 23

_WHOSE = [COLUMN[name] for name in ("account", "partition", "gres")]
_START, _END, _ELAPSED = COLUMN["start"], COLUMN["end"], COLUMN["elapsed_s"]
_LIMIT, _TASKS = COLUMN["limit_s"], COLUMN["tasks"]

_RAISE_USE = """INSERT INTO used VALUES (?1, ?2, ?3, ?4, max(?5, 0), max(-?5, 0))
    ON CONFLICT DO UPDATE SET counted_s = counted_s + excluded.counted_s,
        corrected_s = corrected_s + excluded.corrected_s"""
_RAISE = """INSERT INTO counters VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE
    SET value = value + excluded.value"""


@dataclass(frozen=True, slots=True)
class Used:
    """Seconds in which runs of an account in a partition held a GRES ("gpu=4"), each run once."""

    account: str
    partition: str
    gres: str
    counted_s: int
    corrected_s: int


@dataclass(slots=True)
class UseChange:
    """How one store changes the use of a cluster; whose: numbers of the words in `_WHOSE`."""

    seconds: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def add(self, rows: RowArray, seconds: IntArray) -> None:
        """Add the seconds of each row, (n,); those of rows that others replace are negative."""
        some = np.flatnonzero(seconds)
        if not len(some):
            return
        number, ids = np.zeros(len(some), dtype=np.int64), []
        for column in _WHOSE:
            known, place = np.unique(rows[some, column], return_inverse=True)
            number = number * len(known) + place
            ids.append(known)
        found, place = np.unique(number, return_inverse=True)
        sums = np.zeros(len(found), dtype=np.int64)
        np.add.at(sums, place, seconds[some])
        places = np.unravel_index(found, [len(known) for known in ids])
        words = [known[at].tolist() for known, at in zip(ids, places, strict=True)]
        for account, partition, gres, change in zip(*words, sums.tolist(), strict=True):
            key = account, partition, gres
            self.seconds[key] = self.seconds.get(key, 0) + change

    def add_open(self, rows: Sequence[Row], *, sign: int) -> None:
        """Add what open runs used so far, or take it away."""
        if rows:
            table = np.array(rows, dtype=np.int64)
            self.add(table, sign * used_so_far_s(table))

    def write(self, db: Database, cluster: int) -> None:
        """Put it into the ledger."""
        changes = [(cluster, *key, change) for key, change in self.seconds.items() if change]
        if changes:
            db.run_many(_RAISE_USE, changes)


def used_s(rows: RowArray) -> IntArray:
    """Seconds of use of finished runs, (n,): Elapsed, else from start to end, of all tasks."""
    start, end = rows[:, _START].astype(np.int64), rows[:, _END].astype(np.int64)
    elapsed = rows[:, _ELAPSED].astype(np.int64)
    between = np.where((start >= 0) & (end > start), end - start, 0)
    return _of_all_tasks(np.where(elapsed >= 0, elapsed, between), rows)


def used_so_far_s(rows: IntArray) -> IntArray:
    """Seconds of use of open runs so far, (n,): as Slurm last told them, of all tasks."""
    elapsed = np.where(rows[:, _START] >= 0, np.maximum(rows[:, _ELAPSED], 0), 0)
    limit = rows[:, _LIMIT]
    is_runaway = (limit >= 0) & (elapsed > limit + OVERTIME_S)
    return _of_all_tasks(np.where(is_runaway, limit, elapsed), rows)


def _of_all_tasks(seconds: IntArray, rows: RowArray) -> IntArray:
    """Nonsense is cut at what no run can have, so that no sum overflows."""
    tasks = np.clip(rows[:, _TASKS].astype(np.int64), 0, MOST_TASKS)
    return np.minimum(seconds, MOST_S) * tasks


class Counts:
    """The tables of counts. Each writing method is one transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def used(self, cluster: str) -> list[Used]:
        """What each account of a cluster held, by account, partition and GRES."""
        sql = """SELECT a.text, p.text, g.text, counted_s, corrected_s FROM used
            JOIN words c ON c.id = cluster JOIN words a ON a.id = account
            JOIN words p ON p.id = partition JOIN words g ON g.id = gres
            WHERE c.text = ? ORDER BY 1, 2, 3"""
        return [Used(*row) for row in self._db.rows(sql, (cluster,))]

    def count(
        self, cluster: str, event: str, amounts: Mapping[tuple[str, str], float], *, time: int
    ) -> bool:
        """Raise counters by what an event came to; an event is counted once, whoever tells of it.

        Args:
            event: its id. amounts: (counter, label) -> by how much, not negative.

        Returns:
            False: it was counted before.
        """
        if any(amount < 0 for amount in amounts.values()):
            raise ValueError(f"counters only rise: {dict(amounts)}")
        with self._db.writing():
            sql = "INSERT OR IGNORE INTO counted VALUES (?, ?)"
            if not self._db.run_many(sql, [(event, time)]):
                return False
            rows = [(cluster, name, label, amount) for (name, label), amount in amounts.items()]
            self._db.run_many(_RAISE, rows)
        return True

    def counters(self, cluster: str) -> dict[tuple[str, str], float]:
        """(Counter, label) -> value, of a cluster."""
        sql = "SELECT name, label, value FROM counters WHERE cluster = ? ORDER BY name, label"
        return {(name, label): value for name, label, value in self._db.rows(sql, (cluster,))}

    def forget_counted(self, before: int) -> int:
        """Drop ids of events from before an epoch second; the counters stay. How many they were."""
        with self._db.writing():
            return self._db.run_many("DELETE FROM counted WHERE time < ?", [(before,)])
