"""scripts/cluster on a real Slurm: it starts, breaks, mends and stops what is its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab import SCRIPT, Lab, call
from where import PORT, STATE

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def _empty_queue(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for name in {"cluster", "trixie"} & set(request.fixturenames):
        request.getfixturevalue(name).drain()


@pytest.fixture
def second(cluster: Lab) -> Iterator[Lab]:
    lab = Lab(Path(f"{STATE}-second"), PORT + 1500)
    try:
        lab.up("--nodes", "1", "--gpus", "1")
        yield lab
    finally:
        lab.down("--purge")


def refused(*argv: str) -> str:
    done = call(str(SCRIPT), *argv)
    assert done.returncode
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_four_nodes_of_eight_gpus_are_idle(cluster: Lab) -> None:
    rows = cluster.run("sinfo", "-h", "-N", "-o", "%N %T %G").splitlines()
    assert rows == [f"n{i} idle gpu:h200:8,mps:h200:800" for i in (1, 2, 3, 4)]


def test_accounts_have_shares_and_users_a_default_account(cluster: Lab) -> None:
    argv = ["sacctmgr", "-n", "-P", "show", "assoc", "format=account,user,fairshare"]
    assert {"astro||4", "bio||2", "chem||1", "astro|alice|1"} <= set(cluster.run(*argv).split())
    users = cluster.run("sacctmgr", "-n", "-P", "show", "user", "format=user,defaultaccount")
    assert {"alice|astro", "bob|bio", "carol|chem"} <= set(users.split())


def test_a_gpu_job_is_accounted_to_its_users_account(cluster: Lab) -> None:
    job = cluster.submit("alice", "--gres=gpu:2")
    cluster.wait_state(job, "RUNNING")
    account, user, tres = cluster.sacct(job, "account,user,alloctres", "RUNNING")
    assert (account, user) == ("astro", "alice")
    assert {"gres/gpu=2", "gres/gpu:h200=2"} <= set(tres.split(","))


def test_a_job_sees_its_gpus(cluster: Lab) -> None:
    argv = ["srun", "--gres=gpu:3", "printenv", "CUDA_VISIBLE_DEVICES"]
    assert cluster.run(*argv, user="bob") == "0,1,2\n"


def test_a_requeued_job_runs_again_soon(cluster: Lab) -> None:
    job = cluster.submit("carol", "--gres=gpu:1")
    cluster.wait_state(job, "RUNNING")
    cluster.run("scontrol", "requeue", str(job))
    cluster.wait_state(job, "PENDING", timeout=20)
    cluster.wait_state(job, "RUNNING", timeout=40)


def test_up_twice_changes_nothing(cluster: Lab) -> None:
    before = cluster.status["daemons"]
    assert cluster.up().startswith("already up")
    assert cluster.status["daemons"] == before


def test_up_with_other_parameters_is_refused(cluster: Lab) -> None:
    message = refused("up", "--state", str(cluster.state), "--nodes", "3")
    assert "nodes 4 -> 3" in message


def test_slurmdbd_stops_and_starts(cluster: Lab) -> None:
    cluster.stop("slurmdbd")
    assert cluster.status["daemons"]["slurmdbd"] is None
    job = cluster.submit("alice", script="true")
    cluster.wait_state(job, "COMPLETED")
    cluster.start("slurmdbd")
    assert cluster.sacct(job, "user,exitcode", "COMPLETED") == ["alice", "0:0"]


def test_one_node_stops_and_starts(cluster: Lab) -> None:
    cluster.stop("slurmd:n2")
    daemons = cluster.status["daemons"]
    assert [name for name, pid in daemons.items() if pid is None] == ["slurmd:n2"]
    cluster.start("slurmd:n2")
    assert cluster.status["nodes"]["n2"] == "idle"


@pytest.mark.parametrize("daemon", ["munged", "mariadbd", "slurmctld", "slurmd"])
def test_up_starts_only_what_was_killed(cluster: Lab, daemon: str) -> None:
    before = cluster.status["daemons"]
    cluster.kill(daemon)
    assert call(str(SCRIPT), "status", "--state", str(cluster.state)).returncode == 3
    cluster.up()
    after = cluster.status["daemons"]
    changed = {name.partition(":")[0] for name in before if before[name] != after[name]}
    assert changed == {daemon}
    assert set(cluster.status["nodes"].values()) == {"idle"}


def test_sql_reads_the_accounting_database(cluster: Lab) -> None:
    assert cluster.sql("SELECT name FROM acct_table WHERE name = 'chem'") == "chem\n"


def test_exec_passes_the_commands_exit_status_on(cluster: Lab) -> None:
    argv = [str(SCRIPT), "exec", "--state", str(cluster.state), "--", "sh", "-c"]
    assert call(*argv, "exit 7").returncode == 7
    assert call(*argv, "kill -TERM $$").returncode == -signal.SIGTERM


def test_env_points_a_shell_at_the_cluster(cluster: Lab) -> None:
    line = f'eval "$({SCRIPT} env --state {cluster.state})"; scontrol show config'
    assert f"{cluster.state}/etc/slurm.conf" in cluster.run("env", "-i", "PATH=/usr/bin:/bin",
                                                            "sh", "-c", line)  # fmt: skip


def test_secrets_are_not_readable_by_users(cluster: Lab) -> None:
    modes = {"munge/key": 0o400, "etc/slurmdbd.conf": 0o600, "password": 0o600}
    for name, mode in modes.items():
        assert (cluster.state / name).stat().st_mode & 0o777 == mode
    argv = ["mariadb", "-u", "root", "-h", "127.0.0.1", "-P", str(cluster.port + 3), "-e", ""]
    assert call("setpriv", "--reuid=nobody", "--clear-groups", *argv).returncode


def test_a_long_state_path_is_refused() -> None:
    assert "at most 75" in refused("up", "--state", f"/run/{'x' * 80}")


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    state = f"/tmp/ltgf-{os.getpid()}"
    Path(state).symlink_to(tmp_path)
    try:
        assert "no cluster" in refused("up", "--state", state)
    finally:
        Path(state).unlink()


def test_a_cluster_of_another_root_with_the_same_state_is_refused(tmp_path: Path) -> None:
    state = Path(f"/run/ltgf-other-{os.getpid()}")
    own = f"mount -t tmpfs own /run && mkdir {state} && exec -a {state}/sbin/munged sleep 60"
    with subprocess.Popen(["unshare", "--mount", "bash", "-c", own]) as elsewhere:
        try:
            for _ in range(100):
                if (
                    str(state)
                    in Path(f"/proc/{elsewhere.pid}/cmdline").read_text().split("/sbin")[0]
                ):
                    break
                time.sleep(0.05)
            assert f"process {elsewhere.pid} is of a cluster" in refused(
                "up", "--state", str(state)
            )
        finally:
            elsewhere.kill()
    assert not state.exists()


def test_a_taken_port_is_named_with_its_owner(cluster: Lab) -> None:
    message = refused("up", "--state", "/run/ltgf-test3", "--port", str(cluster.port))
    assert f"port {cluster.port + 1}" in message
    assert f"{cluster.state}/sbin/slurmctld" in message
    assert not Path("/run/ltgf-test3").exists()


def test_set_replaces_and_adds_lines_of_slurm_conf(second: Lab) -> None:
    second.down()
    second.up("--set", "killwait=9", "--set", "PriorityWeightAge=7")
    lines = (second.state / "etc/slurm.conf").read_text().lower().splitlines()
    assert [line for line in lines if line.startswith("killwait=")] == ["killwait=9"]
    assert "PriorityWeightAge       = 7" in second.run("scontrol", "show", "config")


def test_an_unknown_key_is_one_line_that_names_it(second: Lab) -> None:
    second.down()
    assert "NoSuchKey" in refused("up", "--state", str(second.state), "--set", "NoSuchKey=1")


def test_a_kept_state_keeps_jobs_and_history(second: Lab) -> None:
    running = second.submit("alice", "--gres=gpu:1")
    waiting = second.submit("alice", "--gres=gpu:1")
    second.wait_state(running, "RUNNING")
    second.down()
    second.up()
    second.wait_state(waiting, "RUNNING")
    assert second.job_state(running) == "CANCELLED"


def test_down_ends_its_own_processes_and_no_other(cluster: Lab, second: Lab) -> None:
    kept = cluster.submit("alice", "--gres=gpu:1")
    cluster.wait_state(kept, "RUNNING")
    stubborn = second.submit("bob", script="trap : TERM; while :; do sleep 1; done")
    second.wait_state(stubborn, "RUNNING")
    other = subprocess.Popen(["tail", "-f", str(second.state / "etc/slurm.conf")])
    try:
        second.kill("slurmctld")
        second.kill("slurmd")
        second.down("--purge")
        assert not second.state.exists()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert cluster.job_state(kept) == "RUNNING"
    assert None not in cluster.status["daemons"].values()
    assert str(second.state) not in call("ps", "-eo", "args").stdout.replace("tail -f", "")


@pytest.mark.trixie
def test_trixie_runs_slurm_24_11(trixie: Lab) -> None:
    assert trixie.run("sacct", "--version").startswith("slurm-wlm 24.11")
    job = trixie.submit("alice", "--gres=gpu:2", script='test "$CUDA_VISIBLE_DEVICES" = 0,1')
    trixie.wait_state(job, "COMPLETED")
    account, tres, restarts = trixie.sacct(job, "account,alloctres,restarts", "COMPLETED")
    assert (account, restarts) == ("astro", "0")
    assert "gres/gpu=2" in tres.split(",")


@pytest.mark.trixie
def test_trixie_jobs_see_the_hosts_files_and_clients(trixie: Lab) -> None:
    out = Path("~bob/ltgf-srun-version").expanduser()
    try:
        job = trixie.submit("bob", script=f"srun --version > {out}")
        trixie.wait_state(job, "COMPLETED")
        assert "24.11" in out.read_text()
    finally:
        out.unlink(missing_ok=True)


@pytest.mark.trixie
def test_trixie_leaves_no_mount_on_the_host(trixie: Lab) -> None:
    assert trixie.status["root"] not in Path("/proc/self/mountinfo").read_text()
