"""What sreport says of GPU-time, and how far slurmdbd has summed it up (its rollup)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from slurm_ltgf.core.model import Window
from slurm_ltgf.errors import InputError, SlurmRefused
from slurm_ltgf.slurm.run import run
from slurm_ltgf.slurm.text import account_name

FIELDS = ("Cluster", "Account", "Login", "TresName", "Used")
HOUR_S = 3600
#: Of `sacctmgr show stats`: up to which hour, or at least when it last ran.
_HOUR = re.compile(r"^\s*Hour\s+last ran .*\((\d+)\)", re.MULTILINE)
_LAST = re.compile(r"rollup last ran .*\((\d+)\)")


def usage(cluster: str, window: Window) -> dict[tuple[str, str], int]:
    """Device-seconds of gres/gpu by (account, login) over whole hours, as sreport has them.

    Raises:
        SlurmUnavailable, SlurmRefused: as `run`.
        InputError: an answer without the asked columns.
    """
    # In seconds: minutes and hours it rounds, each row for itself.
    since, until = (f"{datetime.fromtimestamp(t, UTC):%Y-%m-%dT%H:%M}" for t in _ends(window))
    argv = ["sreport", "-n", "-P", "-t", "seconds", "-T", "gres/gpu", "cluster"]
    argv += ["AccountUtilizationByUser", f"cluster={cluster}", f"start={since}", f"end={until}"]
    return parse(run([*argv, f"format={','.join(FIELDS)}"]))


def _ends(window: Window) -> tuple[int, int]:
    if window.start % HOUR_S or window.end % HOUR_S:
        raise ValueError(f"not whole hours: {window}")
    return window.start, window.end


def parse(text: str) -> dict[tuple[str, str], int]:
    """Read rows of Cluster|Account|Login|TresName|Used; rows of accounts (no login) are left out.

    >>> parse("c|astro|||gres/gpu|40\\nc|astro|alice|gres/gpu|40\\n")
    Traceback (most recent call last):
    slurm_ltgf.errors.InputError: sreport, row 1: expected 5 columns, got 6: 'c|astro|||gres/gpu|40'
    >>> parse("c|astro||gres/gpu|40\\nc|astro|alice|gres/gpu|40\\n")
    {('astro', 'alice'): 40}
    """
    found: dict[tuple[str, str], int] = {}
    for number, line in enumerate(filter(None, text.split("\n")), 1):
        cells = line.split("|")
        if len(cells) != len(FIELDS) or not cells[-1].isdecimal():
            raise InputError(
                f"sreport, row {number}: expected {len(FIELDS)} columns, got {len(cells)}: {line!r}"
            )
        _, account, login, _, used = cells
        who = account_name(account), login
        if login:
            found[who] = found.get(who, 0) + int(used)
    return found


def rolled_up_until() -> int | None:
    """Up to which moment slurmdbd has summed up, epoch seconds; None: it does not tell us.

    Raises:
        SlurmUnavailable: slurmdbd does not answer.
    """
    try:
        return parse_stats(run(["sacctmgr", "show", "stats"]))
    except SlurmRefused:
        return None  # only operators may ask


def parse_stats(text: str) -> int | None:
    """Read `sacctmgr show stats`; an hour counts as summed up when it is over.

    >>> parse_stats("Internal DBD rollup last ran Mon Nov 30 08:58:01 2026 (1796029081)")
    1796025600
    """
    hour, last = _HOUR.search(text), _LAST.search(text)
    if hour:
        return int(hour[1])
    return int(last[1]) // HOUR_S * HOUR_S if last else None
