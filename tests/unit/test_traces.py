"""Traces: every format from a few rows with known values, what is left out and why, nodes."""

import gzip
import io
import sys
from collections import Counter
from pathlib import Path

import pytest

from slurm_ltgf.cli.main import run
from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN, Run, Runs, Skipped
from slurm_ltgf.errors import InputError, LedgerError, UsageError
from slurm_ltgf.sim.cluster import NodeType
from slurm_ltgf.sim.traces import FORMATS, fitted, read_nodes, read_trace
from slurm_ltgf.sim.traces.history import YEAR_S, past_jobs, read_history
from slurm_ltgf.sim.workload import Job, workload

SHARED = Path(__file__).parents[3] / "shared" / "traces"
PHILLY = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,aa
2017-10-09 07:01:45,100.0,2,200.0,bb
gestern,1,1,1,aa
2017-10-09 07:01:45,100.0,0,0,bb
2017-10-09 07:01:45,nan,1,0,bb
2017-10-09 07:01:45,1e300,1,0,bb
2017-10-09 07:01:45,3,99999999,0,bb
2017-10-09 07:01:45,3
"""
HELIOS = """\
job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
11,uA,vcX,n,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:28,2020-06-09 18:45:37,249,1
12,uB,vcY,"a,b",0,8,1,COMPLETED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-09 18:41:29,1,0
13,uB,vcY,n,1,1,1,COMPLETED,2020-06-09 18:41:30,2020-06-09 18:41:30,2020-06-09 18:41:40,10,0
"""
OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
scheduled_time
p0,12000,16384,1,1000,,LS,Running,100,400,150
p1,6500,12288,1,460,V100M16|V100M32,BE,Failed,120,220,120
p2,6000,12288,2,1000,T4,BE,Succeeded,130,230,130
p3,6000,12288,0,0,,BE,Running,130,230,130
p4,6000,12288,1,1000,,BE,Pending,130,230,
"""
EAGLE = """\
job_id,user,account,partition,qos,wallclock_req,nodes_req,processors_req,gpus_req,mem_req,\
submit_time,start_time,end_time,run_time,state,name,work_dir,submit_line
7,u1,acct,p,normal,900.0,1,36,2,0.0,2019-01-02 11:18:55,2019-01-02 11:18:55,x,600.0,COMPLETED,n,w,s
8,u1,acct,p,normal,900.0,1,36,2,0.0,2019-01-02 11:19:55,2019-01-02 11:19:55,x,902.0,TIMEOUT,n,w,s
9,u1,acct,p,normal,900.0,1,36,0,0.0,2019-01-02 11:19:55,2019-01-02 11:19:55,x,902.0,TIMEOUT,n,w,s
"""
#: number submit wait run processors cpu memory, asked: processors time memory, status user group ..
SWF = """\
; Version: 2.2
; Computer: a machine
  1 100  5  60  4 -1 -1  4  120 2048 1 10 3 -1 1 1 -1 -1
  2 110 -1  30 -1 -1 -1  2   -1   -1 0 11 3 -1 1 1 -1 -1
  3 115  9   0  1 -1 -1  1   60   -1 5 11 3 -1 1 1 -1 -1
  4 120  0  -1  1 -1 -1  1   60   -1 1 11 4 -1 1 1 -1 -1
  5 130  0  50  0 -1 -1 -1   60   -1 1 11 4 -1 1 1 -1 -1
  6 140  0  90  8 -1 -1  8  200   -1 1 12 4 -1 1 1 -1 -1
  6 140  0  40  8 -1 -1  8  200   -1 2 12 4 -1 1 1 -1 -1
  6  -1 10  50  8 -1 -1  8  200   -1 3 12 4 -1 1 1 -1 -1
  7 150  0  20  2 -1 -1  2  100   -1 2 12 -1 -1 1 1 -1 -1
  7  -1 30  25  2 -1 -1  2  100   -1 4 12 -1 -1 1 1 -1 -1
  1 160  0  60  4 -1 -1  4  120   -1 1 10 3 -1 1 1 -1 -1
  8 170  0  0.4 4 -1 -1  4  120   -1 1 10 3 -1 1 1 -1 -1
  9 180  0  60
 10 190  0  x   4 -1 -1  4  120   -1 1 10 3 -1 1 1 -1 -1
"""


def read(text, **how):
    return read_trace(io.BytesIO(text.encode()), **how)


