#!/usr/bin/env python3
"""Metrics of a large site: what a refresh and a scrape cost, and that no scrape asks Slurm.

1,000 tenants, three GPU types, a day of runs. The exporter is a process of its own whose PATH holds
nothing but traps in place of Slurm's commands.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from statistics import median

import numpy as np

from slurm_ltgf.core.model import UNKNOWN, Account, Batch, Runs, Words
from slurm_ltgf.store.ledger import Ledger

TENANTS = tuple(f"lab-{i:04}" for i in range(1000))
KINDS = ("a100", "h100", "h200")
COMMANDS = ("sacct", "sacctmgr", "scontrol", "sinfo", "sprio", "squeue", "sshare", "scancel")
SCRAPES = 300

Row = tuple[str, str, str, bool | None]


def figures(runs: int, folder: Path) -> list[Row]:
    """The rows of the table."""
    ledger, traps = folder / "ledger.db", folder / "traps"
    fill(ledger, runs, now=int(time.time()))
    traps.mkdir()
    for name in COMMANDS:
        (traps / name).write_text(f"#!/bin/sh\necho {name} >>{folder / 'called'}\nexit 1\n")
        (traps / name).chmod(0o755)
    words = [sys.executable, "-m", "slurm_ltgf", "--ledger", str(ledger), "exporter"]
    with subprocess.Popen(
        [*words, "--listen", "127.0.0.1:0", "--refresh", "1h"],
        env={"PATH": str(traps), "HOME": str(folder)}, stderr=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stderr is not None
            rows = measured(server.stderr.readline().split()[-1], server.pid, runs)
        finally:
            server.terminate()
    called = (folder / "called").read_text().split() if (folder / "called").exists() else []
    asked = f"{len(called)} in {SCRAPES} scrapes and a refresh"
    return [*rows, ("commands of Slurm", "0", asked, not called)]


def measured(address: str, pid: int, runs: int) -> list[Row]:
    """What the exporter at this address costs."""
    while b"ltgf_up 1.0" not in (first := scrape(address))[1]:
        time.sleep(0.1)
    times = sorted(scrape(address)[0] for _ in range(SCRAPES))
    packed = scrape(address, **{"Accept-Encoding": "gzip"})[1]
    text = gzip.decompress(packed).decode()
    refresh_s = float(text.split("\nltgf_refresh_duration_seconds ")[1].split()[0])
    series = sum(not line.startswith("#") for line in text.splitlines())
    peak = Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]
    of = f"{len(TENANTS):,} tenants, {runs:,} runs in the window"
    return [
        (f"refresh: {of}", "< 5 s", f"{refresh_s:.2f} s, {int(peak) / 1024:.0f} MB", refresh_s < 5),
        (
            f"page of {series:,} series",
            "",
            f"{len(text) / 1e6:.2f} MB, {len(packed) / 1e6:.2f} MB packed",
            None,
        ),
        ("its first scrape after a refresh", "< 1 s", f"{first[0]:.3f} s", first[0] < 1),
        (
            f"scrape, half of {SCRAPES}; the slowest",
            "< 50 ms",
            f"{median(times) * 1e3:.1f} ms; {times[-1] * 1e3:.1f} ms",
            median(times) < 0.05,
        ),
    ]


def scrape(address: str, **headers: str) -> tuple[float, bytes]:
    """Seconds that a scrape took, and the page."""
    began = time.perf_counter()
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
        page = answer.read()
    return time.perf_counter() - began, page


def fill(path: Path, n: int, *, now: int) -> None:
    """A ledger of n runs of a day, one in twenty of which still runs."""
    rng = np.random.default_rng(1)
    start = now - rng.integers(60, 86400, n)
    is_open = rng.random(n) < 0.05
    elapsed = np.where(is_open, now - start, np.minimum(now - start, rng.integers(60, 7200, n)))
    kind = rng.integers(0, len(KINDS), n).astype(np.int32)
    tenant = rng.integers(0, len(TENANTS), n).astype(np.int32)
    one, none = np.zeros(n, dtype=np.int32), np.full(n, -1, dtype=np.int64)
    gres = Words(kind, tuple(f"gpu:{name}=2,gpu=2" for name in KINDS))
    runs = Runs(
        cluster=Words(one, ("gpu",)), job_id=np.arange(1, n + 1), account=Words(tenant, TENANTS),
        user=Words(one, ("u",)), partition=Words(one, ("main",)),
        state=Words(is_open.astype(np.int32), ("COMPLETED", "RUNNING")),
        submit=start, eligible=start, start=start,
        end=np.where(is_open, UNKNOWN, start + elapsed), elapsed_s=elapsed,
        suspended_s=np.zeros(n, dtype=np.int64), limit_s=np.full(n, 3 * 86400), gres=gres,
        gres_requested=gres, array_job=none, array_task=none, het_job=none, het_offset=none,
        tasks=np.ones(n, dtype=np.int64), restarts=np.zeros(n, dtype=np.int64),
        nodes=Words(one, ("",)),
    )  # fmt: skip
    accounts = [Account("root", "", 1), *(Account(name, "root", 1, (1,)) for name in TENANTS)]
    with Ledger(path) as ledger:
        ledger.set_accounts("gpu", accounts, time=now)
        ledger.observe_capacity("gpu", now - 2 * 86400, dict.fromkeys(KINDS, 4000.0))
        ledger.store(
            [Batch(runs)], source="bench", observed_at=now, replace_open="gpu", until=("gpu", now)
        )
