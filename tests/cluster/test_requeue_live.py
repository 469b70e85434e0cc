"""`ltgf requeue` on a real cluster: whatever is killed meanwhile, one requeue and no work lost."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from commands import ROOT, Ltgf, as_user
from lab import Lab, call, wait_until

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.protocol import Action, Ask, Phase, ask_id
from slurm_ltgf.store.ledger import Ledger

sys.path.insert(0, str(ROOT / "scripts"))
from train_in_step import expected

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.cluster, pytest.mark.moves]

ALICE = 1001
SETTINGS = """
[site]
ledger = "{state}/rq/ledger.db"
[checkpoint]
timeout = "30s"
hold = "60s"
stagger = "0s"
per_node = 10
"""
AS_USER = as_user(
    "numpy",
    *(f"slurm_ltgf.service.{name}" for name in ("moves", "terms")),
    *(f"slurm_ltgf.cli.{name}" for name in ("requeue", "checkpoint", "pause", "resume")),
    *(f"slurm_ltgf.slurm.{name}" for name in ("nodes", "site")),
    "slurm_ltgf.store.ledger",
)


@dataclass(frozen=True)
class Site:
    """A cluster with a records folder of SlurmUser's, and programs that users can read."""

    ltgf: Ltgf
    records: Path | None
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def lab(self) -> Lab:
        """The cluster."""
        return self.ltgf.lab

    @property
    def home(self) -> Path:
        """Everything of these tests lies here."""
        return self.lab.state / "rq"

    @property
    def moves(self) -> Path:
        """Where root's moves are."""
        return self.home / "moves"

    def submit(self, *options: str, ranks: int = 1, steps: int = 100_000, then: str = "") -> int:
        """Submit a training of alice's that runs until its steps are done; the job's id."""
        srun = f"srun --mpi=none -n{ranks} " if ranks > 1 else ""
        records = f"export LTGF_CKPT_RECORDS={self.records}\n" if self.records else ""
        work = f"cd {self.home}/work\n"
        script = f"""{work}export PYTHONPATH={self.home}/lib
export LTGF_CKPT_DIR={self.home}/work/ltgf-ckpt/$SLURM_JOB_ID
{records}{srun}python3 {self.home}/lib/train_in_step.py --steps {steps} --step-ms 5 \\
    --result {self.home}/work --end {self.home}/work/end-$SLURM_JOB_ID
{then}"""
        options = (f"--chdir={self.home}/work", "--gres=gpu:1", f"-n{ranks}", *options)
        return self.lab.submit("alice", *options, script=script)

    def folder(self, job: int) -> Path:
        """Its checkpoint folder."""
        return self.home / "work" / "ltgf-ckpt" / str(job)

    def board(self, job: int) -> Board:
        """Where it is asked."""
        return Board(self.records or self.folder(job))

    def ready(self, job: int, restart: int = 0) -> int:
        """Wait until the job says that it can be asked; its id."""

        def is_ready() -> bool:
            if not self.board(job).folder.exists():
                return False
            said = self.board(job).answer(job, ALICE)
            return said is not None and said.restart == restart

        wait_until(is_ready, 60, lambda: self.lab.run("squeue", "-a"))
        return job

    def show(self, name: str | int, field_: str) -> str:
        """A field of scontrol show job."""
        shown = self.lab.run("scontrol", "-o", "show", "job", str(name))
        return shown.split(f"{field_}=", 1)[1].split()[0]

    def restarts(self, name: str | int) -> int:
        """How often Slurm has restarted it."""
        return int(self.show(name, "Restarts"))

    def ask(self, *args: str, user: str = "") -> subprocess.CompletedProcess[str]:
        """Run `ltgf ARGS` as root or a user."""
        program = ("-c", AS_USER, user) if user else ("-m", "slurm_ltgf")
        own = {"XDG_STATE_HOME": str(self.home / "states" / (user or "root"))}
        return call(*self.ltgf.argv(*args, program=program), env=self.ltgf.env | own)

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start `ltgf ARGS` and do not wait for it."""
        process = subprocess.Popen(
            self.ltgf.argv(*args), env=self.ltgf.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def move(self, job: int) -> dict[str, Any]:
        """The move's file, {} without one."""
        try:
            found: dict[str, Any] = json.loads((self.moves / f"{job}.move").read_text())
        except FileNotFoundError:
            return {}
        return found

    def end(self, job: int, ranks: int = 1) -> None:
        """Let it come to its last step, and compare every rank's value to the last bit."""
        said = self.board(job).answer(job, ALICE)
        assert said is not None
        last = int((self.folder(job) / "last").readlink().name.split("-")[1].split(".")[0]) + 500
        (self.home / "work" / f"end-{job}").write_text(str(last))
        self.lab.wait_state(job, "COMPLETED")
        values = [(self.home / "work" / f"result-{rank}").read_text() for rank in range(ranks)]
        assert values == expected(last, ranks)


