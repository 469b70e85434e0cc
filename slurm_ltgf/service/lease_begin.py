"""How jobs begin to yield: all that make room for one job, or none."""

from __future__ import annotations

from slurm_ltgf.core.lease import Action
from slurm_ltgf.service.leases import ASKER, LeaseView
from slurm_ltgf.service.move_groups import Leaver, begin_group
from slurm_ltgf.service.moves import Moves
from slurm_ltgf.store.ledger import Ledger


def begin(judged: LeaseView, moves: Moves, ledger: Ledger, *, now: int) -> list[tuple[str, str]]:
    """Start the moves of those that yield; (job, what stood against it or "")."""
    groups: dict[int | None, list[Leaver]] = {}
    for row in judged.rows:
        verdict = row.verdict
        if verdict is not None and verdict.action is Action.YIELD:
            leaver = Leaver(row.job.job_id, row.name, verdict.reason, verdict.to, row.can_save)
            groups.setdefault(verdict.to, []).append(leaver)
    done: list[tuple[str, str]] = []
    for leavers in groups.values():
        done += begin_group(leavers, ASKER, moves, ledger, now=now)
    return done
