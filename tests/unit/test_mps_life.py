"""The life of a job's MPS daemon: start, limits, faults, end; against a stand-in for the real."""

import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from mps_node import (
    ANNA,
    BERT,
    Client,
    alive,
    environ,
    needs_root,
    seconds,
    task,
)

pytestmark = needs_root


def test_a_daemon_has_the_users_rights_and_nothing_of_ours(node, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD_NOT", "x")
    pid = node.start()
    pipe = f"{node.rundir}/7/mps.0/p"
    assert environ(pid) == {
        "PATH": f"{node.place}/bin:/usr/bin:/bin",
        "CUDA_MPS_PIPE_DIRECTORY": pipe,
        "CUDA_MPS_LOG_DIRECTORY": f"{node.rundir}/7/mps.0/l",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    } | {k: v for k, v in environ(pid).items() if k == "LC_CTYPE"}
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"Uid:\t{ANNA}\t{ANNA}\t{ANNA}\t{ANNA}\n" in status
    assert f"Groups:\t{ANNA} \n" in status
    assert "CapEff:\t0000000000000000\n" in status
    assert os.getsid(pid) != os.getsid(0)


def test_only_the_user_enters_its_directories(node):
    node.start()
    for path, owner, mode in [
        ("", 0, 0o755),
        ("7", 0, 0o711),
        ("7/mps.0", 0, 0o711),
        ("7/mps.0/p", ANNA, 0o700),
        ("7/mps.0/l", ANNA, 0o700),
        ("7/mps.0/state", 0, 0o644),
    ]:
        found = (node.rundir / path).lstat()
        assert (path, found.st_uid, stat.S_IMODE(found.st_mode)) == (path, owner, mode)


def test_limits_hold_for_the_first_client(node):
    node.start(mem="0=9830M,1=9830M", threads=25)
    with Client(node.env()) as client:
        assert client.sees["limits"] == {"0": 9830 << 20, "1": 9830 << 20}
        assert client.sees["threads"] == 25


def test_a_limit_that_is_not_taken_fails_the_start(node):
    node.mode("no-limits")
    line = node.fail("start", job=7, uid=ANNA, devices="0", mem="0=4096M")
    assert 'did not take the memory limit 0=4096M: it says ""' in line
    assert node.processes() == []
    assert sorted(p.name for p in (node.rundir / "7").iterdir()) == ["failed", "lock"]
    assert node.fail("check", job=7).endswith(line)
    node.do("stop", job=7)
    assert node.left() == []


@pytest.mark.parametrize("mode", ["slow-start=0.5", "lazy-start=0.5"])
def test_a_start_waits_until_the_daemon_answers(node, mode):
    node.mode(mode)
    assert 0.5 < seconds(lambda: node.start(mem="0=1M,1=1M")) < 3
    node.do("check", job=7)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("fail-start", "failed with status 1: Failed to initialize the GPU"),
        ("die-at-start", "the MPS daemon"),
        ("refuse", "did not take the memory limit"),
        ("slow-start=30", "did not answer in time"),
        ("lazy-start=30", "was not ready in time"),
        ("no-pid", "was not ready in time: its process was not seen"),
    ],
)
def test_a_bad_start_says_why_and_leaves_nothing(node, mode, words):
    node.mode(mode)
    begin = time.monotonic()
    line = node.fail("start", job=7, uid=ANNA, devices="0", mem="0=1M", timeout=1)
    assert words in line
    assert time.monotonic() - begin < 7
    assert node.processes() == []
    node.mode()
    node.start()
    node.do("check", job=7)


def test_a_forged_pid_is_never_believed(node):
    victim = task({}, uid=BERT)
    own = task({}, uid=ANNA)
    for child in (victim, own):
        node.mode(f"pid={child.pid}")
        node.fail("start", job=7, uid=ANNA, devices="0", timeout=1)
        assert alive(child.pid)
        child.kill()
        child.communicate()
    assert node.processes() == []


