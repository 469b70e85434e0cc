"""Fairness of the past, from the ledger alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.measure import (
    CapacityStep,
    Measurement,
    measure,
    weighted_gpus,
)
from slurm_ltgf.core.model import Account, Window, Words
from slurm_ltgf.errors import UsageError
from slurm_ltgf.service.observed import capacity_steps, shards_per_gpu, weight_steps
from slurm_ltgf.service.terms import managed, pricing_of, tenancy_of, terms_of
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Question:
    """What `fairness` is asked. window None: the site's, up to where the history goes."""

    cluster: str | None = None
    combined: bool = False
    window: Window | None = None
    window_s: float | None = None
    capacity_gpus: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    jobs: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A measurement of the past, with all that a reader must know to trust it."""

    clusters: tuple[str, ...]
    window: Window
    measurement: Measurement
    capacity_gpus: float | None
    known_until: int | None
    notes: tuple[str, ...]


def fairness(ledger: Ledger, config: Config, question: Question, *, now: int) -> Answer:
    """Measure from the ledger alone.

    Raises:
        UsageError: the ledger has several clusters, or not the one asked for, or no window.
    """
    clusters = clusters_asked(ledger, config, question)
    known = [ledger.synced_until(name) for name in clusters]
    known_until = min((until for until in known if until is not None), default=None)
    window = window_asked(question, config, ledger, clusters, now=now, known_until=known_until)
    found = ledger.runs(clusters, window)
    runs = managed(found, config)
    accounts = _merged_accounts(ledger, clusters)
    used = {name for cluster in clusters for name in accounts_of_dumps(ledger, cluster)}
    capacity = _capacity_steps(ledger, config, question, clusters, window)
    alone = len(clusters) == 1 and not question.weights
    weights = weight_steps(ledger, clusters[0], window) if alone else []
    measurement = measure(
        runs,
        window,
        tenancy=tenancy_of(config, accounts, question.weights),
        capacity=capacity,
        weights=weights,
        terms=terms_of(config, shards_per_gpu=shards_per_gpu(ledger, clusters[0])),
        now=min(window.end, known_until) if known_until is not None else window.end,
        extra_accounts=used if not accounts else (),
        with_jobs=question.jobs,
        kept={key: at for name in clusters for key, at in ledger.kept(name, window.start).items()},
    )
    latest = capacity[-1].gpus if capacity else None
    notes = _notes(measurement, window, capacity=capacity, accounts=accounts, known=known_until)
    if len(runs) < len(found):
        notes.append(
            f"{len(found) - len(runs)} runs outside {', '.join(config.site.partitions)} are in no "
            "sum (site.partitions)"
        )
    return Answer(
        clusters=tuple(clusters),
        window=window,
        measurement=measurement,
        capacity_gpus=None if latest is None else weighted_gpus(latest, pricing_of(config)),
        known_until=known_until,
        notes=tuple(notes),
    )


def clusters_asked(ledger: Ledger, config: Config, question: Question) -> list[str]:
    """The clusters a question is about.

    Raises:
        UsageError: the ledger has several, or not those asked for.
    """
    there = sorted({*ledger.clusters(), *ledger.clusters_synced()})
    if question.cluster is not None:
        wanted = there if question.cluster == "all" else question.cluster.split(",")
        missing = [name for name in wanted if name not in there]
        if missing or not wanted:
            raise UsageError(
                f"-M {question.cluster}: the ledger has no runs of {', '.join(missing)}; it has "
                f"{', '.join(there) or 'none at all: run `ltgf sync`'}"
            )
        if len(wanted) > 1 and not question.combined:
            raise UsageError(
                f"-M {question.cluster}: shares of different clusters do not add up; ask for one, "
                "or say --combined"
            )
        return list(wanted)
    if len(there) <= 1:
        return there or [config.site.cluster or "unknown"]
    if config.site.cluster in there:
        return [config.site.cluster]
    raise UsageError(f"the ledger has several clusters ({', '.join(there)}): choose one with -M")


def window_asked(
    question: Question,
    config: Config,
    ledger: Ledger,
    clusters: Sequence[str],
    *,
    now: int,
    known_until: int | None,
) -> Window:
    """The window a question is about: its own, or one up to where the history goes."""
    if question.window is not None:
        return question.window
    end = now if known_until is None else min(now, known_until)
    length = question.window_s if question.window_s is not None else config.fairness.window_s
    if length < math.inf:
        return Window(end - int(length), end)
    firsts = [ledger.holdings(name).first for name in clusters]
    return Window(min((first for first in firsts if first is not None), default=end - 1), end)


def _merged_accounts(ledger: Ledger, clusters: Sequence[str]) -> list[Account]:
    merged = {account.name: account for name in clusters for account in ledger.accounts(name)}
    return list(merged.values())


def _capacity_steps(
    ledger: Ledger,
    config: Config,
    question: Question,
    clusters: Sequence[str],
    window: Window,
) -> list[CapacityStep]:
    given = question.capacity_gpus or config.fairness.capacity_gpus
    if given:
        # a plain number is in weighted GPUs: no type, so weight 1
        return [CapacityStep(window.start, {"": given})]
    steps = [capacity_steps(ledger, name, window) for name in clusters]
    if any(not part for part in steps):
        return []
    if len(steps) == 1:
        return steps[0]
    times = sorted({step.time for part in steps for step in part})
    return [CapacityStep(time, _together(steps, time)) for time in times]


def _together(parts: Sequence[Sequence[CapacityStep]], time: int) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        step = next((s for s in reversed(part) if s.time <= time), part[0])
        for kind, count in step.gpus.items():
            total[kind] = total.get(kind, 0) + count
    return total


def remember_accounts(ledger: Ledger, cluster: str, accounts: Iterable[str]) -> None:
    """Keep which accounts dumps of a cluster named: tenants also where they have no run."""
    known = accounts_of_dumps(ledger, cluster)
    everyone = sorted(known | set(accounts))
    if everyone != sorted(known):
        ledger.state_set(f"accounts {cluster}", json.dumps(everyone))


def accounts_of_dumps(ledger: Ledger, cluster: str) -> frozenset[str]:
    """Accounts that dumps of a cluster named."""
    return frozenset(json.loads(ledger.state_get(f"accounts {cluster}") or "[]"))


def _shown(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _notes(
    measurement: Measurement,
    window: Window,
    *,
    capacity: Sequence[CapacityStep],
    accounts: Sequence[Account],
    known: int | None,
) -> list[str]:
    notes = []
    if known is not None and window.end > known:
        notes.append(
            f"history is known until {_shown(known)} only: the window's last "
            f"{window.end - known} s are empty; `ltgf sync` reads on"
        )
    if not capacity:
        notes.append(
            "capacity is not known (no node was ever observed): only attained GPU-time can be "
            "told; give --capacity N"
        )
    elif capacity[0].time > window.start:
        notes.append(
            f"capacity before {_shown(capacity[0].time)} was not observed: taken as it was then"
        )
    if not accounts:
        notes.append("accounts are not known (no sacctmgr): tenants not given a weight weigh 1")
    notes += [
        f"{part.runs} runs ({part.seconds} s) could not be priced and are in no sum: {part.reason}"
        for part in measurement.fairness.unpriced
    ]
    notes += _gpu_notes(measurement)
    settled = measurement.settled
    if settled.odd:
        notes.append(f"{settled.odd} records are suspect: see suspects")
    return notes


def _gpu_notes(measurement: Measurement) -> list[str]:
    """What to know of runs whose GPU-time is nobody's, or was perhaps not recorded."""
    runs, tenants = measurement.settled.runs, measurement.tenants
    ran = runs.elapsed_s > 0
    held = ran & _where(runs.gres, bool)
    asked = ran & ~held & _where(runs.gres_requested, lambda gres: bool(_SOME_GPU.search(gres)))
    lost = held & _where(runs.account, lambda name: measurement.tenant_of.get(name) not in tenants)
    notes = []
    if lost.any():
        notes.append(
            f"{int(lost.sum())} runs with GPUs are of accounts that are no tenants and in no sum "
            "(fairness.exclude_accounts)"
        )
    if ran.any() and not held.any():
        notes.append(
            "no job of the window has GPUs in AllocTRES: either none used one, or gres/gpu is not "
            "tracked (AccountingStorageTRES in slurm.conf) and no GPU-time was recorded"
        )
    elif asked.any():
        notes.append(
            f"{int(asked.sum())} runs asked for GPUs and have none in AllocTRES: taken as 0 GPUs"
        )
    return notes


_SOME_GPU = re.compile("=0*[1-9]")


def _where(words: Words, test: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Whether the text of each row passes the test, (n,)."""
    passed: NDArray[np.bool_] = np.array([*map(test, words.names), False])[words.codes]
    return passed
