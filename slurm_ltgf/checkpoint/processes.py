"""Which processes below one of ours can be told by a signal, as /proc shows them.

A signal that nobody handles kills (USR2, also the agent of torchrun and the batch shell), or, for
process 1 of a container, does nothing at all. So only processes that catch it are told, and of
those the ranks: they have a rank's variable in the environment that they were started with.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
#: The first that any process has decides which of them are ranks.
_RANK_VARIABLES = ("LOCAL_RANK", "RANK", "SLURM_PROCID")
_AGENTS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate")


@dataclass(frozen=True, slots=True)
class Process:
    """One process. catches: signals that it handles. inside: its number in its own container."""

    pid: int
    parent: int
    name: str
    catches: frozenset[int]
    inside: int
    line: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_agent(self) -> bool:
        """Whether it starts ranks and ends them itself: torchrun and its like."""
        return any(word in self.line for word in _AGENTS)


@dataclass(frozen=True, slots=True)
class Targets:
    """Whom to tell, and what is to be said of those who are not."""

    pids: tuple[int, ...] = ()
    agent: int | None = None
    why_not: str = ""


def below(root: int) -> list[Process]:
    """A process and all its descendants, the eldest first; those that are gone are left out."""
    children: dict[int, list[Process]] = {}
    eldest: list[Process] = []
    for entry in PROC.iterdir():
        found = read(int(entry.name)) if entry.name.isdecimal() else None
        if found is None:
            continue
        children.setdefault(found.parent, []).append(found)
        if found.pid == root:
            eldest.append(found)
    queue, seen = deque(eldest), []
    while queue:
        process = queue.popleft()
        seen.append(process)
        queue.extend(children.get(process.pid, ()))
    return seen


def read(pid: int) -> Process | None:
    """One process; None: it is gone, or somebody else's."""
    try:
        status = dict(
            line.split(":\t", 1)
            for line in (PROC / str(pid) / "status").read_text(errors="replace").splitlines()
            if ":\t" in line
        )
        caught = int(status["SigCgt"], 16)
        return Process(
            pid=pid,
            parent=int(status["PPid"]),
            name=status["Name"],
            catches=frozenset(n for n in range(1, 65) if caught >> (n - 1) & 1),
            inside=int(status.get("NSpid", str(pid)).split()[-1]),
            line=_words(pid, "cmdline"),
            environment=_environment(pid),
        )
    except (OSError, KeyError, ValueError):
        return None


def targets(processes: Iterable[Process], number: int, name: str) -> Targets:
    """Whom to tell by this signal. name: of the signal, for the line.

    Children of a rank that have its variables and handlers too (data loaders) are not told.
    """
    processes = list(processes)
    if not processes:
        return Targets(why_not="the program is gone")
    catching = [one for one in processes if number in one.catches]
    agent = next((one.pid for one in processes if one.is_agent), None)
    for variable in _RANK_VARIABLES:
        ranks = [one for one in catching if variable in one.environment and not one.is_agent]
        if ranks:
            return Targets(_topmost(ranks, processes), agent)
    if processes[0] in catching and not processes[0].is_agent:
        return Targets((processes[0].pid,), agent)
    return Targets((), agent, _why_not(processes, name))


def _topmost(chosen: list[Process], processes: list[Process]) -> tuple[int, ...]:
    parent = {one.pid: one.parent for one in processes}
    pids = {one.pid for one in chosen}

    def has_chosen_above(pid: int) -> bool:
        above = parent.get(pid)
        while above is not None:
            if above in pids:
                return True
            above = parent.get(above)
        return False

    return tuple(one.pid for one in chosen if not has_chosen_above(one.pid))


def _why_not(processes: list[Process], name: str) -> str:
    first = next((one for one in processes if one.inside == 1), None)
    if first is not None:
        return (
            f"process {first.pid} ({first.name}) is process 1 of its container and ignores"
            f" {name}: it has no handler"
        )
    last = processes[-1]
    return (
        f"process {last.pid} ({last.name}) would be killed by {name}: it has no handler;"
        " not signalled"
    )


def _words(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / name).read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _environment(pid: int) -> dict[str, str]:
    """Rank variables alone: the rest of somebody's environment is none of our business."""
    found = {}
    with contextlib.suppress(OSError):
        for word in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            key, _, value = word.decode(errors="replace").partition("=")
            if key in _RANK_VARIABLES:
                found[key] = value
    return found
