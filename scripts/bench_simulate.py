#!/usr/bin/env python3
"""The simulator's speed: `simulations` runs a child process a figure, which this file is as well.

A child reads or makes a workload, simulates it under one policy and measures what came of it; each
part in seconds of the processor, which one core spends. Its memory is the peak of the process.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.engine import simulate
from slurm_ltgf.sim.metrics import measures
from slurm_ltgf.sim.policies import POLICIES, Site, make
from slurm_ltgf.sim.traces import read_trace, read_weights
from slurm_ltgf.sim.traces.generated import generated
from slurm_ltgf.sim.workload import Workload

ROOT = Path(__file__).resolve().parent.parent
PHILLY = ROOT.parent / "shared" / "traces" / "philly"
#: Two weeks of Philly, simulated for three.
JOBS, TENANTS, GPUS, HORIZON_S = 22_009, 11, 512, 21 * 86400
#: What the artifact of ASTRAEA's authors takes a policy, at least: docs/reference/performance.md.
ARTIFACT_S = 420
LARGE = ("fifo", "slurm-fairtree", "ltgf")

Row = tuple[str, str, str, bool | None]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a child spent, seconds of the processor by part; and its peak of memory."""

    read_s: float
    simulate_s: float
    measure_s: float
    waiting: float
    megabytes: float = 0.0

    @property
    def all_s(self) -> float:
        """Of all parts."""
        return self.read_s + self.simulate_s + self.measure_s

    def told(self) -> str:
        parts = f"read {self.read_s:.2f}, simulate {self.simulate_s:.2f}"
        return f"{self.all_s:.2f} s: {parts}, measure {self.measure_s:.2f}"


def simulations(run: Callable[..., Any], *, jobs: int, rounds: int) -> list[Row]:
    """The figures. run: runs a command, as `bench_figures.timed`. jobs: of the large workload."""

    def child(*argv: object) -> Cost:
        done = run([sys.executable, str(Path(__file__).resolve()), *map(str, argv)])
        return Cost(**json.loads(done.told), megabytes=done.megabytes)

    return [*two_weeks(child, rounds), *large(child, jobs), *growth(child, jobs)]


def two_weeks(child: Callable[..., Cost], rounds: int) -> list[Row]:
    """Every policy on two weeks of Philly, in turns."""
    found: dict[str, list[Cost]] = {name: [] for name in POLICIES}
    for _ in range(rounds):
        for name, costs in found.items():
            costs.append(child(name))
    rows: list[Row] = []
    for name, costs in found.items():
        one = min(costs, key=lambda cost: cost.all_s)
        times = ARTIFACT_S / one.all_s
        told = f"{one.told()}; {times:.0f} x faster"
        rows.append((f"Philly, {name}", "< 5 s, 100 x", told, one.all_s < 5 and times >= 100))
    return rows


def large(child: Callable[..., Cost], jobs: int) -> list[Row]:
    """Jobs of 16 tenants on 1,024 GPUs that are always in demand."""
    rows: list[Row] = []
    for name in LARGE:
        one = child(name, "--jobs", jobs, "--gpus", 1024, "--load", 0.95)
        told = f"{one.told()}; {one.megabytes:.0f} MB, {one.waiting:.0f} jobs waiting"
        is_met = one.all_s < 180 and one.megabytes < 2000
        rows.append((f"{jobs:,} jobs, {name}", "< 180 s, < 2000 MB", told, is_met))
    return rows


def growth(child: Callable[..., Cost], jobs: int) -> list[Row]:
    """From a hundredth to all, on a cluster that is small enough to be in balance soon."""
    sizes = [round(jobs / 10 ** (k / 2)) for k in (4, 3, 2, 1, 0)]
    spent: list[float] = []
    rows: list[Row] = []
    for n in sizes:
        one = child("ltgf", "--jobs", n, "--gpus", 64, "--load", 0.7)
        spent.append(one.simulate_s / n)
        told = f"{1e6 * spent[-1]:.0f} µs a job, {one.waiting:.0f} waiting"
        rows.append((f"{n:,} jobs, ltgf, load 0.7", "", told, None))
    ratio, allowed = spent[-1] / spent[0], math.log(sizes[-1]) / math.log(sizes[0])
    told = f"{ratio:.2f} x a job (n log n: {allowed:.2f} x)"
    return [*rows, ("a hundred times the jobs", "<= n log n", told, ratio <= allowed)]


# --- a child --------------------------------------------------------------------------------------


def workload_of(given: argparse.Namespace) -> tuple[Workload, dict[str, float]]:
    """Philly's two weeks, or a seeded workload: of that size if they are not here."""
    trace, shares = PHILLY / "philly_2w_11vc.csv", PHILLY / "share11.csv"
    if given.jobs is None and trace.is_file() and shares.is_file():
        with shares.open(encoding="utf-8") as lines:
            return read_trace(trace), read_weights(lines, shares.name)
    jobs, tenants = (JOBS, TENANTS) if given.jobs is None else (given.jobs, 16)
    return generated(jobs=jobs, tenants=tenants, gpus=given.gpus, load=given.load)


def main() -> int:
    """Print what it costs, as JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("policy")
    options.add_argument("--jobs", type=int, help="of a seeded workload; else Philly's two weeks")
    options.add_argument("--gpus", type=int, default=GPUS)
    options.add_argument("--load", type=float, default=0.95)
    given = options.parse_args()
    clock = [time.process_time()]
    work, weights = workload_of(given)
    clock.append(time.process_time())
    outcome = simulate(
        work,
        Cluster([NodeType(given.gpus // 8, 8)]),
        make(given.policy, Site(weights, given.gpus)),
        horizon=HORIZON_S if given.jobs is None else None,
    )
    clock.append(time.process_time())
    found = measures(outcome, weights)
    clock.append(time.process_time())
    read_s, simulate_s, measure_s = (b - a for a, b in pairwise(clock))
    waiting = (found.mean_wait_s or 0.0) * len(work.jobs) / outcome.horizon
    print(json.dumps(
        {"read_s": read_s, "simulate_s": simulate_s, "measure_s": measure_s, "waiting": waiting}
    ))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
