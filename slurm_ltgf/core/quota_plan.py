"""The changes that lead from what sacctmgr has to what is wanted, in an order that it takes.

1. Accounts are added and moved from the root down, so that a parent is in its last place before a
   child comes below it, and no account is ever put below itself.
2. Values are set: Fairshare, limits of GPUs. A TRES that is not ours is never named.
3. Users join accounts, then default accounts change, then users leave.
4. Accounts are removed from the leaves up: sacctmgr would take everything below along.

What cannot be is refused by name, with what to do; the rest of the plan stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurm_ltgf.core.accounts import Book, Change, QosRow, Setting, is_ours
from slurm_ltgf.core.quota_members import memberships
from slurm_ltgf.core.quota_places import Places, places
from slurm_ltgf.core.quota_wanted import KEEP, Keep, Plan, Refusal, Wanted, WantedAccount


def plan(wanted: Wanted, book: Book) -> Plan:
    """What to change, in order; made and read again, the next plan is empty.

    Args:
        book: what sacctmgr has.
    """
    tree = places(wanted, book)
    able = [account for account in wanted.accounts if tree.admits(account.name)]
    able.sort(key=lambda account: (tree.depth(account.name), account.name))
    kept = [account for account in able if not account.absent]
    changes = [
        *(change for account in kept for change in _add_or_move(account, tree, wanted, book)),
        *(change for account in kept for change in _set(account, book)),
        *memberships(able, wanted, book),
        *_removals([account.name for account in able if account.absent], book),
    ]
    for row in sorted(wanted.qos, key=lambda row: row.name):
        if f"QOS {row.name}" not in tree.refused:
            changes += _set_qos(row, book.qos[row.name])
    refused = (Refusal(target, why) for target, why in sorted(tree.refused.items()))
    return Plan(tuple(changes), tuple(refused))


def _add_or_move(
    account: WantedAccount, tree: Places, wanted: Wanted, book: Book
) -> Iterator[Change]:
    name, parent = account.name, tree.parents.get(account.name, "")
    if name not in book.accounts:
        settings = (Setting("Parent", new=parent), *_new_values(account, wanted.restore))
        yield Change("add account", name, settings=settings)
    elif parent != book.parent(name):
        move = Setting("Parent", old=book.parent(name), new=parent)
        yield Change("move account", name, settings=(move,))


def _new_values(account: WantedAccount, restore: Book) -> Iterator[Setting]:
    row = restore.accounts.get(account.name)
    if row is not None:
        yield Setting("Fairshare", new=share_text(row.share))
        yield from (Setting(option, new=value) for option, value in row.options)
        return
    if account.share != KEEP:
        yield Setting("Fairshare", new=share_text(account.share))
    yield from _limits("GrpTRES", {}, account.gpus)
    yield from _limits("GrpTRESMins", {}, account.minutes)


def _set(account: WantedAccount, book: Book) -> Iterator[Change]:
    row = book.accounts.get(account.name)
    if row is None:
        return
    settings = [
        *_limits("GrpTRES", row.gpus, account.gpus),
        *_limits("GrpTRESMins", row.minutes, account.minutes),
    ]
    if account.share != KEEP and account.share != row.share:
        old, new = share_text(row.share), share_text(account.share)
        settings.insert(0, Setting("Fairshare", old=old, new=new))
    if settings:
        yield Change("set account", account.name, settings=tuple(settings))


def _removals(gone: list[str], book: Book) -> Iterator[Change]:
    there = [name for name in gone if name in book.accounts]
    for name in sorted(there, key=lambda name: (-book.depth(name), name)):
        yield Change("remove account", name)


def _set_qos(wanted: QosRow, row: QosRow) -> Iterator[Change]:
    settings = [
        *_limits("GrpTRES", row.gpus, wanted.gpus),
        *_limits("GrpTRESMins", row.minutes, wanted.minutes),
    ]
    if wanted.no_decay != row.no_decay:
        old, new = ("", "NoDecay") if wanted.no_decay else ("NoDecay", "")
        settings.append(Setting("Flags", "NoDecay", old, new))
    if settings:
        yield Change("set qos", qos=wanted.name, settings=tuple(settings))


def _limits(option: str, old: Mapping[str, int], new: Mapping[str, int] | Keep) -> list[Setting]:
    """Limits of ours that differ, by TRES; new "": none."""
    if new == KEEP:
        return []
    names = sorted(name for name in {*old, *new} if is_ours(name))
    return [
        Setting(option, name, _number(old.get(name)), _number(new.get(name)))
        for name in names
        if old.get(name) != new.get(name)
    ]


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def share_text(share: int | None) -> str:
    """Fairshare as sacctmgr takes it."""
    return "parent" if share is None else str(share)