def site_of(cluster: Lab, *, records: bool) -> Site:
    home = cluster.state / "rq"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o755)
    folder = home / "records" if records else None
    (home / "work").mkdir()
    (home / "states").mkdir()
    (home / "states").chmod(0o1777)
    shutil.chown(home / "work", "alice")
    if folder:
        folder.mkdir()
        shutil.chown(folder, "slurm")
        folder.chmod(0o1777)
    lib = home / "lib"
    shutil.copytree(ROOT / "slurm_ltgf" / "checkpoint", lib / "slurm_ltgf" / "checkpoint")
    for name in ("__init__.py", "errors.py"):
        shutil.copy(ROOT / "slurm_ltgf" / name, lib / "slurm_ltgf")
    shutil.copy(ROOT / "scripts" / "train_in_step.py", lib)
    settings = SETTINGS.format(state=cluster.state)
    if folder:
        settings += f'records = "{folder}"\n'
    return Site(Ltgf(cluster, home, settings), folder)


def used(site: Site) -> Iterator[Site]:
    site.lab.drain()
    yield site
    for process in site.started:
        process.kill()
        process.communicate()
    site.lab.drain()


@pytest.fixture
def site(cluster: Lab) -> Iterator[Site]:
    """With a records folder."""
    yield from used(site_of(cluster, records=True))


@pytest.fixture
def bare(cluster: Lab) -> Iterator[Site]:
    """Without: each job is asked in its own folder."""
    yield from used(site_of(cluster, records=False))


# --- what is requeued -----------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 4])
def test_requeued_with_its_work(site: Site, ranks: int) -> None:
    site.ltgf.run("sync")  # there is a ledger for the log
    job = site.ready(site.submit(ranks=ranks))
    began = time.time()
    done = site.ltgf.json("requeue", str(job), "--reason", "room for another")
    assert (done["state"], done["job_id"]) == ("requeued", str(job))
    assert done["step"] > 0
    assert done["saved_gpu_s"] >= 0
    assert time.time() - began < 30
    assert site.restarts(job) == 1
    site.ready(job, restart=1)
    site.end(job, ranks)
    assert site.restarts(job) == 1
    with Ledger(site.ltgf.path, readonly=True) as ledger:
        entries = ledger.audit_last(10, job_id=str(job), action="requeue")
        kept = ledger.kept("ltgf")
    assert [entry.new for entry in entries] == ["requeued", "requeueing", "asked"]
    assert "for: room for another" in entries[0].reason
    assert [(key[0], until) for key, until in kept.items()] == [(job, done["saved"])]


def test_checkpoint_leaves_it_running(site: Site) -> None:
    job = site.ready(site.submit())
    done = site.ltgf.json("checkpoint", str(job))
    assert (done["state"], site.lab.job_state(job)) == ("saved", "RUNNING")
    assert (site.folder(job) / done["checkpoint"]).is_dir()
    site.end(job)


def test_one_task_of_an_array_even_if_its_id_is_the_arrays(site: Site) -> None:
    array = site.submit("--array=3,7")
    wait_until(
        lambda: (
            site.lab.run("squeue", "-h", "-r", "-o", "%T", "-j", str(array)).split()
            == ["RUNNING", "RUNNING"]
        ),
        60,
        lambda: site.lab.run("squeue", "-r"),
    )
    ids = dict(
        reversed(line.split())
        for line in site.lab.run("squeue", "-h", "-r", "-o", "%A %K", "-j", str(array)).splitlines()
    )
    assert str(array) in ids.values()
    last = next(task for task, raw in ids.items() if raw == str(array))
    for raw in ids.values():
        site.ready(int(raw))
    refused = site.ask("requeue", str(array))
    assert refused.returncode == 77
    assert "an array with 2 running tasks, name one of them" in refused.stderr
    done = site.ltgf.json("requeue", f"{array}_{last}")
    assert done["job_id"] == f"{array}_{last}"
    restarts = {task: site.restarts(f"{array}_{task}") for task in ids}
    assert restarts == {task: int(task == last) for task in ids}


def test_a_het_job_as_a_whole(site: Site) -> None:
    job = site.ready(site.submit("-n1", ":", "-n1", "--gres=gpu:1"))
    second = site.lab.run("squeue", "-h", "-o", "%A", "-j", str(job)).split()
    done = site.ltgf.json("requeue", str(job))
    assert done["job_id"] == str(job)
    assert {site.restarts(one) for one in second} == {1}
    site.ready(job, restart=1)
    site.end(job)


