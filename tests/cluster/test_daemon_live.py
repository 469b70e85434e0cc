"""`ltgf daemon` on a real cluster: newcomers, outages, kills, systemd, and quiet when idle."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from commands import Daemon, Ltgf
from lab import Lab, wait_until

from slurm_ltgf.core.model import UNKNOWN, Window
from slurm_ltgf.store.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.cluster

Start = Callable[..., Daemon]
LONG = "sleep 900"
#: How often slurmctld's restart and the daemon's own attempts may need, in seconds.
BACK_S = 60


def settings(interval_s: int) -> str:
    return f"[daemon]\ninterval = '{interval_s}s'\narrivals = '1s'\nretry_max = '2s'\n"


@pytest.fixture
def ltgf(cluster: Lab, tmp_path: Path) -> Iterator[Ltgf]:
    """`ltgf` with a pass each second, on a cluster without jobs before and after."""
    cluster.drain()
    yield Ltgf(cluster, tmp_path, settings(1))
    cluster.drain()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start daemons; those that a test leaves running are killed."""
    started: list[Daemon] = []

    def begin(ltgf: Ltgf, **env: str) -> Daemon:
        started.append(Daemon(ltgf, **env))
        return started[-1]

    yield begin
    for daemon in started:
        daemon.kill()


@pytest.fixture
def full(ltgf: Ltgf) -> Lab:
    """Every GPU taken by astro, six jobs waiting."""
    for _ in range(4):
        job = ltgf.lab.submit("alice", "--gres=gpu:8", script=LONG)
        ltgf.lab.wait_state(job, "RUNNING")
    for user in ("alice", "bob", "carol") * 2:
        ltgf.lab.submit(user, "--gres=gpu:2", script=LONG)
    return ltgf.lab


def site_factors(lab: Lab) -> dict[int, int]:
    rows = (line.split() for line in lab.run("sprio", "-h", "-o", "%i %S").splitlines())
    return {int(job): int(factor) for job, factor in rows}


def assert_labelled(lab: Lab, job: int, daemon: Daemon, within_s: float) -> None:
    wait_until(lambda: site_factors(lab).get(job, 0) > 0, within_s, lambda: str(daemon.lines))


def assert_slurm_has_our_order(ltgf: Ltgf) -> None:
    rows = ltgf.lab.run("squeue", "-h", "-t", "PD", "-O", "JobID,PriorityLong").splitlines()
    priority = dict(row.split() for row in rows)
    ours = [int(priority[row["job_id"]]) for row in ltgf.json("queue")["jobs"]]
    assert len(ours) == len(priority)
    assert ours == sorted(ours, reverse=True)


def runs_in_ledger(ltgf: Ltgf) -> list[tuple[int, int, int, int]]:
    """(job, submit, start, end) of every run that ended, a run that is there twice twice."""
    with Ledger(ltgf.path, readonly=True) as ledger:
        assert ledger.check() == []
        rows = ledger.runs(None, Window(0, 1 << 40)).rows()
    return sorted((r.job_id, r.submit, r.start, r.end) for r in rows if r.start != UNKNOWN)


def runs_in_sacct(lab: Lab, since: int) -> list[tuple[int, int, int, int]]:
    """The same of sacct, for what began since then; none while slurmctld owes it an end."""
    fields = "jobidraw,submit,start,end"
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - 60))
    argv = ["sacct", "-a", "-X", "-D", "-n", "-P", "-S", when, "-o", fields]
    rows = [line.split("|") for line in lab.run("env", "SLURM_TIME_FORMAT=%s", *argv).splitlines()]
    if any(end == "Unknown" for *_, end in rows):
        return []
    found = [tuple(int(cell) for cell in row) for row in rows if row[2].isdigit()]
    return sorted((job, submit, start, end) for job, submit, start, end in found if start >= since)


