"""`ltgf replay`: what other policies would have done with this site's own history."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import render, replay_show, results
from slurm_ltgf.cli.app import App
from slurm_ltgf.cli.history_source import ledger_of
from slurm_ltgf.cli.simulate_options import as_slurm, backfill_of, placement

if TYPE_CHECKING:
    from slurm_ltgf.cli.replay_past import Replayed
    from slurm_ltgf.sim.engine import Outcome
    from slurm_ltgf.sim.policies import Site
    from slurm_ltgf.sim.replay import History
    from slurm_ltgf.store.config import Config

DEFAULT_POLICIES = "slurm-fairtree,ltgf"


@click.command("replay")
@click.option(
    "--days",
    type=click.FloatRange(0, 36500, min_open=True),
    default=28,
    show_default=True,
    metavar="N",
    help="The last N days of the history.",
)
@click.option(
    "--from-file", metavar="FILE", help="A saved sacct dump in place of the ledger; - is stdin."
)
@click.option("--timezone", metavar="ZONE", help="What local times in the dump mean.")
@click.option("-M", "--cluster", metavar="NAME", help="Which, where the history has several.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="P[,P..]",
    help=f"As for `ltgf simulate`; default: {DEFAULT_POLICIES}.",
)
@click.option("--gpus", type=click.IntRange(1), help="GPUs; default: as the ledger saw them.")
@click.option("--gpus-per-node", type=click.IntRange(1), help="Default: as jobs had them.")
@click.option("--nodes", metavar="SPEC|FILE", help="Nodes instead, as for `ltgf simulate`.")
@placement
@as_slurm
@click.option("--weights", metavar="a=3,b=1", help="Tenants' weights, in place of their own.")
@click.option("--wide", is_flag=True, help="All measures.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.option(
    "-o", "output", multiple=True, metavar="FILE", help="Also write .html, .json, .csv or .md."
)
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """What other policies would have done with this site's own history.

    Takes the last days of the ledger, or of a sacct dump with no Slurm near: when jobs came, how
    many GPUs they had, how long they ran. Shows side by side how it was and what Slurm's fair tree
    and LTGF would have made of it, and for whom that changes what.
    """
    from slurm_ltgf.cli import replay_past
    from slurm_ltgf.sim.policies import Site, make
    from slurm_ltgf.sim.sweep import specs

    wanted = specs(given["policies"]) or DEFAULT_POLICIES.split(",")
    for spec in wanted:
        make(spec, Site({"a": 1.0}, 8))
    for path in given["output"]:
        results.refuse_output(path)
    app = App.of(ctx)
    with ledger_of(app, given) as ledger:
        past = replay_past.read(ledger, app.config, given)
    result = _result(ctx, past, wanted, app.config)
    if given["json_"]:
        click.echo(results.as_json(result), nl=False)
    else:
        replay_show.show(result, wide=given["wide"])
    for path in given["output"]:
        results.write(path, result, wide=given["wide"], by_tenant=True)
        render.note(f"written: {path}")


def _result(
    ctx: click.Context, past: Replayed, wanted: Sequence[str], config: Config
) -> results.Result:
    """Simulate and measure; in the form of `ltgf simulate --json`, and "replay" besides."""
    from slurm_ltgf.service.terms import rules_of
    from slurm_ltgf.sim.experiment import Loaded
    from slurm_ltgf.sim.metrics import measures
    from slurm_ltgf.sim.policies import Site
    from slurm_ltgf.sim.replay import changes

    history, gpus = past.history, past.machine.gpus
    site = Site(past.weights, gpus, window_s=config.fairness.window_s, rules=rules_of(config))
    outcomes = [history.as_it_was(gpus)]
    took: list[float | None] = [None]
    for spec in wanted:
        began = time.perf_counter()
        outcomes.append(_simulated(spec, site, past, ctx.params))
        took.append(round(time.perf_counter() - began, 3))
    measured = [measures(outcome, past.weights) for outcome in outcomes]
    loaded = Loaded(history.work, past.weights)
    result = results.head(ctx, loaded, gpus)
    result["policies"] = [
        {**own.as_dict(), "wall_s": wall_s} for own, wall_s in zip(measured, took, strict=True)
    ]
    result |= results.skipped(loaded)
    result["notes"] = [*past.notes, *result["notes"], *_notes(outcomes, history)]
    tenants = changes(outcomes, measured, history.ran_before)
    sentences = replay_show.sentences(result["policies"], tenants)
    facts = _facts(past, ctx.params)
    return result | {"replay": facts | {"tenants": tenants, "sentences": sentences}}


def _simulated(spec: str, site: Site, past: Replayed, given: dict[str, Any]) -> Outcome:
    from slurm_ltgf.sim.cluster import Cluster
    from slurm_ltgf.sim.engine import Costs, simulate
    from slurm_ltgf.sim.policies import make

    history = past.history
    if render.live():
        render.note(f"{spec}: {len(history.real)} jobs on {past.machine.gpus} GPUs")
    return simulate(
        history.work,
        Cluster(past.machine.nodes, given["placement"]),
        make(spec, site),
        horizon=history.window.length_s,
        costs=Costs(epilog_s=given["epilog_cost"]),
        backfill=backfill_of(given),
    )


def _facts(past: Replayed, given: dict[str, Any]) -> dict[str, Any]:
    """What was replayed, and what was not."""
    from slurm_ltgf.sim.replay import limits

    history = past.history
    return {
        "window": {"start": history.window.start, "end": history.window.end},
        "nodes": [
            {"count": kind.count, "gpus": kind.gpus, "gpu_type": kind.gpu_type or None}
            for kind in past.machine.nodes
        ],
        "capacity_from": past.machine.source,
        "most_held_gpus": history.most_held,
        "ran_at_beginning": len(history.ran_before),
        "ran_at_end": len(history.ran_on),
        "left_out": dict(Counter(row.reason for row in history.work.skipped).most_common()),
        "unread_rows": past.unread_total,
        "unread": [
            {"line": row.line or None, "reason": row.reason, "source": row.source}
            for row in past.unread[:20]
        ],
        "limits": limits(backfill_of(given)),
    }


def _notes(outcomes: Sequence[Outcome], history: History) -> Iterator[str]:
    """What to know of jobs that ran over the window's edges."""
    before = history.ran_before
    for outcome in outcomes[1:]:
        late = sum(job.job_id in before and job.first_start != 0 for job in outcome.jobs)
        if late:
            yield (
                f"{outcome.policy}: {late} of {len(before)} jobs that ran at the beginning have to "
                "wait: together they do not fit on the nodes replayed"
            )
    if history.ran_on:
        yield (
            f"{len(history.ran_on)} jobs had not ended: how long they run is not known; under "
            "other policies they run to their time limit"
        )
