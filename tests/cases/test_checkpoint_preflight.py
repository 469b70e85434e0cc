"""CHK-12: what the driver cannot checkpoint is refused beforehand, each for its reason."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_ltgf.checkpoint.preflight import (
    Facts,
    ProcessFacts,
    facts_of,
    has_managed,
    look,
    refusals,
)

GIB = 1 << 30
CASE = (Path(__file__).parent / "inputs" / "chk-12.txt").read_text().strip()
PLAIN = ProcessFacts(4711, "python3", gpu_bytes=20 * GIB)
FINE = Facts((580, 159, 4), "x86_64", has_api=True, room_bytes=64 * GIB, processes=(PLAIN,))
ALONE = {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_HOST_ENABLE": "0"}


def job(**changed):
    return replace(FINE, processes=(replace(PLAIN, **changed),))


def given():
    """The four situations of the case's own text."""
    nccl, managed, driver, machine = CASE.split("; ")
    ranks = int(re.match(r"(\d+)-rank NCCL", nccl)[1])
    assert "cudaMallocManaged" in managed
    release = tuple(map(int, re.search(r"driver ([\d.]+)", driver)[1].split(".")))
    return {
        "NCCL": job(has_nccl=True, ranks=ranks),
        "managed": job(has_managed=True),
        "driver 550.54": replace(FINE, driver=release),
        "aarch64": replace(FINE, machine=machine.split()[0]),
    }


@pytest.mark.parametrize("word", ["NCCL", "managed", "driver 550.54", "aarch64"])
def test_chk_12_each_is_refused_for_its_own_reason_and_told_the_other_way(word):
    (said,) = refusals(given()[word])
    assert word in said
    assert "--ckpt=app" in said


def test_a_job_with_nothing_against_it_is_not_refused():
    assert refusals(FINE) == []


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (job(has_mps=True), "MPS"),
        (job(has_mig=True), "MIG"),
        (replace(FINE, driver=None), "no NVIDIA driver"),
        (replace(FINE, has_api=False), "slurm-ltgf[gpu]"),
        (replace(FINE, processes=()), "no process"),
        (replace(FINE, room_bytes=20 * GIB), "21.0 GiB of host memory"),
        (replace(FINE, room_bytes=None), "how much host memory"),
        (job(gpu_bytes=None), "how much GPU memory"),
    ],
)
def test_other_reasons(facts, word):
    (said,) = refusals(facts)
    assert word in said


def test_all_reasons_are_told_at_once():
    facts = replace(given()["NCCL"], machine="aarch64", driver=(550, 54))
    assert len(refusals(facts)) == 3


@pytest.mark.parametrize(
    ("environment", "may"),
    [
        ({}, False),
        ({"NCCL_P2P_DISABLE": "1"}, False),
        (ALONE, True),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_CUMEM_ENABLE": "0"}, True),
        ({**ALONE, "NCCL_P2P_DISABLE": "0"}, False),
    ],
)
def test_nccl_is_let_through_with_the_settings_that_were_seen_to_work(environment, may):
    facts = job(has_nccl=True, ranks=2, environment=environment)
    assert (refusals(facts) == []) is may


def test_a_single_rank_that_merely_has_nccl_in_its_pytorch_is_fine():
    assert refusals(job(has_nccl=True, ranks=1)) == []


def test_facts_of_a_real_process(tmp_path):
    import subprocess
    import sys

    code = "import sys; print(1, flush=True); sys.stdin.read()"
    env = {"WORLD_SIZE": "2", "CUDA_VISIBLE_DEVICES": "MIG-1", "HOME": "/secret", **ALONE}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        found = facts_of(child.pid, None)
        facts = look([child.pid], has_api=True, gpu_bytes=lambda pids: {})
        child.stdin.close()
    assert (found.ranks, found.has_mig, found.has_nccl, found.has_managed) == (
        2,
        True,
        False,
        False,
    )
    assert found.environment == {k: v for k, v in env.items() if k != "HOME"}
    assert facts.room_bytes > 0


def test_managed_memory_is_seen_in_the_maps():
    plain = (
        "200600000-200800000 rw-s 00000000 00:06 143                              /dev/nvidia0\n"
        "204a00000-204c00000 rw-s 204a00000 00:06 144                             /dev/nvidia-uvm\n"
    )
    more = "7fcbe6000000-7fcbea000000 rw-s 7fcbe6000000 00:06 144           /dev/nvidia-uvm\n"
    assert not has_managed(plain)
    assert has_managed(plain + more)
