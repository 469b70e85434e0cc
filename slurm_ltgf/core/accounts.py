"""Accounts, users and QOS as sacctmgr has them, and one change of them: frozen records.

Numbers of GPUs and of GPU-minutes are told by TRES name ("gres/gpu", "gres/gpu:h100", "billing");
everything else that a row has is kept as text, so that a row that was taken away can be put back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ROOT = "root"
GPU = "gres/gpu"
BILLING = "billing"

#: What a row has besides its limits of GPUs: option -> value, as sacctmgr takes them.
Options = tuple[tuple[str, str], ...]

Kind = Literal[
    "add account",
    "move account",
    "set account",
    "add user",
    "add coordinator",
    "remove coordinator",
    "set default",
    "remove user",
    "remove account",
    "set qos",
]


@dataclass(frozen=True, slots=True)
class AccountRow:
    """An account's own association. share None: Fairshare=parent.

    gpus: GPUs at once, of GrpTRES. minutes: GPU-minutes (and billing), of GrpTRESMins. options: all
    that the row has, Fairshare left out, GrpTRES and GrpTRESMins whole.
    """

    name: str
    parent: str = ROOT
    share: int | None = 1
    gpus: Mapping[str, int] = field(default_factory=dict)
    minutes: Mapping[str, int] = field(default_factory=dict)
    options: Options = ()


@dataclass(frozen=True, slots=True, order=True)
class UserRow:
    """A user's association with an account. options: all that it has, Fairshare among them."""

    account: str
    user: str
    partition: str = ""
    options: Options = ()


@dataclass(frozen=True, slots=True)
class QosRow:
    """A QOS; gpus and minutes as of an account. no_decay: its use is not forgotten."""

    name: str
    gpus: Mapping[str, int] = field(default_factory=dict)
    minutes: Mapping[str, int] = field(default_factory=dict)
    no_decay: bool = False


@dataclass(frozen=True, slots=True)
class Book:
    """What sacctmgr has of one cluster.

    users: in the order listed. defaults: user -> default account. coordinators: (account, user).
    tres: names of TRES that slurmdbd knows: others cannot be limited.
    """

    accounts: Mapping[str, AccountRow] = field(default_factory=dict)
    users: tuple[UserRow, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    coordinators: frozenset[tuple[str, str]] = frozenset()
    qos: Mapping[str, QosRow] = field(default_factory=dict)
    tres: frozenset[str] = frozenset((GPU, BILLING))

    def parent(self, name: str) -> str:
        """The account above; "" above the root."""
        return "" if name == ROOT else self.accounts[name].parent

    def depth(self, name: str) -> int:
        """Steps below the root."""
        depth = 0
        while name := self.parent(name):
            depth += 1
        return depth

    def members(self, account: str) -> frozenset[str]:
        """Users of an account."""
        return frozenset(row.user for row in self.users if row.account == account)


@dataclass(frozen=True, slots=True)
class Setting:
    """One value that changes. tres: which of a list; "" if the option is no list. old, new: as
    sacctmgr writes them, "" for none."""

    option: str
    tres: str = ""
    old: str = ""
    new: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One call of sacctmgr, which is one transaction of slurmdbd: all of it or nothing.

    account: whose; of "add user" and "remove user" the account that the user joins or leaves, of
    "set default" the new one. settings: of an addition all values, of others what changes.
    """

    kind: Kind
    account: str = ""
    user: str = ""
    partition: str = ""
    qos: str = ""
    settings: tuple[Setting, ...] = ()

    @property
    def target(self) -> str:
        """What is changed, for messages and logs."""
        if self.user:
            where = f" in partition {self.partition}" if self.partition else ""
            return f"user {self.user} of {self.account}{where}"
        return f"QOS {self.qos}" if self.qos else f"account {self.account}"


@dataclass(frozen=True, slots=True)
class Undo:
    """What a plan touches, as it was: the way back. made: accounts that were not there.

    members: accounts whose users the plan changes. defaults: of users whom it concerns, as they
    were ("": none). before: the rows of accounts, users and QOS.
    """

    before: Book
    made: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)


def is_ours(tres: str) -> bool:
    """Whether a TRES is one whose limits quota.toml says."""
    return tres in (GPU, BILLING) or tres.startswith(f"{GPU}:")
