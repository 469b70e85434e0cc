"""The report beside sreport on a real Slurm: requeued, suspended, array and MPS jobs.

sreport knows an hour only when slurmdbd has summed it up after its end, so the jobs are moved into
an hour that is over: their times in the database, and when slurmdbd last summed up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from commands import Ltgf
from lab import Lab, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.cluster
BACK_S = 3 * 3600


@pytest.fixture(scope="module")
def lab(cluster: Lab) -> Lab:
    """A cluster whose queue is empty, and whose database knows no job."""
    cluster.drain()
    return cluster


@pytest.fixture(scope="module")
def began(lab: Lab) -> int:
    """When the jobs ran, by the database."""
    then = int(time.time())
    done = [
        lab.submit("alice", "--gres=gpu:2", script="sleep 3"),
        lab.submit("alice", "--array=1-3", "--gres=gpu:1", script="sleep 2"),
        lab.submit("carol", "--gres=mps:50", script="sleep 2"),
    ]
    again = lab.submit("bob", "--requeue", "--gres=gpu:1", script="sleep 4")
    paused = lab.submit("bob", "--gres=gpu:4", script="sleep 6")
    for job in (again, paused):
        lab.wait_state(job, "RUNNING")
    time.sleep(2)
    lab.run("scontrol", "requeue", str(again))
    lab.run("scontrol", "suspend", str(paused))
    time.sleep(2)
    lab.run("scontrol", "resume", str(paused))
    for job in (*done, paused):
        lab.wait_state(job, "COMPLETED")
    lab.wait_state(again, "COMPLETED", timeout=150)
    lab.sacct(again, "start", "COMPLETED")
    return move_back(lab, then)


def move_back(lab: Lab, then: int) -> int:
    """Move the jobs since `then` into the middle of an hour that is over; where they begin now."""
    start = (then - BACK_S) // 3600 * 3600 + 900
    columns = ", ".join(
        f"{name} = {name} - {then - start}"
        for name in ("time_submit", "time_eligible", "time_start", "time_end")
    )
    lab.stop("slurmdbd")
    rolled = "unix_timestamp() - 86400"
    lab.sql(
        f"UPDATE ltgf_job_table SET {columns} WHERE time_submit >= {then - 5};"
        f"UPDATE ltgf_suspend_table SET time_start = time_start - {then - start},"
        f" time_end = time_end - {then - start};"
        "UPDATE ltgf_event_table SET time_start = time_start - 172800;"
        "DELETE FROM ltgf_assoc_usage_hour_table; DELETE FROM ltgf_usage_hour_table;"
        f"UPDATE ltgf_last_ran_table SET hourly_rollup = {rolled}, daily_rollup = {rolled},"
        f" monthly_rollup = {rolled};"
    )
    lab.start("slurmdbd")
    wait_until(
        lambda: "Hour  last ran" in lab.run("sacctmgr", "show", "stats"), 30, lambda: "no rollup"
    )
    return start


@pytest.fixture
def ltgf(lab: Lab, began: int, tmp_path: Path) -> Ltgf:
    """`ltgf` whose ledger has read the history."""
    found = Ltgf(lab, tmp_path)
    found.run("sync", "-S", str(began - 3600))
    return found


def test_gpu_time_is_sreports_to_the_second(ltgf: Ltgf, lab: Lab, began: int) -> None:
    # an odd window of half an hour: sreport is asked about the full hour around it
    report = ltgf.json("report", "--sreport", "-S", str(began - 300), "-E", str(began + 1500))
    beside = report["sreport"]
    hour = began // 3600 * 3600
    assert beside["window"] == {"start": hour, "end": hour + 3600}
    assert beside["rolled_up_until"] >= hour + 3600
    assert {r["user"]: r["difference_s"] for r in beside["rows"]} == {"alice": 0, "bob": 0}
    # sacct's own sum over all runs, suspended time and all
    since, until = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at)) for at in (began - 60, hour + 3600)
    )
    argv = ["sacct", "-a", "-X", "-D", "-n", "-P", "-S", since, "-E", until]
    argv += ["-o", "user,start,end,alloctres"]
    told: dict[str, int] = {}
    for line in lab.run("env", "SLURM_TIME_FORMAT=%s", *argv).splitlines():
        user, start, end, tres = line.split("|")
        gpus = dict(part.split("=") for part in tres.split(",") if part).get("gres/gpu", "0")
        told[user] = told.get(user, 0) + (int(end) - int(start)) * int(gpus)
    assert {r["user"]: r["sreport_s"] for r in beside["rows"]} == {
        name: told[name] for name in ("alice", "bob")
    }
    # attained leaves the suspended time out
    users = {row["user"]: row for row in report["users"]}
    assert 4 <= told["bob"] - users["bob"]["device_s"] <= 16
    assert users["carol"]["gpu_s"] > 0 == users["carol"]["device_s"]  # MPS


def test_hours_that_are_not_summed_up_are_named(ltgf: Ltgf, began: int) -> None:
    """REP-04: the cause of a difference is said, not the difference."""
    now = int(time.time())
    report = ltgf.json("report", "--sreport", "-S", str(began), "-E", str(now))
    beside = report["sreport"]
    assert beside["window"]["end"] == now // 3600 * 3600
    assert any("compared up to" in note for note in beside["notes"])
    assert all(row["alike"] for row in beside["rows"])


def test_sreport_away_is_said_with_exit_status_75(ltgf: Ltgf, lab: Lab, began: int) -> None:
    lab.stop("slurmdbd")
    try:
        done = ltgf.ask("report", "--sreport", "-S", str(began), "-E", str(began + 60))
    finally:
        lab.start("slurmdbd")
    assert done.returncode == 75
    assert "sacctmgr show" in done.stderr


def test_budgets_and_pools_are_of_now(ltgf: Ltgf, lab: Lab) -> None:
    modify = ("sacctmgr", "-i", "modify", "account", "bio", "set")
    lab.run(*modify, "GrpTRESMins=gres/gpu=1000")
    try:
        report = ltgf.json("report", "--capacity", "32")
    finally:
        lab.run(*modify, "GrpTRESMins=gres/gpu=-1")
    (row,) = report["budgets"]["rows"]
    assert (row["account"], row["budget_gpu_s"]) == ("bio", 60_000)
    assert len(row["times"]) == len(row["left"]) > 24
    assert row["left"][-1] > 0.9
    assert {pool["gpus"] for pool in report["fragmentation"]["rows"]} == {32}
    assert report["quality"]["notes"] == [
        note for note in report["quality"]["notes"] if "left out" not in note
    ]


def test_the_page_has_both_side_by_side(ltgf: Ltgf, began: int) -> None:
    out = ltgf.folder / "report.html"
    words = ["report", "--sreport", "-S", str(began), "-E", str(began + 900), "-o", str(out)]
    assert ltgf.ask(*words).returncode == 0
    page = out.read_text()
    assert "Here and sreport: the table (2 rows)" in page
    assert "of 2 users 0 differ" in page
