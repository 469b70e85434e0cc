"""What accounts should be, and the plan that leads there: frozen records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from slurm_ltgf.core.accounts import Book, Change, QosRow


class Keep(Enum):
    """A value that stays as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP

#: Names as sacctmgr takes them for what they are: it splits at commas, expands brackets, drops
#: quotes; "|" parts the columns of what it prints.
_UNSAFE = re.compile(r"""[,\[\]'"`|\\\x00-\x1f\x7f-\x9f\ufffd]|^[\s+-]|\s$""")


@dataclass(frozen=True, slots=True)
class WantedAccount:
    """What an account should be.

    parent, share (None: "parent"), gpus, minutes: KEEP leaves them as they are. gpus, minutes:
    every limit of GPUs that it should have; other TRES are never touched. users None: not our
    business, else all of them. absent: there should be no such account.
    """

    name: str
    parent: str | Keep = KEEP
    share: int | Keep | None = KEEP
    gpus: Mapping[str, int] | Keep = KEEP
    minutes: Mapping[str, int] | Keep = KEEP
    users: frozenset[str] | None = None
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What should be. accounts: names in lower case, each once. qos: all limits of GPUs of each.

    defaults: user -> default account to end with. restore: rows by which what is missing is made,
    with all that they had: for going back.
    """

    accounts: tuple[WantedAccount, ...] = ()
    qos: tuple[QosRow, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    restore: Book = field(default_factory=Book)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something wanted that cannot be, and why; the rest is done without it."""

    target: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes in the order to make them, and what is refused. Neither: all is as wanted."""

    changes: tuple[Change, ...] = ()
    refused: tuple[Refusal, ...] = ()


def takes(name: str) -> bool:
    """Whether sacctmgr takes a name for what it is.

    >>> takes("a.b-c"), takes("$(id);x"), takes("a,b"), takes("x[1-3]"), takes("o'neill"), takes("")
    (True, True, False, False, False, False)
    """
    return bool(name) and not _UNSAFE.search(name)
