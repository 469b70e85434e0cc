"""Reservations, from scontrol: which nodes they keep, and when the next maintenance begins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC

from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.slurm.run import run
from slurm_ltgf.slurm.shapes import amounts
from slurm_ltgf.slurm.text import expand_hostlist
from slurm_ltgf.slurm.times import moment


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation. start, end: epoch seconds. cpus: of all its nodes together."""

    name: str
    nodes: tuple[str, ...]
    start: int
    end: int
    cpus: int = 0
    flags: frozenset[str] = frozenset()

    def is_on(self, now: int) -> bool:
        """Whether it has begun and is not over."""
        return self.start <= now < self.end


def reservations() -> tuple[Reservation, ...]:
    """Ask slurmctld for its reservations.

    Raises:
        SlurmUnavailable, SlurmRefused: scontrol failed.
    """
    return parse_reservations(
        run(["scontrol", "-o", "show", "reservation"], env_extra={"SLURM_TIME_FORMAT": "%s"})
    )


def maintenance_in_s(now: int) -> int | None:
    """Seconds until a maintenance that is not over begins, 0 while one is; None: none is planned.

    Raises:
        SlurmUnavailable, SlurmRefused: scontrol failed.
    """
    return until_maintenance(reservations(), now)


def until_maintenance(found: tuple[Reservation, ...], now: int) -> int | None:
    """The same of reservations: those with the flag MAINT.

    >>> line = "ReservationName=m StartTime=100 EndTime=200 Flags=MAINT,SPEC_NODES Users=root"
    >>> until_maintenance(parse_reservations(line), 40)
    60
    >>> until_maintenance(parse_reservations("No reservations in the system"), 40) is None
    True
    """
    begins = [max(one.start - now, 0) for one in found if "MAINT" in one.flags and one.end > now]
    return min(begins, default=None)


def parse_reservations(text: str) -> tuple[Reservation, ...]:
    """Read what scontrol printed, a reservation a line; one without a time is left out."""
    found = []
    for line in text.splitlines():
        cells = dict(re.findall(r"(?:^|(?<= ))(\w+)=(\S+)", line))
        start, end = (moment(cells.get(key, "N/A"), UTC) for key in ("StartTime", "EndTime"))
        if UNKNOWN in (start, end):
            continue
        found.append(
            Reservation(
                name=cells.get("ReservationName", ""),
                nodes=tuple(expand_hostlist(cells.get("Nodes", "(null)"))),
                start=start,
                end=end,
                cpus=amounts(cells.get("TRES", "")).cpus,
                flags=frozenset(cells.get("Flags", "").split(",")),
            )
        )
    return tuple(found)
