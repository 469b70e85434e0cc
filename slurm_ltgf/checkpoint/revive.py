"""The user's side of CRIU: a program that can be written to disk, and is brought back when the job
runs again.

The first run starts it in a session of its own, with its output in a file of the checkpoint folder:
nothing of it then hangs on the batch step. A later run asks the node's agent to bring back the last
image instead. Both times the output is passed on, and the exit code is the program's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from slurm_ltgf.checkpoint.archive import Archive
from slurm_ltgf.checkpoint.board import read_owned, replace_owned
from slurm_ltgf.checkpoint.keys import ProtocolError, decode, encode
from slurm_ltgf.checkpoint.place import Place
from slurm_ltgf.checkpoint.program import WRAPPER, call_oneself

#: The wish to be brought back, and what came of it: both of the job's user, in its folder.
WISH, DONE, OUTPUT, SEAL = "ltgf-revive", "ltgf-revived", "ltgf-out", "SEAL"
#: What came of a wish: one of these keys; before that it is under way.
ENDED = ("pid", "why", "code")
POLL_S = 0.2
#: An agent that has not begun by then is not there; one that has may have much to copy.
BEGIN_S, COPY_S = 120.0, 3600.0
#: A program that is gone for so long, and nobody told its exit code: its keeper is gone, too.
GONE_S = 15.0
NOT_REVIVED = 75
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run(argv: Sequence[str], place: Place, say: Callable[[str], None]) -> int:
    """Start a program, or have it brought back; its exit code.

    Raises:
        OSError: it cannot be started, or the folder cannot be used.
        BoardError: the job's record cannot be written.
    """
    if place.job_id:
        place.enter()
    call_oneself(WRAPPER)
    image = _image(place)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    output = _Output(place.folder / OUTPUT, is_new=image is None)
    try:
        if image is None:
            child = _start(argv, place, before)
            return _wait(lambda: _ended(child), lambda: child, output)
        say(f"brings back {image}")
        return _revived(place, image, output, say)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        output.close()


def _image(place: Place) -> str | None:
    """The image that this run goes on from; None at the first run, or if there is none."""
    if not place.restart:
        return None
    path = Archive(place.folder).named_by_link()
    return path.name if path is not None and (path / SEAL).exists() else None


def _start(argv: Sequence[str], place: Place, mask: set[signal.Signals | int]) -> int:
    out = place.folder / OUTPUT
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, out, append, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    program = list(argv)
    return os.posix_spawnp(
        program[0], program, os.environ, file_actions=actions, setsid=True, setsigmask=mask
    )


def _ended(child: int) -> int | None:
    pid, status = os.waitpid(child, os.WNOHANG)
    if not pid:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _revived(place: Place, image: str, output: _Output, say: Callable[[str], None]) -> int:
    wish = {"restart": place.restart, "image": image, "job_id": place.job_id}
    replace_owned(place.folder / WISH, encode(wish), mode=0o600)
    waits = _Waits(place.folder / DONE, str(place.restart), say)
    return _wait(waits.code, waits.pid, output)


class _Waits:
    """For a program that an agent brings back, and for its end."""

    def __init__(self, path: Path, run: str, say: Callable[[str], None]) -> None:
        self._path, self._run, self._say = path, run, say
        self._began = time.monotonic()
        self._gone_at: float | None = None

    def _told(self) -> dict[str, str]:
        done = told(self._path, os.geteuid())
        return done if done.get("restart") == self._run else {}

    def pid(self) -> int:
        """Of the program; 0: it is not back yet."""
        pid = self._told().get("pid", "")
        return int(pid) if pid.isdecimal() else 0

    def code(self) -> int | None:
        """What this run ends with; None: it is not over."""
        done = self._told()
        if done.get("code", "").isdecimal():
            return int(done["code"])
        why = done.get("why") or self._why_lost(done)
        if why:
            self._say(f"not brought back: {why}" if "pid" not in done else why)
            return NOT_REVIVED
        return None

    def _why_lost(self, done: dict[str, str]) -> str:
        if "pid" not in done:
            within_s = COPY_S if done else BEGIN_S
            if time.monotonic() - self._began < within_s:
                return ""
            return f"no agent (ltgf node) did it on this node within {within_s:.0f} s"
        if self._is_there():
            self._gone_at = None
            return ""
        self._gone_at = self._gone_at or time.monotonic()
        if time.monotonic() - self._gone_at < GONE_S:
            return ""
        return f"the program ended, and nobody was there to see how: {self._path.name} has no code"

    def _is_there(self) -> bool:
        try:
            os.kill(self.pid(), 0)
        except ProcessLookupError:
            return False
        except OSError:
            return True
        return True


def told(path: Path, uid: int) -> dict[str, str]:
    """The keys of a file of this user; {}: it is not there or cannot be read."""
    with contextlib.suppress(OSError, ProtocolError):
        return decode(read_owned(path, owners={uid}), str(path))
    return {}


def _wait(look: Callable[[], int | None], pid: Callable[[], int], output: _Output) -> int:
    """Pass output and signals on until it has ended."""
    while (code := look()) is None:
        output.pass_on()
        came = signal.sigtimedwait(_PASSED_ON, POLL_S)
        if came is not None and pid() > 1:
            with contextlib.suppress(OSError):
                os.kill(pid(), came.si_signo)
    output.pass_on()
    return code


class _Output:
    """What the program writes, passed on to our own output."""

    def __init__(self, path: Path, *, is_new: bool) -> None:
        flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if is_new else 0)
        self._file = os.open(path, flags, 0o600)
        os.lseek(self._file, 0, os.SEEK_END)

    def pass_on(self) -> None:
        """All that has come since; a file that became shorter is followed from its new end."""
        size = os.fstat(self._file).st_size
        if size < os.lseek(self._file, 0, os.SEEK_CUR):
            os.lseek(self._file, size, os.SEEK_SET)
        while block := os.read(self._file, 1 << 16):
            sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()

    def close(self) -> None:
        os.close(self._file)
