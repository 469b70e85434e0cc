"""The simulator against a real Slurm, in small; and the arithmetic of the comparison, by hand.

The live bounds here are loose: so few jobs hardly queue, and a busy machine runs them late.
`scripts/compare-with-slurm` has the real ones.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from where import PORT, STATE

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTS = Path(__file__).parents[2] / "scripts"
OWN_STATE = Path(f"{STATE}-compare")


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """The module of the simulated side."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        yield importlib.import_module("simulated_runs")


@pytest.mark.parametrize(
    ("x", "y", "tau"),
    [
        ([1, 2, 3, 4], [10, 20, 40, 30], (5 - 1) / 6),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        # 4 of 6 pairs agree, one is tied in x, another in y: 4 / sqrt(5 * 5)
        ([1, 1, 2, 3], [1, 2, 3, 3], 0.8),
        ([7, 7, 7], [1, 2, 3], 0.0),
    ],
)
def test_kendalls_tau_b(script: Any, x: list[int], y: list[int], tau: float) -> None:
    assert script.kendall_tau(np.array(x, float), np.array(y, float)) == pytest.approx(tau)


def test_shares_are_parts_of_what_was_used_inside_the_window(script: Any) -> None:
    # in [10, 20]: 8 GPUs for 5 s, 2 GPUs for all 10 s, and one that ended before
    records = [record(script, *row) for row in ((0, "astro", 8), (0, "bio", 2), (0, "chem", 1))]
    found = script.shares(
        records, np.array([5.0, 0.0, 0.0]), np.array([15.0, 30.0, 10.0]), (10, 20)
    )
    assert found == {"astro": pytest.approx(40 / 60), "bio": pytest.approx(20 / 60), "chem": 0.0}


def test_time_is_contended_while_jobs_of_all_tenants_wait(script: Any) -> None:
    # all wait in the second 3, not in 4 to 8, and again in 9 and 10
    rows = [(0, 4, "astro"), (8, 20, "astro"), (2, 5, "bio"), (9, 12, "bio"), (3, 11, "chem")]
    found = [script.Record(submit, start, 99, tenant, 1, 9) for submit, start, tenant in rows]
    assert script.contended(found) == (3, 11)
    assert script.contended(found[:4]) == (0, 20)  # never: all the time


def record(script: Any, submit: int, tenant: str, gpus: int, run_s: int = 10) -> Any:
    """A job that ran so long; its real start does not matter to the simulator."""
    return script.Record(submit, 5000, 5000 + run_s, tenant, gpus, run_s)


def run(script: Any, records: list[Any], calculated: float = 0.0, gap_s: float = 0.0) -> Any:
    return script.Real("fifo", gap_s, calculated, records, (0.0, 0.0, 0.0))


def test_the_simulator_waits_for_the_gap_that_was_measured(script: Any) -> None:
    five = [record(script, 1000, "astro", 8) for _ in range(5)]
    starts = script.simulated(run(script, five, gap_s=0.46), "fifo")
    assert starts.tolist() == [1000.0] * 4 + [1010.5]


@pytest.mark.parametrize(
    ("calculated", "first"), [(1008 - 120, "chem"), (1011 - 120, "astro"), (1009.6, "chem")]
)
def test_fair_shares_are_calculated_when_slurm_calculated_them(
    script: Any, calculated: float, first: str
) -> None:
    # all nodes are astro's; the one that is free at 1010 goes to the older job if all usage
    # is still nil, and to the account without usage if it was calculated before
    busy = [record(script, 1000, "astro", 8, run_s) for run_s in (10, 30, 30, 30)]
    waiting = [record(script, 1001, "astro", 8), record(script, 1002, "chem", 8)]
    found = script.simulated(run(script, busy + waiting, calculated), "slurm-fairtree")
    assert found[-2:].tolist() == ([1010.0, 1020.0] if first == "astro" else [1020.0, 1010.0])


def test_a_bound_is_missed_on_its_far_side_only(script: Any) -> None:
    row = {"wait_difference": -0.1, "kendall_tau": 0.9, "share_difference": 0.05}
    assert script.missed(row) == []
    worse = {"wait_difference": -0.101, "kendall_tau": 0.899, "share_difference": 0.051}
    for name, key in (
        ("waiting", "wait_difference"),
        ("order", "kendall_tau"),
        ("shares", "share_difference"),
    ):
        assert script.missed(row | {key: worse[key]}) == [name]
    assert script.missed(row | {"wait_difference": None}) == ["waiting"]


