"""Where a command's history is from: the site's ledger, a saved dump, or an invented site."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_ltgf.cli.app import App
from slurm_ltgf.errors import UsageError

if TYPE_CHECKING:
    from slurm_ltgf.store.ledger import Ledger


@contextmanager
def ledger_of(app: App, given: dict[str, Any]) -> Iterator[Ledger]:
    """The site's ledger; of a dump (`from_file`), one for the time being.

    Raises:
        UsageError: --timezone without a dump.
    """
    from slurm_ltgf.cli import sync

    if given["from_file"] is None:
        if given["timezone"]:
            raise UsageError("--timezone is for --from-file")
        with app.ledger(readonly=True) as ledger:
            yield ledger
        return
    with _aside(app) as aside:
        sync.from_file(aside, {**given, "cluster": None})
        with aside.ledger(readonly=True) as ledger:
            yield ledger


@contextmanager
def demo_ledger(app: App) -> Iterator[Ledger]:
    """A ledger of the invented site, for the time being."""
    from slurm_ltgf.core.model import Batch, Skipped
    from slurm_ltgf.sim import demo
    from slurm_ltgf.store.ledger import AuditEntry

    site, begin = demo.demo(), demo.END - len(demo.WEEKS) * demo.WEEK_S
    unread = (Skipped(48_211, "Start: cannot read time '2026-13-01T00:00:00'"),)
    with _aside(app) as aside, aside.ledger(readonly=False) as ledger:
        batch = Batch(site.runs, unread)
        until = (demo.CLUSTER, demo.END)
        ledger.store([batch], source="demo.psv", observed_at=demo.END, until=until)
        ledger.observe_capacity(demo.CLUSTER, begin, demo.GPUS)
        shares = {name: float(weight) for name, weight in demo.SHARES.items()}
        ledger.observe_shares(demo.CLUSTER, begin, shares)
        ledger.set_accounts(demo.CLUSTER, site.accounts, time=begin)
        for (job_id, start), until_s in site.kept.items():
            ledger.keep(demo.CLUSTER, job_id, start, until=until_s)
        ledger.audit(
            [
                AuditEntry(time, "ltgf lease", action, str(job_id), None, new, "its lease is over")
                for job_id, time in site.moved
                for action, new in (("sitefactor", "1000000"), ("requeue", "requeued"))
            ]
        )
        yield ledger


@contextmanager
def _aside(app: App) -> Iterator[App]:
    """The same invocation with a ledger that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="ltgf-") as folder:
        yield App(app.config_path, Path(folder) / "ledger.db", app.verbose)
