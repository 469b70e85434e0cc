"""A period in words: was it fair, who is owed, who is ahead, what changed, what to do.

Fair is that every tenant got what it was due: rho = U/D at least 0.95, no worse off than alone in a
cluster of its quota. Owed and ahead are in the balance with the others: X - U and U - X, where X is
the fair split with borrowing; over all tenants they add up to what stood free though wanted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurm_ltgf.core.fairness import BENEFIT, LOSS, Fairness, TenantIndex
from slurm_ltgf.core.pulse import Pulse

#: Of all that was due, this much may be missing in a period that is called mostly fair.
MOSTLY = 0.05
#: What is worth a sentence: parts of the use, of the capacity, of the work, of the quotas.
MOVED, FREE, LOST, UNUSED = 0.05, 0.05, 0.01, 0.1
#: Waits that differ by less than this factor are called alike.
LONGER = 1.25
NAMED = 3


@dataclass(frozen=True, slots=True)
class Balance:
    """What a tenant is owed by the others, or is ahead of them; > 0 in either list."""

    tenant: str
    gpu_s: float
    share: float
    rho: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer. answer: fair, mostly fair, not fair, no usage, or unknown."""

    answer: str
    headline: str
    owed: tuple[Balance, ...]
    ahead: tuple[Balance, ...]
    changed: tuple[str, ...]
    todo: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What there is to know besides the numbers. writes: SiteFactors set in the period.

    todo: what else there is to do, in sentences.
    """

    writes: int = 0
    skipped: int = 0
    suspects: int = 0
    silences: int = 0
    todo: tuple[str, ...] = ()


def verdict(
    now: Fairness,
    before: Fairness | None,
    pulse: Pulse,
    earlier: Pulse | None,
    *,
    around: Circumstances,
    only: frozenset[str] | None = None,
) -> Verdict:
    """Say how it was. only: these tenants alone are named, None: all."""
    shown = [row for row in now.tenants if only is None or row.tenant in only]
    answer, headline = _answer(shown, pulse)
    owed, ahead = _balances(shown)
    then = {} if before is None else {row.tenant: row for row in before.tenants}
    totals = now.attained_gpu_s, None if before is None else before.attained_gpu_s
    changed = [*_pulse_changes(pulse, earlier), *_tenant_changes(shown, then, totals)]
    if earlier is None:
        changed = ["There is no history of the period before."]
    todo = [*_about_tenants(shown, owed, around), *_about_the_site(pulse), *around.todo]
    todo += _about_the_data(around)
    return Verdict(
        answer,
        headline,
        owed,
        ahead,
        tuple(changed or ["Nothing of note."]),
        tuple(todo or ["Nothing: leave it as it is."]),
    )


def _answer(rows: Sequence[TenantIndex], pulse: Pulse) -> tuple[str, str]:
    asked = [row for row in rows if row.state != "idle"]
    if not asked and not pulse.held_gpu_s:
        return "no usage", "No job asked for a GPU, so there is nothing to be fair about."
    if not asked:
        return "no usage", f"{_names([row.tenant for row in rows])} asked for no GPU."
    judged = [row for row in asked if row.rho is not None and row.deserved_gpu_s]
    if not judged:
        why = "how many GPUs there were is not known" if pulse.busy is None else "nobody has shares"
        return "unknown", f"Whether it was fair cannot be said: {why}."
    short = sorted((row for row in judged if row.rho < LOSS), key=_by_rho)  # type: ignore[operator]
    if not short:
        return "fair", _all_well(judged)
    missing = math.fsum((row.deserved_gpu_s or 0) - row.attained_gpu_s for row in short)
    due = math.fsum(row.deserved_gpu_s or 0 for row in judged)
    parts = [f"{row.tenant} {_percent(row.rho)}" for row in short]
    told = _names([f"{parts[0]} of it", *parts[1:]])
    if len(judged) == 1:
        return "not fair", f"{short[0].tenant} got {_percent(short[0].rho)} of what it was due."
    of = f"of {len(judged)} tenants got"
    if missing <= MOSTLY * due:
        return "mostly fair", f"{len(judged) - len(short)} {of} what they were due; {told}."
    return "not fair", f"{len(short)} {of} less than they were due: {told}."


def _all_well(judged: Sequence[TenantIndex]) -> str:
    if len(judged) == 1:
        return f"{judged[0].tenant} got at least what it was due."
    return f"All {len(judged)} tenants that asked for GPUs got at least what they were due."


def _by_rho(row: TenantIndex) -> tuple[float, str]:
    return row.rho or 0.0, row.tenant


def _balances(rows: Sequence[TenantIndex]) -> tuple[tuple[Balance, ...], tuple[Balance, ...]]:
    """Who is owed and who is ahead, the most first."""
    owed, ahead = [], []
    for row in rows:
        if row.share is None or row.entitled_gpu_s is None:
            continue
        gap = row.attained_gpu_s - row.entitled_gpu_s
        if row.share < LOSS:
            owed.append(Balance(row.tenant, -gap, row.share, row.rho))
        elif row.share > BENEFIT:
            ahead.append(Balance(row.tenant, gap, row.share, row.rho))
    for found in (owed, ahead):
        found.sort(key=lambda one: (-one.gpu_s, one.tenant))
    return tuple(owed), tuple(ahead)


def _pulse_changes(now: Pulse, then: Pulse | None) -> Iterator[str]:
    if then is None:
        return
    if now.busy is not None and then.busy is not None and abs(now.busy - then.busy) >= 0.01:
        yield f"GPUs were in use {_percent(now.busy)} of the time, {_percent(then.busy)} before."
    one, two = now.median_wait_s, then.median_wait_s
    if one is not None and two is not None:
        longer, shorter = one > LONGER * max(two, 60), two > LONGER * max(one, 60)
        if longer or shorter:
            yield f"Half of the jobs started within {_wait(one)}, before within {_wait(two)}."
    if abs(now.lost_gpu_s - then.lost_gpu_s) >= LOST * max(now.held_gpu_s, then.held_gpu_s, 3600):
        yield f"{_hours(now.lost_gpu_s)} of work were lost, {_hours(then.lost_gpu_s)} before."


def _tenant_changes(
    rows: Sequence[TenantIndex],
    then: Mapping[str, TenantIndex],
    totals: tuple[float, float | None],
) -> Iterator[str]:
    """Who is or is no longer short, then whose part of the use moved most."""
    moved = []
    for row in rows:
        old = then.get(row.tenant)
        if old is None:
            continue
        if (row.state == "loss") != (old.state == "loss") and None not in (row.rho, old.rho):
            newly = "gets less than it is due" if row.state == "loss" else "gets its due again"
            yield f"{row.tenant} {newly}: {_percent(row.rho)} of it, {_percent(old.rho)} before."
        if totals[0] and totals[1]:
            parts = row.attained_gpu_s / totals[0], old.attained_gpu_s / totals[1]
            moved.append((-abs(parts[0] - parts[1]), row.tenant, parts))
    for change, name, (new, old_part) in sorted(moved)[:NAMED]:
        if -change >= MOVED:
            yield f"{name} held {_percent(new)} of all GPU-time used, {_percent(old_part)} before."


def _about_tenants(
    rows: Sequence[TenantIndex], owed: Sequence[Balance], around: Circumstances
) -> Iterator[str]:
    if owed and around.writes:
        yield (
            f"Nothing by hand for {_names([one.tenant for one in owed])}: whoever is owed goes "
            f"first in the queue ({around.writes:,} priorities were set in this period)."
        )
    elif owed:
        yield (
            f"Let the queue repay {_names([one.tenant for one in owed])}: nothing set priorities "
            "in this period. `ltgf tick --dry-run` shows the order, `ltgf daemon` keeps it."
        )
    used = math.fsum(row.attained_gpu_s for row in rows)
    strangers = [r for r in rows if r.state == "no share" and r.attained_gpu_s > LOST * used]
    if strangers:
        held = _hours(math.fsum(row.attained_gpu_s for row in strangers))
        yield (
            f"Give {_names([row.tenant for row in strangers])} shares, or none of the GPUs: they "
            f"held {held} with a Fairshare of 0."
        )
    quotas = math.fsum(row.quota_gpus or 0 for row in rows)
    unused = [r for r in rows if r.state == "idle" and (r.quota_gpus or 0) > UNUSED * quotas]
    if unused:
        gpus = math.fsum(row.quota_gpus or 0 for row in unused)
        yield (
            f"Ask {_names([row.tenant for row in unused])} whether their shares are still right: "
            f"they used nothing of {gpus:.4g} GPUs."
        )


def _about_the_site(pulse: Pulse) -> Iterator[str]:
    if pulse.capacity_gpu_s is None:
        yield "Say how many GPUs there are: `--capacity N`, or `fairness.capacity_gpus`."
    free = pulse.free_gpu_s
    if free is not None and pulse.capacity_gpu_s and free > FREE * pulse.capacity_gpu_s:
        yield (
            f"Find out why {_hours(free)} stood free ({_percent(free / pulse.capacity_gpu_s)} of "
            "all) while jobs waited for as many: sizes that fit no node, limits, reservations."
        )
    if pulse.lost_gpu_s > LOST * max(pulse.held_gpu_s, 1):
        yield (
            f"Have jobs save their work before they are requeued: {_hours(pulse.lost_gpu_s)} "
            f"({_percent(pulse.lost_gpu_s / pulse.held_gpu_s)} of what was used) were lost."
        )


def _about_the_data(around: Circumstances) -> Iterator[str]:
    odd = [
        f"{count:,} {one if count == 1 else more}"
        for count, one, more in (
            (around.skipped, "row could not be read", "rows could not be read"),
            (around.suspects, "record cannot be right", "records cannot be right"),
            (around.silences, "stretch has no record at all", "stretches have no record at all"),
        )
        if count
    ]
    if odd:
        yield f"Look at the history, see Data quality: {', '.join(odd)}."


def _names(names: Sequence[str]) -> str:
    """a, b and 3 others."""
    if len(names) > NAMED + 1:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} others"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _percent(part: float | None) -> str:
    return "–" if part is None else f"{100 * part:.0f} %"


def _hours(gpu_s: float) -> str:
    hours = gpu_s / 3600
    return f"{hours:,.0f} GPU-hours" if hours >= 10 else f"{hours:.2g} GPU-hours"


def _wait(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