def told(work):
    return [(j.job_id, j.tenant, j.gpus, j.submit, j.run_s, j.limit_s) for j in work.jobs]


def why(work):
    return [(row.line, row.reason) for row in work.skipped]


# --- CSV ------------------------------------------------------------------------------------------


def test_philly_times_are_seconds_from_the_first_and_bad_rows_are_named():
    work = read(PHILLY, limit_factor=2)
    assert told(work) == [(2, "bb", 2, 0, 100, 200), (1, "aa", 1, 10, 66, 132)]
    assert [line for line, _ in why(work)] == [4, 5, 6, 7, 8, 9]
    assert dict(why(work))[5] == "no GPUs"
    assert "a size that no job has" in dict(why(work))[8]


def test_helios_tenants_are_virtual_clusters_and_cpu_jobs_are_counted():
    work = read(HELIOS)
    assert told(work) == [(1, "vcX", 4, 0, 249, 249), (3, "vcY", 1, 3, 10, 10)]
    assert [(j.cpus, j.state) for j in work.jobs] == [(16, "FAILED"), (1, "COMPLETED")]
    assert why(work) == [(3, "no GPUs")]
    assert [j.tenant for j in read(HELIOS, by_user=True).jobs] == ["uA", "uB"]


def test_openb_parts_of_gpus_are_rounded_up_and_said():
    work = read(OPENB)
    assert told(work) == [
        (1, "LS", 1, 0, 250, 250),
        (2, "BE", 1, 20, 100, 100),
        (3, "BE", 2, 30, 100, 100),
    ]
    assert [(j.gpu_type, j.cpus, j.memory_mib, j.state) for j in work.jobs] == [
        ("", 12, 16384, "COMPLETED"),
        ("", 7, 12288, "FAILED"),
        ("T4", 6, 12288, "COMPLETED"),
    ]
    assert why(work) == [(5, "no GPUs"), (6, "never scheduled: its run time is not known")]
    assert work.notes == ("1 jobs use a part of a GPU, and hold a whole one here",)


def test_eagles_time_limits_are_taken_and_never_below_the_run_time():
    work = read(EAGLE)
    assert told(work) == [(1, "acct", 2, 0, 600, 900), (2, "acct", 2, 60, 902, 902)]
    assert [j.state for j in work.jobs] == ["COMPLETED", "TIMEOUT"]
    assert why(work) == [(4, "no GPUs")]


def test_a_trace_without_users_cannot_be_read_by_user():
    with pytest.raises(InputError, match="names no users"):
        read(PHILLY, by_user=True)


# --- SWF ------------------------------------------------------------------------------------------


def test_swf_processors_are_gpus_groups_are_tenants():
    work = read(SWF, limit_factor=3)
    assert told(work) == [
        (1, "g3", 4, 100, 60, 120),
        (2, "g3", 2, 110, 30, 90),  # allocated unknown: requested; no limit: the factor
        (6, "g4", 8, 140, 90, 200),  # the summary; its parts 40 + 50
        (7, "(none)", 2, 150, 45, 100),  # no summary: 20 + 25
        (8, "g3", 4, 170, 1, 120),  # less than a second
    ]
    assert [j.state for j in work.jobs] == [
        "COMPLETED",
        "FAILED",
        "COMPLETED",
        "FAILED",
        "COMPLETED",
    ]
    assert work.jobs[0].memory_mib == 8  # 2048 KiB for each of 4 processors


def test_swf_rows_that_are_no_jobs_are_named_by_line():
    assert why(read(SWF)) == [
        (5, "cancelled while it waited"),
        (6, "its run time is not known"),
        (7, "no GPUs"),
        (9, "a part of a job whose summary counts"),
        (10, "a part of a job whose summary counts"),
        (13, "its job number occurs before"),
        (15, "4 fields, and not 18"),
        (16, "a field that is no number"),
    ]


def test_swf_tenants_may_be_the_users():
    assert [j.tenant for j in read(SWF, by_user=True).jobs] == ["u10", "u11", "u12", "u12", "u10"]


def test_swf_without_comments_is_recognised():
    assert len(read(SWF.split("\n", 2)[2]).jobs) == 5


# --- sacct and the ledger -------------------------------------------------------------------------

T0 = 1_800_000_000
DUMP = (
    "JobIDRaw|JobID|Cluster|Account|User|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw"
    "|AllocTRES|ReqTRES\n"
)


