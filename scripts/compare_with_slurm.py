"""The simulator against a real Slurm: one workload in both, policy by policy.

The simulator is given what sacct recorded: who submitted what when, how long each job ran, the time
limits, the nodes; and one measured number, the time from a job's end to the next start on its node.
It says when each job starts; Slurm's own starts are compared with that.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from slurm_runs import (
    CALC_PERIOD_S,
    CONF,
    GPUS,
    GPUS_A_NODE,
    HALF_LIFE_S,
    LEASE_S,
    LIMIT_S,
    NODES,
    SHARES,
    WINDOW_S,
    Real,
    Record,
    Slurm,
    real,
    workload,
)

from slurm_ltgf.core.model import FloatArray
from slurm_ltgf.sim.backfill import Backfill
from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.engine import Costs, simulate
from slurm_ltgf.sim.policies import Site, make
from slurm_ltgf.sim.workload import Job
from slurm_ltgf.sim.workload import workload as of_jobs

#: The simulator's unit here is a tenth of a second: Slurm's overhead is shorter than a second.
TENTHS = 10
SPECS = {
    "fifo": "fifo",
    "slurm-fairtree": (
        f"slurm-fairtree:half_life={HALF_LIFE_S * TENTHS},period={CALC_PERIOD_S * TENTHS}"
    ),
    "ltgf": f"ltgf:window={WINDOW_S * TENTHS},lease={LEASE_S * TENTHS},floor=0",
}
#: Bounds: of mean waiting, relative; of Kendall's tau; of a tenant's part of the GPU-time.
WAIT_PART, TAU, SHARE = 0.10, 0.90, 0.05

out, console = Console(highlight=False), Console(stderr=True, highlight=False)


def main() -> int:
    """Run what is asked for, compare, print; 1 if a bound is missed."""
    given = options()
    rows = [compared(run) for run in given.runs or measured(given)]
    if given.json:
        print(json.dumps({"load_now": os.getloadavg(), "policies": rows}, indent=1))
    else:
        show(rows)
    return 0 if all(not row["missed"] for row in rows) else 1


def options() -> argparse.Namespace:
    """The command line."""
    first, _, rest = (__doc__ or "").partition("\n\n")
    read = argparse.ArgumentParser(prog="compare-with-slurm", description=first, epilog=rest)
    read.add_argument("--policy", metavar="P[,P..]", default=",".join(CONF), help="%(default)s")
    read.add_argument("--jobs", type=int, default=200, help="default %(default)s")
    read.add_argument("--seed", type=int, default=1, help="of the workload")
    read.add_argument(
        "--state", type=Path, default=Path("/run/ltgf-compare"), metavar="DIR",
        help="of the cluster, which is made anew: one that is there is removed",
    )  # fmt: skip
    read.add_argument("--port", type=int, default=27000, metavar="BASE")
    read.add_argument("--json", action="store_true", help="all numbers and every job")
    read.add_argument(
        "--records", type=Path, metavar="FILE", help="an earlier --json: simulate that once more"
    )
    given = read.parse_args()
    given.policies = given.policy.split(",")
    if unknown := [name for name in given.policies if name not in CONF]:
        read.error(f"--policy {','.join(unknown)}: there are {', '.join(CONF)}")
    if not 2 <= given.jobs <= 2000:
        read.error("--jobs must be 2 to 2000")
    given.runs = [] if given.records is None else saved_runs(given.records, read)
    return given


def saved_runs(path: Path, read: argparse.ArgumentParser) -> list[Real]:
    """The runs of an earlier --json."""
    try:
        runs = [loaded(policy["run"]) for policy in json.loads(path.read_text())["policies"]]
    except OSError as exc:
        read.error(f"--records {path}: {exc.strerror}")
    except (ValueError, KeyError, TypeError):
        read.error(f"--records {path}: not what --json writes")
    return runs or read.error(f"--records {path}: no run in it")


def measured(given: argparse.Namespace) -> list[Real]:
    """Run the workload on a cluster of its own, a new one for each policy; none is left."""
    slurm = Slurm(given.state, given.port)
    plan = workload(given.jobs, given.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster is removed
    try:
        with progress() as tell:
            return [real(plan, policy, slurm, tell) for policy in given.policies]
    finally:
        slurm.down()


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Tells what is going on, on a terminal."""
    with console.status("") as status:
        yield status.update


