"""A report's GPU-time beside sreport's, over the whole hours that both know."""

from __future__ import annotations

from datetime import UTC, datetime

from slurm_ltgf.core.history import settle
from slurm_ltgf.core.model import Window
from slurm_ltgf.core.report import Facts
from slurm_ltgf.core.slurm_usage import Comparison, beside, device_seconds
from slurm_ltgf.errors import UsageError
from slurm_ltgf.slurm import sreport
from slurm_ltgf.slurm.sreport import HOUR_S
from slurm_ltgf.store.ledger import Ledger


def compare(ledger: Ledger, facts: Facts) -> Comparison:
    """Ask sreport about the report's period, out to full hours, and lay both side by side.

    Raises:
        UsageError: the report is on several clusters.
        SlurmUnavailable, SlurmRefused: sreport fails.
    """
    if len(facts.clusters) > 1:
        raise UsageError("--sreport: sreport is asked of one cluster; choose it with -M")
    (cluster,) = facts.clusters
    until = sreport.rolled_up_until()
    start = facts.window.start // HOUR_S * HOUR_S
    end = -(-facts.window.end // HOUR_S) * HOUR_S
    notes = []
    known = end if facts.known_until is None else facts.known_until // HOUR_S * HOUR_S
    if known < end:
        notes.append(
            f"The ledger's history ends in the hour of {_shown(known)}: compared up to it."
        )
    if until is None:
        notes.append("slurmdbd does not tell how far it has summed up: late hours may lack there.")
    elif until < end:
        notes.append(
            f"slurmdbd has summed up (rollup) until {_shown(until)} only; what is later, sreport "
            "does not know yet: compared up to then."
        )
    window = Window(start, min(end, known, end if until is None else until))
    if window.length_s <= 0:
        return Comparison(None, until, (), (*notes, "No whole hour is known to both."))
    runs = settle(ledger.runs(cluster, window), now=min(window.end, facts.generated)).runs
    rows = beside(device_seconds(runs, window), sreport.usage(cluster, window))
    return Comparison(window, until, rows, tuple(notes))


def _shown(epoch: int) -> str:
    return f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%d %H:%M} UTC"
