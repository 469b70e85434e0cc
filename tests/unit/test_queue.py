"""The queue's readers: rows of Slurm 22.05 as recorded, and rows that must not be believed."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from slurm_ltgf.core.model import NO_ACCOUNT, NO_LIMIT, UNKNOWN
from slurm_ltgf.errors import SlurmRefused, SlurmUnavailable
from slurm_ltgf.slurm import queue
from slurm_ltgf.slurm.queue import QueueJob, demand_tasks, is_demand, no_demand_reason

NOW = 1_795_978_000
RECORDED = """\
3|3|3|N/A|N/A|N/A|product|carol|main|normal|CANCELLED|None|1795977730|1795977730|1795977730|1795978668|1:00:00|1000|0|cpu=64,mem=6400M,node=1,billing=64,gres/gpu=8,gres/gpu:h200=8|0|n3|
21|20+1|21|N/A|20|1|research|bob|main|normal|PENDING|Resources|1795977732|1795977732|1795978914|1795982514|1:00:00|51010|0|cpu=1,mem=100M,node=1,billing=1,gres/gpu=3|0||
22|22_17|22|17|N/A|N/A|research|bob|main|normal|PENDING|Priority|1795977780|1795977780|1795989660|1795991460|30:00|51009|0|cpu=1,mem=100M,node=1,billing=1,gres/gpu=2,gres/gpu:h200=2|0||
22|22_19|22|19|N/A|N/A|research|bob|main|normal|PENDING|Priority|1795977780|1795977780|1795989660|1795991460|30:00|51009|0|cpu=1,mem=100M,node=1,billing=1,gres/gpu=2,gres/gpu:h200=2|0||
22|22_20|22|20|N/A|N/A|research|bob|main|normal|PENDING|Priority|1795977780|1795977780|1795989660|1795991460|30:00|51009|0|cpu=1,mem=100M,node=1,billing=1,gres/gpu=2,gres/gpu:h200=2|0||
22|22_21|22|21|N/A|N/A|research|bob|main|normal|PENDING|Priority|1795977780|1795977780|1795989660|1795991460|30:00|51009|0|cpu=1,mem=100M,node=1,billing=1,gres/gpu=2,gres/gpu:h200=2|0||
15|15|15|N/A|N/A|N/A|research|bob|main|normal|PENDING|Priority|1795977732|1795977732|1795990320|1795992120|30:00|51008|0|cpu=4,mem=400M,node=1,billing=4|0||
17|17|17|N/A|N/A|N/A|research|bob|main|normal|PENDING|BeginTime|1795977732|1795981332|1795981332|1795983132|30:00|51008|0|cpu=1,mem=100M,node=1,billing=1,gres/gpu=1|0||
18|18|18|N/A|N/A|N/A|research|bob|main|normal|PENDING|Dependency|1795977732|N/A|N/A|N/A|30:00|51008|0|cpu=1,mem=100M,node=1,billing=1,gres/gpu=1|0||
11|11|11|N/A|N/A|N/A|research|bob|main|normal|PENDING|Priority|1795977732|1795977732|1795995720|1795997520|30:00|51001|0|cpu=1,mem=100M,node=1,billing=1,gres/mps=50|0||
9|9|9|N/A|N/A|N/A|research|bob|main|normal|PENDING|Priority|1795977732|1795977732|1795995060|1795996860|30:00|51001|0|cpu=3,mem=300M,node=3,billing=3,gres/gpu=12|0||
27|25_2|25|2|N/A|N/A|product|carol|main|normal|PENDING|Priority|1795977874|1795977880|N/A|N/A|30:00|17674|0|cpu=1,mem=100M,node=1,billing=1,gres/gpu=1|1||
16|16|16|N/A|N/A|N/A|research|bob|main|normal|PENDING|JobHeldUser|1795977732|N/A|N/A|N/A|30:00|0|0|cpu=1,mem=100M,node=1,billing=1,gres/gpu=1|0||
1|1|1|N/A|N/A|N/A|product|carol|main|normal|RUNNING|None|1795977730|1795977730|1795977730|1795981330|1:00:00|17669|0|cpu=64,mem=6400M,node=1,billing=64,gres/gpu=8,gres/gpu:h200=8|0|n1|
"""


def text(rows: str) -> str:
    return rows.replace("|", queue.DELIMITER)


def row(**cells: str) -> str:
    """The recorded job 15 with some cells changed."""
    found = (
        next(r for r in RECORDED.splitlines() if r.startswith("15|")).removesuffix("|").split("|")
    )
    for name, value in cells.items():
        found[queue.FIELDS.index(name.replace("_", "-"))] = value
    return text("|".join(found) + "|\n")


def read(**cells: str) -> QueueJob:
    found = queue.parse(row(**cells))
    assert not found.skipped, found.skipped
    return found.jobs[0]


JOBS = {job.job_id: job for job in queue.parse(text(RECORDED)).jobs}


def test_every_recorded_row_is_read():
    found = queue.parse(text(RECORDED))
    assert len(found.jobs) == 11
    assert not found.skipped
    assert len(found.pending) == 9
    assert [job.job_id for job in found.holding] == [1]
    assert [job.job_id for job in found.finished] == [3]


def test_a_running_job_has_a_start_and_no_end():
    job = JOBS[1]
    assert (job.start, job.end, job.planned_end) == (1795977730, UNKNOWN, 1795981330)
    assert (job.gres, job.nodes, job.limit_s) == ("gpu:h200=8,gpu=8", "n1", 3600)


def test_a_pending_job_has_a_planned_start_only():
    job = JOBS[9]
    assert (job.start, job.end, job.planned_start) == (UNKNOWN, UNKNOWN, 1795995060)


def test_a_finished_job_keeps_its_end():
    assert (JOBS[3].start, JOBS[3].end) == (1795977730, 1795978668)


def test_gpus_asked_for_are_the_total_over_nodes():
    assert JOBS[9].gres == "gpu=12"
    assert JOBS[11].gres == "mps=50"
    assert JOBS[15].gres == ""


def test_the_rows_of_one_job_id_are_the_tasks_of_one_record():
    job = JOBS[22]
    assert (job.array_job, job.array_task, job.tasks) == (22, UNKNOWN, 4)
    assert job.shown_id == "22_[17,19-21]"
    assert (JOBS[27].array_job, JOBS[27].array_task, JOBS[27].tasks) == (25, 2, 1)
    assert (JOBS[15].array_job, JOBS[15].tasks, JOBS[15].throttle) == (UNKNOWN, 1, NO_LIMIT)


@pytest.mark.parametrize(
    ("tasks", "text_"),
    [([3], "3"), ([1, 2, 3], "1-3"), ([9, 1, 5, 2], "1-2,5,9"), (range(0, 7, 2), "0,2,4,6")],
)
def test_task_lists_are_written_as_slurm_does(tasks, text_):
    assert queue.task_ranges(tasks) == text_


def test_throttles_come_from_the_second_call():
    rows = "22|17-1999:2%7|\n25|5,9|\n41|N/A|\n"
    assert queue.throttles(text(rows)) == {22: 7}


def test_a_het_component_knows_its_leader():
    assert (JOBS[21].het_job, JOBS[21].het_offset, JOBS[21].shown_id) == (20, 1, "20+1")


def test_a_partition_list_is_kept_whole():
    assert read(Partition="cpu,gpu").partition == "cpu,gpu"


def test_an_account_is_lower_case_and_none_has_a_name():
    assert read(Account="Lab-A").account == "lab-a"
    assert read(Account="(null)").account == NO_ACCOUNT


def test_limits_that_are_none_or_unknown_stay_apart():
    assert read(TimeLimit="UNLIMITED").limit_s == NO_LIMIT
    assert read(TimeLimit="Partition_Limit").limit_s == UNKNOWN


@pytest.mark.parametrize("tres", ["cpu=2,mem=512M,node=", "cpu=2,mem=512M,gres/gp"])
def test_a_tres_list_cut_short_is_an_error_of_its_row_never_0_gpus(tres):
    found = queue.parse(row(JobID="99", tres_alloc=tres) + text(RECORDED))
    assert len(found.jobs) == 11
    (skipped,) = found.skipped
    assert skipped.line == 1
    assert skipped.reason.startswith("job 99: TRES list is cut short")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        pytest.param({"ArrayTaskID": "1,3,5,..."}, "invalid literal", id="task list cut"),
        pytest.param({"State": "WAT"}, "unknown state 'WAT'", id="state not known"),
        pytest.param({"PriorityLong": ""}, "invalid literal", id="no priority"),
        pytest.param({"SubmitTime": "soon"}, "cannot read time", id="no time"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(cells, reason):
    (skipped,) = queue.parse(row(**cells)).skipped
    assert reason in skipped.reason


def test_a_row_with_a_column_too_many_is_named():
    (skipped,) = queue.parse("7" + queue.DELIMITER * 30 + "\n").skipped
    assert skipped.reason == "job 7: expected 22 columns, got 30"


@pytest.mark.parametrize(
    ("word", "state", "flags"),
    [
        ("RUNNING", "RUNNING", set()),
        ("COMPLETING", "COMPLETING", set()),
        ("CONFIGURING", "RUNNING", {"CONFIGURING"}),
        ("REQUEUE_HOLD", "PENDING", {"REQUEUE_HOLD"}),
        ("SPECIAL_EXIT", "PENDING", {"SPECIAL_EXIT"}),
        ("COMPLETING,CANCELLED", "COMPLETING", {"CANCELLED"}),
        ("REQUEUE_FED,PENDING", "PENDING", {"REQUEUE_FED"}),
    ],
)
def test_the_base_state_is_parted_from_flags(word, state, flags):
    job = read(State=word)
    assert (job.state, job.flags) == (state, flags)


@pytest.mark.parametrize(
    ("state", "holds"),
    [
        ("RUNNING", True),
        ("SUSPENDED", True),
        ("COMPLETING", True),
        ("PENDING", False),
        ("TIMEOUT", False),
    ],
)
def test_completing_and_suspended_jobs_still_hold_their_gpus(state, holds):
    assert read(State=state).is_holding is holds


# --- demand ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("Priority", ""),
        ("Resources", ""),
        ("None", ""),
        ("SomethingNew", ""),
        ("JobHeldUser", "held"),
        ("JobHeldAdmin", "held"),
        ("launch_failed_requeued_held", "held"),
        ("job requeued in held state", "held"),
        ("Dependency", "not yet eligible"),
        ("DependencyNeverSatisfied", "not yet eligible"),
        ("BeginTime", "not yet eligible"),
        ("JobArrayTaskLimit", "beyond its array's throttle"),
        ("AssocGrpGRES", "capped by its own limit"),
        ("AssocGrpGRESMinutes", "capped by its own limit"),
        ("QOSMaxGRESPerUser", "capped by its own limit"),
        ("QOSGrpCpuLimit", "capped by its own limit"),
        ("MaxGRESPerAccount", "capped by its own limit"),
        ("PartitionTimeLimit", "capped by its own limit"),
        ("Licenses", "capped by its own limit"),
        ("PartitionDown", "the nodes it asks for are out of service"),
        ("ReqNodeNotAvail, UnavailableNodes:n3", "the nodes it asks for are out of service"),
        ("Reservation", "the nodes it asks for are out of service"),
    ],
)
def test_what_no_free_gpu_would_start_is_no_demand(reason, why):
    assert no_demand_reason(priority=9, reason=reason, eligible=NOW - 9, now=NOW) == why


def test_priority_0_is_held_whatever_the_reason():
    assert no_demand_reason(priority=0, reason="Priority", eligible=NOW, now=NOW) == "held"
    assert JOBS[16].is_held


def test_a_job_eligible_later_is_no_demand_yet():
    assert not is_demand(QueueJob(1, eligible=NOW + 1, reason="None", priority=9), NOW)
    assert is_demand(QueueJob(1, eligible=NOW, reason="None", priority=9), NOW)


def test_a_fresh_array_record_has_no_eligible_time_and_is_demand():
    assert is_demand(QueueJob(1, eligible=UNKNOWN, reason="Resources", priority=9), NOW)


def test_a_throttled_array_asks_for_what_its_throttle_leaves():
    running = [QueueJob(30 + i, array_job=25, array_task=i, state="RUNNING") for i in (1, 2)]
    head = QueueJob(25, array_job=25, tasks=8, throttle=3, priority=9, reason="Priority")
    again = QueueJob(33, array_job=25, array_task=3, priority=9, reason="Priority")
    assert demand_tasks([head, *running], NOW) == {25: 1}
    assert demand_tasks([head, again, *running], NOW) == {25: 1, 33: 0}
    assert demand_tasks([again], NOW) == {33: 1}


def test_demand_of_the_recorded_queue():
    asked = demand_tasks(JOBS.values(), NOW)
    assert asked == {21: 1, 22: 4, 15: 1, 17: 0, 18: 0, 11: 1, 9: 1, 27: 1, 16: 0}


# --- sprio, sdiag ---------------------------------------------------------------------------------


def test_a_job_in_two_partitions_has_one_site_factor():
    rows = "5034|9|51009|0|0|50000|0|0|1000|0\n5034|9|51009|0|0|50000|0|0|1000|0\n"
    assert queue.parse_priorities(text(rows)).site == {5034: 9}


def test_a_priority_set_by_hand_is_told_apart():
    rows = "7|0|5|0|0|0|0|0|0|0\n6|-2147483645|1|0|0|100000|0|0|1000|0\n8|0|1|0|0|0|0|0|0|0\n"
    found = queue.parse_priorities(text(rows))
    assert found.frozen == {7}
    assert found.site == {6: -2147483645, 8: 0}


def test_words_where_sprio_should_print_numbers_are_an_error():
    with pytest.raises(SlurmRefused, match="cannot read"):
        queue.parse_priorities("JOBID SITE\n")


SDIAG = """\
*******************************************************
sdiag output at Sun Nov 29 18:43:00 2026 (1795977780)
Data since      Sun Nov 29 18:41:51 2026 (1795977711)
*******************************************************
Jobs submitted: 1233
"""


def test_arrivals_are_sdiags_counter():
    seen = queue.parse_arrivals(SDIAG)
    assert seen == queue.Arrivals(1233, 1795977711, 1795977780)
    assert queue.Arrivals(1234, 1795977711, 0).is_newer_than(seen)
    assert queue.Arrivals(0, 1795990000, 0).is_newer_than(seen), "reset at midnight"
    assert not queue.Arrivals(1233, 1795977711, 1795977999).is_newer_than(seen)


def test_sdiag_without_its_counter_is_an_error():
    with pytest.raises(SlurmRefused, match="Jobs submitted"):
        queue.parse_arrivals("nothing")


# --- the commands ---------------------------------------------------------------------------------


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Put a program on PATH that logs how it was called and answers."""

    def make(name: str, out: str = "", err: str = "", rc: int = 0) -> Path:
        (tmp_path / f"{name}.out").write_text(out)
        (tmp_path / f"{name}.err").write_text(err)
        program = tmp_path / name
        program.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" "$SLURM_TIME_FORMAT" "$SLURM_BITSTR_LEN"'
            f" > {tmp_path}/{name}.argv\n"
            f"cat {tmp_path}/{name}.out; cat {tmp_path}/{name}.err >&2; exit {rc}\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / f"{name}.argv"

    return make


