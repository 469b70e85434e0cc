"""GPU-time that Slurm counts against budgets, as slurmctld has it: one sshare, nothing of slurmdbd.

sshare prints whole minutes, of each account with all below it: GrpTRESMins (the limit),
GrpTRESRaw (what was used, less what PriorityDecayHalfLife has forgotten since the last
PriorityUsageResetPeriod), TRESRunMins (what running jobs could still use). slurmctld brings
GrpTRESRaw up to date every PriorityCalcPeriod, at most once a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_ltgf.errors import InputError
from slurm_ltgf.slurm.run import run

FIELDS = ("Account", "User", "GrpTRESMins", "GrpTRESRaw", "TRESRunMins")
#: The TRES of a GPU, whatever its type; and Slurm's weighted sum of all TRES.
GPU, BILLING = "gres/gpu", "billing"


@dataclass(frozen=True, slots=True)
class Counted:
    """An account in slurmctld: TRES -> minutes. limit: only where there is one. parent "": none."""

    account: str
    parent: str = ""
    limit: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    running: Mapping[str, int] = field(default_factory=dict)


def counted() -> dict[str, Counted]:
    """Ask slurmctld what it counts: account -> its counters. With -M sshare would ask slurmdbd too.

    Raises:
        SlurmUnavailable, SlurmRefused: sshare failed. InputError: it cannot be read.
    """
    return parse(run(["sshare", "-n", "-P", "-o", ",".join(FIELDS)]))


def parse(text: str) -> dict[str, Counted]:
    """Read what `counted` asked for; rows of users are passed over. Indentation tells the parent.

    >>> rows = "root|||gres/gpu=50|\\n chem||gres/gpu=600|cpu=9,gres/gpu=41|gres/gpu=20\\n"
    >>> chem = parse(rows)["chem"]
    >>> chem.parent, chem.limit["gres/gpu"], chem.used["gres/gpu"], chem.running["gres/gpu"]
    ('root', 600, 41, 20)
    """
    found: dict[str, Counted] = {}
    path: list[str] = []
    for line in filter(None, text.split("\n")):
        cells = line.split("|")
        if len(cells) != len(FIELDS):
            raise InputError(f"sshare: expected {len(FIELDS)} columns, got {line!r}")
        name, user = cells[0].lstrip(" "), cells[1]
        if user:
            continue
        depth = len(cells[0]) - len(name)
        path[depth:] = [name.lower()]
        limit, used, running = (tres_counts(cell) for cell in cells[2:])
        parent = path[-2] if len(path) > 1 else ""
        found[path[-1]] = Counted(path[-1], parent, limit, used, running)
    return found


def tres_counts(text: str) -> dict[str, int]:
    """A TRES list as name -> count, names as Slurm writes them; each is found by its name.

    >>> tres_counts("cpu=600000,gres/gpu=60000,gres/gpu:a100=30000")["gres/gpu"]
    60000
    >>> tres_counts("")
    {}

    Raises:
        InputError: a part that is not NAME=WHOLE NUMBER (mem may have a unit and is left out).
    """
    found: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, _, count = part.partition("=")
        if count.isdecimal():
            found[name] = int(count)
        elif not name or not count[:-1].replace(".", "", 1).isdecimal():
            raise InputError(f"cannot read TRES {part!r} of {text!r}")
    return found
