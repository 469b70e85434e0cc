"""From an order to SiteFactors with few writes: exact near the head, coarse far down.

Slurm adds a job's SiteFactor to its other priority terms. What we need from it is the order, so a
factor is a label, not a measure: labels keep the order, at least `step` apart (more than the other
terms span), and stay as they are as long as they are in order. Two regions, high to low:

    head    the first `head` places, one label each, in exact order. The largest set of labels that
            is already in order (with room for the ones between) is kept; only the others are new.
    tail    places further down share a label by level: LEVELS levels each time the distance to the
            head doubles. A job keeps its level until it is more than one off.

A job that we have not seen has factor 0, below every label: it cannot jump the queue. Jobs that are
alike to the order (equal tags) have the same label. An unchanged order needs no write.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from slurm_ltgf.core.order import Turn

#: scontrol(1): SiteFactor lies between -2147483645 and +2147483645.
LARGEST = 2_147_483_645
LEVELS, LOWEST_LEVEL = 8, 120


@dataclass(frozen=True, slots=True)
class Scale:
    """Labels of the site. head: places in exact order. step: least distance, priority points."""

    head: int = 256
    step: int = 1_000_000

    def __post_init__(self) -> None:
        """Refuse a scale that Slurm's 32 bits cannot hold."""
        if self.head < 1 or self.step < 1:
            raise ValueError(f"head and step must be > 0, got {self.head} and {self.step}")
        if self.lowest_head + (2 * self.head) * self.step > LARGEST:
            raise ValueError(
                f"queue.head {self.head} x queue.step {self.step} does not fit SiteFactor's range "
                f"of {LARGEST}: largest step for this head is {self.largest_step}"
            )

    @property
    def highest_tail(self) -> int:
        """Label of the level next to the head."""
        return (LOWEST_LEVEL + 1) * self.step

    @property
    def lowest_head(self) -> int:
        """Smallest label that a place in the head can have."""
        return self.highest_tail + self.step

    @property
    def largest_step(self) -> int:
        """Largest step that leaves room for this many exact places."""
        return LARGEST // (LOWEST_LEVEL + 2 + 2 * self.head)

    def level(self, place: int) -> int:
        """Level of a place beyond the head, 0 is next to it."""
        return min(int(LEVELS * math.log2(place / self.head)), LOWEST_LEVEL)

    def label_of_level(self, level: int) -> int:
        """The label that jobs of a level share."""
        return self.highest_tail - level * self.step

    def level_of_label(self, label: int) -> int | None:
        """The level a label stands for; None: it is no tail label."""
        level, off = divmod(self.highest_tail - label, self.step)
        return level if off == 0 and 0 <= level <= LOWEST_LEVEL else None


class Change(NamedTuple):
    """A write to Slurm: SiteFactor of a job, old (None: not known) and new; rank in the order."""

    job_id: int
    old: int | None
    new: int
    rank: int


def changes(turns: Sequence[Turn], scale: Scale) -> list[Change]:
    """The writes that bring Slurm's factors into this order, nearest to the head first.

    Args:
        turns: the order (`order.order`), each job with the factor that Slurm holds now.
    """
    starts = [i for i, turn in enumerate(turns) if not i or turn.key != turns[i - 1].key]
    ends = [*starts, len(turns)][1:]
    places = [turns[first].rank for first in starts]
    current = [_commonest(turns, first, end) for first, end in zip(starts, ends, strict=True)]
    head = bisect_left(places, scale.head)
    labels = _head_labels(current[:head], scale)
    labels += _tail_labels(places[head:], current[head:], scale)
    return [
        Change(turn.job.job_id, turn.job.site_factor, label, turn.rank)
        for first, end, label in zip(starts, ends, labels, strict=True)
        for turn in turns[first:end]
        if turn.job.site_factor != label
    ]


def _commonest(turns: Sequence[Turn], first: int, end: int) -> int | None:
    """The label that most of these have, the highest of several; None: none has one."""
    if end - first == 1:
        return turns[first].job.site_factor
    factors = (turn.job.site_factor for turn in turns[first:end])
    known = Counter(factor for factor in factors if factor is not None)
    return max(known, key=lambda label: (known[label], label)) if known else None


def _tail_labels(places: Sequence[int], current: Sequence[int | None], scale: Scale) -> list[int]:
    """Each place's level's label, or the current one where that is at most one level off."""
    labels: list[int] = []
    while (at := len(labels)) < len(places):
        level = scale.level(places[at])
        end = bisect_right(places, level, lo=at, key=scale.level)
        own = scale.label_of_level(level)
        near = {scale.label_of_level(k) for k in (level - 1, level, level + 1)}
        near = {label for label in near if scale.level_of_label(label) is not None}
        labels += [
            label if label is not None and label in near else own for label in current[at:end]
        ]
    return labels


def _head_labels(current: Sequence[int | None], scale: Scale) -> list[int]:
    """One label a place, strictly falling by at least `step`, most of the current ones kept."""
    n = len(current)
    kept = _kept(current, scale)
    bounds = [(-1, LARGEST + scale.step), *kept, (n, scale.highest_tail)]
    labels: list[int] = []
    for (left, above), (right, below) in pairwise(bounds):
        between = right - left - 1
        gap = (above - below) // (between + 1)
        if right == n:  # behind the last kept label: leave room for jobs to come
            gap = min(gap, max(scale.step, (LARGEST - scale.lowest_head) // (2 * scale.head)))
        labels += [above - gap * k for k in range(1, between + 1)]
        if right < n:
            labels.append(below)
    return labels


def _kept(current: Sequence[int | None], scale: Scale) -> list[tuple[int, int]]:
    """(place, label) of the largest set of current labels that can stay, places ascending.

    A set can stay when between any two, and outside them, there is a step for each place:
    label_p - label_q >= (q - p) · step, that is, label_p + p · step does not rise. So the set is a
    longest non-rising subsequence (patience sorting, O(n log n)).
    """
    n = len(current)
    tails: list[int] = []  # negated heights, rising; the last of a subsequence of each length
    ends: list[int] = []
    before: dict[int, int | None] = {}
    for place, label in enumerate(current):
        if label is None or not _fits(label, place, n=n, scale=scale):
            continue
        height = -(label + place * scale.step)
        k = bisect_right(tails, height)
        before[place] = ends[k - 1] if k else None
        tails[k : k + 1] = [height]
        ends[k : k + 1] = [place]
    chain: list[tuple[int, int]] = []
    at = ends[-1] if ends else None
    while at is not None:
        chain.append((at, current[at] or 0))
        at = before[at]
    return chain[::-1]


def _fits(label: int, place: int, *, n: int, scale: Scale) -> bool:
    above = LARGEST - place * scale.step
    below = scale.lowest_head + (n - 1 - place) * scale.step
    return below <= label <= above
