"""`ltgf simulate`: what other policies would do with a trace."""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf import __version__
from slurm_ltgf.cli import render
from slurm_ltgf.cli.app import numbers
from slurm_ltgf.cli.render import Column
from slurm_ltgf.errors import InputError, UsageError

if TYPE_CHECKING:
    from slurm_ltgf.sim.metrics import Measures
    from slurm_ltgf.sim.workload import Workload

COLUMNS = (
    Column("policy", "Policy", render.word, numeric=False),
    Column("mean_jct_s", "Mean JCT", render.duration),
    Column("p50_jct_s", "P50", render.duration),
    Column("p99_jct_s", "P99", render.duration),
    Column("mean_wait_s", "Mean wait", render.duration),
    Column("utilisation", "Busy", lambda x: f"{x:.1%}"),
    Column("tenant_mean_shortfall", "Shortfall", render.number(4)),
    Column("worst_window_rho", "Worst window", render.number(3)),
    Column("windows_below_095", "Windows < .95", lambda x: "-" if x is None else f"{x:.1%}"),
    Column("jobs_below_095", "Jobs < .95", lambda x: "-" if x is None else f"{x:.1%}"),
    Column("job_rho_p5", "Job rho P5", render.number(3)),
    Column("preemptions", "Moves", render.word),
    Column("overhead_gpu_s", "Lost h", render.hours),
    Column("unfinished", "Unfinished", render.word),
    Column("wall_s", "Took s", render.number(1)),
)
TENANTS = (
    Column("tenant", "Tenant", render.word, numeric=False),
    Column("weight", "Weight", render.gpus),
    Column("quota_gpus", "Quota GPUs", render.gpus),
    Column("attained_gpu_s", "Attained h", render.hours),
    Column("rho", "rho", render.number(3)),
    Column("credit", "Credit", render.number(3)),
    Column("share", "Share", render.number(3)),
    Column("mean_wait_s", "Mean wait", render.duration),
    Column("mean_jct_s", "Mean JCT", render.duration),
)


