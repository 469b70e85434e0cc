"""Where each account belongs in the tree that is wanted, and what cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_ltgf.core.accounts import ROOT, Book, QosRow
from slurm_ltgf.core.quota_wanted import KEEP, Keep, Wanted, WantedAccount, takes


@dataclass(frozen=True, slots=True)
class Places:
    """The tree to be. parents: account -> the one above. refused: target -> why."""

    parents: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def admits(self, account: str) -> bool:
        """Whether what is wanted of an account can be."""
        return f"account {account}" not in self.refused

    def depth(self, account: str) -> int:
        """Steps below the root."""
        depth = 0
        while account := self.parents.get(account, ""):
            depth += 1
        return depth


def places(wanted: Wanted, book: Book) -> Places:
    """Place every account; refuse by name what has no place, and leave that as it is."""
    found = Places()
    for account in wanted.accounts:
        if why := _odd_account(account) or _untracked(book, account.gpus, account.minutes):
            found.refused[f"account {account.name}"] = why
    for row in wanted.qos:
        if why := _odd_qos(row, book) or _untracked(book, row.gpus, row.minutes):
            found.refused[f"QOS {row.name}"] = why
    _place(found, wanted, book)
    return found


def _odd_account(account: WantedAccount) -> str:
    """Why an account cannot be wanted so; "": it can."""
    names = [account.name, *sorted(account.users or ())]
    if account.parent != KEEP:
        names.append(account.parent)
    odd = next((name for name in names if not takes(name)), None)
    if odd is not None:
        return (
            f"sacctmgr does not take the name {odd!r} for what it is (commas, brackets, quotes, "
            "bars, backslashes, control characters, a sign or blank in front)"
        )
    if account.name == ROOT and (account.absent or account.parent != KEEP):
        return "the root can be neither moved nor removed"
    return "cannot be absent and have users" if account.absent and account.users else ""


def _odd_qos(row: QosRow, book: Book) -> str:
    if not takes(row.name):
        return "sacctmgr does not take this name for what it is"
    return "" if row.name in book.qos else f"there is none: sacctmgr add qos {row.name}"


def _untracked(book: Book, *parts: Mapping[str, int] | Keep) -> str:
    names = {name for part in parts if part != KEEP for name in part}
    lost = sorted(names - book.tres)
    if not lost:
        return ""
    return f"{lost[0]} is not in AccountingStorageTRES: add it in slurm.conf, restart slurmctld"


def _place(found: Places, wanted: Wanted, book: Book) -> None:
    """Fill `parents`; what turns out to have no place is refused and stays where it is."""
    known = -1
    while known != len(found.refused):
        known = len(found.refused)
        gone = {a.name for a in wanted.accounts if a.absent and found.admits(a.name)}
        found.parents.clear()
        found.parents.update(_parents(found, wanted, book, gone))
        for name in sorted(found.parents):
            if why := _lost(name, found.parents, book):
                found.refused.setdefault(f"account {name}", why)
        for name in sorted(gone & book.accounts.keys()):
            if below := sorted(n for n, parent in found.parents.items() if parent == name):
                found.refused[f"account {name}"] = (
                    f"cannot be removed: {', '.join(below)} would still be below it; say where "
                    "each goes (parent), or that it is absent too"
                )


def _parents(found: Places, wanted: Wanted, book: Book, gone: set[str]) -> dict[str, str]:
    """The tree as wanted, without those gone; refused accounts as they are."""
    parents = {name: book.parent(name) for name in book.accounts if name not in gone}
    parents.setdefault(ROOT, "")
    for account in wanted.accounts:
        if found.admits(account.name) and account.name not in {*gone, ROOT}:
            here = parents.get(account.name, ROOT)
            parents[account.name] = here if account.parent == KEEP else account.parent
    return parents


def _lost(name: str, parents: Mapping[str, str], book: Book) -> str:
    """Why an account that is to be made or moved has no place; "": it has one."""
    parent = parents[name]
    if name == ROOT or (name in book.accounts and parent == book.parent(name)):
        return ""
    if parent not in parents:
        return f"its parent {parent} is not there and will not be"
    path = [name]
    while parent and parent not in path:
        path.append(parent)
        parent = parents.get(parent, "")
    return f"would be below itself: {' > '.join([*path, parent])}" if parent else ""
