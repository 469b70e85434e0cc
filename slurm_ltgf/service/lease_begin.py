"""How jobs begin to yield: all that make room for one job, or none; and who was refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slurm_ltgf.core.lease import Action
from slurm_ltgf.core.move import Goal, State
from slurm_ltgf.errors import LtgfError
from slurm_ltgf.service.leases import ACTOR, REFUSED, LeaseRow, LeaseView
from slurm_ltgf.service.move_facts import MoveRefused, Wish
from slurm_ltgf.service.moves import Moves
from slurm_ltgf.store.ledger import Ledger
from slurm_ltgf.store.ledger_records import AuditEntry

TOGETHER = "it cannot save, and others would have to make room with it"


def begin(judged: LeaseView, moves: Moves, ledger: Ledger, *, now: int) -> list[tuple[str, str]]:
    """Start the moves of those that yield; (job, what stood against it or "").

    Who is refused is written down: it is left alone for a while, and others make room instead.
    """
    groups: dict[int | None, list[LeaseRow]] = {}
    for row in judged.rows:
        if row.verdict is not None and row.verdict.action is Action.YIELD:
            groups.setdefault(row.verdict.to, []).append(row)
    done: list[tuple[str, str]] = []
    for rows in groups.values():
        try:
            refused = _refused(rows, moves, now)
            ledger.audit([_entry(job_id, why, now) for job_id, why in refused.items()])
            if not refused:
                for row in rows:
                    _begin(row, moves, together=len(rows), now=now)
            done += [(row.name, refused.get(row.job.job_id, "")) for row in rows]
        except LtgfError as exc:  # those that began go on alone, see that they are not all, and end
            done += [(row.name, str(exc)) for row in rows]
    return done


def _refused(rows: Sequence[LeaseRow], moves: Moves, now: int) -> dict[int, str]:
    """Who of those that make room for one job cannot be moved, and why."""
    can_save = any(row.can_save for row in rows)
    found = {}
    for row in rows:
        try:
            if row.can_save:
                against = "; ".join(moves.outlook(row.name, Goal.REQUEUE).objections)
            else:
                moves.requeue_now(row.name, _wish(row, len(rows)), now=now, dry_run=True)
                against = TOGETHER if can_save else ""
        except MoveRefused as exc:
            against = str(exc)
        if against:
            found[row.job.job_id] = against
    return found


def _begin(row: LeaseRow, moves: Moves, *, together: int, now: int) -> None:
    wish = _wish(row, together)
    if row.can_save:
        moves.begin(row.name, wish, now=now)
        return
    with moves.files.locked(row.job.job_id):
        known = moves.files.read(row.job.job_id)
        made = moves.requeue_now(row.name, wish, now=now)
        # its taker has the GPUs promised, as those of a job that saved
        made = replace(
            made, state=State.REQUEUED, ended_at=now, limits=known.limits if known else 0
        )
        moves.files.write(made)


def _wish(row: LeaseRow, together: int) -> Wish:
    assert row.verdict is not None
    return Wish(
        Goal.REQUEUE, by=ACTOR, reason=row.verdict.reason, to_job=row.verdict.to, together=together
    )


def _entry(job_id: int, why: str, now: int) -> AuditEntry:
    return AuditEntry(now, ACTOR, "lease", str(job_id), None, REFUSED, why)
