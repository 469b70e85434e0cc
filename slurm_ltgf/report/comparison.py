"""Policies side by side: the measures, which value is best in each, and that in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_ltgf.report.series import Bar
from slurm_ltgf.report.words import duration, durations, fixed, gpu_hours, known, number, percent

Say = Callable[[Sequence[Any]], list[str]]
LOW, HIGH = "low", "high"


@dataclass(frozen=True, slots=True)
class Measure:
    """A row of the table: key in the result, words, how a row is said, and what is better."""

    key: str
    title: str
    say: Say
    better: str | None = LOW


def each(say: Callable[[Any], str]) -> Say:
    """Say every value of a row by itself."""
    return lambda values: [say(value) for value in values]


GROUPS: tuple[tuple[str, tuple[Measure, ...]], ...] = (
    (
        "Waiting and completion",
        (
            Measure("mean_jct_s", "Mean completion time", durations),
            Measure("p50_jct_s", "Median completion time", durations),
            Measure("p99_jct_s", "P99 completion time", durations),
            Measure("mean_wait_s", "Mean wait", durations),
            Measure("makespan_s", "Makespan", durations),
        ),
    ),
    (
        "Fairness between tenants",
        (
            Measure("tenant_mean_shortfall", "Mean shortfall", each(fixed)),
            Measure("worst_window_rho", "Worst window's rho", each(fixed), HIGH),
            Measure("windows_below_095", "Windows with rho < 0.95", each(percent)),
            Measure("jain", "Jain's index", each(fixed), HIGH),
        ),
    ),
    (
        "Fairness between jobs",
        (
            Measure("jobs_below_095", "Jobs with rho < 0.95 (loss)", each(percent)),
            Measure("job_fair", "Jobs with rho 0.95 to 1.05 (fair)", each(percent), None),
            Measure("job_benefit", "Jobs with rho > 1.05 (benefit)", each(percent), None),
            Measure("job_rho_p5", "Job rho, 5th percentile", each(fixed), HIGH),
        ),
    ),
    (
        "Use of the cluster and cost",
        (
            Measure("utilisation", "GPUs busy", each(percent), HIGH),
            Measure("preemptions", "Preemptions", each(number)),
            Measure("overhead_gpu_s", "Lost to moving jobs, GPU-hours", each(gpu_hours)),
            Measure("failed_gpu_s", "Held by runs that failed, GPU-hours", each(gpu_hours), None),
            Measure("unfinished", "Jobs unfinished", each(number)),
            Measure("wall_s", "Time to simulate", durations, None),
        ),
    ),
)
GLANCE = (
    ("mean_jct_s", "Mean completion time", "shorter is better"),
    ("tenant_mean_shortfall", "Tenants' mean shortfall", "smaller is fairer"),
    ("jobs_below_095", "Jobs that got too little (rho < 0.95)", "fewer is fairer"),
)
#: Key, what the winner does, the figure's name, and how its value is said.
CLAIMS: tuple[tuple[str, str, str, Callable[[Any], str]], ...] = (
    (
        "tenant_mean_shortfall",
        "keeps tenants closest to what they are due",
        "mean shortfall",
        fixed,
    ),
    ("jobs_below_095", "leaves the fewest jobs with too little", "rho < 0.95:", percent),
    ("mean_jct_s", "finishes jobs soonest", "on average after", duration),
    ("mean_wait_s", "makes jobs wait least", "on average", duration),
)


def best(values: Sequence[Any], shown: Sequence[str], better: str | None) -> list[bool]:
    """Which values are best, as far as their words tell them apart; none where all are alike."""
    there = [v for v in map(known, values) if v is not None]
    if better is None or len(set(shown)) < 2 or len(there) < 2:
        return [False] * len(values)
    top = min(there) if better == LOW else max(there)
    words = {text for value, text in zip(values, shown, strict=True) if known(value) == top}
    return [text in words for text in shown]


def table(policies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Groups of rows, each with a cell (text, best) for every policy; unknown rows are left out."""
    groups = []
    for title, measures in GROUPS:
        rows = []
        for measure in measures:
            values = [policy.get(measure.key) for policy in policies]
            if any(known(value) is not None for value in values):
                shown = measure.say(values)
                marks = best(values, shown, measure.better)
                rows.append({"title": measure.title, "cells": list(zip(shown, marks, strict=True))})
        groups.append({"title": title, "rows": rows})
    return [group for group in groups if group["rows"]]


def glances(policies: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, list[Bar]]]:
    """Bars of the three measures that matter most: title, hint, one bar a policy."""
    says = {measure.key: measure.say for _, measures in GROUPS for measure in measures}
    found = []
    for key, title, hint in GLANCE:
        values = [policy.get(key) for policy in policies]
        shown = says[key](values)
        marks = best(values, shown, LOW)
        rows = [
            Bar(policy["policy"], known(value), words, mark)
            for policy, value, words, mark in zip(policies, values, shown, marks, strict=True)
        ]
        found.append((title, hint, rows))
    return found


def headline(policies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Who is best at what: names, and what they do best with figures, the most wins first."""
    wins: dict[tuple[str, ...], list[str]] = {}
    for key, deed, figure, say in CLAIMS:
        values = [policy.get(key) for policy in policies]
        shown = [say(value) for value in values]
        marks = best(values, shown, LOW)
        names = tuple(p["policy"] for p, mark in zip(policies, marks, strict=True) if mark)
        if not names:
            continue
        words = f"{figure} {shown[marks.index(True)]}"
        rest = [(v, i) for i, v in enumerate(map(known, values)) if v is not None and not marks[i]]
        if rest:
            _, i = min(rest)
            words += f", next {policies[i]['policy']} {shown[i]}"
        wins.setdefault(names, []).append(f"{deed} ({words})")
    ranked = sorted(wins.items(), key=lambda item: -len(item[1]))
    return [{"names": list(names), "deeds": deeds} for names, deeds in ranked]


def alone(policy: Mapping[str, Any]) -> str:
    """The sentence about a single policy."""
    return (
        f"a job takes {duration(policy.get('mean_jct_s'))} on average, of which it waits"
        f" {duration(policy.get('mean_wait_s'))}; tenants fall short of what they are due by"
        f" {percent(policy.get('tenant_mean_shortfall'))} on average, and"
        f" {percent(policy.get('jobs_below_095'))} of the jobs get less than 0.95 of their share."
    )
