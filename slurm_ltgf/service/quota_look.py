"""What a plan of quotas is made from, and what must be known before it is made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from slurm_ltgf.core.accounts import GPU, ROOT, Book, Change
from slurm_ltgf.core.quota import Period
from slurm_ltgf.core.quota_plan import plan
from slurm_ltgf.core.quota_wanted import Plan, Wanted
from slurm_ltgf.service.quota import QuotaEdges, enforced, period_notes
from slurm_ltgf.service.quota_apply import Hands
from slurm_ltgf.service.quota_period import half_life_of, kind_of, period_of
from slurm_ltgf.service.quota_wanted import newcomers, rules_of, sum_of, wanted_of
from slurm_ltgf.slurm.budgets import Counted
from slurm_ltgf.slurm.jobs import QueueJob
from slurm_ltgf.slurm.site import Site
from slurm_ltgf.store.ledger import Ledger
from slurm_ltgf.store.quota_file import QuotaFile

SHOWN = 8


@dataclass(frozen=True, slots=True)
class Look:
    """A file against a cluster. credits_min: of the period, by account. book: what is there."""

    file: QuotaFile
    book: Book
    wanted: Wanted
    plan: Plan
    credits_min: Mapping[str, int] = field(default_factory=dict)


def credits_of(
    file: QuotaFile, ledger: Ledger | None, site: Site, cluster: str, *, now: int
) -> dict[str, int]:
    """Credits less debits of the period, in GPU-minutes, by account."""
    period = file_period(file, site, now=now)
    return sum_of(ledger.credits(cluster, period.start)) if ledger is not None else {}


def file_period(file: QuotaFile, site: Site, *, now: int) -> Period:
    """The period that budgets are for: the file's, else Slurm's."""
    own = file.budgets.period
    kind = kind_of(site) if own == "slurm" else own
    return period_of(kind, now, half_life_s=half_life_of(site))


def look(file: QuotaFile, hands: Hands, credits_min: Mapping[str, int]) -> Look:
    """Read what is there, and plan.

    Raises:
        SlurmUnavailable, SlurmRefused, InputError: sacctmgr failed.
    """
    book = hands.read()
    wanted = wanted_of(file, book, credits_min)
    return Look(file, book, wanted, plan(wanted, book), credits_min)


def notes_of(
    seen: Look, edges: QuotaEdges, billing: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    """What must be known before the plan is made, a sentence each.

    Args:
        billing: partition -> its TRESBillingWeights.
    """
    queue, counters = edges.queue(), edges.counted()
    return (
        *period_notes(edges.site, rules_of(seen.file, {})),
        *_billing_notes(seen.file, seen.book, edges.site, billing),
        *_endangered(seen.plan.changes, edges.site, queue.holding, counters, seen.book),
        *_hindered(seen.plan.changes, queue.holding),
        *_left_alone(seen.file, seen.book),
    )


def _billing_notes(
    file: QuotaFile, book: Book, site: Site, billing: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Partitions whose TRESBillingWeights do not count GPUs as the file's factors do."""
    if not file.budgets.gpu_factors:
        return
    want = billing_weights(file, book.tres, is_max="MAX_TRES" in site.priority_flags)
    text = ",".join(f"GRES/{name.removeprefix('gres/')}={v:g}" for name, v in want.items())
    for name, weights in sorted(billing.items()):
        have = {tres: _number(value) for tres, value in weights.items()}
        names = {*(tres.lower() for tres in want), *have}
        lower = {tres.lower(): value for tres, value in want.items()}
        if not all(math.isclose(have.get(t, 0), lower.get(t, 0), abs_tol=1e-9) for t in names):
            yield (
                f"partition {name} does not count GPUs as gpu_factors says: budgets are wrong "
                f'until it has TRESBillingWeights="{text}" at PartitionName={name} in slurm.conf'
            )


def billing_weights(file: QuotaFile, tres: Iterable[str], *, is_max: bool) -> dict[str, float]:
    """TRESBillingWeights by which a GPU of factor 1 is billing_per_gpu.

    A GPU that is allocated counts as gres/gpu and as its type, so the two weights add up (is_max:
    PriorityFlags=MAX_TRES, the larger counts). The untyped one must not be 0: a job that asks for
    no type would ask for no billing, start beyond its budget, and be ended at once.
    """
    budgets, start = file.budgets, f"{GPU}:"
    types = sorted(name for name in tres if name.startswith(start))
    factors = {kind.lower(): factor for kind, factor in budgets.gpu_factors.items()}
    found = {GPU: 1.0}
    for name in types:
        units = factors.get(name.removeprefix(start).lower(), 1.0) * budgets.billing_per_gpu
        found[name] = units if is_max else max(units - 1, 0.0)
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _endangered(
    changes: Iterable[Change],
    site: Site,
    running: Iterable[QueueJob],
    counters: Mapping[str, Counted],
    book: Book,
) -> Iterator[str]:
    """Accounts whose new budget is used already: Slurm ends what runs there."""
    if "limits" not in enforced(site) or "safe" in enforced(site):
        return
    jobs = list(running)
    for change in changes:
        used = counters[change.account].used if change.account in counters else {}
        over = [
            s.tres
            for s in change.settings
            if s.option == "GrpTRESMins" and s.new and used.get(s.tres, 0) >= int(s.new)
        ]
        below = [job for job in jobs if change.account in _path(job.account, book)]
        if over and below:
            yield (
                f"account {change.account}: the new limit of {over[0]} is used already "
                f"({used.get(over[0], 0)} min): Slurm will end its running jobs, "
                f"{_named(job.shown_id or str(job.job_id) for job in below)}"
            )


def _path(account: str, book: Book) -> list[str]:
    path = [account]
    while path[-1] in book.accounts and (parent := book.parent(path[-1])):
        path.append(parent)
    return path


def _hindered(changes: Iterable[Change], running: Iterable[QueueJob]) -> Iterator[str]:
    """Removals that sacctmgr refuses while jobs run."""
    jobs = list(running)
    for change in changes:
        if change.kind not in ("remove user", "remove account"):
            continue
        mine = [
            job.shown_id or str(job.job_id)
            for job in jobs
            if job.account == change.account and change.user in ("", job.user)
        ]
        if mine:
            yield f"{change.target}: blocked by job {_named(mine)}, until it has ended"


def _left_alone(file: QuotaFile, book: Book) -> Iterator[str]:
    """Accounts that the file says nothing of."""
    known = {ROOT, *file.accounts, *file.budgets.exempt}
    if file.defaults is not None:
        known |= set(newcomers(file, book))
    rest = sorted(book.accounts.keys() - known)
    if rest:
        yield f"not in {file.name}, and left alone: {_named(rest)}"


def _named(names: Iterable[str]) -> str:
    some = list(names)
    more = f" and {len(some) - SHOWN} more" if len(some) > SHOWN else ""
    return ", ".join(some[:SHOWN]) + more