def test_what_slurm_would_not_requeue_is_never_asked(site: Site) -> None:
    job = site.ready(site.submit("--no-requeue"))
    refused = site.ask("requeue", str(job))
    assert (refused.returncode, refused.stdout) == (77, "")
    assert "--no-requeue" in refused.stderr
    assert list(site.records.glob("*.ask.*")) == []


def test_a_job_that_knows_nothing_of_us(site: Site) -> None:
    job = site.lab.submit("alice", "--gres=gpu:1")
    site.lab.wait_state(job, "RUNNING")
    refused = site.ask("requeue", str(job))
    assert refused.returncode == 77
    assert "no checkpoint record" in refused.stderr
    shown = site.ask("requeue", str(job), "--dry-run", "--without-checkpoint")
    assert "would be requeued without a checkpoint" in shown.stdout
    assert site.restarts(job) == 0
    assert site.ltgf.json("requeue", str(job), "--without-checkpoint")["lost_gpu_s"] >= 0
    assert site.restarts(job) == 1


def test_the_outlook_tells_what_slurms_own_preemption_would_leave(site: Site) -> None:
    job = site.ready(site.submit("--signal=USR2@60"))
    seen = site.ltgf.json("requeue", str(job), "--dry-run")
    assert (seen["ready"], seen["objections"], seen["mode"]) == (True, [], "app")
    assert (seen["grace_s"], seen["kill_wait_s"], seen["signal_at_preemption"]) == (0, 5, False)
    assert seen["runs_s"] >= 0
    assert "it can be asked" in site.ltgf.run("requeue", str(job), "--dry-run")
    assert list(site.records.glob("*.ask.*")) == []


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["queued", "asked", "requeueing"])
def test_the_helper_is_killed_and_called_again(site: Site, state: str) -> None:
    job = site.ready(site.submit())
    process = site.start("requeue", str(job))
    until = time.monotonic() + 30
    while site.move(job).get("state") != state and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.001)
    process.kill()
    _, complaint = process.communicate()
    assert process.returncode in (-signal.SIGKILL, 0), complaint
    assert site.ltgf.json("requeue", str(job))["state"] == "requeued"
    assert site.restarts(job) == 1
    site.ready(job, restart=1)
    site.end(job)


def test_the_helper_is_killed_and_the_job_requeued_before_it_comes_back(site: Site) -> None:
    job = site.ready(site.submit())
    process = site.start("requeue", str(job))
    wait_until(lambda: site.move(job).get("state") == "requeueing", 30, lambda: str(site.move(job)))
    process.kill()
    process.wait()
    wait_until(lambda: site.restarts(job) <= 1, 5, lambda: "twice")
    site.ask("requeue", str(job))  # goes on, or refuses: the job is not running again yet
    site.ready(job, restart=1)
    assert site.restarts(job) == 1
    site.end(job)


def test_slurmctld_restarts_in_the_middle(site: Site) -> None:
    job = site.ready(site.submit())
    process = site.start("requeue", str(job), "--json")
    wait_until(lambda: site.move(job).get("state") == "asked", 30, lambda: str(site.move(job)))
    site.lab.stop("slurmctld")
    time.sleep(2)
    assert process.poll() is None
    site.lab.start("slurmctld")
    said, complaint = process.communicate(timeout=90)
    assert (process.returncode, json.loads(said)["state"]) == (0, "requeued"), complaint
    assert site.restarts(job) == 1
    site.ready(job, restart=1)
    site.end(job)


def test_a_deadline_leaves_the_job_running_and_a_second_try_can_do_it(site: Site) -> None:
    job = site.ready(site.submit(ranks=2))
    path = site.folder(job) / "fault-1"
    path.write_text("hang 8")
    shutil.chown(path, "alice")
    done = site.ask("requeue", str(job), "--within", "3s")
    assert done.returncode == 75, done
    assert "the job runs on" in done.stderr
    assert (site.lab.job_state(job), site.restarts(job)) == ("RUNNING", 0)
    time.sleep(8)
    assert site.ltgf.json("requeue", str(job))["state"] == "requeued"
    site.ready(job, restart=1)
    site.end(job, ranks=2)


def test_ctrl_c_takes_the_ask_back(site: Site) -> None:
    job = site.ready(site.submit(ranks=2))
    path = site.folder(job) / "fault-1"
    path.write_text("hang 5")
    shutil.chown(path, "alice")
    process = site.start("requeue", str(job))
    wait_until(lambda: site.move(job).get("state") == "asked", 30, lambda: str(site.move(job)))
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=30)
    assert (process.returncode, "taken back" in complaint) == (75, True)
    assert (site.lab.job_state(job), site.restarts(job)) == ("RUNNING", 0)


