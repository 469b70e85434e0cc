"""How many moves were made of late, and how many failed: what `core.lease_guards` decides by."""

from __future__ import annotations

from time import localtime

from slurm_ltgf.core.lease_guards import HOUR_S, Situation
from slurm_ltgf.core.move import State
from slurm_ltgf.core.requeue import is_fault
from slurm_ltgf.service.moves import Moves
from slurm_ltgf.store.ledger import Ledger


def situation(
    ledger: Ledger,
    moves: Moves,
    actor: str,
    *,
    now: int,
    reset: int,
    maintenance_in_s: int | None,
    rest_s: int,
) -> Situation:
    """The moves of one actor, by the ledger's log and the moves that are under way.

    Args:
        reset: failures until then count no more. rest_s: of the breaker.
    """
    log = ledger.audit_last(5000, actor=actor, since=now - HOUR_S - max(HOUR_S, rest_s))
    ours = [move for move in moves.under_way() if move.by == actor]
    begun = [entry.time for entry in log if entry.old == State.QUEUED.value]
    begun += [move.began for move in ours if move.state is State.QUEUED]
    local = localtime(now)
    return Situation(
        now=now,
        weekday=local.tm_wday,
        minute=local.tm_hour * 60 + local.tm_min,
        under_way=len(ours),
        begun=begun,
        failed=[
            entry.time
            for entry in log
            if entry.new == State.FAILED.value and is_fault(entry.reason)
        ],
        reset=reset,
        maintenance_in_s=maintenance_in_s,
    )
