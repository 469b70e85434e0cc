"""How many moves were made of late, and how many failed: what `core.lease_guards` decides by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import localtime

from slurm_ltgf.core.lease_guards import HOUR_S, Failure, Guards, Situation, set_aside
from slurm_ltgf.core.move import State
from slurm_ltgf.core.requeue import is_fault
from slurm_ltgf.service.moves import Moves
from slurm_ltgf.slurm.jobs import QueueJob
from slurm_ltgf.store.ledger import Ledger

#: The ledger's word of when the breaker was closed by hand: failures until then count no more.
RESET = "lease.reset"


def situation(
    ledger: Ledger,
    moves: Moves,
    actor: str,
    *,
    now: int,
    maintenance_in_s: int | None,
    rest_s: int,
) -> Situation:
    """The moves of one actor, by the ledger's log and the moves that are under way.

    Args:
        rest_s: of the breaker.
    """
    log = ledger.audit_last(5000, actor=actor, since=now - HOUR_S - max(HOUR_S, rest_s))
    ours = [move for move in moves.under_way() if move.by == actor]
    begun = [entry.time for entry in log if entry.old == State.QUEUED.value]
    begun += [move.began for move in ours if move.state is State.QUEUED]
    uids = {str(move.job_id): move.uid for move in moves.files.all()}
    local = localtime(now)
    return Situation(
        now=now,
        weekday=local.tm_wday,
        minute=local.tm_hour * 60 + local.tm_min,
        under_way=len(ours),
        begun=begun,
        failed=[
            Failure(entry.time, uids.get(entry.job_id, -int(entry.job_id)))
            for entry in log
            if entry.new == State.FAILED.value and is_fault(entry.reason)
        ],
        reset=int(ledger.state_get(RESET) or 0),
        maintenance_in_s=maintenance_in_s,
    )


def resting(
    guards: Guards,
    found: Situation,
    jobs: Sequence[QueueJob],
    uid_of: Callable[[str], int | None],
) -> dict[str, tuple[int, str]]:
    """Jobs of users whose checkpoints fail: when that was looked at, and for how long they rest."""
    aside = set_aside(guards, found)
    users = {job.user for job in jobs} if aside else set()
    why = {
        user: f"{guards.breaker} checkpoints of {user}'s jobs failed within an hour: none is asked"
        f" for {aside[uid]} s, or until `ltgf lease --reset`"
        for user in users
        if (uid := uid_of(user)) is not None and uid in aside
    }
    return {str(job.job_id): (found.now, why[job.user]) for job in jobs if job.user in why}
