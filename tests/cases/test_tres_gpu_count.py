"""Cases of kind tres-gpu-count: the field log's inputs and right answers, as readers see them."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from reading import INPUTS, read, usage

from slurm_ltgf.core.gpus import Pricing, gpus
from slurm_ltgf.slurm.site import Site
from slurm_ltgf.slurm.text import gres_of_node, gres_of_tres


def given(name: str) -> str:
    return (INPUTS / name).read_text()


def used(alloc_tres: str, elapsed: int, *, req_tres: str = "", pricing: Pricing | None = None):
    """GPU-seconds that a dump with this one job comes to."""
    dump = (
        "JobIDRaw|Account|Start|ElapsedRaw|ReqTRES|AllocTRES\n"
        f"1|lab|1772323200|{elapsed}|{req_tres}|{alloc_tres}\n"
    )
    runs, skipped = read(dump)
    assert skipped == []
    return usage(runs, pricing=pricing).get("lab", 0)


def count(tres: str) -> Fraction:
    return gpus(gres_of_tres(tres), Pricing()).gpus


def test_trs_01_the_untyped_entry_is_the_total():
    tres = given("trs-01.txt").split(" ;")[0]
    turned = ",".join(tres.split(",")[::-1])
    assert gres_of_tres(tres) == gres_of_tres(turned) == "gpu:a100=4,gpu=4"
    assert used(tres, 1000) == used(turned, 1000) == 4000
    assert gpus(gres_of_tres(tres), Pricing()).by_type == (("a100", 4),)


def test_trs_02_typed_entries_alone_are_summed():
    pairs = re.findall(r"(\S+) -> (\d)", given("trs-02.txt"))
    assert [count(tres) for tres, _ in pairs if tres != "(empty)"] == [1, 2, 5, 0]
    assert gres_of_tres("") == ""


def test_trs_04_use_is_what_was_allocated_and_demand_what_was_asked():
    words = dict(re.findall(r"(\w+TRES)=(\S+)", given("trs-04.txt")))
    assert used(words["AllocTRES"], 500, req_tres=words["ReqTRES"]) == 2000
    dump = "JobIDRaw|Account|Start|End|ElapsedRaw|ReqTRES|AllocTRES\n1|lab|None|1772323200|0|{}|\n"
    runs, _ = read(dump.format("cpu=1,gres/gpu=8"))
    assert (usage(runs), runs.row(0).gres, runs.row(0).gres_requested) == ({}, "", "gpu=8")


def test_trs_05_names_that_only_start_like_gpu_are_none():
    words = dict(re.findall(r"(\w+)=(\S+)", given("trs-05.txt")))
    assert used(words["AllocTRES"], 100) == 400
    assert gres_of_tres(words["TRESUsageInTot"]) == ""


def test_trs_06_a_site_that_does_not_track_gpus_is_noticed():
    key, _, value = given("trs-06.txt").partition("show config ")[2].strip().partition("=")
    assert not Site({key.lower(): value}).tracks_gpus
    assert Site({key.lower(): f"{value},gres/gpu"}).tracks_gpus
    assert gres_of_node("gpu:h100:4(IDX:0-3)") == "gpu:h100=4", "what the live view falls back to"


def test_trs_07_mig_slices_are_parts_of_gpus():
    tres, elapsed = given("trs-07.txt").split(" elapsed ")
    worth = gpus(gres_of_tres(tres), Pricing())
    assert (worth.devices, worth.gpus) == (3, Fraction(5, 7))
    assert used(tres, int(elapsed)) == 5000
    assert count("gres/gpu:a100_7g.79gb=1") == 1


def test_trs_08_shards_are_parts_of_gpus():
    assert gres_of_node("gpu:4,shard:16") == "gpu=4,shard=16"
    shared = re.search(r"AllocTRES=(\S+)", given("trs-08.txt"))
    assert shared
    assert used(shared[1], 3600, pricing=Pricing(shards_per_gpu=4)) == 1800
    assert used("gres/gpu=1", 3600) == 3600
    assert gpus(gres_of_tres(shared[1]), Pricing()).unpriced


@pytest.mark.parametrize(("per_gpu", "gpu_s"), [(1300, 553.8), (1000, 720.0)])
def test_trs_09_mps_is_a_part_of_the_count_of_its_gpu(per_gpu, gpu_s):
    assert str(per_gpu) in given("trs-09.txt")
    seconds = used("cpu=1,gres/mps=200,node=1", 3600, pricing=Pricing(mps_per_gpu=per_gpu))
    assert round(float(seconds), 1) == gpu_s


def test_trs_10_billing_is_never_divided_back_into_gpus():
    tres = re.search(r"AllocTRES=(\S+)", given("trs-10.txt"))
    assert tres
    assert used(tres[1], 100) == 100


def test_trs_11_gres_of_nodes_without_sockets_and_indices():
    rows = [line.split() for line in given("trs-11.txt").splitlines()]
    capacity = {node: gres_of_node(gres) for node, _, _, gres, _ in rows}
    in_use = {node: gres_of_node(held) for node, _, _, _, held in rows}
    assert sum(gpus(gres, Pricing()).gpus for gres in capacity.values()) == 12
    assert sum(gpus(gres, Pricing()).gpus for gres in in_use.values()) == 5
    assert capacity["n03"] == "gpu:h100=2,gpu:l40s=2"


def test_a_job_that_ran_with_an_empty_alloctres_has_unknown_gpus():
    runs, _ = read("JobIDRaw|Account|Start|ElapsedRaw|AllocTRES\n1|lab|1772323200|60|\n")
    assert runs.row(0).gres == "?"
