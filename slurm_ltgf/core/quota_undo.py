"""The way back from a plan: what the rows that it touches were, and what leads there again.

Going back is a plan too, from whatever is there then to what was: it does not matter how far the
first plan came, and a second time there is nothing left to do.
"""

from __future__ import annotations

from collections.abc import Iterable

from slurm_ltgf.core.accounts import Book, Undo
from slurm_ltgf.core.quota_wanted import KEEP, Plan, Wanted, WantedAccount


def of_plan(plan: Plan, book: Book) -> Undo:
    """What to keep before a plan is made.

    Args:
        book: what the plan was made from.
    """
    accounts = {change.account for change in plan.changes if change.account}
    users = {change.user for change in plan.changes if change.user}
    members = {c.account for c in plan.changes if c.kind in ("add user", "remove user")}
    qos = {change.qos for change in plan.changes if change.qos}
    before = Book(
        {name: row for name, row in book.accounts.items() if name in accounts},
        tuple(row for row in book.users if row.account in members),
        book.defaults,
        frozenset(pair for pair in book.coordinators if pair[0] in accounts),
        {name: row for name, row in book.qos.items() if name in qos},
        book.tres,
    )
    defaults = {user: book.defaults.get(user, "") for user in sorted(users)}
    return Undo(before, frozenset(accounts - before.accounts.keys()), frozenset(members), defaults)


def going_back(undo: Undo) -> Wanted:
    """What was, as what is wanted."""
    there = [
        WantedAccount(
            name,
            row.parent or KEEP,
            row.share,
            row.gpus,
            row.minutes,
            undo.before.members(name) if name in undo.members else None,
        )
        for name, row in sorted(undo.before.accounts.items())
    ]
    made: Iterable[WantedAccount] = (WantedAccount(name, absent=True) for name in sorted(undo.made))
    qos = tuple(row for _, row in sorted(undo.before.qos.items()))
    defaults = {user: account for user, account in undo.defaults.items() if account}
    return Wanted((*there, *made), qos, defaults, undo.before)
