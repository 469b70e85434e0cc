"""How the ranks of a job agree on one step without a collective of their own: files they leave.

Each rank writes one file, in which it says what it has reached; the leader (rank 0) writes another,
the plan, which says what all are to do next. Everybody polls; nobody ever waits without an end.
A rank that was heard looks at the plan at every step boundary from then on, so the leader can name
a step that lies ahead of all:

    hear       say at which step you are, and look at every boundary from now on
    save       save at the boundary `save_at`
    check      all have written: check your share of the files
    committed  the checkpoint `name` counts; with action requeue or pause: hold
    going      the hold is over; `name` counts
    withdrawn  it came to nothing: go on; `why` says what was wrong
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slurm_ltgf.checkpoint.board import read_owned, replace_owned
from slurm_ltgf.checkpoint.keys import ProtocolError, decode, encode
from slurm_ltgf.checkpoint.place import Place
from slurm_ltgf.checkpoint.protocol import Action

T = TypeVar("T")

#: `save_at` of ranks with steps of their own: each at its next boundary.
ANYWHERE = -1
#: The leader's files: the plan of what was asked for, and of a save of the program's own.
PLAN, OWN = "ltgf-plan", "ltgf-own"
_SHORTEST_NAP_S, _LONGEST_NAP_S = 0.01, 0.2


@dataclass(frozen=True, slots=True)
class Plan:
    """What all ranks are to do. key: of the ask, or of what else began it. Times: epoch seconds.

    stop: Slurm itself takes the job's time or GPUs: once saved, the program should end.
    """

    launch: str
    key: str
    state: str
    action: Action = Action.CHECKPOINT
    attempt: int = 1
    save_at: int = 0
    deadline: int = 0
    hold_until: int = 0
    stop: bool = False
    name: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What a rank says: ready, heard, passed, written, checked, failed, broke, holding or stopping.

    "passed": it is beyond the step at which all are to save. "broke": its own program failed.
    """

    rank: int
    phase: str
    key: str = ""
    attempt: int = 0
    step: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Accord:
    """The files of one launch of a job's ranks."""

    place: Place

    def tell(self, told: Told) -> None:
        """Say what this rank has reached.

        Raises:
            OSError: it cannot be written.
        """
        keys: dict[str, object] = {name: getattr(told, name) for name in told.__dataclass_fields__}
        keys |= {
            "launch": self.place.launch,
            "ranks": self.place.ranks,
            "node": self.place.node,
            "pid": os.getpid(),
            "time": int(time.time()),
        }
        self._write(f"ltgf-rank-{told.rank}", keys)

    def told(self, rank: int, *, any_launch: bool = False) -> Told | None:
        """What a rank said last; of an earlier launch only if asked for."""
        keys = self._read(f"ltgf-rank-{rank}")
        if keys is None or (keys.get("launch") != self.place.launch and not any_launch):
            return None
        try:
            return Told(
                rank=rank,
                phase=keys["phase"],
                key=keys.get("key", ""),
                attempt=int(keys["attempt"]),
                step=int(keys["step"]),
                why=keys.get("why", ""),
            )
        except (KeyError, ValueError):
            return None

    def others(self, plan: Plan) -> Iterator[Told | None]:
        """What each rank but the leader said of a plan; None: nothing yet."""
        for rank in range(1, self.place.ranks):
            told = self.told(rank)
            known = told is not None and (told.key, told.attempt) == (plan.key, plan.attempt)
            yield told if known else None

    def decide(self, plan: Plan, *, file: str = PLAN) -> Plan:
        """As the leader: what all are to do. Returns it.

        Raises:
            OSError: it cannot be written.
        """
        keys = {name: getattr(plan, name) for name in plan.__dataclass_fields__}
        self._write(file, keys)
        return plan

    def plan(self, *, file: str = PLAN) -> Plan | None:
        """What all are to do; None: nothing was decided in this launch."""
        keys = self._read(file)
        if keys is None or keys.get("launch") != self.place.launch:
            return None
        try:
            return Plan(
                launch=keys["launch"],
                key=keys["key"],
                state=keys["state"],
                action=Action(keys["action"]),
                attempt=int(keys["attempt"]),
                save_at=int(keys["save_at"]),
                deadline=int(keys["deadline"]),
                hold_until=int(keys["hold_until"]),
                stop=keys["stop"] == "1",
                name=keys.get("name", ""),
                why=keys.get("why", ""),
            )
        except (KeyError, ValueError):
            return None

    def ring(self) -> None:
        """Tell the leader that Slurm's signal came here."""
        with contextlib.suppress(OSError):
            self._write("ltgf-bell", {"launch": self.place.launch})

    def rung(self) -> bool:
        """Whether a rank of this launch rang since the leader asked last."""
        keys = self._read("ltgf-bell")
        if keys is None:
            return False
        with contextlib.suppress(OSError):
            (self.place.folder / "ltgf-bell").unlink()
        return keys.get("launch") == self.place.launch

    def forget(self) -> None:
        """As the leader: remove what an earlier launch left that bears the same number as this.

        torchrun that is started twice in one batch script does. What a rank says is of use only
        once the leader has begun, but rank 0's own last word tells what a restart lost.
        """
        for path in self.place.folder.glob("ltgf-*"):
            name = path.name
            is_rank = name.startswith("ltgf-rank-") and name != "ltgf-rank-0"
            if is_rank or name in (PLAN, OWN, "ltgf-start", "ltgf-bell"):
                with contextlib.suppress(OSError):
                    path.unlink()

    def start(self, name: str) -> None:
        """As the leader: the checkpoint that all continue from, "" for none."""
        self._write("ltgf-start", {"launch": self.place.launch, "name": name or "-"})

    def started(self) -> str | None:
        """The checkpoint that all continue from; None: not decided yet."""
        keys = self._read("ltgf-start")
        if keys is None or keys.get("launch") != self.place.launch:
            return None
        return keys.get("name", "-").removeprefix("-")

    def _write(self, name: str, keys: dict[str, object]) -> None:
        replace_owned(self.place.folder / name, encode(keys), mode=0o600)

    def _read(self, name: str) -> dict[str, str] | None:
        path: Path = self.place.folder / name
        try:
            return decode(read_owned(path, owners={os.geteuid()}), str(path))
        except (OSError, ProtocolError):
            return None


def wait(ready: Callable[[], T | None], *, until: float) -> T | None:
    """Ask until there is an answer, less and less often; None: not until then (epoch seconds)."""
    nap_s = _SHORTEST_NAP_S
    while (found := ready()) is None and time.time() < until:
        time.sleep(nap_s)
        nap_s = min(nap_s * 1.5, _LONGEST_NAP_S)
    return found
