"""What the ledger keeps besides runs: how far the history goes, what could not be read, supply,
accounts, decisions and the audit log. Plain tables, small enough to be read whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurm_ltgf.core.model import Account, Skipped, Window
from slurm_ltgf.store.ledger_credits import Credits

#: Skipped rows kept with line and reason, a source; the total is exact.
SKIPPED_NAMED = 1000


@dataclass(frozen=True, slots=True)
class Step:
    """From `time` on these values held, by name. values None: nothing was known yet."""

    time: int
    values: dict[str, float] | None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One write to Slurm: who changed what of which job, from what to what, and why."""

    time: int
    actor: str
    action: str
    job_id: str
    old: str | None
    new: str | None
    reason: str


class Records(Credits):
    """The small tables of a ledger. Each writing method is one transaction."""

    def synced_until(self, cluster: str) -> int | None:
        """Up to when the history of a cluster is complete, epoch seconds; None: never synced."""
        found = self._db.rows("SELECT until FROM watermarks WHERE cluster = ?", (cluster,))
        return int(found[0][0]) if found else None

    def clusters_synced(self) -> list[str]:
        """Clusters that were read at least once, with or without runs."""
        return [name for (name,) in self._db.rows("SELECT cluster FROM watermarks ORDER BY 1")]

    def set_synced_until(self, cluster: str, until: int) -> None:
        """Say up to when the history of a cluster is complete."""
        with self._db.writing():
            self._put_watermark(cluster, until)

    def skipped(self, source: str | None = None) -> list[Skipped]:
        """Rows that the last store of a source (None: of each) could not read; 1000 at most."""
        sql = """SELECT line, reason, source FROM skipped WHERE ?1 IS NULL OR source = ?1
            ORDER BY source, position"""
        return [Skipped(*row) for row in self._db.rows(sql, (source,))]

    def skipped_total(self, source: str | None = None) -> int:
        """How many rows could not be read, also those beyond the named ones."""
        sql = "SELECT sum(total) FROM skipped_totals WHERE ?1 IS NULL OR source = ?1"
        return int(self._db.rows(sql, (source,))[0][0] or 0)

    def observe_capacity(self, cluster: str, time: int, gpus: Mapping[str, float]) -> bool:
        """Note the GPUs in service by type ("" if untyped); whether that was news.

        An observation older than the last step is ignored: steps are only ever appended.
        """
        return self._observe("gpus", cluster, time, gpus)

    def capacity(self, cluster: str, window: Window) -> list[Step]:
        """GPUs in service by type over a window; the first step is what held at its start."""
        return self._steps("gpus", cluster, window)

    def observe_shares(self, cluster: str, time: int, weights: Mapping[str, float]) -> bool:
        """Note the tenants and their weights; whether that was news. Older ones are ignored."""
        return self._observe("shares", cluster, time, weights)

    def shares(self, cluster: str, window: Window) -> list[Step]:
        """Tenants' weights over a window; the first step is what held at its start."""
        return self._steps("shares", cluster, window)

    def set_accounts(self, cluster: str, accounts: Iterable[Account], *, time: int) -> None:
        """Keep the accounts as read from Slurm at `time`; those no longer there as gone."""
        rows = {account.name: _account_row(cluster, account) for account in accounts}
        with self._db.writing():
            sql = "SELECT * FROM accounts WHERE cluster = ?"
            held = {row[1]: row for row in self._db.rows(sql, (cluster,))}
            news = [row for name, row in rows.items() if held.get(name) != row]
            self._db.run_many("INSERT OR REPLACE INTO accounts VALUES (?, ?, ?, ?, ?, ?, ?)", news)
            gone = [
                (time, cluster, name)
                for name, row in held.items()
                if name not in rows and row[-1] is None
            ]
            sql = "UPDATE accounts SET gone_at = ? WHERE cluster = ? AND name = ?"
            self._db.run_many(sql, gone)
            sql = """INSERT INTO accounts_read VALUES (?, ?)
                ON CONFLICT DO UPDATE SET time = excluded.time WHERE time <> excluded.time"""
            self._db.run(sql, (cluster, time))

    def accounts(self, cluster: str) -> list[Account]:
        """The accounts of a cluster as last read, by name."""
        sql = "SELECT * FROM accounts WHERE cluster = ? AND gone_at IS NULL ORDER BY name"
        return [
            Account(name, parent, shares, tuple(json.loads(user_shares)), gpu_limit)
            for _, name, parent, shares, user_shares, gpu_limit, _ in self._db.rows(sql, (cluster,))
        ]

    def accounts_read_at(self, cluster: str) -> int | None:
        """When the accounts of a cluster were last read; None: never."""
        found = self._db.rows("SELECT time FROM accounts_read WHERE cluster = ?", (cluster,))
        return int(found[0][0]) if found else None

    def accounts_gone(self, cluster: str) -> dict[str, int]:
        """Accounts that were there once -> when they were first missed."""
        sql = "SELECT name, gone_at FROM accounts WHERE cluster = ? AND gone_at IS NOT NULL"
        return dict(self._db.rows(f"{sql} ORDER BY name", (cluster,)))

    def tenants_seen(self, cluster: str) -> list[str]:
        """Every name that ever was a tenant with a weight, sorted."""
        sql = """SELECT DISTINCT name FROM step_values JOIN steps ON step = id
            WHERE kind = 'shares' AND cluster = ?"""
        return sorted(name for (name,) in self._db.rows(sql, (cluster,)))

    def state_get(self, key: str) -> str | None:
        """A remembered decision's text (JSON); None: there is none of this key."""
        found = self._db.rows("SELECT value FROM state WHERE key = ?", (key,))
        return str(found[0][0]) if found else None

    def state_set(self, key: str, value: str | None) -> None:
        """Remember a text under a key; None forgets it."""
        with self._db.writing():
            if value is None:
                self._db.run("DELETE FROM state WHERE key = ?", (key,))
                return
            sql = """INSERT INTO state VALUES (?, ?)
                ON CONFLICT DO UPDATE SET value = excluded.value WHERE value <> excluded.value"""
            self._db.run(sql, (key, value))

    def keep(self, cluster: str, job_id: int, start: int, *, until: int) -> None:
        """Note that the work of a run until a moment is in a checkpoint."""
        with self._db.writing():
            sql = "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)"
            self._db.run(sql, (cluster, job_id, start, until))

    def kept(self, cluster: str, since: int = 0) -> dict[tuple[int, int], int]:
        """(Job id, start) of runs -> until when their work is in a checkpoint, from `since` on."""
        sql = "SELECT job_id, start, until FROM kept WHERE cluster = ? AND until >= ?"
        return {(job, start): until for job, start, until in self._db.rows(sql, (cluster, since))}

    def audit(self, entries: Sequence[AuditEntry]) -> None:
        """Append to the log of writes to Slurm."""
        if not entries:
            return
        sql = """INSERT INTO audit (time, actor, action, job_id, old, new, reason)
            VALUES (?, ?, ?, ?, ?, ?, ?)"""
        with self._db.writing():
            self._db.run_many(
                sql,
                ((e.time, e.actor, e.action, e.job_id, e.old, e.new, e.reason) for e in entries),
            )

    def audit_last(
        self,
        count: int = 100,
        *,
        job_id: str | None = None,
        action: str | None = None,
        actor: str | None = None,
        since: int = 0,
    ) -> list[AuditEntry]:
        """The newest entries, newest first; of one job, action or actor if it is named."""
        sql = "SELECT time, actor, action, job_id, old, new, reason FROM audit WHERE time >= ?"
        values: list[object] = [since]
        for column, value in (("job_id", job_id), ("action", action), ("actor", actor)):
            if value is not None:
                sql += f" AND {column} = ?"
                values.append(value)
        rows = self._db.rows(f"{sql} ORDER BY id DESC LIMIT ?", (*values, count))
        return [AuditEntry(*row) for row in rows]

    def audit_counts(self, window: Window) -> list[tuple[str, str, int]]:
        """(Action, new value, how many entries) in a window; SiteFactors as one, of any value."""
        new = "CASE action WHEN 'sitefactor' THEN '' ELSE ifnull(new, '') END"
        sql = f"""SELECT action, {new}, count(*) FROM audit
            WHERE time >= ? AND time < ? GROUP BY 1, 2 ORDER BY 1, 2"""
        return [
            (action, value, int(count))
            for action, value, count in self._db.rows(sql, (window.start, window.end))
        ]

    def audit_prune(self, before: int) -> int:
        """Drop entries older than an epoch second; how many they were."""
        with self._db.writing():
            return self._db.run_many("DELETE FROM audit WHERE time < ?", [(before,)])

    def _put_watermark(self, cluster: str, until: int) -> None:
        sql = """INSERT INTO watermarks VALUES (?, ?)
            ON CONFLICT DO UPDATE SET until = excluded.until WHERE until <> excluded.until"""
        self._db.run(sql, (cluster, until))

    def _put_skipped(self, source: str, rows: Sequence[Skipped], total: int, now: int) -> None:
        fresh = [(row.line, row.reason) for row in rows]
        sql = "SELECT line, reason FROM skipped WHERE source = ? ORDER BY position"
        if self.skipped_total(source) == total and self._db.rows(sql, (source,)) == fresh:
            return
        self._db.run("DELETE FROM skipped WHERE source = ?", (source,))
        self._db.run_many(
            "INSERT INTO skipped VALUES (?, ?, ?, ?)",
            ((source, i, line, reason) for i, (line, reason) in enumerate(fresh)),
        )
        sql = "INSERT OR REPLACE INTO skipped_totals VALUES (?, ?, ?)"
        self._db.run(sql, (source, total, now))

    def _observe(self, kind: str, cluster: str, time: int, values: Mapping[str, float]) -> bool:
        with self._db.writing():
            sql = """SELECT id, time FROM steps WHERE kind = ? AND cluster = ?
                ORDER BY time DESC LIMIT 1"""
            for last, since in self._db.rows(sql, (kind, cluster)):
                if time < since or self._step_values(last) == values:
                    return False
                if time == since:
                    self._db.run("DELETE FROM step_values WHERE step = ?", (last,))
                    self._db.run("DELETE FROM steps WHERE id = ?", (last,))
            sql = "INSERT INTO steps (kind, cluster, time) VALUES (?, ?, ?)"
            step = self._db.run(sql, (kind, cluster, time))
            rows = [(step, name, value) for name, value in values.items()]
            self._db.run_many("INSERT INTO step_values VALUES (?, ?, ?)", rows)
        return True

    def _steps(self, kind: str, cluster: str, window: Window) -> list[Step]:
        with self._db.reading():
            sql = """SELECT id FROM steps WHERE kind = ? AND cluster = ? AND time <= ?
                ORDER BY time DESC LIMIT 1"""
            before = self._db.rows(sql, (kind, cluster, window.start))
            sql = """SELECT time, id FROM steps WHERE kind = ? AND cluster = ? AND time > ?
                AND time < ? ORDER BY time"""
            later = self._db.rows(sql, (kind, cluster, window.start, window.end))
            first = Step(window.start, self._step_values(before[0][0]) if before else None)
            return [first, *(Step(time, self._step_values(step)) for time, step in later)]

    def _step_values(self, step: int) -> dict[str, float]:
        return dict(self._db.rows("SELECT name, value FROM step_values WHERE step = ?", (step,)))


def _account_row(cluster: str, account: Account) -> tuple[object, ...]:
    return (
        cluster,
        account.name,
        account.parent,
        account.shares,
        json.dumps(account.user_shares),
        account.gpu_limit,
        None,
    )
