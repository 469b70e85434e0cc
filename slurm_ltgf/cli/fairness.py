"""`ltgf fairness`: who got how much GPU-time, against what was due."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf import __version__
from slurm_ltgf.cli import options, render
from slurm_ltgf.cli.app import App, now, numbers
from slurm_ltgf.cli.render import Column
from slurm_ltgf.errors import UsageError

if TYPE_CHECKING:
    from slurm_ltgf.service.past import Answer, Question

TENANTS = (
    Column("tenant", "Tenant", render.word, numeric=False),
    Column("weight", "Weight", render.gpus),
    Column("quota_gpus", "Quota GPUs", render.gpus),
    Column("attained_gpu_s", "Attained h", render.hours),
    Column("deserved_gpu_s", "Deserved h", render.hours),
    Column("quota_gpu_s", "Quota h", render.hours),
    Column("entitled_gpu_s", "Entitled h", render.hours),
    Column("suspended_gpu_s", "Suspended h", render.hours),
    Column("rho", "rho", render.number(3)),
    Column("credit", "Credit", render.number(3)),
    Column("share", "Share", render.number(3)),
    Column("state", "State", render.word, numeric=False),
)
JOBS = (
    Column("job_id", "Job", render.word, numeric=False),
    Column("tenant", "Tenant", render.word, numeric=False),
    Column("user", "User", render.word, numeric=False),
    Column("gpus", "GPUs", render.gpus),
    Column("attained_gpu_s", "Attained h", render.hours),
    Column("kept_gpu_s", "Kept h", render.hours),
    Column("entitled_gpu_s", "Entitled h", render.hours),
    Column("rho", "rho", render.number(3)),
    Column("class", "Class", render.word, numeric=False),
)
#: Jobs in a table for people; -P and --json give all.
JOBS_SHOWN = 40
SKIPPED_SHOWN = 5


@click.command("fairness")
@options.interval
@click.option("--window", metavar="DURATION", help="Length of the window: 24h, 7d, infinite.")
@click.option("--jobs", is_flag=True, help="Also the index of every job.")
@click.option("--capacity", type=float, metavar="GPUS", help="GPUs in service, at all times.")
@click.option("--weights", metavar="a=3,b=1", help="Tenants' weights, in place of their own.")
@click.option("-M", "--cluster", metavar="NAME", help="Cluster; several or 'all' with --combined.")
@click.option("--combined", is_flag=True, help="Measure several clusters as one.")
@click.option("-A", "--accounts", metavar="NAMES", help="Show only these tenants.")
@click.option("-u", "--user", metavar="NAMES", help="With --jobs: show only these users' jobs.")
@options.output()
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Who got how much GPU-time, against what was due, from the ledger.

    rho = attained / deserved (at least 1: no worse off than alone in a cluster of one's quota).
    credit = attained / quota (the lowest goes first). share = attained / entitled.
    """
    from slurm_ltgf.service.past import fairness

    app = App.of(ctx)
    with app.ledger(readonly=True) as ledger:
        answer = fairness(ledger, app.config, question_of(given), now=now())
        skipped, total = ledger.skipped(), ledger.skipped_total()
    if given["json_"]:
        render.as_json(as_json(answer, skipped, total, given))
    elif given["parsable2"]:
        columns, rows = (JOBS, job_rows(answer, given)) if given["jobs"] else (TENANTS, None)
        shown = rows if rows is not None else tenant_rows(answer, given)
        render.parsable(columns, shown, header=not given["noheader"])
        _notes(answer, total, skipped, err=True)
    else:
        _tables(answer, skipped, total, given)


def question_of(given: dict[str, Any]) -> Question:
    """What the options of a window, a cluster and its capacity ask."""
    from slurm_ltgf.core.model import Window
    from slurm_ltgf.service.past import Question

    capacity = given["capacity"]
    if capacity is not None and not 0 < capacity < 1e12:
        raise UsageError(f"--capacity: must be a number of GPUs > 0, got {capacity:g}")
    start = options.moment(given["starttime"], now())
    end = options.moment(given["endtime"], now())
    length = _length(given["window"])
    window = None
    if start is not None or end is not None:
        end = now() if end is None else end
        if start is None:
            start = end - int(length if length is not None and length < 1e12 else 86400)
        if start >= end:
            raise UsageError(f"-S {start} is not before -E {end} (epoch seconds): no window")
        window = Window(start, end)
    return Question(
        cluster=given["cluster"],
        combined=given["combined"],
        window=window,
        window_s=length,
        capacity_gpus=capacity,
        weights=numbers(given["weights"], "--weights"),
        jobs=given["jobs"],
    )


