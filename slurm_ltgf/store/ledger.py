"""The ledger: what was read from Slurm and what was decided, for years, in one SQLite file.

This module owns the file: opening, versions, transactions, and what SQLite's errors mean. Each
store is one transaction: killed at any write, the file holds all of it or nothing. WAL: readers
neither wait for the writer nor hold it up.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from slurm_ltgf.errors import LedgerError
from slurm_ltgf.store.files import give_to_owner_of_directory
from slurm_ltgf.store.ledger_counts import Used
from slurm_ltgf.store.ledger_credits import Credit
from slurm_ltgf.store.ledger_history import History, Holdings, OpenRuns, StoreCounts
from slurm_ltgf.store.ledger_records import AuditEntry, Step
from slurm_ltgf.store.ledger_schema import APPLICATION_ID, MIGRATIONS, VERSION, Row

__all__ = ["AuditEntry", "Credit", "Holdings", "Ledger", "OpenRuns", "Step", "StoreCounts", "Used"]

#: How long a writer waits for another one.
WAIT_S = 60
_BUSY = f"another process was writing for more than {WAIT_S} s"
_TUNING = (
    "PRAGMA synchronous = NORMAL",
    "PRAGMA cache_size = -32768",
    "PRAGMA journal_size_limit = 67108864",
)


class Ledger(History):
    """The ledger file, open; for use in one thread.

    Raises:
        LedgerError: no ledger there (readonly), not a ledger, a newer version's, or no access.
    """

    def __init__(self, path: Path | str, *, readonly: bool = False) -> None:
        self.path = Path(path)
        self.readonly = readonly
        self._file = _File(self.path)
        self._file.open_to_read() if readonly else self._file.open_to_write()
        super().__init__(self._file)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; again is harmless."""
        self._file.close()

    def check(self) -> list[str]:
        """What is wrong with the file, a line each; reads all of it."""
        found = [text for (text,) in self._file.rows("PRAGMA integrity_check") if text != "ok"]
        return found + self.damages()


