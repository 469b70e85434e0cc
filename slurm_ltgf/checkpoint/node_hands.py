"""What an agent does to the processes of one job on its node: the driver's calls.

It touches no process but those that Slurm says are the job's, that belong to its user and that are
still the ones that were named. Before the first is touched a mark is made in a folder of root's on
the node: what a killed agent had begun, the next one finds by it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from slurm_ltgf.checkpoint import phases
from slurm_ltgf.checkpoint.board import Board, replace_owned
from slurm_ltgf.checkpoint.driver import (
    STATES_S,
    Call,
    Device,
    DriverError,
    call,
    result,
    start,
    states,
)
from slurm_ltgf.checkpoint.node_files import Job
from slurm_ltgf.checkpoint.phases import Op, Plan, Stage, Told, Want
from slurm_ltgf.checkpoint.program import stat_of, wake
from slurm_ltgf.checkpoint.protocol import Mode

_FORTH = (Op.LOCK, Op.CHECKPOINT)
#: A step back that the driver refused is tried again after so long.
AGAIN_S = 2.0


class Images(Protocol):
    """What writes processes to disk."""

    def start(self, job: Job, pids: Sequence[int], *, key: str, leave_running: bool) -> Call:
        """Begin; in the end the call tells the checkpoint's name and its bytes."""

    def is_busy(self, job_id: int) -> bool:
        """Whether processes of this job are being written, by whomever."""

    def forget(self, job_id: int) -> None:
        """The job is gone from this node."""


@dataclass(slots=True)
class Room:
    """Who may take GPU memory again. A restore that finds too little of it loses the process.

    free: bytes of each GPU. None of a GPU: not known, and then not waited for.
    """

    free: Callable[[], dict[str, int]]
    _taken: dict[int, dict[str, int]] = field(default_factory=dict)

    def take(self, job_id: int, needs: dict[str, int]) -> bool:
        """Whether there is room for this job beside the others that go on now.

        Raises:
            DriverError: NVML does not answer.
        """
        if job_id in self._taken:
            return True
        free = json.loads(result(call(lambda: json.dumps(self.free())), STATES_S, "free memory"))
        others = list(self._taken.values())
        for gpu, size in needs.items():
            if gpu in free and size + sum(one.get(gpu, 0) for one in others) > free[gpu]:
                return False
        self._taken[job_id] = needs
        return True

    def leave(self, job_id: int) -> None:
        """It has what it needs."""
        self._taken.pop(job_id, None)


@dataclass(frozen=True, slots=True)
class Tools:
    """What an agent works with.

    pids: processes of a job on this node, from Slurm. look: why processes cannot be checkpointed,
    "" for nothing, and their bytes of each GPU. marks: a folder of root's. images: None: this node
    cannot write any. revive: brings a job back from an image of that name, if it wants that.
    """

    board: Board
    device: Device
    pids: Callable[[int], Iterable[int]]
    look: Callable[[Sequence[int]], tuple[str, dict[str, int]]]
    room: Room
    marks: Path
    tell: Callable[[str], None]
    images: Images | None = None
    revive: Callable[[Job], None] | None = None


