"""What a checkpoint is asked and answered with: small files on a board that both sides see.

The asking side (`ltgf requeue`, the daemon) puts an ask on the board; the job, or the agent on its
nodes that acts for it, puts its answer beside it. Files are all that is needed: no signal, no
socket, no Slurm inside the container. docs/reference/checkpoint-protocol.md describes every key.

`keys` has the text of a file, `board` the files themselves. Standard library alone: training images
import this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from slurm_ltgf.checkpoint.keys import ProtocolError, Reader

_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


class Mode(StrEnum):
    """Who makes the checkpoint: the job itself, the CUDA driver, or CRIU after the driver."""

    APP = "app"
    DRIVER = "driver"
    CRIU = "criu"


class Action(StrEnum):
    """What a job is asked for.

    checkpoint: save and go on. requeue: save, then hold at the step until the requeue kills it.
    pause: save, free the GPUs, hold. go-on: an ask is withdrawn. resume: a pause is over. The last
    two bear the id of the ask that they end.
    """

    CHECKPOINT = "checkpoint"
    REQUEUE = "requeue"
    PAUSE = "pause"
    GO_ON = "go-on"
    RESUME = "resume"


class Phase(StrEnum):
    """Where a job is.

    refused: it cannot, or will not, for reasons of its own. going: it trained on after a hold, or
    after an ask that came to nothing. stopped: it saved for Slurm's signal, and ends unfinished.
    """

    READY = "ready"
    WORKING = "working"
    SAVED = "saved"
    FAILED = "failed"
    REFUSED = "refused"
    GOING = "going"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Record:
    """How a job can be checkpointed, as it was said at submission; see decisions/0010.

    restart: the run that wrote it. dir: the checkpoint folder. signal: `USR2` or `USR2@60`.
    """

    job_id: int
    uid: int
    restart: int
    mode: Mode
    dir: Path
    node: str = ""
    array: str = ""
    signal: str = ""
    command: str = ""
    timeout_s: int | None = None
    interval_s: int | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to one run of a job. Times: epoch seconds.

    deadline: not saved by all until then, it has failed. hold_until: who holds goes on then.
    """

    id: str
    job_id: int
    restart: int
    action: Action
    deadline: int
    hold_until: int
    time: int
    by: str = ""
    reason: str = ""

    @property
    def is_end(self) -> bool:
        """Whether it ends an ask, and asks for nothing."""
        return self.action in (Action.GO_ON, Action.RESUME)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a run of a job says of itself; ask: the id it speaks of, "" for none.

    name: of the checkpoint, a folder in the job's. bytes, seconds: of the save. None: not known.
    Of no ask, with ready and stopped, they are of the last save that nobody asked for.
    """

    job_id: int
    restart: int
    phase: Phase
    ask: str = ""
    ranks: int = 1
    step: int | None = None
    name: str = ""
    bytes: int | None = None
    seconds: float | None = None
    time: int = 0
    why: str = ""


def ask_id() -> str:
    """A new id for an ask: 16 hexadecimal digits."""
    return os.urandom(8).hex()


def record_of(keys: Mapping[str, str], *, uid: int, what: str) -> Record:
    """A record's keys as a `Record`.

    Raises:
        ProtocolError: a key is missing or wrong.
    """
    read = Reader(keys, what)
    folder = Path(read.text("dir", needed=True))
    if not folder.is_absolute():
        raise ProtocolError(f"{what}: dir={str(folder)!r}: must be an absolute path")
    return Record(
        job_id=read.number("job_id"),
        uid=uid,
        restart=read.number("restart"),
        mode=read.word("mode", Mode),
        dir=folder,
        node=read.text("node"),
        array=read.text("array"),
        signal=read.text("signal"),
        command=read.text("command"),
        timeout_s=read.optional("timeout_s", int),
        interval_s=read.optional("interval_s", int),
    )


def record_keys(record: Record) -> dict[str, object]:
    """A record as the keys of its file."""
    return {
        "job_id": record.job_id,
        "array": record.array,
        "restart": record.restart,
        "node": record.node,
        "mode": record.mode,
        "dir": record.dir,
        "signal": record.signal,
        "command": record.command,
        "timeout_s": record.timeout_s,
        "interval_s": record.interval_s,
    }


def ask_of(keys: Mapping[str, str], what: str) -> Ask:
    """An ask's keys as an `Ask`.

    Raises:
        ProtocolError: a key is missing or wrong.
    """
    read = Reader(keys, what)
    key = read.text("id", needed=True)
    if not _ID.fullmatch(key):
        raise ProtocolError(f"{what}: id={key[:40]!r}: must be letters, digits and '-' alone")
    return Ask(
        id=key,
        job_id=read.number("job_id"),
        restart=read.number("restart"),
        action=read.word("action", Action),
        deadline=read.number("deadline"),
        hold_until=read.number("hold_until"),
        time=read.number("time"),
        by=read.text("by"),
        reason=read.text("reason"),
    )


def answer_of(keys: Mapping[str, str], what: str) -> Answer:
    """An answer's keys as an `Answer`.

    Raises:
        ProtocolError: a key is missing or wrong.
    """
    read = Reader(keys, what)
    name = read.text("name")
    if "/" in name or name in (".", ".."):
        raise ProtocolError(f"{what}: name={name!r}: must be a folder's name, not a path")
    return Answer(
        job_id=read.number("job_id"),
        restart=read.number("restart"),
        phase=read.word("phase", Phase),
        ask=read.text("ask"),
        ranks=read.optional("ranks", int) or 1,
        step=read.optional("step", int),
        name=name,
        bytes=read.optional("bytes", int),
        seconds=read.optional("seconds", float),
        time=read.number("time"),
        why=read.text("why"),
    )


def keys_of(said: Ask | Answer) -> dict[str, object]:
    """An ask or an answer as the keys of its file."""
    return {name: getattr(said, name) for name in said.__dataclass_fields__}


def withdrawn(ask: Ask, action: Action, now: int) -> Ask:
    """The ask that ends another: `go-on`, or `resume` after a pause."""
    return replace(ask, action=action, time=max(now, ask.time + 1))
