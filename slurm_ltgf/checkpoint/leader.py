"""What the leader (rank 0) does besides its own work: hears asks, makes plans, answers."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from slurm_ltgf.checkpoint.accord import ANYWHERE, PLAN, Accord, Plan, Told, wait
from slurm_ltgf.checkpoint.archive import Archive, Checkpoint
from slurm_ltgf.checkpoint.protocol import Action, Ask, Phase
from slurm_ltgf.checkpoint.voice import Voice

#: How long a file may take until every node sees it.
VISIBLE_S = 1.0
HEARTBEAT_S = 60.0
#: What a rank says when nothing will come of a plan, or not of this attempt.
_NO = frozenset({"failed", "broke", "passed"})


class Leader:
    """The leader's part of a session."""

    def __init__(
        self, accord: Accord, say: Callable[[str], None], *, can_pause: bool, independent: bool
    ) -> None:
        self._accord = accord
        self._say = say
        self._independent = independent
        self._place = accord.place
        self._archive = Archive(self._place.folder)
        self._can_pause = can_pause
        self._plan: Plan | None = None
        self._margin = 2
        self.voice = Voice(accord.place, say)
        self._signals = 0
        self._boundary = (0.0, 0)
        self._step_s = 0.0
        self._saved_at = self._beat_at = time.monotonic()

    # --- making plans -----------------------------------------------------------------------------

    def look(self, step: int, before: int | None, *, rung: bool) -> Plan | None:
        """What all ranks are to do, at this boundary."""
        stride = max(step - before, 1) if before is not None else 1
        self._clock(step)
        if self._plan is None:
            self._begin(step, rung=rung or (self._place.ranks > 1 and self._accord.rung()))
        elif self._plan.state == "hear":
            self._hear(step, stride)
        elif time.time() > self._plan.deadline:
            self.withdraw(self._plan, "the program did not save in time")
        elif self._someone("passed"):
            self._again()
        return self._plan

    def _clock(self, step: int) -> None:
        """How long a step takes, between the boundaries that were looked at."""
        now, (then, first) = time.monotonic(), self._boundary
        if step > first:
            self._step_s = (now - then) / (step - first) if then else 0.0
            self._boundary = (now, step)

    def _begin(self, step: int, *, rung: bool) -> None:
        plan = self._wanted(rung=rung)
        if plan is None:
            self._beat(step)
            self.voice.look_after()
            return
        self._margin = 2
        if self._independent:
            plan = replace(plan, state="save", save_at=ANYWHERE)
        if self._place.ranks == 1:
            self._plan = replace(plan, state="save", save_at=step)
        else:
            self._plan = self._accord.decide(plan)

    def _wanted(self, *, rung: bool) -> Plan | None:
        """The plan that somebody or something asks for now."""
        now = int(time.time())
        empty = Plan(self._place.launch, "", "hear", deadline=now + self._place.timeout_s)
        if rung:
            self._signals += 1
            return replace(empty, key=f"signal-{self._signals}", stop=True)
        if ask := self.voice.hear():
            return self._plan_for(ask, now)
        interval_s = self._place.interval_s
        if interval_s and time.monotonic() - self._saved_at >= interval_s:
            self._saved_at = time.monotonic()
            return replace(empty, key=f"interval-{now}")
        return None

    def _plan_for(self, ask: Ask, now: int) -> Plan | None:
        plan = Plan(
            self._place.launch, ask.id, "hear",
            action=ask.action, deadline=ask.deadline, hold_until=ask.hold_until,
        )  # fmt: skip
        if now >= ask.deadline:
            self.voice.answer(
                plan, Phase.REFUSED, why="its time was over before the program looked"
            )
            return None
        if ask.action is Action.PAUSE and not self._can_pause:
            self.voice.answer(plan, Phase.REFUSED, why="this program cannot pause in place")
            return None
        self.voice.answer(plan, Phase.WORKING)
        return plan

    def _hear(self, step: int, stride: int) -> None:
        """Once all were heard, name a step that lies ahead of all."""
        plan = self._plan
        assert plan is not None
        told = list(self._accord.others(plan))
        steps = [one.step for one in told if one is not None]
        if len(steps) == len(told):
            ahead = self._margin + math.ceil(VISIBLE_S / max(self._step_s, 1e-4) / stride)
            save_at = max([step, *steps]) + stride * ahead
            self._plan = self._accord.decide(replace(plan, state="save", save_at=save_at))
            return
        missing = [str(rank) for rank, one in enumerate(told, 1) if one is None]
        if self.voice.is_taken_back(plan):
            self.withdraw(plan, "the ask was taken back")
        elif time.time() > plan.deadline:
            ranks = ", ".join(missing[:8]) + (", …" if len(missing) > 8 else "")
            self.withdraw(plan, f"not heard of within the time: rank {ranks}")

    def _again(self) -> None:
        """A rank had passed the step: name a later one."""
        assert self._plan is not None
        self._margin *= 2
        again = replace(self._plan, state="hear", attempt=self._plan.attempt + 1, save_at=0)
        self._plan = self._accord.decide(again)

    # --- one save ---------------------------------------------------------------------------------

    def gather(
        self, plan: Plan, step: int, path: Path, notes: Mapping[str, str], *, file: str
    ) -> str:
        """All ranks have written, each checks its share, the checkpoint counts: its name; "" not.

        Raises:
            OSError: the disk refuses.
        """
        is_shared = self._place.ranks > 1
        if is_shared and not self._all(plan, "written", file=file):
            self._archive.drop(path)
            return ""
        if is_shared:
            self._accord.decide(replace(plan, state="check"), file=file)
        self._archive.check_share(path, 0, self._place.ranks)
        if is_shared and not self._all(plan, "checked", file=file):
            self._archive.drop(path)
            return ""
        name = self._archive.put_in_place(path, step=step, ranks=self._place.ranks, notes=notes)
        self._saved_at = time.monotonic()
        if is_shared:
            self._accord.decide(replace(plan, state="committed", name=name), file=file)
        return name

    def _all(self, plan: Plan, phase: str, *, file: str) -> bool:
        """Wait until every other rank has got there; else the plan is withdrawn."""

        def done() -> str | None:
            told = list(self._accord.others(plan))
            bad = next((one for one in told if one and one.phase in _NO), None)
            if bad is not None:
                return bad.phase if bad.phase == "passed" else f"rank {bad.rank}: {bad.why}"
            if all(one is not None and one.phase in (phase, "checked") for one in told):
                return ""
            return "the ask was taken back" if self.voice.is_taken_back(plan) else None

        why = wait(done, until=plan.deadline)
        if why == "":
            return True
        if why == "passed" and self._plan is not None and plan.key == self._plan.key:
            self._again()
            return False
        late = [
            rank for rank, one in enumerate(self._accord.others(plan), 1) if not _is(one, phase)
        ]
        is_own = any(_is(one, "broke") for one in self._accord.others(plan))
        why = why or f"not {phase} in time: rank {late[:8]}"
        self.withdraw(plan, why, file=file, is_own=is_own)
        return False

    def all_paused(self, plan: Plan, step: int, *, seconds: float) -> bool:
        """Whether every rank gave its GPUs back; says so."""
        if self._place.ranks > 1 and not self._all(plan, "written", file=PLAN):
            return False
        if self._place.ranks > 1:
            self._accord.decide(replace(plan, state="committed"))
        self.voice.answer(plan, Phase.SAVED, step=step, seconds=seconds)
        return True

    def withdraw(self, plan: Plan, why: str, *, file: str = PLAN, is_own: bool = False) -> None:
        """Give a plan up: all ranks go on. is_own: the program itself is why."""
        if self._place.ranks > 1:
            with contextlib.suppress(OSError):
                self._accord.decide(replace(plan, state="withdrawn", why=why), file=file)
        self._say(f"no checkpoint: {why}")
        self.voice.answer(plan, Phase.REFUSED if is_own else Phase.FAILED, why=why)
        self._forget(plan)

    def hold(self, plan: Plan) -> None:
        """Wait until the ask is ended or its time is over; then all go on."""

        def over() -> bool | None:
            return self.voice.is_taken_back(plan) or None

        wait(over, until=plan.hold_until)
        if self._place.ranks > 1:
            with contextlib.suppress(OSError):
                self._accord.decide(replace(plan, state="going"))
        self.voice.answer(plan, Phase.GOING)
        self._forget(plan)

    def saved(self, plan: Plan, found: Checkpoint, *, seconds: float) -> None:
        """Say what was saved, and be ready for the next ask."""
        self.voice.saved(plan, found, seconds=seconds)
        self._forget(plan)

    def _forget(self, plan: Plan) -> None:
        if self._plan is not None and self._plan.key == plan.key:
            self._plan = None

    # --- looking ----------------------------------------------------------------------------------

    def _someone(self, phase: str) -> bool:
        plan = self._plan
        return plan is not None and any(_is(one, phase) for one in self._accord.others(plan))

    def _beat(self, step: int) -> None:
        """Once a minute write down how far the job is: a restart tells what was lost."""
        if time.monotonic() - self._beat_at >= HEARTBEAT_S:
            self._beat_at = time.monotonic()
            with contextlib.suppress(OSError):
                self._accord.tell(Told(0, "ready", step=step))


def _is(told: Told | None, phase: str) -> bool:
    return told is not None and told.phase == phase
