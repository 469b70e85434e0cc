"""Credits and debits of GPU-time, kept for ever: who gave whom how much, when and why."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_ltgf.store.ledger_counts import Counts


@dataclass(frozen=True, slots=True)
class Credit:
    """GPU-minutes added to an account's budget; < 0: a debit. actor: who gave it."""

    time: int
    account: str
    minutes: int
    actor: str
    reason: str


class Credits(Counts):
    """The table of credits; it is only ever appended to."""

    def credit(self, cluster: str, entry: Credit) -> None:
        """Note a credit or debit."""
        with self._db.writing():
            self._db.run(
                "INSERT INTO credits (cluster, time, account, minutes, actor, reason)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (cluster, entry.time, entry.account, entry.minutes, entry.actor, entry.reason),
            )

    def credits(self, cluster: str, since: int = 0) -> list[Credit]:
        """Credits and debits of a cluster from `since` on, oldest first."""
        sql = """SELECT time, account, minutes, actor, reason FROM credits
            WHERE cluster = ? AND time >= ? ORDER BY id"""
        return [Credit(*row) for row in self._db.rows(sql, (cluster, since))]
