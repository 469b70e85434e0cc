"""The only writer to Slurm: what it sends, and what it makes of scontrol's words (22.05's own)."""

from __future__ import annotations

import os
import stat

import pytest

from slurm_ltgf.errors import SlurmRefused, SlurmUnavailable
from slurm_ltgf.slurm.control import (
    SITE_FACTOR_MAX,
    Change,
    ControlResult,
    Refusal,
    commands,
    outcome,
    set_site_factors,
    target,
    undo_all,
)


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """A scontrol that answers pings, logs its stdin, echoes it and complains as told."""

    def make(err: str = "", ping: str = "Slurmctld(primary) at vm is UP", ping_rc: int = 0):
        (tmp_path / "err").write_text(err)
        program = tmp_path / "scontrol"
        program.write_text(
            "#!/bin/sh\n"
            f'[ "$1" = ping ] && {{ echo "{ping}" >&{2 if ping_rc else 1}; exit {ping_rc}; }}\n'
            f'echo "args:$*" >> {tmp_path}/log; tee -a {tmp_path}/log\n'
            f"cat {tmp_path}/err >&2; exit {1 if err else 0}\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "log"

    return make


# --- what is sent ---------------------------------------------------------------------------------


def test_jobs_of_one_value_are_one_line():
    changes = [Change(9, 7), Change(5, 7), Change(6, -3)]
    assert commands(changes) == ["update job=6 sitefactor=-3", "update job=5,9 sitefactor=7"]


def test_the_order_of_changes_does_not_matter():
    changes = [Change(9, 7), Change(5, 7), Change(6, -3)]
    assert commands(changes[::-1]) == commands(changes)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        pytest.param(Change(15, 1), "15", id="a job"),
        pytest.param(Change(15, 1, "15"), "15", id="a job as shown"),
        pytest.param(Change(25, 1, "25_[5-12%3]"), "25_[5-12]", id="an array's waiting tasks"),
        pytest.param(Change(22, 1, "22_[1-9:4,20]"), "22_[1,5,9,20]", id="steps are spelled out"),
        pytest.param(Change(27, 1, "25_2"), "25_2", id="one task, requeued"),
        pytest.param(Change(21, 1, "20+1"), "20+1", id="a het component"),
    ],
)
def test_a_record_is_named_so_that_no_other_is_meant(change, name):
    assert target(change) == name


def test_a_huge_group_is_split_into_lines():
    lines = commands([Change(i, 1) for i in range(1, 1202)])
    assert [line.count(",") + 1 for line in lines] == [500, 500, 201]


@pytest.mark.parametrize("shown", ["12; reboot", "25_[1-3", "x", "5 priority=0", "25_[]", "7\n8"])
def test_only_numbers_are_sent(shown):
    with pytest.raises(ValueError, match="cannot read job id"):
        commands([Change(5, 1, shown)])


@pytest.mark.parametrize(
    ("job_id", "value"),
    [(5, SITE_FACTOR_MAX + 1), (5, -SITE_FACTOR_MAX - 1), (0, 1), (-4, 1), (1 << 32, 1)],
)
def test_what_is_out_of_range_is_refused_before_slurm_sees_it(job_id, value):
    with pytest.raises(ValueError, match="must be"):
        Change(job_id, value)


def test_the_ends_of_the_range_are_allowed():
    lines = commands([Change(1, SITE_FACTOR_MAX), Change(1, -SITE_FACTOR_MAX)])
    assert lines == [
        "update job=1 sitefactor=-2147483645",
        "update job=1 sitefactor=2147483645",
    ]


# --- what scontrol says ---------------------------------------------------------------------------


def test_silence_is_success():
    assert outcome([Change(1, 5), Change(2, 5)], "").written == (1, 2)


def test_jobs_gone_meanwhile_are_no_error():
    said = "Job has already finished for job 24\nInvalid job id specified for job 99999\n"
    found = outcome([Change(12, 1), Change(24, 1), Change(99999, 1)], said)
    assert found == ControlResult((12,), (24, 99999), (), 0, 1)


