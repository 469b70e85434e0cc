"""A site's ledger for tests of metrics, and what a scrape of it tells."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from slurm_ltgf.core.model import UNKNOWN, Account, Batch, Run, Runs
from slurm_ltgf.core.move import Goal, Move, State
from slurm_ltgf.core.tally import of_move
from slurm_ltgf.metrics.exporter import Exporter
from slurm_ltgf.metrics.site import families
from slurm_ltgf.service.last_look import Budget, LastLook, Pool, remember_look
from slurm_ltgf.service.last_pass import LastPass, remember_pass
from slurm_ltgf.service.readings import Readings, readings
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger

ROOT = Path(__file__).parents[1]
_PATHS = f"{os.environ['PATH']}:{ROOT / '.venv' / 'prometheus' / 'usr' / 'bin'}"
#: Prometheus' own programs; None: not here (scripts/test fetches them).
PROMTOOL, PROMETHEUS = (shutil.which(name, path=_PATHS) for name in ("promtool", "prometheus"))

NOW = 1_800_000_000
CLUSTER = "c1"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass
class MetricsSite:
    """A ledger that a test fills, at a time that it turns."""

    path: Path
    config: Config = field(default_factory=Config)
    now: int = NOW
    most_tenants: int = 1000
    most_jobs: int = 0

    def store(self, *runs: Run, listing: bool = True) -> None:
        """What a sync at this moment brings."""
        with Ledger(self.path) as ledger:
            ledger.store(
                [Batch(Runs.of(runs))],
                source="test",
                observed_at=self.now,
                replace_open=CLUSTER if listing else None,
                until=(CLUSTER, self.now),
            )

    def accounts(self, *names: str) -> None:
        """The accounts there are, below the root."""
        below = [Account(name, "root", 1, (1,)) for name in names]
        with Ledger(self.path) as ledger:
            ledger.set_accounts(CLUSTER, [Account("root", "", 1), *below], time=self.now)

    def capacity(self, **gpus: float) -> None:
        """The GPUs in service, seen now."""
        with Ledger(self.path) as ledger:
            ledger.observe_capacity(CLUSTER, self.now, gpus)

    def look(self) -> Readings:
        """What the exporter reads."""
        with Ledger(self.path, readonly=True) as ledger:
            return readings(
                ledger,
                self.config,
                None,
                now=self.now,
                most_tenants=self.most_tenants,
                most_jobs=self.most_jobs,
            )

    def exporter(self) -> Exporter:
        """An exporter that has read once."""
        made = Exporter(lambda: families(self.look()), stale_s=600, clock=lambda: self.now)
        made.refresh()
        return made

    def scrape(self) -> Samples:
        """Every sample of a fresh page, as Prometheus' own parser for Python reads it."""
        return samples(self.exporter().page().text())


def has_no_objection(text: bytes) -> None:
    """What `promtool check metrics` says of a page, where there is one: nothing."""
    if PROMTOOL is not None:
        words = [PROMTOOL, "check", "metrics"]
        done = subprocess.run(words, input=text, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def samples(text: bytes) -> Samples:
    """Name and labels -> value; a sample that comes twice is an error."""
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key}: twice"
            found[key] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float | None:
    """The value of one sample, of CLUSTER where the labels name none; None: absent."""
    for some in (labels, {"cluster": CLUSTER, **labels}):
        if (name, frozenset(some.items())) in found:
            return found[name, frozenset(some.items())]
    return None


def running(job_id: int, account: str, gres: str, *, elapsed_s: int, now: int, **more: Any) -> Run:
    """A job that runs, as sacct tells of it."""
    start = now - elapsed_s
    values = {"state": "RUNNING", "end": UNKNOWN, "elapsed_s": elapsed_s, "limit_s": 864000}
    return _run(job_id, account, gres, {**values, "start": start, "submit": start, **more})


def finished(
    job_id: int, account: str, gres: str, *, start: int, elapsed_s: int, **more: Any
) -> Run:
    """A job that has run."""
    values = {"state": "COMPLETED", "end": start + elapsed_s, "elapsed_s": elapsed_s}
    return _run(job_id, account, gres, {**values, "start": start, "submit": start, **more})


def pending(job_id: int, account: str, gres: str, *, now: int, **more: Any) -> Run:
    """A job that waits."""
    return _run(job_id, account, gres, {"state": "PENDING", "submit": now - 60, **more})


def _run(job_id: int, account: str, gres: str, values: dict[str, Any]) -> Run:
    usual: dict[str, Any] = {"cluster": CLUSTER, "user": "u", "partition": "main"}
    usual |= {"eligible": values["submit"], "gres_requested": gres, "account": account}
    if values["state"] != "PENDING":
        usual["gres"] = gres
    return Run(job_id=job_id, **(usual | values))


def full_site(path: Path, *, now: int) -> MetricsSite:
    """A site that has something of everything: GPUs, tenants, jobs, requeues, a daemon's pass."""
    site = MetricsSite(path, now=now - 7200)
    site.accounts("astro", "bio", "chem")
    site.capacity(a100=8, h200=8)
    site.now = now
    a100, h200 = "gpu:a100=4,gpu=4", "gpu:h200=2,gpu=2"
    site.store(
        finished(1, "astro", a100, start=now - 7200, elapsed_s=3600),
        running(2, "astro", a100, elapsed_s=1800, now=now),
        running(3, "bio", h200, elapsed_s=600, now=now),
        running(4, "bio", h200, elapsed_s=600, now=now, state="SUSPENDED"),
        pending(5, "bio", h200, now=now, tasks=3),
        pending(6, "chem", a100, now=now),
    )
    move = Move(
        9, 1000, 0, Goal.REQUEUE, "ask-1", "9", gpus=4, started=now - 900, began=now - 70,
        asked_at=now - 60, saved_at=now - 48, ended_at=now - 45, state=State.REQUEUED,
    )  # fmt: skip
    failed = replace(move, ask="ask-2", state=State.FAILED, saved_at=None, why="not saved")
    with Ledger(path) as ledger:
        for one in (move, failed):
            ledger.count(CLUSTER, one.ask, of_move(one), time=now - 45)
        leases = {"running": 1, "renew": 1, "yield": 0, "keep": 0}
        remember_pass(ledger, CLUSTER, LastPass(now - 5, 0.25, True, 4, 2, leases, moves=0))
        pools = (
            Pool("main", "a100", 0.0, 0.25, 4, {}, 4, 4, 0),
            Pool("main", "h200", 0.5, 0.75, 4, {"CPUs": 1}, 2, 4, 1),
        )
        budgets = (
            Budget("astro", "", 100_000, 25_000.0, 7200.0, now + 86400),
            Budget("bio", "h200", 50_000, 2400.0, None, None),
        )
        remember_look(ledger, CLUSTER, LastLook(now - 5, pools, budgets))
    return site
