"""The site_factor plugin in a real slurmctld: newcomers, passes, bad tables, restarts, and without.

Slurm walks over the jobs once a minute and when slurmctld starts; a restart is the quicker way.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands import ROOT, Daemon, Ltgf
from lab import Lab, call, wait_until
from where import PORT, STATE, running

from slurm_ltgf.store.factor_table import Anchor, FactorFile, FactorTable
from tests.c_tools import need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.cluster

#: The configured Slurm source is kept here: 11 s the first time.
CACHE = Path("/var/cache/ltgf-test/site_factor")
SLURM_PLUGINS = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
LONG = "sleep 900"
MILLION = 1_000_000


@pytest.fixture(scope="module")
def plugins(cluster: Lab) -> Path:
    """The folder with the plugin, built for this machine's Slurm (which `cluster` installed)."""
    need("gcc", "make", "patch", "dpkg-source")
    out = CACHE / f"plugins-{PORT}"
    argv = ("make", "-s", "-C", str(ROOT / "site_factor"), f"SLURM_CACHE={CACHE}", f"OUT={out}")
    done = call(*argv, limit_s=600)
    assert done.returncode == 0, done.stdout
    return out


@pytest.fixture(scope="module")
def lab(plugins: Path) -> Iterator[Lab]:
    """A cluster of its own with the plugin, on which astro holds all GPUs but one."""
    state = f"{STATE}-sf"
    lines = (
        f"PluginDir={SLURM_PLUGINS}:{plugins}",
        "PrioritySiteFactorPlugin=site_factor/ltgf",
        f"PrioritySiteFactorParameters={state}/run/factors",
        "PriorityCalcPeriod=1",
        "SlurmctldDebug=debug",
    )
    for lab in running(state, PORT + 500, *(word for line in lines for word in ("--set", line))):
        for gpus in (8, 8, 8, 7):
            lab.wait_state(lab.submit("alice", f"--gres=gpu:{gpus}", script=LONG), "RUNNING")
        yield lab
        lab.drain()


@pytest.fixture
def table(lab: Lab) -> Iterator[FactorFile]:
    """The table's file: none at first, and none after a test."""
    file = FactorFile(lab.state / "run/factors")
    file.remove()
    wait_state(file, "is not there")
    yield file
    clear(file.path)


@pytest.fixture
def ltgf(lab: Lab, table: FactorFile, tmp_path: Path) -> Iterator[Ltgf]:
    """`ltgf` that writes the table; what a test submits is gone after it."""
    mine = set(lab.run("squeue", "-h", "-o", "%A").split())
    settings = f"[site]\nfactor_table = '{table.path}'\n[fairness]\nwindow = '1s'\n"
    yield Ltgf(lab, tmp_path, f"{settings}[daemon]\ninterval = '1s'\n")
    left = set(lab.run("squeue", "-h", "-o", "%A").split()) - mine
    if left:
        lab.run("scancel", "-Q", *sorted(left), check=False)
    wait_until(lambda: not factors(lab), 20, lambda: lab.run("squeue"))


def wait_state(file: FactorFile, words: str) -> None:
    """Wait until the plugin says of its table that it is so."""

    def said() -> bool:
        status = file.status()
        return status is not None and words in status.state

    wait_until(said, 15, lambda: f"{words!r}, the plugin says {file.status()}")