def test_squeue_is_asked_for_every_task_uncut_and_for_no_users_text(fake):
    argv = fake("squeue", row())
    found = queue.snapshot()
    assert not found.skipped
    *options, columns, time_format, bitstr = argv.read_text().splitlines()
    assert (time_format, bitstr) == ("%s", "0")
    assert options == ["-h", "-a", "-t", "all", "-r", "-O"]
    for field in columns.split(","):
        assert field.endswith(f":{queue.DELIMITER}")
    assert not {"Name", "Comment", "WCKey", "WorkDir", "Command"} & set(queue.FIELDS)


def test_a_waiting_array_knows_its_throttle(fake):
    argv = fake("squeue", text(RECORDED))
    program = argv.with_name("squeue")
    second = text("22|17-1999:2%7|\n")
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *PD*) printf %s "{second}";; *) cat {program}.out;; esac\n'
    )
    jobs = {job.job_id: job for job in queue.snapshot().jobs}
    assert (jobs[22].throttle, jobs[22].shown_id) == (7, "22_[17,19-21%7]")
    assert jobs[27].throttle == NO_LIMIT


def test_a_squeue_that_fails_is_no_empty_queue(fake):
    fake("squeue", err="slurm_load_jobs error: Unable to contact slurm controller\n", rc=1)
    with pytest.raises(SlurmUnavailable):
        queue.snapshot()


