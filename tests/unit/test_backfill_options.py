"""Options of backfill at the command line: what they change, computed by hand, in minutes."""

import json

import pytest

from slurm_ltgf.cli.main import run

#: (GPUs, submit, start as it was, run time) on two nodes of 4 GPUs. Two jobs hold 3 GPUs of one
#: node to 100 and 2 of the other to 50. Then two jobs want a node each, one of 1 GPU would fit now,
#: and would keep the second of the two waiting: to 150 in place of 100.
TWO_NODES = [(3, 0, 0, 100), (2, 0, 0, 50), (4, 1, 50, 100), (4, 1, 100, 100), (1, 1, 150, 500)]
#: One node of 4 GPUs, 2 of them held to 50; a job of 3 will leave one free.
ONE_NODE = [(2, 0, 0, 50), (3, 1, 50, 100), (1, 1, 50, 500)]
PAPERS = "--backfill easy --backfill-interval 0 --backfill-depth 500 --part-nodes"


def as_trace(jobs):
    rows = [
        f"{k},t,{gpus},{submit * 60},{run_s * 60}\n"
        for k, (gpus, submit, _, run_s) in enumerate(jobs)
    ]
    return "job_id,user,num_gpu,submit_time,duration\n" + "".join(rows)


def as_dump(jobs):
    head = "JobID|JobIDRaw|Account|User|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw"
    rows = [f"{head}|AllocTRES|NodeList\n"]
    for k, (gpus, submit, start, length) in enumerate(jobs, 1):
        come, begin, end = (1_790_000_000 + 60 * each for each in (submit, start, start + length))
        rows.append(
            f"{k}|{k}|t|u|COMPLETED|{come}|{come}|{begin}|{end}|{length * 60}|{length}"
            f"|gres/gpu={gpus}|n1\n"
        )
    return "".join(rows)


@pytest.fixture
def waits(tmp_path, capsys, monkeypatch):
    """Run a command over jobs under fifo: minutes waited by all of them together."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LTGF_CONFIG", raising=False)

    def call(command, jobs, options=""):
        path = tmp_path / "jobs"
        path.write_text(as_dump(jobs) if command == "replay" else as_trace(jobs))
        words = ["--from-file", str(path)] if command == "replay" else [str(path)]
        gpus = "8" if jobs is TWO_NODES else "4"
        words += ["--gpus", gpus, "--gpus-per-node", "4", "--policy", "fifo", "--json"]
        assert run([command, *words, *options.split()]) == 0
        own = json.loads(capsys.readouterr().out)["policies"][-1]
        return round(own["mean_wait_s"] * len(jobs) / 60)

    return call


@pytest.mark.parametrize("command", ["simulate", "replay"])
@pytest.mark.parametrize(
    ("jobs", "options", "minutes"),
    [
        (TWO_NODES, PAPERS, 49 + 149 + 0),
        (TWO_NODES, f"{PAPERS} --backfill-depth 2", 49 + 149 + 0),
        (TWO_NODES, f"{PAPERS} --backfill-depth 1", 49 + 99 + 149),
        (TWO_NODES, f"{PAPERS} --backfill-interval 2400", 49 + 149 + 39),
        (TWO_NODES, f"{PAPERS} --backfill none", 49 + 99 + 149),
        (TWO_NODES, f"{PAPERS} --backfill conservative", 49 + 99 + 149),
        (ONE_NODE, PAPERS, 49 + 0),
        (ONE_NODE, f"{PAPERS} --whole-nodes", 49 + 49),
        (ONE_NODE, f"{PAPERS} --backfill conservative", 49 + 0),
        (ONE_NODE, f"{PAPERS} --epilog-cost 600", 59 + 0),
    ],
)
def test_each_option_of_backfill_counts(waits, command, jobs, options, minutes):
    assert waits(command, jobs, options) == minutes


def test_a_trace_is_simulated_as_papers_do_and_a_site_replayed_as_slurm_does(waits):
    assert waits("simulate", TWO_NODES) == 49 + 149
    assert waits("replay", TWO_NODES) == 49 + 99 + 149
    assert waits("simulate", ONE_NODE) == 49
    assert waits("replay", ONE_NODE) == 49 + 49


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "limit: Backfill: a pass every 30 s, over 100 jobs; this site's may differ."),
        ("--backfill-interval 0", "limit: Backfill: at every event, over 100 jobs;"),
        ("--backfill easy", "limit: Backfill is EASY: jobs waited a fifth less by it"),
        ("--backfill none", "limit: No backfill: jobs wait that Slurm would start."),
    ],
)
def test_a_replay_says_how_it_backfilled(tmp_path, capsys, options, said):
    path = tmp_path / "dump"
    path.write_text(as_dump(ONE_NODE))
    assert run(["replay", "--from-file", str(path), "--policy", "fifo", *options.split()]) == 0
    assert said in capsys.readouterr().out
