"""GPU-seconds on a real cluster: to the second what slurmctld and sacct say, job by job."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from commands import Ltgf
from lab import Lab, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster

LONG = "sleep 300"
#: Kind of job -> sbatch options, script. Each has an account of its own, so that slurmctld's
#: account of its usage is an account of this one job.
KINDS = {
    "one": (["--gres=gpu:1"], "sleep 3"),
    "five": (["--gpus=5", "-n3"], "sleep 2"),
    "typed": (["--gres=gpu:h200:8"], "sleep 9"),
    "nodes": (["-N2", "--gres=gpu:2"], "sleep 3"),
    "array": (["--array=1-3%2", "--gres=gpu:1"], "sleep 2"),
    "het": (["--gres=gpu:1", ":", "--gres=gpu:2"], "sleep 3"),
    "requeued": (["--gres=gpu:2", "--requeue"], LONG),
    "cancelled": (["--gres=gpu:4"], LONG),
    "suspended": (["--gres=gpu:2"], "sleep 6"),
    "resized": (["-N2", "--gres=gpu:1"], LONG),
    "mps": (["--gres=mps:50"], "sleep 4"),
    "cpu": ([], "sleep 2"),
    "waiting": (["-N4", "--gres=gpu:8"], LONG),
}
#: Records that sacct has of a job, where they are several.
SEVERAL = {"array": 3, "het": 2, "requeued": 3, "resized": 2}
PARTITION = "billed"


@pytest.fixture(
    scope="module", params=["cluster", pytest.param("trixie", marks=pytest.mark.trixie)]
)
def accounts(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """An account a kind, and a partition whose jobs are billed by hundredths of a GPU alone."""
    cluster: Lab = request.getfixturevalue(request.param)
    cluster.drain()
    names = ",".join(KINDS)
    weights = "TRESBillingWeights=CPU=0,GRES/gpu=100,GRES/mps=1"
    cluster.run("sacctmgr", "-i", "add", "account", names, "fairshare=1")
    cluster.run("sacctmgr", "-i", "add", "user", "alice", f"account={names}")
    cluster.run(
        "scontrol", "create", f"partitionname={PARTITION}", "nodes=ALL", "defaulttime=60", weights
    )
    yield cluster
    cluster.drain()
    cluster.run("scontrol", "delete", f"partitionname={PARTITION}")
    cluster.run("sacctmgr", "-i", "delete", "account", names)


@pytest.fixture(scope="module")
def jobs(accounts: Lab) -> dict[str, int]:
    """A job of each kind, all of them over."""
    lab = accounts
    ids = {kind: submit(lab, kind) for kind in KINDS}
    for kind in ("requeued", "suspended", "cancelled", "resized"):
        lab.wait_state(ids[kind], "RUNNING")
    assert lab.job_state(ids["waiting"]) == "PENDING"
    time.sleep(2)
    lab.run("scancel", str(ids["cancelled"]), str(ids["waiting"]))
    lab.run("scontrol", "suspend", str(ids["suspended"]))
    lab.run("scontrol", "requeue", str(ids["requeued"]))
    lab.run("scontrol", "update", f"job={ids['resized']}", "NumNodes=1")
    time.sleep(3)
    lab.run("scontrol", "resume", str(ids["suspended"]))
    run_again(lab, ids["requeued"])
    lab.run("scontrol", "requeue", str(ids["requeued"]))
    run_again(lab, ids["requeued"])
    lab.run("scancel", str(ids["requeued"]), str(ids["resized"]))
    for kind in ("one", "five", "typed", "nodes", "het", "suspended", "mps", "cpu"):
        lab.wait_state(ids[kind], "COMPLETED")
    wait_until(lambda: not lab.run("squeue", "-h"), 30, lambda: lab.run("squeue"))
    number = sum(SEVERAL.get(kind, 1) for kind in KINDS)
    wait_until(
        lambda: len(records(lab)) == number,
        30,
        lambda: f"{number}: {[row[:3] for row in records(lab)]}",
    )
    return ids


def run_again(lab: Lab, job: int) -> None:
    """See a job that was requeued wait, and then run for a while."""
    lab.wait_state(job, "PENDING")
    lab.wait_state(job, "RUNNING")
    time.sleep(2)


def submit(lab: Lab, kind: str) -> int:
    options, script = KINDS[kind]
    first, *parts = " ".join(options).split(" : ")
    whose = f"-A{kind} -p{PARTITION}"
    whole = " : ".join(f"{whose} {part}" for part in [first, *parts])
    return lab.submit("alice", *whole.split(), script=script)


@pytest.fixture(scope="module")
def told(jobs: dict[str, int], accounts: Lab, tmp_path_factory: Any) -> dict[str, Any]:
    """What `ltgf fairness` tells of them, history read by `ltgf sync`."""
    ltgf = Ltgf(accounts, tmp_path_factory.mktemp("fairness"))
    ltgf.run("sync")
    return ltgf.json("fairness", "--jobs")


def records(lab: Lab) -> list[tuple[str, int, str, int, int, str]]:
    """(account, job, state, submit, elapsed seconds, TRES) of each run that sacct has."""
    fields = "account,jobidraw,state,submit,start,elapsedraw,alloctres"
    argv = ["sacct", "-a", "-X", "-D", "-n", "-P", "-S", "now-1hour", "-o", fields]
    found = []
    for line in lab.run("env", "SLURM_TIME_FORMAT=%s", *argv, "-A", ",".join(KINDS)).splitlines():
        account, job, state, submit_s, start, elapsed, tres = line.split("|")
        if state != "PENDING" and "RUNNING" not in state:
            # a resized job's later record counts its time from the first one's start
            late = max(int(submit_s) - int(start), 0) if start.isdigit() else 0
            found.append((account, int(job), state, int(submit_s), int(elapsed) - late, tres))
    return found


def gpus_in(tres: str) -> float:
    """GPUs of sacct's list: the untyped total, else hundredths by gres/mps."""
    whole = re.search(r"gres/gpu=(\d+)", tres)
    shared = re.search(r"gres/mps=(\d+)", tres)
    return float(whole[1]) if whole else float(shared[1]) / 100 if shared else 0.0


