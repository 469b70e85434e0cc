"""Which of a job's processes is the program that CRIU writes, and with which rights it runs.

A program is what `ltgf-ckpt run` started, or an agent's keeper brought back, in a session of its
own: told from whatever else has one (torchrun's workers, ssh-agent) by its parent. What it is
restored with is no more than what its user may have: `Rights`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_ltgf.checkpoint.driver import DriverError

#: What those who start programs are called in /proc/PID/comm: the wrapper in the job, the keeper.
WRAPPER, KEEPER = "ltgf-ckpt", "ltgf-keeper"
#: The kernel's capabilities that CRIU needs beside the user's own rights. None of them opens a
#: file that the user may not open: a path in an image may lead elsewhere by now.
_CAPABILITIES = {
    "dump": {40: "checkpoint_restore", 19: "sys_ptrace", 12: "net_admin"},
    "restore": {40: "checkpoint_restore", 8: "setpcap", 12: "net_admin", 24: "sys_resource"},
}
_STEP = re.compile(r"slurmstepd: \[[^]]*\.(\w+)\]")
#: Steps whose processes are no program's: the batch script's, and what Slurm adopted (ssh).
_OTHER_STEPS = {"batch", "extern"}


def call_oneself(name: str) -> None:
    """Have this process go by a name."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def root_of(pids: Sequence[int]) -> int:
    """The program's first process. pids: all of the job's on the node, of its user.

    Raises:
        DriverError: there is none, or several, or it is not all of the program.
    """
    parents = {pid: int(stat[1]) for pid in pids if (stat := stat_of(pid))}
    sessions = {pid: int(stat[3]) for pid in parents if (stat := stat_of(pid))}
    for pid in sorted(parents):
        step = _step_above(pid)
        if step and step not in _OTHER_STEPS:
            raise DriverError(
                f"process {pid} ({name_of(pid)}) runs in step {step} of srun, which CRIU cannot"
                " restore: the batch script must start the program by `ltgf-ckpt run -- PROGRAM`,"
                " without srun"
            )
    found = [
        pid
        for pid, parent in parents.items()
        if sessions.get(pid) == pid and name_of(parent) in (WRAPPER, KEEPER)
    ]
    if len(found) != 1:
        raise DriverError(
            f"{len(found)} programs that `ltgf-ckpt run` started, not one: the batch script must"
            " start it by `ltgf-ckpt run -- PROGRAM`, and nothing else that is to be kept"
        )
    for pid, session in sorted(sessions.items()):
        if session == found[0] and not _is_below(pid, found[0]):
            raise DriverError(
                f"process {pid} ({name_of(pid)}) has left the program that it belongs to (its"
                " parent ended), and would be lost"
            )
    return found[0]


def _is_below(pid: int, root: int) -> bool:
    return root in _upwards(pid)


def _upwards(pid: int) -> Iterable[int]:
    """A process, its parent, and so on."""
    while pid > 1:
        yield pid
        stat = stat_of(pid)
        pid = int(stat[1]) if stat else 0


def _step_above(pid: int) -> str:
    """The step that a process was started in: `batch`, a number; "" if Slurm did not start it."""
    for above in _upwards(pid):
        if name_of(above).startswith("slurmstepd"):
            found = _STEP.match(_line(above))
            return found[1] if found else "of a name that cannot be read"
    return ""


def name_of(pid: int) -> str:
    """What it goes by; "" if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return ""


def _line(pid: int) -> str:
    with contextlib.suppress(OSError):
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        return line.replace(b"\0", b" ").decode(errors="replace")
    return ""


def stat_of(pid: int) -> list[str]:
    """/proc/PID/stat from the state on: state, parent, group, session ...; [] if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def wake(pids: Iterable[int]) -> None:
    """Have those that stand stopped (as CRIU leaves them) run again."""
    for pid in pids:
        if stat_of(pid)[:1] == ["T"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Rights:
    """What a program runs with, and CRIU for it. gids: its own group first, then the others."""

    uid: int
    gids: tuple[int, ...]

    @classmethod
    def of(cls, pid: int, uid: int) -> Rights:
        """Those of a process of this user's.

        Raises:
            DriverError: it has more than its user, or is gone.
        """
        try:
            status = Path(f"/proc/{pid}/status").read_text(errors="replace")
        except OSError as exc:
            raise DriverError(f"process {pid}: {exc.strerror}") from exc
        lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        uids, gids = lines["Uid"].split(), [int(gid) for gid in lines["Gid"].split()]
        if set(uids) != {str(uid)}:
            raise DriverError(f"process {pid}: runs as user {uids[1]}, not as the job's")
        others = sorted(set(map(int, lines["Groups"].split())))
        found = cls(uid, (gids[0], *others))
        found.check()
        return found

    def check(self) -> None:
        """See that the user may have all of it, on this node and now.

        Raises:
            DriverError: a group that the user is not in.
        """
        if self.uid == 0:
            return
        try:
            entry = pwd.getpwuid(self.uid)
            may_have = {entry.pw_gid, *os.getgrouplist(entry.pw_name, entry.pw_gid)}
        except KeyError:
            may_have = {65534}
        foreign = sorted(set(self.gids) - may_have)
        if foreign:
            raise DriverError(
                f"the program runs with group {foreign[0]}, which user {self.uid} is not in on"
                " this node"
            )

    def criu(self, program: str, verb: str) -> list[str]:
        """The beginning of a command line of CRIU that runs with these rights.

        Raises:
            DriverError: setpriv (util-linux) is missing.
        """
        if self.uid == 0:
            return [program, verb]
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise DriverError("setpriv (package util-linux) is not on this node")
        held = _held()
        kept = ",".join(f"+{n}" for bit, n in _CAPABILITIES[verb].items() if held >> bit & 1)
        gid, *others = self.gids
        groups = f"--groups={','.join(map(str, others))}" if others else "--clear-groups"
        return [
            setpriv, f"--reuid={self.uid}", f"--regid={gid}", groups,
            f"--inh-caps=-all,{kept}", f"--ambient-caps=-all,{kept}",
            "--", program, verb, "--unprivileged",
        ]  # fmt: skip


def _held() -> int:
    """Our own capabilities, as bits."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("CapPrm:")[2].split()[0], 16)
