"""Cases of kind mps: the field log's inputs and right answers, against a stand-in for the daemon.

The arithmetic of MPS-03 and MPS-09 is in spank/tests/test_limits.c too, each fault of MPS-11 in
tests/unit/test_mps_life.py. SM counts and refused allocations (MPS-09, MPS-03) need a GPU:
scripts/gpu-acceptance.
"""

import re
import signal
from pathlib import Path

from tests.unit.mps_node import (
    ANNA,
    BERT,
    Client,
    alive,
    ltgf_mps,  # noqa: F401 - a fixture
    needs_root,
    node,  # noqa: F401 - a fixture
    task,
)

INPUTS = Path(__file__).parent / "inputs"
pytestmark = needs_root


def given(case):
    return (INPUTS / f"{case}.txt").read_text()


def numbers(case):
    return [int(text) for text in re.findall(r"\d+", given(case))]


def test_mps_01_two_users_on_one_gpu_do_not_wait_for_each_other(node):  # noqa: F811
    anna, _, bert, _ = numbers("mps-01")
    node.start(job=1, uid=anna, devices="0", threads=50)
    node.start(job=2, uid=bert, devices="0", threads=50)
    with Client(node.env(1), anna) as one, Client(node.env(2), bert) as two:
        assert one.sees["server"] != two.sees["server"]


def test_mps_03_the_form_with_a_device_is_passed_on_and_no_other(node):  # noqa: F811
    percent, gib, half = numbers("mps-03")
    share = gib * 1024 * percent // 100
    node.start(job=1, devices="4", mem=f"0={share}M")
    assert node.env(1)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=9830M"
    due = gib * 1024 * half // 100
    node.start(job=2, devices="4,5", mem=f"0={due}M,1={due}M")
    assert node.state(2)["mem_limit"] == "0=40960M,1=40960M"
    with Client(node.env(2)) as client:  # by the daemon; two in the environment could lift it
        assert client.sees["limits"] == {"0": due << 20, "1": due << 20}
    for text in ("10240MB", "0=10240MB", "4G", "\N{LEFT DOUBLE QUOTATION MARK}0=4G", "0=4M, 1=4M"):
        node.fail("start", job=3, uid=ANNA, devices="4", mem=text)


def test_mps_04_a_limit_goes_to_the_daemons_own_number(node):  # noqa: F811
    (name,) = re.findall(r"GPU-\w+", given("mps-04"))
    node.start(devices=name, mem="0=20480M")
    with Client(node.env()) as client:
        assert client.sees["limits"] == {"0": 20480 << 20}
    node.do("stop", job=7)
    node.start(devices="5", mem="0=20480M")
    with Client(node.env()) as client:
        assert client.sees["limits"] == {"0": 20480 << 20}


def test_mps_05_a_long_path_is_not_cut(node):  # noqa: F811
    (deep,) = re.findall(r"=(\S+/nvidia-mps)", given("mps-05"))
    node.rundir = node.place / deep.strip("/").replace("/", "_")
    for job in (1670001, 1670002):
        node.start(job=job)
        pipe = node.env(job)["CUDA_MPS_PIPE_DIRECTORY"]
        assert pipe == f"/tmp/ltgf.{job}.mps.0/p"
        assert len(f"{pipe}/control_privileged".encode()) <= 107
        assert Path(pipe).stat().st_mode & 0o777 == 0o700
    for job in (1670001, 1670002):
        node.do("stop", job=job)
        assert not Path(f"/tmp/ltgf.{job}.mps.0").exists()


def test_mps_06_a_job_without_mps_is_not_captured(node):  # noqa: F811
    node.start()
    assert not Path("/tmp/nvidia-mps").exists()
    assert node.env()["CUDA_MPS_PIPE_DIRECTORY"] == f"{node.rundir}/7/mps.0/p"
    node.do("stop", job=7)
    assert node.left() == []


def test_mps_07_a_mig_device_has_its_own_daemon_and_limit_0(node):  # noqa: F811
    assert "=2" in given("mps-07")
    node.start(devices="MIG-1,MIG-2", mem="0=512M,1=512M")
    tasks = [node.env(local_id=i, local_tasks=2) for i in (0, 1)]
    assert [env["CUDA_VISIBLE_DEVICES"] for env in tasks] == ["MIG-1", "MIG-2"]
    assert len({env["CUDA_MPS_PIPE_DIRECTORY"] for env in tasks}) == 2
    assert {env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] for env in tasks} == {"0=512M"}
    assert "one process can use one" in node.fail("env", job=7, local_tasks=1)


def test_mps_09_a_default_ends_with_its_job(node):  # noqa: F811
    assert "33" in given("mps-09")
    node.start(job=1, devices="0", threads=33)
    node.do("stop", job=1)
    node.start(job=2, devices="0")
    with Client(node.env(2)) as client:
        assert client.sees["threads"] == 100


def test_mps_11_the_end_takes_all_of_the_job_and_nothing_else(node):  # noqa: F811
    assert "SIGTERM" in given("mps-11")
    node.start(job=1)
    node.start(job=2, uid=BERT)
    stays, neighbour = task(node.env(1)), task(node.env(2), uid=BERT)
    (node.rundir / "1/mps.0/p/control").unlink()
    node.do("stop", job=1)
    assert stays.wait() == -signal.SIGKILL
    node.do("stop", job=1)
    assert alive(neighbour.pid)
    node.do("check", job=2)
    for child in (stays, neighbour):
        child.kill()
        child.communicate()
