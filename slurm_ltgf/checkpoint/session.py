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

from slurm_ltgf.checkpoint.accord import ANYWHERE, Accord, Plan, Told, wait
from slurm_ltgf.checkpoint.archive import Archive, Checkpoint
from slurm_ltgf.checkpoint.bell import Bell
from slurm_ltgf.checkpoint.board import BoardError
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.checkpoint.leader import Leader
from slurm_ltgf.checkpoint.place import Place, here
from slurm_ltgf.checkpoint.protocol import Action

POLL_S = 0.5
#: How much longer than the leader the other ranks wait for its word.
GRACE_S = 5
OWN = "ltgf-own"


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
        self._bell = Bell(place.signal, keep=keep_signal)
        found = self._continue_from(verify=verify)
        self.last: Path | None = found.path if found else None
        self.step = found.step if found else 0
        self.notes: dict[str, str] = {**(found.notes if found else {}), **notes}
        self._step: int | None = None
        self._before: int | None = None
        self._next_look = 0.0
        self._due: Plan | None = None
        self._heard: tuple[str, int] | None = None
        self._done: set[tuple[str, int]] = set()
        self._own: tuple[int, int] = (-1, 0)
        self._leader: Leader | None = None
        self._tell(Plan(place.launch, "", "", attempt=0), "ready", self.step)
        if place.is_leader:
            self._leader = Leader(
                self._accord, self._say, can_pause=pause is not None, independent=independent
            )
            self._enter()

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
        self._before, self._step = self._step, step
        if time.monotonic() < self._next_look and not self._bell.rung:
            return False
        return self._look(step)

    @contextmanager
    def commit(self, step: int) -> Generator[Path]:
        """Save: the block writes files into the folder it is given, all ranks into the same one.

        What the disk refuses (OSError) is said on stderr and to whoever asked, and the training
        goes on with the checkpoint before; `saved` tells. Any other error is raised.
        """
        plan, self._due, self.saved = self._due or self._own_plan(step), None, False
        path = self.place.folder
        try:
            path = self._archive.begin(f"{plan.key}.{plan.attempt}")
            yield path
        except OSError as exc:
            self._fail(plan, path, f"{exc.filename or path}: {exc.strerror or exc}")
            return
        except BaseException as exc:
            self._fail(plan, path, f"{type(exc).__name__} in the program's own save: {exc}")
            raise
        self._finish(plan, step, path)

    def _enter(self) -> None:
        """As the leader: be known, then be ready."""
        try:
            if self.place.job_id:
                self.place.enter()
        except (BoardError, ProtocolError) as exc:
            self._say(f"nobody can ask this job: {exc}")
            return
        if self._leader:
            self._leader.ready()

    # --- looking ----------------------------------------------------------------------------------

    def _look(self, step: int) -> bool:
        self._next_look = time.monotonic() + POLL_S
        self._bell.check(self._say)
        if self._leader:
            try:
                plan = self._leader.look(step, self._before, rung=self._bell.take())
            except OSError as exc:
                self._say(f"no checkpoint: {exc.filename}: {exc.strerror}")
                return False
        else:
            if self._bell.take():
                self._accord.ring()
            plan = self._accord.plan()
        if plan is None or (plan.key, plan.attempt) in self._done:
            return False
        return self._follow(plan, step)

    def _follow(self, plan: Plan, step: int) -> bool:
        """Do what the plan says; from `hear` on every boundary looks at it."""
        mine = (plan.key, plan.attempt)
        if plan.state not in ("hear", "save") or time.time() > plan.deadline:
            self._done.add(mine)
            return False
        self._next_look = 0.0
        if plan.state == "hear":
            if self._heard != mine and not self._leader:
                self._tell(plan, "heard", step)
            self._heard = mine
            return False
        if self._has_passed(plan):
            self._done.add(mine)
            self._tell(plan, "passed", step)
            return False
        if step < plan.save_at:
            return False
        self._done.add(mine)
        if plan.action is Action.PAUSE:
            self._sleep(plan, step)
            return False
        self._due = plan
        return True

    def _has_passed(self, plan: Plan) -> bool:
        """Whether the step at which all save is behind us: then we are not where the others are."""
        is_shared = self.place.ranks > 1 and plan.save_at != ANYWHERE
        return is_shared and self._before is not None and self._before >= plan.save_at

    # --- saving -----------------------------------------------------------------------------------

    def _own_plan(self, step: int) -> Plan:
        """The plan of a save that nobody asked for."""
        self._own = (step, self._own[1] + 1 if self._own[0] == step else 1)
        deadline = int(time.time()) + self.place.timeout_s
        plan = Plan(self.place.launch, f"own-{step}", "save", deadline=deadline)
        return replace(plan, attempt=self._own[1], save_at=step)

    def _file(self, plan: Plan) -> str:
        return OWN if plan.key.startswith("own-") else "ltgf-plan"

    def _finish(self, plan: Plan, step: int, path: Path) -> None:
        """The files are written: check them, make the checkpoint count, hold if that was asked."""
        began = time.time()
        try:
            self._tell(plan, "written", step)
            if self._leader:
                name = self._leader.gather(plan, step, path, self.notes, file=self._file(plan))
            else:
                name = self._join(plan, step, path)
        except OSError as exc:
            self._fail(plan, path, f"{exc.filename or path}: {exc.strerror or exc}")
            return
        if not name:
            return
        self.saved, self.last, self.step = True, self.place.folder / name, step
        if self._leader:
            self._leader.answer_saved(plan, step, name, seconds=time.time() - began)
        if plan.action is Action.REQUEUE:
            self._hold(plan)
        if plan.stop:
            self._tell(plan, "stopping", step)
            self.must_stop = True

    def _join(self, plan: Plan, step: int, path: Path) -> str:
        """As another rank than the leader: follow its word; the checkpoint's name, "" for none."""
        file, until = self._file(plan), plan.deadline + GRACE_S
        if self._await(plan, {"check", "committed"}, file=file, until=until) is None:
            return ""
        self._archive.check_share(path, self.place.rank, self.place.ranks)
        self._tell(plan, "checked", step)
        done = self._await(plan, {"committed"}, file=file, until=until)
        return done.name if done else ""

    def _await(self, plan: Plan, states: set[str], *, file: str, until: float) -> Plan | None:
        """The leader's word on this plan; None: it came to nothing."""

        def word() -> Plan | None:
            seen = self._accord.plan(file=file)
            if seen is None or (seen.key, seen.attempt) == (plan.key, plan.attempt):
                return seen if seen and seen.state in {*states, "withdrawn"} else None
            # of a plan of ours it can only be an older one: the leader comes later than we do
            return (
                replace(seen, state="withdrawn", why="another was begun") if file != OWN else None
            )

        seen = wait(word, until=until)
        if seen is not None and seen.state in states:
            return seen
        self._say("no checkpoint: " + (seen.why if seen else "the leader did not answer in time"))
        return None

    def _fail(self, plan: Plan, path: Path, why: str) -> None:
        self._say(f"no checkpoint of this step: {why}")
        if self._leader:
            self._leader.withdraw(plan, f"rank 0: {why}", file=self._file(plan))
        else:
            self._tell(plan, "failed", self._step or 0, why=why)
        if self.place.ranks == 1 and path != self.place.folder:
            self._archive.drop(path)

    # --- holding ----------------------------------------------------------------------------------

    def _hold(self, plan: Plan) -> None:
        """Stay at this step until the requeue ends the process, or until it does not come."""
        self._tell(plan, "holding", self.step)
        if self._leader:
            self._leader.hold(plan)
        else:
            self._await_end(plan)
        self._say(f"nothing came of it: the training goes on from step {self.step}")

    def _await_end(self, plan: Plan) -> None:
        def over() -> bool | None:
            seen = self._accord.plan()
            is_over = seen is None or seen.key != plan.key or seen.state in ("going", "withdrawn")
            return is_over or None

        wait(over, until=plan.hold_until + GRACE_S)

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
            elif self._await(plan, {"committed"}, file="ltgf-plan", until=plan.deadline + GRACE_S):
                self._await_end(plan)
        finally:
            if self._resume:
                self._resume()

    # --- starting ---------------------------------------------------------------------------------

    def _continue_from(self, *, verify: bool) -> Checkpoint | None:
        """The checkpoint that all ranks continue from: the leader looks, the others are told."""
        if not self.place.is_leader:
            name = wait(self._started, until=time.time() + self.place.timeout_s)
            if name is None:
                raise TimeoutError(
                    f"{self.place.folder}: rank 0 did not say within {self.place.timeout_s} s"
                    " where to continue from: does it call checkpoint.session() too?"
                )
            return self._archive.read(name) if name else None
        self._archive.sweep()
        self._accord.forget()
        found = self._archive.last(verify=verify, say=self._say)
        self._say_restart(found)
        if self.place.ranks > 1:
            self._archive.settle(found)
            self._accord.start(found.name if found else "")
        return found

    def _started(self) -> str | None:
        """What the leader has said; not what is left of a launch that bore the same number."""
        name, link = self._accord.started(), self._archive.named_by_link()
        return name if name == (link.name if link else "") else None

    def _say_restart(self, found: Checkpoint | None) -> None:
        where = f"continues from step {found.step}" if found else "no checkpoint: starts anew"
        if self.place.restart == 0 and found is None:
            return
        before = self._accord.told(0, any_launch=True)
        if before is not None and before.phase in ("holding", "stopping"):
            self._say(f"restart {self.place.restart}: {where}, as planned")
            return
        lost = before.step - found.step if found and before else 0
        at_least = f", at least {lost} steps" if lost > 0 else ""
        self._say(
            f"restart {self.place.restart}: unplanned (killed, preempted, or the node failed);"
            f" {where}, what came after it is lost{at_least}"
        )

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
    keep_signal: bool = False,
) -> Session:
    """Make this process one that can be checkpointed; once, before the first step, on every rank.

    Args:
        folder: for checkpoints, on a file system that all ranks see; default LTGF_CKPT_DIR.
        rank, ranks: default: from torchrun's, srun's variables.
        verify: read the checkpoint whole and compare checksums before it is used, not sizes alone.
        pause, resume: free the GPUs and take them again, for `ltgf pause`.
        notes: goes into every checkpoint; what a checkpoint has is kept.
        independent: the ranks' steps have nothing to do with each other: each saves at its next.
        keep_signal: take the signal back from a library that takes it (PyTorch's profiler: USR2).

    Raises:
        BoardError: there is no folder to write to.
        TimeoutError: the leader does not say where to continue from.
    """
    return Session(
        here(folder=folder, rank=rank, ranks=ranks),
        verify=verify, pause=pause, resume=resume, notes=notes or {}, independent=independent,
        keep_signal=keep_signal,
    )  # fmt: skip
