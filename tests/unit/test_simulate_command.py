"""`ltgf simulate`: options, results in every form, decisions explained, interruption."""

import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_ltgf.cli.main import run
from slurm_ltgf.cli.results import as_markdown
from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.engine import simulate
from slurm_ltgf.sim.experiment import Experiment, Source, explain
from slurm_ltgf.sim.explain import Decision
from slurm_ltgf.sim.policies import Site, make
from slurm_ltgf.sim.traces.generated import generated

HEADER = "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval\n"
#: (tenant, GPUs, submit, seconds): job 2 is reserved at 100, job 3 ends by then.
HOLE = [("a", 6, 0, 100), ("a", 8, 0, 50), ("b", 2, 0, 100), ("b", 2, 0, 101)]


def trace(path, jobs):
    """A trace file; ids are 1, 2, .."""
    rows = [
        f"{i},{who},{gpus},{at},1,x,{run_s},0\n" for i, (who, gpus, at, run_s) in enumerate(jobs)
    ]
    path.write_text(HEADER + "".join(rows))
    return str(path)


@pytest.fixture
def hole(tmp_path):
    return trace(tmp_path / "hole.csv", HOLE)


def answer(capsys, *words, code=0):
    """What `ltgf simulate WORDS --json` prints."""
    assert run(["simulate", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def without_times(result):
    for row in result["policies"]:
        row.pop("wall_s")
    return result


# --- policies and terms ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--policy", "fifo,ltgf"], ["fifo", "ltgf"]),
        (["--policy", "fifo", "--policy", "ltgf:lease=15min"], ["fifo", "ltgf:lease=15min"]),
        (["--policy", "fifo:cap=1.2,ltgf:lease=900,floor=0,fifo"],
         ["fifo:cap=1.2", "ltgf:lease=15min,floor=0", "fifo"]),
        (["--policy", "fifo;ltgf"], ["fifo", "ltgf"]),
        (["--policy", "fifo,ltgf,ltgf:lease=60", "--lease", "2h", "--window", "7d"],
         ["fifo", "ltgf:window=7d,lease=2h", "ltgf:window=7d,lease=1min"]),
        (["--policy", "fifo,fifo:cap=2,fifo-static", "--cap", "1.5"],
         ["fifo:cap=1.5", "fifo:cap=2", "fifo-static"]),
    ],
    ids=["names", "repeated", "keys", "semicolon", "terms of ltgf", "cap of all"],
)  # fmt: skip
def test_policies_are_named_by_their_specs(capsys, hole, words, names):
    result = answer(capsys, hole, "--gpus", "8", *words)
    assert [row["policy"] for row in result["policies"]] == names


def test_the_cap_keeps_a_tenant_inside_its_quota(capsys, tmp_path):
    """a's second job of 4 GPUs waits for its first although 4 GPUs are free: 100 s, mean 50."""
    path = trace(tmp_path / "t.csv", [("a", 4, 0, 100), ("a", 4, 0, 100), ("b", 1, 300, 1)])
    free, capped = answer(capsys, path, "--gpus", "8", "--policy", "fifo,fifo:cap=1")["policies"]
    waits = [{t["tenant"]: t["mean_wait_s"] for t in row["tenants"]} for row in (free, capped)]
    assert waits == [{"a": 0, "b": 0}, {"a": 50, "b": 0}]


def test_costs_are_charged_as_told(capsys, tmp_path):
    """The move at the end of a's lease: 8 GPUs for 7 s, and for 30 s when it is back."""
    path = trace(tmp_path / "t.csv", [("a", 8, 0, 9000), ("b", 8, 10, 100)])
    words = ["--policy", "ltgf-lease:lease=5000", "--checkpoint-cost", "7", "--restore-cost", "30"]
    row = answer(capsys, path, "--gpus", "8", *words)["policies"][0]
    assert (row["preemptions"], row["overhead_gpu_s"]) == (1, 8 * 37)
    assert row["makespan_s"] == 9000 + 37 + 100


