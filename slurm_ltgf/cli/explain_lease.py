"""The part of `ltgf explain` that tells of leases: when one ends, and why a job was requeued."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slurm_ltgf.cli import render
from slurm_ltgf.cli.app import App
from slurm_ltgf.errors import LtgfError

if TYPE_CHECKING:
    from slurm_ltgf.service.present import View
    from slurm_ltgf.slurm.queue import QueueJob


def lease_of(app: App, seen: View, record: QueueJob) -> tuple[dict[str, Any] | None, list[str]]:
    """A running job's lease, for programs and in sentences; None: it has none.

    What becomes of it is judged as if everything stayed as it is until the lease ends.
    """
    from slurm_ltgf.cli.lease import lease_edges, row_of
    from slurm_ltgf.cli.move_site import moves_of
    from slurm_ltgf.core.explain_lease import lease_sentence
    from slurm_ltgf.service.leases import judge
    from slurm_ltgf.service.terms import rules_of

    mode = app.config.lease.mode
    if mode == "off" or record.state != "RUNNING" or record.start < 0:
        return None, []
    ends = record.start + int(rules_of(app.config).lease_s)
    then = replace(seen, now=max(seen.now, ends))
    try:
        with app.ledger(readonly=True) as ledger:
            judged = judge(then, app.config, ledger, moves_of(app), lease_edges())
    except LtgfError as exc:
        return None, [f"What becomes of its lease is not known: {exc}."]
    row = next((row for row in judged.rows if row.job.job_id == record.job_id), None)
    if row is None:
        return None, []
    told = row_of(row, seen.now)
    said = lease_sentence(
        row.verdict,
        is_over=ends <= seen.now,
        ended=render.moment(ends),
        moves=mode == "on",
        hindrance=row.why,
    )
    return {"ends": ends, **{k: told[k] for k in ("left_s", "verdict", "to", "why")}}, [said]


def requeue_of(app: App, record: QueueJob) -> tuple[dict[str, Any] | None, list[str]]:
    """The last requeue of a job by ltgf, for programs and in sentences; None: there was none."""
    from slurm_ltgf.core.explain_lease import requeue_sentence

    if not record.restarts:
        return None, []
    with app.ledger(readonly=True) as ledger:
        log = ledger.audit_last(100, job_id=str(record.job_id), action="requeue")
    last = next((entry for entry in log if entry.new == "requeued"), None)
    if last is None:
        return None, []
    said = requeue_sentence(by=last.actor, when=render.moment(last.time), story=last.reason)
    return {"time": last.time, "by": last.actor, "why": last.reason}, [said]
