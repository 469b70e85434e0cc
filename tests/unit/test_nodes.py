"""Nodes as sinfo prints them: each once, in service or not, GPUs by type."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from slurm_ltgf.errors import SlurmRefused
from slurm_ltgf.slurm import nodes
from slurm_ltgf.slurm.nodes import Capacity, Node, devices, node_state

RECORDED = """\
n1|main|allocated|gpu:h200:8,mps:h200:800|gpu:h200:8(IDX:0-7),mps:h200:0(IDX:N/A)|64/0/0/64|1000000|6400|
n1|p2|allocated|gpu:h200:8,mps:h200:800|gpu:h200:8(IDX:0-7),mps:h200:0(IDX:N/A)|64/0/0/64|1000000|6400|
n3|main|allocated+drain|gpu:h200:8,mps:h200:800|gpu:h200:6(IDX:0-5),mps:h200:0(IDX:N/A)|64/0/0/64|1000000|6400|
n4|main|idle|gpu:h200:8,mps:h200:800|gpu:h200:0(IDX:N/A),mps:h200:0(IDX:N/A)|0/64/0/64|1000000|0|
c1|main|idle|(null)|(null)|0/8/0/8|16000|0|
"""


def text(rows: str) -> str:
    return rows.replace("|", nodes.DELIMITER)


def test_a_node_in_two_partitions_is_one_node():
    found = nodes.parse(text(RECORDED))
    assert [node.name for node in found.nodes] == ["n1", "n3", "n4", "c1"]
    assert found.nodes[0].partitions == ("main", "p2")
    assert (found.gpus, found.gpus_used) == (24, 14)


def test_a_draining_node_counts_the_gpus_that_jobs_still_hold():
    found = nodes.parse(text(RECORDED))
    assert found.gpus_in_service == 8 + 6 + 8
    assert found.gpus_down == 2
    assert (found.open_gpus, found.gpus_free) == (16, 8)


def test_partitions_can_be_chosen():
    assert [node.name for node in nodes.parse(text(RECORDED), ["p2"]).nodes] == ["n1"]


def test_cpus_and_memory_are_read():
    node = nodes.parse(text(RECORDED)).nodes[0]
    assert (node.cpus, node.cpus_used, node.memory_mb, node.memory_used_mb) == (
        64,
        64,
        1000000,
        6400,
    )


@pytest.mark.parametrize(
    ("text_", "is_open"),
    [
        ("idle", True),
        ("mixed", True),
        ("allocated", True),
        ("mixed-", True),
        ("mixed+planned", True),
        ("planned", True),
        ("completing", True),
        ("reserved", True),
        ("resv", True),
        ("idle+cloud+powered_down", True),
        ("idle~", True),
        ("mixed#", True),
        ("allocated+cloud+not_responding+powering_up", True),
        ("idle%", True),
        ("idle@", True),
        ("idle+dynamic_norm", True),
        ("down", False),
        ("down*", False),
        ("down~", False),
        ("drained", False),
        ("drained*", False),
        ("idle+drain", False),
        ("draining", False),
        ("drng", False),
        ("allocated+drain", False),
        ("mixed+drain+maintenance+reserved", False),
        ("fail", False),
        ("failing", False),
        ("error", False),
        ("unknown", False),
        ("future", False),
        ("inval", False),
        ("idle+invalid_reg", False),
        ("maint", False),
        ("idle$", False),
        ("idle^", False),
        ("idle+reboot_issued", False),
        ("allocated*", False),
        ("mixed+not_responding", False),
        ("idle+blocked", False),
        ("IDLE+DRAIN", False),
        ("MIXED", True),
        ("somethingnew", True),
    ],
)
def test_which_states_are_open(text_, is_open):
    base, flags = node_state(text_)
    assert Node("n", state=base, flags=flags).is_open is is_open


def test_a_state_that_is_none_is_named():
    found = nodes.parse(text(RECORDED.replace("idle|gpu", "?!|gpu")))
    (skipped,) = found.skipped
    assert skipped.reason == "node n4: cannot read node state '?!'"


def test_gpus_by_type_are_what_is_in_service():
    rows = (
        "a|p|idle|gpu:h100:2,gpu:l40s:2|gpu:h100:0(IDX:N/A),gpu:l40s:1(IDX:2)|0/8/0/8|1|0|\n"
        "b|p|down|gpu:h100:4|gpu:h100:0(IDX:N/A)|0/8/0/8|1|0|\n"
        "c|p|idle|gpu:3|gpu:0|0/8/0/8|1|0|\n"
    )
    assert nodes.parse(text(rows)).by_type() == {"": 3, "h100": 2, "l40s": 2}


def test_tokens_of_a_gpu_come_from_the_nodes_gres():
    assert nodes.parse(text(RECORDED)).per_gpu("mps") == 100
    assert Capacity((Node("a", gres="gpu=4,shard=16"),)).per_gpu("shard") == 4
    assert Capacity((Node("a", gres="gpu=4"),)).per_gpu("shard") == 0


def test_nodes_that_differ_have_no_common_number_of_tokens():
    both = Capacity((Node("a", gres="gpu=4,shard=16"), Node("b", gres="gpu=4,shard=32")))
    assert both.per_gpu("shard") == 0
    assert [node.per_gpu("shard") for node in both.nodes] == [4, 8]


def test_a_closed_node_counts_its_shared_gpus_in_use():
    node = Node(
        "a",
        flags=frozenset({"drain"}),
        gres="gpu:h200=8,mps:h200=800",
        gres_used="gpu:h200=2,mps:h200=150",
    )
    assert node.gpus_in_service == {"h200": 4}


def test_devices_are_whole_gpus_only():
    assert devices("gpu:a100=4,gpu=2,mps=100") == {"": 2, "a100": 4}
    assert devices("") == {}


@pytest.fixture
def sinfo(tmp_path, monkeypatch):
    def make(out: str) -> Path:
        (tmp_path / "out").write_text(out)
        program = tmp_path / "sinfo"
        program.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/argv\ncat {tmp_path}/out\n'
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "argv"

    return make


def test_sinfo_is_asked_for_all_partitions_and_uncut_columns(sinfo):
    argv = sinfo(text(RECORDED))
    assert nodes.capacity().gpus == 24
    *options, columns = argv.read_text().splitlines()
    assert options == ["-h", "-N", "-a", "-O"]
    assert all(column.endswith(f":{nodes.DELIMITER}") for column in columns.split(","))


def test_no_node_at_all_is_an_error_not_an_empty_cluster(sinfo):
    sinfo("")
    with pytest.raises(SlurmRefused, match="no node"):
        nodes.capacity()
    sinfo(text(RECORDED))
    with pytest.raises(SlurmRefused, match="no node in partition nope"):
        nodes.capacity(["nope"])


def test_trs_11_each_node_once_and_drained_gpus_are_not_free():
    """Input: name, state, partition, GRES, GRES used. Right: see the case log."""
    path = Path(__file__).parents[1] / "cases" / "inputs" / "trs-11.txt"
    cells = (line.split() for line in path.read_text().splitlines())
    rows = [
        f"{n}|{part}|{state}|{gres}|{used}|0/8/0/8|1|0|" for n, state, part, gres, used in cells
    ]
    found = nodes.parse(text("\n".join(rows)))
    assert (found.gpus, found.open_gpus, found.gpus_used) == (12, 8, 5)
    assert (found.gpus_free, found.gpus_down) == (3, 4)
    free = {model: found.by_type()[model] - used for model, used in {"h100": 4, "l40s": 1}.items()}
    assert free == {"h100": 2, "l40s": 1}


# --- files of other sites -------------------------------------------------------------------------

SHARED = Path(os.environ.get("LTGF_SHARED", Path(__file__).parents[3] / "shared"))
SINFO = SHARED / "cases" / "files" / "SckyzO_slurm_exporter"
real = pytest.mark.skipif(not SINFO.is_dir(), reason="LTGF_SHARED: no real files here")


def of_file(path: Path) -> Capacity:
    """Their columns: name, allocated memory, memory, CPUs, state, partition, GRES, GRES used."""
    rows = []
    for line in path.read_text().splitlines():
        name, used, memory, cpus, state, partition, *gres = line.split()
        have, hold = gres or ("(null)", "(null)")
        rows.append(f"{name}|{partition}|{state}|{have}|{hold}|{cpus}|{memory}|{used}|")
    return nodes.parse(text("\n".join(rows)))


@real
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("node_detail.txt", None),
        ("slurm-25.05/node_detail_gres.txt", 6),
        ("slurm-25.11.2/node_detail_gres_multitype.txt", 1),
        ("slurm-24.11.7/node_detail.txt", None),
        ("slurm-26.05.2/node_detail.txt", None),
    ],
)
def test_real_sinfo_files_are_read_without_crash(name, count):
    found = of_file(SINFO / name)
    assert not found.skipped
    assert len({node.name for node in found.nodes}) == len(found.nodes) > 0
    assert count is None or len(found.nodes) == count


@real
def test_states_of_real_scontrol_files_are_read():
    words = {
        word.removeprefix("State=")
        for path in SINFO.rglob("scontrol_nodes.txt")
        for word in path.read_text().split()
        if word.startswith("State=")
    }
    assert {node_state(word)[0] for word in words} <= {"idle", "mixed", "allocated", "down"}


@real
def test_gres_of_a_real_site_with_many_other_gres_is_read():
    path = SINFO.parent / "OSC_ood_core" / "sinfo_gres.txt"
    rows = [line.split() for line in path.read_text().splitlines()[:-1]]
    assert all(
        sum(devices(nodes.words.gres_of_node(gres)).values()) <= 16
        for _, gres, *_ in (row for row in rows if len(row) > 1)
    )
