"""What a rank other than the leader does once it has saved: it waits for the leader's word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_ltgf.checkpoint.accord import OWN, PLAN, Accord, Plan, wait
from slurm_ltgf.checkpoint.archive import Archive

#: That a checkpoint counts; where the hold after it was short, no more than its end is seen.
COUNTS = {"committed", "going"}
#: How much longer than the leader the other ranks wait for its word.
GRACE_S = 5


@dataclass(frozen=True, slots=True)
class Follower:
    """One of the other ranks. tell: the other ranks what it has reached. say: on stderr."""

    accord: Accord
    archive: Archive
    tell: Callable[[Plan, str, int], None]
    say: Callable[[str], None]

    def join(self, plan: Plan, step: int, path: Path, *, file: str) -> str:
        """Check its share when all have written; the checkpoint's name once it counts, "" for none.

        Raises:
            OSError: the disk refuses.
        """
        until = plan.deadline + GRACE_S
        if self._await(plan, {"check", "committed"}, file=file, until=until) is None:
            return ""
        self.archive.check_share(path, self.accord.place.rank, self.accord.place.ranks)
        self.tell(plan, "checked", step)
        done = self._await(plan, COUNTS, file=file, until=until)
        return done.name if done else ""

    def is_committed(self, plan: Plan) -> bool:
        """Whether all ranks got as far as this one."""
        until = plan.deadline + GRACE_S
        return self._await(plan, COUNTS, file=PLAN, until=until) is not None

    def await_end(self, plan: Plan) -> None:
        """Hold until the leader goes on, or must have."""

        def over() -> bool | None:
            seen = self.accord.plan()
            is_over = seen is None or seen.key != plan.key or seen.state in ("going", "withdrawn")
            return is_over or None

        wait(over, until=plan.hold_until + GRACE_S)

    def _await(self, plan: Plan, states: set[str], *, file: str, until: float) -> Plan | None:
        """The leader's word on this plan; None: it came to nothing."""

        def word() -> Plan | None:
            seen = self.accord.plan(file=file)
            if seen is None or (seen.key, seen.attempt) == (plan.key, plan.attempt):
                return seen if seen and seen.state in {*states, "withdrawn"} else None
            # of a plan of ours it can only be an older one: the leader comes later than we do
            return (
                replace(seen, state="withdrawn", why="another was begun") if file != OWN else None
            )

        seen = wait(word, until=until)
        if seen is not None and seen.state in states:
            return seen
        self.say("no checkpoint: " + (seen.why if seen else "the leader did not answer in time"))
        return None
