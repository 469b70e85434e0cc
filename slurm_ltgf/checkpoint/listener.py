"""What a rank hears at its step boundaries: Slurm's signal, and what the leader has decided."""

from __future__ import annotations

import time
from collections.abc import Callable

from slurm_ltgf.checkpoint.accord import ANYWHERE, Accord, Plan
from slurm_ltgf.checkpoint.bell import Bell
from slurm_ltgf.checkpoint.leader import Leader

POLL_S = 0.5


class Listener:
    """The ear of one rank. leader: the leader itself, on rank 0; None elsewhere.

    Attributes:
        step: the last boundary, None before the first.
    """

    def __init__(
        self,
        accord: Accord,
        bell: Bell,
        leader: Leader | None,
        tell: Callable[[Plan, str, int], None],
        say: Callable[[str], None],
    ) -> None:
        self._accord, self._bell, self._leader = accord, bell, leader
        self._tell, self._say = tell, say
        self.step: int | None = None
        self._before: int | None = None
        self._next_look = 0.0
        self._heard: tuple[str, int] | None = None
        self._done: set[tuple[str, int]] = set()

    def due(self, step: int) -> Plan | None:
        """The plan that this rank is to carry out at this boundary; cheap where nothing is asked.

        Args:
            step: how many steps are done.
        """
        self._before, self.step = self.step, step
        if time.monotonic() < self._next_look and not self._bell.rung:
            return None
        self._next_look = time.monotonic() + POLL_S
        self._bell.check(self._say)
        plan = self._plan(step)
        if plan is None or (plan.key, plan.attempt) in self._done:
            return None
        return self._follow(plan, step)

    def _plan(self, step: int) -> Plan | None:
        if self._leader:
            try:
                return self._leader.look(step, self._before, rung=self._bell.take())
            except OSError as exc:
                self._say(f"no checkpoint: {exc.filename}: {exc.strerror}")
                return None
        if self._bell.take():
            self._accord.ring()
        return self._accord.plan()

    def _follow(self, plan: Plan, step: int) -> Plan | None:
        """Do what the plan says; from `hear` on every boundary looks at it."""
        mine = (plan.key, plan.attempt)
        if plan.state not in ("hear", "save") or time.time() > plan.deadline:
            self._done.add(mine)
            return None
        self._next_look = 0.0
        if plan.state == "hear":
            if self._heard != mine and not self._leader:
                self._tell(plan, "heard", step)
            self._heard = mine
            return None
        if self._has_passed(plan):
            self._done.add(mine)
            self._tell(plan, "passed", step)
            return None
        if step < plan.save_at:
            return None
        self._done.add(mine)
        return plan

    def _has_passed(self, plan: Plan) -> bool:
        """Whether the step at which all save is behind us: then we are not where the others are."""
        is_shared = self._accord.place.ranks > 1 and plan.save_at != ANYWHERE
        return is_shared and self._before is not None and self._before >= plan.save_at
