"""Pools, nodes and the plan of `ltgf frag` for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import render
from slurm_ltgf.cli.render import Column
from slurm_ltgf.core.pool_figures import pool_figures

if TYPE_CHECKING:
    from slurm_ltgf.core.defrag import Blocked, Plan, Start
    from slurm_ltgf.core.fragmentation import NodeState, PoolState
    from slurm_ltgf.service.defrag import DefragView

POOLS = (
    Column("pool", "Pool", render.word, numeric=False),
    Column("node_count", "Nodes"),
    Column("gpus", "GPUs"),
    Column("free_gpus", "Free"),
    Column("usable_gpus", "Usable"),
    Column("score", "Score", render.number(2)),
    Column("largest_gpus", "Largest"),
    Column("largest_possible_gpus", "Could be"),
    Column("variance", "Variance", render.number(2)),
    Column("demand", "By", render.word, numeric=False),
    Column("blocked_jobs", "Blocked"),
)
STRANDED = (
    Column("pool", "Pool", render.word, numeric=False),
    Column("reason", "Reason", render.word, numeric=False),
    Column("gpus", "GPUs"),
    Column("nodes", "Nodes", render.word, numeric=False),
)
MOVES = (
    Column("job_id", "Job", render.word, numeric=False),
    Column("user", "User", render.word, numeric=False),
    Column("class", "Class", render.word, numeric=False),
    Column("from", "From", render.word, numeric=False),
    Column("to", "To", render.word, numeric=False),
    Column("cost_gpu_s", "Cost GPU-s", render.gpus),
    Column("for", "For", render.word, numeric=False),
)
STARTS = (
    Column("job_id", "Job", render.word, numeric=False),
    Column("user", "User", render.word, numeric=False),
    Column("gpus", "GPUs", render.gpus),
    Column("nodes", "On", render.word, numeric=False),
    Column("moves", "Moves"),
    Column("cost_gpu_s", "Cost GPU-s", render.gpus),
    Column("worth_gpu_s", "Worth GPU-s", render.number(0)),
)
BLOCKED = (
    Column("job_id", "Job", render.word, numeric=False),
    Column("user", "User", render.word, numeric=False),
    Column("gpus", "GPUs", render.gpus),
    Column("why", "Why", render.word, numeric=False),
    Column("leaving", "Cheapest", render.word, numeric=False),
    Column("cost_gpu_s", "Cost GPU-s", render.gpus),
)
USED, FREE, STUCK = "█", "░", "▒"
#: Lines of nodes in a picture, and rows of a table for people; --json has all.
NODES_SHOWN, SHOWN = 24, 20


def pools(found: Sequence[PoolState]) -> None:
    """Print the pools: their numbers, what is stranded, a picture of the nodes."""
    if not found:
        click.echo("No node has GPUs.")
        return
    render.table("Free GPUs by partition and type", POOLS, [pool_row(pool) for pool in found])
    rows = [row for pool in found for row in _stranded_rows(pool)]
    if rows:
        render.table("Free GPUs that no job can be given", STRANDED, rows)
    for pool in found:
        click.echo(render.clean(pool.name))
        for line in picture(pool.nodes):
            click.echo(f"  {line}")
    click.echo(f"{USED} used  {FREE} free  {STUCK} free, but no job can be given it")


def pool_row(pool: PoolState) -> dict[str, Any]:
    """A pool as a row."""
    jobs = sum(kind.jobs for kind in pool.demand.kinds)
    words = {"pending": f"{jobs} waiting", "history": f"{jobs} in the past", "none": ""}
    return {
        "pool": pool.name,
        "node_count": len(pool.nodes),
        "gpus": pool.gpus,
        "free_gpus": pool.free_gpus,
        "usable_gpus": pool.usable_gpus,
        "score": pool.score,
        "largest_gpus": pool.largest,
        "largest_possible_gpus": pool.largest_possible,
        "variance": pool.variance,
        "demand": words[pool.demand.source],
        "blocked_jobs": pool.blocked_jobs,
    }


def _stranded_rows(pool: PoolState) -> Iterator[dict[str, Any]]:
    for reason, gpus in pool.stranded.items():
        nodes = [node.node for node in pool.nodes if node.reason == reason and node.stranded]
        more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
        yield {
            "pool": pool.name,
            "reason": reason,
            "gpus": gpus,
            "nodes": " ".join(nodes[:SHOWN]) + more,
        }


def picture(nodes: Sequence[NodeState]) -> Iterator[str]:
    """A block for each GPU of each node; nodes alike are one line, the emptiest first."""

    def look(node: NodeState) -> tuple[int, int, int, str]:
        return (-node.usable, -node.stranded, -node.gpus, node.reason)

    lines = [(key, list(some)) for key, some in groupby(sorted(nodes, key=look), key=look)]
    for _, some in lines[:NODES_SHOWN]:
        one = some[0]
        blocks = USED * (one.gpus - one.free) + FREE * one.usable + STUCK * one.stranded
        names = " ".join(node.node for node in some[:4]) + (" …" if len(some) > 4 else "")
        many = f"{len(some)} x " if len(some) > 1 else ""
        why = f"  {one.reason}" if one.stranded else ""
        yield render.clean(f"{blocks}  {many}{names}{why}")
    if len(lines) > NODES_SHOWN:
        rest = sum(len(some) for _, some in lines[NODES_SHOWN:])
        yield f"and {rest} nodes more (all: --json)"


# --- the plan -------------------------------------------------------------------------------------


def plan(seen: DefragView) -> None:
    """Print the plan: who would start after which moves, and who stays blocked."""
    values = plan_json(seen)
    if values["moves"]:
        _table("Moves", MOVES, values["moves"])
        _table("Would start then", STARTS, values["starts"])
    else:
        click.echo("No job is to be moved.")
    if values["blocked"]:
        _table("Stays waiting", BLOCKED, values["blocked"])
    for why, count in values["staying_by_reason"].items():
        who = "1 job of one GPU stays" if count == 1 else f"{count} jobs of one GPU stay"
        click.echo(f"note: {who}: {render.clean(why)}")
    if seen.left_out:
        names = " ".join(name(seen, job.job_id) for job in seen.left_out[:SHOWN])
        click.echo(f"note: not judged, bound to nodes in another way: {render.clean(names)}")
    if seen.stopped:
        click.echo(f"note: nobody moves now: {render.clean(seen.stopped)}")
    for text in seen.notes:
        click.echo(f"note: {render.clean(text)}")


def _table(title: str, columns: Sequence[Column], rows: list[dict[str, Any]]) -> None:
    more = f"; the first {SHOWN} of {len(rows)} (all: --json)" if len(rows) > SHOWN else ""
    shown = [
        {key: " ".join(v) if isinstance(v, list) else v for key, v in row.items()}
        for row in rows[:SHOWN]
    ]
    render.table(f"{title}{more}", columns, shown)


def plan_json(seen: DefragView) -> dict[str, Any]:
    """The plan for programs."""
    reasons: dict[str, int] = {}
    for _, why in seen.staying:
        reasons[why] = reasons.get(why, 0) + 1
    made: list[Plan] = list(seen.plans.values())
    return {
        "allowed_moves": seen.allowed,
        "stopped": seen.stopped or None,
        "gain_gpus": sum(one.gain_gpus for one in made),
        "cost_gpu_s": sum(one.key.gpu_s for one in made),
        "moves": [row for start in seen.ways for row in _move_rows(seen, start)],
        "starts": [_start_row(seen, start) for start in seen.ways],
        "by_themselves": [
            name(seen, start.job.job_id)
            for one in made
            for start in one.starts
            if not start.way.leaving
        ],
        "blocked": [_blocked_row(seen, blocked) for one in made for blocked in one.blocked],
        "staying": [
            {"job_id": job.shown_id or str(job.job_id), "why": w} for job, w in seen.staying
        ],
        "staying_by_reason": dict(sorted(reasons.items())),
        "left_out": [name(seen, job.job_id) for job in seen.left_out],
        "notes": list(seen.notes),
    }


def name(seen: DefragView, job_id: int) -> str:
    """A job as squeue shows it."""
    job = seen.jobs.get(job_id)
    return (job.shown_id if job else "") or str(job_id)


def _move_rows(seen: DefragView, start: Start) -> Iterator[dict[str, Any]]:
    for job, to in zip(start.way.leaving, start.way.to, strict=True):
        yield {
            "job_id": name(seen, job.job_id),
            "user": seen.jobs[job.job_id].user,
            "class": job.klass.name.lower(),
            "from": job.node,
            "to": to,
            "cost_gpu_s": job.cost_gpu_s,
            "for": name(seen, start.job.job_id),
        }


def _start_row(seen: DefragView, start: Start) -> dict[str, Any]:
    return {
        "job_id": name(seen, start.job.job_id),
        "user": seen.jobs[start.job.job_id].user,
        "gpus": start.job.gpus,
        "nodes": list(start.way.nodes),
        "moves": len(start.way.leaving),
        "cost_gpu_s": start.way.key.gpu_s,
        "worth_gpu_s": start.job.worth_gpu_s,
    }


def _blocked_row(seen: DefragView, blocked: Blocked) -> dict[str, Any]:
    return {
        "job_id": name(seen, blocked.job.job_id),
        "user": seen.jobs[blocked.job.job_id].user,
        "gpus": blocked.job.gpus,
        "why": blocked.why,
        "leaving": [name(seen, job.job_id) for job in blocked.leaving],
        "cost_gpu_s": blocked.key.gpu_s if blocked.leaving else None,
    }


def pool_json(pool: PoolState) -> dict[str, Any]:
    """A pool for programs."""
    return {
        **pool_figures(pool),
        "demand_gpus": sum(kind.jobs * kind.gpus for kind in pool.demand.kinds),
        "stranded": pool.stranded,
        "nodes": [
            {
                "node": node.node,
                "gpus": node.gpus,
                "free_gpus": node.free,
                "usable_gpus": node.usable,
                "reason": node.reason or None,
            }
            for node in pool.nodes
        ],
    }
