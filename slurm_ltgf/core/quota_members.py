"""Users that join accounts and leave them, and the default accounts between.

sacctmgr refuses to take a user from an account that is the user's default (24.11; in 22.05
the user is left without one), so defaults change after users join and before they leave, and who
leaves all accounts leaves the default last.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurm_ltgf.core.accounts import Book, Change, Setting, UserRow
from slurm_ltgf.core.quota_wanted import Wanted, WantedAccount


def memberships(accounts: list[WantedAccount], wanted: Wanted, book: Book) -> list[Change]:
    """Changes of who is in which account, in their order.

    Args:
        accounts: those of `wanted` that can be.
    """
    joining: list[UserRow] = []
    leaving: set[tuple[str, str]] = set()
    for account in accounts:
        have = book.members(account.name)
        users = frozenset[str]() if account.absent else account.users
        if users is None:
            continue
        known = {_as_known(user, book) for user in users}
        for user in sorted(known - have):
            joining += _rows(account.name, user, wanted.restore)
        leaving |= {(account.name, user) for user in have - known}
    joined = {(row.account, row.user) for row in joining}
    gone = {account.name for account in accounts if account.absent}
    lost = wanted.restore.coordinators - book.coordinators
    idle = {pair for pair in book.coordinators if pair[0] in gone}
    defaults = list(_defaults(joined, leaving, wanted, book))
    last = {**book.defaults, **{change.user: change.account for change in defaults}}
    leaves = sorted(leaving, key=lambda pair: (last.get(pair[1]) == pair[0], pair))
    return [
        *(_joined(row) for row in sorted(joining, key=lambda row: (row.account, row.user))),
        *(Change("add coordinator", account, user) for account, user in sorted(lost & joined)),
        *(Change("remove coordinator", account, user) for account, user in sorted(idle)),
        *defaults,
        *(Change("remove user", account, user) for account, user in leaves),
    ]


def _as_known(user: str, book: Book) -> str:
    """The user as sacctmgr has the name: it may have made it lower case."""
    known = {row.user for row in book.users}
    return user.lower() if user not in known and user.lower() in known else user


def _rows(account: str, user: str, restore: Book) -> list[UserRow]:
    """What a user who joins gets: what is to be restored, or a plain association.

    sacctmgr lists the one that was added last first, so the last is added first.
    """
    rows = [row for row in reversed(restore.users) if (row.account, row.user) == (account, user)]
    return rows or [UserRow(account, user)]


def _joined(row: UserRow) -> Change:
    settings = tuple(Setting(option, new=value) for option, value in row.options)
    return Change("add user", row.account, row.user, row.partition, settings=settings)


def _defaults(
    joined: set[tuple[str, str]], leaving: set[tuple[str, str]], wanted: Wanted, book: Book
) -> Iterator[Change]:
    """Default accounts to set: those wanted, and those of users who leave their default."""
    for user in sorted({user for _, user in leaving} | wanted.defaults.keys()):
        before = book.accounts_of(user)
        new = {account for account, name in joined if name == user}
        after = (before | new) - {account for account, name in leaving if name == user}
        have = book.defaults.get(user, "")
        if not have and not before:
            have = min(new, default="")  # sacctmgr makes the first one the default
        should = wanted.defaults.get(user, have)
        if should not in after:
            should = min(after, default="")
        if should and should != have:
            setting = Setting("DefaultAccount", old=have, new=should)
            yield Change("set default", should, user, settings=(setting,))