def loaded(saved: dict[str, Any]) -> Real:
    """A run of an earlier --json; ValueError, KeyError or TypeError: it is none."""
    records = [
        Record(int(submit), int(start), int(end), str(tenant), int(gpus), int(sleep_s))
        for submit, start, end, tenant, gpus, sleep_s in saved["records"]
    ]
    known = all(row.tenant in SHARES and 0 < row.gpus <= GPUS_A_NODE for row in records)
    if not (records and known and saved["policy"] in SPECS):
        raise ValueError("not a run")
    one, five, fifteen = map(float, saved["load"])
    gap_s, calculated = float(saved["gap_s"]), float(saved["calculated"])
    return Real(saved["policy"], gap_s, calculated, records, (one, five, fifteen))


# --- the simulator --------------------------------------------------------------------------------


def simulated(run: Real, policy: str) -> FloatArray:
    """When the simulator starts each job, epoch seconds; (jobs,).

    The clock begins at the last calculation of fair shares before the first job, so that both
    calculate at the same times. What a job waits for Slurm's next pass is in the gap, so that the
    simulator passes whenever something happens.
    """
    first = min(record.submit for record in run.records)
    begin = round(first - (first - run.calculated) % CALC_PERIOD_S, 1)
    jobs = [
        Job(
            i,
            record.tenant,
            record.gpus,
            submit=round((record.submit - begin) * TENTHS),
            run_s=max(record.end - record.start, 1) * TENTHS,
            limit_s=LIMIT_S * TENTHS,
        )
        for i, record in enumerate(run.records)
    ]
    outcome = simulate(
        of_jobs(jobs),
        Cluster([NodeType(NODES, GPUS_A_NODE)]),
        make(SPECS[policy], Site({name: float(share) for name, share in SHARES.items()}, GPUS)),
        costs=Costs(epilog_s=round(run.gap_s * TENTHS)),
        backfill=Backfill("conservative", whole_nodes=True),
    )
    by_id = {job.job_id: job.start for job in outcome.jobs}
    return np.round(begin + np.array([by_id[i] for i in range(len(jobs))]) / TENTHS, 1)


# --- measures -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """What came of the workload on one side. shares: tenant -> part of the GPU-time in a window."""

    mean_wait_s: float
    p95_wait_s: float
    makespan_s: float
    shares: dict[str, float]


def side(records: Sequence[Record], starts: FloatArray) -> Side:
    """Measure: starts are epoch seconds, (jobs,); how long each job ran is sacct's."""
    submits = np.array([record.submit for record in records], float)
    ends = starts + [record.end - record.start for record in records]
    return Side(
        mean_wait_s=float((starts - submits).mean()),
        p95_wait_s=float(np.quantile(starts - submits, 0.95)),
        makespan_s=float(ends.max() - submits.min()),
        shares=shares(records, starts, ends, contended(submits)),
    )


def compared(run: Real) -> dict[str, Any]:
    """Both sides' measures of a policy, and which bounds are missed."""
    starts = np.array([record.start for record in run.records], float)
    begun = {policy: simulated(run, policy) for policy in SPECS}
    taus = {policy: kendall_tau(starts, found) for policy, found in begun.items()}
    slurm, simulator = side(run.records, starts), side(run.records, begun[run.policy])
    waits = slurm.mean_wait_s
    row: dict[str, Any] = {
        "policy": run.policy,
        "jobs": len(run.records),
        "slurm": asdict(slurm),
        "simulator": asdict(simulator),
        "wait_difference": simulator.mean_wait_s / waits - 1 if waits else None,
        "kendall_tau": taus.pop(run.policy),
        "kendall_tau_of_others": taus,
        "share_difference": max(
            abs(slurm.shares[name] - simulator.shares[name]) for name in SHARES
        ),
        "simulated_starts": begun[run.policy].tolist(),
        "run": asdict(run),
    }
    return row | {"missed": missed(row)}


