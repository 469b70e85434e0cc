"""`ltgf simulate`: what other policies would do with a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import render, results
from slurm_ltgf.cli.app import numbers
from slurm_ltgf.cli.simulate_explain import explain
from slurm_ltgf.cli.simulate_options import GENERATED_GPUS, backfill_of, options
from slurm_ltgf.errors import UsageError

if TYPE_CHECKING:
    from slurm_ltgf.sim.experiment import Experiment, Loaded
    from slurm_ltgf.sim.pool import Done
    from slurm_ltgf.sim.sweep import Point


@click.command("simulate")
@click.argument("trace", required=False)
@click.option("--policy", "policies", multiple=True, metavar="P[,P..]", help="Default: all.")
@options
@click.pass_context
def command(ctx: click.Context, /, trace: str | None, **given: Any) -> int:
    """What other policies would do with a trace: waiting, completion times, fairness.

    TRACE is a file of a form named in docs/reference/traces.md, or - for standard input; without
    one a seeded workload with Philly's statistics is made. A policy is NAME[:KEY=VALUE[,KEY=..]],
    as in fifo:cap=1.2 or ltgf:key=share,lease=15min (docs/reference/policies.md). Order, indices
    and lease verdicts are the functions of core, those that the daemon calls.

    A sweep exits with 1 if a combination failed.
    """
    base, policies = _plan(trace, given)
    for path in given["output"]:
        results.refuse_output(path)
    if given["times"]:
        times = [_seconds(text, "--explain") for text in given["times"].split(",")]
        return explain(ctx, base, policies, times, given)
    if given["slurm"] and not given["swept"]:
        raise UsageError("--slurm is for sweeps: add --sweep KEY=A,B,..")
    result = _result(ctx, base, policies, given)
    if given["json_"]:
        click.echo(results.as_json(result, by_tenant=given["by_tenant"]), nl=False)
    elif given["csv_"]:
        click.echo(results.as_csv(result, by_tenant=given["by_tenant"]), nl=False)
    else:
        results.show(result, wide=given["wide"], by_tenant=given["by_tenant"])
    for path in given["output"]:
        results.write(path, result, wide=given["wide"], by_tenant=given["by_tenant"])
        render.note(f"written: {path}")
    return 1 if results.failed(result) else 0


# --- what is asked --------------------------------------------------------------------------------


def _plan(trace: str | None, given: dict[str, Any]) -> tuple[Experiment, list[str]]:
    """The experiment without its policy, and the policies."""
    from slurm_ltgf.sim.engine import Costs
    from slurm_ltgf.sim.experiment import Experiment, Source
    from slurm_ltgf.sim.policies import POLICIES
    from slurm_ltgf.sim.sweep import specs

    policies = [_with_terms(spec, given) for spec in specs(given["policies"]) or list(POLICIES)]
    base = Experiment(
        policy="",
        nodes=_nodes(trace, given),
        placement=given["placement"],
        backfill=backfill_of(given),
        horizon=_seconds(given["horizon"], "--horizon") if given["horizon"] else None,
        costs=Costs(given["checkpoint_cost"], given["restore_cost"], given["epilog_cost"]),
    )
    source = Source(
        path=trace,
        format=given["form"],
        by_user=given["by_user"],
        limit_factor=given["limit_factor"],
        seed=given["seed"],
        gpus=base.gpus or GENERATED_GPUS,
        weights=tuple(_weights(given["weights"]).items()),
    )
    return replace(base, source=source), policies


def _nodes(trace: str | None, given: dict[str, Any]) -> Any:
    from slurm_ltgf.sim.experiment import alike
    from slurm_ltgf.sim.traces import read_nodes

    if given["nodes"]:
        if given["gpus"]:
            raise UsageError("--gpus and --nodes both say what there is: give one of them")
        return tuple(read_nodes(given["nodes"]))
    if given["gpus"] is None and any(text.startswith("gpus=") for text in given["swept"]):
        return ()
    if given["gpus"] is None and trace is not None:
        raise UsageError("--gpus N is needed with a trace: how large is the cluster?")
    return alike(given["gpus"] or GENERATED_GPUS, given["gpus_per_node"])


def _with_terms(spec: str, given: dict[str, Any]) -> str:
    """A policy with what --lease, --window and --cap say, where it has no word of its own."""
    from slurm_ltgf.sim.sweep import with_default

    name = spec.partition(":")[0]
    for key in ("lease", "window"):
        if given[key] and name.startswith("ltgf"):
            spec = with_default(spec, key, given[key])
    if given["cap"] and name != "fifo-static":  # which is nothing but a cap of 1
        spec = with_default(spec, "cap", given["cap"])
    return spec


def _weights(text: str | None) -> dict[str, float]:
    from slurm_ltgf.sim.traces.columns import read_weights

    if text is None:
        return {}
    if "=" in text and not Path(text).exists():
        return numbers(text, "--weights", fold=False)
    try:
        with Path(text).open(newline="", encoding="utf-8") as lines:
            return read_weights(lines, text)
    except OSError as exc:
        raise UsageError(f"--weights {text}: neither a=1,.. nor a file: {exc.strerror}") from exc


def _name_strangers(loaded: Loaded, base: Experiment) -> None:
    """Say whose weights were given though they have no jobs: they have quotas all the same."""
    there = set(loaded.workload.tenants)
    strangers = [name for name, _ in base.source.weights if name not in there]
    if strangers:
        render.note(f"--weights: no job is of {', '.join(strangers)}; a name mistyped?")


def _absolute(one: Experiment) -> Experiment:
    """The same for a process that runs in another folder."""
    path = one.source.path
    known = path if path in (None, "-") else str(Path(path or "").absolute())
    return replace(one, source=replace(one.source, path=known))


def _seconds(text: str, option: str) -> int:
    from slurm_ltgf.sim.explain import time_of

    found = time_of(text)
    if not found and not (found == 0 and option == "--explain"):
        raise UsageError(f"{option} {text}: must be a time like 90, 15min, 3d4h or 3-04:00:00")
    return found or 0


# --- what comes of it -----------------------------------------------------------------------------


def _result(
    ctx: click.Context, base: Experiment, policies: Sequence[str], given: dict[str, Any]
) -> results.Result:
    """Simulate all that is asked for, and put it in the form of --json."""
    from slurm_ltgf.sim import pool, sweep

    swept = sweep.axes(given["swept"])
    per_node = None if given["nodes"] else given["gpus_per_node"]
    asked = sweep.points(base, policies, swept, per_node=per_node)
    loaded = pool.load(base.source)
    if "gpus" not in swept:
        loaded = loaded.fitted(base.nodes)
    _name_strangers(loaded, base)
    experiments = [point.experiment for point in asked]
    if given["slurm"]:
        minutes = given["slurm_time"]
        folder = Path(given["slurm_folder"]).absolute()
        array = pool.Array(folder, given["slurm_partition"] or "", minutes)
        running = pool.run_on_slurm([_absolute(one) for one in experiments], array)
    else:
        running = pool.run_here(experiments, given["jobs"] or pool.cores())
    done = _collect(running, asked)
    if not swept:
        for one in done:
            if one.error is not None:
                raise one.error
    pages = any(path.endswith(".html") for path in given["output"])
    bulky = not swept or pages or given["by_tenant"]
    result = results.head(ctx, loaded, None if "gpus" in swept else base.gpus)
    if swept:
        result["sweep"] = {
            key: [results.value(value) for value in each] for key, each in swept.items()
        }
    result["policies"] = [
        results.row(point, one, bulky=bulky) for point, one in zip(asked, done, strict=True)
    ]
    return result | results.skipped(loaded)


def _collect(running: Iterator[Done], asked: Sequence[Point]) -> list[Done]:
    """All results in the order in which they were asked for; told on a terminal as they come."""
    found: dict[int, Done] = {}
    with _progress(len(asked)) as tell:
        for done in running:
            found[done.number] = done
            point = asked[done.number]
            where = " ".join(f"{key}={value}" for key, value in point.values.items())
            tell(" ".join(filter(None, (point.policy, where))), done)
    return [found[number] for number in range(len(asked))]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str, Done], None]]:
    """Draws a bar and a line for each result on a terminal; nothing elsewhere."""
    if not render.live():
        yield lambda name, done: None
        return
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("simulating", total=total)

        def tell(name: str, done: Done) -> None:
            said = f"failed: {done.error}"
            if done.measures is not None:
                said = f"mean JCT {render.duration(done.measures.mean_jct_s)}"
            line = f"{name}: {said}, took {done.wall_s:.1f} s"
            bar.console.print(Text(render.clean(line)))
            bar.advance(task)

        yield tell
