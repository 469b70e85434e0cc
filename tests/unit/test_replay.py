"""`ltgf replay`: what is taken from the history, by hand, and what is said of it."""

import json
import re
from pathlib import Path

import pytest

from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN, Account, Skipped, Window
from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.engine import simulate
from slurm_ltgf.sim.metrics import measures
from slurm_ltgf.sim.policies.fifo import Fifo
from slurm_ltgf.sim.replay import changes, machine, max_held, read
from slurm_ltgf.sim.traces.history import Attempt, Past
from slurm_ltgf.store.ledger import Ledger

W = Window(1000, 2000)
GOLDEN = Path(__file__).parents[1] / "golden" / "flood-22.05" / "in.sacct"


def past(job_id, *attempts, gpus=4, tenant="a", submit=None, limit_s=600, kind="", state="DONE"):
    """A job; attempts: (start, end[, state]), the last with the job's state; epoch seconds."""
    *before, (start, end) = attempts
    whole = [Attempt(s, e, e - s, how) for s, e, how in before]
    whole.append(Attempt(start, end, end - start, state))
    arrived = whole[0].start if submit is None else submit
    return Past(job_id, tenant, gpus, kind, arrived, limit_s, tuple(whole), False, 0)


def one(*args, **how):
    """(the job to simulate, the job as it was) of one past job."""
    history = read([past(1, *args, **how)], W, name="x")
    return history.work.jobs[0], history.real[0], history


# --- the window -----------------------------------------------------------------------------------


def test_a_job_inside_the_window_keeps_its_times():
    job, real, history = one((1100, 1300), submit=1050)
    assert (job.submit, job.run_s, job.limit_s, job.start) == (50, 200, 600, None)
    assert (real.submit, real.start, real.end, real.moves) == (50, 100, 300, 0)
    assert (history.ran_before, history.ran_on) == (frozenset(), frozenset())


def test_a_job_that_ran_at_the_beginning_holds_its_gpus_from_0_with_what_was_left():
    job, real, history = one((700, 1200), submit=650)
    assert (job.submit, job.run_s, job.limit_s) == (0, 200, 300)
    assert (real.start, real.end) == (0, 200)
    assert history.ran_before == {1}


def test_a_job_that_waited_at_the_beginning_comes_right_after_those_that_ran():
    job, real, _ = one((1400, 1500), submit=300)
    assert (job.submit, real.start, real.end) == (1, 400, 500)
    job, real, history = one((1000, 1500), submit=300)
    assert (job.submit, real.start, history.ran_before) == (0, 0, frozenset())


@pytest.mark.parametrize("times", [(500, 900), (500, 1000), (2000, 2100)])
def test_jobs_outside_the_window_are_not_in_it(times):
    assert read([past(1, times)], W, name="x").real == ()


def test_a_job_that_had_not_ended_runs_to_its_limit_and_is_named():
    job, real, history = one((1900, 2000), submit=1500, state="RUNNING")
    assert (job.run_s, job.left_s, job.limit_s) == (600, 600, 600)
    assert (real.start, real.end, history.ran_on) == (900, None, {1})
    for limit_s in (UNKNOWN, NO_LIMIT):
        job, _, _ = one((1900, 2000), state="RUNNING", limit_s=limit_s)
        assert job.run_s == job.limit_s == 1000  # to the end of the window at least


def test_attempts_are_holds_preempted_or_failed():
    job, real, _ = one(
        (900, 1100, "NODE_FAIL"), (1200, 1250, "PREEMPTED"), (1300, 1400), submit=890
    )
    assert (job.submit, job.lost_s, job.left_s, job.run_s) == (0, (100,), 100, 100)
    assert real.runs == [(0, 100, "NODE_FAIL"), (200, 250, "PREEMPTED")]
    assert (real.moves, real.failures, real.start, real.end) == (1, 1, 300, 400)


def test_attempts_before_the_window_are_over():
    job, real, history = one((500, 600, "REQUEUED"), (1100, 1200), submit=400)
    assert (job.submit, job.lost_s, real.runs) == (1, (), [])
    assert history.as_it_was(8).failed_gpu_s == 0


