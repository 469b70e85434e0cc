"""The agent of a node: checkpoints jobs from outside that were submitted with `driver` or `criu`.

One process a node, as root: only root may checkpoint processes of others. It looks once a second
for asks on the site's board, and acts on processes that Slurm says are the job's, on nothing else.
Whatever lies in a folder of the job's user is read and written as that user.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurm_ltgf.checkpoint.board import BoardError
from slurm_ltgf.checkpoint.driver import DriverError
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.checkpoint.node_files import Job
from slurm_ltgf.checkpoint.node_hands import Tools, marked, owner_of
from slurm_ltgf.checkpoint.node_job import Attendance
from slurm_ltgf.checkpoint.protocol import Mode, Record
from slurm_ltgf.errors import LtgfError

#: How often asks are looked for, and how often while one is being answered.
IDLE_S, BUSY_S = 1.0, 0.1
#: How often Slurm is asked which jobs have processes here.
LOOK_S = 5.0
_RECORD = re.compile(r"(\d+)\.(\d+)")
#: A job's user, its restart count, this node's number in it, and how many nodes it has.
Seat = tuple[int, int, int, int]


@dataclass(slots=True)
class Processes:
    """Which processes jobs have here, asked of Slurm no more often than needed."""

    ask: Callable[[], Mapping[int, frozenset[int]]]
    tell: Callable[[str], None]
    _known: Mapping[int, frozenset[int]] = field(default_factory=dict)
    _at: float | None = None

    def all(self, *, older_s: float = LOOK_S) -> Mapping[int, frozenset[int]]:
        """Of all jobs, as it was at most so long ago."""
        now = time.monotonic()
        if self._at is None or now - self._at >= older_s:
            self._at = now
            try:
                self._known = self.ask()
            except LtgfError as exc:
                self.tell(f"which processes are here is not known: {exc}")
        return self._known

    def of(self, job_id: int) -> frozenset[int]:
        """Of a job that is being checkpointed."""
        return self.all(older_s=1.0).get(job_id, frozenset())


@dataclass(slots=True)
class Agent:
    """All jobs on this node that can be checkpointed from outside."""

    tools: Tools
    processes: Processes
    seat: Callable[[int], Seat | None]
    _jobs: dict[int, Attendance] = field(default_factory=dict)
    _looked_at: float | None = None

    def __post_init__(self) -> None:
        for job, needs in marked(self.tools.marks):
            self._jobs[job.job_id] = one = Attendance(job, self.tools)
            one.hands.needs = needs

    def serve(self, stop: threading.Event, alive: Callable[[], None]) -> None:
        """Until told to stop. Who stands still then does so until an agent runs again."""
        while not stop.is_set():
            is_busy = self.tick(int(time.time()))
            alive()
            stop.wait(BUSY_S if is_busy else IDLE_S)

    def tick(self, now: int) -> bool:
        """One look at everything; True: something is under way."""
        if self._looked_at is None or time.monotonic() - self._looked_at >= LOOK_S:
            self._look()
            self._looked_at = time.monotonic()
        return any([self._tick(one, now) for one in list(self._jobs.values())])

    def _tick(self, one: Attendance, now: int) -> bool:
        try:
            return one.tick(now)
        except (LtgfError, OSError) as exc:  # one job's trouble is not the others'
            self.tools.tell(f"job {one.job.job_id}: {exc}")
            return True

    # --- which jobs -------------------------------------------------------------------------------

    def _look(self) -> None:
        """Begin with jobs that have come, and forget those that are gone."""
        here = self.processes.all(older_s=0)
        try:
            records = self._records(here)
        except OSError as exc:
            self.tools.tell(f"{self.tools.board.folder}: {exc.strerror}")
            return
        for job_id, found in records.items():
            known = self._jobs.get(job_id)
            runs = {(one.uid, one.restart) for one in found}
            if known is None or (known.job.uid, known.job.restart) not in runs:
                self._attend(job_id, found)
        for job_id, one in list(self._jobs.items()):
            if job_id not in here and not one.hands.pids():
                one.hands.forget()
                if self.tools.images is not None:
                    self.tools.images.forget(job_id)
                del self._jobs[job_id]
                continue
            with contextlib.suppress(DriverError):
                if self.tools.revive is not None and one.job.mode is Mode.CRIU and one.job.restart:
                    self.tools.revive(one.job)
                one.say_ready()

    def _records(self, here: Mapping[int, frozenset[int]]) -> dict[int, list[Record]]:
        """Those of jobs here that the agent may be to checkpoint; anybody can write some.

        Only who has processes in a job is looked at: who has not, has no record of it.
        """
        found: dict[int, list[Record]] = {}
        for path in self.tools.board.folder.iterdir():
            match = _RECORD.fullmatch(path.name)
            if match is None:
                continue
            job_id, uid = int(match[1]), int(match[2])
            if not any(owner_of(pid) == uid for pid in here.get(job_id, ())):
                continue
            with contextlib.suppress(BoardError, ProtocolError):
                record = self.tools.board.record(job_id, uid)
                if record is not None and record.mode is not Mode.APP:
                    found.setdefault(job_id, []).append(record)
        return found

    def _attend(self, job_id: int, records: list[Record]) -> None:
        """Slurm says whose the job is: a record of somebody else's counts for nothing."""
        try:
            seat = self.seat(job_id)
        except LtgfError as exc:
            self.tools.tell(f"job {job_id}: {exc}")
            return
        for record in records:
            if seat is not None and seat[:2] == (record.uid, record.restart):
                uid, restart, rank, ranks = seat
                job = Job(job_id, uid, restart, rank, ranks, record.mode, record.dir)
                if job_id in self._jobs:  # of a run that is over, whatever was under way in it
                    self._jobs[job_id].hands.forget()
                self._jobs[job_id] = Attendance(job, self.tools)
