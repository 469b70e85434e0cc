"""History of a live Slurm: sacct, asked in slices of time -> batches of runs.

All that sacct would take from its surroundings is said to it: the window (-S and -E, never in the
future), the columns (none that a user can write into), the delimiter, and through `run`'s
environment the clock (UTC) and the form of times (epoch seconds). What is yielded comes from
slices that sacct finished without an error.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

from slurm_ltgf.core.model import Batch
from slurm_ltgf.errors import InputError, SlurmUnavailable
from slurm_ltgf.slurm.dump import read_text
from slurm_ltgf.slurm.rows import Site
from slurm_ltgf.slurm.run import run, stream

COLUMNS = (
    *("JobID", "JobIDRaw", "Cluster", "Account", "User", "Partition", "State"),
    *("Submit", "Eligible", "Start", "End", "ElapsedRaw", "Suspended", "TimelimitRaw"),
    *("AllocTRES", "ReqTRES", "NodeList"),
)
#: Columns that only some series have (Restarts: from 24.11 on).
NEWER_COLUMNS = ("Restarts",)
#: ASCII unit separator: no name in Slurm can hold it.
DELIMITER = "\x1f"

DAY_S = 86400
#: sacct and slurmdbd need memory and time in proportion to the rows of an answer.
MOST_ROWS = 50_000
SHORTEST_SLICE_S, LONGEST_SLICE_S = 900, 30 * DAY_S
#: Of silence: slurmdbd sends an answer only when it has all of it.
TIMEOUT_S = 600.0


class SacctReader:
    """Reads runs from sacct."""

    def __init__(
        self,
        cluster: str | None = None,
        *,
        slice_s: int = DAY_S,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """cluster: for sacct -M; None is the local one. slice_s: of the first question."""
        self._cluster = cluster
        self._slice_s = slice_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._columns: tuple[str, ...] = ()

    def read(self, start: int, end: int) -> Iterator[Batch]:
        """Read all runs that waited or ran in a window, finished or not; some come more than once.

        Args:
            start: epoch seconds UTC, as is end; what lies in the future is not asked for.

        Raises:
            SlurmUnavailable, SlurmRefused: of the slice that failed; nothing of it was yielded.
        """
        end = min(end, int(self._clock()))
        length = self._slice_s
        while start < end:
            until = min(start + length, end)
            batches = list(self._slice(start, until))
            yield from batches
            length = _next_length(length, sum(len(batch.runs) for batch in batches))
            start = until

    def _slice(self, start: int, end: int) -> Iterator[Batch]:
        argv = command(start, end, columns=self._known_columns(), cluster=self._cluster)
        site = Site(self._cluster or "", UTC, int(self._clock()))
        with stream(argv, timeout_s=self._timeout_s, env_extra=_TIMES) as blocks:
            first = next(blocks, b"")
            if not first:
                return
            try:
                for batch in read_text(chain([first], blocks), site):
                    yield _without_lines(batch, f"sacct -S {_utc(start)} -E {_utc(end)}")
            except InputError as exc:
                raise SlurmUnavailable(f"sacct answered, but not with a table: {exc}") from exc

    def _known_columns(self) -> tuple[str, ...]:
        if not self._columns:
            offered = run(["sacct", "--helpformat"]).lower().split()
            newer = tuple(name for name in NEWER_COLUMNS if name.lower() in offered)
            self._columns = (*COLUMNS, *newer)
        return self._columns


#: SLURM_TIME_FORMAT is strftime's: epoch seconds whatever the site's default.
_TIMES = {"SLURM_TIME_FORMAT": "%s"}


def _next_length(length: int, rows: int) -> int:
    """Length of the next slice, so that it has about MOST_ROWS at most."""
    if rows > MOST_ROWS:
        return max(length // 2, SHORTEST_SLICE_S)
    return min(length * 2, LONGEST_SLICE_S) if rows < MOST_ROWS // 4 else length


def _without_lines(batch: Batch, source: str) -> Batch:
    """The line of a live answer means nothing to anybody."""
    skipped = tuple(replace(row, line=0, source=source) for row in batch.skipped)
    return replace(batch, skipped=skipped)


def command(
    start: int,
    end: int,
    *,
    columns: tuple[str, ...] = COLUMNS,
    cluster: str | None = None,
    delimiter: str = DELIMITER,
) -> list[str]:
    """The sacct command for a window; it must run with TZ=UTC.

    -a all users, -X allocations without steps, -D every run of a requeued job, -P no padding.
    """
    where = ["-M", cluster] if cluster else []
    asked = ["--delimiter", delimiter, "-o", ",".join(columns)]
    return ["sacct", "-a", "-X", "-D", "-P", *where, *asked, "-S", _utc(start), "-E", _utc(end)]


def _utc(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def dump_command(start: int, end: int) -> str:
    """A shell line that saves the history of a window for `ltgf sync --from-file`."""
    unset = ["-u", "SACCT_FORMAT", "-u", "SLURM_CLUSTERS"]
    settings = ["TZ=UTC", "LC_ALL=C.UTF-8", "SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0"]
    words = ["env", *unset, *settings, *command(start, end, delimiter="|")]
    return f"{shlex.join(words)} > sacct.psv"