@pytest.mark.parametrize(
    ("backfill", "waits"), [("easy", (0 + 100 + 0 + 150) / 4), ("none", (0 + 100 + 150 + 150) / 4)]
)
def test_backfill_is_what_was_asked_for(capsys, hole, backfill, waits):
    words = [hole, "--gpus", "8", "--policy", "fifo", "--backfill", backfill]
    assert answer(capsys, *words)["policies"][0]["mean_wait_s"] == waits


def test_the_horizon_may_be_a_duration_and_what_has_not_ended_is_told(capsys, hole):
    assert run(["simulate", hole, "--gpus", "8", "--policy", "fifo", "--horizon", "2min"]) == 0
    assert "jobs that had not ended at the horizon: fifo 2\n" in capsys.readouterr().out


def test_jobs_that_no_nodes_could_run_are_left_out_and_named(capsys, hole):
    result = answer(capsys, hole, "--nodes", "2x4", "--policy", "fifo")
    assert (result["gpus"], result["meta"]["jobs"], result["skipped_total"]) == (8, 4, 0)
    result = answer(capsys, hole, "--nodes", "1x6:a100,1x2:v100", "--policy", "fifo")
    assert (result["gpus"], result["meta"]["jobs"], result["skipped_total"]) == (8, 3, 1)
    assert "job 2" in result["skipped"][0]["source"]


