"""slurm.text and slurm.times: words of Slurm that are odd, cut or wrong."""

from __future__ import annotations

import doctest
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from slurm_ltgf.core.model import NO_ACCOUNT, NO_LIMIT, UNKNOWN
from slurm_ltgf.slurm import header, text, times


@pytest.mark.parametrize("module", [text, times, header])
def test_the_examples_in_the_docstrings_hold(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("tres", "gres"),
    [
        ("billing=1,cpu=1,mem=1000M,node=1", ""),
        ("gres/gpu:NVIDIA_A100=2", "gpu:NVIDIA_A100=2"),
        ("gres/mps:h200=50,gres/shard=3", "mps:h200=50,shard=3"),
        ("gres/gpu:a100_3g.40gb=1,gres/gpu=1", "gpu:a100_3g.40gb=1,gpu=1"),
        ("gres/gpu=0,node=1", "gpu=0"),
    ],
)
def test_gres_of_tres(tres, gres):
    assert text.gres_of_tres(tres) == gres


@pytest.mark.parametrize(
    "tres", ["node=", "cpu=1,", "cpu", "gres/gpu=4,gre", "gres/gpu=two", "gres/gpu=-1", "=3", ","]
)
def test_a_tres_list_that_is_cut_or_wrong_is_an_error(tres):
    with pytest.raises(ValueError, match=r"TRES list|count of gres"):
        text.gres_of_tres(tres)


def test_a_tres_named_twice_is_an_error_not_a_sum():
    with pytest.raises(ValueError, match="gres/gpu"):
        text.gres_of_tres("gres/gpu=4,gres/gpu=4")


@pytest.mark.parametrize(
    ("gres", "canonical"),
    [
        ("gpu:4", "gpu=4"),
        ("gpu", "gpu=1"),
        ("gpu:h100:4(S:0-1)", "gpu:h100=4"),
        ("gpu:h100:0(IDX:N/A)", "gpu:h100=0"),
        ("gpu:(null):2(IDX:0-1)", "gpu=2"),
        ("gpu:nvidia_a100_3g.40gb:2(S:0),gpu:nvidia_a100_3g.40gb:1(S:1)", ""),
        ("gpu:tesla:2,bandwidth:lustre:no_consume:4G", "gpu:tesla=2"),
        ("mps:h200:800,shard:a100:2(0/8,2/8)", "mps:h200=800,shard:a100=2"),
        ("gpfs:ess:1,craynetwork:4", ""),
        ("N/A", ""),
        ("", ""),
    ],
)
def test_gres_of_node(gres, canonical):
    if "3g" in gres:
        canonical = "gpu:nvidia_a100_3g.40gb=3"
    assert text.gres_of_node(gres) == canonical


def test_a_gres_without_its_count_is_an_error():
    with pytest.raises(ValueError, match="gpu:h100"):
        text.gres_of_node("gpu:h100")


@pytest.mark.parametrize("limit", ["soon", "1:2:3:4", "-5", "1-2-3", "1-", ":", "1:", "1.5"])
def test_a_limit_that_makes_no_sense_is_an_error(limit):
    with pytest.raises(ValueError, match="cannot read duration"):
        text.limit_s(limit)


def test_limits_with_and_without_days():
    assert [text.limit_s(t) for t in ("0", "4:00", "2-12", "3-0:00", "infinite", "")] == [
        *(0, 240, 216000, 259200, NO_LIMIT, UNKNOWN)
    ]


@pytest.mark.parametrize("elapsed", ["an hour", "1:2:3:4", "1-10", "00:10.", "1.5", "-3"])
def test_an_elapsed_time_that_makes_no_sense_is_an_error(elapsed):
    with pytest.raises(ValueError, match="cannot read duration"):
        text.elapsed_s(elapsed)


@pytest.mark.parametrize(
    ("cell", "read"),
    [
        ("7700", text.JobId(7700)),
        ("7700_3", text.JobId(7700, array_task=3, is_array=True)),
        ("7700_[1-3%1]", text.JobId(7700, tasks=3, is_array=True)),
        ("12+0", text.JobId(12, het_offset=0)),
        ("7700_3.extern", text.JobId(7700, array_task=3, is_array=True, is_step=True)),
        ("7700.0+1", text.JobId(7700, is_step=True)),
    ],
)
def test_job_ids(cell, read):
    assert text.job_id(cell) == read