def test_work_that_was_kept_is_one_run():
    job = read([past(1, (1000, 1100, "REQUEUED"), (1300, 1400))], W, name="x").work.jobs[0]
    assert (job.lost_s, job.run_s) == ((100,), 100)
    rows = [past(1, (1000, 1100, "REQUEUED"), (1300, 1400))]
    job = read(rows, W, name="x", requeued_work_kept=True).work.jobs[0]
    assert (job.lost_s, job.run_s) == ((), 200)


def test_as_it_was_is_measured_like_a_policy():
    """a held 4 of 8 GPUs for 1000 s; b waited 300 s, held 4 for 100 s in vain and 100 s more."""
    rows = [
        past(1, (500, 2100), limit_s=NO_LIMIT),
        past(2, (1400, 1500, "NODE_FAIL"), (1500, 1600), submit=1100, tenant="b"),
        Skipped(0, "no GPUs", "x: job 9"),
    ]
    history = read(rows, W, name="x")
    own = measures(history.as_it_was(8), {"a": 1, "b": 1})
    assert (own.policy, own.mean_wait_s, own.unfinished) == ("as it was", 150, 1)
    assert own.utilisation == (4 * 1000 + 4 * 200) / 8000
    assert (own.failed_gpu_s, own.preemptions) == (400, 0)
    assert [row.attained_gpu_s for row in own.tenants] == [4000, 800]
    assert [row.reason for row in history.work.skipped] == ["no GPUs"]


def test_jobs_that_the_nodes_could_never_run_are_in_neither():
    rows = [past(1, (1000, 1100), gpus=9), past(2, (900, 1100), gpus=8, kind="h100")]
    history = read(rows, W, name="x").on([NodeType(1, 8)])
    assert [job.job_id for job in history.real] == [job.job_id for job in history.work.jobs] == [2]
    assert history.ran_before == {2}
    assert len(history.work.skipped) == 1


def test_those_that_ran_at_the_beginning_go_before_those_that_waited_under_any_policy():
    rows = [past(k, (1000 - k, 1100), gpus=1, tenant="z") for k in range(1, 9)]
    rows += [past(k, (1200, 1300), gpus=8, submit=10, tenant="a") for k in (20, 21)]
    history = read(rows, W, name="x")
    outcome = simulate(history.work, Cluster([NodeType(1, 8)]), Fifo(), horizon=1000)
    starts = {job.job_id: job.start for job in outcome.jobs}
    assert starts == dict.fromkeys(range(1, 9), 0) | {20: 100, 21: 200}


def test_simulating_leaves_the_history_as_it_was():
    history = read([past(1, (1400, 1500), submit=1000)], W, name="x")
    simulate(history.work, Cluster([NodeType(1, 8)]), Fifo(), horizon=1000)
    assert history.as_it_was(8).jobs[0].start == 400
    assert history.as_it_was(8).jobs == history.as_it_was(8).jobs


# --- the machine ----------------------------------------------------------------------------------


def test_the_most_gpus_held_at_once():
    history = read(
        [
            past(1, (1000, 1100), gpus=8),
            past(2, (1100, 1200), gpus=8),  # takes what 1 gives
            past(3, (1150, 1160, "NODE_FAIL"), (1300, 1400), gpus=4),
            past(4, (1390, 1500), gpus=3),
        ],
        W,
        name="x",
    )
    assert (max_held(history.real), history.most_held, max_held([])) == (12, 12, 0)


def test_nodes_of_one_size_and_a_smaller_one():
    assert machine({"": 20.0}, 8) == [NodeType(2, 8), NodeType(1, 4)]
    assert machine({"v100": 4.0, "a100": 16.0}, 8) == [
        NodeType(2, 8, "a100"),
        NodeType(1, 4, "v100"),
    ]
    assert machine({}, 8) == machine({"": 0.0}, 8) == []


def test_slices_are_put_together_to_gpus():
    """7 slices of 1/7 and 4 of 3/7 are 1 + 12/7 GPUs: two whole ones, and 3 that are none."""
    assert machine({"a100_1g.10gb": 7.0, "a100_3g.40gb": 4.0, "a100": 3.0}, 8) == [NodeType(1, 5)]


# --- for whom -------------------------------------------------------------------------------------