def test_the_gap_is_between_jobs_of_a_node_that_waited(script: Any) -> None:
    runs = importlib.import_module("slurm_runs")
    jobs = [
        runs.Times("n2", 0, 3, 5),
        runs.Times("n1", 0, 4, 5),
        runs.Times("n1", 0, 0, 4),  # ends as the one before starts: 0
        runs.Times("n2", 0, 7, 9),  # 2 s after
        runs.Times("n2", 10, 11, 12),  # did not wait yet when the node was free
    ]
    assert runs.mean_gap(jobs) == 1.0
    with pytest.raises(SystemExit, match="too busy"):
        runs.mean_gap(jobs[-1:])


def test_slurm_is_compared_with_its_own_other_runs_of_the_same_jobs(script: Any) -> None:
    def row(policy: str, starts: list[int], begin: int, gpus: int = 1) -> dict[str, Any]:
        records = [[begin, begin + at, begin + at + 5, "bio", gpus, 5] for at in starts]
        waits = {"mean_wait_s": sum(starts) / len(starts)}
        return {"policy": policy, "slurm": waits, "run": {"records": records}}

    rows = [
        row("fifo", [0, 1, 2], 1000),
        row("fifo", [0, 2, 1], 7000),
        row("fifo", [0, 1, 2], 1000, gpus=2),
        row("ltgf", [0, 1, 2], 1000),
    ]
    rows[1]["slurm"]["mean_wait_s"] = 1.5
    script.again(rows)
    tau = pytest.approx(1 / 3)  # two pairs of three
    assert [one["slurm_again"] for one in rows] == [
        [{"kendall_tau": tau, "wait_difference": 0.5}],
        [{"kendall_tau": tau, "wait_difference": pytest.approx(-1 / 3)}],
        [],
        [],
    ]


def test_the_workload_is_the_same_for_a_seed_and_comes_in_order(script: Any) -> None:
    workload = importlib.import_module("slurm_runs").workload
    jobs = workload(200, 1)
    assert jobs == workload(200, 1) != workload(200, 2)
    assert [job.submit for job in jobs] == sorted(job.submit for job in jobs)
    # it asks for more than the cluster has while jobs come
    assert sum(job.gpus * job.run_s for job in jobs) > 1.5 * 32 * jobs[-1].submit


def compare(*args: str) -> tuple[int, str, str]:
    argv = [sys.executable, str(SCRIPTS / "compare_with_slurm.py"), *args]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    print(done.stderr)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ("--policy", "fifo,lottery"),
        ("--jobs", "1"),
        ("--records", "/nowhere/records.json"),
        ("--records", __file__),
    ],
)
def test_what_cannot_be_compared_is_refused(wrong: tuple[str, str]) -> None:
    status, out, err = compare(*wrong)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("compare-with-slurm: error: --")


@pytest.mark.cluster
def test_a_small_workload_on_slurm_and_simulated(tmp_path: Path) -> None:
    args = ("--policy=ltgf", "--jobs=24", f"--state={OWN_STATE}", f"--port={PORT + 2000}")
    status, out, _ = compare(*args, "--json")
    (row,) = json.loads(out)["policies"]
    assert status == (1 if row["missed"] else 0)
    assert not OWN_STATE.exists()
    assert (row["jobs"], len(row["run"]["records"])) == (24, 24)
    assert row["kendall_tau"] > 0.7
    assert abs(row["slurm"]["mean_wait_s"] - row["simulator"]["mean_wait_s"]) < 4
    assert sum(row["slurm"]["shares"].values()) == pytest.approx(1)
    # a record is what was planned: the job slept so long, and held its GPUs little longer
    assert all(0 <= end - start - slept < 10 for _, start, end, *_, slept in row["run"]["records"])

    saved = tmp_path / "records.json"
    saved.write_text(out)
    status_again, again, _ = compare("--records", str(saved), "--json")
    assert status_again == status
    assert json.loads(again)["policies"] == [row]