def _length(text: str | None) -> float | None:
    """Seconds of a --window; inf for 'infinite'; None: the site's."""
    if text is None:
        return None
    units = {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    match = re.fullmatch(r"(\d{1,9})\s*(s|min|m|h|d|w|)", text)
    if text == "infinite":
        return float("inf")
    if match is None or int(match[1]) == 0:
        raise UsageError(f"--window: must be like 90min, 24h, 7d, or infinite, got {text!r}")
    return int(match[1]) * units[match[2]]


def tenant_rows(answer: Answer, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of the tenants asked for."""
    wanted = set((given.get("accounts") or "").lower().split(",")) - {""}
    return [
        {
            "tenant": row.tenant,
            "weight": row.weight,
            "quota_gpus": row.quota_gpus,
            "attained_gpu_s": row.attained_gpu_s,
            "deserved_gpu_s": row.deserved_gpu_s,
            "quota_gpu_s": row.quota_gpu_s,
            "entitled_gpu_s": row.entitled_gpu_s,
            "rho": row.rho,
            "credit": row.credit,
            "share": row.share,
            "state": row.state,
            "suspended_gpu_s": row.suspended_gpu_s,
            "device_s": row.device_s,
            "deleted": row.deleted,
        }
        for row in answer.measurement.fairness.tenants
        if not wanted or row.tenant in wanted
    ]


def job_rows(answer: Answer, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of the jobs asked for."""
    indices = answer.measurement.jobs
    if indices is None:
        return []
    tenants = set((given.get("accounts") or "").lower().split(",")) - {""}
    users = set((given.get("user") or "").split(",")) - {""}
    return [
        {
            "job_id": job.job_id,
            "tenant": job.tenant,
            "user": job.user,
            "gpus": job.gpus,
            "attained_gpu_s": job.attained_gpu_s,
            "kept_gpu_s": job.kept_gpu_s,
            "entitled_gpu_s": job.entitled_gpu_s,
            "rho": job.rho,
            "class": job.klass,
        }
        for job in (indices.row(i) for i in range(len(indices)))
        if (not tenants or job.tenant in tenants) and (not users or job.user in users)
    ]


def as_json(
    answer: Answer, skipped: list[Any], total: int, given: dict[str, Any]
) -> dict[str, Any]:
    """The answer in the stable shape."""
    result = answer.measurement.fairness
    settled = answer.measurement.settled
    shape: dict[str, Any] = {
        "meta": {
            "version": __version__,
            "generated": now(),
            "cluster": "+".join(answer.clusters),
            "known_until": answer.known_until,
        },
        "window": {"start": answer.window.start, "end": answer.window.end},
        "capacity_gpus": answer.capacity_gpus,
        "capacity_gpu_s": result.capacity_gpu_s,
        "attained_gpu_s": result.attained_gpu_s,
        "jain": result.jain,
        "min_rho": result.min_rho,
        "max_min_gap": result.max_min_gap,
        "mean_shortfall": result.mean_shortfall,
        "tenants": tenant_rows(answer, given),
    }
    if given["jobs"]:
        shape["jobs"] = job_rows(answer, given)
    shape["skipped"] = [
        {"line": row.line, "reason": row.reason, "source": row.source} for row in skipped
    ]
    shape["skipped_total"] = total
    shape["suspects"] = [{"job_id": s.job_id, "reason": s.reason} for s in settled.suspects]
    shape["suspects_total"] = settled.odd
    shape["warnings"] = list(answer.notes)
    return shape


def _tables(answer: Answer, skipped: list[Any], total: int, given: dict[str, Any]) -> None:
    result = answer.measurement.fairness
    window = answer.window
    capacity = "unknown" if answer.capacity_gpus is None else f"{answer.capacity_gpus:.4g} GPUs"
    rows = tenant_rows(answer, given)
    for row in rows:
        row["tenant"] += " (deleted)" if row["deleted"] else ""
    hidden = () if any(row["suspended_gpu_s"] for row in rows) else ("suspended_gpu_s",)
    render.table(
        f"{'+'.join(answer.clusters)}: {render.moment(window.start)} to "
        f"{render.moment(window.end)} ({render.duration(window.length_s)}), capacity {capacity}",
        [column for column in TENANTS if column.key not in hidden],
        rows,
    )
    four = (
        ("Jain index of shares", result.jain),
        ("lowest rho", result.min_rho),
        ("largest minus smallest share", result.max_min_gap),
        ("mean shortfall", result.mean_shortfall),
    )
    click.echo("  ".join(f"{name} {render.number(3)(value)}" for name, value in four))
    if given["jobs"]:
        _job_table(job_rows(answer, given))
    _notes(answer, total, skipped, err=False)


def _job_table(rows: list[dict[str, Any]]) -> None:
    rows.sort(key=lambda row: (row["rho"] is None, row["rho"], row["job_id"]))
    title = f"{len(rows)} jobs"
    if len(rows) > JOBS_SHOWN:
        title += f"; the {JOBS_SHOWN} with the lowest rho (all: -P or --json)"
    render.table(title, JOBS, rows[:JOBS_SHOWN])


def _notes(answer: Answer, total: int, skipped: list[Any], *, err: bool) -> None:
    for line in _lines(answer, total, skipped):
        click.echo(render.clean(line), err=err)


def _lines(answer: Answer, total: int, skipped: list[Any]) -> Iterator[str]:
    for text in answer.notes:
        yield f"note: {text}"
    for suspect in answer.measurement.settled.suspects:
        yield f"suspect: job {suspect.job_id}: {suspect.reason}"
    if total:
        yield f"skipped: {total} rows could not be read and are in no sum"
    for row in skipped[:SKIPPED_SHOWN]:
        yield f"skipped: {row.source} line {row.line}: {row.reason}"