@click.command("simulate")
@click.argument("trace", required=False)
@click.option("--policy", "policies", metavar="P[,P..]", help="Policies; default: all there are.")
@click.option("--gpus", type=click.IntRange(1), help="GPUs of the cluster.")
@click.option("--gpus-per-node", type=click.IntRange(1), default=8, show_default=True)
@click.option("--weights", metavar="FILE|a=1,..", help="Tenants' weights; default: all alike.")
@click.option("--placement", type=click.Choice(["consolidated", "packed", "spread"]))
@click.option("--lease", type=click.IntRange(1), metavar="S", help="Lease in seconds.")
@click.option("--window", type=click.IntRange(1), metavar="S", help="Window in seconds.")
@click.option("--limit-factor", type=float, default=1.0, show_default=True, metavar="X")
@click.option("--horizon", type=click.IntRange(1), metavar="S", help="Cut after so many seconds.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the generated trace.")
@click.option("--tenants", "by_tenant", is_flag=True, help="Also each tenant under each policy.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.option("--csv", "csv_", is_flag=True, help="Print CSV.")
@click.pass_context
def command(ctx: click.Context, /, trace: str | None, **given: Any) -> None:
    """What other policies would do with a trace: waiting, completion times, fairness.

    TRACE is a CSV as Philly's, ASTRAEA's or openb's; without one a seeded workload with Philly's
    statistics is used. Order, indices and lease verdicts are the functions of core, those that the
    daemon calls. `ltgf` runs jobs to their end, `ltgf-lease` moves them at the end of a lease at a
    cost of 5 s to checkpoint and 20 s to restore. A trace tells no time limits: --limit-factor says
    what schedulers are told, as a multiple of the run time.
    """
    from slurm_ltgf.sim.policies import POLICIES

    wanted = given["policies"].split(",") if given["policies"] else list(POLICIES)
    unknown = [name for name in wanted if name not in POLICIES]
    if unknown:
        raise UsageError(f"--policy {unknown[0]}: no such policy; there are {', '.join(POLICIES)}")
    work, weights, gpus = _read(trace, given)
    rows = [_one(name, work, weights, gpus, given) for name in wanted]
    _show(rows, work, gpus, given)


def _read(trace: str | None, given: dict[str, Any]) -> tuple[Workload, dict[str, float], int]:
    from slurm_ltgf.sim.traces.columns import read_csv
    from slurm_ltgf.sim.traces.generated import generated

    if trace is None:
        gpus = given["gpus"] or 64
        work, weights = generated(gpus=gpus, seed=given["seed"])
        return work, {**weights, **_weights(given["weights"])}, gpus
    if given["gpus"] is None:
        raise UsageError("--gpus N is needed with a trace: how large is the cluster?")
    try:
        with Path(trace).open(newline="", encoding="utf-8", errors="replace") as lines:
            work = read_csv(lines, trace, limit_factor=given["limit_factor"])
    except OSError as exc:
        raise InputError(f"{trace}: cannot be read: {exc.strerror}") from exc
    weights = dict.fromkeys(work.tenants, 1.0)
    return work, {**weights, **_weights(given["weights"])}, given["gpus"]


def _weights(text: str | None) -> dict[str, float]:
    from slurm_ltgf.sim.traces.columns import read_weights

    if text is None:
        return {}
    if "=" in text and not Path(text).exists():
        return numbers(text, "--weights")
    try:
        with Path(text).open(newline="", encoding="utf-8") as lines:
            return read_weights(lines, text)
    except OSError as exc:
        raise UsageError(f"--weights {text}: neither a=1,.. nor a file: {exc.strerror}") from exc


def _one(
    name: str, work: Workload, weights: dict[str, float], gpus: int, given: dict[str, Any]
) -> tuple[Measures, float]:
    from slurm_ltgf.core.order import Rules
    from slurm_ltgf.sim.cluster import Cluster, NodeType
    from slurm_ltgf.sim.engine import simulate
    from slurm_ltgf.sim.metrics import measures
    from slurm_ltgf.sim.policies import POLICIES, Site

    per_node = min(given["gpus_per_node"], gpus)
    if gpus % per_node:
        raise UsageError(f"--gpus {gpus} is no multiple of --gpus-per-node {per_node}")
    rules = Rules(lease_s=given["lease"]) if given["lease"] is not None else Rules()
    site = Site(weights, gpus, window_s=given["window"] or 86400, rules=rules)
    cluster = Cluster([NodeType(gpus // per_node, per_node)], given["placement"] or "consolidated")
    began = time.perf_counter()
    if render.live():
        render.note(f"{name}: {len(work.jobs)} jobs on {gpus} GPUs")
    policy = POLICIES[name](site)
    try:
        outcome = simulate(work, cluster, policy, horizon=given["horizon"])
    except ValueError as exc:
        raise InputError(f"{work.name}: {exc}") from exc
    took_s = time.perf_counter() - began
    return measures(outcome, weights), took_s


def _row(measured: Measures, took_s: float) -> dict[str, Any]:
    names = [name for name in measured.__slots__ if name != "tenants"]
    return {**{name: getattr(measured, name) for name in names}, "wall_s": round(took_s, 3)}


def _show(
    measured: list[tuple[Measures, float]], work: Workload, gpus: int, given: dict[str, Any]
) -> None:
    rows = [_row(*one) for one in measured]
    tenants = {
        one.policy: [{name: getattr(t, name) for name in t.__slots__} for t in one.tenants]
        for one, _ in measured
    }
    if given["json_"]:
        render.as_json(
            {
                "meta": {"version": __version__, "trace": work.name, "jobs": len(work.jobs)},
                "gpus": gpus,
                "policies": [{**row, "tenants": tenants[row["policy"]]} for row in rows],
                "skipped": [{"line": s.line, "reason": s.reason} for s in work.skipped[:1000]],
                "skipped_total": len(work.skipped),
            }
        )
    elif given["csv_"]:
        writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        render.table(f"{work.name}: {len(work.jobs)} jobs on {gpus} GPUs", COLUMNS, rows)
        if given["by_tenant"]:
            for policy, own in tenants.items():
                render.table(policy, TENANTS, own)
        if work.skipped:
            first = work.skipped[0]
            click.echo(
                f"skipped: {len(work.skipped)} rows of the trace, first line {first.line}: "
                f"{render.clean(first.reason)}"
            )