def assert_each_run_once(ltgf: Ltgf, since: int, least: int) -> None:
    """The ledger has each run of sacct once, and no other."""
    ltgf.lab.drain()
    sacct: list[tuple[int, int, int, int]] = []

    def settled() -> bool:
        nonlocal sacct
        before, sacct = sacct, runs_in_sacct(ltgf.lab, since)
        time.sleep(1)
        return len(sacct) >= least and before == sacct

    wait_until(settled, 30, lambda: f"{len(sacct)} of {least} runs in sacct")
    ltgf.run("tick")
    assert [run for run in runs_in_ledger(ltgf) if run[2] >= since] == sacct


def test_a_newcomer_is_in_its_place_within_5_s_though_passes_are_30_s_apart(
    ltgf: Ltgf, full: Lab, start: Start
):
    slow = Ltgf(full, ltgf.folder, settings(30))
    daemon = start(slow)
    daemon.wait_passes()
    for _ in range(2):
        assert_labelled(full, full.submit("carol", "--gres=gpu:1", script=LONG), daemon, 5)
    assert_slurm_has_our_order(slow)


def test_an_outage_of_slurmctld_is_told_once_and_waited_out(ltgf: Ltgf, full: Lab, start: Start):
    daemon = start(ltgf)
    daemon.wait_passes(2)
    full.stop("slurmctld")
    try:
        daemon.wait_line("Slurm schedules as before", BACK_S)
        time.sleep(3)
    finally:
        full.start("slurmctld")
    daemon.wait_line("Slurm answers again", BACK_S)
    assert_labelled(full, full.submit("bob", "--gres=gpu:2", script=LONG), daemon, 10)
    assert_slurm_has_our_order(ltgf)
    assert daemon.stop()[0] == 0
    told = [line for line in daemon.lines if not line.startswith("tenants=")]
    assert len(told) == 2, told


def test_runs_that_end_while_slurmdbd_is_away_count_once(ltgf: Ltgf, start: Start):
    lab, since = ltgf.lab, int(time.time())
    daemon = start(ltgf)
    daemon.wait_passes()
    jobs = [
        lab.submit(user, f"--gres=gpu:{gpus}", script=f"sleep {gpus + 2}")
        for user, gpus in (("alice", 1), ("alice", 4), ("bob", 2), ("bob", 3), ("carol", 5))
    ]
    lab.wait_state(jobs[-1], "RUNNING")
    lab.stop("slurmdbd")
    try:
        daemon.wait_line("going on with the ledger and the queue", BACK_S)
        jobs.append(lab.submit("carol", "--gres=gpu:8", script="sleep 1"))
        squeue = ("squeue", "-h", "-t", "R,PD,CG")
        wait_until(lambda: not lab.run(*squeue), 30, lambda: lab.run(*squeue))
        # more pressing in an outage than history: the queue is still put in order
        daemon.wait_passes(2)
    finally:
        lab.start("slurmdbd")
    daemon.wait_line("slurmdbd answers again", BACK_S)
    daemon.wait_passes(2)
    assert daemon.stop()[0] == 0
    told = [line for line in daemon.lines if not line.startswith("tenants=")]
    assert len(told) == 2, told
    assert_each_run_once(ltgf, since, least=len(jobs))


def test_a_second_daemon_and_a_tick_are_refused_while_one_runs(ltgf: Ltgf, start: Start):
    daemon = start(ltgf)
    daemon.wait_passes()
    for command in ("daemon", "tick"):
        done = ltgf.ask(command)
        assert (done.returncode, done.stdout) == (75, "")
        lock = f"{ltgf.path}.lock"
        assert done.stderr == f"ltgf: {lock}: held by process {daemon.process.pid}\n"
    assert daemon.stop()[0] == 0
    ltgf.run("tick")


@pytest.mark.parametrize("after_s", [0.4, 3.0], ids=["in its first pass", "later"])
def test_sigterm_ends_it_in_time_and_well(ltgf: Ltgf, full: Lab, start: Start, after_s: float):
    daemon = start(ltgf)
    wait_until(lambda: ltgf.path.with_name("ledger.db.lock").exists(), 10, lambda: "no lock")
    time.sleep(after_s)
    status, took_s = daemon.stop()
    assert status == 0
    assert took_s < 5
    assert daemon.matching("Traceback|Error") == []