def missed(row: dict[str, Any]) -> list[str]:
    """The bounds that do not hold, by name; a number that is not there holds none."""
    holds = {
        "waiting": row["wait_difference"] is not None and abs(row["wait_difference"]) <= WAIT_PART,
        "order": row["kendall_tau"] >= TAU,
        "shares": row["share_difference"] <= SHARE,
    }
    return [name for name, is_held in holds.items() if not is_held]


def kendall_tau(x: FloatArray, y: FloatArray) -> float:
    """Kendall's tau-b of two series: of pairs that neither side ties, how many agree in order.

    0 where one side ties all. Source: Kendall, "The treatment of ties in ranking problems", 1945.
    """
    of_x, of_y = (np.sign(np.subtract.outer(series, series)) for series in (x, y))
    pairs = np.sqrt((of_x**2).sum() * (of_y**2).sum())
    return float((of_x * of_y).sum() / pairs) if pairs else 0.0


def contended(submits: FloatArray) -> tuple[float, float]:
    """The second half of the time in which jobs come: by then there is a queue."""
    return float((submits.min() + submits.max()) / 2), float(submits.max())


def shares(
    records: Sequence[Record], starts: FloatArray, ends: FloatArray, window: tuple[float, float]
) -> dict[str, float]:
    """Each tenant's part of the GPU-time that was used in a window."""
    inside = np.minimum(ends, window[1]) - np.maximum(starts, window[0])
    used = np.maximum(inside, 0) * np.array([record.gpus for record in records])
    tenants = np.array([record.tenant for record in records])
    total = used.sum() or 1.0
    return {name: float(used[tenants == name].sum() / total) for name in SHARES}


# --- what is printed ------------------------------------------------------------------------------


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Both sides, a policy a section."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    parts = f"GPU-time of {', '.join(SHARES)}"
    for title in ("Policy", "", "Mean wait", "P95 wait", "Makespan", parts, "Order"):
        table.add_column(title, justify="left" if title in ("Policy", "") else "right")
    for row in rows:
        for name in ("slurm", "simulator"):
            is_first = name == "slurm"
            table.add_row(
                row["policy"] if is_first else "",
                name,
                *(f"{row[name][key]:.1f} s" for key in ("mean_wait_s", "p95_wait_s", "makespan_s")),
                " ".join(f"{part:5.1%}" for part in row[name]["shares"].values()),
                "" if is_first else f"tau {row['kendall_tau']:.3f}",
            )
        table.add_section()
    out.print(table)
    for row in rows:
        out.print(*verdict(row), sep="\n  ", soft_wrap=True)


def verdict(row: dict[str, Any]) -> list[str]:
    """A policy in words, a sentence a line."""
    wait, run = row["wait_difference"], row["run"]
    found = f"[red]missed: {', '.join(row['missed'])}[/]" if row["missed"] else "within all bounds"
    waiting = (
        f"mean waiting {'-' if wait is None else format(wait, '+.1%')} (bound {WAIT_PART:.0%})"
    )
    order = f"order tau {row['kendall_tau']:.3f} (bound {TAU:.2f})"
    parts = f"shares {100 * row['share_difference']:.1f} points apart (bound {100 * SHARE:.0f})"
    others = (f"{tau:.3f} by {name}" for name, tau in row["kendall_tau_of_others"].items())
    load = ", ".join(f"{value:.1f}" for value in run["load"])
    return [
        f"{row['policy']}: {found}",
        f"{waiting}, {order}, {parts}",
        f"tau of Slurm's order and the simulator's {', '.join(others)}",
        f"Slurm took {run['gap_s']:.2f} s from a job's end to the next start on its node",
        f"load {load} on {os.cpu_count()} cores",
    ]


if __name__ == "__main__":
    sys.exit(main())
