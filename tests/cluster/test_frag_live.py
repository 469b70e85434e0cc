"""`ltgf frag` on a real cluster: one-GPU jobs on each of its nodes, and a job of a whole one waits.

Four nodes of 8 GPUs. What moves goes on from its step on another node.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from commands import Ltgf
from lab import Lab, wait_until
from trainings import Trainings

from slurm_ltgf.store.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster

SETTINGS = """
[site]
ledger = "{home}/ledger.db"
[checkpoint]
records = "{home}/records"
timeout = "20s"
stagger = "0s"
[lease]
min_run = "1s"
cost = "1s"
overhead = 1.0
[defrag]
start_within = "30s"
"""
NODES = ("n1", "n2", "n3", "n4")


@dataclass
class Site(Trainings):
    """A cluster whose nodes have each a training of one GPU, and on n4 a job of two."""

    @property
    def home(self) -> Path:
        """Everything of these tests lies here."""
        return self.lab.state / "frag"

    @property
    def ltgf(self) -> Ltgf:
        """`ltgf` of the site's admin."""
        return Ltgf(self.lab, self.home, SETTINGS.format(home=self.home))

    def spread(self) -> dict[str, int]:
        """Node -> a training of one GPU there, none of them bound to it."""
        fill = [
            self.lab.submit("carol", f"--gres=gpu:{7 if node != 'n4' else 5}", "-w", node)
            for node in NODES
        ]
        fixed = self.lab.submit("carol", "--gres=gpu:2", "-w", "n4", script="sleep 300")
        for job in (*fill, fixed):
            self.lab.wait_state(job, "RUNNING")
        jobs = self.trainings(len(NODES), gpus=1)
        self.lab.run("scancel", *map(str, fill))
        for job in fill:
            self.lab.wait_state(job, "CANCELLED")
        return {self.node(job): job for job in jobs}

    def node(self, job: int) -> str:
        """Where it runs."""
        return self.lab.run("squeue", "-h", "-o", "%N", "-j", str(job)).strip()

    def excluded(self, job: int) -> str:
        """The nodes that it excludes."""
        return self.lab.run("squeue", "-h", "-o", "%x", "-j", str(job)).strip()


@pytest.fixture
def site(cluster: Lab) -> Iterator[Site]:
    """With an empty queue before and after."""
    cluster.drain()
    site = Site(cluster)
    site.prepare()
    site.ltgf.run("sync")
    yield site
    cluster.drain()


def pool_of(told: dict[str, Any]) -> dict[str, Any]:
    """The one pool."""
    (pool,) = told["pools"]
    found: dict[str, Any] = pool
    return found


def test_a_job_of_a_whole_node_gets_one_and_who_made_room_goes_on_elsewhere(site: Site) -> None:
    lab, on = site.lab, site.spread()
    assert sorted(on) == sorted(NODES)
    job = lab.submit("bob", "--gres=gpu:8", script="sleep 60")
    wait_until(
        lambda: "Resources" in lab.run("squeue", "-h", "-o", "%r", "-j", str(job)),
        20, lambda: lab.run("squeue"),
    )  # fmt: skip

    pool = pool_of(site.ltgf.json("frag"))
    assert (pool["free_gpus"], pool["usable_gpus"], pool["stranded"]) == (26, 26, {})
    assert (pool["score"], pool["blocked_jobs"], pool["demand"]) == (1.0, 1, "pending")
    assert (pool["largest_gpus"], pool["largest_possible_gpus"]) == (7, 24)
    assert site.ltgf.ask("frag", "--check", "0.3").returncode == 1

    plan = site.ltgf.json("frag", "--plan")["plan"]
    (move,) = plan["moves"]
    assert (move["from"], move["job_id"], move["for"]) == ("n1", str(on["n1"]), str(job))
    assert move["to"] == "n4", "where it fits most tightly"
    assert (move["class"], move["cost_gpu_s"]) == ("training", 1.0)
    assert [(row["gpus"], row["nodes"]) for row in plan["starts"]] == [(8, ["n1"])]
    assert (plan["gain_gpus"], plan["blocked"], site.moves()) == (8, [], {})

    done = site.ltgf.json("frag", "--apply")["applied"]
    moved = on["n1"]
    assert [(row["job_id"], row["result"]) for row in done["moves"]] == [(str(moved), "requeued")]
    assert [(row["job_id"], row["started"]) for row in done["starts"]] == [(str(job), True)]
    assert (lab.job_state(job), site.node(job)) == ("RUNNING", "n1")
    assert {one: site.restarts(one) for one in on.values()} == {
        one: int(one == moved) for one in on.values()
    }
    record = site.moves()[moved]
    assert (record["state"], record["to_job"], record["by"]) == ("requeued", job, "ltgf frag")
    site.ready(moved, restart=1)
    assert site.node(moved) in ("n2", "n3", "n4")
    assert record["step"] == site.saved(moved) > 0
    site.end(moved)
    with Ledger(site.ltgf.path, readonly=True) as ledger:
        log = ledger.audit_last(9, action="exclude nodes", actor="ltgf frag")
    assert json.loads(log[-1].new or "") == ["n1"]
    assert [entry.reason for entry in log[:-1]] in ([], ["set back"])

    site.ltgf.run("sync")
    after = pool_of(site.ltgf.json("frag"))
    assert after["demand"] == "history"
    assert 0 < after["score"] < 1, "small jobs would find room, another one of 8 GPUs would not"
    again = site.ltgf.json("frag", "--apply")
    assert (again["plan"]["moves"], again["applied"]["moves"]) == ([], [])


def test_who_cannot_save_or_is_bound_stays_and_the_reason_is_told(site: Site) -> None:
    lab = site.lab
    for node in NODES[:3]:
        lab.submit("carol", "--gres=gpu:1", "-w", node)
    plain = lab.submit("alice", "--gres=gpu:1", "-x", "n1,n2,n3", script="sleep 60")
    lab.wait_state(plain, "RUNNING")
    job = lab.submit("bob", "--gres=gpu:8")
    plan = site.ltgf.json("frag", "--plan")["plan"]
    assert (plan["moves"], plan["stopped"]) == ([], None)
    assert plan["staying_by_reason"] == {
        "it cannot save: it has no checkpoint record": 1,
        "it is bound to nodes: named, exclusive or reserved ones": 3,
    }
    (blocked,) = plan["blocked"]
    assert (blocked["job_id"], blocked["leaving"]) == (str(job), [])
    done = site.ltgf.json("frag", "--apply")["applied"]
    assert (done["moves"], lab.job_state(plain), lab.job_state(job)) == ([], "RUNNING", "PENDING")


def test_killed_while_jobs_save_and_called_again_it_goes_on(site: Site) -> None:
    lab, on = site.lab, site.spread()
    job = lab.submit("bob", "--gres=gpu:8", script="sleep 60")
    ltgf = site.ltgf
    first = subprocess.Popen(ltgf.argv("frag", "--apply"), env=ltgf.env, stdout=subprocess.DEVNULL)
    wait_until(lambda: on["n1"] in site.moves(), 30, lambda: lab.run("squeue"))
    first.kill()
    first.wait()
    done = ltgf.ask("frag", "--apply", "--json")
    assert done.returncode == 0, done
    lab.wait_state(job, "RUNNING")
    moved = on["n1"]
    assert (site.node(job), site.restarts(moved)) == ("n1", 1)
    assert [one for one in on.values() if site.restarts(one)] == [moved]
    assert site.moves()[moved]["state"] == "requeued"
