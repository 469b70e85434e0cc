"""A whole pass against a real slurmctld with a long queue: `a_pass`.

The cluster is our own, started for this and taken down. Jobs are single ones, one sbatch each, four
at a time. What a pass takes is told as `ltgf tick --json` tells it, and once more by parts, with a
clock round each edge to Slurm.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurm_ltgf.core.factor import changes
from slurm_ltgf.core.order import order
from slurm_ltgf.service.edges import Edges
from slurm_ltgf.service.terms import rules_of, scale_of
from slurm_ltgf.service.tick import Pass, tick
from slurm_ltgf.slurm import associations, control, nodes, queue
from slurm_ltgf.slurm.history import SacctReader
from slurm_ltgf.store.config import load_config
from slurm_ltgf.store.ledger import Ledger

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = ROOT / "scripts" / "cluster"
STATE = Path("/run/ltgf-bench")
PORTS = range(30000, 32000, 50)  # bases: the first whose ports are all free is taken
SIZE = ("--nodes", "4", "--gpus", "16")  # 64 GPUs
USERS = {"astro": "alice", "bio": "bob", "chem": "carol"}
FEW = 50
SETTINGS = f"""\
[site]
cluster = "ltgf"
ledger = "{STATE}/ltgf/ledger.db"

[queue]
max_writes = 100000
"""

Row = tuple[str, str, str, bool | None]


def a_pass(n: int) -> list[Row]:
    """The figures of passes with n pending jobs."""
    with cluster():
        submitted_s = fill(n)
        first, first_s = user_tick()
        idle, idle_s = user_tick()
        exchange()
        busy, busy_s = user_tick()
        rows: list[Row] = [
            (f"{n:,} jobs submitted", "", f"{submitted_s:.0f} s", None),
            (f"first pass, {first['pending']:,} pending", "", told(first, first_s), None),
            ("pass without news", "0 writes", told(idle, idle_s), idle["written"] == 0),
            (f"pass after {FEW} jobs ended and {FEW} came", "", told(busy, busy_s), None),
        ]
        parts, done = pass_by_parts()
        rows.append(("parts of a pass without news", "", parts, None))
        exchange()
        parts, done = pass_by_parts()
        label = f"parts of a busy pass, {len(done.result.written)} writes"
        return [*rows, (label, "", parts, None)]


@contextmanager
def cluster() -> Iterator[None]:
    """A fresh cluster of ours, and the environment that points at it."""
    down()
    before = dict(os.environ)
    up = [str(CLUSTER), "up", "--state", str(STATE), "--port", str(free_base()), *SIZE]
    try:
        subprocess.run(up, check=True, stdout=sys.stderr)
        (STATE / "ltgf").mkdir()
        (STATE / "ltgf" / "ltgf.toml").write_text(SETTINGS)
        os.environ["SLURM_CONF"] = str(STATE / "etc" / "slurm.conf")
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        down()


def free_base() -> int:
    """A base for the cluster's ports, none of which is taken."""
    return next(base for base in PORTS if all(is_free(base + i) for i in range(1, 16)))


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def down() -> None:
    subprocess.run(
        [CLUSTER, "down", "--state", STATE, "--purge"], check=False, stdout=sys.stderr, stderr=None
    )


def fill(n: int) -> float:
    """As many running jobs as there are GPUs and n pending ones, of three tenants; seconds."""
    submit("astro", 64, gpus=1)
    time.sleep(10)
    began = time.monotonic()
    for tenant, part in (("astro", n // 2), ("bio", n // 4), ("chem", n - n // 2 - n // 4)):
        submit(tenant, part)
    took_s = time.monotonic() - began
    time.sleep(10)
    return took_s


def submit(tenant: str, n: int, *, gpus: int = 2) -> None:
    """Submit n jobs as a tenant's user, four sbatch at a time."""
    job = f"--gres=gpu:{gpus} -n1 -c1 --mem=100 -t 600 -o /dev/null --wrap 'sleep 36000'"
    script = f"seq {n} | xargs -P 4 -I{{}} sbatch -Q {job} >/dev/null"
    argv = [str(CLUSTER), "as", "--state", str(STATE), USERS[tenant], "--", "sh", "-c", script]
    subprocess.run(argv, check=True)


def exchange() -> None:
    """Some running jobs end, as many new ones come; the scheduler has a moment to fill the gap."""
    running = out("squeue", "-h", "-t", "R", "-o", "%i").split()[:FEW]
    subprocess.run(["scancel", *running], check=True)
    submit("bio", FEW)
    time.sleep(10)


def user_tick() -> tuple[dict[str, Any], float]:
    """`ltgf tick --json` as a user runs it: what it says, and the seconds of the whole command."""
    config = STATE / "ltgf" / "ltgf.toml"
    began = time.monotonic()
    said = out(str(ROOT / ".venv/bin/ltgf"), "--config", str(config), "tick", "--json")
    return json.loads(said), time.monotonic() - began


def told(said: dict[str, Any], whole_s: float) -> str:
    return f"{said['written']:,} writes, {said['took_s']:.2f} s ({whole_s:.2f} s the command)"


def out(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def pass_by_parts() -> tuple[str, Pass]:
    """A pass with a clock round each edge: seconds by part; order is done once more, alone."""
    config = load_config(STATE / "ltgf" / "ltgf.toml")
    spent: dict[str, float] = {}

    def clocked(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = time.monotonic()
            try:
                return call(*args)
            finally:
                spent[name] = spent.get(name, 0.0) + time.monotonic() - began

        return timed

    reader = SacctReader("ltgf", slice_s=config.daemon.slice_s)
    reads = clocked("sacct", lambda *args: list(reader.read(*args)))
    edges = Edges(
        cluster="ltgf",
        reader=type("Clocked", (), {"read": staticmethod(reads)})(),
        queue=clocked("squeue", queue.snapshot),
        priorities=clocked("sprio", queue.priorities),
        capacity=clocked("sinfo", nodes.capacity),
        accounts=clocked("sacctmgr", lambda: associations.accounts("ltgf")),
        write=clocked("scontrol", control.set_site_factors),
    )
    with Ledger(Path(config.site.ledger)) as ledger:
        began = time.monotonic()
        done = tick(edges, ledger, config, clock=time.time)
        whole_s = time.monotonic() - began
    began = time.monotonic()
    turns = order(
        done.view.jobs, done.view.plan.standings, rules=rules_of(config), now=done.view.now
    )
    changes(turns, scale_of(config))
    parts = {**spent, "rest": whole_s - sum(spent.values())}
    shown = ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())
    return f"{whole_s:.2f} s: {shown} (of it order {time.monotonic() - began:.2f})", done
