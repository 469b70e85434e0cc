"""The facts of a report, from the ledger alone: a period, and the one before it.

The tenants' indices are those of `ltgf fairness` for the same window. A window that the history
does not cover is cut to what it covers, and that is said: nothing is told of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurm_ltgf.core import report
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.measure import Measurement
from slurm_ltgf.core.model import FloatArray, IntArray, Window, Words
from slurm_ltgf.core.over_time import Course, course, over_the_last, ratio
from slurm_ltgf.core.report import Facts, MoveCount, Rows, edges_of, silences
from slurm_ltgf.errors import InputError
from slurm_ltgf.service.observed import shards_per_gpu
from slurm_ltgf.service.past import Answer, Question, clusters_asked, fairness, window_asked
from slurm_ltgf.service.terms import pricing_of
from slurm_ltgf.slurm.text import expand_hostlist
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger

#: Rounding of sums: use above the capacity by no more than this part is no contradiction.
ROUNDING = 1e-6
#: So much of the period before may lack history without its being left out.
MISSING = 0.1
#: Moves that are told of, by the audit log's action.
GOALS = ("requeue", "checkpoint", "pause")


@dataclass(frozen=True, slots=True)
class _Source:
    """What a report is asked of."""

    ledger: Ledger
    config: Config
    question: Question
    clusters: tuple[str, ...]
    now: int

    def answer(self, window: Window, *, jobs: bool) -> Answer:
        """What `ltgf fairness` answers of a window."""
        question = replace(self.question, window=window, jobs=jobs)
        return fairness(self.ledger, self.config, question, now=self.now)

    @property
    def first(self) -> int | None:
        """Since when there is history."""
        begun = [self.ledger.holdings(name).first for name in self.clusters]
        return min((first for first in begun if first is not None), default=None)

    @property
    def pricing(self) -> Pricing:
        """Worth of GRES."""
        return pricing_of(self.config, shards_per_gpu=shards_per_gpu(self.ledger, self.clusters[0]))

    @property
    def kept(self) -> bool:
        """Whether work of requeued runs counts as kept where nothing is known of it."""
        return self.config.fairness.requeued_work == "kept"


def facts(ledger: Ledger, config: Config, question: Question, *, now: int) -> Facts:
    """Gather what a report tells.

    Raises:
        UsageError: as for `past.fairness`.
        InputError: no history in the window, or more GPUs were held than there are.
    """
    clusters = clusters_asked(ledger, config, question)
    source = _Source(ledger, config, question, tuple(clusters), now)
    known = [ledger.synced_until(name) for name in clusters]
    known_until = min((until for until in known if until is not None), default=None)
    asked = window_asked(question, config, ledger, clusters, now=now, known_until=known_until)
    window = _covered(asked, source.first, known_until)
    answer = source.answer(window, jobs=True)
    before = _before(source, window)
    whole, rho, look_back_s = _over_time(source, answer, before)
    own = _rows(source, answer)
    _check_use(whole, own)
    counts = ledger.audit_counts(window)
    return Facts(
        clusters=answer.clusters,
        asked=asked,
        window=window,
        generated=now,
        known_until=known_until,
        gpus=answer.capacity_gpus,
        now=answer.measurement,
        before=None if before is None else before.measurement,
        rows=own,
        rows_before=None if before is None else _rows(source, before),
        course=whole,
        rho=rho,
        look_back_s=look_back_s,
        hosts=_hosts(own.runs.nodes),
        moves=tuple(MoveCount(*row) for row in counts if row[0] in GOALS),
        writes=sum(count for action, _, count in counts if action == "sitefactor"),
        skipped=tuple(ledger.skipped()),
        skipped_total=ledger.skipped_total(),
        silences=silences(answer.measurement.settled.runs, window),
        notes=answer.notes,
        half_life_s=config.fairness.half_life_s,
        requeued_work_kept=source.kept,
    )


def _covered(asked: Window, first: int | None, known_until: int | None) -> Window:
    start = asked.start if first is None else max(asked.start, first)
    end = asked.end if known_until is None else min(asked.end, known_until)
    if start >= end:
        raise InputError(
            "no history in the window: `ltgf sync` reads it, -S and -E choose another window"
        )
    return Window(start, end)


def _before(source: _Source, window: Window) -> Answer | None:
    """The period of the same length right before, if there is history of it."""
    first, length = source.first, window.length_s
    if first is None or first > window.start - length * (1 - MISSING):
        return None
    return source.answer(Window(window.start - length, window.start), jobs=False)


def _over_time(
    source: _Source, answer: Answer, before: Answer | None
) -> tuple[Course, FloatArray, int]:
    """The window's stretches, and rho at the end of each over the site's own window."""
    edges = edges_of(answer.window)
    stretches = len(edges) - 1
    step_s = answer.window.length_s / stretches
    looks_back = min(source.config.fairness.window_s, answer.window.length_s)
    count = max(round(looks_back / step_s), 1)
    own = _course(source, answer, edges)
    top, bottom = own.attained, own.deserved
    if before is not None:
        earlier = _course(source, before, edges[: count + 1] - round(count * step_s))
        top, bottom = (
            np.vstack([_by_tenant(earlier, one, own.tenants), two])
            for one, two in ((earlier.attained, top), (earlier.deserved, bottom))
        )
    else:
        top, bottom = (
            np.vstack([np.zeros((count, part.shape[1])), part]) for part in (top, bottom)
        )
    rho = ratio(over_the_last(top, count), over_the_last(bottom, count))
    return own, rho[-stretches:], round(count * step_s)


def _by_tenant(found: Course, values: FloatArray, tenants: Sequence[str]) -> FloatArray:
    """Columns of another list of tenants; nothing for those that were none."""
    column = {name: i for i, name in enumerate(found.tenants)}
    result = np.zeros((len(values), len(tenants)))
    for i, name in enumerate(tenants):
        if name in column:
            result[:, i] = values[:, column[name]]
    return result


def _course(source: _Source, answer: Answer, edges: IntArray) -> Course:
    measured = answer.measurement
    names = sorted(measured.tenants)
    return course(
        measured.settled.runs,
        edges,
        tenants=names,
        tenant_of=measured.tenant_of,
        supply=measured.supply,
        pricing=source.pricing,
        limits=[measured.tenants[name].gpu_limit for name in names],
    )


def _rows(source: _Source, answer: Answer) -> Rows:
    measured: Measurement = answer.measurement
    since = answer.window.start
    kept: Mapping[tuple[int, int], int] = {
        key: until
        for name in source.clusters
        for key, until in source.ledger.kept(name, since).items()
    }
    return report.rows(
        measured.settled.runs,
        answer.window,
        tenants=sorted(measured.tenants),
        tenant_of=measured.tenant_of,
        pricing=source.pricing,
        requeued_work_kept=source.kept,
        kept=kept,
    )


def _check_use(whole: Course, own: Rows) -> None:
    """Refuse a report in which more GPUs were held than there were."""
    held, there = float(whole.attained.sum()), float(whole.capacity.sum())
    if not held > there * (1 + ROUNDING):
        return
    used = own.used_gpu_s
    largest = np.argsort(-used, kind="stable")[:3].tolist()
    told = ", ".join(
        f"{own.runs.row(i).shown_id} ({used[i] / 3600:.1f} GPU-hours)" for i in largest
    )
    raise InputError(
        f"jobs held {held / 3600:.1f} GPU-hours and there were {there / 3600:.1f}: the capacity is "
        f"not what it was, or runs are recorded twice. The largest: {told}. Give --capacity N"
    )


def _hosts(nodes: Words) -> dict[str, tuple[str, ...]]:
    """The nodes of each node list that occurs; () where it cannot be read."""
    used = np.bincount(nodes.codes, minlength=len(nodes.names))
    return {nodes.names[i]: _expanded(nodes.names[i]) for i in np.flatnonzero(used).tolist()}


def _expanded(text: str) -> tuple[str, ...]:
    try:
        return tuple(expand_hostlist(text))
    except ValueError:
        return ()