def test_changes_count_waiting_of_jobs_that_came_and_moves_of_all():
    rows = [
        past(1, (900, 1100)),
        past(2, (1300, 1400), submit=1100),
        past(3, (1500, 1550, "PREEMPTED"), (1600, 1700), submit=1400),
    ]
    history = read(rows, W, name="x")
    outcome = history.as_it_was(8)
    (a, b) = changes([outcome], [measures(outcome, {"a": 1, "b": 2})], history.ran_before)
    assert (a["tenant"], a["jobs"], a["weight"]) == ("a", 2, 1)
    own = a["policies"][0]
    assert (own["mean_wait_s"], own["median_wait_s"], own["preemptions"]) == (150, 150, 1)
    assert (b["jobs"], b["policies"][0]["mean_wait_s"]) == (0, None)


# --- the command ----------------------------------------------------------------------------------

T0 = 1_700_000_000
HEAD = (
    "JobIDRaw|JobID|Cluster|Account|User|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw"
    "|AllocTRES|ReqTRES|NodeList\n"
)


def row(job, account, eligible, start, end, *, gpus=4, state="COMPLETED", node="n1", **more):
    tres = f"cpu=1,gres/gpu={gpus},node=1" if gpus else "cpu=1,node=1"
    over = T0 + end if more.get("over", True) else "Unknown"
    return (
        f"{job}|{job}|{more.get('cluster', 'c1')}|{account}|u|{state}|{T0 + eligible}"
        f"|{T0 + eligible}|{T0 + start}|{over}|{end - start}|{more.get('limit', 100)}|{tres}"
        f"|{more.get('asked', tres)}|{node}\n"
    )


