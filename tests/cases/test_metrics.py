"""Field cases of kind metrics-exporter, and the hostile texts that would become labels."""

from __future__ import annotations

import io
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from datetime import UTC
from pathlib import Path

import pytest

from slurm_ltgf.core.model import Batch, Runs
from slurm_ltgf.errors import UsageError
from slurm_ltgf.service.readings import readings
from slurm_ltgf.slurm.dump import read_dump
from slurm_ltgf.store.config import parsed
from slurm_ltgf.store.ledger import Ledger
from tests.metrics_site import (
    CLUSTER,
    NOW,
    MetricsSite,
    finished,
    has_no_objection,
    pending,
    running,
    samples,
    value,
)
from tests.scenario.conftest import T0, Site


@pytest.fixture
def site(tmp_path: Path) -> MetricsSite:
    return MetricsSite(tmp_path / "ledger.db")


# --- EXP-01: cardinality --------------------------------------------------------------------------


def many_tenants(site: MetricsSite, tenants: int = 300) -> None:
    kinds = ("a100", "h100", "t4")
    names = [f"lab-{i:03}" for i in range(tenants)]
    site.accounts(*names)
    site.capacity(**dict.fromkeys(kinds, 1000.0))
    runs = [
        running(
            10 * i + k, name, f"gpu:{kind}=1,gpu=1", elapsed_s=60, now=NOW,
            user=f"u{i}", array_job=10 * i, array_task=k,
        )
        for i, name in enumerate(names)
        for k, kind in enumerate(kinds)
    ]  # fmt: skip
    site.store(*runs)


def test_exp_01_no_metric_has_more_series_than_tenants_times_types(site):
    many_tenants(site)
    found = site.scrape()
    per_metric = Counter(name for name, _ in found)
    assert per_metric["ltgf_tenant_held_gpus"] == 300 * 3
    assert max(per_metric.values()) == 900
    labels = {name for _, pairs in found for name, _ in pairs}
    assert labels == {"cluster", "tenant", "gpu_type", "le", "result", "version"}


def test_exp_01_job_series_are_capped(site):
    many_tenants(site)
    site.most_jobs = 50
    found = site.scrape()
    assert Counter(name for name, _ in found)["ltgf_job_held_gpus"] == 50


def test_exp_01_tenants_beyond_the_cap_are_counted_and_in_the_sums(site):
    many_tenants(site)
    site.most_tenants = 100
    found = site.scrape()
    assert Counter(name for name, _ in found)["ltgf_tenant_weight"] == 100
    assert value(found, "ltgf_tenants") == 300
    assert value(found, "ltgf_tenants_left_out") == 200
    assert value(found, "ltgf_held_gpus", gpu_type="h100") == 300
    assert value(found, "ltgf_attained_gpu_seconds") == 300 * 3 * 60


# --- EXP-03: load ---------------------------------------------------------------------------------


