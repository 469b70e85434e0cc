"""The doctor's checks of our own side: the ledger, how far it goes, and who works on it."""

from __future__ import annotations

import shlex

from slurm_ltgf.service.doctor_facts import Facts, Finding

#: History that is this much older than a daemon's interval is not up to date.
LATE_S = 600


def ledger(facts: Facts) -> Finding:
    """This user can read the ledger and write it; none at all is where everybody begins."""
    found = facts.ledger
    user = shlex.quote(facts.user)
    directory = shlex.quote(str(found.path.absolute().parent))
    make = f"install -d -m 750 -o {user} {directory}  # as root"
    if found.exists and found.unreadable:
        owner = shlex.quote(facts.site.slurm_user or "root")
        again = f"sudo -u {owner} ltgf doctor  # or another user whom the ledger is open to"
        return Finding("fix", "ledger", found.unreadable, again if found.closed else "")
    if not found.exists and found.unwritable:
        return Finding("fix", "ledger", f"{found.path}: none, and {found.unwritable}", make)
    if not found.exists:
        return Finding("note", "ledger", f"{found.path}: none yet, it can be made", "ltgf sync")
    if found.unwritable:
        return Finding(
            "note",
            "ledger",
            f"{found.path}: {facts.user} can read it, but {found.unwritable}:"
            " sync, tick and daemon need another user",
        )
    return Finding("ok", "ledger", f"{found.path}: readable and writable")


def history(facts: Facts) -> Finding:
    """How far the history goes; a daemon that runs must keep it up to date."""
    found = facts.ledger
    if unknown := _no_ledger("history", facts):
        return unknown
    if found.until is None:
        return Finding("note", "history", f"of cluster {facts.cluster}: none yet", "ltgf sync")
    age_s = max(facts.now - found.until, 0)
    if age_s <= LATE_S + facts.config.daemon.interval_s:
        return Finding("ok", "history", f"complete up to {span(age_s)} ago")
    if found.holder:
        return Finding(
            "fix",
            "history",
            f"complete only up to {span(age_s)} ago though process {found.holder} is at work:"
            " it does not get on",
            "systemctl restart ltgf  # its log says what is wrong: journalctl -u ltgf",
        )
    return Finding("note", "history", f"complete only up to {span(age_s)} ago", "ltgf sync")


def skipped_rows(facts: Facts) -> Finding:
    """Rows that could not be read are in no sum."""
    found = facts.ledger
    if unknown := _no_ledger("skipped-rows", facts):
        return unknown
    if not found.skipped:
        return Finding("ok", "skipped-rows", "none in the last read of each source")
    return Finding(
        "note",
        "skipped-rows",
        f"{found.skipped} rows of history could not be read and are in no sum, first:"
        f" {found.first_skipped}",
        "ltgf fairness --json  # lists them under skipped",
    )


def daemon(facts: Facts) -> Finding:
    """Without a daemon priorities stay as the last pass left them."""
    holder = facts.ledger.holder
    if holder is None:
        return Finding("note", "daemon", f"not checked: {facts.ledger.path}.lock is closed to us")
    if holder:
        return Finding("ok", "daemon", f"process {holder} holds {facts.ledger.path}.lock")
    return Finding(
        "note",
        "daemon",
        "none holds the ledger's lock: priorities stay as the last pass left them",
        "systemctl enable --now ltgf  # or: ltgf daemon, as SlurmUser",
    )


def _no_ledger(name: str, facts: Facts) -> Finding | None:
    if not facts.ledger.exists:
        return Finding("ok", name, "no ledger yet")
    if facts.ledger.unreadable:
        return Finding("note", name, "not checked: the ledger cannot be read")
    return None


def span(seconds: int) -> str:
    """A duration in its largest whole unit.

    >>> span(59), span(61), span(7200), span(3 * 86400)
    ('59 s', '1 min', '2 h', '3 d')
    """
    size, unit = next(
        (pair for pair in ((86400, "d"), (3600, "h"), (60, "min")) if seconds >= pair[0]), (1, "s")
    )
    return f"{seconds // size} {unit}"
