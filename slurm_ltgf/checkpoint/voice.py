"""What the leader (rank 0) says on the board for all ranks, and hears there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from slurm_ltgf.checkpoint.accord import Plan
from slurm_ltgf.checkpoint.archive import Checkpoint
from slurm_ltgf.checkpoint.board import BoardError
from slurm_ltgf.checkpoint.claims import What
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.checkpoint.place import Place
from slurm_ltgf.checkpoint.protocol import Answer, Ask, Phase

#: How often the leader sees that its record and its answer are still on the board.
LOOK_AFTER_S = 10.0


class Voice:
    """The board as a leader uses it; outside of Slurm nobody listens, and nobody asks."""

    def __init__(self, place: Place, say: Callable[[str], None]) -> None:
        self._place, self._say = place, say
        self._asked: set[str] = set()
        self._said: Answer | None = None
        self._looked_at = time.monotonic()

    def hear(self) -> Ask | None:
        """An ask that is new; it counts as heard."""
        ask = self._place.hear(self._say)
        if ask is None or ask.id in self._asked or ask.is_end:
            return None
        self._asked.add(ask.id)
        return ask

    def ready(self, found: Checkpoint | None) -> None:
        """Say that the job can be asked from now on. found: what it goes on from."""
        self._put(self._place.answer(Phase.READY))
        if found is not None and self._place.restart:
            self._claim(What.CONTINUED, found)

    def answer(self, plan: Plan, phase: Phase, **said: Any) -> None:
        """Answer whoever asked for this plan; nobody, if it was not asked for."""
        if plan.key in self._asked:
            self._put(self._place.answer(phase, plan.key, **said))

    def saved(self, plan: Plan, found: Checkpoint, *, seconds: float) -> None:
        """Say what was saved: to whoever asked, else to whoever wants to know.

        What was asked for is not covered up: the asker may not have read it yet.
        """
        said: dict[str, Any] = {
            "step": found.step, "name": found.name, "size": found.bytes, "seconds": seconds,
        }  # fmt: skip
        if plan.key in self._asked:
            self.answer(plan, Phase.SAVED, **said)
            return
        if plan.stop:
            self._put(self._place.answer(Phase.STOPPED, **said))
            self._claim(What.STOPPED, found)
        elif self._said is not None and not self._said.ask:
            self._put(self._place.answer(Phase.READY, **said))

    def look_after(self) -> None:
        """Put back what was lost from the board: without it nobody could ask this run again."""
        if self._said is None or time.monotonic() - self._looked_at < LOOK_AFTER_S:
            return
        self._looked_at = time.monotonic()
        try:
            self._place.enter()
            if self._place.board.answer(self._place.job_id, os.geteuid()) is None:
                self._place.board.say(self._said)
        except (BoardError, ProtocolError) as exc:
            self._say(f"cannot be asked: {exc}")

    def is_taken_back(self, plan: Plan) -> bool:
        """Whether whoever asked has ended it; a board that cannot be read ends nothing."""
        if plan.key not in self._asked:
            return False
        try:
            ask = self._place.board.hear(self._place.job_id, os.geteuid())
        except (BoardError, ProtocolError):
            return False
        return ask is None or ask.id != plan.key or ask.is_end

    def _put(self, answer: Answer) -> None:
        if not self._place.job_id:
            return
        self._said = answer
        try:
            self._place.board.say(answer)
        except BoardError as exc:
            self._say(f"cannot answer: {exc}")

    def _claim(self, what: What, found: Checkpoint) -> None:
        self._place.claim(what, saved_at=found.time, step=found.step, name=found.name)
