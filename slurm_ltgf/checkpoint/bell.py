"""Slurm's signal (--signal, preemption) as a flag; a handler that was there is called too."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable
from types import FrameType

#: SIG_DFL and SIG_IGN.
_NOBODY = (0, 1)


class Bell:
    """Rings when the signal comes; a second one changes nothing. Only in a main thread.

    name: "USR2"; "" for no signal at all. keep: take it back from whoever takes it.
    """

    def __init__(self, name: str, *, keep: bool = False) -> None:
        self.rung = False
        self._keep = keep
        self._number: int | None = None
        known = getattr(signal, f"SIG{name}", None) if name else None
        if known is None or threading.current_thread() is not threading.main_thread():
            return
        self._number = int(known)
        self._before = signal.signal(known, self._ring)
        self._installed = _handler(self._number)

    def take(self) -> bool:
        """Whether it rang since it was asked last."""
        rung, self.rung = self.rung, False
        return rung

    def check(self, say: Callable[[str], None]) -> None:
        """Say if somebody else has taken the signal since (NCCL 2.12 takes USR1); once.

        A library that set it back to nothing at all (PyTorch's profiler) does not want it: it is
        taken again, for it would kill.
        """
        if self._number is None:
            return
        in_c, in_python = _handler(self._number), signal.getsignal(self._number)
        if in_c == self._installed and in_python == self._ring:
            return
        name = signal.Signals(self._number).name
        is_unset = in_c in _NOBODY and in_python == self._ring
        if is_unset or self._keep:
            signal.signal(self._number, self._ring)
            done = "unset" if is_unset else "taken"
            say(f"a library had {done} the handler of {name}: it is set again")
            return
        say(
            f"another handler took {name}: Slurm's own signal will not be seen here, what ltgf"
            " asks will; choose another by --ckpt-signal, or session(keep_signal=True)"
        )
        self._number = None

    def _ring(self, number: int, frame: FrameType | None) -> None:
        self.rung = True
        if callable(self._before):
            self._before(number, frame)


def _handler(number: int) -> int:
    """What the kernel calls: signal.getsignal() does not see handlers that C code installs."""
    action = ctypes.create_string_buffer(512)
    ctypes.CDLL(None).sigaction(number, None, action)
    return int.from_bytes(action.raw[: ctypes.sizeof(ctypes.c_void_p)], "little")
