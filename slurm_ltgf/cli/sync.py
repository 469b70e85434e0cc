"""`ltgf sync`: history into the ledger, from sacct or from a saved dump."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from slurm_ltgf.cli import options, render
from slurm_ltgf.cli.app import App, now
from slurm_ltgf.errors import InputError, UsageError

if TYPE_CHECKING:
    from datetime import tzinfo

    from slurm_ltgf.core.model import Batch
    from slurm_ltgf.store.ledger import StoreCounts

SKIPPED_SHOWN = 10
#: Small piles: storing one goes on while the next is read.
DUMP_PILE_BYTES, BATCHES_AHEAD = 16 << 20, 8
#: Cluster of a dump that says nothing of it, read where nobody said it either.
NO_CLUSTER = "unknown"


@click.command("sync")
@options.interval
@click.option(
    "--from-file", metavar="FILE", help="A saved sacct -P or --json dump; - is standard input."
)
@click.option(
    "--timezone", metavar="ZONE", help="What local times in a dump mean; default site.timezone."
)
@click.option(
    "-M", "--cluster", metavar="NAME", help="Cluster of a dump that does not say; default: site's."
)
@click.option("--print-command", is_flag=True, help="Show the command that makes a dump.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Read history from sacct, or a saved dump, into the ledger.

    Without -S: what is new since the last time, and the last `daemon.overlap` again for records
    that came late. A run read twice is one run. Rows that cannot be read are counted and named.
    """
    app = App.of(ctx)
    if given["print_command"]:
        from slurm_ltgf.slurm.history import dump_command

        end = options.moment(given["endtime"], now()) or now()
        start = options.moment(given["starttime"], now()) or end - 30 * 86400
        click.echo(dump_command(start, end))
        return
    report = from_file(app, given) if given["from_file"] else _live(app, given)
    _show(report, as_json=given["json_"])


def _live(app: App, given: dict[str, Any]) -> dict[str, Any]:
    from slurm_ltgf.service.history import sync
    from slurm_ltgf.service.observed import observe_site

    if given["endtime"] or given["cluster"] or given["timezone"]:
        raise UsageError("-E, -M and --timezone are for --from-file and --print-command")
    start = options.moment(given["starttime"], now())
    edges = app.edges()
    with app.ledger(readonly=False) as ledger, _progress("reading sacct") as told:
        queue = edges.queue()
        done = sync(edges, ledger, app.config, now=now(), queue=queue, start=start, progress=told)
        observe_site(edges, ledger, app.config, now=now())
        skipped, total = ledger.skipped(f"sacct {edges.cluster}"), done.counts.skipped
    return _report(
        done.counts, skipped, total, source=f"sacct of {edges.cluster}", start=done.start
    )


def from_file(app: App, given: dict[str, Any]) -> dict[str, Any]:
    """Read the dump `given["from_file"]` into the ledger; what to report of it."""
    from slurm_ltgf.service.past import remember_accounts
    from slurm_ltgf.slurm.dump import read_dump

    name = given["from_file"]
    zone, said = _zone(given["timezone"] or app.config.site.timezone)
    cluster = given["cluster"] or app.config.site.cluster or NO_CLUSTER
    with _opened(name) as (stream, size, written_at), app.ledger(readonly=False) as ledger:
        with _progress(f"reading {name}", total=size) as told, _naming(name):
            seen = _Seen(read_dump(stream, cluster=cluster, timezone=zone, now=written_at))
            counts = ledger.store(
                _ahead(seen),
                source=name,
                observed_at=written_at,
                progress=told,
                pile_bytes=DUMP_PILE_BYTES,
            )
        for there in seen.accounts:
            until = max(seen.until, ledger.synced_until(there) or 0)
            ledger.set_synced_until(there, until)
            remember_accounts(ledger, there, seen.accounts[there])
        skipped = ledger.skipped(name)
    report = _report(counts, skipped, counts.skipped, source=name, start=None)
    report["clusters"] = sorted(seen.accounts)
    report["known_until"] = seen.until
    report["warnings"].append(f"local times without an offset are taken as {said}")
    return report


