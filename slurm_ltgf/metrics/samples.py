"""Values as samples of a family, and foreign text as a label."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from typing import Any

from slurm_ltgf.metrics.catalog import family

LONGEST_LABEL = 128
UNTYPED = "untyped"

Labels = tuple[str, ...]


def label(text: str) -> str:
    r"""Foreign text as a label: control characters and half characters as escapes, not too long.

    Different texts stay different.

    >>> label("lab-ä"), label("a\nb"), label("f\udcfcr"), label("a\\nb")
    ('lab-ä', 'a\\nb', 'f\\udcfcr', 'a\\\\nb')
    """
    clean = "".join(c if c.isprintable() and c != "\\" else _escaped(c) for c in text)
    if len(clean) <= LONGEST_LABEL:
        return clean
    digest = hashlib.sha256(clean.encode()).hexdigest()[:12]
    return f"{clean[: LONGEST_LABEL - 13]}~{digest}"


def _escaped(character: str) -> str:
    return repr(character)[1:-1]


def of_type(kind: str) -> str:
    """A GPU type as a label."""
    return label(kind) or UNTYPED


def filled(name: str, samples: Iterable[tuple[Labels, float | None]]) -> Iterator[Any]:
    """A family with those samples whose value is known; none if there is none."""
    made = family(name)
    for labels, value in samples:
        if value is not None and not math.isnan(value):
            made.add_metric(labels, value)
    if made.samples:
        yield made