def row(job, state="COMPLETED", *, wait=0, start=0, end=60, gpus=4, limit=10, **more):
    """A line of a dump, times after T0. wait: from eligible to start; limit: minutes."""
    eligible = T0 + start - wait
    tres = more.get("tres", f"cpu=1,gres/gpu={gpus},node=1" if gpus else "cpu=1,node=1")
    begun = T0 + start if more.get("ran", True) else "Unknown"
    over = T0 + end if more.get("over", True) else "Unknown"
    elapsed = end - start if more.get("ran", True) else 0
    submit = eligible - more.get("held", 0)
    return (
        f"{job}|{job}|c1|{more.get('account', 'lab')}|{more.get('user', 'ann')}|{state}|{submit}"
        f"|{eligible}|{begun}|{over}|{elapsed}|{limit}|{tres}|{more.get('asked', tres)}\n"
    )


SACCT = "".join(
    [
        DUMP,
        row(1, wait=30, start=100, end=160, held=1000),
        row(2, "REQUEUED", start=0, end=50, wait=10),
        row(2, "FAILED", start=200, end=290, wait=100),
        row(3, "CANCELLED by 7", ran=False, end=20),
        row(4, gpus=0),
        row(5, "PENDING", ran=False, over=False, tres=""),
        row(6, "RUNNING", start=300, end=340, over=False, limit="UNLIMITED"),
        row(7, tres="cpu=1,node=1,gres/gpu=1,gres/gpu:a100_1g.10gb=1"),
        row(8, start=10, end=70, account="other", user="bob", asked="gres/gpu=4,gres/gpu:h100=4"),
        row(9, tres=""),
    ]
)


def test_sacct_jobs_arrive_when_eligible_and_requeued_runs_are_lost_attempts():
    work = read(SACCT)
    assert told(work) == [
        (2, "lab", 4, 0, 90, 600),  # eligible T0 - 10
        (7, "lab", 1, 10, 60, 600),
        (8, "other", 4, 20, 60, 600),
        (1, "lab", 4, 80, 60, 600),  # eligible at 70, submitted long before
        (6, "lab", 4, 310, 40, YEAR_S),
    ]
    by_id = {j.job_id: j for j in work.jobs}
    assert (by_id[2].lost_s, by_id[2].state) == ((50,), "FAILED")
    assert [by_id[k].gpu_type for k in (1, 7, 8)] == ["", "", "h100"]
    assert work.notes == (
        "1 jobs still ran when the history ended: their run time is taken as far as it was seen",
        "1 jobs use a part of a GPU, and hold a whole one here",
    )


def test_sacct_jobs_that_cannot_run_again_are_named():
    assert {s.source: s.reason for s in read(SACCT).skipped} == {
        "trace: job 3": "cancelled while it waited",
        "trace: job 4": "no GPUs",
        "trace: job 5": "still waited when the history ended: its run time is not known",
        "trace: job 9": "its GPUs are not known",
    }


