"""Accounts of a cluster from sacctmgr, or from a saved sshare: names, parents, shares, GPU limits.

Reads only (`sacctmgr -r`). An account whose Fairshare is the word "parent" has shares None. Names
are lower case, as in Slurm's database. sacctmgr that fails, or knows nothing of the cluster, is an
error, never an empty tree: all tenants would look deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_ltgf.core.model import Account
from slurm_ltgf.errors import InputError, SlurmRefused
from slurm_ltgf.slurm import text as words
from slurm_ltgf.slurm.run import run

FIELDS = ("Cluster", "Account", "User", "Partition", "ParentName", "Share", "GrpTRES")
SSHARE_FIELDS = ("Account", "User", "RawShares")


@dataclass(frozen=True, slots=True)
class Association:
    """A row of `sacctmgr show assoc`. user "": the account's own. share None: parent."""

    cluster: str
    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    share: int | None = 1
    gpu_limit: float | None = None


def accounts(cluster: str) -> list[Account]:
    """Ask for the accounts of one cluster, the root among them.

    Raises:
        SlurmUnavailable: slurmdbd is away. SlurmRefused: no rights, or no such cluster.
    """
    argv = ["sacctmgr", "-n", "-P", "-r", "show", "assoc", f"cluster={cluster}"]
    found = parse(run([*argv, f"format={','.join(FIELDS)}"])).get(cluster.lower())
    if not found:
        raise SlurmRefused(f"sacctmgr: no associations of cluster {cluster!r}; is the name right?")
    return found


def parse(text: str) -> dict[str, list[Account]]:
    """Read `sacctmgr -n -P show assoc format=<FIELDS>`: cluster -> accounts, in the order listed.

    Raises:
        InputError: a row without the asked columns, or with a share that is no number.
    """
    rows: dict[str, list[Association]] = {}
    for number, line in enumerate(filter(None, text.split("\n")), 1):
        try:
            row = _association(line.split("|"))
        except ValueError as exc:
            raise InputError(f"sacctmgr show assoc, row {number}: {exc}") from exc
        rows.setdefault(row.cluster, []).append(row)
    return {cluster: of_associations(found) for cluster, found in rows.items()}


def _association(cells: Sequence[str]) -> Association:
    if len(cells) != len(FIELDS):
        raise ValueError(f"expected {len(FIELDS)} columns, got {len(cells)}: {'|'.join(cells)!r}")
    cluster, account, user, partition, parent, share, grp_tres = cells
    return Association(
        cluster=cluster.lower(),
        account=account.lower(),
        user=user,
        partition=partition,
        parent=parent.lower(),
        share=shares(share),
        gpu_limit=gpu_limit(grp_tres),
    )


def of_associations(rows: Iterable[Association]) -> list[Account]:
    """One account a name: its own row, and the shares of its users (one a user and partition)."""
    found: dict[str, Account] = {}
    users: dict[str, list[int | None]] = {}
    for row in rows:
        if row.user:
            users.setdefault(row.account, []).append(row.share)
        else:
            found[row.account] = Account(
                row.account, row.parent, row.share, gpu_limit=row.gpu_limit
            )
    for name in users:
        found.setdefault(name, Account(name))
    return [
        replace(account, user_shares=tuple(users.get(name, ()))) for name, account in found.items()
    ]


def shares(text: str) -> int | None:
    """Raw Fairshare; None for "parent". Empty is Slurm's default 1.

    >>> shares("40"), shares("parent"), shares("0"), shares("")
    (40, None, 0, 1)
    """
    word = text.strip().lower()
    if word == "parent" or (word.isdecimal() and int(word) == 0x7FFFFFFF):
        return None
    if not word:
        return 1
    if not word.isdecimal():
        raise ValueError(f"cannot read Fairshare {text!r}")
    return int(word)


def gpu_limit(tres: str) -> float | None:
    """GPUs a GrpTRES allows at once, or None; the untyped limit, else the sum of typed ones.

    >>> gpu_limit("cpu=9,gres/gpu=20"), gpu_limit("gres/gpu:a100=4,gres/gpu:h100=2"), gpu_limit("")
    (20.0, 6.0, None)

    MaxTRES is no such limit: it binds one job at a time.
    """
    found: dict[str, int] = {}
    for token in filter(None, words.gres_of_tres(tres).split(",")):
        name, _, count = token.rpartition("=")
        if name.split(":")[0] == "gpu":
            found[name] = int(count)
    if not found:
        return None
    return float(found.get("gpu", sum(found.values())))


def of_sshare(text: str, columns: Sequence[str] = SSHARE_FIELDS) -> list[Account]:
    """Accounts of a saved `sshare -a -P`, where the parent is told by indentation alone.

    Args:
        columns: names of the columns, unless the first line is a header; RawShares and User may be
            missing. Prefer `accounts`: sshare shows the local cluster only, and no limits.

    Raises:
        InputError: a row that is under no account, or without its columns.
    """
    lines = [line for line in text.split("\n") if line.strip()]
    if lines and lines[0].split("|")[0].strip() == "Account":
        columns = [name.strip() for name in lines.pop(0).split("|")]
    rows: list[Association] = []
    above: list[str] = []
    for number, line in enumerate(lines, 1):
        cells = dict(zip(columns, line.split("|"), strict=False))
        try:
            rows.append(_sshare_row(cells, above))
        except ValueError as exc:
            raise InputError(f"sshare, row {number}: {exc}") from exc
    return of_associations(rows)


def _sshare_row(cells: Mapping[str, str], above: list[str]) -> Association:
    """Read a row; `above` holds the accounts from the root to the last one and is kept so."""
    label = cells["Account"]
    depth, name, user = len(label) - len(label.lstrip()), label.strip().lower(), cells.get("User")
    if not re.search(r"\w", name) or depth > len(above):
        raise ValueError(f"account {label!r} is under no account")
    share = shares(cells.get("RawShares", ""))
    if user and user.strip():
        return Association("", name, user.strip(), share=share)
    del above[depth:]
    above.append(name)
    return Association("", name, parent=above[-2] if depth else "", share=share)
