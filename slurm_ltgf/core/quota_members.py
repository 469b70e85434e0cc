"""Users that join accounts and leave them, and the default accounts between.

sacctmgr refuses to take a user from an account that is the user's default (24.11; in 22.05
the user is left without one), so defaults change after users join and before they leave, and who
leaves all accounts leaves the default last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from slurm_ltgf.core.accounts import Book, Change, Setting, UserRow
from slurm_ltgf.core.quota_wanted import Wanted, WantedAccount

#: (account, user)
Pair = tuple[str, str]


def memberships(accounts: list[WantedAccount], wanted: Wanted, book: Book) -> list[Change]:
    """Changes of who is in which account, in their order.

    Args:
        accounts: those of `wanted` that can be.
    """
    members = _by_first((row.account, row.user) for row in book.users)
    known = frozenset(row.user for row in book.users)
    joining: set[Pair] = set()
    leaving: set[Pair] = set()
    for account in accounts:
        users = frozenset[str]() if account.absent else account.users
        if users is not None:
            have, name = members[account.name], account.name
            should = {_as_known(user, known) for user in users}
            joining |= {(name, user) for user in should - have}
            leaving |= {(name, user) for user in have - should}
    gone = {account.name for account in accounts if account.absent}
    lost = wanted.restore.coordinators - book.coordinators
    idle = {pair for pair in book.coordinators if pair[0] in gone}
    defaults = list(_defaults(joining, leaving, wanted, book))
    last = {**book.defaults, **{change.user: change.account for change in defaults}}
    leaves = sorted(leaving, key=lambda pair: (last.get(pair[1]) == pair[0], pair))
    return [
        *_joins(joining, wanted.restore),
        *(Change("add coordinator", account, user) for account, user in sorted(lost & joining)),
        *(Change("remove coordinator", account, user) for account, user in sorted(idle)),
        *defaults,
        *(Change("remove user", account, user) for account, user in leaves),
    ]


def _by_first(pairs: Iterable[Pair]) -> defaultdict[str, set[str]]:
    """First -> all its seconds."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for first, second in pairs:
        found[first].add(second)
    return found


def _as_known(user: str, known: frozenset[str]) -> str:
    """The user as sacctmgr has the name: it may have made it lower case."""
    return user.lower() if user not in known and user.lower() in known else user


def _joins(joining: set[Pair], restore: Book) -> Iterator[Change]:
    """What users who join get: what is to be restored, or a plain association.

    sacctmgr lists the one that was added last first, so the last is added first.
    """
    kept: defaultdict[Pair, list[UserRow]] = defaultdict(list)
    for row in reversed(restore.users):
        kept[row.account, row.user].append(row)
    for pair in sorted(joining):
        for row in kept.get(pair, [UserRow(*pair)]):
            settings = tuple(Setting(option, new=value) for option, value in row.options)
            yield Change("add user", row.account, row.user, row.partition, settings=settings)


def _defaults(
    joining: set[Pair], leaving: set[Pair], wanted: Wanted, book: Book
) -> Iterator[Change]:
    """Default accounts to set: those wanted, and those of users who leave their default."""
    now = _by_first((row.user, row.account) for row in book.users)
    joined = _by_first((user, account) for account, user in joining)
    left = _by_first((user, account) for account, user in leaving)
    for user in sorted(left.keys() | wanted.defaults.keys()):
        before, new = now[user], joined[user]
        after = (before | new) - left[user]
        have = book.defaults.get(user, "")
        if not have and not before:
            have = min(new, default="")  # sacctmgr makes the first one the default
        should = wanted.defaults.get(user, have)
        if should not in after:
            should = min(after, default="")
        if should and should != have:
            setting = Setting("DefaultAccount", old=have, new=should)
            yield Change("set default", should, user, settings=(setting,))