def test_an_array_some_of_whose_tasks_are_over_is_written():
    said = "25_1: Job has already finished\n25_2-12: No error\n"
    assert outcome([Change(25, 1, "25_[1-12%3]")], said).written == (25,)


def test_an_array_all_of_whose_tasks_are_over_has_vanished():
    said = "25_1: Job has already finished\n25_100-101: Invalid job id specified\n"
    assert outcome([Change(25, 1, "25_[1,100-101]")], said).vanished == (25,)


def test_words_about_an_array_are_given_to_the_record_that_has_the_task():
    changes = [Change(25, 1, "25_[5-12%3]"), Change(27, 2, "25_2")]
    found = outcome(changes, "25_2: Job has already finished\n")
    assert (found.written, found.vanished) == ((25,), (27,))


def test_a_task_list_that_scontrol_cut_is_attributed():
    changes = [Change(22, 1, "22_[1-1999:2%7]"), Change(30, 1, "22_2")]
    found = outcome(changes, "22_1,3,5,7,9,11,13,15,17,19,21,...: Job is not pending\n")
    assert found.refused == (Refusal(22, "Job is not pending"),)
    assert found.written == (30,)


def test_missing_rights_are_said_once():
    said = "Access/permission denied for job 14\n12_1-10: Access/permission denied\n"
    with pytest.raises(SlurmRefused, match=r"denied for 2 of 3 jobs, first 14; run as SlurmUser"):
        outcome([Change(14, 1), Change(12, 1, "12_[1-10]"), Change(3, 1)], said)


def test_another_users_job_is_missing_rights_too():
    with pytest.raises(SlurmRefused, match="Invalid user id"):
        outcome([Change(40, 1)], "Invalid user id for job 40\n")


@pytest.mark.parametrize(
    "said",
    [
        "Unexpected message received for job 5\n",
        "slurm_update error: Unable to contact slurm controller (connect failure)\n",
    ],
)
def test_a_slurmctld_that_went_away_is_unavailable(said):
    with pytest.raises(SlurmUnavailable):
        outcome([Change(5, 1)], said)


def test_words_that_belong_to_no_job_stop_the_pass():
    with pytest.raises(SlurmRefused, match="invalid keyword"):
        outcome([Change(5, 1)], "invalid keyword: update\n")


# --- one scontrol ---------------------------------------------------------------------------------


def test_all_changes_go_through_one_scontrol_on_stdin(scontrol):
    log = scontrol()
    found = set_site_factors([Change(12, 5), Change(13, 6), Change(14, 5)])
    assert found == ControlResult((12, 13, 14), (), (), commands=2, calls=1)
    assert log.read_text() == ("args:\nupdate job=12,14 sitefactor=5\nupdate job=13 sitefactor=6\n")


def test_failures_are_told_by_stderr_though_stdout_echoes_every_line(scontrol):
    scontrol(err="Job has already finished for job 14\n")
    found = set_site_factors([Change(i, 5) for i in range(1, 3000)])
    assert found.vanished == (14,)
    assert len(found.written) == 2998


def test_nothing_to_change_calls_nothing(scontrol):
    log = scontrol()
    assert set_site_factors([]) == ControlResult()
    assert not log.exists()


def test_a_dead_slurmctld_is_seen_before_anything_is_sent(scontrol):
    log = scontrol(ping="Slurmctld(primary) at vm is DOWN", ping_rc=1)
    with pytest.raises(SlurmUnavailable, match="DOWN"):
        set_site_factors([Change(1, 5)])
    assert not log.exists()


def test_undo_gives_every_job_0(scontrol):
    log = scontrol()
    assert undo_all([(5, "5"), (25, "25_[5-12%3]")]).written == (5, 25)
    assert "update job=5,25_[5-12] sitefactor=0" in log.read_text()