def usage(lab: Lab) -> dict[str, tuple[int, int]]:
    """Account -> slurmctld's own usage: hundredths of GPU-seconds, and whole GPU-minutes."""
    fields = "Account%20,RawUsage%20,GrpTRESRaw%400"
    rows = lab.run("sshare", "-n", "-P", "-A", ",".join(KINDS), "-o", fields).splitlines()
    found = {}
    for account, raw, tres in (row.split("|") for row in rows):
        minutes = re.search(r"gres/gpu=(\d+)", tres)
        assert minutes
        found[account.strip()] = int(raw), int(minutes[1])
    return found


def attained(told: dict[str, Any]) -> dict[str, float]:
    return {row["tenant"]: row["attained_gpu_s"] for row in told["tenants"]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_is_charged_what_slurmctld_charges_it(
    kind: str, told: dict[str, Any], accounts: Lab
) -> None:
    # RawUsage is in seconds of billing, here 100 a GPU and 1 a gres/mps. slurmctld counts the time
    # that a job was suspended, sacct does not: the job got nothing from GPUs that Slurm took from
    # it, so LTGF charges as sacct and tells of that time apart.
    (row,) = (row for row in told["tenants"] if row["tenant"] == kind)
    held = row["attained_gpu_s"] + row["suspended_gpu_s"]
    assert (row["suspended_gpu_s"] > 0) == (kind == "suspended")
    slurms, minutes = usage(accounts)[kind]
    assert 0 <= slurms - held * 100 <= twice(accounts, kind) * 100
    # sshare's GrpTRESRaw is in whole minutes, and knows gres/gpu alone: no job of gres/mps
    assert minutes == (0 if kind == "mps" else slurms // 6000)


def twice(lab: Lab, kind: str) -> float:
    """GPU-seconds that slurmctld may charge twice: a resized job's, before it was resized.

    It charges the job's size until then, and at the end the new size since the job's start, or
    since the last PriorityCalcPeriod if that was later.
    """
    if kind != "resized":
        return 0.0
    before, after = (row for row in records(lab) if row[0] == kind)
    return before[4] * gpus_in(after[5])


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_is_charged_its_time_in_sacct_times_its_gpus(
    kind: str, told: dict[str, Any], jobs: dict[str, int], accounts: Lab
) -> None:
    mine = [row for row in records(accounts) if row[0] == kind]
    expected = sum(seconds * gpus_in(tres) for *_, seconds, tres in mine)
    assert attained(told)[kind] == expected
    of_jobs = [row["attained_gpu_s"] for row in told["jobs"] if row["tenant"] == kind]
    assert sum(of_jobs) == expected
    assert (expected > 0) == (kind not in ("waiting", "cpu"))


def test_each_job_is_one_row_however_often_it_ran(told: dict[str, Any]) -> None:
    rows = {kind: [row for row in told["jobs"] if row["tenant"] == kind] for kind in KINDS}
    several = {kind: SEVERAL[kind] for kind in ("array", "het")}
    used = {kind: len(found) for kind, found in rows.items() if attained(told)[kind] > 0}
    assert used == {kind: several.get(kind, 1) for kind in used}
    assert [row["gpus"] for row in rows["het"]] == [1, 2]


def test_what_was_requeued_is_charged_but_not_kept(told: dict[str, Any], accounts: Lab) -> None:
    (row,) = (row for row in told["jobs"] if row["tenant"] == "requeued")
    runs = [run for run in records(accounts) if run[0] == "requeued"]
    assert [run[2].split()[0] for run in runs] == ["REQUEUED", "REQUEUED", "CANCELLED"]
    last = max(runs, key=lambda run: run[3])
    assert row["kept_gpu_s"] == last[4] * 2 < row["attained_gpu_s"]


def test_nothing_is_skipped_or_suspect(told: dict[str, Any]) -> None:
    assert (told["skipped_total"], told["suspects_total"]) == (0, 0), told
    unpriced = [text for text in told["warnings"] if "priced" in text]
    assert unpriced == []
