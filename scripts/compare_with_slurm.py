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
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from simulated_runs import SHARE, SPECS, TAU, WAIT_PART, again, compared
from slurm_runs import CONF, GPUS_A_NODE, SHARES, Real, Record, Slurm, real, workload

out, console = Console(highlight=False), Console(stderr=True, highlight=False)


def main() -> int:
    """Run what is asked for, compare, print; 1 if a bound is missed."""
    given = options()
    rows = [compared(run) for run in given.runs or measured(given)]
    again(rows)
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
        "--records", type=Path, metavar="FILE", nargs="+", default=[],
        help="what --json wrote earlier: simulate that once more",
    )  # fmt: skip
    given = read.parse_args()
    given.policies = given.policy.split(",")
    if unknown := [name for name in given.policies if name not in CONF]:
        read.error(f"--policy {','.join(unknown)}: there are {', '.join(CONF)}")
    if not 2 <= given.jobs <= 2000:
        read.error("--jobs must be 2 to 2000")
    given.runs = [run for path in given.records for run in saved_runs(path, read)]
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


# --- what is printed ------------------------------------------------------------------------------


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Both sides, a policy a section."""
    title = "Seconds of waiting, parts of the GPU-time, Kendall's tau of the order"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    for name in ("Policy", "", "Mean", "P95", "End", *SHARES, "tau"):
        table.add_column(name, justify="left" if name in ("Policy", "") else "right")
    for row in rows:
        for name in ("slurm", "simulator"):
            is_first = name == "slurm"
            table.add_row(
                row["policy"] if is_first else "",
                name,
                *(f"{row[name][key]:.1f}" for key in ("mean_wait_s", "p95_wait_s", "makespan_s")),
                *(f"{part:.1%}" for part in row[name]["shares"].values()),
                "" if is_first else f"{row['kendall_tau']:.3f}",
            )
        table.add_section()
    out.print(table)
    for row in rows:
        out.print(*verdict(row), sep="\n  ", soft_wrap=True)


def verdict(row: dict[str, Any]) -> list[str]:
    """A policy in words, a sentence a line."""
    run = row["run"]
    found = f"[red]missed: {', '.join(row['missed'])}[/]" if row["missed"] else "within all bounds"
    bounds = f"bounds {WAIT_PART:.0%}, {TAU:.2f}, {100 * SHARE:.0f} points"
    others = [f"{name} {tau:.3f}" for name, tau in row["kendall_tau_of_others"].items()]
    backfill = [f"{name} {apart(one)}" for name, one in row["other_backfill"].items()]
    load = ", ".join(f"{value:.1f}" for value in run["load"])
    return [
        f"{row['policy']}: {found}",
        f"{apart(row)}, shares {100 * row['share_difference']:.1f} points apart ({bounds})",
        *(f"Slurm once more, the same jobs: {apart(one)}" for one in row["slurm_again"]),
        f"the simulator by other backfill: {'; '.join(backfill)}",
        f"by other policies: tau {', '.join(others)}",
        f"Slurm took {run['gap_s']:.2f} s from a job's end to the next start on its node",
        f"load {load} on {os.cpu_count()} cores",
    ]


def apart(one: dict[str, Any]) -> str:
    """Difference of waiting and order, in words."""
    wait = one["wait_difference"]
    return f"waiting {'-' if wait is None else format(wait, '+.1%')}, tau {one['kendall_tau']:.3f}"


if __name__ == "__main__":
    sys.exit(main())
