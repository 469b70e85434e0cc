"""Options of `ltgf simulate`, in the order of its help page; `ltgf replay` has some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from slurm_ltgf.sim.backfill import Backfill

#: GPUs of the cluster for the workload that is made where no trace is given.
GENERATED_GPUS = 64


def _backfill(like: Literal["papers", "slurm"]) -> list[Callable[[Any], Any]]:
    """How to backfill, and what comes between two jobs; by default as papers or as Slurm do."""
    kind, interval_s, depth, whole = ("easy", 0, 500, False)
    if like == "slurm":
        kind, interval_s, depth, whole = ("conservative", 30, 100, True)
    return [
        click.option(
            "--backfill",
            type=click.Choice(["easy", "conservative", "none"]),
            default=kind,
            show_default=True,
            help="One reservation; one for every job, as Slurm; or strictly in order.",
        ),
        click.option(
            "--backfill-interval",
            type=click.IntRange(0),
            default=interval_s,
            show_default=True,
            metavar="S",
            help="Seconds from pass to pass (bf_interval); 0: whenever something happens.",
        ),
        click.option(
            "--backfill-depth",
            type=click.IntRange(0),
            default=depth,
            show_default=True,
            metavar="N",
            help="Waiting jobs that a pass looks at (bf_max_job_test).",
        ),
        click.option(
            "--whole-nodes/--part-nodes",
            default=whole,
            show_default=True,
            help="What a reservation keeps of its nodes; Slurm's keeps all.",
        ),
        click.option(
            "--epilog-cost",
            type=click.IntRange(0),
            default=0,
            show_default=True,
            metavar="S",
            help="Seconds from a job's end until its GPUs can be another's.",
        ),
    ]


#: How `simulate` and `replay` are told where jobs go.
placement = click.option(
    "--placement",
    type=click.Choice(["consolidated", "packed", "spread"]),
    default="consolidated",
    show_default=True,
    help="Fewest nodes or wait; split rather than wait; emptiest nodes first.",
)
_size = [
    click.option(
        "--gpus", type=click.IntRange(1), help=f"GPUs; without a trace: {GENERATED_GPUS}."
    ),
    click.option("--gpus-per-node", type=click.IntRange(1), default=8, show_default=True),
    click.option(
        "--nodes",
        metavar="SPEC|FILE",
        help="Nodes of several types instead: 16x8:a100:128c:1000G,8x4:v100, or an openb file.",
    ),
    placement,
]
_terms = [
    click.option("--lease", metavar="DURATION", help="Lease of all ltgf policies."),
    click.option("--window", metavar="DURATION", help="Window of all ltgf policies."),
    click.option("--cap", metavar="X", help="No tenant above X times its quota, under any policy."),
    click.option(
        "--checkpoint-cost",
        type=click.IntRange(0),
        default=5,
        show_default=True,
        metavar="S",
        help="Seconds that a moved job holds its GPUs to save itself.",
    ),
    click.option(
        "--restore-cost",
        type=click.IntRange(0),
        default=20,
        show_default=True,
        metavar="S",
        help="Seconds that it holds them again before it works on.",
    ),
]
_input = [
    click.option("--format", "form", metavar="NAME", help="The trace's; default: by its content."),
    click.option("--by-user", is_flag=True, help="Tenants are users, where the trace names them."),
    click.option("--weights", metavar="FILE|a=1,..", help="Tenants' weights; default: all alike."),
    click.option(
        "--limit-factor",
        type=click.FloatRange(0, min_open=True),
        default=1.0,
        show_default=True,
        metavar="X",
        help="Time limits as multiples of run times, where the trace tells none.",
    ),
    click.option("--horizon", metavar="DURATION", help="Cut the simulation there."),
    click.option("--seed", type=int, default=1, show_default=True, help="Of the made workload."),
]
_many = [
    click.option(
        "--sweep",
        "swept",
        multiple=True,
        metavar="KEY=A,B,..",
        help="Every combination: keys of policies, gpus, placement, limit-factor, seed.",
    ),
    click.option("--jobs", type=click.IntRange(1), metavar="N", help="Processes; default: cores."),
    click.option("--slurm", is_flag=True, help="Run a sweep as a Slurm job array (submitit)."),
    click.option("--slurm-partition", metavar="NAME", help="Default: the site's."),
    click.option(
        "--slurm-time", type=click.IntRange(1), default=60, show_default=True, metavar="MINUTES"
    ),
    click.option(
        "--slurm-folder",
        metavar="DIR",
        default="ltgf-sweep",
        show_default=True,
        help="For logs and results; all nodes must see it.",
    ),
]
_output = [
    click.option(
        "--explain",
        "times",
        metavar="TIME[,TIME..]",
        help="Name the decisions at the first instants from these times on (3d4h, 3-04:00:00).",
    ),
    click.option("--top", type=click.IntRange(1), default=20, show_default=True, metavar="N"),
    click.option("--tenants", "by_tenant", is_flag=True, help="Also each tenant by policy."),
    click.option("--wide", is_flag=True, help="All measures."),
    click.option("--json", "json_", is_flag=True, help="Print JSON."),
    click.option("--csv", "csv_", is_flag=True, help="Print CSV."),
    click.option(
        "-o", "output", multiple=True, metavar="FILE", help="Also write .html, .json, .csv or .md."
    ),
]


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """All options, in the order of the help page."""
    return _with(function, *_size, *_backfill("papers"), *_terms, *_input, *_many, *_output)


def as_slurm(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of backfill, by default as a Slurm does it."""
    return _with(function, *_backfill("slurm"))


def _with(function: Callable[..., Any], *options: Callable[[Any], Any]) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function


def backfill_of(given: Mapping[str, Any]) -> Backfill:
    """What the options of backfill say."""
    from slurm_ltgf.sim.backfill import Backfill

    return Backfill(
        given["backfill"],
        given["backfill_interval"],
        given["backfill_depth"],
        given["whole_nodes"],
    )
