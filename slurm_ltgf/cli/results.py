"""Results of simulations as people and programs read them: table, JSON, CSV, Markdown, HTML."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf import __version__
from slurm_ltgf.cli import render
from slurm_ltgf.cli.render import Column
from slurm_ltgf.errors import LtgfError, UsageError

if TYPE_CHECKING:
    from slurm_ltgf.sim.experiment import Loaded
    from slurm_ltgf.sim.pool import Done
    from slurm_ltgf.sim.sweep import Point

Row = Mapping[str, Any]
Result = dict[str, Any]


def percent(value: float | None) -> str:
    """A part in percent; a dash for not known."""
    return "-" if value is None else f"{value:.1%}"


POLICY = Column("policy", "Policy", render.word, numeric=False)
MEASURES = (
    Column("mean_jct_s", "Mean JCT", render.duration),
    Column("p99_jct_s", "P99 JCT", render.duration),
    Column("mean_wait_s", "Mean wait", render.duration),
    Column("utilisation", "Busy", percent),
    Column("tenant_mean_shortfall", "Shortfall", render.number(4)),
    Column("windows_below_095", "Win < .95", percent),
    Column("jobs_below_095", "Jobs < .95", percent),
    Column("preemptions", "Moves", render.word),
)
WIDE = (
    *MEASURES,
    Column("p50_jct_s", "P50 JCT", render.duration),
    Column("makespan_s", "Makespan", render.duration),
    Column("worst_window_rho", "Worst win", render.number(3)),
    Column("jain", "Jain", render.number(3)),
    Column("job_rho_p5", "Job rho P5", render.number(3)),
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
#: Options that change how a result is computed or shown, not what it is.
PRESENTATION = (
    *("jobs", "slurm", "slurm_partition", "slurm_time", "slurm_folder"),
    *("output", "json_", "csv_", "by_tenant", "wide"),
)
SUFFIXES = (".html", ".json", ".csv", ".md")


def columns(result: Result, *, wide: bool = False) -> tuple[Column, ...]:
    """The columns of its table: the policy if it tells rows apart, what is swept, the measures."""
    swept = [Column(key, key, render.word) for key in result.get("sweep", {})]
    measured = WIDE if wide else MEASURES
    errors = (Column("error", "Error", render.word, numeric=False),) if failed(result) else ()
    return (POLICY, *swept, *measured, *errors)


def rows(result: Result) -> list[dict[str, Any]]:
    """Its policies as flat rows: swept values and numbers, no lists."""
    return [
        {
            **{"policy": row["policy"]},
            **row.get("values", {}),
            **{key: value for key, value in row.items() if not isinstance(value, list | dict)},
        }
        for row in result["policies"]
    ]


def failed(result: Result) -> int:
    """How many of its combinations failed."""
    return sum(row.get("error") is not None for row in result["policies"])


def title(result: Result) -> str:
    """What was simulated, in a line."""
    meta, gpus = result["meta"], result["gpus"]
    size = f" on {gpus} GPUs" if gpus is not None else ""
    return f"{meta['trace']}: {meta['jobs']} jobs{size}"


def show(result: Result, *, wide: bool, by_tenant: bool) -> None:
    """Print tables and what must be said beside them."""
    render.table(title(result), columns(result, wide=wide), rows(result))
    if by_tenant:
        for row in result["policies"]:
            render.table(row["policy"], TENANTS, row.get("tenants", ()))
    for line in notes(result):
        click.echo(line)


def notes(result: Result) -> list[str]:
    """Sentences on what the table does not tell: jobs without end, rows left out, failures."""
    cut = [
        f"{render.clean(_label(row))} {row['unfinished']}"
        for row in result["policies"]
        if row.get("unfinished")
    ]
    said = [f"jobs that had not ended at the horizon: {', '.join(cut)}"] if cut else []
    said += [
        f"{render.clean(_label(row))}: {row['left_out']} jobs are left out, no nodes have what "
        "they ask for"
        for row in result["policies"]
        if row.get("left_out")
    ]
    said += [render.clean(note) for note in result["notes"]]
    if result["skipped_total"]:
        first = result["skipped"][0]
        where = f"line {first['line']}" if first["line"] else first["source"]
        said.append(
            f"skipped: {result['skipped_total']} rows or jobs of the trace; the first, "
            f"{render.clean(where)}: {render.clean(first['reason'])}"
        )
    if failed(result):
        said.append(f"failed: {failed(result)} of {len(result['policies'])} combinations")
    return said


def _label(row: Row) -> str:
    """A row's policy with what is swept."""
    return " ".join([row["policy"], *(f"{k}={v}" for k, v in row.get("values", {}).items())])


