"""Whether Slurm is as quota.toml says, for `ltgf doctor`; looks only."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from slurm_ltgf.errors import ConfigError, InputError, LedgerError, SlurmRefused, SlurmUnavailable
from slurm_ltgf.service.quota_apply import Hands
from slurm_ltgf.service.quota_look import credits_of, look
from slurm_ltgf.slurm import accounts_book, sacctmgr
from slurm_ltgf.slurm.site import Site
from slurm_ltgf.store.ledger import Ledger
from slurm_ltgf.store.quota_file import QuotaFile, load_quota


@dataclass(frozen=True, slots=True)
class Drift:
    """A quota.toml against Slurm. problem: why it was not compared, "" if it was; is_wrong: for
    the file itself. targets: what differs. refused: what cannot be, with the first reason."""

    path: Path
    problem: str = ""
    is_wrong: bool = False
    targets: tuple[str, ...] = ()
    refused: str = ""


def hands_of(cluster: str) -> Hands:
    """sacctmgr of a cluster."""
    return Hands(
        cluster,
        lambda: accounts_book.read(cluster),
        lambda change: sacctmgr.write(change, cluster),
    )


def drift_of(
    path: Path, ledger: Path, site: Site, cluster: str, *, ask: bool = True
) -> Drift | None:
    """Compare a file with Slurm; None: there is no such file.

    Args:
        ask: whether slurmdbd answers, and is worth a question.
    """
    try:
        if not path.exists():
            return None
        file = load_quota(path)
    except ConfigError as exc:
        return Drift(path, str(exc), is_wrong=True)
    except OSError as exc:
        return Drift(path, f"{path}: {exc.strerror}")
    if not ask:
        return Drift(path, "slurmdbd does not answer")
    try:
        seen = look(file, hands_of(cluster), _credits(file, ledger, site, cluster))
    except (SlurmUnavailable, SlurmRefused, InputError, LedgerError) as exc:
        return Drift(path, str(exc))
    refused = next((f"{one.target}: {one.why}" for one in seen.plan.refused), "")
    targets = tuple(dict.fromkeys(change.target for change in seen.plan.changes))
    return Drift(path, targets=targets, refused=refused)


def _credits(file: QuotaFile, ledger: Path, site: Site, cluster: str) -> dict[str, int]:
    """The period's credits; none where there is no ledger."""
    if not ledger.exists():
        return {}
    with Ledger(ledger, readonly=True) as opened:
        return credits_of(file, opened, site, cluster, now=int(time.time()))
