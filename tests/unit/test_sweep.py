"""Sweeps: combinations, named failures, processes, and what stands in for a job array."""

import csv
import json
import os
import re
import sys
from types import SimpleNamespace

import pytest

from slurm_ltgf.cli.main import run
from slurm_ltgf.errors import InputError, LtgfError, UsageError
from slurm_ltgf.sim import pool, sweep
from slurm_ltgf.sim.cluster import NodeType
from slurm_ltgf.sim.experiment import Experiment, Source, alike

BASE = Experiment("", alike(16, 8), horizon=86400)


def combinations(policies, *texts, base=BASE, per_node=8):
    """(policy of the experiment, values) of each point."""
    found = sweep.points(base, policies, sweep.axes(texts), per_node=per_node)
    return [(point.experiment.policy, dict(point.values)) for point in found]


def test_every_combination_comes_once_in_the_order_given():
    assert combinations(["ltgf"], "lease=900,300", "floor=0,0.5,0") == [
        ("ltgf:lease=15min,floor=0", {"lease": "900", "floor": "0"}),
        ("ltgf:lease=15min,floor=0.5", {"lease": "900", "floor": "0.5"}),
        ("ltgf:lease=5min,floor=0", {"lease": "300", "floor": "0"}),
        ("ltgf:lease=5min,floor=0.5", {"lease": "300", "floor": "0.5"}),
    ]


def test_a_policy_without_the_key_is_run_without_it():
    assert combinations(["fifo", "ltgf"], "lease=300,900") == [
        ("fifo", {}),
        ("ltgf:lease=5min", {"lease": "300"}),
        ("ltgf:lease=15min", {"lease": "900"}),
    ]


def test_keys_that_are_no_policys_own_change_the_experiment():
    texts = ["gpus=8,32", "placement=spread", "limit-factor=2", "seed=7"]
    found = sweep.points(BASE, ["fifo"], sweep.axes(texts))
    assert [(p.experiment.nodes, p.experiment.placement, p.experiment.source) for p in found] == [
        ((NodeType(count, 8),), "spread", Source(limit_factor=2.0, seed=7)) for count in (1, 4)
    ]


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["lease"], "KEY=VALUE"),
        (["lease="], "KEY=VALUE"),
        (["lease=1", "lease=2"], "swept already"),
        (["colour=red"], "colour"),
        (["lease=soon"], "soon"),
        (["lease=300,soon"], "soon"),
        (["gpus=0"], "gpus=0"),
        (["gpus=12"], "no multiple"),
        (["gpus=many"], "whole number"),
        (["placement=neat"], "consolidated"),
        (["limit-factor=nan"], "limit-factor=nan"),
        (["seed=-1"], "seed=-1"),
        ([f"seed={','.join(map(str, range(200)))}", f"lease={','.join(map(str, range(1, 90)))}"],
         "10000"),
    ],
)  # fmt: skip
def test_a_wrong_sweep_is_refused(texts, told):
    with pytest.raises(UsageError, match=told):
        combinations(["ltgf"], *texts)


def test_what_is_given_cannot_be_swept():
    with pytest.raises(UsageError, match="--nodes"):
        combinations(["fifo"], "gpus=8", per_node=None)
    with pytest.raises(UsageError, match="a trace has none"):
        combinations(["fifo"], "seed=1", base=Experiment("", alike(8, 8), Source("x.csv")))


# --- the command ----------------------------------------------------------------------------------

SWEEP = ["--policy", "fifo,ltgf", "--sweep", "gpus=16,32", "--sweep", "lease=300,3600"]


def swept(capsys, *words, code=0):
    assert run(["simulate", "--horizon", "2d", *words, "--json"]) == code
    result = json.loads(capsys.readouterr().out)
    for row in result["policies"]:
        row.pop("wall_s")
    return result


def test_a_sweep_is_a_row_a_combination(capsys):
    result = swept(capsys, *SWEEP, "--jobs", "2")
    assert result["sweep"] == {"gpus": [16, 32], "lease": [300, 3600]}
    assert result["gpus"] is None
    assert [(row["policy"], row["values"]) for row in result["policies"]] == [
        ("fifo", {"gpus": 16}),
        ("fifo", {"gpus": 32}),
        *[("ltgf", {"gpus": g, "lease": s}) for g in (16, 32) for s in (300, 3600)],
    ]
    assert not any(isinstance(v, list) for row in result["policies"] for v in row.values())
    assert result == swept(capsys, *SWEEP, "--jobs", "1")


def test_a_swept_row_is_what_the_policy_alone_would_have(capsys):
    """The workload made is for --gpus, whatever gpus are swept: 64 unless given."""
    words = ["--gpus", "32", "--policy", "ltgf:lease=300"]
    alone = swept(capsys, *words)["policies"][0]
    row = swept(capsys, "--gpus", "32", "--policy", "ltgf", "--sweep", "lease=300")["policies"][0]
    same = ("mean_jct_s", "tenant_mean_shortfall", "preemptions", "jain")
    assert [row[key] for key in same] == [alone[key] for key in same]


