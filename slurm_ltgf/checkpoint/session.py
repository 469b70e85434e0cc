"""What a training script imports: is this a restart, where to continue from, is a save due, saved.

    ckpt = checkpoint.session()
    state = load(ckpt.last / "state") if ckpt.last else fresh()
    for step in range(ckpt.step, steps):
        state = train(state)
        if ckpt.requested(step + 1):
            with ckpt.commit(step + 1) as folder:
                save(state, folder / "state")
            if ckpt.must_stop:
                break

A step's number counts the steps that are done. All ranks save the same step; see `accord`. Signals
only set a flag. Nothing here ends the program, and every wait has an end: when something fails the
training goes on with the checkpoint that it had.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from slurm_ltgf.checkpoint.accord import OWN, PLAN, Accord, Plan, Told
from slurm_ltgf.checkpoint.archive import Archive, Checkpoint
from slurm_ltgf.checkpoint.bell import Bell
from slurm_ltgf.checkpoint.board import BoardError
from slurm_ltgf.checkpoint.follower import Follower
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.checkpoint.leader import Leader
from slurm_ltgf.checkpoint.listener import Listener
from slurm_ltgf.checkpoint.place import Place, here
from slurm_ltgf.checkpoint.protocol import Action
from slurm_ltgf.checkpoint.starting import continue_from


class Session:
    """A process of a job that can be checkpointed. Made by `session`.

    Attributes:
        place: job, run, rank, folder.
        last: folder of the checkpoint to continue from, None at a fresh start.
        step: its step, 0 at a fresh start.
        notes: what goes into each checkpoint and comes back with it (a tracker's run id).
        saved: whether the last commit came to a checkpoint that counts.
        must_stop: Slurm takes the job's time or GPUs and the job is saved: end the program.
    """

    def __init__(
        self,
        place: Place,
        *,
        verify: bool,
        pause: Callable[[], object] | None,
        resume: Callable[[], object] | None,
        notes: Mapping[str, str],
        independent: bool,
        keep_signal: bool,
    ) -> None:
        self.place = place
        self._told_once: set[str] = set()
        self.saved = False
        self.must_stop = False
        self._accord = Accord(place)
        self._archive = Archive(place.folder)
        self._pause, self._resume = pause, resume
        place.make()
        bell = Bell(place.signal, keep=keep_signal)
        found = continue_from(self._accord, self._archive, verify=verify, say=self._say)
        self.last: Path | None = found.path if found else None
        self.step = found.step if found else 0
        self.notes: dict[str, str] = {**(found.notes if found else {}), **notes}
        self._due: Plan | None = None
        self._own: tuple[int, int] = (-1, 0)
        self._began = 0.0
        self._leader: Leader | None = None
        self._follower = Follower(self._accord, self._archive, self._tell, self._say)
        self._tell(Plan(place.launch, "", "", attempt=0), "ready", self.step)
        if place.is_leader:
            self._leader = Leader(
                self._accord, self._say, can_pause=pause is not None, independent=independent
            )
            self._enter(found)
        self._listener = Listener(self._accord, bell, self._leader, self._tell, self._say)

    @property
    def is_restart(self) -> bool:
        """Whether the job ran before, or left a checkpoint."""
        return self.place.restart > 0 or self.last is not None

    @property
    def restarts(self) -> int:
        """How often Slurm restarted the job."""
        return self.place.restart

    def requested(self, step: int) -> bool:
        """Whether this rank should save now; call it at every step boundary. Cheap.

        Args:
            step: how many steps are done. All ranks must call it with the same numbers.
        """
        plan = self._listener.due(step)
        if plan is None:
            return False
        if plan.action is Action.PAUSE:
            self._sleep(plan, step)
            return False
        self._due = plan
        return True

    @contextmanager
    def commit(self, step: int) -> Generator[Path]:
        """Save: the block writes files into the folder it is given, all ranks into the same one.

        What the disk refuses (OSError) is said on stderr and to whoever asked, and the training
        goes on with the checkpoint before; `saved` tells. Any other error is raised.
        """
        plan, self._due, self.saved = self._due or self._own_plan(step), None, False
        path, self._began = self.place.folder, time.time()
        try:
            path = self._archive.begin(f"{plan.key}.{plan.attempt}")
            yield path
        except OSError as exc:
            self._fail(plan, path, f"{exc.filename or path}: {exc.strerror or exc}")
            return
        except BaseException as exc:
            why = f"{type(exc).__name__} in the program's own save: {exc}"
            self._fail(plan, path, why, is_own=True)
            raise
        self._finish(plan, step, path)

    def _enter(self, found: Checkpoint | None) -> None:
        """As the leader: be known, then be ready."""
        try:
            if self.place.job_id:
                self.place.enter()
        except (BoardError, ProtocolError) as exc:
            self._say(f"nobody can ask this job: {exc}")
            return
        if self._leader:
            self._leader.voice.ready(found)

    # --- saving -----------------------------------------------------------------------------------

    def _own_plan(self, step: int) -> Plan:
        """The plan of a save that nobody asked for."""
        self._own = (step, self._own[1] + 1 if self._own[0] == step else 1)
        deadline = int(time.time()) + self.place.timeout_s
        plan = Plan(self.place.launch, f"own-{step}", "save", deadline=deadline)
        return replace(plan, attempt=self._own[1], save_at=step)

    def _file(self, plan: Plan) -> str:
        return OWN if plan.key.startswith("own-") else PLAN

    def _finish(self, plan: Plan, step: int, path: Path) -> None:
        """The files are written: check them, make the checkpoint count, hold if that was asked."""
        try:
            self._tell(plan, "written", step)
            if self._leader:
                name = self._leader.gather(plan, step, path, self.notes, file=self._file(plan))
            else:
                name = self._follower.join(plan, step, path, file=self._file(plan))
        except OSError as exc:
            self._fail(plan, path, f"{exc.filename or path}: {exc.strerror or exc}")
            return
        if not name:
            return
        self.saved, self.last, self.step = True, self.place.folder / name, step
        if self._leader:
            seconds = time.time() - self._began
            self._leader.saved(plan, self._archive.read(name), seconds=seconds)
        if plan.action is Action.REQUEUE:
            self._hold(replace(plan, name=name))
        if plan.stop:
            self._tell(plan, "stopping", step)
            self.must_stop = True

    def _fail(self, plan: Plan, path: Path, why: str, *, is_own: bool = False) -> None:
        self._say(f"no checkpoint of this step: {why}")
        if self._leader:
            self._leader.withdraw(plan, f"rank 0: {why}", file=self._file(plan), is_own=is_own)
        else:
            self._tell(plan, "broke" if is_own else "failed", self._listener.step or 0, why=why)
        if self.place.ranks == 1 and path != self.place.folder:
            self._archive.drop(path)

    # --- holding ----------------------------------------------------------------------------------

    def _hold(self, plan: Plan) -> None:
        """Stay at this step until the requeue ends the process, or until it does not come."""
        self._tell(plan, "holding", self.step)
        if self._leader:
            self._leader.hold(plan)
        else:
            self._follower.await_end(plan)
        self._say(f"nothing came of it: the training goes on from step {self.step}")

    def _sleep(self, plan: Plan, step: int) -> None:
        """Give the GPUs back, keep everything in memory, and take them again."""
        began = time.time()
        try:
            if self._pause:
                self._pause()
            self._tell(plan, "written" if self._pause else "failed", step, why="cannot be paused")
            if self._leader:
                if self._leader.all_paused(plan, step, seconds=time.time() - began):
                    self._leader.hold(plan)
            elif self._follower.is_committed(plan):
                self._follower.await_end(plan)
        finally:
            if self._resume:
                self._resume()

    # --- telling ----------------------------------------------------------------------------------

    def _tell(self, plan: Plan, phase: str, step: int, why: str = "") -> None:
        """Tell the other ranks; a full disk must not end the training."""
        try:
            self._accord.tell(Told(self.place.rank, phase, plan.key, plan.attempt, step, why))
        except OSError as exc:
            self._say(f"{exc.filename}: {exc.strerror}")

    def _say(self, line: str) -> None:
        """Once: a disk that stays full or a board that stays away says the same at each look."""
        if line in self._told_once:
            return
        self._told_once.add(line)
        rank = f" (rank {self.place.rank})" if self.place.ranks > 1 else ""
        sys.stderr.write(f"ltgf checkpoint{rank}: {line}\n")
        sys.stderr.flush()


def session(
    *,
    folder: str | Path | None = None,
    rank: int | None = None,
    ranks: int | None = None,
    verify: bool = True,
    pause: Callable[[], object] | None = None,
    resume: Callable[[], object] | None = None,
    notes: Mapping[str, str] | None = None,
    independent: bool = False,
    signal: str | None = None,
    keep_signal: bool = False,
    timeout_s: int | None = None,
    interval_s: int | None = None,
) -> Session:
    """Make this process one that can be checkpointed; once, before the first step, on every rank.

    Args:
        folder: for checkpoints, on a file system that all ranks see; default LTGF_CKPT_DIR.
        rank, ranks: default: from torchrun's, srun's variables.
        verify: read the checkpoint whole and compare checksums before it is used, not sizes alone.
        pause, resume: free the GPUs and take them again, for `ltgf pause`.
        notes: goes into every checkpoint; what a checkpoint has is kept.
        independent: the ranks' steps have nothing to do with each other: each saves at its next.
        signal: Slurm's, like "USR2", "" for none; default LTGF_CKPT_SIGNAL, else USR2.
        keep_signal: take the signal back from a library that takes it (PyTorch's profiler: USR2).
        timeout_s: a save that takes longer has failed; default LTGF_CKPT_TIMEOUT_S, else 600.
        interval_s: save this often unasked; default LTGF_CKPT_INTERVAL_S, else never.

    Raises:
        BoardError: there is no folder to write to.
        UsageError: there is no such signal.
        TimeoutError: the leader does not say where to continue from.
    """
    return Session(
        here(
            folder=folder, rank=rank, ranks=ranks, signal=signal, timeout_s=timeout_s,
            interval_s=interval_s,
        ),
        verify=verify, pause=pause, resume=resume, notes=notes or {}, independent=independent,
        keep_signal=keep_signal,
    )  # fmt: skip