def clear(path: Path) -> None:
    """Take away whatever stands there."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)


def factors(lab: Lab) -> dict[int, int]:
    rows = lab.run("sprio", "-h", "-o", "%i %S").split()
    return dict(zip(map(int, rows[::2]), map(int, rows[1::2]), strict=True))


def waiting(lab: Lab, user: str, *options: str, gpus: int = 2) -> int:
    return lab.submit(user, f"--gres=gpu:{gpus}", *options, script=LONG)


def seen(lab: Lab, *jobs: int) -> dict[int, int]:
    """SiteFactors once sprio has all these jobs, which takes it a moment."""
    wait_until(lambda: set(jobs) <= factors(lab).keys(), 10, lambda: lab.run("sprio"))
    return factors(lab)


def walk(lab: Lab) -> None:
    """Let Slurm walk over its jobs: it does when it starts."""
    lab.stop("slurmctld")
    lab.start("slurmctld")


def know_nodes(lab: Lab) -> None:
    """Wait until slurmctld, just started, has heard of its nodes: jobs then wait for GPUs alone."""

    def known() -> bool:
        probe = waiting(lab, "alice")
        reason = lab.run("squeue", "-h", "-o", "%r", "-j", str(probe))
        lab.run("scancel", str(probe))
        return "ReqNodeNotAvail" not in reason

    wait_until(known, 30, lambda: lab.run("sinfo", "-N"))


def by_priority(lab: Lab) -> list[int]:
    rows = lab.run("squeue", "-h", "-t", "PD", "--sort=-p,i", "-o", "%A").split()
    return [int(job) for job in rows]


def log_lines(lab: Lab, words: str) -> list[str]:
    lines = (lab.state / "log/slurmctld.log").read_text().splitlines()
    return [line for line in lines if words in line]


def simple(labels: dict[int, int], *, age_s: int = 0) -> FactorTable:
    """A table of these labels and no tenants, so old."""
    return FactorTable(
        generated_ns=(int(time.time()) - age_s) * 10**9,
        stale_after_s=600,
        anchors=[Anchor(-2, 2000 * MILLION), Anchor(1e300, 1)],
        labels=labels,
    )


# --- what it is for -------------------------------------------------------------------------------


def test_the_plugin_exports_what_slurm_asks_for_and_no_more(plugins: Path):
    names = call("nm", "-D", "--defined-only", str(plugins / "site_factor_ltgf.so")).stdout.split()
    assert sorted(names[2::3]) == [
        "fini", "init", "plugin_name", "plugin_type", "plugin_version",
        "site_factor_p_reconfig", "site_factor_p_set", "site_factor_p_update",
    ]  # fmt: skip


def test_a_new_job_is_right_at_submission_and_a_burst_steps_down(lab: Lab, ltgf: Ltgf):
    jobs = {user: waiting(lab, user) for user in ("alice", "bob", "carol")}
    seen(lab, *jobs.values())
    done = ltgf.json("tick")
    assert (done["by"], done["written"]) == ("table", 3)
    wait_state(FactorFile(lab.state / "run/factors"), "ok")
    walk(lab)
    assert seen(lab, *jobs.values()) == FactorFile(lab.state / "run/factors").labels()

    know_nodes(lab)
    # bio and chem hold nothing, astro 31 GPUs; bio has 2 shares of 7 and chem 1: by what is charged
    # in advance, b b c b b c ... a; with an entry for each, bob's burst does not pass carol's next
    burst = [waiting(lab, "bob") for _ in range(4)]
    carol, alice = waiting(lab, "carol"), waiting(lab, "alice")
    labels = seen(lab, *burst, carol, alice)
    assert [labels[job] for job in burst] == sorted({labels[job] for job in burst}, reverse=True)
    b, c, a = jobs["bob"], jobs["carol"], jobs["alice"]
    order = by_priority(lab)
    assert sorted(order[:2]) == sorted([b, c]), "both have held nothing"
    assert order.index(burst[0]) < order.index(carol) < order.index(burst[3])
    assert order[-2:] == [a, alice]
    rows = ltgf.json("queue")["jobs"]
    assert [int(row["job_id"]) for row in rows] == order, "a pass would have them so"


def test_a_pass_reaches_waiting_jobs_at_slurms_next_walk(lab: Lab, ltgf: Ltgf, table: FactorFile):
    jobs = [waiting(lab, "bob") for _ in range(3)]
    seen(lab, *jobs)
    before = len(log_lines(lab, "pending jobs took"))
    table.write(simple({job: (i + 1) * MILLION for i, job in enumerate(jobs)}))
    wait_state(table, "ok")
    assert set(factors(lab).values()) == {0}, "nobody passes the others before all have labels"
    walk(lab)
    assert seen(lab, *jobs) == table.labels()
    assert by_priority(lab) == jobs[::-1]
    assert len(log_lines(lab, "pending jobs took")) > before


def test_held_jobs_and_priorities_set_by_hand_stay_as_they_are(
    lab: Lab, ltgf: Ltgf, table: FactorFile
):
    held, by_hand = waiting(lab, "bob", "--hold"), waiting(lab, "bob")
    lab.run("scontrol", "update", f"job={by_hand}", "priority=4242")
    table.write(simple({held: 7 * MILLION, by_hand: 8 * MILLION}))
    wait_state(table, "ok")
    walk(lab)
    rows = lab.run("squeue", "-h", "-o", "%A=%Q", "-j", f"{held},{by_hand}").split()
    assert sorted(rows) == [f"{held}=0", f"{by_hand}=4242"]
    lab.run("scontrol", "release", str(held))
    assert seen(lab, held)[held] == 7 * MILLION, "a job that is released has its label at once"


def test_reconfigure_goes_to_another_table_and_forgets_nothing_of_the_same(
    lab: Lab, ltgf: Ltgf, table: FactorFile
):
    job = waiting(lab, "bob")
    table.write(simple({job: 5 * MILLION}))
    wait_state(table, "ok")
    walk(lab)
    conf = lab.state / "etc/slurm.conf"
    text = conf.read_text()
    read = len(log_lines(lab, "is read:"))
    lab.run("scontrol", "reconfigure")
    other = FactorFile(table.path.with_name("other"))
    other.write(simple({job: 6 * MILLION}))
    try:
        conf.write_text(text.replace(f"Parameters={table.path}", f"Parameters={other.path}"))
        lab.run("scontrol", "reconfigure")
        wait_state(other, "ok")
        assert table.status() is None
        assert len(log_lines(lab, "is read:")) == read + 1
        lab.run("scontrol", "update", f"job={job}", "comment=asks")
        assert factors(lab)[job] == 6 * MILLION
    finally:
        conf.write_text(text)
        other.remove()
        lab.run("scontrol", "reconfigure")
        wait_state(table, "ok")


def test_arrays_and_jobs_of_others_accounts(lab: Lab, ltgf: Ltgf, table: FactorFile):
    know_nodes(lab)
    first = waiting(lab, "bob")
    seen(lab, first)
    ltgf.run("tick")
    wait_state(table, "ok")
    walk(lab)
    array = waiting(lab, "bob", "--array=1-4")
    after, root = waiting(lab, "bob"), lab.submit("root", "--gres=gpu:2", script=LONG)
    labels = seen(lab, first, array, after, root)
    assert labels[first] > labels[array] > labels[after] > labels[root] == 0


# --- what can go wrong ----------------------------------------------------------------------------


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100] ^= 4
    path.write_bytes(content)


def huge(path: Path) -> None:
    os.truncate(path, 1 << 33)


def linked(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def closed(path: Path) -> None:
    path.chmod(0o600)


def a_users(path: Path) -> None:
    shutil.chown(path, "bob")


def open_to_all(path: Path) -> None:
    path.chmod(0o666)


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "gone": (Path.unlink, "is not there"),
    "truncated": (truncated, "is cut off"),
    "flipped": (flipped, "is damaged"),
    "empty": (lambda path: os.truncate(path, 0), "is shorter"),
    "huge": (huge, "is larger than 64 MiB"),
    "linked": (linked, "is a symbolic link"),
    "piped": (piped, "is no plain file"),
    "closed": (closed, "is closed to SlurmUser"),
    "a user's": (a_users, "belongs to neither root nor SlurmUser"),
    "open to all": (open_to_all, "may be written by others"),
}


def test_bad_tables_give_0_one_line_each_and_slurmctld_lives(
    lab: Lab, ltgf: Ltgf, table: FactorFile
):
    job = waiting(lab, "bob")
    table.write(simple({job: 5 * MILLION}))
    wait_state(table, "ok")
    walk(lab)
    assert seen(lab, job)[job] == 5 * MILLION
    pid = lab.status["daemons"]["slurmctld"]
    for name, (damage, words) in BAD.items():
        damage(table.path)
        wait_state(table, words)
        lab.run("scontrol", "update", f"job={job}", f"comment={name}")  # asks the plugin
        assert factors(lab)[job] == 0, name
        clear(table.path)
        table.write(simple({job: 5 * MILLION}))
        wait_state(table, "ok")
        lab.run("scontrol", "update", f"job={job}", f"comment={name}")
        assert factors(lab)[job] == 5 * MILLION, name
        assert len(log_lines(lab, f"factors {words}")) <= 12
    assert lab.status["daemons"]["slurmctld"] == pid
    assert "UP" in lab.run("scontrol", "ping")


def test_a_stale_table_counts_for_nothing(lab: Lab, ltgf: Ltgf, table: FactorFile):
    job = waiting(lab, "bob")
    table.write(simple({job: 5 * MILLION}))
    wait_state(table, "ok")
    walk(lab)
    assert seen(lab, job)[job] == 5 * MILLION
    before = len(log_lines(lab, "too old"))
    table.write(simple({job: 5 * MILLION}, age_s=601))
    wait_state(table, "too old")
    time.sleep(2)
    assert len(log_lines(lab, "too old")) == before + 1
    walk(lab)
    assert seen(lab, job)[job] == 0


WRITER = """
import sys, time
from pathlib import Path
from slurm_ltgf.store.factor_table import Anchor, FactorFile, FactorTable
from tests.c_tools import need
labels = {i: i for i in range(1, 20000)} | {int(sys.argv[2]): 6_000_000}
print("ready", flush=True)
while True:
    now = time.time_ns()
    anchors = [Anchor(-2, 2), Anchor(1e300, 1)]
    FactorFile(Path(sys.argv[1])).write(FactorTable(now, 600, anchors, labels=labels))