def test_exp_03_no_scrape_asks_slurm_for_anything(site, tmp_path):
    """Two servers, every 15 s, for an hour: 480 scrapes, while every command of Slurm is a trap."""
    site.accounts("lab-a")
    site.store(finished(1, "lab-a", "gpu=4", start=NOW - 7200, elapsed_s=3600))
    traps, called = tmp_path / "traps", tmp_path / "called"
    traps.mkdir()
    for name in ("sacct", "squeue", "scontrol", "sacctmgr", "sinfo", "sprio", "sdiag", "scancel"):
        (traps / name).write_text(f"#!/bin/sh\necho {name} >>{called}\nexit 1\n")
        (traps / name).chmod(0o755)
    command = [sys.executable, "-m", "slurm_ltgf", "--ledger", str(site.path), "exporter"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--refresh", "1s"],
        env={"PATH": str(traps), "HOME": str(tmp_path)}, stderr=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stderr is not None
            address = server.stderr.readline().split()[-1]
            began = time.monotonic()
            for _ in range(480):
                with urllib.request.urlopen(address, timeout=10) as answer:
                    assert b"ltgf_up 1.0" in answer.read() or time.monotonic() - began < 5
        finally:
            server.terminate()
            server.wait(20)
    assert server.returncode == 0
    assert not called.exists()


def test_exp_03_at_five_minutes_an_hour_is_twelve_calls_of_sacct(tmp_path):
    with Ledger(tmp_path / "ledger.db") as ledger:
        slurm = Site(ledger, config=parsed('[daemon]\ninterval = "5min"\n', "test"))
        slurm.tenants(a=1)
        slurm.ran(1, "a", 0, 600, 4)
        calls, answer = [], slurm.read
        slurm.read = lambda *when: calls.append(when) or answer(*when)
        for minute in range(0, 60, 5):
            slurm.now = 3600 + 60 * minute
            slurm.tick()
            for _ in range(40):  # two servers, every 15 s
                with Ledger(ledger.path, readonly=True) as seen:
                    readings(seen, slurm.config, "c", now=T0 + slurm.now, most_tenants=9)
        assert len(calls) <= 12


# --- EXP-04: counters that fall -------------------------------------------------------------------


def total(site: MetricsSite) -> float | None:
    return value(site.scrape(), "ltgf_tenant_gpu_seconds_total", tenant="lab-a", gpu_type="untyped")


def test_exp_04_a_counter_never_falls_and_counts_a_job_once(site):
    site.accounts("lab-a")
    site.store(running(1, "lab-a", "gpu=2", elapsed_s=100, now=NOW, limit_s=10**6))
    seen = [total(site)]
    site.now += 100
    done = finished(1, "lab-a", "gpu=2", start=NOW - 100, elapsed_s=150)
    for _ in range(3):  # COMPLETED in three polls
        site.store(done)
        seen.append(total(site))
    site.now += 40 * 86400  # long out of the window
    site.store(finished(2, "lab-a", "gpu=2", start=site.now - 10, elapsed_s=10))
    seen.append(total(site))
    assert seen == [200, 300, 300, 300, 320]
    assert value(site.scrape(), "ltgf_tenant_attained_gpu_seconds", tenant="lab-a") == 20


def test_exp_04_a_correction_downwards_is_told_beside(site):
    site.accounts("lab-a")
    site.store(finished(1, "lab-a", "gpu=1", start=NOW - 90_000, elapsed_s=90_000))  # a runaway
    site.store(finished(1, "lab-a", "gpu=1", start=NOW - 90_000, elapsed_s=600))
    found = site.scrape()
    assert total(site) == 90_000
    assert value(found, "ltgf_tenant_gpu_seconds_correction", tenant="lab-a") == 89_400


def test_exp_04_what_slides_is_no_total(site):
    many_tenants(site, 3)
    totals = {name for name, _ in site.scrape() if name.endswith("_total")}
    assert totals == {
        "ltgf_gpu_seconds_total",
        "ltgf_tenant_gpu_seconds_total",
        "ltgf_checkpoints_total",
        "ltgf_requeues_total",
        "ltgf_gpu_seconds_saved_total",
        "ltgf_gpu_seconds_lost_total",
    }


# --- EXP-05: who is there -------------------------------------------------------------------------


def test_exp_05_arrays_count_tasks_and_tenants_come_and_go(site):
    site.accounts("lab-a", "lab-b", "lab-c", "lab-d")
    site.capacity(a100=8)
    site.store(finished(5, "lab-b", "gpu=1", start=NOW - 600, elapsed_s=60))
    assert value(site.scrape(), "ltgf_tenant_running_jobs", tenant="lab-b") == 0
    site.now += 60
    site.accounts("lab-a", "lab-c", "lab-d")  # lab-b is removed
    site.store(
        pending(7700, "lab-a", "gpu=1", now=site.now, array_job=7700, tasks=10),
        running(
            8, "lab-c", "gpu:a100=2,gpu=2", elapsed_s=300, now=site.now, state="SUSPENDED"
        ),
        finished(5, "lab-b", "gpu=1", start=NOW - 600, elapsed_s=60),
    )  # fmt: skip
    found = site.scrape()
    assert value(found, "ltgf_tenant_pending_jobs", tenant="lab-a") == 10
    assert value(found, "ltgf_tenant_pending_gpus", tenant="lab-a") == 10
    assert value(found, "ltgf_tenant_running_jobs", tenant="lab-a") == 0
    assert value(found, "ltgf_tenant_held_gpus", tenant="lab-a", gpu_type="a100") == 0
    assert value(found, "ltgf_tenant_suspended_gpus", tenant="lab-c") == 2
    assert value(found, "ltgf_tenant_suspended_jobs", tenant="lab-c") == 1
    assert value(found, "ltgf_tenant_running_jobs", tenant="lab-c") == 0
    assert value(found, "ltgf_tenant_running_jobs", tenant="lab-d") == 0  # never had a job
    tenants = {text for _, pairs in found for name, text in pairs if name == "tenant"}
    assert tenants == {"lab-a", "lab-c", "lab-d"}
    assert value(found, "ltgf_gpu_seconds_total", gpu_type="untyped") == 60  # lab-b's is not lost


# --- hostile and broken text ----------------------------------------------------------------------


def test_txt_04_a_broken_byte_in_a_name_stays_valid_utf8(site):
    dump = (
        b"JobIDRaw|State|ElapsedRaw|AllocTRES|Account|Start|End\n"
        b"630|COMPLETED|600|gres/gpu=1,node=1|f\xfcr-dich|1799999000|1799999600\n"
        b"631|COMPLETED|600|gres/gpu=1,node=1|ok|1799999000|1799999600\n"
    )
    with Ledger(site.path) as ledger:
        batches = read_dump(io.BytesIO(dump), cluster=CLUSTER, timezone=UTC, now=NOW)
        ledger.store(batches, source="dump", observed_at=NOW, until=(CLUSTER, NOW))
    text = site.exporter().page().text()
    assert "\ufffdr-dich" in text.decode("utf-8")
    assert value(samples(text), "ltgf_attained_gpu_seconds") == 1200


HOSTILE = (
    'a"} 1\nltgf_up{x="',
    "a\nltgf_up 0",
    "back\\slash",
    "back\\\\slash",
    "line\nbreak",
    "line\\nbreak",
    "carriage\rreturn",
    "nul\x00",
    "half\udce4",
    "<script>alert(1)</script>",
    "'; DROP TABLE runs; --",
    "$(reboot)",
    "%n%s%d",
    "{{.Tenant}}",
    "x" * 5000,
    "x" * 5000 + "y",
    "\u202eright-to-left",
    "ünï©ödé-和",
    " ",
)


def test_hostile_names_are_labels_and_nothing_else(site):
    names = [name.lower().encode(errors="replace").decode() for name in HOSTILE]
    site.accounts(*names)
    runs = [
        finished(i, name, "gpu:a100=1,gpu=1", start=NOW - 60, elapsed_s=60)
        for i, name in enumerate(names, 1)
    ]
    site.store(*runs)
    text = site.exporter().page().text()
    found = samples(text)
    assert value(found, "ltgf_up") == 1
    tenants = {
        text for name, pairs in found for key, text in pairs
        if name == "ltgf_tenant_weight" and key == "tenant"
    }  # fmt: skip
    assert len(tenants) == len(names)
    assert max(map(len, tenants)) <= 128
    has_no_objection(text)


def test_pri_04_one_job_in_several_partitions_waits_once(site):
    """'cpu,gpu' is one record, and is told of once."""
    site.config = parsed('[site]\npartitions = ["gpu"]\n', "test")
    site.accounts("lab-a")
    site.store(
        pending(1800, "lab-a", "gpu=1", now=NOW, array_job=1800, tasks=50, partition="gpu"),
        pending(1801, "lab-a", "gpu=2", now=NOW, partition="cpu,gpu"),
        pending(1802, "lab-a", "gpu=4", now=NOW, partition="cpu"),
    )
    found = site.scrape()
    assert value(found, "ltgf_tenant_pending_jobs", tenant="lab-a") == 51
    assert value(found, "ltgf_tenant_pending_gpus", tenant="lab-a") == 52


def test_acc_06_clusters_of_one_database_are_not_added_up(site):
    site.accounts("lab-a")
    site.store(finished(1, "lab-a", "gpu=1", start=NOW - 3600, elapsed_s=3600))
    with Ledger(site.path) as ledger:
        run = finished(1, "lab-a", "gpu=1", start=NOW - 3600, elapsed_s=60, cluster="c2")
        ledger.store([Batch(Runs.of([run]))], source="c2", observed_at=NOW, until=("c2", NOW))
    with pytest.raises(UsageError, match="several clusters"):
        site.look()
    site.config = parsed(f'[site]\ncluster = "{CLUSTER}"\n', "test")
    found = site.scrape()
    assert {text for _, pairs in found for key, text in pairs if key == "cluster"} == {CLUSTER}
    assert value(found, "ltgf_tenant_attained_gpu_seconds", tenant="lab-a") == 3600
