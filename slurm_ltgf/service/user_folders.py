"""Folders of users, seen from here without ever waiting for their file systems.

A file system whose server is away holds every process that touches it, root's too, for minutes or
for ever. So a child looks, as the user, and is left behind if it does not come back.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import sys
import time
from pathlib import Path

WITHIN_S = 2.0
_ABSENT = 3
#: As nobody but the user: whatever links lie there lead nowhere that the user could not go.
_LOOK = f"""
import os, sys
uid, gid, folder, name = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
if os.geteuid() == 0:
    os.setgroups([gid]), os.setgid(gid), os.setuid(uid)
sys.exit(0 if name in os.listdir(folder) else {_ABSENT})
"""
_MOUNTS = Path("/proc/self/mountinfo")
#: Children that did not come back, not even when killed: they are collected when they do.
_left: set[int] = set()


def has(folder: Path, name: str, *, uid: int, within_s: float | None = None) -> bool | None:
    """Whether a folder has something of this name, as its user sees it; None: it cannot be seen."""
    _collect()
    argv = [sys.executable, "-ISc", _LOOK, str(uid), str(group_of(uid)), str(folder), name]
    nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    try:
        child = os.posix_spawn(argv[0], argv, os.environ, file_actions=nowhere)
    except (OSError, ValueError):  # no processes to be had; a name with a zero byte
        return None
    code = _code(child, WITHIN_S if within_s is None else within_s)
    return {0: True, _ABSENT: False}.get(-1 if code is None else code)


def group_of(uid: int) -> int:
    """A user's own group; nobody's, if there is no such user here."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return 65534


def filesystem(folder: Path) -> str:
    """On which file system a folder is, from the table of mounts alone.

    What is mounted here is told by its device, everything else by its path's top.
    """
    mounts: dict[Path, str] = {}
    with contextlib.suppress(OSError):
        for line in _MOUNTS.read_text(errors="surrogateescape").splitlines():
            _, _, device, _, point, *_ = line.split(" ")
            mounts[Path(point.replace("\\040", " "))] = device
    mounts.pop(Path("/"), None)
    for parent in (folder, *folder.parents):
        if parent in mounts:
            return f"device {mounts[parent]}"
    return "/".join(folder.parts[1:3])


def _code(child: int, within_s: float) -> int | None:
    """A child's exit code; None: it did not come back."""
    end, nap_s = time.monotonic() + within_s, 0.005
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(nap_s)
        nap_s = min(nap_s * 1.5, 0.1)
    os.kill(child, signal.SIGKILL)
    _left.add(child)
    return None


def _collect() -> None:
    for child in list(_left):
        with contextlib.suppress(ChildProcessError):
            if not os.waitpid(child, os.WNOHANG)[0]:
                continue
        _left.discard(child)
