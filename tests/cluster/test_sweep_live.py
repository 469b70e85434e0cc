"""A sweep as a job array of a real Slurm: the same rows as on one machine, and lost tasks named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import Lab, call, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster
pytest.importorskip("submitit")

ROOT = Path(__file__).parents[2]
SWEEP = ("--policy", "fifo,ltgf-lease", "--sweep", "lease=15min,1h", "--sweep", "seed=1,2")


@pytest.fixture
def lab(cluster: Lab) -> Iterator[Lab]:
    cluster.drain()
    yield cluster
    cluster.drain()


def argv(*words: str) -> list[str]:
    return [sys.executable, "-m", "slurm_ltgf", "simulate", *words]


def environment(lab: Lab) -> dict[str, str]:
    return lab.env | {"PYTHONPATH": str(ROOT)}


def rows(text: str) -> list[dict[str, Any]]:
    """Rows of --json without the seconds that they took."""
    return [{k: v for k, v in r.items() if k != "wall_s"} for r in json.loads(text)["policies"]]


@pytest.fixture
def waiting(lab: Lab, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A sweep whose tasks wait: another job has all nodes."""
    other = lab.submit("alice", "--exclusive", "-N4", script="sleep 900")
    lab.wait_state(other, "RUNNING")
    with subprocess.Popen(
        argv(*SWEEP, "--slurm", "--slurm-folder", str(tmp_path), "--json"),
        env=environment(lab),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        wait_until(lambda: len(tasks(lab)) == 6, 60, lambda: lab.run("squeue"))
        yield started
        started.kill()


def tasks(lab: Lab) -> list[str]:
    """Tasks of sweeps in the queue."""
    return lab.run("squeue", "-h", "-r", "-n", "ltgf-sweep", "-o", "%F_%K").split()


def test_a_job_array_gives_the_rows_of_one_machine(lab: Lab, tmp_path: Path) -> None:
    here = call(*argv(*SWEEP, "--json"), env=environment(lab))
    there = call(
        *argv(*SWEEP, "--json", "--slurm", "--slurm-partition", "main", "--slurm-time", "5"),
        *("--slurm-folder", str(tmp_path / "made")),
        env=environment(lab),
    )
    assert (here.returncode, there.returncode) == (0, 0)
    assert len(rows(there.stdout)) == 6
    assert rows(there.stdout) == rows(here.stdout)
    script = next((tmp_path / "made").glob("*.sh")).read_text()
    assert "#SBATCH --partition=main\n" in script
    assert "#SBATCH --time=5\n" in script


def test_a_partition_that_is_none_is_one_line(lab: Lab, tmp_path: Path) -> None:
    words = ("--slurm", "--slurm-partition", "nowhere", "--slurm-folder", str(tmp_path))
    refused = call(*argv(*SWEEP, *words), env=environment(lab))
    assert refused.returncode == 77
    assert refused.stderr.startswith("ltgf: --slurm: the job array was not accepted: ")
    assert refused.stderr.count("\n") == 1


def test_a_task_that_was_cancelled_is_a_failed_row(
    lab: Lab, waiting: subprocess.Popen[str]
) -> None:
    queued = tasks(lab)
    for task in queued[:2]:
        lab.run("scancel", task)
    lab.run("scancel", "-u", "alice")
    out, err = waiting.communicate(timeout=170)
    assert waiting.returncode == 1, err
    errors = [row["error"] for row in rows(out) if "error" in row]
    assert len(errors) == 2
    assert all("left no result: cancelled" in error for error in errors)


def test_ctrl_c_cancels_the_array(lab: Lab, waiting: subprocess.Popen[str]) -> None:
    os.kill(waiting.pid, signal.SIGINT)
    waiting.communicate(timeout=30)
    assert waiting.returncode == 130
    wait_until(lambda: not tasks(lab), 30, lambda: lab.run("squeue"))
