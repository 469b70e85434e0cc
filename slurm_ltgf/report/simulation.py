"""The page of `ltgf simulate`: policies compared, in one HTML file that opens offline.

Everything comes from the dict that `ltgf simulate --json` prints. Names may be hostile: the
template escapes all text, and a Content-Security-Policy forbids all but inline style.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_ltgf.errors import InputError
from slurm_ltgf.report import charts, comparison, replay
from slurm_ltgf.report.comparison import each
from slurm_ltgf.report.pages import environment
from slurm_ltgf.report.policy_charts import (
    FAIR,
    OWN_COLOURS,
    distributions,
    over_time,
    series,
    tenant_charts,
    tenant_colours,
    times,
)
from slurm_ltgf.report.svg import COLOURS, colour_class
from slurm_ltgf.report.words import (
    clean,
    cleaned,
    durations,
    fixed,
    gpu_hours,
    known,
    number,
    percent,
    trimmed,
)

Columns = Mapping[str, comparison.Say]
TENANT: Columns = {
    "weight": each(trimmed),
    "quota_gpus": each(number),
    "attained_gpu_s": each(gpu_hours),
    "rho": each(fixed),
    "credit": each(fixed),
    "share": each(fixed),
    "mean_wait_s": durations,
    "mean_jct_s": durations,
}
BY_SIZE: Columns = {
    "jobs": each(number),
    "mean_jct_s": durations,
    "mean_wait_s": durations,
    "p99_wait_s": durations,
    "rho_p5": each(fixed),
    "jobs_below_095": each(percent),
}
MOST_REASONS = 30


def simulation_page(result: Mapping[str, Any]) -> str:
    """The whole HTML page.

    result: what `ltgf simulate --json` prints; a policy's series, by_size and quantiles may be
    missing, any number may be None. Raises InputError where it is not such a result.
    """
    seen = _checked(cleaned(result))
    template = environment().get_template("simulation.html.j2")
    try:
        for policy in seen["policies"]:
            _check_series(policy)
        return template.render(_view(seen))
    except (TypeError, AttributeError, LookupError, ValueError) as exc:
        raise InputError(f"not a result of `ltgf simulate --json`: {clean(str(exc))}") from exc


def _view(result: dict[str, Any]) -> dict[str, Any]:
    """What the template shows."""
    policies = result["policies"]
    colours = tenant_colours(policies)
    return {
        "meta": result["meta"],
        "gpus": result.get("gpus"),
        "replay": replay.view(result),
        "policies": [
            {"name": policy["policy"], "colour": colour_class(i)}
            for i, policy in enumerate(policies)
        ],
        "headline": comparison.headline(policies),
        "alone": comparison.alone(policies[0]) if len(policies) == 1 else "",
        "oracle": any(re.split("[: ]", policy["policy"])[0] == "srtf" for policy in policies),
        "glances": [
            (title, hint, charts.bars(rows, title=title))
            for title, hint, rows in comparison.glances(policies)
        ],
        "table": comparison.table(policies),
        "over_time": over_time(policies, result.get("gpus")),
        "distributions": distributions(policies),
        "sections": [_section(policy, colours, result.get("gpus")) for policy in policies],
        "linked": max(len(policies), COLOURS),
        "folded": sum(colour is None for colour in colours.values()),
        "own_colours": OWN_COLOURS,
        "notes": result["notes"],
        "skipped": _skipped(result),
    }


def _section(
    policy: Mapping[str, Any], colours: Mapping[str, int | None], gpus: Any
) -> dict[str, Any]:
    """One policy: charts over time, its tenants, its jobs by size."""
    rows = {row["tenant"]: row for row in policy.get("tenants") or []}
    ordered = [
        {**rows[name], "colour": colour_class(colour), "low": _is_low(rows[name].get("rho"))}
        for name, colour in colours.items()
        if name in rows
    ]
    return {
        "name": policy["policy"],
        "figures": tenant_charts(policy, colours, gpus),
        "tenants": _in_words(ordered, TENANT),
        "by_size": _in_words(policy.get("by_size") or [], BY_SIZE),
    }


def _is_low(rho: Any) -> bool:
    amount = known(rho)
    return amount is not None and amount < FAIR.value


def _in_words(rows: Sequence[Mapping[str, Any]], columns: Columns) -> list[dict[str, Any]]:
    """The rows with their columns in words; columns that a row lacks are unknown."""
    words = {key: say([row.get(key) for row in rows]) for key, say in columns.items()}
    return [{**row, **{key: words[key][i] for key in columns}} for i, row in enumerate(rows)]


def _skipped(result: Mapping[str, Any]) -> dict[str, Any]:
    """How many rows could not be used, and why: reason, how often, first line."""
    rows = result.get("skipped") or []
    counts = Counter(row["reason"] for row in rows)
    first: dict[str, Any] = {}
    for row in rows:
        first.setdefault(row["reason"], row.get("line") or row.get("source"))
    reasons = [(reason, n, first[reason]) for reason, n in counts.most_common(MOST_REASONS)]
    total = result.get("skipped_total")
    return {
        "total": len(rows) if known(total) is None else total,
        "named": len(rows),
        "reasons": reasons,
        "more": len(counts) - len(reasons),
    }


def _checked(result: Any) -> dict[str, Any]:
    """The result, if it has the form that it must have, with what failed among its notes."""
    policies = result.get("policies") if isinstance(result, dict) else None
    if not isinstance(policies, list) or not all(isinstance(p, dict) for p in policies):
        raise InputError("not a result of `ltgf simulate --json`: it has no list of policies")
    if not all(isinstance(policy.get("policy"), str) for policy in policies):
        raise InputError("not a result of `ltgf simulate --json`: a policy has no name")
    named = [policy | {"policy": _name(policy)} for policy in policies]
    done = [policy for policy in named if policy.get("error") is None]
    failed = [f"{p['policy']} failed: {p['error']}" for p in named if p.get("error") is not None]
    if not done:
        raise InputError(failed[0] if failed else "the result has no policy: nothing to show")
    left = [
        f"{p['policy']}: {number(p['left_out'])} jobs are left out, no nodes have what they ask for"
        for p in done
        if p.get("left_out")
    ]
    meta = {"trace": "", "jobs": None, "version": "", "command": ""} | (result.get("meta") or {})
    notes = [*(result.get("notes") or []), *left, *failed]
    return {**result, "meta": meta, "policies": done, "notes": notes}


def _name(policy: Mapping[str, Any]) -> str:
    """The policy's name and, in a sweep, the values that tell it from others."""
    values = (policy.get("values") or {}).items()
    return " ".join([policy["policy"], *(f"{key}={value}" for key, value in values)])


def _check_series(policy: Mapping[str, Any]) -> None:
    n = len(times(policy))
    for key in ("held_gpus", "rho"):
        for tenant, values in series(policy, key).items():
            if len(values) != n:
                raise InputError(
                    f"{policy['policy']}: {key} of {tenant} has {len(values)} values for {n} times"
                )
