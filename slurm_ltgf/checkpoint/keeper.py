"""Brings a job's program back from its image, and stays with it to its end: a process of root's.

It moves into the cgroup of the job's batch step before it brings anything back: that is then bound
and counted as all of the job, and ends with it. Where Slurm tracks by something else it ends the
program itself once the batch script is gone.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_ltgf.checkpoint.board import replace_owned
from slurm_ltgf.checkpoint.criu import Criu
from slurm_ltgf.checkpoint.driver import Device, DriverError, result, states
from slurm_ltgf.checkpoint.keys import encode
from slurm_ltgf.checkpoint.node_files import Job, as_user
from slurm_ltgf.checkpoint.phases import Op, Stage
from slurm_ltgf.checkpoint.processes import below
from slurm_ltgf.checkpoint.program import KEEPER, Rights, call_oneself, wake
from slurm_ltgf.checkpoint.revive import DONE, ENDED, WISH, told
from slurm_ltgf.checkpoint.seal import Seal, cut_output, fetch
from slurm_ltgf.errors import LtgfError

CGROUPS = Path("/sys/fs/cgroup")
LOOK_S = 0.5
#: How often Slurm is asked whether the job is still there, where no cgroup tells.
JOB_S = 5.0


def wish(job: Job) -> str:
    """The image that this run of a job wants to be brought back from; "" for none, or done already.

    Raises:
        DriverError: the job's folder does not answer.
    """

    def work() -> str:
        asked, done = told(job.dir / WISH, job.uid), told(job.dir / DONE, job.uid)
        run = str(job.restart)
        is_done = done.get("restart") == run and any(word in done for word in ENDED)
        return asked.get("image", "") if asked.get("restart") == run and not is_done else ""

    return result(as_user(job.uid, work), 20, f"job {job.job_id}: its folder {job.dir}")


@dataclass(frozen=True, slots=True)
class Keeper:
    """One job's program. pids: the job's processes, from Slurm. remap: tells the driver."""

    job: Job
    criu: Criu
    device: Device
    pids: Callable[[], Iterable[int]]
    remap: Callable[[dict[str, str]], None]

    def start(self, image: str) -> None:
        """Begin, in a process of its own that outlives the agent."""
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            if os.fork() == 0:
                call_oneself(KEEPER)
                self.run(image)
        finally:
            os._exit(0)

    def run(self, image: str) -> None:
        """Bring it back, tell so, and tell its exit code in the end."""
        job = self.job
        try:
            with self.criu.locked(job.job_id, wait=False):
                if wish(job) != image:
                    return
                self._tell(began=int(time.time()))
                root, is_bound = self._bring_back(image)
                self._tell(pid=root)
        except BlockingIOError:
            return  # another one is at it
        except (LtgfError, OSError) as exc:
            self._tell(why=str(exc))
            return
        self._tell(pid=root, code=self._end_of(root, is_bound=is_bound))

    def _bring_back(self, image: str) -> tuple[int, bool]:
        with self.criu.room(self.job.job_id) as folder:
            seal = fetch(image, self.job, folder, self.criu.key)
            rights = Rights(seal.uid, seal.gids)
            rights.check()
            pids = set(self.pids())
            if not pids:
                raise DriverError(f"job {self.job.job_id} has no process here any more")
            is_bound = enter_cgroup(self.job.job_id, pids)
            cut_output(self.job, seal.output_bytes)
            self.criu.restore(folder, rights)
        try:
            self._give_gpus(seal)
        except DriverError:
            kill_all(seal.root)
            raise
        wake(one.pid for one in below(seal.root))
        return seal.root, is_bound

    def _give_gpus(self, seal: Seal) -> None:
        """The driver's part: on other GPUs than before it is told which take whose place."""
        pids = [one.pid for one in below(seal.root)]
        found = states(self.device, pids)
        paused = [pid for pid, stage in found.items() if stage is Stage.CHECKPOINTED]
        if not paused:
            return
        self.remap(mapping(seal.gpus, self.criu.gpus()))
        for pid in paused:
            self.device.act(Op.RESTORE, pid, 0)
        for pid in paused:
            self.device.act(Op.UNLOCK, pid, 0)

    def _end_of(self, root: int, *, is_bound: bool) -> int:
        asked = time.monotonic()
        while True:
            pid, status = os.waitpid(root, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if not is_bound and time.monotonic() - asked > JOB_S:
                asked = time.monotonic()
                ours = {one.pid for one in below(root)}
                with contextlib.suppress(LtgfError):  # Slurm does not answer: asked again
                    if not set(self.pids()) - ours:
                        kill_all(root)
            time.sleep(LOOK_S)

    def _tell(self, **keys: object) -> None:
        content = encode({"restart": self.job.restart, **keys})

        def work() -> str:
            replace_owned(self.job.dir / DONE, content, mode=0o600)
            return ""

        with contextlib.suppress(DriverError):
            result(as_user(self.job.uid, work), 20, "telling")


def mapping(before: Sequence[str], now: Sequence[str]) -> dict[str, str]:
    """Which GPU takes whose place; {}: all are the same ones.

    >>> mapping(["a", "b"], ["b", "c"])
    {'b': 'b', 'a': 'c'}

    Raises:
        DriverError: there are not as many.
    """
    if set(before) == set(now):
        return {}
    if len(before) != len(now):
        raise DriverError(
            f"the image is of a node with {len(before)} GPUs, this one has {len(now)}"
        )
    same = [gpu for gpu in before if gpu in now]
    others = zip(
        (gpu for gpu in before if gpu not in same), (gpu for gpu in now if gpu not in same),
        strict=True,
    )  # fmt: skip
    return {**{gpu: gpu for gpu in same}, **dict(others)}


def enter_cgroup(job_id: int, pids: Iterable[int]) -> bool:
    """Move into the cgroup (version 2) of the job's batch step, else of another step of it.

    False: none of its processes is in a cgroup of this job's.
    """
    inside = re.compile(rf"^0::(/.*/job_{job_id}/.+)$", re.MULTILINE)
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found |= set(inside.findall(Path(f"/proc/{pid}/cgroup").read_text()))
    for group in sorted(found, key=lambda group: ("/step_batch/" not in group, group)):
        with contextlib.suppress(OSError):
            (CGROUPS / group.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
            return True
    return False


def kill_all(root: int) -> None:
    """End a program and its children."""
    for one in below(root):
        with contextlib.suppress(OSError):
            os.kill(one.pid, signal.SIGKILL)