def test_the_ledger_gives_the_workload_of_the_dump_it_was_made_of(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    dump, ledger = tmp_path / "dump.psv", tmp_path / "ledger.db"
    dump.write_text(SACCT)
    assert run(["--ledger", str(ledger), "sync", "--from-file", str(dump)]) == 0
    of_ledger, of_dump = read_trace(ledger), read_trace(dump)
    assert of_ledger.jobs == of_dump.jobs
    assert Counter(s.reason for s in of_ledger.skipped) == Counter(
        s.reason for s in of_dump.skipped
    )
    assert [j.tenant for j in read_trace(ledger, by_user=True).jobs].count("bob") == 1


def history(*runs):
    base = {"cluster": "c", "account": "a", "gres": "gpu=4", "limit_s": UNKNOWN, "state": "DONE"}
    return Runs.of([Run(**{**base, "job_id": 1, **run}) for run in runs])


def attempt(start, end, state, **more):
    return {"start": start, "end": end, "elapsed_s": end - start, "state": state, **more}


def test_a_preempted_run_is_not_replayed_for_it_was_the_policys_doing():
    runs = history(
        attempt(10, 40, "PREEMPTED", submit=5, eligible=7),
        attempt(60, 90, "NODE_FAIL", submit=40, eligible=41),
        attempt(100, 200, "COMPLETED", submit=90, eligible=91),
    )
    (past,) = past_jobs(runs, "x")
    assert (past.submit, past.run_times(kept=False)) == (7, ((30,), 100))
    assert past.run_times(kept=True) == ((), 160)
    assert past.job(origin=0, limit_factor=2).limit_s == 200


def test_a_resized_run_keeps_its_gpu_seconds():
    """8 GPUs for 100 s, then 2 for 200 s: 1200 GPU-s, which are 150 s of 8 GPUs."""
    runs = history(
        attempt(0, 100, "RESIZING", gres="gpu=8"), attempt(100, 300, "COMPLETED", gres="gpu=2")
    )
    (past,) = past_jobs(runs, "x")
    assert (past.gpus, past.attempts) == (8, ((0, 300, 150, "COMPLETED"),))


def test_suspended_time_is_no_work_and_no_limit_is_a_year():
    run = attempt(0, 100, "COMPLETED", limit_s=NO_LIMIT)
    (past,) = past_jobs(history({**run, "elapsed_s": 70, "suspended_s": 30}), "x")
    job = past.job(origin=0)
    assert (past.attempts[0].end, job.run_s, job.limit_s) == (100, 70, YEAR_S)


def test_ids_that_two_jobs_have_become_a_count():
    runs = history(
        attempt(0, 9, "COMPLETED", array_job=1, array_task=1),
        attempt(0, 9, "COMPLETED", array_job=1, array_task=2),
        attempt(0, 9, "COMPLETED", job_id=8),
    )
    assert [past.job_id for past in past_jobs(runs, "x")] == [1, 2, 3]
    work = read_history(runs, "x", now=100)
    assert len({job.job_id for job in work.jobs}) == 3


def test_more_rows_than_are_looked_at_together_give_the_same_jobs(monkeypatch):
    runs = history(*[attempt(10 * k, 10 * k + 5, "REQUEUED", job_id=k % 7 + 1) for k in range(50)])
    whole = list(past_jobs(runs, "x"))
    monkeypatch.setattr("slurm_ltgf.sim.traces.history.PART_ROWS", 3)
    assert list(past_jobs(runs, "x")) == whole
    assert sum(len(past.attempts) for past in whole) == 50


def test_an_empty_history_is_an_empty_workload():
    assert read_history(Runs.of([]), "x", now=1).jobs == ()


# --- what a trace is ------------------------------------------------------------------------------

SAMPLES = {
    "philly": PHILLY,
    "helios": HELIOS,
    "openb": OPENB,
    "eagle": EAGLE,
    "swf": SWF,
    "sacct": SACCT,
    "astraea": "job_id,user,num_gpu,submit_time,duration\n0,aa,1,115,70\n1,bb,2,132,18\n",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_formats_are_recognised_packed_or_not_from_a_file_or_standard_input(
    name, tmp_path, monkeypatch
):
    plain = read(SAMPLES[name])
    assert plain.jobs
    packed = tmp_path / "trace"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + SAMPLES[name].encode()))
    assert read_trace(packed).jobs == plain.jobs
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed.read_bytes())))
    assert read_trace("-").jobs == plain.jobs
    assert read(SAMPLES[name].replace("\n", "\r\n"), format=name).jobs == plain.jobs


def test_every_format_has_a_sample():
    assert {*SAMPLES, "ledger"} == set(FORMATS)


@pytest.mark.parametrize(
    ("text", "how", "error", "says"),
    [
        ("", {}, InputError, "begins with nothing"),
        ("\n\n", {}, InputError, "begins with nothing"),
        ("a,b\n1,2\n", {}, InputError, "'a,b'; known are philly"),
        ("\x1b]0;x\x07" * 99, {}, InputError, r"\\x1b"),
        (PHILLY, {"format": "helios"}, InputError, "helios needs the columns duration|gpu_num"),
        (PHILLY, {"format": "quake"}, UsageError, "there are philly"),
        (PHILLY, {"format": "sacct"}, InputError, "trace: "),
        (PHILLY, {"format": "ledger"}, LedgerError, "trace: "),
        ("JobID|Account|Start\n1|a|1\n", {}, InputError, "without column"),
        (PHILLY + '"' + "x" * 200_000 + '"\n', {}, InputError, "line 10"),
    ],
)
def test_what_is_no_trace_is_one_line(text, how, error, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=says) as caught:
        read(text, **how)
    assert "\n" not in str(caught.value)