"""


def test_a_writer_killed_in_the_middle_leaves_a_whole_table(
    lab: Lab, ltgf: Ltgf, table: FactorFile
):
    job = waiting(lab, "bob")
    table.write(simple({job: 6 * MILLION}))
    wait_state(table, "ok")
    walk(lab)
    chance = random.Random(4)
    for _ in range(8):
        argv = [sys.executable, "-c", WRITER, str(table.path), str(job)]
        with subprocess.Popen(argv, env=ltgf.env, stdout=subprocess.PIPE) as writer:
            assert writer.stdout
            writer.stdout.readline()
            time.sleep(chance.uniform(0, 0.3))
            writer.kill()
        assert table.labels()[job] == 6 * MILLION
        lab.run("scontrol", "update", f"job={job}", "comment=asks")
        assert factors(lab)[job] == 6 * MILLION
    table.write(simple({job: 6 * MILLION}))
    assert not list(table.path.parent.glob(".factors.????????"))
    status = table.status()
    assert status
    assert status.state == "ok"


def test_newcomers_while_the_daemon_writes_and_slurmctld_restarts(
    lab: Lab, ltgf: Ltgf, table: FactorFile
):
    daemon = Daemon(ltgf)
    try:
        daemon.wait_passes(2)
        walk(lab)
        jobs = [waiting(lab, "carol") for _ in range(3)]
        assert min(seen(lab, *jobs).values()) > 0
        walk(lab)
        jobs.append(waiting(lab, "carol"))
        assert min(seen(lab, *jobs).values()) > 0
        assert daemon.passes[-1]["by"] == "table"
    finally:
        daemon.kill()


def test_undo_takes_the_table_away_first(lab: Lab, ltgf: Ltgf, table: FactorFile):
    jobs = [waiting(lab, "bob"), waiting(lab, "carol")]
    seen(lab, *jobs)
    ltgf.run("tick")
    wait_state(table, "ok")
    walk(lab)
    assert min(seen(lab, *jobs).values()) > 0
    ltgf.run("tick", "--undo")
    assert not table.path.exists()
    assert set(factors(lab).values()) == {0}


# --- without --------------------------------------------------------------------------------------


def test_doctor_says_which_way_is_used_and_why(lab: Lab, ltgf: Ltgf, table: FactorFile):
    ltgf.run("tick")
    wait_state(table, "ok")
    assert finding(ltgf)["level"] == "ok"
    assert "SiteFactors go by the table" in finding(ltgf)["what"]
    table.remove()
    wait_state(table, "is not there")
    assert finding(ltgf)["level"] == "fix"
    assert "is not there" in finding(ltgf)["what"]


def finding(ltgf: Ltgf) -> dict[str, str]:
    found = json.loads(ltgf.ask("doctor", "--json").stdout)["checks"]
    row: dict[str, str] = next(row for row in found if row["name"] == "site-factor-plugin")
    return row


def test_without_the_plugin_the_pass_uses_scontrol(lab: Lab, ltgf: Ltgf, table: FactorFile):
    jobs = [waiting(lab, "bob"), waiting(lab, "carol")]
    conf = lab.state / "etc/slurm.conf"
    text = conf.read_text()
    lab.stop("slurmctld")
    try:
        assert table.status() is None, "an orderly end takes the status away"
        conf.write_text(text.replace("site_factor/ltgf", "site_factor/none"))
        lab.start("slurmctld")
        seen(lab, *jobs)
        done = ltgf.json("tick")
        assert (done["by"], done["written"]) == ("scontrol", 2)
        assert factors(lab) == table.labels()
        assert "by scontrol" in finding(ltgf)["what"]
    finally:
        lab.stop("slurmctld")
        conf.write_text(text)
        lab.start("slurmctld")
