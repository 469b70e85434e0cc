"""The moves of this site, as whoever runs `ltgf` can make them: where they lie, who is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_ltgf.cli.app import App

if TYPE_CHECKING:
    from slurm_ltgf.core.move import Move
    from slurm_ltgf.service.moves import Moves
    from slurm_ltgf.store.ledger_records import AuditEntry


def moves_of(app: App) -> Moves:
    """The moves of this site, as this user can make them."""
    from slurm_ltgf.service.move_facts import MoveEdges
    from slurm_ltgf.service.moves import Moves
    from slurm_ltgf.service.terms import pricing_of
    from slurm_ltgf.slurm import nodes, requeue
    from slurm_ltgf.store.moves import MoveFiles

    return Moves(
        edges=MoveEdges(requeue.find, requeue.requeue, requeue.send_to, requeue.endings, _log(app)),
        files=MoveFiles(_folder(app)),
        settings=app.config.checkpoint,
        pricing=pricing_of(app.config, shards_per_gpu=nodes.capacity(()).per_gpu("shard")),
        requeued_before=lambda job_id: _requeued_before(app, job_id),
    )


def _folder(app: App) -> Path:
    """Where moves are: the site's folder, or for a user who cannot write there one of their own."""
    site = Path(app.config.checkpoint.state or app.ledger_path.parent / "moves")
    there = next((path for path in (site, *site.parents) if os.path.lexists(path)), site)
    is_ours = os.access(there, os.W_OK)
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return site if is_ours else home / "ltgf" / "moves"


def _log(app: App) -> Callable[[AuditEntry, Move], None]:
    """Into the ledger, if this user may write there; else word is left for who may."""

    def log(entry: AuditEntry, move: Move) -> None:
        from slurm_ltgf.core.move import State
        from slurm_ltgf.core.tally import of_move

        if not os.access(app.ledger_path, os.W_OK):
            _claim(app, entry, move)
            return
        with app.ledger(readonly=False) as ledger:
            ledger.audit([entry])
            if move.state.is_end:
                ledger.count(app.cluster(), move.ask, of_move(move), time=entry.time)
            if move.state is State.REQUEUED and move.saved_at is not None:
                ledger.keep(app.cluster(), move.job_id, move.started, until=move.saved_at)

    return log


def _claim(app: App, entry: AuditEntry, move: Move) -> None:
    """Leave word of a move that ended; where nobody takes it, or it cannot be left, none is."""
    from slurm_ltgf.checkpoint.claims import Claim, Claims, What

    if not app.config.checkpoint.records or not move.state.is_end or move.uid != os.geteuid():
        return
    claim = Claim(
        move.job_id, What(move.goal.value), entry.time,
        saved_at=move.saved_at, step=move.step, name=move.checkpoint,
        state=move.state.value, why=move.why, reason=move.reason,
    )  # fmt: skip
    with suppress(OSError):
        Claims(Path(app.config.checkpoint.records)).leave(claim)


def _requeued_before(app: App, job_id: int) -> int:
    if not os.access(app.ledger_path, os.R_OK):
        return 0
    with app.ledger(readonly=True) as ledger:
        entries = ledger.audit_last(10_000, job_id=str(job_id), action="requeue")
    return sum(entry.new == "requeued" for entry in entries)
