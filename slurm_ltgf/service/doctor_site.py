"""The doctor's checks of what is there: settings, accounts, rights, names, jobs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from slurm_ltgf.service.doctor_facts import TOML, Facts, Finding
from slurm_ltgf.service.terms import tenancy_of

#: Names that a line shows before it says how many more there are.
SHOWN = 6


def settings(facts: Facts) -> Finding:
    """ltgf.toml can be read."""
    if facts.config_error:
        return Finding(
            "fix", "settings", f"{facts.config_error}; defaults were taken for these checks"
        )
    if not facts.has_settings:
        init = "ltgf init -o /etc/ltgf/ltgf.toml"
        return Finding("note", "settings", "no file: the defaults hold", init)
    return Finding("ok", "settings", "readable")


def accounts(facts: Facts) -> Finding:
    """There is somebody to be fair to."""
    if unknown := facts.not_checked("accounts", "accounts"):
        return unknown
    known = facts.accounts or ()
    excluded = {name.lower() for name in facts.config.fairness.exclude_accounts}
    used = [a.name for a in known if a.user_shares and a.name not in excluded]
    if not used:
        return Finding(
            "fix",
            "accounts",
            "no account has users: there are no tenants",
            "sacctmgr -i add account NAME fairshare=1\n"
            "sacctmgr -i add user LOGIN account=NAME fairshare=1",
        )
    return Finding("ok", "accounts", f"{len(known)}, {len(used)} of them with users")


def zero_weight(facts: Facts) -> Finding:
    """A tenant of weight 0 gets only what others leave: that should be meant."""
    if unknown := facts.not_checked("zero-weight", "accounts"):
        return unknown
    known = facts.accounts or ()
    tenancy = tenancy_of(facts.config, known)
    with_users = {tenancy.tenant_of(a.name) for a in known if a.user_shares}
    unnoticed = with_users - set(tenancy.given)
    found = [t.name for t in tenancy.tenants() if t.weight == 0 and t.name in unnoticed]
    if not found:
        return Finding("ok", "zero-weight", "every tenant with users has a weight")
    return Finding(
        "note",
        "zero-weight",
        f"{named(found)}: users, but weight 0 (Fairshare 0): only what others leave",
        f"sacctmgr -i modify account {shlex.quote(found[0])} set fairshare=1  # if not meant",
    )


def parent_shares(facts: Facts) -> Finding:
    """An account with Fairshare=parent is transparent, which surprises."""
    if unknown := facts.not_checked("parent-shares", "accounts"):
        return unknown
    found = [a.name for a in facts.accounts or () if a.shares is None]
    if not found:
        return Finding("ok", "parent-shares", "no account has Fairshare=parent")
    return Finding(
        "note",
        "parent-shares",
        f"{named(found)}: Fairshare=parent, so the account is transparent: its users (as one) and"
        " its sub-accounts compete at its parent's level with their own shares",
    )


def named_accounts(facts: Facts) -> Finding:
    """Accounts that the settings name exist."""
    if unknown := facts.not_checked("named-accounts", "accounts"):
        return unknown
    known = {a.name for a in facts.accounts or ()}
    fairness = facts.config.fairness
    excluded = missing(fairness.exclude_accounts, known)
    weighed = missing(fairness.weights, known)
    if excluded:
        kept = [name for name in fairness.exclude_accounts if name not in excluded]
        return Finding(
            "fix",
            "named-accounts",
            f"fairness.exclude_accounts names {named(excluded)}, which Slurm does not have",
            f"exclude_accounts = {_toml(kept)}  # {TOML} [fairness]",
        )
    if weighed:
        return Finding(
            "note",
            "named-accounts",
            f"fairness.weights names {named(weighed)}, which Slurm does not have:"
            " a weight for nobody, unless past jobs ran there",
        )
    return Finding("ok", "named-accounts", "the accounts that ltgf.toml names exist")


def partitions(facts: Facts) -> Finding:
    """Partitions that the settings name exist, and priority decides between them."""
    if unknown := facts.not_checked("partitions", "partitions"):
        return unknown
    there = {p.name: p for p in facts.partitions or ()}
    wanted = facts.config.site.partitions
    gone = [name for name in wanted if name not in there]
    if gone:
        kept = [name for name in wanted if name in there]
        return Finding(
            "fix",
            "partitions",
            f"site.partitions names {named(gone)}, which Slurm does not have"
            f" (it has {named(there)})",
            f"partitions = {_toml(kept)}  # {TOML} [site]",
        )
    managed = [there[name] for name in wanted or there]
    tiers = {p.priority_tier for p in managed}
    if len(tiers) > 1:
        shown = ", ".join(f"{p.name} {p.priority_tier}" for p in managed)
        return Finding(
            "note",
            "partitions",
            f"PriorityTier differs ({shown}): a higher tier goes first whatever the SiteFactors",
        )
    return Finding("ok", "partitions", named(p.name for p in managed))


def rights(facts: Facts) -> Finding:
    """SiteFactor is root's, SlurmUser's and operators' to write."""
    may = facts.may_write
    if may:
        level = f", AdminLevel {facts.admin_level}" if facts.admin_level else ""
        return Finding("ok", "rights", f"{facts.user}{level} may write SiteFactors")
    if may is None:
        return facts.not_checked("rights", "admin_level") or Finding("note", "rights", "not known")
    user = shlex.quote(facts.user)
    command = (
        f"sacctmgr -i modify user where name={user} set adminlevel=operator"
        if facts.admin_level
        else f"sacctmgr -i add user {user} account=root adminlevel=operator"
    )
    return Finding(
        "fix",
        "rights",
        f"{facts.user} may not write SiteFactors: not root, not SlurmUser"
        f" ({facts.site.slurm_user}), AdminLevel {facts.admin_level or 'none'}",
        f"{command}  # or run ltgf as {facts.site.slurm_user}",
    )


