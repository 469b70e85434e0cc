"""The ledger's tables, and the little of a database that its parts may use.

Text that repeats is kept once, in `words`. Finished runs lie in blocks of about a thousand rows,
packed (see `ledger_blocks`): a block's row holds what a search needs to know of it. Everything
small is a plain table that `sqlite3 ledger.db` shows as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from slurm_ltgf.core.model import RUN_FIELDS

#: "ltgf" in the file's header: PRAGMA application_id.
APPLICATION_ID = 0x6C746766
VERSION = 4

TABLES = (
    "CREATE TABLE words (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
    """CREATE TABLE blocks (
        id INTEGER PRIMARY KEY, cluster INTEGER NOT NULL, first INTEGER NOT NULL,
        n INTEGER NOT NULL, begin INTEGER NOT NULL, reach INTEGER NOT NULL,
        job_min INTEGER NOT NULL, job_max INTEGER NOT NULL,
        family_min INTEGER NOT NULL, family_max INTEGER NOT NULL, body BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX blocks_by_key ON blocks (cluster, first)",
    "CREATE INDEX blocks_by_time ON blocks (cluster, reach, begin, first, n)",
    """CREATE INDEX blocks_by_job ON blocks
        (cluster, job_min, job_max, family_min, family_max, first)""",
    f"""CREATE TABLE open_runs (
        {", ".join(f'"{name}" INTEGER NOT NULL' for name in RUN_FIELDS)},
        seen_at INTEGER NOT NULL, listed INTEGER NOT NULL,
        PRIMARY KEY (cluster, job_id, submit, array_task, het_offset)) WITHOUT ROWID""",
    "CREATE TABLE watermarks (cluster TEXT PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE skipped (
        source TEXT NOT NULL, position INTEGER NOT NULL, line INTEGER NOT NULL,
        reason TEXT NOT NULL, PRIMARY KEY (source, position)) WITHOUT ROWID""",
    """CREATE TABLE skipped_totals (
        source TEXT PRIMARY KEY, total INTEGER NOT NULL, seen_at INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE steps (
        id INTEGER PRIMARY KEY, kind TEXT NOT NULL, cluster TEXT NOT NULL, time INTEGER NOT NULL,
        UNIQUE (kind, cluster, time))""",
    """CREATE TABLE step_values (
        step INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
        PRIMARY KEY (step, name)) WITHOUT ROWID""",
    """CREATE TABLE accounts (
        cluster TEXT NOT NULL, name TEXT NOT NULL, parent TEXT NOT NULL, shares INTEGER,
        user_shares TEXT NOT NULL, gpu_limit REAL, gone_at INTEGER,
        PRIMARY KEY (cluster, name)) WITHOUT ROWID""",
    "CREATE TABLE accounts_read (cluster TEXT PRIMARY KEY, time INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE audit (
        id INTEGER PRIMARY KEY, time INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL,
        job_id TEXT NOT NULL, old TEXT, new TEXT, reason TEXT NOT NULL)""",
    "CREATE INDEX audit_by_time ON audit (time)",
    "CREATE INDEX audit_by_job ON audit (job_id, id)",
)

#: Since version 2: until when the work of a run that was requeued is in a checkpoint.
KEPT = """CREATE TABLE kept (
    cluster TEXT NOT NULL, job_id INTEGER NOT NULL, start INTEGER NOT NULL,
    until INTEGER NOT NULL, PRIMARY KEY (cluster, job_id, start)) WITHOUT ROWID"""

#: Since version 3: what only ever grows; events of `counted` are counted once.
COUNTS = (
    """CREATE TABLE used (
        cluster INTEGER NOT NULL, account INTEGER NOT NULL, partition INTEGER NOT NULL,
        gres INTEGER NOT NULL, counted_s INTEGER NOT NULL, corrected_s INTEGER NOT NULL,
        PRIMARY KEY (cluster, account, partition, gres)) WITHOUT ROWID""",
    """CREATE TABLE counters (
        cluster TEXT NOT NULL, name TEXT NOT NULL, label TEXT NOT NULL, value REAL NOT NULL,
        PRIMARY KEY (cluster, name, label)) WITHOUT ROWID""",
    "CREATE TABLE counted (event TEXT PRIMARY KEY, time INTEGER NOT NULL) WITHOUT ROWID",
)

#: Since version 4: GPU-minutes given to accounts beyond their budgets, or taken from them.
CREDITS = """CREATE TABLE credits (
    id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, time INTEGER NOT NULL, account TEXT NOT NULL,
    minutes INTEGER NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL)"""

#: version -> the statements that lead from it to the next. A new VERSION adds its entry here.
MIGRATIONS: Mapping[int, Sequence[str]] = {0: TABLES, 1: (KEPT,), 2: COUNTS, 3: (CREDITS,)}

Row = tuple[Any, ...]


class Database(Protocol):
    """What the parts of the ledger ask of the open file; every failure is a LedgerError."""

    @property
    def is_writing(self) -> bool:
        """Whether a transaction that may write is under way."""

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """All rows of a query."""

    def run(self, sql: str, values: Sequence[object] = ()) -> int:
        """Execute one statement; the rowid it inserted, if any."""

    def run_many(self, sql: str, values: Iterable[Sequence[object]]) -> int:
        """Execute one statement for each row of values; how many rows it touched."""

    def writing(self) -> AbstractContextManager[None]:
        """One transaction that may write: all of it, or nothing."""

    def reading(self) -> AbstractContextManager[None]:
        """One snapshot for several queries."""