def test_systemd_is_told_ready_alive_what_it_does_and_the_end(
    ltgf: Ltgf, start: Start, tmp_path: Path
):
    address = f"{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(address)
        sock.settimeout(10)
        daemon = start(ltgf, NOTIFY_SOCKET=address)
        assert sock.recv(4096) == b"READY=1\nSTATUS=first pass"
        told = b""
        while b"STATUS=tenants=" not in told:
            told = sock.recv(4096)
        assert told.startswith(b"WATCHDOG=1\n")
        daemon.process.terminate()
        while told != b"STOPPING=1":
            told = sock.recv(4096)
        assert daemon.process.wait(10) == 0


def test_a_pass_that_finds_nothing_changed_writes_nothing(ltgf: Ltgf, full: Lab, start: Start):
    jobs = set(full.run("squeue", "-h", "-o", "%A").split())
    listed = ("sacct", "-a", "-X", "-n", "-P", "-S", "now-1hour", "-o", "jobidraw")
    wait_until(lambda: jobs <= set(full.run(*listed).split()), 20, lambda: full.run(*listed))
    daemon = start(ltgf)
    daemon.wait_passes(2)
    before = [path.read_bytes() for path in files(ltgf)], site_factors(full), ltgf.audit()
    last = daemon.wait_passes(4)
    assert (last["pending"], last["changes"], last["written"]) == ("6", "0", "0")
    assert [figures["written"] for figures in daemon.passes] == ["6"] + ["0"] * 5
    assert ([path.read_bytes() for path in files(ltgf)], site_factors(full)) == before[:2]
    assert len(before[2]) == 6
    assert ltgf.audit() == before[2]


def files(ltgf: Ltgf) -> list[Path]:
    """The ledger and what SQLite keeps beside it, but for the memory that readers share."""
    found = sorted(ltgf.folder.glob("ledger.db*"))
    return [path for path in found if not path.name.endswith(("-shm", ".lock"))]


def test_killed_again_and_again_it_neither_loses_nor_doubles_a_run(ltgf: Ltgf, start: Start):
    lab, since = ltgf.lab, int(time.time())
    chance = random.Random(int(os.environ.get("LTGF_SEED", "20261129")))
    jobs = 0
    for _ in range(15):
        daemon = start(ltgf)
        until = time.monotonic() + chance.uniform(0.2, 3.0)
        for user in chance.sample(["alice", "bob", "carol"], 2):
            options = [f"--gres=gpu:{chance.randint(1, 8)}", *chance.choice([[], ["--array=1-3"]])]
            lab.submit(user, *options, script=f"sleep {chance.randint(0, 3)}")
            jobs += 3 if len(options) == 2 else 1
        time.sleep(max(until - time.monotonic(), 0))
        assert daemon.process.poll() is None, daemon.lines
        daemon.kill()
    assert daemon.matching("Traceback|Error") == []
    squeue = ("squeue", "-h", "-t", "R,PD,CG")
    wait_until(lambda: not lab.run(*squeue), 60, lambda: lab.run(*squeue))
    assert_each_run_once(ltgf, since, least=jobs)


def test_killed_while_the_queue_changes_the_next_tick_puts_it_in_order(
    ltgf: Ltgf, full: Lab, start: Start
):
    chance = random.Random(int(os.environ.get("LTGF_SEED", "20261129")))
    for _ in range(5):
        daemon = start(ltgf)
        for user in chance.sample(["alice", "bob", "carol"], 2):
            full.submit(user, f"--gres=gpu:{chance.randint(1, 8)}", script=LONG)
        time.sleep(chance.uniform(0.3, 1.5))
        daemon.kill()
    done = ltgf.json("tick")
    assert (done["pending"], done["refused"], done["deferred"]) == (16, 0, 0)
    assert_slurm_has_our_order(ltgf)
    assert ltgf.json("tick")["written"] == 0