def private_data(facts: Facts) -> Finding:
    """Where Slurm hides data, only an operator sees all of it."""
    hidden = facts.site.get("PrivateData", "none")
    if hidden == "none" or facts.may_write:
        return Finding("ok", "private-data", "this user sees all jobs and accounts")
    return Finding(
        "note",
        "private-data",
        f"PrivateData={hidden}: {facts.user} sees only a part of the site, and so do these checks",
    )


def frozen_jobs(facts: Facts) -> Finding:
    """SiteFactor does not move a job whose priority was set by hand."""
    if unknown := facts.not_checked("frozen-jobs", "priorities"):
        return unknown
    found = sorted(facts.priorities.frozen) if facts.priorities is not None else []
    if not found:
        return Finding("ok", "frozen-jobs", "no pending job has a priority set by hand")
    return Finding(
        "note",
        "frozen-jobs",
        f"{len(found)} pending with a priority set by hand, which SiteFactor does not move:"
        f" {named(map(str, found))}",
        f"scontrol release {','.join(map(str, found[:100]))}  # gives them back to Slurm",
    )


def held_jobs(facts: Facts) -> Finding:
    """Held jobs are nobody's turn."""
    if unknown := facts.not_checked("held-jobs", "queue"):
        return unknown
    held = [job for job in facts.queue.jobs if job.is_held] if facts.queue is not None else []
    if not held:
        return Finding("ok", "held-jobs", "none")
    return Finding(
        "note",
        "held-jobs",
        f"{len(held)} held, not in the order until released:"
        f" {named(job.shown_id or str(job.job_id) for job in held)}",
    )


def named(names: Iterable[str]) -> str:
    """A few names, and how many more.

    >>> named("abcdefgh"), named([])
    ('a, b, c, d, e, f and 2 more', 'none')
    """
    known = list(names)
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return ", ".join(known[:SHOWN]) + more if known else "none"


def missing(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names, in any case, that are not known."""
    there = {name.lower() for name in known}
    return [name for name in names if name.lower() not in there]


def _toml(names: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
