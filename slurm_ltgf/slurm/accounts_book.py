"""Accounts, users and QOS of a cluster as sacctmgr has them: what can be changed, whole.

`sacctmgr dump` is read, for it alone prints each row's own values (`show assoc` prints those that
are inherited, and leaves out a user's QOS=-long), in the words that `sacctmgr add` takes back:

    Parent - 'root'
    Account - 'astro':Description='astro':Fairshare=4:GrpTRES=gres/gpu:h200=3,gres/gpu=4
    User - 'alice':DefaultAccount='astro':Fairshare=1:QOS='-long'

Fairshare=2147483647 is the word "parent". Reads only (-r), and never asks back (-n).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_ltgf.core.accounts import ROOT, AccountRow, Book, QosRow, UserRow, is_ours
from slurm_ltgf.errors import InputError, SlurmRefused
from slurm_ltgf.slurm.budgets import tres_counts
from slurm_ltgf.slurm.run import run

#: Fairshare's number for "parent" (SLURMDB_FS_USE_PARENT).
USE_PARENT = 0x7FFFFFFF
READ_S = 60
_LINE = re.compile(r"(Cluster|Parent|Account|User) - '([^']*)'((?::.*)?)")
#: An option; a TRES of a type has a colon of its own: GrpTRES=gres/gpu:h200=3.
_OPTION = re.compile(r":(\w+)=('[^']*'|(?:[^:=,']+/[^:=,']+:[^:=,']+=|[^:'])*)")
#: What a row of a user says of the user, whichever account it is of.
_OF_USER = ("DefaultAccount", "Coordinator", "DefaultWCKey", "WCKeys")
_QOS = ("Name", "Flags", "GrpTRES", "GrpTRESMins")


def read(cluster: str) -> Book:
    """Ask slurmdbd for everything of one cluster: three calls, at once, for each mostly waits.

    Raises:
        SlurmUnavailable: slurmdbd is away. SlurmRefused: no rights, or no such cluster.
        InputError: sacctmgr printed what cannot be read.
    """
    with ThreadPoolExecutor() as pool:
        qos = pool.submit(_show, "qos", _QOS)
        tres = pool.submit(_show, "tres", ("Type", "Name"))
        book = parse_dump(_dump(cluster))
        lines = filter(None, tres.result().split("\n"))
        names = frozenset(line.rstrip("|").replace("|", "/") for line in lines)
        return replace(book, qos=parse_qos(qos.result()), tres=names)


def _show(what: str, columns: Sequence[str]) -> str:
    argv = ["sacctmgr", "-n", "-P", "-r", "show", what, f"format={','.join(columns)}"]
    return run(argv, timeout_s=READ_S)


def _dump(cluster: str) -> str:
    with tempfile.TemporaryDirectory(prefix="ltgf-") as folder:
        file = Path(folder) / "dump"
        run(["sacctmgr", "-r", "dump", f"cluster={cluster}", f"file={file}"], timeout_s=READ_S)
        try:
            return file.read_bytes().decode("utf-8", "replace")
        except OSError as exc:
            raise SlurmRefused(
                f"sacctmgr dump {cluster!r} wrote no file: is the cluster's name right?"
            ) from exc


@dataclass(slots=True)
class _Reading:
    """What was read so far."""

    accounts: dict[str, AccountRow] = field(default_factory=dict)
    users: list[UserRow] = field(default_factory=list)
    defaults: dict[str, str] = field(default_factory=dict)
    coordinators: set[tuple[str, str]] = field(default_factory=set)
    parent: str = ROOT


def parse_dump(text: str) -> Book:
    """Read what `sacctmgr dump` wrote.

    Raises:
        InputError: a line that is none of its kinds, by number.
    """
    found = _Reading({ROOT: AccountRow(ROOT, "")})
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            _take(found, line)
        except (ValueError, InputError) as exc:
            raise InputError(f"sacctmgr dump, line {number}: {exc}") from exc
    return Book(
        found.accounts,
        tuple(found.users),
        found.defaults,
        frozenset(found.coordinators),
    )


def _take(found: _Reading, line: str) -> None:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"cannot read {line[:120]!r}")
    kind, name, rest = match.groups()
    options = dict(_options(rest))
    if kind == "Parent":
        found.parent = name
    elif kind == "User":
        _take_user(found, name, options)
    elif kind == "Account":
        found.accounts[name] = _account(name, found.parent, options)
    else:
        found.accounts[ROOT] = _account(ROOT, "", options)


def _take_user(found: _Reading, name: str, options: dict[str, str]) -> None:
    if options.get("DefaultAccount"):
        found.defaults[name] = options["DefaultAccount"]
    for account in filter(None, options.get("Coordinator", "").split(",")):
        found.coordinators.add((account, name))
    partition = options.pop("Partition", "")
    if options.get("Fairshare") == str(USE_PARENT):
        options["Fairshare"] = "parent"
    own = tuple((key, value) for key, value in options.items() if key not in _OF_USER)
    found.users.append(UserRow(found.parent, name, partition, own))


def _account(name: str, parent: str, options: dict[str, str]) -> AccountRow:
    share = options.pop("Fairshare", "1")
    return AccountRow(
        name,
        parent,
        None if share in ("parent", str(USE_PARENT)) else int(share),
        ours(options.get("GrpTRES", "")),
        ours(options.get("GrpTRESMins", "")),
        tuple(options.items()),
    )


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Options of a line, without their quotes.

    >>> dict(_options(":Description='a:b c':GrpTRES=gres/gpu:H=3,gres/gpu=4:Fairshare=1"))
    {'Description': 'a:b c', 'GrpTRES': 'gres/gpu:H=3,gres/gpu=4', 'Fairshare': '1'}
    """
    at = 0
    while at < len(text):
        match = _OPTION.match(text, at)
        if match is None:
            raise ValueError(f"cannot read {text[at : at + 80]!r}")
        yield match[1], match[2].strip("'")
        at = match.end()


def ours(tres: str) -> Mapping[str, int]:
    """The part of a TRES list that is about GPUs, and billing.

    >>> ours("cpu=4,gres/gpu:h200=3,gres/gpu=4,mem=10G")
    {'gres/gpu:h200': 3, 'gres/gpu': 4}
    """
    return {name: count for name, count in tres_counts(tres).items() if is_ours(name)}


def parse_qos(text: str) -> dict[str, QosRow]:
    """Read `sacctmgr -n -P show qos format=Name,Flags,GrpTRES,GrpTRESMins`."""
    found = {}
    for line in filter(None, text.split("\n")):
        cells = line.split("|")
        if len(cells) != len(_QOS):
            raise InputError(f"sacctmgr show qos: expected {len(_QOS)} columns, got {line!r}")
        name, flags, gpus, minutes = cells
        found[name] = QosRow(name, ours(gpus), ours(minutes), "NoDecay" in flags.split(","))
    return found
