"""`ltgf requeue` on a real cluster: whatever is killed meanwhile, one requeue and no work lost."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest
from lab import Lab, wait_until
from training_site import ALICE, Site, site_of, used

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.protocol import Action, Ask, Phase, ask_id
from slurm_ltgf.store.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster


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
        kept, counters = ledger.kept("ltgf"), ledger.counters("ltgf")
    assert [entry.new for entry in entries] == ["requeued", "requeueing", "asked"]
    assert "for: room for another" in entries[0].reason
    assert counters["requeues", "saved"] == counters["checkpoints", "saved"] == 1
    assert counters["saved_gpu_s", ""] == done["saved_gpu_s"]
    assert counters["lost_gpu_s", ""] == done["lost_gpu_s"]
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
    then = "if python3 -m slurm_ltgf.checkpoint stopped; then sleep 100; fi"
    job = site.ready(site.submit("--time=5", start="srun --mpi=none -n1", then=then))
    after = ("requeue", str(job), "--after-signal", "75s")
    site.lab.run("scontrol", "update", f"job={job}", "timelimit=1")
    assert "its program did not stop for Slurm's signal" in site.ltgf.run(*after)
    site.lab.run("scancel", "-s", "USR2", str(job))  # as --signal=USR2@75 would
    site.stopped(job)
    site.lab.run("scontrol", "update", f"job={job}", "timelimit=5")
    assert "neither preempts it nor is its time up" in site.ltgf.run(*after)
    assert site.restarts(job) == 0
    site.lab.run("scontrol", "update", f"job={job}", "timelimit=1")
    assert re.search(r"saved at step \d+; its time limit was near, requeued", site.ltgf.run(*after))
    assert site.restarts(job) == 1
    site.ready(job, restart=1)
    site.end(job)


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