def test_csv_is_tidy(capsys):
    assert run(["simulate", "--horizon", "2d", *SWEEP, "--csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["policy"], row["gpus"], row["lease"]) for row in rows[1:3]] == [
        ("fifo", "32", ""),
        ("ltgf", "16", "300"),
    ]


def test_jobs_too_large_for_some_sizes_are_told(capsys):
    words = ["--policy", "fifo", "--sweep", "gpus=8,64", "--horizon", "2d"]
    assert run(["simulate", *words]) == 0
    said = capsys.readouterr().out
    assert re.search(r"fifo gpus=8: [0-9]+ jobs are left out", said)
    assert "gpus=64: " not in said


def test_a_combination_that_fails_is_a_row_and_exit_status_1(capsys, tmp_path):
    """Jobs of 4 GPUs never run on the cluster of 2; on 8 they do."""
    path = tmp_path / "t.csv"
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,60,4,0,a\n")
    result = swept(capsys, str(path), "--policy", "fifo", "--sweep", "gpus=2,8", code=1)
    failed, good = result["policies"]
    assert "no job in it that could be simulated" in failed["error"]
    assert (good["mean_jct_s"], "error" in good) == (60, False)
    assert run(["simulate", str(path), "--policy", "fifo", "--sweep", "gpus=2,8"]) == 1
    assert "failed: 1 of 2 combinations" in capsys.readouterr().out


def test_a_sweep_makes_a_page(tmp_path, capsys):
    page = tmp_path / "s.html"
    assert run(["simulate", "--horizon", "2d", *SWEEP, "-o", str(page)]) == 0
    assert page.read_text().lower().startswith("<!doctype html>")


# --- processes ------------------------------------------------------------------------------------


def test_a_killed_worker_is_named_and_no_crash(monkeypatch):
    """Its experiments have no measures; those that were done before have."""
    monkeypatch.setattr(pool, "run", lambda experiment, loaded: os._exit(9))
    done = list(pool.run_here([BASE, BASE], 2))
    assert sorted(one.number for one in done) == [0, 1]
    assert all("killed" in str(one.error) for one in done)


def test_the_workload_is_read_once_for_all_experiments(tmp_path):
    """The file is gone before the workers start: they have it from this process."""
    path = tmp_path / "t.csv"
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,60,4,0,a\n")
    source = Source(str(path))
    pool.load(source)
    path.unlink()
    one = Experiment("fifo", alike(8, 8), source)
    assert [done.measures.mean_jct_s for done in pool.run_here([one, one], 2)] == [60, 60]


def test_a_trace_that_cannot_be_read_is_told_for_each(tmp_path):
    one = Experiment("fifo", alike(8, 8), Source(str(tmp_path / "none.csv")))
    for jobs in (1, 2):
        done = list(pool.run_here([one, one], jobs))
        assert [type(d.error) for d in done] == [InputError, InputError]


# --- Slurm, as far as it can be told without one --------------------------------------------------


def test_without_submitit_it_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "submitit", None)
    words = ["--policy", "fifo", "--sweep", "seed=1,2", "--slurm", "--slurm-folder", str(tmp_path)]
    assert run(["simulate", *words]) == 2
    assert "pip install 'slurm-ltgf[sweep]'" in capsys.readouterr().err


def test_without_slurm_it_is_unavailable(monkeypatch, tmp_path, capsys):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["--policy", "fifo", "--sweep", "seed=1,2", "--slurm", "--slurm-folder", str(tmp_path)]
    assert run(["simulate", *words]) == 75
    assert "srun is not on PATH" in capsys.readouterr().err


def test_nodes_cannot_read_standard_input(tmp_path):
    with pytest.raises(UsageError, match="standard input"):
        list(
            pool.run_on_slurm([Experiment("fifo", alike(8, 8), Source("-"))], pool.Array(tmp_path))
        )


def test_tasks_share_out_all_experiments(monkeypatch, tmp_path):
    """Seven experiments in three tasks: each comes once; a task that left nothing names all its."""

    class Task:
        job_id, state = "4_0", "CANCELLED"

        def __init__(self, part):
            self.part = part
            self.paths = SimpleNamespace(stderr="4_0.err")
            self.paths.result_pickle = tmp_path if part[0][0] != 1 else tmp_path / "none"

        def done(self):
            return True

        def results(self):
            return [pool._task(self.part)]

    monkeypatch.setattr(pool, "MAX_TASKS", 3)
    monkeypatch.setattr(pool, "_submit", lambda parts, array: [Task(part) for part in parts])
    seven = [
        Experiment("fifo", alike(8, 8), Source(seed=k, gpus=8), horizon=3600) for k in range(7)
    ]
    done = list(pool.run_on_slurm(seven, pool.Array(tmp_path)))
    assert sorted(one.number for one in done) == list(range(7))
    lost = {one.number: one.error for one in done if one.error is not None}
    assert sorted(lost) == [1, 4]
    assert all(type(error) is LtgfError and "CANCELLED" in str(error) for error in lost.values())


def test_a_task_is_lost_when_it_has_left_the_queue_for_long(fake_squeue, monkeypatch):
    """Nothing is lost while Slurm does not answer."""
    clock = iter(range(0, 1000, 50))
    monkeypatch.setattr(pool.time, "monotonic", lambda: next(clock))
    queue = pool._Queue()
    fake_squeue("4_0\n4_1\n")
    assert not queue.has_lost("4_0")
    fake_squeue("4_1\n")
    assert [queue.has_lost("4_0") for _ in range(2)] == [False, False]  # at 50 and 100
    assert queue.has_lost("4_0")
    fake_squeue("Unable to contact slurm controller", code=1)
    assert [queue.has_lost("4_1") for _ in range(4)] == [False] * 4


@pytest.fixture
def fake_squeue(tmp_path, monkeypatch):
    """A squeue on PATH that answers as told."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def answers(text, code=0):
        program = tmp_path / "squeue"
        where = " >&2" if code else ""
        program.write_text(f"#!/bin/sh\nprintf '%s' '{text}'{where}\nexit {code}\n")
        program.chmod(0o755)

    return answers