def as_csv(result: Result, *, by_tenant: bool = False) -> str:
    """One row a policy, or a policy and tenant: numbers as they are, nothing for not known."""
    flat = rows(result)
    if by_tenant:
        flat = [
            {"policy": row["policy"], **row.get("values", {}), **own}
            for row in result["policies"]
            for own in row.get("tenants", ())
        ]
    keys = list(dict.fromkeys(key for row in flat for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def as_json(result: Result, *, by_tenant: bool = False) -> str:
    """The whole result, of a sweep its numbers and, if asked for, its tenants; no NaN."""
    if "sweep" in result:
        left = {"by_size", "series", "quantiles", *(() if by_tenant else ("tenants",))}
        rows_ = [{k: v for k, v in row.items() if k not in left} for row in result["policies"]]
        result = result | {"policies": rows_}
    return json.dumps(result, indent=2, allow_nan=False) + "\n"


def as_markdown(result: Result, *, wide: bool = False) -> str:
    """The table and the sentences below it."""
    shown = columns(result, wide=wide)
    lines = [f"# {_cell(title(result))}", "", _line([column.title for column in shown])]
    lines.append(_line(["--:" if column.numeric else "---" for column in shown]))
    lines += [_line([column.show(row.get(column.key)) for column in shown]) for row in rows(result)]
    lines += [line for said in notes(result) for line in ("", _cell(said))]
    return "\n".join(lines) + "\n"


def refuse_output(path: str) -> None:
    """Say before a long run that its result could not be written so.

    Raises:
        UsageError: no such kind of file, or no such folder.
    """
    if Path(path).suffix not in SUFFIXES:
        raise UsageError(f"-o {path}: the name must end in one of {', '.join(SUFFIXES)}")
    if not Path(path).absolute().parent.is_dir():
        raise UsageError(f"-o {path}: no such folder")


def write(path: str, result: Result, *, wide: bool, by_tenant: bool) -> None:
    """Write a result whole or not at all, in the form that the file's name asks for.

    Raises:
        FileError: it cannot be written; what was there stands.
    """
    from slurm_ltgf.store.files import replace_text

    suffix = Path(path).suffix
    if suffix == ".html":
        from slurm_ltgf.report.simulation import simulation_page

        text = simulation_page(result)
    elif suffix == ".json":
        text = as_json(result, by_tenant=by_tenant)
    elif suffix == ".csv":
        text = as_csv(result, by_tenant=by_tenant)
    else:
        text = as_markdown(result, wide=wide)
    replace_text(path, text)


def row(point: Point, done: Done, *, bulky: bool) -> Row:
    """One policy's part of a result; bulky: with its lists, for charts."""
    found: dict[str, Any] = {
        "policy": point.policy if point.values else point.experiment.policy,
        **({"values": {k: value(v) for k, v in point.values.items()}} if point.values else {}),
        "wall_s": round(done.wall_s, 3),
    }
    if done.measures is None:
        return found | {"error": _told(done.error)}
    if done.left_out:
        found["left_out"] = done.left_out
    return (done.measures.as_dict() if bulky else done.measures.row()) | found


def head(ctx: click.Context, loaded: Loaded, gpus: int | None) -> Result:
    """What a result begins with."""
    meta = {
        "version": __version__,
        "trace": loaded.workload.name,
        "jobs": len(loaded.workload.jobs),
        "command": words(ctx),
    }
    return {"meta": meta, "gpus": gpus}


def skipped(loaded: Loaded) -> Result:
    """Rows and jobs of the trace that could not be used; what was simplified."""
    rows = loaded.workload.skipped
    named = [
        {"line": row.line or None, "reason": row.reason, "source": row.source}
        for row in rows[:1000]
    ]
    return {
        "notes": list(loaded.workload.notes),
        "skipped": named,
        "skipped_total": len(rows),
    }


def value(text: str) -> int | float | str:
    """A swept value as a number where it is one."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if abs(number) < 1e300 else text
    return text


def _told(error: Exception | None) -> str:
    """A failure in a line; that of a bug with its type."""
    text = " ".join(str(error).split())
    return text if isinstance(error, LtgfError) else f"{type(error).__name__}: {text}"


def words(ctx: click.Context, without: Sequence[str] = PRESENTATION) -> str:
    """The command line that gives the same result, without what only changes how it is shown."""
    said = ["ltgf", ctx.info_name or "simulate"]
    for param in ctx.command.params:
        given = ctx.params.get(param.name or "")
        source = ctx.get_parameter_source(param.name or "")
        if param.name in without or source is not click.core.ParameterSource.COMMANDLINE:
            continue
        for each in given if isinstance(given, tuple) else (given,):
            said += [param.opts[0]] if isinstance(param, click.Option) else []
            said += [] if each is True else [str(each)]
    return shlex.join(said)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    """Text that Markdown shows as it is."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~&" else c for c in render.clean(text))
