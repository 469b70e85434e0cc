"""What the agents of a job's nodes leave each other in the job's folder, as the job's user.

`ltgf-nodes` is the plan, written by the agent of the job's first node; `ltgf-node-R` what the agent
of node R said last. The agents run as root, the folder is the user's: so a child that has become
the user, for good, does the reading and writing, and what it read steers this job alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from slurm_ltgf.checkpoint.board import Board, BoardError, read_owned, replace_owned
from slurm_ltgf.checkpoint.driver import Call, call, result
from slurm_ltgf.checkpoint.keys import ProtocolError, decode, encode
from slurm_ltgf.checkpoint.phases import Plan, Stage, Told, Want
from slurm_ltgf.checkpoint.protocol import Answer, Mode

PLAN, RANK = "ltgf-nodes", "ltgf-node-"
#: A file system that does not answer for so long is away.
FILES_S = 10.0
_WHY_LENGTH = 200

_E = TypeVar("_E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as one of its nodes sees it. rank: this node's number in it; ranks: its nodes."""

    job_id: int
    uid: int
    restart: int
    rank: int
    ranks: int
    mode: Mode
    dir: Path


@dataclass(frozen=True, slots=True)
class Seen:
    """What lies in the folder. told: by rank; None: nothing that can be believed."""

    plan: Plan | None
    told: tuple[Told | None, ...]


def become(uid: int) -> None:
    """Be this user for good; in a child, which has nothing of root's left then."""
    os.umask(0o077)
    if os.geteuid() == uid:
        return
    try:
        entry = pwd.getpwuid(uid)
        gid, groups = entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)
    except KeyError:
        gid, groups = 65534, [65534]
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def as_user(uid: int, work: Callable[[], str]) -> Call:
    """Begin something as another user, in a child."""

    def inside() -> str:
        become(uid)
        return work()

    return call(inside)


def exchange(job: Job, *, plan: Plan | None, told: Told | None) -> Seen:
    """Write what is not None, then read what the others wrote.

    Raises:
        DriverError: the folder cannot be written or read, or does not answer.
    """

    def work() -> str:
        _make(job.dir)
        if told is not None:
            replace_owned(job.dir / f"{RANK}{job.rank}", encode(asdict(told)))
        if plan is not None:
            replace_owned(job.dir / PLAN, encode(asdict(plan)))
        ranks = range(job.ranks) if job.rank == 0 else ()
        found = [_read(job, f"{RANK}{rank}") for rank in ranks]
        return json.dumps({"plan": _read(job, PLAN), "told": found})

    text = result(as_user(job.uid, work), FILES_S, f"job {job.job_id}: its folder {job.dir}")
    keys = json.loads(text)
    told_by = tuple(_told(one, rank) for rank, one in enumerate(keys["told"]))
    return Seen(_plan(keys["plan"], job.restart), told_by)


def say(job: Job, board: Path, answer: Answer) -> None:
    """Put the job's answer on the board, also if its folder is gone.

    Raises:
        DriverError: the board cannot be written.
    """

    def work() -> str:
        Board(board).say(answer, uid=job.uid)
        return ""

    result(as_user(job.uid, work), FILES_S, f"job {job.job_id}: its answer")


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise BoardError(f"{folder}: belongs to another user than the job")


def _read(job: Job, name: str) -> dict[str, str] | None:
    """The keys of a file; None: it is not there or not to be believed."""
    path = job.dir / name
    with contextlib.suppress(OSError, ProtocolError):
        keys = decode(read_owned(path, owners={job.uid}), str(path))
        return {key: value[:_WHY_LENGTH] for key, value in keys.items()}
    return None


def _plan(keys: Mapping[str, str] | None, restart: int) -> Plan | None:
    """A plan of this run; what cannot be read is none."""
    try:
        found = Plan(
            key=_text(keys, "key"),
            restart=_number(keys, "restart"),
            want=_word(keys, "want", Want),
            until=_number(keys, "until"),
            deadline=_number(keys, "deadline"),
            hold_until=_number(keys, "hold_until"),
            attempt=_number(keys, "attempt"),
            retry=bool(_number(keys, "retry")),
            why=(keys or {}).get("why", ""),
        )
    except (KeyError, ValueError):
        return None
    return found if found.restart == restart else None


def _told(keys: Mapping[str, str] | None, rank: int) -> Told | None:
    try:
        return Told(
            rank=rank,
            key=_text(keys, "key"),
            attempt=_number(keys, "attempt"),
            want=_word(keys, "want", Want),
            stage=_word(keys, "stage", Stage),
            why=(keys or {}).get("why", ""),
        )
    except (KeyError, ValueError):
        return None


def _text(keys: Mapping[str, Any] | None, key: str) -> str:
    return str((keys or {})[key])


def _number(keys: Mapping[str, Any] | None, key: str) -> int:
    return int((keys or {})[key])


def _word(keys: Mapping[str, Any] | None, key: str, words: type[_E]) -> _E:
    return words((keys or {})[key])
