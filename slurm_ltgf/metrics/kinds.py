"""What a metric is: its name, type, labels and meaning, and the group that it stands in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram", "summary"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. name: as Prometheus shows it (a counter with _total). meaning: with the unit."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class Group:
    """Metrics that belong together. when: what must be so for them to be there."""

    title: str
    when: str
    metrics: tuple[Metric, ...]


def gauges(labels: tuple[str, ...], **meanings: str) -> tuple[Metric, ...]:
    """Gauges of the same labels, name = meaning."""
    return tuple(Metric(name, "gauge", labels, text) for name, text in meanings.items())


def counters(labels: tuple[str, ...], **meanings: str) -> tuple[Metric, ...]:
    """Counters of the same labels, name = meaning."""
    return tuple(Metric(name, "counter", labels, text) for name, text in meanings.items())
