"""What a running job's lease means for it, and why one that waits was requeued, in sentences."""

from __future__ import annotations

from slurm_ltgf.core.lease import Action, Verdict

_THEN = {
    Action.RENEW: "it keeps its GPUs",
    Action.KEEP: "it keeps its GPUs",
    Action.YIELD: "it is asked to save and requeued",
}


def lease_sentence(
    verdict: Verdict | None, *, is_over: bool, ended: str, moves: bool, hindrance: str = ""
) -> str:
    """A running job's lease.

    Args:
        verdict: what would become of it if everything stayed as it is until the lease ends; None:
            not known.
        ended: when the lease ends or ended, as people read it.
        moves: whether the site moves jobs, or only tells whom it would move.
        hindrance: why the job cannot be asked to save, if so.
    """
    when = f"Its lease ended at {ended}" if is_over else f"Its lease ends at {ended}"
    if verdict is None:
        return f"{when}."
    as_now = "" if is_over else " as things are now"
    then = _THEN[verdict.action]
    if verdict.action is Action.YIELD and not moves:
        then = 'it would be asked to save and requeued, were lease.mode "on"'
    more = f" ({hindrance})" if hindrance else ""
    return f"{when};{as_now} {then}: {verdict.reason}{more}."


def requeue_sentence(*, by: str, when: str, story: str) -> str:
    """Why a job that waits was requeued.

    Args:
        by: who did it. when: as people read it. story: the log's: how, for what, what it kept.
    """
    return f"It was requeued at {when} by {by}: {story}."
