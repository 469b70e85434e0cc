"""Leases on a real cluster: who yields saves, its GPUs go to whom they were freed for.

Four nodes of 8 GPUs, all of them alice's (astro); bob (bio) has none and asks for 8.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from commands import ROOT, Daemon, Ltgf
from lab import Lab, wait_until

from slurm_ltgf.store.ledger import Ledger

sys.path.insert(0, str(ROOT / "scripts"))
from train_in_step import expected

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.cluster, pytest.mark.moves]

STEP_MS, LEASE_S = 20, 8
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
class Site:
    """A cluster with a records folder, and a training that users can run."""

    lab: Lab
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

    def train(self, gpus: int, *options: str) -> int:
        """A training of alice's that runs until it is told its last step."""
        work = self.home / "work"
        script = f"""export PYTHONPATH={self.home}/lib LTGF_CKPT_RECORDS={self.home}/records
export LTGF_CKPT_DIR={work}/ckpt-$SLURM_JOB_ID
mkdir -p {work}/result-$SLURM_JOB_ID
exec python3 {self.home}/lib/train_in_step.py --steps 100000 --step-ms {STEP_MS} \\
    --result {work}/result-$SLURM_JOB_ID --end {work}/end-$SLURM_JOB_ID"""
        return self.lab.submit("alice", f"--gres=gpu:{gpus}", *options, script=script)

    def trainings(self, count: int, gpus: int) -> list[int]:
        """So many that run and can be asked."""
        jobs = [self.train(gpus) for _ in range(count)]
        self.ready(*jobs)
        return jobs

    def ready(self, *jobs: int, restart: int = 0) -> None:
        """Wait until these runs said that they can be asked."""
        paths = [next_answer(self.home / "records", job) for job in jobs]

        def are_ready() -> bool:
            return all(
                path.exists() and f"restart={restart}\n" in path.read_text() for path in paths
            )

        wait_until(are_ready, 40, lambda: self.lab.run("squeue", "-a"))

    def end(self, job: int) -> int:
        """Let a training come to its end, 400 steps after the one it has saved; the last step."""
        last = self.saved(job) + 400
        (self.home / "work" / f"end-{job}").write_text(str(last))
        self.lab.wait_state(job, "COMPLETED")
        found = (self.home / "work" / f"result-{job}" / "result-0").read_text()
        assert [found] == expected(last, 1)
        return last

    def saved(self, job: int) -> int:
        """The step of the last checkpoint."""
        link = self.home / "work" / f"ckpt-{job}" / "last"
        return int(link.readlink().name.split("-")[1].split(".")[0])

    def restarts(self, job: int) -> int:
        """How often Slurm has restarted it."""
        shown = self.lab.run("scontrol", "-o", "show", "job", str(job))
        return int(shown.split("Restarts=", 1)[1].split()[0])

    def start(self, job: int) -> int:
        """When its run began."""
        shown = self.lab.run(
            "env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-o", "%S", "-j", str(job)
        )
        return int(shown)

    def moves(self) -> dict[int, dict[str, Any]]:
        """Moves as they are written down, by job."""
        found = (self.home / "moves").glob("*.move")
        return {int(path.stem): json.loads(path.read_text()) for path in found}

    def requeues(self) -> list[tuple[str, str]]:
        """(job, state) of each step of a move in the log, oldest first."""
        with Ledger(self.ltgf("on").path, readonly=True) as ledger:
            log = ledger.audit_last(1000, action="requeue")
        return [(entry.job_id, str(entry.new)) for entry in reversed(log)]


def next_answer(records: Path, job: int) -> Path:
    """Where alice's job answers."""
    return records / f"{job}.1001.answer"


@pytest.fixture
def site(cluster: Lab) -> Iterator[Site]:
    """With an empty queue before and after."""
    cluster.drain()
    site = Site(cluster)
    shutil.rmtree(site.home, ignore_errors=True)
    for name, owner, mode in (
        ("", "root", 0o755),
        ("work", "alice", 0o755),
        ("records", "slurm", 0o1777),
    ):
        folder = site.home / name
        folder.mkdir()
        shutil.chown(folder, owner)
        folder.chmod(mode)
    lib = site.home / "lib" / "slurm_ltgf"
    shutil.copytree(ROOT / "slurm_ltgf" / "checkpoint", lib / "checkpoint")
    for name in ("__init__.py", "errors.py"):
        shutil.copy(ROOT / "slurm_ltgf" / name, lib)
    shutil.copy(ROOT / "scripts" / "train_in_step.py", lib.parent)
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
