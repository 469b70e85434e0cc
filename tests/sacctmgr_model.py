"""A model of what `sacctmgr -i` does to accounts and users, by its arguments: 22.05's rules.

tests/cluster/test_quota_live.py runs the same calls on a real one and compares. What sacctmgr
refuses raises `Refused`; a call that the model does not know fails the test.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slurm_ltgf.core.accounts import ROOT, AccountRow, Book, Change, QosRow, UserRow
from slurm_ltgf.service.quota_apply import Hands
from slurm_ltgf.slurm.accounts_book import ours
from slurm_ltgf.slurm.budgets import tres_counts
from slurm_ltgf.slurm.sacctmgr import Outcome, argv


class Refused(Exception):
    """sacctmgr says no; jobs: those that run and hinder it."""

    def __init__(self, why: str, jobs: tuple[int, ...] = ()) -> None:
        super().__init__(why)
        self.jobs = jobs


@dataclass
class Sacctmgr:
    """One cluster's associations. running: (account, user) -> job ids that run."""

    accounts: dict[str, AccountRow] = field(default_factory=lambda: {ROOT: AccountRow(ROOT, "")})
    users: dict[tuple[str, str, str], UserRow] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    qos: dict[str, QosRow] = field(default_factory=dict)
    tres: frozenset[str] = frozenset()
    running: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    keeps_defaults: bool = False

    @staticmethod
    def of(book: Book, **more) -> Sacctmgr:
        users = {(row.account, row.user, row.partition): row for row in book.users}
        return Sacctmgr(
            dict(book.accounts), users, dict(book.defaults), dict(book.qos), book.tres, **more
        )

    def book(self) -> Book:
        """What a dump would tell."""
        accounts = {name: as_dumped(row) for name, row in self.accounts.items()}
        users = tuple(sorted(self.users.values()))
        defaults = {u: a for u, a in self.defaults.items() if any(r.user == u for r in users)}
        return Book(accounts, users, defaults, frozenset(), dict(self.qos), self.tres)

    def call(self, argv: list[str]) -> None:
        """One transaction: all of it or, where it is refused, nothing."""
        assert argv[:2] == ["sacctmgr", "-i"], argv
        verb, what, *rest = argv[2:]
        words = [word.partition("=")[::2] for word in rest if word not in ("where", "set")]
        assert all(value for _, value in words), argv
        place = {key: value for key, value in words if key in PLACES}
        assert place.get("cluster", "c") == "c"
        values = [(key, value) for key, value in words if key not in PLACES]
        getattr(self, f"_{verb}_{what}")(place, values)

    def hands(self, cluster: str = "c") -> Hands:
        """As what plans are made with."""
        return Hands(cluster, self.book, self._write)

    def _write(self, change: Change) -> Outcome:
        try:
            self.call(argv(change, "c"))
        except Refused as exc:
            return Outcome(tuple(str(job) for job in exc.jobs), str(exc))
        return Outcome()

    # --- accounts ---------------------------------------------------------------------------------

    def _add_account(self, place, values):
        name, parent = place["name"], place["Parent"]
        need(name not in self.accounts, "Nothing new added.")
        need(parent in self.accounts, f"Parent account {parent!r} doesn't exist")
        self.accounts[name] = self._changed(AccountRow(name, parent), values)

    def _modify_account(self, place, values):
        name = place["name"]
        need(name in self.accounts, "Nothing modified")
        row = self._changed(self.accounts[name], values)
        if "Parent" in place:
            parent = place["Parent"]
            need(parent in self.accounts and parent != name, "Nothing modified")
            assert name not in self._path(parent), f"{parent} would silently be moved up"
            row = replace(row, parent=parent)
        self.accounts[name] = row

    def _delete_account(self, place, values):
        assert not values
        name = place["name"]
        need(name in self.accounts and name != ROOT, "Nothing deleted")
        below = {other for other in self.accounts if name in self._path(other)}
        assert below == {name}, f"{below} would silently go along"
        mine = [key for key in self.users if key[0] == name]
        assert not [key for key in mine if not self.running.get(key[:2])], "users would go along"
        need(not mine, *active(job for key in mine for job in self.running[key[:2]]))
        del self.accounts[name]

    def _changed(self, row, values):
        for option, value in values:
            if option == "Fairshare":
                row = replace(row, share=None if value == "parent" else int(value))
            elif option in ("GrpTRES", "GrpTRESMins"):
                which = "gpus" if option == "GrpTRES" else "minutes"
                row = replace(row, **{which: self._limits(getattr(row, which), value)})
            else:
                assert option in KEPT_OPTIONS, option
        return row

    def _limits(self, old, text):
        new = dict(old)
        for part in text.split(","):
            name, _, count = part.rpartition("=")
            need(name in self.tres, f"no TRES known by type {name}")
            new.pop(name, None)
            if count != "-1":
                new |= ours(part)
        assert set(tres_counts(text.replace("=-1", "=0"))) <= self.tres
        return new

    def _path(self, name):
        path = [name]
        while name := self.accounts[name].parent:
            path.append(name)
        return path

    # --- users ------------------------------------------------------------------------------------

    def _add_user(self, place, values):
        account, user = place["account"], place["name"].lower()
        need(account in self.accounts, f"This account {account!r} doesn't exist.")
        key = (account, user, place.get("partition", ""))
        need(key not in self.users, "Nothing new added.")
        if not any(row.user == user for row in self.users.values()):
            self.defaults[user] = account
        self.users[key] = UserRow(*key, tuple(values) or (("Fairshare", "1"),))

    def _modify_user(self, place, values):
        ((option, account),) = values
        assert option == "DefaultAccount"
        user = place["name"]
        need(any(k[:2] == (account, user) for k in self.users), "Can't modify because ...")
        self.defaults[user] = account

    def _delete_user(self, place, values):
        assert not values
        key = (place["account"], place["name"])
        mine = [row for row in self.users if row[:2] == key]
        need(mine, "Nothing deleted")
        need(not self.running.get(key), *active(self.running.get(key, ())))
        others = [row for row in self.users if row[1] == key[1] and row[0] != key[0]]
        is_default = self.defaults.get(key[1]) == key[0]
        need(not (is_default and others and self.keeps_defaults), "can not remove the default")
        for row in mine:
            del self.users[row]
        if is_default:
            self.defaults.pop(key[1])

    # --- QOS --------------------------------------------------------------------------------------

    def _modify_qos(self, place, values):
        need(place["name"] in self.qos, "Nothing modified")
        row = self.qos[place["name"]]
        for option, value in values:
            if option.startswith("Flags"):
                assert value == "NoDecay"
                row = replace(row, no_decay=option == "Flags+")
            else:
                row = self._changed(row, [(option, value)])
        self.qos[row.name] = row


def as_dumped(row: AccountRow) -> AccountRow:
    """The row with its limits among its options, as a dump has them."""
    limits = (("GrpTRES", row.gpus), ("GrpTRESMins", row.minutes))
    texts = ((o, ",".join(f"{k}={v}" for k, v in sorted(part.items()))) for o, part in limits)
    return replace(row, options=tuple((option, text) for option, text in texts if text))


PLACES = frozenset({"name", "cluster", "account", "partition", "Parent"})
KEPT_OPTIONS = frozenset({"Description", "Organization"})


def need(fact, otherwise: str, jobs: tuple[int, ...] = ()) -> None:
    if not fact:
        raise Refused(otherwise, jobs)


def active(jobs):
    return "Error with request: Job(s) active, cancel job(s) before remove", tuple(jobs)
