"""Jobs that make room for another one together: all of them begin to move, or none does.

Who is refused is written down: it is left alone for a while, and others make room instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_ltgf.core.move import Goal, State
from slurm_ltgf.errors import LtgfError
from slurm_ltgf.service.move_facts import MoveRefused, Wish
from slurm_ltgf.service.moves import Moves
from slurm_ltgf.store.ledger import Ledger
from slurm_ltgf.store.ledger_records import AuditEntry

TOGETHER = "it cannot save, and others would have to make room with it"
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Leaver:
    """A running job that is to leave. name: as squeue shows it. can_save: else its work is lost."""

    job_id: int
    name: str
    reason: str
    to_job: int | None
    can_save: bool = True


@dataclass(frozen=True, slots=True)
class Asker:
    """Who has jobs moved: the name in the log, and the action under which refusals are logged."""

    name: str
    action: str


def begin_group(
    leavers: Sequence[Leaver], asker: Asker, moves: Moves, ledger: Ledger, *, now: int
) -> list[tuple[str, str]]:
    """Start the moves of jobs that make room for one; (job, what stood against it or "")."""
    try:
        refused = _refused(leavers, asker, moves, now)
        ledger.audit([_entry(asker, job_id, why, now) for job_id, why in refused.items()])
        if not refused:
            for one in leavers:
                _begin(one, asker, moves, together=len(leavers), now=now)
        return [(one.name, refused.get(one.job_id, "")) for one in leavers]
    except LtgfError as exc:  # those that began go on alone, see that they are not all, and end
        return [(one.name, str(exc)) for one in leavers]


def refusals(ledger: Ledger, asker: Asker, since: int) -> dict[str, tuple[int, str]]:
    """Jobs that were to leave and could not: when it was last tried, and why not."""
    log = ledger.audit_last(5000, actor=asker.name, action=asker.action, since=since)
    return {
        entry.job_id: (entry.time, entry.reason) for entry in reversed(log) if entry.new == REFUSED
    }


def _refused(leavers: Sequence[Leaver], asker: Asker, moves: Moves, now: int) -> dict[int, str]:
    """Who of those that make room for one job cannot be moved, and why."""
    can_save = any(one.can_save for one in leavers)
    found = {}
    for one in leavers:
        try:
            if one.can_save:
                against = "; ".join(moves.outlook(one.name, Goal.REQUEUE).objections)
            else:
                wish = _wish(one, asker, len(leavers))
                moves.requeue_now(one.name, wish, now=now, dry_run=True)
                against = TOGETHER if can_save else ""
        except MoveRefused as exc:
            against = str(exc)
        if against:
            found[one.job_id] = against
    return found


def _begin(one: Leaver, asker: Asker, moves: Moves, *, together: int, now: int) -> None:
    wish = _wish(one, asker, together)
    if one.can_save:
        moves.begin(one.name, wish, now=now)
        return
    with moves.files.locked(one.job_id):
        known = moves.files.read(one.job_id)
        made = moves.requeue_now(one.name, wish, now=now)
        # its taker has the GPUs promised, as those of a job that saved
        made = replace(
            made, state=State.REQUEUED, ended_at=now, limits=known.limits if known else 0
        )
        moves.files.write(made)


def _wish(one: Leaver, asker: Asker, together: int) -> Wish:
    return Wish(
        Goal.REQUEUE, by=asker.name, reason=one.reason, to_job=one.to_job, together=together
    )


def _entry(asker: Asker, job_id: int, why: str, now: int) -> AuditEntry:
    return AuditEntry(now, asker.name, asker.action, str(job_id), None, REFUSED, why)
