"""`ltgf-ckpt run`: runs a program that knows nothing of the protocol, and speaks it in its place.

An ask, or Slurm's signal, becomes the site's or user's command, or a signal to those of the
program's processes that catch it. It is saved when the command ends well, or when the link `last`
in the checkpoint folder names something new. A program with a session of its own answers itself:
then only signals are passed on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial

from slurm_ltgf.checkpoint.answering import Answering, Save
from slurm_ltgf.checkpoint.place import Place
from slurm_ltgf.checkpoint.processes import below, targets
from slurm_ltgf.checkpoint.protocol import Action

POLL_S = 0.5
#: torchrun kills its workers so long after it got TERM.
AGENT_PATIENCE_S = 30
_TO_ALL = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
_TO_WHO_CATCHES = {signal.SIGUSR1, signal.SIGUSR2}
_HEARD = {*_TO_ALL, *_TO_WHO_CATCHES, signal.SIGCHLD}
_COMMAND_FAILED = 126


def run(argv: Sequence[str], place: Place, command: str = "") -> int:
    """Run a program to its end; its exit code, 128 + number if a signal ended it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    try:
        return Wrapper(argv, place, command, mask=before).wait()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Wrapper:
    """A program that runs, and what is asked of it. Signals are blocked here, and awaited."""

    def __init__(
        self, argv: Sequence[str], place: Place, command: str, *, mask: set[signal.Signals | int]
    ) -> None:
        self._place, self._command, self._mask = place, command, mask
        self._signal = getattr(signal, f"SIG{place.signal}", None)
        self._ended: dict[int, int] = {}
        self._said: set[str] = set()
        self._answering = Answering(place, self.say)
        self._save: Save | None = None
        self._helper: int | None = None
        self._last_words: list[int] = []
        self._stops_until = 0.0
        #: In a terminal the program stays where the keyboard's signals and input go.
        self._is_group = not os.isatty(0)
        self._child = self._start(argv)

    def say(self, line: str) -> None:
        """Once, on stderr."""
        if line not in self._said:
            self._said.add(line)
            sys.stderr.write(f"ltgf-ckpt: {line}\n")
            sys.stderr.flush()

    def wait(self) -> int:
        """Wait for the program's end; signals that come meanwhile are no end."""
        while self._child not in self._ended:
            came = signal.sigtimedwait(_HEARD, POLL_S)
            self._reap()
            if came is not None and came.si_signo != signal.SIGCHLD:
                self._on_signal(signal.Signals(came.si_signo))
            if self._child not in self._ended:
                self._look()
        if self._save is not None:
            self._look_at_save(self._save)
        if self._save is not None:
            self._give_up("the program ended", is_own=True)
        if time.time() < self._stops_until:
            self._answering.stopped()
        return self._ended[self._child]

    # --- processes --------------------------------------------------------------------------------

    def _start(self, argv: Sequence[str]) -> int:
        spawn = partial(os.posix_spawnp, setpgroup=0) if self._is_group else os.posix_spawnp
        try:
            return int(spawn(argv[0], list(argv), os.environ, setsigmask=self._mask))
        except OSError as exc:
            self.say(f"{argv[0]}: {exc.strerror}")
            pid = -1 - len(self._ended)
            self._ended[pid] = 127 if isinstance(exc, FileNotFoundError) else _COMMAND_FAILED
            return pid

    def _reap(self) -> None:
        """Collect who ended; as process 1 of a container that includes orphans."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                code = os.waitstatus_to_exitcode(found[1])
                self._ended[found[0]] = code if code >= 0 else 128 - code

    def _kill(self, number: int) -> None:
        """To the whole program, the ranks and who started them."""
        with contextlib.suppress(ProcessLookupError):
            if self._is_group:
                os.killpg(self._child, number)
            else:
                os.kill(self._child, number)

    def _tell(self, number: signal.Signals) -> str:
        """To those processes that catch it; else why there is none."""
        found = targets(below(self._child), number, number.name.removeprefix("SIG"))
        for pid in found.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return found.why_not

    # --- what comes -------------------------------------------------------------------------------

    def _on_signal(self, number: signal.Signals) -> None:
        """Slurm's or the user's: a save first where one is possible, then the program is told."""
        if number == self._signal and self._can_save():
            self._begin(None)
        elif number == signal.SIGTERM and self._can_save():
            self._last_words.append(number)
            self._begin(None)
        elif number in _TO_ALL:
            self._kill(number)
        elif why_not := self._tell(number):
            self.say(why_not)

    def _can_save(self) -> bool:
        if self._save is not None:
            return True
        if self._command:
            return self._place.is_leader
        return self._signal is not None and not self._why_silent()

    def _why_silent(self) -> str:
        """Why nobody could be told by a signal; "" if somebody can."""
        assert self._signal is not None
        return targets(below(self._child), self._signal, self._place.signal).why_not

    def _look(self) -> None:
        if self._save is not None:
            self._look_at_save(self._save)
            return
        if not self._answering.is_ready:
            if self._command or (self._signal is not None and not self._why_silent()):
                self._answering.ready()
            return
        ask = self._answering.heard()
        if ask is None:
            return
        if ask.action is Action.PAUSE:
            self._answering.refuse(ask, "this program cannot pause in place")
        elif ask.action in (Action.CHECKPOINT, Action.REQUEUE):
            self._begin(Save.of(ask, self._place))

    # --- one save ---------------------------------------------------------------------------------

    def _begin(self, asked: Save | None) -> None:
        if self._save is not None:
            return
        self._save = save = asked or Save.unasked(self._place)
        self._answering.working(save)
        why_not = ""
        if self._command:
            if self._place.is_leader:
                self._helper = self._start([self._command])
        elif self._signal is not None:
            why_not = self._tell(self._signal)
        if why_not:
            self.say(why_not)
            self._give_up(why_not, is_own=True)

    def _look_at_save(self, save: Save) -> None:
        if self._helper is not None:
            code = self._ended.get(self._helper)
            is_done, why = code == 0, f"{self._command} ended with {code}" if code else ""
        else:
            is_done, why = save.is_new(self._place.folder), ""
        if is_done:
            self._answering.saved(save)
            if save.ask is None:  # it was Slurm's signal: if it ends soon, that is why
                self._stops_until = time.time() + self._place.timeout_s
            self._warn_of_agent(time.time() - save.began)
            self._over()
        elif why or time.time() > save.deadline:
            self._give_up(why or f"not saved in {int(time.time() - save.began)} s")

    def _give_up(self, why: str, *, is_own: bool = False) -> None:
        assert self._save is not None
        self.say(f"no checkpoint: {why}")
        self._answering.failed(self._save, why, is_own=is_own)
        if self._helper is not None and self._helper not in self._ended and self._helper > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._helper, signal.SIGTERM)
        self._over()

    def _over(self) -> None:
        """The save is over; a TERM that came before or meanwhile is passed on now."""
        self._save = self._helper = None
        while self._last_words:
            self._kill(self._last_words.pop())

    def _warn_of_agent(self, seconds: float) -> None:
        if seconds <= AGENT_PATIENCE_S:
            return
        if any(one.is_agent for one in below(self._child)):
            self.say(
                f"a save took {seconds:.0f} s, but torchrun kills its workers {AGENT_PATIENCE_S} s"
                " after TERM: have Slurm send the checkpoint's signal first, --signal=B:"
                f"{self._place.signal}@{int(seconds * 1.5)}"
            )
