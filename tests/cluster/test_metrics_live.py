"""Metrics of a real cluster: the daemon's page agrees with fairness, counters outlive kills."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest
from commands import Daemon, Ltgf
from lab import Lab, wait_until

from slurm_ltgf.core.model import UNKNOWN, Window
from slurm_ltgf.store.ledger import Ledger
from tests.metrics_site import Samples, has_no_objection, samples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.cluster

TENANTS = {"astro", "bio", "chem"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def ltgf(cluster: Lab, tmp_path: Path) -> Iterator[Ltgf]:
    """`ltgf` whose daemon answers scrapes and writes a file; bio has a budget."""
    cluster.drain()
    cluster.run("sacctmgr", "-i", "modify", "account", "bio", "set", "GrpTRESMins=gres/gpu=6000")
    settings = (
        "[daemon]\ninterval = '1s'\narrivals = '1s'\n"
        f"[metrics]\nlisten = '127.0.0.1:{free_port()}'\nrefresh = '1s'\njobs = 2\n"
        f"textfile = '{tmp_path / 'ltgf.prom'}'\n"
    )
    yield Ltgf(cluster, tmp_path, settings)
    cluster.run("sacctmgr", "-i", "modify", "account", "bio", "set", "GrpTRESMins=gres/gpu=-1")
    cluster.drain()


def scrape(ltgf: Ltgf) -> Samples:
    listen = ltgf.settings.split("listen = '")[1].split("'")[0]
    try:
        with urllib.request.urlopen(f"http://{listen}/metrics", timeout=5) as answer:
            text = answer.read()
    except OSError:
        return {}
    has_no_objection(text)
    return samples(text)


def by_tenant(found: Samples, name: str) -> dict[str, float]:
    rows = [(dict(labels), value) for (key, labels), value in found.items() if key == name]
    return {labels["tenant"]: value for labels, value in rows}


def one(found: Samples, name: str, **labels: str) -> float | None:
    """A value by some of its labels."""
    for (key, pairs), value in found.items():
        if key == name and labels.items() <= dict(pairs).items():
            return value
    return None


def until(ltgf: Ltgf, wanted: str, timeout: float = 30, **labels: str) -> Samples:
    """Scrape until a metric is there and not zero."""
    found: Samples = {}

    def is_there() -> bool:
        found.clear()
        found.update(scrape(ltgf))
        return bool(one(found, wanted, **labels))

    wait_until(is_there, timeout, lambda: f"{wanted}: {sorted({name for name, _ in found})}")
    return found


def test_the_daemons_page_is_what_fairness_says_and_counters_outlive_it(ltgf: Ltgf):
    lab = ltgf.lab
    running = [lab.submit(user, "--gres=gpu:8", script="sleep 900") for user in ("alice",) * 2]
    running.append(lab.submit("bob", "--gres=gpu:6", script="sleep 900"))
    lab.submit("bob", "--gres=gpu:2", script="sleep 2")
    for job in running:
        lab.wait_state(job, "RUNNING")
    lab.submit("carol", "--gres=gpu:8", "--array=1-5", script="sleep 900")
    daemon = Daemon(ltgf)
    try:
        found = until(ltgf, "ltgf_tenant_pending_jobs", tenant="chem")
        assert (by_tenant(found, "ltgf_tenant_weight")) == {"astro": 4, "bio": 2, "chem": 1}
        assert one(found, "ltgf_tenant_held_gpus", tenant="astro", gpu_type="h200") == 16
        assert one(found, "ltgf_capacity_gpus", gpu_type="h200") == 32
        assert one(found, "ltgf_slurmdbd_up") == 1
        assert one(found, "ltgf_quota_budget_gpu_seconds", account="bio") == 360_000
        assert one(found, "ltgf_pool_free_gpus", partition="main", gpu_type="h200") is not None
        assert len([name for name, _ in found if name == "ltgf_job_held_gpus"]) == 2
        before, found = agreed(ltgf)
        daemon.process.kill()
        daemon.process.wait(10)
        lab.run("scancel", str(running[0]))
    finally:
        daemon.process.kill()
        daemon.process.wait(10)
    counted = by_tenant(before, "ltgf_tenant_gpu_seconds_total")
    assert set(counted) == TENANTS
    again = Daemon(ltgf)
    try:
        wait_until(lambda: growth(ltgf, counted)["bio"] > 0, 30, lambda: str(counted))
        assert min(growth(ltgf, counted).values()) >= 0
        again.wait_passes(3)
    finally:
        assert again.stop()[0] == 0
    assert is_sum_of_the_ledger(ltgf)
    said = json.loads(ltgf.run("exporter", "--once", "--json"))["metrics"]
    assert {row["labels"].get("tenant") for row in said} >= TENANTS
    text = (ltgf.folder / "ltgf.prom").read_bytes()
    assert by_tenant(samples(text), "ltgf_tenant_weight") == {"astro": 4, "bio": 2, "chem": 1}


def agreed(ltgf: Ltgf) -> tuple[Samples, Samples]:
    """Two scrapes, of one moment of the ledger, with `ltgf fairness` between: it says the same."""
    for _ in range(20):
        first, told, second = scrape(ltgf), ltgf.json("fairness"), scrape(ltgf)
        moments = [one(page, "ltgf_ledger_synced_timestamp_seconds") for page in (first, second)]
        if moments == [told["meta"]["known_until"]] * 2:
            break
        time.sleep(0.3)
    else:
        raise AssertionError("the ledger never stood still")
    for key in ("rho", "credit", "share", "quota_gpus"):
        said = {row["tenant"]: row[key] for row in told["tenants"] if row[key] is not None}
        assert by_tenant(first, f"ltgf_tenant_{key}") == said
    for key in ("attained", "deserved", "quota", "entitled"):
        said = {row["tenant"]: row[f"{key}_gpu_s"] for row in told["tenants"]}
        assert by_tenant(first, f"ltgf_tenant_{key}_gpu_seconds") == said
    assert one(first, "ltgf_jain_index") == told["jain"]
    return first, second


def growth(ltgf: Ltgf, before: dict[str, float]) -> dict[str, float]:
    now = by_tenant(scrape(ltgf), "ltgf_tenant_gpu_seconds_total")
    return {tenant: now.get(tenant, value) - value for tenant, value in before.items()}


def is_sum_of_the_ledger(ltgf: Ltgf) -> bool:
    """Whether what was counted, less what was taken back, is the use of all runs, each once."""
    with Ledger(ltgf.path, readonly=True) as ledger:
        rows = ledger.runs(None, Window(0, 1 << 40)).rows()
        used = [row for name in ledger.clusters() for row in ledger.used(name)]
    counted = sum(row.counted_s - row.corrected_s for row in used)
    ran = [row for row in rows if row.start != UNKNOWN]
    assert ran
    return counted == sum(row.elapsed_s for row in ran)
