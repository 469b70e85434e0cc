"""Leases on a real cluster: who yields saves, its GPUs go to whom they were freed for.

Four nodes of 8 GPUs, all of them alice's (astro); bob (bio) has none and asks for 8.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands import Daemon, Ltgf
from lab import Lab, wait_until
from trainings import STEP_MS, Trainings

from slurm_ltgf.store.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster

LEASE_S = 8
SETTINGS = f"""
[site]
ledger = "{{home}}/ledger.db"
[fairness]
window = "10min"
[queue]
lease = "{LEASE_S}s"
[daemon]
interval = "1s"
arrivals = "1s"
[checkpoint]
records = "{{home}}/records"
timeout = "20s"
stagger = "0s"
[lease]
mode = "{{mode}}"
min_run = "4s"
cost = "1s"
overhead = 0.5
per_hour = {{per_hour}}
"""


@dataclass
class Site(Trainings):
    """A cluster with trainings, and with daemons that look after leases."""

    daemons: list[Daemon] = field(default_factory=list)

    @property
    def home(self) -> Path:
        """Everything of these tests lies here."""
        return self.lab.state / "leases"

    def ltgf(self, mode: str, per_hour: int = 1, more: str = "") -> Ltgf:
        """`ltgf` with leases in this mode; more: settings of [lease]."""
        settings = SETTINGS.format(home=self.home, mode=mode, per_hour=per_hour) + more
        return Ltgf(self.lab, self.home, settings)

    def daemon(self, mode: str, per_hour: int = 1, more: str = "") -> Daemon:
        """Start the daemon."""
        self.daemons.append(Daemon(self.ltgf(mode, per_hour, more)))
        return self.daemons[-1]

    def requeues(self) -> list[tuple[str, str]]:
        """(job, state) of each step of a move in the log, oldest first."""
        with Ledger(self.ltgf("on").path, readonly=True) as ledger:
            log = ledger.audit_last(1000, action="requeue")
        return [(entry.job_id, str(entry.new)) for entry in reversed(log)]


@pytest.fixture
def site(cluster: Lab) -> Iterator[Site]:
    """With an empty queue before and after."""
    cluster.drain()
    site = Site(cluster)
    site.prepare()
    yield site
    for daemon in site.daemons:
        daemon.kill()
        print(*daemon.lines, sep="\n")
    cluster.drain()


def test_a_long_job_of_a_sated_tenant_yields_and_goes_on_where_it_was(site: Site) -> None:
    lab, trainings = site.lab, site.trainings(4, gpus=8)
    began = max(map(site.start, trainings))
    daemon = site.daemon("on")
    daemon.wait_passes()
    job = lab.submit("bob", "--gres=gpu:8", script="sleep 4")
    lab.wait_state(job, "RUNNING", timeout=LEASE_S + 25)
    assert site.start(job) - began >= LEASE_S - 4
    moved = [one for one in trainings if site.restarts(one)]
    assert len(moved) == 1, daemon.lines
    (one,) = moved
    wait_until(lambda: site.moves()[one]["state"] == "requeued", 10, lambda: str(site.moves()))
    move = site.moves()[one]
    assert (move["state"], move["to_job"], move["by"]) == ("requeued", job, "ltgf lease")
    assert move["step"] == site.saved(one) > 0
    why = site.ltgf("on").json("explain", str(one))
    assert (why["requeued"]["by"], why["requeued"]["time"]) == ("ltgf lease", move["ended_at"])
    assert f"for: bio's job {job} comes before it" in why["sentences"][0]
    assert "GPU-s saved" in why["sentences"][0]
    lab.wait_state(job, "COMPLETED")
    site.ready(one, restart=1)
    again = site.start(one)
    last = site.end(one)
    elapsed_s = int(lab.sacct(one, "elapsedraw", "COMPLETED")[0])
    assert elapsed_s < last * STEP_MS / 1000  # so long it would have taken from the start
    assert again > move["ended_at"]
    daemon.wait_passes(2)
    assert [step for step in site.requeues() if step[0] == str(one)] == [
        (str(one), state) for state in ("asked", "requeueing", "requeued")
    ]
    with Ledger(site.ltgf("on").path, readonly=True) as ledger:
        assert {key[0]: until for key, until in ledger.kept("ltgf").items()}[one] == move[
            "saved_at"
        ]
    assert daemon.stop()[0] == 0
    assert daemon.matching("Traceback|Error") == []


def test_two_small_jobs_make_room_together_and_no_other_gets_the_gpus(site: Site) -> None:
    lab, trainings = site.lab, site.trainings(8, gpus=4)
    # older than bob's, and each would fit where one of the others leaves
    small = [lab.submit("alice", "--gres=gpu:1", script="sleep 60") for _ in range(6)]
    job = lab.submit("bob", "--gres=gpu:8", script="sleep 20")
    time.sleep(max(max(map(site.start, trainings)) + LEASE_S - time.time(), 0))
    daemon = site.daemon("on", per_hour=2)
    lab.wait_state(job, "RUNNING", timeout=30)
    daemon.wait_passes(2)
    assert lab.job_state(job) == "RUNNING"
    assert {lab.job_state(one) for one in small} == {"PENDING"}
    moves = site.moves()
    assert len(moves) == 2, daemon.lines
    assert {move["state"] for move in moves.values()} == {"requeued"}, moves
    assert {move["to_job"] for move in moves.values()} == {job}
    assert {move["nodes"] for move in moves.values()} == {
        lab.run("squeue", "-h", "-o", "%N", "-j", str(job)).strip()
    }
    ends = [move["ended_at"] for move in moves.values()]
    assert max(ends) - min(ends) <= 2
    assert sum(map(site.restarts, trainings)) == 2
    assert daemon.matching("Traceback|Error") == []


def test_advise_tells_who_would_yield_and_moves_nobody(site: Site) -> None:
    lab, trainings = site.lab, site.trainings(4, gpus=8)
    job = lab.submit("bob", "--gres=gpu:8", script="sleep 5")
    daemon = site.daemon("advise")
    daemon.wait_line("would yield", LEASE_S + 15)
    daemon.wait_passes(3)
    said = daemon.matching("would yield")
    assert len(said) == len(set(said)) <= len(trainings)  # a change is told once
    told = site.ltgf("advise").json("lease")
    yields = [row for row in told["leases"] if row["verdict"] == "yield"]
    assert (told["mode"], told["stopped"]) == ("advise", None)
    assert [(row["to"], row["tenant"]) for row in yields] == [(str(job), "astro")]
    why = site.ltgf("advise").json("explain", yields[0]["job_id"])
    assert (why["lease"]["verdict"], why["lease"]["to"]) == ("yield", str(job))
    assert why["lease"]["ends"] == site.start(int(yields[0]["job_id"])) + LEASE_S
    assert 'requeued, were lease.mode "on": bio\'s job' in why["sentences"][-1]
    assert daemon.stop()[0] == 0
    assert (lab.job_state(job), site.moves(), site.requeues()) == ("PENDING", {}, [])
    assert sum(map(site.restarts, trainings)) == 0
    assert list((site.home / "records").glob("*.ask.*")) == []


def test_who_cannot_be_requeued_is_told_so_and_another_makes_room(site: Site) -> None:
    """Three that cannot save, and may lose their work here; the last in the order is not theirs."""
    lab = site.lab
    others = [lab.submit("alice", "--gres=gpu:8", script="sleep 300") for _ in range(3)]
    fixed = site.train(8, "--no-requeue")
    site.ready(fixed)
    job = lab.submit("bob", "--gres=gpu:8", script="sleep 20")
    time.sleep(max(site.start(fixed) + LEASE_S - time.time(), 0))
    daemon = site.daemon("on", more="preempt_without_checkpoint = true\n")
    lab.wait_state(job, "RUNNING", timeout=LEASE_S + 25)
    daemon.wait_passes(2)
    assert (site.restarts(fixed), sum(map(site.restarts, others))) == (0, 1), daemon.lines
    assert daemon.matching(f"lease of job {fixed}: .*--no-requeue")
    (moved,) = site.moves()
    assert moved in others
    assert site.requeues() == [(str(moved), "requeued")]
    assert daemon.matching("Traceback|Error") == []