@dataclass(slots=True)
class Hands:
    """The processes of one job on this node. told: what this node says of the plan it acts on.

    needs: their bytes of each GPU, before they were checkpointed.
    """

    job: Job
    tools: Tools
    needs: dict[str, int] = field(default_factory=dict)
    told: Told | None = None
    _why: str = ""
    _looked: Call | None = None
    _calls: dict[int, tuple[Op, Call]] = field(default_factory=dict)
    _known: dict[int, str] = field(default_factory=dict)
    _again_at: float = 0.0

    def act(self, plan: Plan | None, now: int) -> None:  # noqa: C901 - one step, in order
        """Do what the plan wants and nobody is at yet; without a plan, bring all back."""
        want = phases.in_effect(plan, now=now)
        if plan is not None and (self.told is None or not self.told.speaks_of(plan)):
            self._why, self._looked = "", None
        self._collect()
        if want is Want.HOLD and self.job.mode is Mode.CRIU and plan is not None:
            # a process that CRIU has stopped does not answer the driver
            stage = phases.GOALS[want]
            self.told = Told(self.job.rank, plan.key, plan.attempt, want, stage, self._why)
            return
        idle = [pid for pid in self.pids() if pid not in self._calls]
        if want in (Want.BACK, Want.OVER):
            self._wake(idle)
        try:
            found = states(self.tools.device, idle)
            for pid, stage in found.items():
                self._do(want, pid, stage, plan, now)
        except DriverError as exc:
            self.tools.tell(f"job {self.job.job_id}: {exc}")
            return
        stage = self._stage(want, found.values())
        if want is Want.LOOK and not self._look(list(found)):
            stage = Stage.MIXED
        if plan is not None:
            self.told = Told(self.job.rank, plan.key, plan.attempt, want, stage, self._why)
        if want in (Want.BACK, Want.OVER) and stage in (Stage.RUNNING, Stage.GONE):
            self._unmark()

    def _stage(self, want: Want, found: Iterable[Stage]) -> Stage:
        if self._calls:
            return Stage.MIXED
        stages = list(found)
        if not stages and self.job.mode is Mode.CRIU:  # a program without a GPU
            return phases.GOALS.get(want, Stage.RUNNING)
        return phases.together(stages)

    def _do(self, want: Want, pid: int, stage: Stage, plan: Plan | None, now: int) -> None:
        op = phases.duty(want, stage)
        if op is None or (self._why and op in _FORTH):
            return
        if op not in _FORTH and time.monotonic() < self._again_at:
            return
        if op is Op.RESTORE and not self.tools.room.take(self.job.job_id, self.needs):
            self._again_at = time.monotonic() + AGAIN_S
            self.tools.tell(f"job {self.job.job_id}: waits until its GPUs' memory is free again")
            return
        if op is Op.LOCK:
            self.mark()
        left = plan.until - now if plan is not None else phases.LOCK_S
        self._calls[pid] = op, start(self.tools.device, op, pid, timeout_s=max(left - 1, 1))

    def _collect(self) -> None:
        """What the driver is through with."""
        for pid, (op, done) in list(self._calls.items()):
            if not done.is_done():
                continue
            del self._calls[pid]
            if done.error and op in _FORTH:
                self._why = self._why or done.error
            elif done.error:
                self._again_at = time.monotonic() + AGAIN_S
                self.tools.tell(f"job {self.job.job_id}: {done.error}; trying again")

    def _look(self, pids: list[int]) -> bool:
        """See whether anything stands against it; False: that is not known yet."""
        if self._looked is None:

            def work() -> str:
                return json.dumps(self.tools.look(pids))

            self._looked = call(work)
        if not self._looked.is_done():
            return False
        if self._looked.error:
            self._why = self._looked.error
            return True
        why, self.needs = json.loads((self._looked.answer or "=")[1:])
        self._why = "" if self.job.mode is Mode.CRIU and not pids else why
        return True

    def pids(self) -> list[int]:
        """The job's processes now: those that Slurm names, that are its user's and still there."""
        for pid in self.tools.pids(self.job.job_id):
            if owner_of(pid) == self.job.uid:
                self._known.setdefault(pid, _began(pid))
        for pid, began in list(self._known.items()):
            if not began or _began(pid) != began:
                del self._known[pid]
        return sorted(self._known)

    def has_gpu(self) -> bool:
        """Whether any of them has GPU memory.

        Raises:
            DriverError: the driver does not answer.
        """
        return bool(states(self.tools.device, self.pids()))

    def _wake(self, pids: Iterable[int]) -> None:
        """Those that CRIU left stopped run again."""
        if self.job.mode is Mode.CRIU and self.is_marked:
            wake(pids)

    # --- the mark ---------------------------------------------------------------------------------

    @property
    def is_marked(self) -> bool:
        """Whether its processes were touched, and not all are known to run again."""
        return self._mark.exists()

    @property
    def _mark(self) -> Path:
        return self.tools.marks / str(self.job.job_id)

    def mark(self) -> None:
        """Write down that its processes are touched from now on."""
        if not self.is_marked:
            job = {**asdict(self.job), "dir": str(self.job.dir)}
            mark = json.dumps({"job": job, "needs": self.needs})
            replace_owned(self._mark, mark.encode(), mode=0o600)

    def forget(self) -> None:
        """Its processes are gone."""
        self.tools.room.leave(self.job.job_id)
        self._mark.unlink(missing_ok=True)

    def _unmark(self) -> None:
        self.tools.room.leave(self.job.job_id)
        images = self.tools.images
        if images is not None and images.is_busy(self.job.job_id):
            return
        self._wake(self.pids())  # CRIU may have come to its end since they were woken
        self._mark.unlink(missing_ok=True)


def marked(marks: Path) -> list[tuple[Job, dict[str, int]]]:
    """Jobs whose processes an agent of this node had touched, with what they need."""
    found = []
    for path in marks.iterdir():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            mark = json.loads(path.read_bytes())
            keys = mark["job"]
            job = Job(**{**keys, "mode": Mode(keys["mode"]), "dir": Path(keys["dir"])})
            found.append((job, dict(mark["needs"])))
    return found


def owner_of(pid: int) -> int | None:
    """Whose a process is; None: it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid
    return None


def _began(pid: int) -> str:
    """When a process began, in the kernel's clock: with its number it names one process alone."""
    return (stat_of(pid) or [""] * 20)[19]