class _File:
    """An SQLite connection whose every failure is a LedgerError of one line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = sqlite3.connect(":memory:")
        self._still: tuple[int, ...] | None = None

    @property
    def is_writing(self) -> bool:
        """Whether a transaction is under way."""
        return self._db.in_transaction

    def open_to_write(self) -> None:
        """Open the file, made if there is none, and bring its tables up to date."""
        try:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            if not self._path.exists():
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o640))
                self._path.chmod(0o640)
                give_to_owner_of_directory(self._path)
        except OSError as exc:
            raise LedgerError(f"{self._path}: cannot make the ledger: {exc.strerror}") from exc
        self._connect("mode=rw")
        with self.reading():
            version = self._version(VERSION)
        self._use_wal()
        for sql in _TUNING:
            self.run(sql)
        if version < VERSION:
            self._migrate()

    def open_to_read(self) -> None:
        """Open an existing file for queries alone."""
        try:
            there = self._path.is_file()
        except OSError as exc:
            raise LedgerError(f"{self._path}: cannot read the ledger: {exc.strerror}") from exc
        if not there:
            raise LedgerError(f"{self._path}: no ledger there: `ltgf sync` makes it")
        self._connect("mode=ro")
        if not self._is_readable():
            # SQLite wants to make -wal and -shm, which a mere reader may not. Without a -wal no
            # writer is there and the file is whole: read it as it stands, and watch that it does.
            self._connect("mode=ro&immutable=1")
            self._still = self._stamp()
        with self.reading():
            version = self._version(VERSION)
        if version < VERSION:
            raise LedgerError(
                f"{self._path}: is of version {version}, not {VERSION}: `ltgf sync` mends that"
            )

    def close(self) -> None:
        """Close the connection; again is harmless."""
        self._db.close()

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """All rows of a query."""
        with self._named_errors():
            found = self._db.execute(sql, tuple(values)).fetchall()
        if self._still is not None and self._still != self._stamp():
            raise LedgerError(f"{self._path}: was written while it was read: try again")
        return found

    def run(self, sql: str, values: Sequence[object] = ()) -> int:
        """Execute one statement; the rowid it inserted, if any."""
        with self._named_errors():
            return self._db.execute(sql, tuple(values)).lastrowid or 0

    def run_many(self, sql: str, values: Iterable[Sequence[object]]) -> int:
        """Execute one statement for each row of values; how many rows it touched."""
        with self._named_errors():
            return self._db.executemany(sql, values).rowcount

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction that may write: all of it, or nothing."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        finally:
            if self._db.in_transaction:
                self.run("ROLLBACK")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One snapshot for several queries."""
        self.run("BEGIN")
        try:
            yield
        finally:
            if self._db.in_transaction:
                self.run("ROLLBACK")

    def _is_readable(self) -> bool:
        """Whether queries work; False: only for want of a -wal that we may not make."""
        try:
            self._db.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError:
            return self._wal().exists()
        except sqlite3.Error:
            return True
        return True

    def _wal(self) -> Path:
        return self._path.with_name(f"{self._path.name}-wal")

    def _stamp(self) -> tuple[int, ...]:
        about = self._path.stat()
        return about.st_ino, about.st_size, about.st_mtime_ns, int(self._wal().exists())

    def _connect(self, how: str) -> None:
        uri = f"{self._path.absolute().as_uri()}?{how}"
        with self._named_errors():
            self._db.close()
            self._db = sqlite3.connect(uri, uri=True, timeout=WAIT_S, isolation_level=None)

    def _version(self, newest: int) -> int:
        """The tables' version; 0 for an empty file."""
        ((application,),) = self.rows("PRAGMA application_id")
        ((version,),) = self.rows("PRAGMA user_version")
        ((tables,),) = self.rows("SELECT count(*) FROM sqlite_master")
        if application != APPLICATION_ID and (application or version or tables):
            raise LedgerError(f"{self._path}: is an SQLite file, but not a ledger")
        if version > newest:
            raise LedgerError(
                f"{self._path}: has version {version}, this ltgf knows {newest}: upgrade ltgf"
            )
        return int(version)

    def _use_wal(self) -> None:
        # SQLite's own waiting leaves out this switch: two who make a ledger at once would collide.
        until = time.monotonic() + WAIT_S
        while not self._switched_to_wal():
            if time.monotonic() > until:
                raise LedgerError(f"{self._path}: {_BUSY}")
            time.sleep(0.01)

    def _switched_to_wal(self) -> bool:
        """False: another process is at it."""
        with self._named_errors():
            try:
                found = self._db.execute("PRAGMA journal_mode = WAL").fetchall()
            except sqlite3.OperationalError as exc:
                if _code(exc) == sqlite3.SQLITE_BUSY:
                    return False
                raise
        if found != [("wal",)]:
            raise LedgerError(f"{self._path}: its file system cannot do WAL: choose a local one")
        return True

    def _migrate(self) -> None:
        with self.writing():
            # Read again: another process may have been quicker.
            for version in range(self._version(VERSION), VERSION):
                for sql in MIGRATIONS[version]:
                    self.run(sql)
            self.run(f"PRAGMA application_id = {APPLICATION_ID}")
            self.run(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise LedgerError(f"{self._path}: {_meaning(exc)}") from exc


def _code(exc: sqlite3.Error) -> int:
    """SQLite's primary error code; 0 for an error of the Python module."""
    return int(getattr(exc, "sqlite_errorcode", 0)) & 0xFF


def _meaning(exc: sqlite3.Error) -> str:
    meanings = {
        sqlite3.SQLITE_BUSY: _BUSY,
        sqlite3.SQLITE_NOTADB: "is not a ledger",
        sqlite3.SQLITE_CORRUPT: f"is damaged ({exc}): restore the file or sync anew",
        sqlite3.SQLITE_CANTOPEN: "cannot open it: rights on the file, its -wal and its directory?",
        sqlite3.SQLITE_READONLY: "cannot write: it is open or permitted for reading only",
        sqlite3.SQLITE_FULL: "cannot write: the disk is full",
    }
    return meanings.get(_code(exc), str(exc))
