"""`ltgf simulate --explain`: the decisions of policies at points in time, as people read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import render, results
from slurm_ltgf.cli.render import Column
from slurm_ltgf.errors import UsageError

if TYPE_CHECKING:
    from slurm_ltgf.sim.experiment import Experiment
    from slurm_ltgf.sim.explain import Decision, Moment


def nodes(held: Sequence[Sequence[int]]) -> str:
    """Nodes with the GPUs on each, the first two."""
    named = [f"{node}:{gpus}" for node, gpus in held[:2]]
    return " ".join([*named, f"+{len(held) - 2}"] if len(held) > 2 else named) or "-"


DECISIONS = (
    Column("job_id", "Job", render.word),
    Column("tenant", "Tenant", render.word, numeric=False),
    Column("gpus", "GPUs", render.word),
    Column("action", "Decision", render.word, numeric=False),
    Column("until_s", "Until", render.duration),
    Column("nodes", "Nodes", nodes, numeric=False),
    Column("reason", "Why", render.word, numeric=False),
)


def explain(
    ctx: click.Context,
    base: Experiment,
    policies: Sequence[str],
    times: Sequence[int],
    given: dict[str, Any],
) -> int:
    """Print what each policy decided at the first instants from these times on."""
    from dataclasses import replace

    from slurm_ltgf.sim import experiment, pool

    if given["swept"] or given["csv_"] or given["output"]:
        raise UsageError("--explain is printed as a table or with --json, of policies unswept")
    experiments = [replace(base, policy=experiment.policy_name(spec)) for spec in policies]
    loaded = pool.load(base.source).fitted(base.nodes)
    found = []
    for one in experiments:
        moments = {m.asked: m for m in experiment.explain(one, loaded, times)}
        found += [_told(one.policy, time, moments.get(time), given["top"]) for time in times]
    result = results.head(ctx, loaded, base.gpus) | {"decisions": found}
    if given["json_"]:
        click.echo(results.as_json(result | results.skipped(loaded)), nl=False)
        return 0
    for one_time in found:
        _show(one_time)
    return 0


def shown(rows: Sequence[Decision], top: int) -> list[Decision]:
    """The first `top` waiting jobs and whoever of the others started; as many whose lease ended."""
    leases = [row for row in rows if row.action in ("yielded", "kept")]
    waiting = [row for row in rows if row.action not in ("yielded", "kept")]
    leases.sort(key=lambda row: row.action != "yielded")
    return [
        *waiting[:top],
        *(row for row in waiting[top:] if row.action in ("started", "backfilled")),
        *leases[:top],
    ]


def _told(policy: str, asked: int, moment: Moment | None, top: int) -> dict[str, Any]:
    rows = moment.rows if moment is not None else ()
    return {
        "policy": policy,
        "asked_s": asked,
        "at_s": moment.at if moment is not None else None,
        "counts": dict(Counter(row.action for row in rows)),
        "rows": [
            {
                "job_id": row.job_id,
                "tenant": row.tenant,
                "gpus": row.gpus,
                "action": row.action,
                "until_s": row.until,
                "nodes": [list(held) for held in row.nodes],
                "reason": row.reason,
            }
            for row in shown(rows, top)
        ],
    }


def _show(found: dict[str, Any]) -> None:
    asked = render.duration(found["asked_s"])
    if found["at_s"] is None:
        click.echo(f"{render.clean(found['policy'])}: nothing was decided at {asked} or later")
        return
    counts = ", ".join(f"{count} {action}" for action, count in found["counts"].items())
    at = render.duration(found["at_s"])
    render.table(
        f"{found['policy']} at {at} (asked for {asked}): {counts}", DECISIONS, found["rows"]
    )
