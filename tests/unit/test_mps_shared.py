"""MPS of several devices, jobs and users on a node: MIG, shared daemons, the reaper, malice."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from mps_node import ANNA, BERT, Client, alive, needs_root, seconds, task

pytestmark = needs_root
MIG = "MIG-aaaa-1,MIG-bbbb-2"


def test_each_mig_device_has_its_daemon_and_each_task_one(node):
    node.start(devices=MIG, mem="0=1024M,1=2048M", threads=50)
    assert [node.state(7, n)["devices"] for n in (0, 1)] == MIG.split(",")
    for local_id in range(4):
        env = node.env(local_id=local_id, local_tasks=4)
        n = local_id % 2
        assert env["CUDA_MPS_PIPE_DIRECTORY"] == f"{node.rundir}/7/mps.{n}/p"
        assert env["CUDA_VISIBLE_DEVICES"] == MIG.split(",")[n]
        assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={1024 * (n + 1)}M"
        with Client(env) as client:
            assert client.sees["limits"] == {"0": 1024 * (n + 1) << 20}
    assert "one process can use one" in node.fail("env", job=7, local_tasks=1)
    assert node.env(devices="MIG-bbbb-2", local_tasks=1)["CUDA_VISIBLE_DEVICES"] == "MIG-bbbb-2"
    node.do("stop", job=7)
    assert (node.processes(), node.left()) == ([], [])


def test_one_of_two_daemons_that_cannot_start_fails_both(node):
    node.mode("die-at-start")
    node.fail("start", job=7, uid=ANNA, devices=MIG, timeout=2)
    assert node.processes() == []


def limits(env):
    """What a client of this environment is held to, in MiB."""
    with Client(env) as client:
        return [size >> 20 for size in client.sees["limits"].values()]


def test_a_task_with_one_of_the_gpus_counts_from_zero(node):
    node.start(devices="2,5", mem="0=1024M,1=3072M")
    env = node.env(devices="5")
    assert env["CUDA_VISIBLE_DEVICES"] == "1"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3072M"
    assert limits(env) == [3072]
    assert limits(node.env(devices="2")) == [1024]
    assert limits(node.env()) == [1024, 3072]
    assert node.env(mem="0=5M,1=6M", devices="5", threads=9) == env | {
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=6M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "9",
    }
    assert 'device "3" of the task is none' in node.fail("env", job=7, devices="3")
    assert "not one 0=" in node.fail("env", job=7, mem="0=5M")


def test_equal_limits_hold_also_when_the_task_picks_its_gpu(node):
    node.start(devices="2,5", mem="0=1024M,1=1024M")
    env = node.env()
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in env  # it would lift all if a device is hidden
    assert limits(env) == [1024, 1024]
    assert limits(env | {"CUDA_VISIBLE_DEVICES": "1"}) == [1024]
    assert limits(node.env(devices="5")) == [1024]


def test_jobs_of_one_user_share_a_gpus_daemon_until_the_last(node):
    for job in (7, 8):
        node.start(job=job, devices="2", mode="gpu", mem=f"0={job}M")
    node.start(job=9, uid=BERT, devices="2", mode="gpu")
    assert len(node.processes()) == 2
    assert node.env(7)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=7M"
    assert node.env(7)["CUDA_MPS_PIPE_DIRECTORY"] == node.env(8)["CUDA_MPS_PIPE_DIRECTORY"]
    assert f"g2.u{ANNA}/p" in node.env(8)["CUDA_MPS_PIPE_DIRECTORY"]
    node.do("stop", job=7)
    assert node.left() == ["8", "9", f"g2.u{ANNA}", f"g2.u{BERT}"]
    node.do("check", job=8)
    node.do("stop", job=8)
    assert node.left() == ["9", f"g2.u{BERT}"]
    node.do("check", job=9)
    node.do("stop", job=9)
    assert (node.processes(), node.left()) == ([], [])


def test_a_shared_daemon_that_died_is_started_anew(node):
    node.start(job=7, devices="2", mode="gpu")
    (pid,) = node.processes()
    os.kill(pid, signal.SIGKILL)
    while alive(pid):
        time.sleep(0.01)
    assert "has died" in node.fail("check", job=7)
    node.start(job=8, devices="2", mode="gpu")
    node.do("check", job=7)
    node.do("check", job=8)


def test_a_shared_daemon_that_cannot_start_leaves_no_group(node):
    node.mode("fail-start")
    node.fail("start", job=7, uid=ANNA, devices="2", mode="gpu")
    assert node.left() == ["7"]


def test_jobs_that_come_and_go_at_once_share_or_start_anew(node):
    node.start(job=1, devices="2", mode="gpu")
    words = {"uid": ANNA, "devices": "2", "mode": "gpu"}
    for job in range(2, 6):
        both = [
            subprocess.Popen(node.arguments("stop", job=job - 1)),
            subprocess.Popen(node.arguments("start", job=job, **words)),
        ]
        assert [child.wait() for child in both] == [0, 0]
        node.do("check", job=job)
        assert len(node.processes()) == 1


def test_the_reaper_ends_only_jobs_that_are_no_more(node):
    for job in (7, 8):
        node.start(job=job)
        node.start(job=job + 10, devices="4", mode="gpu")
    (node.rundir / ".gone.6.1/p").mkdir(parents=True)
    (node.rundir / "g9.u1/jobs").mkdir(parents=True)
    (node.rundir / "g9.u1/jobs/5").touch()
    (node.rundir / "notes").touch()
    assert node.do("reap", alive="8,18,1", min_age=3600) == "0 stopped\n"
    assert node.do("reap", alive="8,18,1") == "3 stopped\n"
    assert node.left() == ["18", "8", f"g4.u{ANNA}", "notes"]
    node.do("check", job=8)
    node.do("check", job=18)
    assert node.do("reap") == "3 stopped\n" or node.left() == ["notes"]
    assert (node.processes(), node.left()) == ([], ["notes"])


def test_the_list_has_a_line_a_daemon(node):
    pid = node.start(mem="0=1M,1=1M")
    lines = [line.split() for line in node.do("list").splitlines()]
    assert lines[1:] == [["7", "0", str(ANNA), str(pid), "alive", "0=1M,1=1M", "2,3"]]


def test_a_task_of_another_user_reads_but_does_not_stop(node):
    node.start()
    node.command = shutil.copy(node.command, node.place)  # where others may run it
    for word, job, status in [("check", 7, 0), ("env", 7, 0), ("list", 8, 0), ("stop", 7, 1)]:
        words = node.arguments(word, job=job)
        assert subprocess.run(words, check=False, user=BERT, cwd="/").returncode == status
    node.do("check", job=7)


def test_a_job_that_the_prolog_did_not_see(node):
    assert "the prolog hook did not run on " in node.fail("check", job=7)
    node.start(job=8)
    assert "the prolog hook did not run on " in node.fail("check", job=7)
    (node.rundir / "8/ready").unlink()
    assert "is not ready" in node.fail("check", job=8)


def test_what_a_user_plants_is_removed_and_never_followed(node):
    victim = node.place / "victim"
    victim.mkdir(mode=0o700)
    (victim / "file").write_text("kept")
    node.start()
    pipe, logs = node.rundir / "7/mps.0/p", node.rundir / "7/mps.0/l"
    (pipe / "link").symlink_to(victim)
    (logs / "control.log2").symlink_to(victim / "file")
    (logs / "server.log").write_bytes(b"x" * (20 << 20))
    deep = pipe
    for _ in range(40):
        deep = deep / "d"
        deep.mkdir()
        os.chown(deep, ANNA, ANNA)
    logs.rename(pipe / "was")
    logs.symlink_to(victim)
    node.do("stop", job=7)
    assert node.left() == []
    assert (victim / "file").read_text() == "kept"


def test_what_is_mounted_there_is_detached_and_kept(node):
    victim = node.place / "victim"
    victim.mkdir()
    (victim / "file").write_text("kept")
    node.start()
    for place in (node.rundir / "7/mps.0/p/x/y", node.rundir / "7/mps.0/l"):
        place.mkdir(parents=True, exist_ok=True)
        bind = ["mount", "--bind", str(victim), str(place)]
        if subprocess.run(bind, check=False, capture_output=True).returncode:
            pytest.skip("nothing can be mounted here")
    node.do("stop", job=7)
    assert node.left() == []
    assert (victim / "file").read_text() == "kept"


def test_a_full_file_system_fails_the_start_and_not_the_end(node):
    node.rundir.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k,mode=755", "none", str(node.rundir)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        node.start()
        room = os.statvfs(node.rundir).f_bavail * 4096
        (node.rundir / "7/mps.0/l/server.log").write_bytes(b"x" * room)
        node.fail("start", job=8, uid=ANNA, devices="0")
        node.do("stop", job=7)
        node.do("stop", job=8)
        assert (node.processes(), node.left()) == ([], [])
    finally:
        subprocess.run(["umount", "-l", str(node.rundir)], check=True)


@pytest.mark.parametrize("name", ["x" * 90, "\N{GREEK SMALL LETTER ALPHA}" * 45])
def test_a_long_run_directory_gives_a_short_one_in_tmp(node, name):
    job = os.getpid()
    node.rundir = node.place / name
    node.start(job=job)
    assert node.env(job)["CUDA_MPS_PIPE_DIRECTORY"] == f"/tmp/ltgf.{job}.mps.0/p"
    limits(node.env(job))
    node.do("stop", job=job)
    short = Path(f"/tmp/ltgf.{job}.mps.0")
    assert not short.exists()
    short.mkdir()
    os.chown(short, BERT, BERT)
    try:
        line = node.fail("start", job=job, uid=ANNA, devices="0")
        assert f"{short} cannot be made: Operation not permitted" in line
    finally:
        short.rmdir()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"devices": ""}, "has no GPU on this node"),
        ({"devices": "0,x"}, '"x" is no GPU index or name'),
        ({"devices": "0,MIG-a"}, "MIG devices and whole GPUs in one job"),
        ({"devices": "0,,1"}, '"" is no GPU index'),
        ({"devices": "0\nuid=0"}, "is no GPU index or name"),
        ({"mem": "4G"}, "not one 0="),
        ({"mem": "0=4M"}, "for each of 2 devices"),
        ({"threads": 101}, "101% of threads"),
        ({"control": "nvidia-cuda-mps-control"}, "no absolute path"),
        ({"control": "/no/such"}, "is the NVIDIA driver installed here?"),
        ({"mode": "gpu", "exclusive": True}, "exclusive compute mode needs whole GPUs"),
    ],
)
def test_bad_input_is_one_clear_line(node, options, words):
    assert words in node.fail("start", **({"job": 7, "uid": ANNA, "devices": "2,3"} | options))
    assert node.processes() == []


def test_a_run_directory_that_others_write_is_refused(node):
    node.rundir.mkdir()
    node.rundir.chmod(0o777)
    assert "must be root's and writable by nobody else" in node.fail(
        "start", job=7, uid=ANNA, devices="0"
    )
    assert "no absolute path" in node.fail("check", job=7, rundir="run")


def test_exclusive_mode_is_set_and_reset(node):
    smi, log = node.place / "bin/nvidia-smi", node.place / "smi.log"
    smi.write_text(f'#!/bin/sh\necho "$@" >>{log}\n')
    smi.chmod(0o755)
    node.start(smi=smi, exclusive=True)
    node.do("stop", job=7)
    assert log.read_text() == "-i 2,3 -c EXCLUSIVE_PROCESS\n-i 2,3 -c DEFAULT\n"
    smi.chmod(0o777)
    assert "is not root's alone" in node.fail(
        "start", job=7, uid=ANNA, devices="0", smi=smi, exclusive=True
    )


def test_a_process_of_the_user_outside_the_job_is_let_be(node):
    node.start()
    env = node.env() | {"CUDA_MPS_PIPE_DIRECTORY": f"{node.rundir}/7/mps.0/px"}
    near, other = task(env), task(node.env(), uid=BERT)
    assert seconds(lambda: node.do("stop", job=7)) < 2
    for child in (near, other):
        assert alive(child.pid)
        child.kill()
        child.communicate()