def test_weights_are_those_given_and_strangers_are_named(capsys, tmp_path):
    path = trace(tmp_path / "t.csv", [("Aa", 1, 0, 10), ("bb", 1, 0, 10)])
    assert run(["simulate", path, "--gpus", "8", "--policy", "fifo", "--json",
                "--weights", "Aa=3,cc=4"]) == 0  # fmt: skip
    said = capsys.readouterr()
    tenants = json.loads(said.out)["policies"][0]["tenants"]
    assert {t["tenant"]: t["quota_gpus"] for t in tenants} == {"Aa": 3, "bb": 1, "cc": 4}
    assert "no job is of cc" in said.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["{t}", "--gpus", "8", "--policy", "ltgf:colour=red"], 2, "colour"),
        (["{t}", "--gpus", "8", "--lease", "soon"], 2, "lease"),
        (["{t}", "--gpus", "8", "--cap", "-1"], 2, "cap"),
        (["{t}", "--gpus", "8", "--horizon", "never"], 2, "--horizon never"),
        (["{t}", "--gpus", "8", "--nodes", "1x8"], 2, "--gpus and --nodes"),
        (["{t}", "--nodes", "many"], 2, "many"),
        (["{t}", "--gpus", "8", "--weights", "/nonexistent"], 2, "--weights"),
        (["{t}", "--gpus", "8", "--weights", "a=-1"], 2, "--weights"),
        (["{t}", "--gpus", "8", "--explain", "soon"], 2, "--explain soon"),
        (["{t}", "--gpus", "8", "--explain", "5", "--csv"], 2, "--explain"),
        (["{t}", "--gpus", "8", "--slurm"], 2, "--sweep"),
        (["{t}", "--gpus", "8", "-o", "x.pdf"], 2, ".html, .json, .csv, .md"),
        (["{t}", "--gpus", "8", "-o", "{t}.none/x.csv"], 2, "no such folder"),
        (["{t}", "--gpus", "8", "--format", "punched"], 2, "punched"),
        (["{t}", "--nodes", "1x1:v100", "--policy", "fifo"], 65, "no job in it"),
        (["{e}", "--gpus", "8"], 65, "no job in it"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line(capsys, tmp_path, words, code, told):
    files = {"t": trace(tmp_path / "t.csv", HOLE[:2]), "e": trace(tmp_path / "e.csv", [])}
    assert run(["simulate", *[word.format(**files) for word in words]]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert told in said.err.splitlines()[-1]
    assert "Traceback" not in said.err


# --- results --------------------------------------------------------------------------------------


def test_the_result_is_the_same_however_many_processes_made_it(capsys):
    words = ["--policy", "fifo,slurm-fairtree,ltgf-lease", "--gpus", "16", "--horizon", "3d"]
    one, four = (without_times(answer(capsys, *words, "--jobs", n)) for n in ("1", "4"))
    assert json.dumps(one) == json.dumps(four)
    assert one["meta"]["command"] == "ltgf simulate " + " ".join(
        ["--policy", "fifo,slurm-fairtree,ltgf-lease", "--gpus", "16", "--horizon", "3d"]
    )


def test_a_row_has_its_parts(capsys, hole):
    result = answer(capsys, hole, "--gpus", "8", "--policy", "fifo", "--horizon", "2h")
    row = result["policies"][0]
    assert [(s["gpus"], s["jobs"]) for s in row["by_size"]] == [("2-3", 2), ("4-7", 1), ("8-15", 1)]
    assert row["series"]["times_s"] == [3600, 7200]
    held = row["series"]["held_gpus"]
    assert held["b"][0] == pytest.approx((2 * 100 + 2 * 101) / 3600, rel=1e-5)
    assert row["quantiles"]["wait_s"][-1] == 150


def test_files_are_written_in_the_form_of_their_names(capsys, hole, tmp_path):
    names = [str(tmp_path / f"r.{kind}") for kind in ("html", "json", "csv", "md")]
    words = ["--gpus", "8", "--policy", "fifo,ltgf", "--csv", "--jobs", "1"]
    assert run(["simulate", hole, *words, *[w for name in names for w in ("-o", name)]]) == 0
    printed = capsys.readouterr().out
    html, json_, csv_, md = (Path(name).read_text() for name in names)
    assert html.lower().startswith("<!doctype html>")
    assert [row["policy"] for row in json.loads(json_)["policies"]] == ["fifo", "ltgf"]
    assert csv_ == printed
    rows = list(csv.DictReader(csv_.splitlines()))
    assert (rows[0]["policy"], float(rows[0]["mean_wait_s"])) == ("fifo", 62.5)
    assert "| fifo | 00:02:30 |" in md
    assert not list(tmp_path.glob(".r*"))


def test_a_file_that_cannot_be_written_stands_as_it_was(capsys, hole, tmp_path):
    target = tmp_path / "r.json"
    target.mkdir()
    assert run(["simulate", hole, "--gpus", "8", "--policy", "fifo", "-o", str(target)]) == 74
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_csv_with_tenants_has_a_row_a_policy_and_tenant(capsys, hole):
    assert run(["simulate", hole, "--gpus", "8", "--policy", "fifo", "--csv", "--tenants"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["policy"], row["tenant"], row["mean_wait_s"]) for row in rows] == [
        ("fifo", "a", "50.0"),
        ("fifo", "b", "75.0"),
    ]


def test_the_table_fits_120_columns_and_wide_has_the_rest(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert run(["simulate", "--policy", "fifo,slurm-fairtree", "--horizon", "3d"]) == 0
    short = capsys.readouterr().out
    assert max(map(len, short.splitlines())) <= 120
    assert run(["simulate", "--policy", "fifo", "--horizon", "3d", "--wide"]) == 0
    wide = capsys.readouterr().out
    assert all(word in wide for word in ("Makespan", "Jain", "Unfinished"))


def test_hostile_names_stay_text(capsys, tmp_path):
    path = trace(tmp_path / "t.csv", [("[red]\x1b[31m|<b>", 1, 0, 10), ("b", 1, 0, 10)])
    assert run(["simulate", path, "--gpus", "8", "--policy", "fifo", "--tenants"]) == 0
    assert "[red]\\x1b[31m|<b>" in capsys.readouterr().out
    result = answer(capsys, path, "--gpus", "8", "--policy", "fifo")
    result["meta"]["trace"] = "<script>|"
    assert as_markdown(result).startswith("# \\<script\\>\\|: 2 jobs")


# --- decisions ------------------------------------------------------------------------------------


def moments(path, policy, times, gpus=8):
    one = Experiment(policy, (NodeType(1, gpus),), Source(path))
    return explain(one, one.source.load(), times)


def test_the_decisions_of_an_instant_are_those_of_the_scenario(hole):
    (first,) = moments(hole, "fifo", [0])
    assert (first.asked, first.at) == (0, 0)
    assert first.rows == (
        Decision(1, "a", 6, "started", ((0, 6),), 100),
        Decision(2, "a", 8, "reserved", ((0, 8),), 100),
        Decision(3, "b", 2, "backfilled", ((0, 2),), 100),
    )
    second, third = moments(hole, "fifo", [101, 1])
    assert (second.asked, second.at, second.rows[0].job_id) == (1, 100, 2)
    assert (third.asked, third.at, third.rows[0].job_id) == (101, 150, 4)


def test_all_that_wait_are_shown_also_those_that_were_tried_before(tmp_path):
    """At 30 only job 5 is new; 2 still has its reservation, 3 is still barred."""
    jobs = [("a", 6, 0, 100), ("a", 8, 0, 50), ("b", 2, 0, 101), ("a", 8, 1, 5), ("b", 1, 30, 9)]
    (moment,) = moments(trace(tmp_path / "t.csv", jobs), "fifo", [20])
    assert [(row.job_id, row.action) for row in moment.rows] == [
        (2, "reserved"),
        (3, "barred"),
        (4, "no room"),
        (5, "backfilled"),
    ]


class Everywhere:
    """An observer of all instants."""

    def wants(self, now):
        return True

    def decided(self, now, rows):
        assert rows


@pytest.mark.parametrize("policy", ["fifo", "slurm-fairtree", "las-2d", "ltgf", "ltgf-lease"])
def test_looking_on_changes_nothing(policy):
    work, weights = generated(jobs=400, tenants=4, gpus=16, load=1.2)
    seen, unseen = (
        simulate(work, Cluster([NodeType(2, 8)]), make(policy, Site(weights, 16)), observer=who)
        for who in (Everywhere(), None)
    )
    assert seen == unseen


def test_who_would_delay_a_reservation_is_barred(tmp_path):
    path = trace(tmp_path / "t.csv", [HOLE[0], HOLE[1], HOLE[3]])
    actions = {row.job_id: row.action for row in moments(path, "fifo", [0])[0].rows}
    assert actions == {1: "started", 2: "reserved", 3: "barred"}


def test_a_lease_that_ends_says_why_it_is_not_renewed(tmp_path):
    """a's lease of 2000 s is over at 2100, the next pass of 5 minutes, and b waits since 10."""
    path = trace(tmp_path / "t.csv", [("a", 8, 0, 5000), ("b", 8, 10, 100)])
    (moment,) = moments(path, "ltgf-lease:lease=2000", [2000])
    (row,) = moment.rows
    assert (moment.at, row.job_id, row.action, row.until) == (2100, 1, "yielded", 2105)
    assert row.reason == "b's job 2 comes before it and can use its 8 GPUs"


def test_ltgf_says_the_account_of_each_tenant(tmp_path):
    """b has had none of the 96 GPU-h that 4 of 8 GPUs are in a day; a lease is an hour.

    Its second job stands as if its first had held 4 GPUs for an hour: tag 4 / (96 + 4).
    """
    jobs = [("a", 8, 0, 3600), ("a", 8, 10, 60), ("b", 4, 20, 60), ("b", 4, 20, 60)]
    path = trace(tmp_path / "t.csv", jobs)
    (moment,) = moments(path, "ltgf:floor=0", [3600])
    assert [(row.job_id, row.action, row.reason) for row in moment.rows] == [
        (3, "started", "tag 0.0000, had 0 of 96 GPU-h"),
        (4, "started", "tag 0.0400, had 0 of 96 GPU-h, 4 asked for before it"),
    ]


def test_fair_tree_says_the_standing_of_the_account(tmp_path):
    path = trace(tmp_path / "t.csv", [("a", 8, 0, 600), ("b", 8, 10, 60)])
    (moment,) = moments(path, "slurm-fairtree", [600])
    assert moment.rows[0].reason == "fairshare 1.000, usage 0 GPU-h"


def test_explain_prints_the_decisions(capsys, hole):
    assert run(["simulate", hole, "--gpus", "8", "--policy", "fifo", "--explain", "0,1d"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "fifo at 00:00:00 (asked for 00:00:00): 1 started, 1 reserved, 1 backfilled" in said
    assert "fifo: nothing was decided at 1-00:00:00 or later" in said
    words = [hole, "--gpus", "8", "--policy", "fifo", "--explain", "0", "--top", "1"]
    (found,) = answer(capsys, *words)["decisions"]
    assert [(row["job_id"], row["action"]) for row in found["rows"]] == [
        (1, "started"),
        (3, "backfilled"),
    ]
    assert found["rows"][0]["nodes"] == [[0, 6]]
    assert found["counts"] == {"started": 1, "reserved": 1, "backfilled": 1}


# --- interruption ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_interrupted_it_ends_with_all_of_its_processes(sign, code):
    program = [sys.executable, "-m", "slurm_ltgf", "simulate", "--gpus", "16", "--jobs", "2"]
    program += ["--policy", "slurm-fairtree,ltgf-lease", "--sweep", "seed=1,2,3,4,5,6,7,8,9"]
    started = subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    workers = []
    end = time.monotonic() + 30
    while len(workers) < 2 and time.monotonic() < end:
        workers = children(started.pid)
        time.sleep(0.05)
    assert len(workers) == 2
    os.killpg(started.pid, sign) if sign == signal.SIGINT else started.send_signal(sign)
    out, err = started.communicate(timeout=20)
    assert (started.returncode, out, err.strip()) == (code, "", "")
    end = time.monotonic() + 5
    while any(map(alive, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, workers))


def children(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_progress_is_drawn_on_a_terminal_alone(hole):
    if shutil.which("script") is None:
        pytest.skip("no script(1) to make a terminal")
    words = f"{sys.executable} -m slurm_ltgf simulate {hole} --gpus 8 --policy fifo"
    seen = subprocess.run(
        ["script", "-qec", words, "/dev/null"], capture_output=True, text=True, check=True
    )
    assert "fifo: mean JCT 00:02:30, took" in seen.stdout
    plain = subprocess.run(words.split(), capture_output=True, text=True, check=True)
    assert plain.stderr == ""


# --- the page -------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "compare-policies.md"
SHOWN = re.findall(r"^```console\n\$ ltgf (.+)\n([^`]+)```", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("words", "printed"), SHOWN, ids=[words for words, _ in SHOWN])
def test_the_page_shows_what_its_commands_print(capsys, monkeypatch, words, printed):
    """After a change of results: run this test once with LTGF_REWRITE=1, and look at the page."""
    monkeypatch.setenv("COLUMNS", "120")
    assert run(shlex.split(words)) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    if "LTGF_REWRITE" in os.environ:
        before = f"$ ltgf {words}\n"
        now = "".join(f"{line}\n" for line in lines)
        PAGE.write_text(PAGE.read_text().replace(before + printed, before + now))
        return
    assert lines == printed.splitlines()


def test_every_key_of_the_json_is_in_its_reference(capsys, hole):
    page = (PAGE.parents[1] / "reference" / "json.md").read_text()
    shown = page.split("## ltgf simulate ")[1].split("\n## ")[0]
    words = [hole, "--gpus", "8", "--policy", "fifo"]
    results = answer(capsys, *words), answer(capsys, *words, "--explain", "0")
    rows = [results[0]["policies"][0], results[1]["decisions"][0]]
    rows += [rows[0]["tenants"][0], rows[0]["by_size"][0], rows[1]["rows"][0]]
    keys = {key for part in (*results, *rows, results[0]["meta"]) for key in part}
    keys |= {*rows[0]["series"], *rows[0]["quantiles"]}
    assert len(keys) > 40
    assert not [key for key in keys if f"`{key}`" not in shown]
