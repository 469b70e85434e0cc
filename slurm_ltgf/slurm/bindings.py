"""What binds jobs to nodes: nodes they name or exclude, features, reservations, whole nodes.

And the one thing that steers a job: its list of excluded nodes, which Slurm (22.05, 24.11) changes
only while the job waits ("Job is no longer pending execution"). A list of required nodes can be set
on a waiting job too, but not taken back once it runs either, and a job that requires a node waits
for it for ever when the node is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from slurm_ltgf.errors import SlurmRefused
from slurm_ltgf.slurm.queue import DELIMITER, ENVIRONMENT
from slurm_ltgf.slurm.requeue import checked_id
from slurm_ltgf.slurm.run import run
from slurm_ltgf.slurm.text import expand_hostlist, is_unknown

#: squeue -o: raw id, required nodes, excluded nodes, features, OverSubscribe, reservation.
_COLUMNS = ("%A", "%n", "%x", "%f", "%h", "%v")
_NODE = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a job may run. features: the expression as it was given. requires: nodes it names.

    is_exclusive: it shares nodes with nobody, or with its own user alone.
    """

    requires: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    features: str = ""
    reservation: str = ""
    is_exclusive: bool = False


def bindings() -> dict[int, Binding]:
    """Raw job id -> what binds it, of all jobs that wait or run.

    Raises:
        SlurmUnavailable, SlurmRefused: squeue failed.
    """
    columns = DELIMITER.join((*_COLUMNS, ""))
    return parse(run(["squeue", "-h", "-a", "-r", "-o", columns], env_extra=ENVIRONMENT))


def parse(text: str) -> dict[int, Binding]:
    """Read what `bindings` asked for; a row that cannot be read is a job that is bound.

    >>> parse("7\\x1f\\x1fn[1-2]\\x1f(null)\\x1fOK\\x1f(null)\\x1f\\n")[7].excludes
    ('n1', 'n2')
    """
    found = {}
    for line in filter(None, text.split("\n")):
        job_id, *cells = line.split(DELIMITER)
        if job_id.isdecimal():
            found[int(job_id)] = _binding(cells)
    return found


def _binding(cells: list[str]) -> Binding:
    try:
        requires, excludes, features, shared, reservation, _ = cells
        return Binding(
            requires=tuple(expand_hostlist(requires)),
            excludes=tuple(expand_hostlist(excludes)),
            features="" if is_unknown(features) else features,
            reservation="" if is_unknown(reservation) else reservation,
            is_exclusive=shared not in ("OK", "YES"),
        )
    except ValueError:
        return Binding(requires=("?",))


def features() -> dict[str, frozenset[str]]:
    """Node -> its features.

    Raises:
        SlurmUnavailable, SlurmRefused: sinfo failed.
    """
    columns = f"NodeList:{DELIMITER},Features:{DELIMITER}"
    found = {}
    for line in run(["sinfo", "-h", "-N", "-a", "-O", columns]).splitlines():
        name, words, *_ = [*line.split(DELIMITER), ""]
        found[name] = frozenset() if is_unknown(words) else frozenset(words.split(","))
    return found


def exclude(name: str, nodes: Iterable[str]) -> None:
    """Set the nodes that a waiting job excludes; none: it excludes none.

    Raises:
        SlurmRefused: the job does not wait, no rights, or no such node.
        SlurmUnavailable: slurmctld does not answer.
    """
    wanted = list(nodes)
    if not all(map(_NODE.fullmatch, wanted)):
        raise SlurmRefused(f"job {name}: cannot exclude nodes of such names: {wanted!r}")
    excluded = f"ExcNodeList={','.join(wanted)}"
    run(["scontrol", "update", f"job={checked_id(name)}", excluded], timeout_s=60)