def test_slurm_preempts_it_meanwhile_and_requeues_it_once(site: Site) -> None:
    run = site.lab.run
    run("sacctmgr", "-i", "add", "qos", "rqhigh", "preempt=normal", check=False)
    run("sacctmgr", "-i", "modify", "qos", "normal", "set", "gracetime=4")
    run("sacctmgr", "-i", "modify", "account", "astro", "set", "qos+=rqhigh", check=False)
    run("sacctmgr", "-i", "modify", "user", "alice", "set", "qos+=rqhigh", check=False)
    try:
        job = site.ready(site.submit("--gres=gpu:8", "-w", "n1", ranks=2, then="sleep 100"))
        path = site.folder(job) / "fault-1"
        path.write_text("hang 30")
        shutil.chown(path, "alice")
        process = site.start("requeue", str(job))
        wait_until(lambda: site.move(job).get("state") == "asked", 30, lambda: str(site.move(job)))
        high = site.lab.submit("alice", "--gres=gpu:8", "-w", "n1", "--qos=rqhigh")
        site.lab.wait_state(high, "RUNNING")
        _, complaint = process.communicate(timeout=60)
        assert process.returncode == 75
        assert "Slurm or somebody else requeued it meanwhile" in complaint
        site.lab.wait_state(job, "PENDING")
        assert site.restarts(job) == 1
    finally:
        site.lab.drain()
        run("sacctmgr", "-i", "modify", "qos", "normal", "set", "gracetime=-1")


def test_after_slurms_signal_the_script_has_its_job_requeued_if_time_was_the_reason(
    site: Site,
) -> None:
    """Slurm sends the signal up to a minute early, so it comes soon after the start."""
    job = site.ready(site.submit("--time=5", "--signal=B:USR2@75", then="sleep 100"))
    refused = site.ask("requeue", str(job), "--after-signal", "75s")
    assert (refused.returncode, "neither preempts it" in refused.stderr) == (77, True)
    site.lab.run("scontrol", "update", f"job={job}", "timelimit=1")
    done = site.ltgf.run("requeue", str(job), "--after-signal", "75s")
    assert "its time limit was near, requeued" in done
    assert site.restarts(job) == 1


# --- who asks -------------------------------------------------------------------------------------


def test_a_user_asks_for_a_job_of_hers_and_for_nobody_elses(bare: Site) -> None:
    job = bare.ready(bare.submit())
    refused = bare.ask("requeue", str(job), user="bob")
    assert (refused.returncode, "Permission denied" in refused.stderr) == (77, True)
    assert list(bare.folder(job).glob("*.ask.*")) == []
    done = bare.ask("requeue", str(job), "--json", user="alice")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "requeued"), done
    bare.ready(job, restart=1)
    bare.end(job)


def test_root_asks_in_a_jobs_own_folder_as_its_user(bare: Site) -> None:
    job = bare.ready(bare.submit())
    process = bare.start("requeue", str(job), "--json")
    asked = bare.folder(job) / f"{job}.ask.{ALICE}"
    wait_until(asked.exists, 30, lambda: str(list(bare.folder(job).iterdir())))
    assert not (bare.folder(job) / f"{job}.ask.0").exists()
    said, complaint = process.communicate(timeout=60)
    assert json.loads(said)["state"] == "requeued", complaint


def test_slurmuser_asks_by_the_records_folder_and_others_are_not_heard(site: Site) -> None:
    job = site.ready(site.submit())
    now = int(time.time())
    forged = Ask(ask_id(), job, 0, Action.REQUEUE, now + 60, now + 120, now + 1000)
    bob = site.lab.run("id", "-u", "bob").strip()
    path = site.records / f"{job}.ask.{bob}"
    Board(site.records).ask(forged)
    (site.records / f"{job}.ask.0").rename(path)
    shutil.chown(path, "bob")
    time.sleep(2)
    said = site.board(job).answer(job, ALICE)
    assert said is not None
    assert said.phase is Phase.READY
    shutil.chown(site.home, "slurm")
    done = site.ask("requeue", str(job), "--json", user="slurm")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "requeued"), done
    assert site.restarts(job) == 1


def test_another_users_job_is_not_requeued_by_a_user(site: Site) -> None:
    job = site.ready(site.submit())
    done = site.ask("requeue", str(job), "--within", "5s", user="bob")
    assert done.returncode in (75, 77)
    assert (site.lab.job_state(job), site.restarts(job)) == ("RUNNING", 0)