def test_a_second_start_is_the_first(node):
    pid = node.start(mem="0=1M,1=2M")
    assert node.start(mem="0=1M,1=2M") == pid
    assert node.start(mem="0=1M,1=3M") != pid
    assert len(node.processes()) == 1


def test_two_starts_at_once_make_one_daemon(node):
    words = node.arguments("start", job=7, uid=ANNA, devices="0")
    both = [subprocess.Popen(words) for _ in range(2)]
    assert [child.wait() for child in both] == [0, 0]
    assert len(node.processes()) == 1


def test_the_end_is_quick_and_whole_and_may_come_twice(node):
    node.start()
    with Client(node.env()):
        assert len(node.processes()) == 2
    assert seconds(lambda: node.do("stop", job=7)) < 2
    assert (node.processes(), node.left()) == ([], [])
    node.do("stop", job=7)
    node.do("stop", job=8)


@pytest.mark.parametrize("mode", ["hang-quit", "hang-quit ignore-term", "stuck"])
def test_a_hung_daemon_is_ended_in_bounded_time(node, mode):
    node.mode(mode)
    node.start()
    with Client(node.env()):
        assert seconds(lambda: node.do("stop", job=7)) < 6.5
    assert (node.processes(), node.left()) == ([], [])


def test_a_client_that_stays_is_ended_and_a_neighbours_is_not(node):
    node.start(job=7)
    node.start(job=8)
    mine, other = task(node.env(7)), task(node.env(8))
    plain = task({})
    node.do("stop", job=7)
    assert mine.wait() == -signal.SIGKILL
    assert alive(other.pid)
    assert alive(plain.pid)
    node.do("check", job=8)
    for child in (mine, other, plain):
        child.kill()
        child.communicate()


def test_a_dead_daemon_is_told_and_its_server_ended(node):
    pid = node.start()
    with Client(node.env()) as client:
        os.kill(pid, signal.SIGKILL)
        while alive(pid):
            time.sleep(0.01)
        assert alive(client.sees["server"])
        assert "has died: a task would run without it" in node.fail("check", job=7)
        node.do("stop", job=7)
        assert not alive(client.sees["server"])
    assert node.left() == []


def test_a_daemon_that_dies_later_is_told(node):
    node.mode("die-after=0.6")
    node.start()
    time.sleep(1)
    assert "has died" in node.fail("check", job=7)


def test_a_dead_server_does_not_hinder_the_end(node):
    node.start()
    with Client(node.env()) as client:
        os.kill(client.sees["server"], signal.SIGKILL)
    node.do("stop", job=7)
    assert (node.processes(), node.left()) == ([], [])


@pytest.mark.parametrize("delay_ms", [5, 20, 40, 60, 80, 100, 130, 160, 200, 250])
def test_killed_in_the_middle_of_a_start(node, delay_ms):
    words = node.arguments("start", job=7, uid=ANNA, devices="0,1", mem="0=1M,1=1M", threads=10)
    child = subprocess.Popen(words)
    time.sleep(delay_ms / 1000)
    child.kill()
    child.wait()
    if delay_ms % 20:
        node.start(devices="0,1", mem="0=1M,1=1M")
        node.do("check", job=7)
    node.do("stop", job=7)
    time.sleep(0.2)  # what was just being forked has its environment now
    assert node.left() == []
    if node.processes():  # forked by the killed start after we looked: the command, not a daemon
        time.sleep(1)
    assert node.processes() == []


def test_killed_in_the_middle_of_a_stop(node):
    node.mode("hang-quit ignore-term")
    node.start()
    for delay in (0.1, 1, 2.2):
        child = subprocess.Popen(node.arguments("stop", job=7))
        time.sleep(delay)
        child.kill()
        child.wait()
    node.do("stop", job=7)
    assert (node.processes(), node.left()) == ([], [])