def test_a_squeue_that_complains_and_answers_is_not_believed(fake):
    fake("squeue", text(RECORDED), err="squeue: error: Invalid job format specification: Foo\n")
    with pytest.raises(SlurmRefused, match="Invalid job format"):
        queue.snapshot()


def test_site_factors_are_sprios(fake):
    fake("sprio", text("12|5|101005|0|0|100000|0|0|1000|0\n"))
    assert queue.site_factors() == {12: 5}


# --- files of other sites -------------------------------------------------------------------------

SHARED = Path(os.environ.get("LTGF_SHARED", Path(__file__).parents[3] / "shared"))
FILES = SHARED / "cases" / "files"


@pytest.mark.skipif(not FILES.is_dir(), reason="LTGF_SHARED: no real files beside this checkout")
def test_real_tres_states_and_ids_are_read_without_crash():
    lines = (FILES / "facebookresearch_gcm/sample-squeue-output.txt").read_text().splitlines()
    assert len(lines) > 3
    for line in lines:
        cells = line.split("|#")
        shown, raw, state = cells[2], cells[3], cells[9]
        tres = next(cell for cell in cells if cell.startswith("cpu="))
        tasks = re.sub(r"\D.*", "", shown.partition("_")[2].strip("[]")) or "N/A"
        job = read(JobID=raw, JobArrayID=shown, ArrayTaskID=tasks, State=state, tres_alloc=tres)
        assert job.tasks >= 1
        assert ("gres/gpu" in tres) == bool(job.gres)
