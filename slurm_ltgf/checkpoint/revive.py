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
from slurm_ltgf.checkpoint.place import Place
from slurm_ltgf.checkpoint.protocol import ProtocolError, decode, encode

#: The wish to be brought back, and what came of it: both of the job's user, in its folder.
WISH, DONE, OUTPUT, SEAL = "ltgf-revive", "ltgf-revived", "ltgf-out", "SEAL"
POLL_S = 0.2
#: An agent that has not begun by then is not there.
BEGIN_S = 120.0
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
    began = time.monotonic()

    def look() -> int | None:
        done = told(place.folder / DONE, os.geteuid())
        if done.get("restart") != str(place.restart):
            if time.monotonic() - began < BEGIN_S:
                return None
            say("no agent (ltgf node) brings it back on this node")
            return NOT_REVIVED
        if why := done.get("why"):
            say(f"not brought back: {why}")
            return NOT_REVIVED
        code = done.get("code", "")
        return int(code) if code.isdecimal() else None

    def pid() -> int:
        done = told(place.folder / DONE, os.geteuid())
        is_ours = done.get("restart") == str(place.restart)
        return int(done.get("pid", "0")) if is_ours else 0

    return _wait(look, pid, output)


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