def test_a_damaged_packed_file_and_none_at_all_are_one_line(tmp_path):
    whole = gzip.compress(SWF.encode() * 500)
    for damaged in (whole[:-900], whole[:40] + b"xxxx" + whole[44:]):
        with pytest.raises(InputError, match="damaged"):
            read_trace(io.BytesIO(damaged))
    with pytest.raises(InputError, match="No such file"):
        read_trace(tmp_path / "none")
    with pytest.raises(InputError, match="directory"):
        read_trace(tmp_path)


def test_a_reader_that_gives_a_byte_at_a_time_is_enough():
    class Slow(io.RawIOBase):
        def __init__(self, data):
            self.rest = io.BytesIO(data)

        def read(self, n=-1):
            return self.rest.read(min(n, 1))

    assert len(read_trace(Slow(SWF.encode()), format="swf").jobs) == 5


def test_hostile_names_come_through_as_they_are():
    name = "=cmd|' /C calc'!A0<script>\x1b[31m"
    work = read(PHILLY + f'2017-10-09 07:01:45,5,1,5,"{name}"\n')
    assert name in work.tenants


def test_real_traces_give_every_row_once():
    if not SHARED.is_dir():
        pytest.skip("the traces are not here")
    for name, rows, jobs in (
        ("philly/philly_2w_11vc.csv", 22_009, 22_009),
        ("philly/philly.csv", 82_247, 82_247),
        ("openb/openb_pod_list_default.csv", 8_152, 6_203),
        ("eagle/sample_eagle_data.csv", 1_000, 4),
        ("astraea_toy/fake_job.csv", 500, 500),
    ):
        work = read_trace(SHARED / name)
        assert (len(work.jobs), len(work.jobs) + len(work.skipped)) == (jobs, rows)


# --- nodes ----------------------------------------------------------------------------------------


def test_nodes_are_read_from_words():
    assert read_nodes("16x8:a100:128c:1000G, 8x4:v100,1x2") == [
        NodeType(16, 8, "a100", 128, 1_024_000),
        NodeType(8, 4, "v100"),
        NodeType(1, 2),
    ]


def test_openbs_node_list_is_counted_by_kind(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,1024,2,P100\nn1,64000,1024,2,P100\n"
        "n2,32000,512,0,\nn3,96000,2048,8,G2\n"
    )
    assert read_nodes(str(path)) == [
        NodeType(1, 8, "G2", 96, 2048),
        NodeType(2, 2, "P100", 64, 1024),
    ]
    if SHARED.is_dir():
        kinds = read_nodes(str(SHARED / "openb" / "openb_node_list_all_node.csv"))
        assert (sum(k.count for k in kinds), sum(k.count * k.gpus for k in kinds)) == (1213, 6212)


@pytest.mark.parametrize("text", ["", "8", "8x0", "0x8", "8x8:9Q", "8x8,", "no/such/file"])
def test_what_are_no_nodes_is_refused(text):
    with pytest.raises(UsageError):
        read_nodes(text)


@pytest.mark.parametrize("body", ["a,b\n", "sn,cpu_milli,memory_mib,gpu,model\nn0,1,1,x,\n"])
def test_a_list_of_nodes_that_is_none_is_refused(tmp_path, body):
    path = tmp_path / "nodes.csv"
    path.write_text(body)
    with pytest.raises(InputError):
        read_nodes(str(path))


def ask(job_id, gpus, kind="", cpus=0):
    return Job(job_id, "a", gpus, 0, 10, 10, gpu_type=kind, cpus=cpus)


def test_jobs_that_no_node_could_run_are_named():
    nodes = [NodeType(2, 4, "A100", cpus=8), NodeType(1, 8, "v100")]
    asked = [ask(1, 8), ask(2, 9), ask(3, 2, "a100"), ask(4, 8, "h100"), ask(5, 1, "a100", 9)]
    work = fitted(workload(asked, [Skipped(7, "x")], "t"), nodes)
    assert [(j.job_id, j.gpu_type) for j in work.jobs] == [(1, ""), (3, "A100")]
    assert [(s.source, s.reason) for s in work.skipped[1:]] == [
        ("t: job 2", "no nodes of the cluster have what it asks for"),
        ("t: job 4", "the cluster has no GPU of its type"),
        ("t: job 5", "no nodes of the cluster have what it asks for"),
    ]


def test_types_are_nothing_where_the_nodes_tell_none():
    work = fitted(workload([ask(1, 8, "h100")]), [NodeType(1, 8)])
    assert (work.jobs[0].gpu_type, work.notes) == (
        "",
        ("1 jobs ask for a GPU type; the nodes tell none",),
    )
