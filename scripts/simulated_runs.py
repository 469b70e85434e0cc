"""A workload that a real Slurm ran, run by the simulator; and how far the two are apart.

Used by compare_with_slurm.py. The simulator is given what sacct recorded (who submitted what when,
how long each job ran), the time limit, the nodes, and the gap that was measured on the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from slurm_runs import (
    CALC_PERIOD_S,
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
)

from slurm_ltgf.core.model import FloatArray
from slurm_ltgf.sim.backfill import Backfill
from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.engine import Costs, simulate
from slurm_ltgf.sim.policies import Site, make
from slurm_ltgf.sim.workload import Job, workload

#: The simulator's unit here is a tenth of a second: Slurm's overhead is shorter than a second.
TENTHS = 10
SPECS = {
    "fifo": "fifo",
    "slurm-fairtree": (
        f"slurm-fairtree:half_life={HALF_LIFE_S * TENTHS},period={CALC_PERIOD_S * TENTHS}"
    ),
    "ltgf": f"ltgf:window={WINDOW_S * TENTHS},lease={LEASE_S * TENTHS},floor=0",
}
#: Slurm's sched/backfill; and what else a simulator might do, to see that it would show.
SLURMS = Backfill("conservative", whole_nodes=True)
OTHERS = {
    "conservative": Backfill("conservative"),
    "easy": Backfill("easy"),
    "none": Backfill("none"),
}
#: Bounds: of mean waiting, relative; of Kendall's tau; of a tenant's part of the GPU-time.
WAIT_PART, TAU, SHARE = 0.10, 0.90, 0.05


def simulated(run: Real, policy: str, backfill: Backfill = SLURMS) -> FloatArray:
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
        workload(jobs),
        Cluster([NodeType(NODES, GPUS_A_NODE)]),
        make(SPECS[policy], Site({name: float(share) for name, share in SHARES.items()}, GPUS)),
        costs=Costs(epilog_s=round(run.gap_s * TENTHS)),
        backfill=backfill,
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
        shares=shares(records, starts, ends, contended(records)),
    )


def compared(run: Real) -> dict[str, Any]:
    """Both sides' measures of a policy, and which bounds are missed."""
    starts = np.array([record.start for record in run.records], float)
    begun = {policy: simulated(run, policy) for policy in SPECS}
    taus = {policy: kendall_tau(starts, found) for policy, found in begun.items()}
    slurm, simulator = side(run.records, starts), side(run.records, begun[run.policy])
    otherwise = {name: simulated(run, run.policy, rules) for name, rules in OTHERS.items()}
    row: dict[str, Any] = {
        "policy": run.policy,
        "jobs": len(run.records),
        "slurm": asdict(slurm),
        "simulator": asdict(simulator),
        "wait_difference": _over(simulator.mean_wait_s, slurm),
        "kendall_tau": taus.pop(run.policy),
        "kendall_tau_of_others": taus,
        "other_backfill": {
            name: {
                "wait_difference": _over(side(run.records, found).mean_wait_s, slurm),
                "kendall_tau": kendall_tau(starts, found),
            }
            for name, found in otherwise.items()
        },
        "contended": contended(run.records),
        "share_difference": max(
            abs(slurm.shares[name] - simulator.shares[name]) for name in SHARES
        ),
        "simulated_starts": begun[run.policy].tolist(),
        "run": asdict(run),
    }
    return row | {"missed": missed(row)}


def _over(mean_wait_s: float, slurm: Side) -> float | None:
    """How much longer than on Slurm, as a part of that."""
    return mean_wait_s / slurm.mean_wait_s - 1 if slurm.mean_wait_s else None


def again(rows: Sequence[dict[str, Any]]) -> None:
    """Say in each row how far Slurm is from itself: from its other runs of the same jobs."""
    for row in rows:
        row["slurm_again"] = [
            {
                "kendall_tau": kendall_tau(_starts(row), _starts(other)),
                "wait_difference": _ratio(other, row),
            }
            for other in rows
            if other is not row and _plan(other) == _plan(row)
        ]


def _starts(row: dict[str, Any]) -> FloatArray:
    """Slurm's starts, from the first submission on."""
    records = row["run"]["records"]
    return np.array([record[1] - records[0][0] for record in records], float)


def _plan(row: dict[str, Any]) -> list[Any]:
    return [row["policy"], *(tuple(record[3:]) for record in row["run"]["records"])]


def _ratio(other: dict[str, Any], row: dict[str, Any]) -> float | None:
    waits: float = row["slurm"]["mean_wait_s"]
    return other["slurm"]["mean_wait_s"] / waits - 1 if waits else None


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


def contended(records: Sequence[Record]) -> tuple[int, int]:
    """From the first to the last second in which, on Slurm, jobs of every tenant wait.

    All the time from the first submission to the last start where there is no such second.
    """
    submits, starts = (np.array([record[k] for record in records]) for k in (0, 1))
    tenants = np.array([record.tenant for record in records])
    seconds = np.arange(submits.min(), starts.max() + 1)
    waits = (submits <= seconds[:, None]) & (seconds[:, None] < starts)
    of_all = seconds[np.all([waits[:, tenants == name].any(axis=1) for name in SHARES], axis=0)]
    found = of_all if len(of_all) else seconds[:-1]
    return int(found[0]), int(found[-1]) + 1


def shares(
    records: Sequence[Record], starts: FloatArray, ends: FloatArray, window: tuple[int, int]
) -> dict[str, float]:
    """Each tenant's part of the GPU-time that was used in a window."""
    inside = np.minimum(ends, window[1]) - np.maximum(starts, window[0])
    used = np.maximum(inside, 0) * np.array([record.gpus for record in records])
    tenants = np.array([record.tenant for record in records])
    total = used.sum() or 1.0
    return {name: float(used[tenants == name].sum() / total) for name in SHARES}
