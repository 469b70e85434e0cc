"""Answers of a program without a session, given by `ltgf-ckpt` in its place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_ltgf.checkpoint.archive import LAST, Archive, DamagedCheckpoint
from slurm_ltgf.checkpoint.board import BoardError
from slurm_ltgf.checkpoint.claims import What
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.checkpoint.place import Place
from slurm_ltgf.checkpoint.protocol import Action, Answer, Ask, Phase

_OPEN = (Phase.READY, Phase.WORKING)


@dataclass(frozen=True, slots=True)
class Save:
    """One save that was begun. ask: None for Slurm's signal. Times: epoch seconds."""

    began: float
    deadline: float
    before: tuple[str, int]
    ask: Ask | None = None

    @classmethod
    def of(cls, ask: Ask, place: Place) -> Save:
        """The save that somebody asked for."""
        return cls(time.time(), ask.deadline, link_state(place.folder), ask)

    @classmethod
    def unasked(cls, place: Place) -> Save:
        """The save that Slurm's signal means."""
        now = time.time()
        return cls(now, now + place.timeout_s, link_state(place.folder))

    def is_new(self, folder: Path) -> bool:
        """Whether `last` names something, since this save was begun."""
        now = link_state(folder)
        return now != self.before and (folder / now[0]).exists() and bool(now[0])


def link_state(folder: Path) -> tuple[str, int]:
    """What `last` names and since when: a link made again with the same name is new too."""
    link = folder / LAST
    try:
        return str(link.readlink()), link.lstat().st_mtime_ns
    except OSError:
        return "", 0


class Answering:
    """The answering side for one run of a job, with nothing to remember but the board's own files.

    Only rank 0 answers. Outside of Slurm nobody asks.
    """

    def __init__(self, place: Place, say: Callable[[str], None]) -> None:
        self._place, self._say = place, say
        self._done: set[str] = set()
        self._held: Ask | None = None
        self.is_ready = not place.job_id
        self._session_before = self._session_told()

    @property
    def is_silent(self) -> bool:
        """Whether a session inside of the program has begun to speak for the job."""
        return self._session_told() != self._session_before

    def _session_told(self) -> int:
        try:
            return (self._place.folder / "ltgf-rank-0").stat().st_mtime_ns
        except OSError:
            return 0

    def ready(self) -> None:
        """Say that the job can be asked from now on, unless it speaks for itself already."""
        self.is_ready = True
        if not self._place.is_leader or self.is_silent:
            return
        try:
            self._place.make()
            self._place.enter()
        except (BoardError, ProtocolError) as exc:
            self._say(f"nobody can ask this job: {exc}")
            return
        self._put(self._place.answer(Phase.READY))
        if self._place.restart:
            self._claim(What.CONTINUED)

    def answer(self) -> Answer | None:
        """What this run of the job said last."""
        try:
            found = self._place.board.answer(self._place.job_id, os.geteuid())
        except (BoardError, ProtocolError):
            return None
        return found if found is not None and found.restart == self._place.restart else None

    def ask(self) -> Ask | None:
        """What this run of the job is asked now, be it answered or not."""
        return self._place.hear(self._say)

    def open_ask(self) -> Ask | None:
        """What this run is asked and has not yet answered."""
        ask, answer = self.ask(), self.answer()
        if ask is None or ask.is_end or time.time() >= ask.deadline:
            return None
        is_open = answer is None or answer.ask != ask.id or answer.phase in _OPEN
        return ask if is_open else None

    def heard(self) -> Ask | None:
        """A new ask, once; None also if a session inside of the program speaks for the job."""
        if self.is_silent:
            return None
        ask = self.ask()
        if self._held is not None and self.is_over(self._held):
            self._reply(self._held, Phase.GOING)
            self._held = None
        if ask is None or ask.is_end or ask.id in self._done:
            return None
        self._done.add(ask.id)
        if time.time() >= ask.deadline:
            self.refuse(ask, "its time was over before it was seen")
            return None
        return ask

    def is_over(self, ask: Ask) -> bool:
        """Whether an ask is taken back, ended, or its hold is over."""
        now = self.ask()
        is_ended = now is None or now.id != ask.id or now.is_end
        return is_ended or time.time() >= ask.hold_until

    def hold(self, ask: Ask) -> None:
        """Wait for the requeue that kills this job, or until it does not come."""
        while not self.is_over(ask):
            time.sleep(0.5)
        self._reply(ask, Phase.GOING)

    def working(self, save: Save) -> None:
        """Say that the save was begun."""
        if save.ask:
            self._reply(save.ask, Phase.WORKING)

    def failed(self, save: Save, why: str, *, is_own: bool = False) -> None:
        """Say that it came to nothing. is_own: the program itself is why."""
        if save.ask:
            self._reply(save.ask, Phase.REFUSED if is_own else Phase.FAILED, why=why)

    def refuse(self, ask: Ask, why: str) -> None:
        """Say no to an ask: the program cannot, or will not."""
        self._reply(ask, Phase.REFUSED, why=why)

    def stopped(self) -> None:
        """Say that the program saved for Slurm's signal and has ended, unfinished."""
        if not self.is_silent:
            self._put(self._place.answer(Phase.STOPPED, **self._saved()))
            self._claim(What.STOPPED)

    def saved(self, save: Save) -> None:
        """Say that it is saved, and where."""
        ask = save.ask
        if ask is None:
            return
        seconds = time.time() - save.began
        self._reply(ask, Phase.SAVED, seconds=seconds, **self._saved())
        if ask.action is Action.REQUEUE:
            self._held = ask

    def _saved(self) -> dict[str, Any]:
        """What is known of the checkpoint that counts."""
        name, _ = link_state(self._place.folder)
        name = "" if "/" in name else name
        try:
            found = Archive(self._place.folder).read(name)
        except (OSError, DamagedCheckpoint):
            return {"name": name}
        return {"name": name, "step": found.step, "size": found.bytes}

    def _claim(self, what: What) -> None:
        name, since_ns = link_state(self._place.folder)
        if name and self._place.is_leader:
            step = self._saved().get("step")
            self._place.claim(what, saved_at=since_ns // 10**9, step=step, name=name)

    def _reply(self, ask: Ask, phase: Phase, **said: Any) -> None:
        self._put(self._place.answer(phase, ask.id, **said))

    def _put(self, answer: Answer) -> None:
        if not self._place.is_leader or not self._place.job_id:
            return
        try:
            self._place.board.say(answer)
        except BoardError as exc:
            self._say(f"cannot answer: {exc}")