class _Seen:
    """Batches passing by, and what they tell of the whole: each cluster's accounts, until when."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self.accounts: dict[str, set[str]] = {}
        self.until = 0

    def __iter__(self) -> Iterator[Batch]:
        import numpy as np

        for batch in self._batches:
            runs = batch.runs
            # By the rows, for the words are also those of rows that could not be read.
            width = max(len(runs.account.names), 1)
            pairs = np.bincount(runs.cluster.codes.astype(np.int64) * width + runs.account.codes)
            for pair in np.flatnonzero(pairs).tolist():
                cluster, account = divmod(pair, width)
                named = self.accounts.setdefault(runs.cluster.names[cluster], set())
                named.add(runs.account.names[account])
            ran = np.where(
                runs.start >= 0, runs.start + np.maximum(runs.elapsed_s, 0) + runs.suspended_s, 0
            )
            for column in (ran, runs.end, runs.submit):
                self.until = max(self.until, int(column.max(initial=0)))
            yield batch


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the file's name before what is wrong with it."""
    try:
        yield
    except InputError as exc:
        raise InputError(f"{name}: {exc}") from exc


def _ahead(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches, some read ahead while others are stored: numpy needs no interpreter's lock."""
    from collections import deque
    from concurrent.futures import ThreadPoolExecutor

    coming = iter(batches)
    reader = ThreadPoolExecutor(1)
    try:
        ahead = deque(reader.submit(next, coming, None) for _ in range(BATCHES_AHEAD))
        while (batch := ahead.popleft().result()) is not None:
            ahead.append(reader.submit(next, coming, None))
            yield batch
    finally:
        reader.shutdown(cancel_futures=True)


def _zone(name: str) -> tuple[tzinfo, str]:
    from datetime import UTC
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return UTC, name
    try:
        return ZoneInfo(name), name
    except (ValueError, OSError, KeyError) as exc:
        raise UsageError(f"--timezone {name!r}: no such zone; like Europe/Zurich") from exc


@contextmanager
def _opened(name: str) -> Iterator[tuple[BinaryIO, int | None, int]]:
    """A dump as a stream, its size if known, and when it was written."""
    if name == "-":
        yield sys.stdin.buffer, None, now()
        return
    try:
        with Path(name).open("rb") as stream:
            status = os.fstat(stream.fileno())
            yield stream, status.st_size or None, int(status.st_mtime)
    except OSError as exc:
        raise InputError(f"{name}: cannot be read: {exc.strerror}") from exc


@contextmanager
def _progress(title: str, total: int | None = None) -> Iterator[Callable[[Batch], None] | None]:
    """A line that tells how far the reading is, on a terminal; nothing elsewhere."""
    if not render.live():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(title, total=total, rows=0)
        rows = 0

        def told(batch: Batch) -> None:
            nonlocal rows
            rows += len(batch.runs)
            bar.update(task, advance=batch.bytes if total else 0, rows=rows)

        yield told


def _report(
    counts: StoreCounts, skipped: list[Any], total: int, *, source: str, start: int | None
) -> dict[str, Any]:
    return {
        "source": source,
        "start": start,
        "new": counts.new,
        "changed": counts.changed,
        "unchanged": counts.unchanged,
        "open": counts.open,
        "skipped_total": total,
        "skipped": [{"line": row.line, "reason": row.reason} for row in skipped],
        "warnings": [],
    }


def _show(report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        render.as_json(report)
        return
    click.echo(
        f"{render.clean(report['source'])}: {report['new']} new runs, {report['changed']} changed, "
        f"{report['unchanged']} known; {report['open']} open; {report['skipped_total']} skipped"
    )
    for text in report["warnings"]:
        click.echo(f"note: {text}")
    for row in report["skipped"][:SKIPPED_SHOWN]:
        click.echo(f"skipped: line {row['line']}: {render.clean(row['reason'])}")
    if report["skipped_total"] > SKIPPED_SHOWN:
        click.echo(f"skipped: {report['skipped_total'] - SKIPPED_SHOWN} more; all with --json")
