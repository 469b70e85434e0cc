"""Traces: files of many formats, recognised by what they hold, and a generator, as workloads."""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any, BinaryIO

from slurm_ltgf.core.model import Runs, Skipped, Window
from slurm_ltgf.errors import InputError, LtgfError, UsageError
from slurm_ltgf.sim.traces.columns import FORMS, form_of, read_csv, read_weights
from slurm_ltgf.sim.traces.history import read_history
from slurm_ltgf.sim.traces.nodes import fitted, read_nodes
from slurm_ltgf.sim.traces.swf import is_swf, read_swf
from slurm_ltgf.sim.workload import Workload, workload

__all__ = ["FORMATS", "fitted", "read_nodes", "read_trace", "read_weights"]

FORMATS = (*FORMS, "swf", "sacct", "ledger")
_HEAD_BYTES = 1 << 16
_GZIP, _SQLITE, _MARK = b"\x1f\x8b", b"SQLite format 3\0", b"\xef\xbb\xbf"


def read_trace(
    source: Path | str | BinaryIO,
    *,
    format: str | None = None,  # noqa: A002  the word of the command line
    limit_factor: float = 1.0,
    by_user: bool = False,
) -> Workload:
    """Read a trace of any format, packed by gzip or not.

    Args:
        source: a file, "-" for standard input, or a stream of bytes.
        format: one of FORMATS; None: recognised by what it holds.
        limit_factor: time limits as a multiple of run times, where the trace tells none.
        by_user: tenants are the users, where the trace names them.

    Raises:
        UsageError: no such format.
        InputError: it cannot be read, or is not of the format, or of none.
        LedgerError: it is a ledger that cannot be read.
    """
    if format is not None and format not in FORMATS:
        raise UsageError(f"--format {format}: no such format; there are {', '.join(FORMATS)}")
    with _opened(source) as (stream, name, written_at), _named(name):
        head, plain = _begun(stream)
        found = format or _recognised(head, name)
        how: dict[str, Any] = {"limit_factor": limit_factor, "by_user": by_user}
        if found == "ledger":
            return _read_ledger(name, now=written_at, **how)
        if found == "sacct":
            return _read_sacct(plain, name, now=written_at, **how)
        text = io.TextIOWrapper(plain, encoding="utf-8-sig", errors="replace", newline="")
        if found == "swf":
            return read_swf(text, name, **how)
        return read_csv(text, name, format=found, **how)


def _recognised(head: bytes, name: str) -> str:
    """The format of what begins so."""
    if head.startswith(_SQLITE):
        return "ledger"
    text = head.removeprefix(_MARK).lstrip()
    if text.startswith(b"{"):
        return "sacct"
    line = text.partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r")
    words = line.lower().replace('"', "")
    if "jobid" in words and ("account" in words or "|" in words):
        return "sacct"
    columns = next(csv.reader([line[:10_000]]), [])
    found = form_of(columns) or ("swf" if is_swf(line) else None)
    if found is None:
        shown = repr(line[:80]) if line else "nothing"
        raise InputError(
            f"{name}: no trace that is known here: it begins with {shown}; "
            f"known are {', '.join(FORMATS)}"
        )
    return found


def _read_sacct(
    stream: BinaryIO, name: str, *, now: int, limit_factor: float, by_user: bool
) -> Workload:
    from slurm_ltgf.slurm.dump import read_dump

    skipped: list[Skipped] = []
    parts: list[Runs] = []
    for batch in read_dump(stream, cluster="", timezone=UTC, now=now):
        parts.append(batch.runs)
        skipped += [Skipped(row.line, row.reason, name) for row in batch.skipped]
    runs = Runs.concat(parts) if parts else Runs.of([])
    del parts
    read = read_history(runs, name, now=now, limit_factor=limit_factor, by_user=by_user)
    return workload(read.jobs, [*skipped, *read.skipped], name, read.notes)


def _read_ledger(name: str, *, now: int, limit_factor: float, by_user: bool) -> Workload:
    from slurm_ltgf.store.ledger import Ledger

    with Ledger(name, readonly=True) as ledger:
        clusters = ledger.clusters()
        if len(clusters) > 1:
            raise InputError(
                f"{name}: a ledger of several clusters ({', '.join(clusters)}): "
                "`ltgf replay -M` takes one of them"
            )
        now = max((ledger.synced_until(cluster) or now for cluster in clusters), default=now)
        runs = ledger.runs(None, Window(0, now + 1))
    return read_history(runs, name, now=now, limit_factor=limit_factor, by_user=by_user)


class _Begun(io.RawIOBase):
    """A stream of which some bytes were read already: they come again."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """The next bytes, as many as there are room for at most."""
        some = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(some) :]
        buffer[: len(some)] = some
        return len(some)


def _begun(stream: BinaryIO) -> tuple[bytes, BinaryIO]:
    """How a stream begins once it is unpacked, and all of it."""
    head = stream.read(_HEAD_BYTES)
    plain: BinaryIO = io.BufferedReader(_Begun(head, stream), _HEAD_BYTES)
    if not head.startswith(_GZIP):
        return head, plain
    packed = gzip.GzipFile(fileobj=plain)
    head = packed.read(_HEAD_BYTES)
    return head, io.BufferedReader(_Begun(head, packed), 1 << 20)  # type: ignore[arg-type]


@contextmanager
def _opened(source: Path | str | BinaryIO) -> Iterator[tuple[BinaryIO, str, int]]:
    """The source as a stream, its name, and when it was written."""
    if not isinstance(source, Path | str):
        yield source, str(getattr(source, "name", "trace")), int(time.time())
    elif str(source) == "-":
        yield sys.stdin.buffer, "-", int(time.time())
    else:
        with _file(Path(source)) as stream:
            yield stream, str(source), int(os.fstat(stream.fileno()).st_mtime)


def _file(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as exc:
        raise InputError(f"{path}: cannot be read: {exc.strerror}") from exc


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Put the trace's name before what is wrong with it."""
    try:
        yield
    except LtgfError as exc:
        if str(exc).startswith(name):
            raise
        raise type(exc)(f"{name}: {exc}") from exc
    except (EOFError, gzip.BadGzipFile, zlib.error) as exc:
        raise InputError(f"{name}: the gzip file is damaged or cut short: {exc}") from exc
    except OSError as exc:
        raise InputError(f"{name}: cannot be read: {exc.strerror or exc}") from exc
