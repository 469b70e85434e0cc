"""`ltgf doctor` on a real Slurm: what it finds, how it exits, and that it never hangs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from commands import as_user
from lab import Lab, call
from where import PORT, STATE

from slurm_ltgf.store.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster

SECONDS = 15
AS_USER = as_user("slurm_ltgf.cli.doctor", "slurm_ltgf.service.doctor")


def doctor(
    lab: Lab, *args: str, root: tuple[str, ...] = (), user: str = ""
) -> subprocess.CompletedProcess[str]:
    program = ["-c", AS_USER, user] if user else ["-m", "slurm_ltgf"]
    env = lab.env | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return call(sys.executable, *program, *root, "doctor", *args, env=env)


def report(lab: Lab, **options: Any) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit status, and the findings by name."""
    done = doctor(lab, "--json", **options)
    assert done.stderr == ""
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def to_fix(found: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, check in found.items() if check["level"] == "fix"}


@pytest.fixture
def small() -> Iterator[Lab]:
    """A cluster of one node whose slurm.conf a test may change."""
    lab = Lab(Path(f"{STATE}-doctor"), PORT + 2500)
    lab.down("--purge")
    try:
        yield lab
    finally:
        lab.down("--purge")


def test_a_good_cluster_has_nothing_to_fix(cluster: Lab, tmp_path: Path) -> None:
    code, found = report(cluster, root=("--ledger", str(tmp_path / "ledger.db")))
    assert (code, to_fix(found)) == (0, set())
    assert found["gpus"]["what"] == "32 on 4 nodes, all in service"
    assert found["cluster-name"]["what"] == "ltgf, known to slurmdbd"
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_of_this_cluster_is_judged(cluster: Lab, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.set_synced_until("ltgf", int(time.time()) - 7200)
    _, found = report(cluster, root=("--ledger", str(path)))
    assert found["ledger"]["level"] == "ok"
    assert found["history"] | {"fix": ""} == {
        "name": "history", "level": "note", "what": "complete only up to 2 h ago", "fix": "",
    }  # fmt: skip


def test_a_plain_user_is_told_how_to_get_the_rights(cluster: Lab) -> None:
    code, found = report(cluster, user="alice")
    assert code == 1
    assert "alice may not write SiteFactors" in found["rights"]["what"]
    assert found["rights"]["fix"].startswith(
        "sacctmgr -i modify user where name=alice set adminlevel=operator"
    )


def test_a_ledger_that_is_closed_to_the_user_is_said_so(cluster: Lab, tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.db").close()
    tmp_path.chmod(0o700)
    _, found = report(cluster, root=("--ledger", str(tmp_path / "ledger.db")), user="alice")
    assert "Permission denied" in found["ledger"]["what"]
    assert found["ledger"]["fix"].startswith("sudo -u slurm ltgf doctor")


def test_a_held_job_and_one_with_a_priority_of_its_own_are_noted(cluster: Lab) -> None:
    everything = ("--nodes=4", "--gres=gpu:8")
    running, by_hand, held = (cluster.submit("alice", *everything) for _ in range(3))
    try:
        cluster.wait_state(running, "RUNNING")
        cluster.run("scontrol", "update", f"job={by_hand}", "priority=500")
        cluster.run("scontrol", "hold", str(held))
        _, found = report(cluster)
        assert found["held-jobs"]["what"].endswith(f"until released: {held}")
        assert found["frozen-jobs"]["fix"].startswith(f"scontrol release {by_hand}  # ")
        cluster.run("scontrol", "release", str(by_hand))
        _, found = report(cluster)
        assert found["frozen-jobs"]["level"] == "ok"
    finally:
        cluster.drain()


def test_a_drained_node_is_noted_with_its_gpus(cluster: Lab) -> None:
    cluster.run("scontrol", "update", "nodename=n2", "state=drain", "reason=doctor")
    try:
        code, found = report(cluster)
    finally:
        cluster.run("scontrol", "update", "nodename=n2", "state=resume")
    assert code == 0
    assert "1 of 4 nodes take no jobs, 8 of 32 GPUs: n2 (" in found["gpus"]["what"]


def test_without_slurmdbd_that_is_the_finding(cluster: Lab) -> None:
    cluster.stop("slurmdbd")
    try:
        began = time.monotonic()
        code, found = report(cluster)
        assert time.monotonic() - began < SECONDS
    finally:
        cluster.start("slurmdbd")
    assert (code, to_fix(found)) == (1, {"slurmdbd"})
    assert "does not answer" in found["slurmdbd"]["what"]
    assert found["accounts"]["what"] == "not checked: slurmdbd does not answer"


def test_without_slurmctld_it_is_one_line_within_seconds(cluster: Lab) -> None:
    cluster.stop("slurmctld")
    try:
        began = time.monotonic()
        done, as_json = doctor(cluster), doctor(cluster, "--json")
        assert time.monotonic() - began < SECONDS
    finally:
        cluster.start("slurmctld")
    assert (done.returncode, as_json.returncode, done.stdout) == (3, 3, "")
    assert done.stderr.count("\n") == 1
    assert "slurmctld does not answer, so nothing was checked" in done.stderr
    assert json.loads(as_json.stdout)["reachable"] is False


@pytest.mark.parametrize(
    ("line", "name", "what", "fix"),
    [
        pytest.param(
            "PriorityType=priority/basic",
            "priority-type",
            "SiteFactor has no effect",
            "PriorityType=priority/multifactor  # ",
            id="basic priority",
        ),
        pytest.param(
            "PriorityWeightFairshare=5000000",
            "weights",
            "PriorityWeightFairShare 5000000",
            "PriorityWeightFairShare=999999  # ",
            id="a weight that no step exceeds",
        ),
        pytest.param(
            "PriorityWeightFairshare=2000000",
            "weights",
            "the order is not ours",
            "step = 2000001  # ",
            id="a weight that a larger step exceeds",
        ),
        pytest.param(
            "AccountingStorageTRES=gres/mps",
            "gpu-tracked",
            "lacks gres/gpu: no GPU-time of any job was ever recorded",
            "AccountingStorageTRES=gres/mps,gres/gpu  # ",
            id="GPUs not tracked",
        ),
        pytest.param(
            "PriorityFlags=INCR_ONLY",
            "priority-flags",
            "no priority ever falls",
            "#PriorityFlags=INCR_ONLY",
            id="priorities never fall",
        ),
    ],
)
def test_a_wrong_line_in_slurm_conf_is_found_and_its_fix_mends_it(
    small: Lab, line: str, name: str, what: str, fix: str
) -> None:
    small.up("--nodes", "1", "--gpus", "2", "--set", line)
    code, found = report(small)
    assert (code, to_fix(found)) == (1, {name})
    assert what in found[name]["what"]
    assert found[name]["fix"].startswith(fix)
    if "=" in fix.partition(" ")[0] and not fix.startswith("#"):
        small.down()
        small.up("--set", found[name]["fix"].partition(" ")[0])
        assert report(small)[0] == 0
