"""Each command on Debian 13's Slurm 24.11: the same answers as on 22.05."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from commands import Daemon, Ltgf
from lab import Lab, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.trixie]

LONG = "sleep 900"


@pytest.fixture(scope="module")
def jobs(trixie: Lab) -> Iterator[dict[str, int]]:
    """A run that ended, one that was requeued, a full cluster, and three jobs that wait."""
    trixie.drain()
    done = trixie.submit("bob", "--gres=gpu:h200:3", script="sleep 2")
    again = trixie.submit("carol", "--gres=gpu:2", "--requeue", script=LONG)
    for job in (done, again):
        trixie.wait_state(job, "RUNNING", "COMPLETED")
    trixie.run("scontrol", "requeue", str(again))
    trixie.wait_state(done, "COMPLETED")
    full = [trixie.submit("alice", "--gres=gpu:8", script=LONG) for _ in range(4)]
    for job in full:
        trixie.wait_state(job, "RUNNING")
    waiting = {user: trixie.submit(user, "--gres=gpu:2", script=LONG) for user in ("alice", "bob")}
    wait_until(lambda: len(listed(trixie)) >= 6, 20, lambda: str(listed(trixie)))
    yield {"done": done, "again": again, "running": full[0], **waiting}
    trixie.drain()


def listed(lab: Lab) -> list[tuple[str, ...]]:
    """(job, state, elapsed seconds, TRES) of sacct's records in a window."""
    fields = "jobidraw,state,elapsedraw,alloctres"
    answer = lab.run("sacct", "-a", "-X", "-D", "-n", "-P", "-S", "now-1hour", "-o", fields)
    return [tuple(line.split("|")) for line in answer.splitlines()]


@pytest.fixture
def ltgf(trixie: Lab, jobs: dict[str, int], tmp_path: Path) -> Ltgf:
    return Ltgf(trixie, tmp_path, "[daemon]\ninterval = '1s'\narrivals = '1s'\n")


def test_sync_and_fairness_charge_what_sacct_says(ltgf: Ltgf, jobs: dict[str, int]):
    done = ltgf.json("sync")
    assert done["skipped_total"] == 0
    assert done["new"] >= 2
    told = ltgf.json("fairness", "--jobs")
    (row,) = (row for row in told["jobs"] if row["job_id"] == str(jobs["done"]))
    (record,) = (row for row in listed(ltgf.lab) if row[0] == str(jobs["done"]))
    assert row["attained_gpu_s"] == int(record[2]) * 3
    assert {row["tenant"] for row in told["tenants"]} >= {"astro", "bio", "chem"}
    assert told["capacity_gpus"] == 32


def test_tick_orders_and_a_second_one_writes_nothing(ltgf: Ltgf, jobs: dict[str, int]):
    lab = ltgf.lab
    lab.run("scontrol", "hold", str(jobs["again"]))
    assert "nothing was written" in ltgf.run("tick", "--dry-run")
    assert ltgf.json("tick")["written"] == 2
    order = lab.run("squeue", "-h", "-t", "PD", "--sort=-p", "-o", "%A").split()
    assert order[:2] == [str(jobs["bob"]), str(jobs["alice"])]
    assert ltgf.json("tick")["written"] == 0
    assert ltgf.json("tick", "--undo")["written"] == 2


@pytest.mark.parametrize("kind", ["done", "running", "alice", "again"])
def test_explain(ltgf: Ltgf, jobs: dict[str, int], kind: str):
    answer = ltgf.json("explain", str(jobs[kind]))
    assert answer["sentences"]
    assert answer["job_id"] == str(jobs[kind])


def test_queue(ltgf: Ltgf, jobs: dict[str, int]):
    rows = ltgf.json("queue")["jobs"]
    assert [(row["tenant"], row["gpus"]) for row in rows[:2]] == [("bio", 2), ("astro", 2)]
    assert "bio" in ltgf.run("queue")


def test_doctor_finds_nothing_to_fix(ltgf: Ltgf):
    done = ltgf.ask("doctor", "--json")
    checks = json.loads(done.stdout)["checks"]
    assert (done.returncode, done.stderr) == (0, "")
    assert [check for check in checks if check["level"] == "fix"] == []


def test_the_daemon_passes_and_ends(ltgf: Ltgf, jobs: dict[str, int]):
    daemon = Daemon(ltgf)
    try:
        daemon.wait_passes(2)
        status, took_s = daemon.stop()
    finally:
        daemon.kill()
    assert (status, took_s < 5) == (0, True)
    assert daemon.passes[0]["pending"] in ("2", "3")
