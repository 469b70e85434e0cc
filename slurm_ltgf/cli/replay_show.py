"""`ltgf replay` on a terminal: the policies, every tenant under each, and that in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from slurm_ltgf.cli import render, results
from slurm_ltgf.cli.render import Column

#: Tenants named in a sentence, those whose waiting changes most.
NAMED = 3
UNREAD_NAMED = 3
#: Tenants in the table, those with most jobs; --json gives all.
SHOWN = 40


def show(result: results.Result, *, wide: bool) -> None:
    """Print one page."""
    replay = result["replay"]
    begin, end = replay["window"]["start"], replay["window"]["end"]
    render.table(
        f"{results.title(result)} ({replay['capacity_from']}), "
        f"{render.moment(begin)} to {render.moment(end)}",
        results.columns(result, wide=wide),
        results.rows(result),
    )
    names = [row["policy"] for row in result["policies"]]
    tenants = sorted(replay["tenants"], key=lambda row: (-row["jobs"], row["tenant"]))
    title = f"{len(tenants)} tenants"
    if len(tenants) > SHOWN:
        title += f"; the {SHOWN} with most jobs (all: --json)"
    render.table(title, _columns(names, tenants), map(_flat, tenants[:SHOWN]))
    said = [*replay["sentences"], *(f"note: {text}" for text in result["notes"])]
    said += [f"left out: {count} jobs: {reason}" for reason, count in replay["left_out"].items()]
    if replay["unread_rows"]:
        said.append(f"skipped: {replay['unread_rows']} rows of history could not be read")
    for row in replay["unread"][:UNREAD_NAMED]:
        said.append(f"skipped: line {row['line'] or '-'}: {row['reason']}")
    said += [f"limit: {text}" for text in replay["limits"]]
    for text in said:
        click.echo(render.clean(text))


def _columns(names: Sequence[str], tenants: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Waiting and share under each policy; moves only where there are any."""
    found = [
        Column("tenant", "Tenant", render.word, numeric=False),
        Column("weight", "Weight", render.gpus),
        Column("jobs", "Jobs", render.word),
    ]
    parts = [("mean_wait_s", "Wait", render.duration), ("share", "Share", render.number(3))]
    if any(own["preemptions"] for tenant in tenants for own in tenant["policies"]):
        parts.append(("preemptions", "Moves", render.word))
    for key, title, say in parts:
        found += [Column(f"{key} {name}", f"{title} {name}", say) for name in names]
    return found


def _flat(tenant: Mapping[str, Any]) -> dict[str, Any]:
    row = {key: tenant[key] for key in ("tenant", "weight", "jobs")}
    for own in tenant["policies"]:
        row |= {f"{key} {own['policy']}": value for key, value in own.items()}
    return row


def sentences(
    policies: Sequence[Mapping[str, Any]], tenants: Sequence[Mapping[str, Any]]
) -> list[str]:
    """What would have changed, policy by policy: for all, and for whom most.

    Args:
        policies: measures; the first is how it was.
        tenants: of `sim.replay.changes`.
    """
    was = policies[0]
    found = []
    for number, own in enumerate(policies[1:], 1):
        wait, before = (render.duration(row["mean_wait_s"]) for row in (own, was))
        parts = [f"{own['policy']}: jobs wait {wait} on average, was {before}"]
        if own["tenant_mean_shortfall"] is not None:
            say = render.number(4)
            short, before = (say(row["tenant_mean_shortfall"]) for row in (own, was))
            parts.append(f"tenants' mean shortfall is {short}, was {before}")
        for key, title in (("preemptions", "preemptions"), ("unfinished", "jobs unfinished")):
            if own[key] or was[key]:
                parts.append(f"{own[key]} {title}, were {was[key]}")
        found += ["; ".join(parts), *_most_changed(own["policy"], number, tenants)]
    return found


def _most_changed(name: str, number: int, tenants: Sequence[Mapping[str, Any]]) -> list[str]:
    """Who waits less, and who waits longer, the largest differences first."""
    by = []
    for tenant in tenants:
        before, after = (tenant["policies"][i]["mean_wait_s"] for i in (0, number))
        was, now = render.duration(before), render.duration(after)
        if was != now:
            by.append((after - before, tenant["tenant"], f"{tenant['tenant']} ({now}, was {was})"))
    by.sort()
    less = [words for change, _, words in by if change < 0]
    more = [words for change, _, words in reversed(by) if change > 0]
    found = []
    for group, title in ((less, "less"), (more, "longer")):
        if group:
            others = f" and {len(group) - NAMED} others" if len(group) > NAMED else ""
            found.append(f"{name}: {title} waiting for {', '.join(group[:NAMED])}{others}")
    return found
