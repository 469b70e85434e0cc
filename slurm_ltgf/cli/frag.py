"""`ltgf frag`: how fragmented the free GPUs are, what is stranded, and which moves would help."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf import __version__
from slurm_ltgf.cli import frag_show, options, render
from slurm_ltgf.cli.app import App
from slurm_ltgf.errors import UsageError

if TYPE_CHECKING:
    from slurm_ltgf.core.fragmentation import PoolState
    from slurm_ltgf.service.defrag import DefragEdges, DefragView
    from slurm_ltgf.service.fragmentation import Asked, FragmentationEdges, Site
    from slurm_ltgf.store.ledger import Ledger


@click.command("frag")
@click.option("--plan", is_flag=True, help="Also which jobs could move where, and who would start.")
@click.option("--apply", "apply_", is_flag=True, help="Make the moves of the plan, and wait.")
@click.option("-p", "--partition", metavar="NAMES", help="Show only these partitions.")
@click.option(
    "--check",
    type=click.FloatRange(0, 1),
    metavar="SCORE",
    help="Exit with 1 if a pool's score is above this.",
)
@options.output()
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """How fragmented the free GPUs of each partition and GPU type are, for what is asked for.

    Score: the part of the free GPUs that a job of those that wait, taken at random, could not be
    given; where nothing waits, of those in the history. 0 is best.

    Nothing is done without --apply. With it jobs of one GPU that can save are asked to, requeued,
    and start again on other nodes, so that a larger job that waits finds room.
    """
    from slurm_ltgf.service.fragmentation import look, state

    app = App.of(ctx)
    _check(given)
    now = int(time.time())
    site = look(fragmentation_edges(app), now=now)
    wanted = set((given["partition"] or "").split(",")) - {""}
    if given["apply_"]:
        from slurm_ltgf.cli.frag_apply import apply

        apply(app, site, json_=given["json_"])
        return
    seen = None
    if given["plan"]:
        with app.ledger(readonly=True) as ledger:
            seen = plan(app, site, ledger)
    pools = [
        pool
        for pool in (seen.pools if seen else state(site, history(app, now)))
        if not wanted or pool.partition in wanted
    ]
    if wanted and not pools:
        raise UsageError(f"--partition {given['partition']}: no such partition has GPUs")
    _print(app, pools, seen, given)
    if given["check"] is not None and any((pool.score or 0) > given["check"] for pool in pools):
        ctx.exit(1)


def _check(given: dict[str, Any]) -> None:
    """Refuse what --apply has no meaning for.

    Raises:
        UsageError: an option beside --apply that only chooses what is shown.
    """
    names = {"partition": "--partition", "check": "--check", "parsable2": "--parsable2"}
    for key, option in names.items():
        if given["apply_"] and given[key]:
            raise UsageError(f"--apply makes the whole plan's moves: leave {option} out")


def _print(
    app: App, pools: list[PoolState], seen: DefragView | None, given: dict[str, Any]
) -> None:
    if given["json_"]:
        render.as_json(as_json(app, pools, seen))
    elif given["parsable2"]:
        rows = [frag_show.pool_row(pool) for pool in pools]
        render.parsable(frag_show.POOLS, rows, header=not given["noheader"])
    else:
        frag_show.pools(pools)
        if seen is not None:
            frag_show.plan(seen)


def as_json(app: App, pools: list[PoolState], seen: DefragView | None) -> dict[str, Any]:
    """The answer in the stable shape."""
    return {
        "meta": {
            "version": __version__,
            "generated": int(time.time()),
            "cluster": app.cluster(),
        },
        "pools": [frag_show.pool_json(pool) for pool in pools],
        "plan": None if seen is None else frag_show.plan_json(seen),
    }


# --- what is asked --------------------------------------------------------------------------------


def plan(app: App, site: Site, ledger: Ledger) -> DefragView:
    """The plan as it would be now; nothing is written."""
    from slurm_ltgf.cli.move_site import moves_of
    from slurm_ltgf.service.defrag import judge

    past = history(app, site.now)
    return judge(site, app.config, ledger, moves_of(app), defrag_edges(), past)


def fragmentation_edges(app: App) -> FragmentationEdges:
    """What fragmentation asks of this Slurm."""
    from slurm_ltgf.service.fragmentation import FragmentationEdges
    from slurm_ltgf.slurm import nodes, queue, reservations, site

    partitions = app.config.site.partitions
    return FragmentationEdges(
        queue.snapshot,
        lambda: nodes.capacity(partitions),
        reservations.reservations,
        site.partitions,
    )


def defrag_edges() -> DefragEdges:
    """What the plan asks of this machine and its Slurm."""
    from slurm_ltgf.cli.lease import uid_of
    from slurm_ltgf.service.defrag import DefragEdges
    from slurm_ltgf.service.defrag_facts import Binds
    from slurm_ltgf.slurm import bindings, reservations

    return DefragEdges(
        uid_of,
        lambda: Binds(bindings.bindings(), bindings.features()),
        reservations.maintenance_in_s,
    )


def history(app: App, now: int) -> Asked:
    """What was asked for in the window of the settings, by the ledger if there is one."""
    from slurm_ltgf.core.model import Window
    from slurm_ltgf.service.fragmentation import past_demand

    if not os.access(app.ledger_path, os.R_OK):
        return ()
    length_s = int(min(app.config.fairness.window_s, now - 1))
    with app.ledger(readonly=True) as ledger:
        return past_demand(ledger.runs(app.cluster(), Window(now - length_s, now)))