#: a asks for everything at 0, b for 8 GPUs at 10; first come, first served on 8 GPUs.
FLOOD = [row(k, "a", 0, 100 * ((k - 1) // 2), 100 * ((k - 1) // 2) + 100) for k in range(1, 7)]
FLOOD += [row(k, "b", 10, 300, 400) for k in (11, 12)]


@pytest.fixture
def dump(tmp_path):
    def write(rows, head=HEAD):
        path = tmp_path / "dump.psv"
        path.write_text(head + "".join(rows))
        return str(path)

    return write


def replayed(ltgf, *words):
    code, out, err = ltgf("replay", "--json", *words)
    assert (code, err) == (0, "")
    return json.loads(out)


def waits(result, tenant):
    (own,) = [row for row in result["replay"]["tenants"] if row["tenant"] == tenant]
    return [policy["mean_wait_s"] for policy in own["policies"]]


def test_a_dump_is_replayed_as_it_was_and_under_both_policies(ltgf, dump):
    """b starts at 300 as it was, and under fair tree, whose first calculation is at 300. Under ltgf
    one of b's starts at 100, for b holds nothing (floor), beside one of a's: what b was charged for
    it in advance (4 GPUs for an hour) is more than a has had. The same at 200; a's last at 300."""
    result = replayed(ltgf, "--from-file", dump(FLOOD))
    assert [row["policy"] for row in result["policies"]] == ["as it was", "slurm-fairtree", "ltgf"]
    assert result["gpus"] == 8
    assert waits(result, "b") == [290, 290, (90 + 190) / 2]
    assert waits(result, "a") == [100, 100, (0 + 0 + 100 + 200 + 300 + 300) / 6]
    assert [row["mean_wait_s"] for row in result["policies"]] == [147.5] * 3
    assert [row["unfinished"] for row in result["policies"]] == [0, 0, 0]
    replay = result["replay"]
    assert (replay["window"]["start"], replay["window"]["end"]) == (T0, T0 + 401)
    assert replay["nodes"] == [{"count": 2, "gpus": 4, "gpu_type": None}]
    assert (replay["most_held_gpus"], replay["left_out"], replay["unread_rows"]) == (8, {}, 0)
    assert result["meta"]["command"].startswith("ltgf replay --from-file")


def test_the_page_says_for_whom_and_what_is_not_known(ltgf, dump):
    rows = [
        *FLOOD,
        row(20, "a", 5, 6, 7, gpus=0),
        row(21, "b", 350, 350, 400, state="RUNNING", over=False),
        row(22, "a", 30, 30, 30, state="CANCELLED by 1", gpus=0),
        "1|2|3\n",
        row(23, "a", 0, 300, 301),
    ]
    code, out, _ = ltgf("replay", "--from-file", dump(rows), "--gpus", "8")
    assert code == 0
    text = " ".join(out.split())
    assert re.search(r"ltgf: less waiting for b \(00:0[12]:\d\d, was 00:03:13\)", text)
    assert "ltgf: longer waiting for a (" in text
    assert "slurm-fairtree: jobs wait" in text
    assert "note: accounts are not known (no sacctmgr)" in text
    assert "note: jobs held up to 12 GPUs at once, and 8 are replayed" in text
    assert "note: 1 jobs had not ended: how long they run is not known" in text
    assert "left out: 1 jobs: no GPUs" in text
    assert "skipped: 1 rows of history could not be read" in text
    assert "limit: People would have acted differently" in text
    assert "Moves" not in text.split("tenants")[1].split("limit:")[0]


def test_as_it_was_is_what_the_file_says(ltgf):
    """Recorded history, summed up here by another way: no readers, no simulator."""
    jobs = {}
    for line in GOLDEN.read_text().splitlines()[1:]:
        cells = line.split("|")
        gpus = re.search(r"gres/gpu=(\d+)", cells[14])
        if gpus:
            eligible, start, end = map(int, cells[8:11])
            jobs.setdefault(cells[3], []).append((start - eligible, (end - start) * int(gpus[1])))
    result = replayed(ltgf, "--from-file", str(GOLDEN), "--gpus", "32", "--policy", "fifo")
    assert {row["tenant"]: row["jobs"] for row in result["replay"]["tenants"]} == {
        name: len(own) for name, own in jobs.items()
    }
    for row in result["replay"]["tenants"]:
        own, was = jobs[row["tenant"]], row["policies"][0]
        assert was["mean_wait_s"] == pytest.approx(sum(wait for wait, _ in own) / len(own))
        assert was["attained_gpu_s"] == sum(gpu_s for _, gpu_s in own)
    assert result["replay"]["left_out"] == {"cancelled while it waited": 184}


def test_the_ledger_is_replayed_like_the_dump_it_was_made_of(ltgf, dump):
    path = dump(FLOOD)
    assert ltgf("sync", "--from-file", path)[0] == 0
    of_ledger, of_dump = replayed(ltgf), replayed(ltgf, "--from-file", path)
    assert of_ledger["replay"] == of_dump["replay"]
    for own, other in zip(of_ledger["policies"], of_dump["policies"], strict=True):
        assert {**own, "wall_s": 0} == {**other, "wall_s": 0}


def test_capacity_and_weights_are_what_the_ledger_saw(ltgf, dump, tmp_path):
    assert ltgf("sync", "--from-file", dump(FLOOD))[0] == 0
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.observe_capacity("c1", T0 - 50, {"a100": 8.0, "v100": 4.0})
        ledger.observe_capacity("c1", T0 + 50, {"a100": 8.0})
        accounts = [Account("root"), Account("a", "root", 3, (1,)), Account("b", "root", 1, (1,))]
        ledger.set_accounts("c1", accounts, time=T0)
    result = replayed(ltgf, "--policy", "fifo")
    assert result["gpus"] == 12
    assert result["replay"]["nodes"] == [
        {"count": 2, "gpus": 4, "gpu_type": "a100"},
        {"count": 1, "gpus": 4, "gpu_type": "v100"},
    ]
    assert result["replay"]["capacity_from"] == "the nodes seen"
    assert any("from 8 to 12" in note for note in result["notes"])
    assert {row["tenant"]: row["weight"] for row in result["replay"]["tenants"]} == {"a": 3, "b": 1}
    other = replayed(ltgf, "--policy", "fifo", "--weights", "b=5", "--gpus", "8")
    assert {row["tenant"]: row["weight"] for row in other["replay"]["tenants"]} == {"a": 3, "b": 5}
    assert (other["gpus"], other["replay"]["capacity_from"]) == (8, "--gpus")


def test_only_the_last_days_are_replayed(ltgf, dump):
    day = 86400
    rows = [row(1, "a", 0, 0, 3 * day, gpus=8), row(2, "b", 0, 3 * day, 5 * day, gpus=8)]
    result = replayed(ltgf, "--from-file", dump(rows), "--days", "3", "--policy", "fifo")
    replay = result["replay"]
    assert replay["window"] == {"start": T0 + 2 * day, "end": T0 + 5 * day + 1}
    assert replay["ran_at_beginning"] == 1
    assert waits(result, "b") == [day - 1, day - 1]
    held = [own["attained_gpu_s"] for own in replay["tenants"][0]["policies"]]
    assert held == [8 * day, 8 * day]


def test_gpus_of_a_node_are_those_that_jobs_had_on_one(ltgf, dump):
    rows = [row(1, "a", 0, 0, 9, gpus=12, node="n[1-3]"), row(2, "a", 9, 9, 20, node="?[")]
    result = replayed(ltgf, "--from-file", dump(rows), "--policy", "fifo")
    assert result["replay"]["nodes"] == [{"count": 3, "gpus": 4, "gpu_type": None}]


def test_accounts_that_are_no_tenants_still_hold_their_gpus(ltgf, dump):
    rows = [*FLOOD, row(30, "root", 400, 400, 500, gpus=8)]
    result = replayed(ltgf, "--from-file", dump(rows), "--policy", "fifo,ltgf")
    (root,) = [row for row in result["replay"]["tenants"] if row["tenant"] == "root"]
    assert root["weight"] == 0
    assert [own["attained_gpu_s"] for own in root["policies"]] == [800, 800, 800]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--policy", "lottery"], 2, "lottery"),
        (["--gpus", "8", "--nodes", "1x8"], 2, "give one of them"),
        (["--nodes", "8"], 2, "neither nodes"),
        (["--from-file", "/no/such"], 65, "cannot be read"),
        (["--from-file", "/etc/passwd"], 65, "not a sacct dump"),
        (["--days", "0"], 2, "days"),
        (["-o", "x.exe"], 2, "must end in"),
        (["--weights", "a"], 2, "NAME=NUMBER"),
        (["-M", "other"], 2, "no runs of other"),
    ],
)
def test_a_wrong_replay_is_one_line(ltgf, dump, words, code, says):
    where = [] if "--from-file" in words else ["--from-file", dump(FLOOD)]
    got, _, err = ltgf("replay", *where, *words)
    assert (got, says in err, "Traceback" in err) == (code, True, False)


@pytest.mark.parametrize(
    ("rows", "code", "says"),
    [
        ([], 65, "no job with GPUs"),
        ([row(1, "a", 0, 0, 9, gpus=0)], 65, "no job with GPUs"),
        ([row(1, "a", 0, 0, 9), row(2, "a", 0, 0, 9, cluster="c2")], 2, "several clusters"),
    ],
)
def test_a_history_that_cannot_be_replayed_is_one_line(ltgf, dump, rows, code, says):
    got, _, err = ltgf("replay", "--from-file", dump(rows))
    assert (got, says in err, err.count("\n")) == (code, True, 1)


def test_without_a_ledger_it_says_so(ltgf):
    code, _, err = ltgf("replay")
    assert (code, err.count("\n")) == (74, 1)


def test_one_of_several_clusters_is_replayed(ltgf, dump):
    rows = [row(1, "a", 0, 0, 9), row(2, "b", 0, 0, 9, cluster="c2")]
    result = replayed(ltgf, "--from-file", dump(rows), "-M", "c2", "--policy", "fifo")
    assert (result["meta"]["trace"], result["meta"]["jobs"]) == ("c2", 1)


def test_files_are_written_and_hostile_names_do_no_harm(ltgf, dump, tmp_path):
    name = "<script>alert(1)</script>\x1b[31m"
    rows = [*FLOOD, row(40, name, 0, 0, 50)]
    paths = [str(tmp_path / f"out.{kind}") for kind in ("html", "csv", "md", "json")]
    code, out, err = ltgf(
        "replay", "--from-file", dump(rows), *[word for path in paths for word in ("-o", path)]
    )
    assert (code, err.count("written: ")) == (0, 4)
    assert "\x1b" not in out
    page = (tmp_path / "out.html").read_text()
    assert "<script" not in page
    assert page.index("For whom what would have changed") < page.index("The policies compared")
    assert "People would have acted differently" in page
    assert "\x1b" not in page
    assert json.loads((tmp_path / "out.json").read_text())["replay"]["tenants"]
