"""Preemption that Slurm itself starts, on a real cluster: the signal, the grace, and what is left.

Slurm sends each job's --signal at the start of its grace. What ends within the grace is over for
22.05, however it ended: no such job is started again by itself (24.11 requeues it).
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab import Lab, wait_until
from training_site import ALICE, Site, site_of, used

from slurm_ltgf.checkpoint.keys import encode
from slurm_ltgf.store.ledger import AuditEntry, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster

GRACE_S = 12
BY_PARTITION = f"""
PreemptType=preempt/partition_prio
PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime={GRACE_S} State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF State=UP
"""
#: What docs/how-to/make-a-job-preemptible.md says, but for `ltgf`, which the test runs for it.
WAITS = "if python3 -m slurm_ltgf.checkpoint stopped; then sleep 100; fi"


def configure(lab: Lab, config: str) -> None:
    """Give slurmctld another slurm.conf: what to preempt by is read at its start."""
    (lab.state / "etc" / "slurm.conf").write_text(config)
    lab.stop("slurmctld")
    lab.start("slurmctld")


@pytest.fixture(scope="module")
def signalling(cluster: Lab) -> Iterator[Lab]:
    """Preemption by QOS and by partition, with the job's own signal first."""
    before = (cluster.state / "etc" / "slurm.conf").read_text()
    config = before + "SlurmctldParameters=preempt_send_user_signal\n"
    configure(cluster, config + BY_PARTITION.replace("PreemptType", "#PreemptType"))
    run = cluster.run
    run("sacctmgr", "-i", "add", "qos", "grab", "preempt=normal", check=False)
    run("sacctmgr", "-i", "modify", "qos", "normal", "set", f"gracetime={GRACE_S}")
    run("sacctmgr", "-i", "modify", "account", "astro", "set", "qos+=grab", check=False)
    run("sacctmgr", "-i", "modify", "user", "alice", "set", "qos+=grab", check=False)
    yield cluster
    cluster.drain()
    run("sacctmgr", "-i", "modify", "qos", "normal", "set", "gracetime=-1")
    configure(cluster, before)


@pytest.fixture
def site(signalling: Lab) -> Iterator[Site]:
    yield from used(site_of(signalling, records=True))


def train(site: Site, node: str, *options: str, ranks: int = 1, then: str = "exit") -> int:
    """A training on all of a node, that saves when Slurm signals."""
    words = ("--gres=gpu:8", "-w", node, "--signal=USR2@60", *options)
    return site.submit(*words, ranks=ranks, start=f"srun --mpi=none -n{ranks}", then=then)


def log_of(site: Site, job: int, action: str) -> list[AuditEntry]:
    with Ledger(site.ltgf.path, readonly=True) as ledger:
        return ledger.audit_last(10, job_id=str(job), action=action)


def kept(site: Site, job: int) -> list[int]:
    with Ledger(site.ltgf.path, readonly=True) as ledger:
        return [until for (of, _), until in ledger.kept("ltgf").items() if of == job]


def forge(site: Site, job: int) -> Path:
    """Bob's word on alice's job, under her name; the file."""
    now = int(time.time())
    fresh = site.home / "forged"
    keys = {"what": "requeue", "time": now, "saved_at": now, "state": "requeued"}
    fresh.write_bytes(encode(keys))
    shutil.chown(fresh, "bob")
    return fresh.rename(site.home / "records" / "claims" / f"{job}.{ALICE}.{'f' * 16}")


def test_three_jobs_are_preempted_and_none_is_lost_without_a_word(site: Site) -> None:
    """One is requeued by its script, one waits for Slurm's own requeue, one just ends."""
    daemon, run = site.daemon(), site.lab.run
    asks = train(site, "n1", ranks=2, then=WAITS)
    waits, ends = train(site, "n2", then=WAITS), train(site, "n3")
    for job in (asks, waits, ends):
        site.ready(job)
    assert site.ask("checkpoint", str(asks), user="alice").returncode == 0
    began = time.time()
    high = site.lab.submit("alice", "-N3", "-w", "n[1-3]", "--gres=gpu:8", "--qos=grab")
    site.stopped(asks)
    # the one that asks: at once, not at the end of its grace, and once
    done = site.ask("requeue", str(asks), "--after-signal", "60s", user="alice")
    assert re.search(r"saved at step \d+; preempted by Slurm, requeued at once", done.stdout), done
    assert time.time() - began < GRACE_S
    # the one that ends: Slurm calls it completed, and the daemon says what that means
    site.lab.wait_state(ends, "COMPLETED")
    daemon.wait_line(f"job {ends}: saved at step .* for Slurm's signal and ended unfinished")
    (entry,) = log_of(site, ends, "run")
    assert (entry.new, entry.actor) == ("completed", "job of alice")
    run("scontrol", "requeue", str(ends))
    forged = forge(site, waits)
    site.lab.wait_state(high, "RUNNING")
    run("scancel", str(high))
    # all go on from where they were, and were requeued once
    last = {job: site.order_end(site.ready(job, restart=1), 1500) for job in (ends, asks, waits)}
    for job, step in last.items():
        site.check_end(job, step, ranks=2 if job == asks else 1)
        assert site.restarts(job) == 1
    # what was kept is known, and who moved the one that its user moved
    wait_until(lambda: all(kept(site, job) for job in last), 20, lambda: str(daemon.lines))
    for action, new in (("requeue", "requeued"), ("checkpoint", "saved")):
        (entry,) = log_of(site, asks, action)
        assert (entry.new, entry.actor) == (new, f"ltgf {action} by alice")
        assert re.search(r" [1-9]\d* GPU-s saved.*, as its user says", entry.reason)
    (entry,) = log_of(site, waits, "run")
    assert entry.new == "preempted"
    assert (log_of(site, waits, "requeue"), forged.exists()) == ([], False)
    jobs = {row["job_id"]: row for row in site.ltgf.json("fairness", "--jobs")["jobs"]}
    row = jobs[str(waits)]
    assert 0 < row["kept_gpu_s"] < row["attained_gpu_s"]  # 8 GPUs stood still in its grace
    assert daemon.matching("Traceback|Error") == []


def test_preempted_by_a_partition(site: Site) -> None:
    lab = site.lab
    config = (lab.state / "etc" / "slurm.conf").read_text()
    configure(lab, config.replace("\nPreemptType=preempt/qos", "").replace("#PreemptT", "PreemptT"))
    job = site.ready(train(site, "n4", "-p", "low", ranks=2, then=WAITS))
    seen = site.ltgf.json("requeue", str(job), "--dry-run")
    assert (seen["grace_s"], seen["signal_at_preemption"]) == (GRACE_S, True)
    high = lab.submit("alice", "-p", "high", "-w", "n4", "--gres=gpu:8")
    site.stopped(job)
    assert "requeued at once" in site.ltgf.run("requeue", str(job), "--after-signal", "60s")
    lab.wait_state(high, "RUNNING", timeout=GRACE_S)
    assert site.restarts(job) == 1