@pytest.mark.parametrize("cell", ["", "root", "7700_", "12+", "7_3_1", "-7", "7700_[a]", "1e5"])
def test_what_is_no_job_id_is_an_error(cell):
    with pytest.raises(ValueError, match="cannot read"):
        text.job_id(cell)


def test_array_tasks_that_were_cut_are_an_error():
    with pytest.raises(ValueError, match="SLURM_BITSTR_LEN=0"):
        text.array_tasks("[1,3,5,7,9,11,13,...]")


@pytest.mark.parametrize("expression", ["", "[5-3]", "[1-3:0]", "[1-3%x]", "a"])
def test_array_tasks_that_make_no_sense_are_an_error(expression):
    with pytest.raises(ValueError, match="cannot read array tasks"):
        text.array_tasks(expression)


def test_an_account_has_one_spelling():
    assert [text.account_name(a) for a in (" Lab-A", "lab-a", "")] == ["lab-a", "lab-a", NO_ACCOUNT]


def test_hosts_of_more_than_one_bracket():
    assert text.expand_hostlist("r[1-2]n[08-10]") == [
        *("r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10")
    ]
    assert text.expand_hostlist("") == []
    assert text.node_list("None assigned") == ""


def test_a_host_list_that_was_cut_is_an_error():
    with pytest.raises(ValueError, match="host list"):
        text.expand_hostlist("n[1-3")


@pytest.mark.parametrize("hosts", ["n[1-99999999999]", "r[0-9999]n[0-9999]"])
def test_a_host_list_longer_than_any_cluster_is_refused_not_made(hosts):
    with pytest.raises(ValueError, match="more hosts than any cluster has"):
        text.expand_hostlist(hosts)


BERLIN = ZoneInfo("Europe/Berlin")
NOW = int(datetime(2026, 3, 10, 15, 30, tzinfo=BERLIN).timestamp())


def at(*parts: int, timezone=BERLIN) -> int:
    return int(datetime(*parts, tzinfo=timezone).timestamp())


@pytest.mark.parametrize(
    ("argument", "moment"),
    [
        ("now", NOW),
        ("now-7days", NOW - 7 * 86400),
        ("now+1hour", NOW + 3600),
        ("now-90", NOW - 90),
        ("now-2w", NOW - 14 * 86400),
        ("today", at(2026, 3, 10)),
        ("midnight", at(2026, 3, 10)),
        ("yesterday", at(2026, 3, 9)),
        ("noon", at(2026, 3, 10, 12)),
        ("teatime", at(2026, 3, 9, 16)),
        ("10:05", at(2026, 3, 10, 10, 5)),
        ("16:00:30", at(2026, 3, 9, 16, 0, 30)),
        ("0301", at(2026, 3, 1)),
        ("1224", at(2025, 12, 24)),
        ("03/01/24", at(2024, 3, 1)),
        ("2026-03-01", at(2026, 3, 1)),
        ("2026-03-01T10:30", at(2026, 3, 1, 10, 30)),
        ("2026-03-01T10:30:15Z", at(2026, 3, 1, 10, 30, 15, timezone=UTC)),
        ("2026-03-01T12:30:00+02:00", at(2026, 3, 1, 10, 30, timezone=UTC)),
        ("1772366400", 1772366400),
        ("uts86400", 86400),
    ],
)
def test_times_on_the_command_line(argument, moment):
    assert text.time_argument(argument, NOW, BERLIN) == moment


@pytest.mark.parametrize(
    "argument",
    ["", "soon", "now-", "now-3moons", "25:00", "1332", "2026-02-30", "03.02.20261", "now7"],
)
def test_times_that_make_no_sense_are_errors(argument):
    with pytest.raises(ValueError, match="cannot read time"):
        text.time_argument(argument, NOW, BERLIN)
