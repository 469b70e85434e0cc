"""Plans of quotas, made: undo file first, one transaction at a time, an audit line each, read back.

What sacctmgr refuses is named and the rest goes on; slurmdbd away ends it, with what was made
named. A plan that was made whole leaves nothing to do, so a second one makes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from slurm_ltgf.core.accounts import Book, Change, Setting
from slurm_ltgf.core.quota_plan import plan
from slurm_ltgf.core.quota_undo import going_back, of_plan
from slurm_ltgf.core.quota_wanted import Plan, Refusal, Wanted
from slurm_ltgf.errors import SlurmRefused, SlurmUnavailable
from slurm_ltgf.slurm.sacctmgr import Outcome
from slurm_ltgf.store.ledger import AuditEntry, Ledger
from slurm_ltgf.store.quota_undo import FORMAT, UndoFile, write_undo

ACTION = "quota"


@dataclass(frozen=True, slots=True)
class Hands:
    """What plans are read and made with: sacctmgr of one cluster."""

    cluster: str
    read: Callable[[], Book]
    write: Callable[[Change], Outcome]


@dataclass(frozen=True, slots=True)
class Doing:
    """How a plan is made. undo_folder: where the way back is kept. by: who. why: for logs."""

    undo_folder: Path
    by: str
    why: str
    now: int


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a change. state: "done"; "blocked" by running jobs; "refused" by sacctmgr;
    "lost": it was taken and is not there; "not tried": slurmdbd went away before."""

    change: Change
    state: Literal["done", "blocked", "refused", "lost", "not tried"]
    why: str = ""
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """What was made of a plan. undo: the file that leads back; None: nothing was to do.

    left: what is still to do, read back; None: slurmdbd could not be asked. broken: why it ended
    early; "": it did not.
    """

    left: Plan | None
    done: tuple[Done, ...] = ()
    refused: tuple[Refusal, ...] = ()
    undo: Path | None = None
    broken: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether all is as wanted now."""
        return self.left == Plan()


def apply(want: Callable[[Book], Wanted], hands: Hands, ledger: Ledger, doing: Doing) -> Applied:
    """Make what is wanted so.

    Args:
        want: what should be, given what is there.

    Raises:
        SlurmUnavailable, SlurmRefused, InputError: before anything was changed.
        SlurmRefused: this user may change nothing; nothing was changed.
        FileError, LedgerError: the undo file or the ledger cannot be written.
    """
    book = hands.read()
    wanted = want(book)
    todo = plan(wanted, book)
    if not todo.changes:
        return Applied(todo, refused=todo.refused)
    content = UndoFile(FORMAT, hands.cluster, doing.now, doing.by, doing.why, of_plan(todo, book))
    undo = write_undo(doing.undo_folder, content)
    done, broken = _make_all(todo.changes, hands, ledger, doing, undo)
    done += [Done(change, "not tried", broken) for change in todo.changes[len(done) :]]
    return _read_back(Applied(None, tuple(done), todo.refused, undo, broken), wanted, hands)


def _make_all(
    changes: tuple[Change, ...], hands: Hands, ledger: Ledger, doing: Doing, undo: Path
) -> tuple[list[Done], str]:
    """What became of the changes, and why it ended early if it did."""
    done: list[Done] = []
    for change in changes:
        try:
            done.append(make(change, hands))
        except SlurmUnavailable as exc:
            return done, str(exc)
        except SlurmRefused:
            if not done:
                undo.unlink()
                raise
            done.append(Done(change, "refused", "no rights"))
        if done[-1].state == "done":
            ledger.audit([audit_entry(change, doing)])
    return done, ""


def undo(content: UndoFile) -> Wanted:
    """What an undo file leads back to, to be applied like any other."""
    return going_back(content.undo)


def make(change: Change, hands: Hands) -> Done:
    """Make one change; an account is removed only when nothing is below it, which would go along.

    Raises:
        SlurmUnavailable, SlurmRefused: slurmdbd is away; this user may change nothing.
    """
    if change.kind == "remove account" and (below := _below(change.account, hands.read())):
        return Done(change, "refused", f"it has {below}, which would go along")
    outcome = hands.write(change)
    if outcome.is_done:
        return Done(change, "done")
    if outcome.jobs:
        return Done(change, "blocked", f"blocked by job {', '.join(outcome.jobs)}", outcome.jobs)
    return Done(change, "refused", outcome.why)


def _below(account: str, book: Book) -> str:
    """What is below an account that is to be removed; "": nothing."""
    if account not in book.accounts:
        return ""
    accounts = [name for name in sorted(book.accounts) if book.parent(name) == account]
    if users := sorted(book.members(account)):
        return f"users {', '.join(users)}"
    return f"accounts {', '.join(accounts)}" if accounts else ""


def _read_back(applied: Applied, wanted: Wanted, hands: Hands) -> Applied:
    """Look what is there now; what was taken and is still to do is lost."""
    try:
        left = plan(wanted, hands.read())
    except SlurmUnavailable as exc:
        return replace(applied, broken=applied.broken or str(exc))
    lost = {(change.kind, change.target) for change in left.changes}
    return replace(applied, left=left, done=tuple(_checked(one, lost) for one in applied.done))


def _checked(one: Done, lost: Iterable[tuple[str, str]]) -> Done:
    if one.state == "done" and (one.change.kind, one.change.target) in lost:
        return Done(one.change, "lost", "sacctmgr took it, but it is not so")
    return one


def audit_entry(change: Change, doing: Doing) -> AuditEntry:
    """The line in the log of writes; job_id holds what was changed."""
    old = "; ".join(_told(s, s.old) for s in change.settings if s.old)
    new = "; ".join(_told(s, s.new or "none") for s in change.settings)
    return AuditEntry(
        doing.now,
        doing.by,
        ACTION,
        change.target,
        old or None,
        new or None,
        f"{change.kind}: {doing.why}",
    )


def _told(setting: Setting, value: str) -> str:
    """A value with its name: "GrpTRES gres/gpu 4"."""
    return " ".join(filter(None, (setting.option, setting.tres, value)))
