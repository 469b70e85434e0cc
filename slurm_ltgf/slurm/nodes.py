"""The machine: each node once, its GPUs, and whether they are in service. By one sinfo.

sinfo -N prints a node once a partition: rows are merged by name. A GPU is in service (counts in
C(t) of LTGF) by its node's state, in either of sinfo's spellings (drained*, idle+drain+...):

open      idle, mixed, allocated, completing, planned, reserved; cloud nodes powered down, powering
          up or down (Slurm boots them for a job); reboot requested
closed    down, drained, draining, fail, failing, error, unknown, future, maintenance, blocked,
          inval, reboot issued, not responding (unless it is being powered up)

Of an open node all GPUs are in service; of a closed one those that jobs still hold (a draining
node's), which is none on a dead node. Words not known here are open: a state added by a newer
Slurm must not empty the cluster.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from slurm_ltgf.core.model import Gres, Skipped
from slurm_ltgf.errors import SlurmRefused
from slurm_ltgf.slurm import text as words
from slurm_ltgf.slurm.run import run

DELIMITER = "\x1f"
FIELDS = (
    "NodeList",
    "PartitionName",
    "StateComplete",
    "Gres",
    "GresUsed",
    "CPUsState",
    "Memory",
    "AllocMem",
)

#: sinfo's one-character suffixes of a state.
_SUFFIXES = {
    "*": "not_responding",
    "~": "powered_down",
    "#": "powering_up",
    "%": "powering_down",
    "!": "power_down",
    "@": "reboot_requested",
    "^": "reboot_issued",
    "-": "planned",
    "$": "maint",
}
#: One word for two: base and flag.
_TWO_WORDS = {
    "drained": ("idle", "drain"),
    "draining": ("mixed", "drain"),
    "drng": ("mixed", "drain"),
    "drain": ("idle", "drain"),
    "alloc": ("allocated", ""),
    "mix": ("mixed", ""),
    "comp": ("idle", "completing"),
    "completing": ("idle", "completing"),
    "maint": ("idle", "maint"),
    "resv": ("idle", "reserved"),
    "reserved": ("idle", "reserved"),
    "plnd": ("idle", "planned"),
    "planned": ("idle", "planned"),
    "inval": ("idle", "invalid_reg"),
    "failing": ("mixed", "fail"),
    "failg": ("mixed", "fail"),
    "fail": ("idle", "fail"),
    "unk": ("unknown", ""),
}
_CLOSED = frozenset(
    {
        "down",
        "error",
        "unknown",
        "future",
        "drain",
        "fail",
        "maint",
        "maintenance",
        "not_responding",
        "reboot_issued",
        "blocked",
        "invalid_reg",
        "inval",
    }
)


@dataclass(frozen=True, slots=True)
class Node:
    """A node. gres, gres_used: canonical text of what it has and of what jobs hold of it.

    state: base, lower case; flags: drain, maint, not_responding, ... memory in MiB.
    """

    name: str
    partitions: tuple[str, ...] = ()
    state: str = "idle"
    flags: frozenset[str] = frozenset()
    gres: str = ""
    gres_used: str = ""
    cpus: int = 0
    cpus_used: int = 0
    memory_mb: int = 0
    memory_used_mb: int = 0

    @property
    def is_open(self) -> bool:
        """Whether a new job could start there."""
        return not self.closed_by

    @property
    def closed_by(self) -> str:
        """What keeps new jobs away, drain before others; "": nothing."""
        marks = {self.state, *self.flags}
        if marks & {"powering_up", "powered_down"}:
            marks.discard("not_responding")
        closing = sorted(_CLOSED & marks)
        return "drain" if "drain" in closing else (closing or [""])[0]

    @property
    def gpus(self) -> dict[str, int]:
        """Whole GPUs by type ("": no type)."""
        return devices(self.gres)

    @property
    def gpus_used(self) -> dict[str, int]:
        """Whole GPUs that jobs hold, by type; a GPU shared by mps or shard is not among them."""
        return devices(self.gres_used)

    @property
    def gpus_in_service(self) -> dict[str, int]:
        """GPUs that count as capacity, by type: all of an open node, else those in use."""
        return self.gpus if self.is_open else dict(Counter(self.gpus_used) + self.gpus_shared)

    @property
    def gpus_shared(self) -> Counter[str]:
        """GPUs at least in use by mps or shard; GresUsed counts tokens (22.05: GPUs, for mps)."""
        found: Counter[str] = Counter()
        for kind, model, count in parts(self.gres_used):
            per_gpu = self.per_gpu(kind) if kind != "gpu" else 0
            if per_gpu:
                found[model or min(self.gpus)] += -(-count // per_gpu)
        return found

    def per_gpu(self, name: str) -> int:
        """Tokens of "shard" or "mps" that a GPU of this node is divided into; 0: not divided."""
        tokens = sum(count for kind, _, count in parts(self.gres) if kind == name)
        return tokens // (sum(self.gpus.values()) or 1)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The nodes at one moment. skipped: rows that could not be read."""

    nodes: tuple[Node, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs of all nodes, in service or not."""
        return sum(sum(node.gpus.values()) for node in self.nodes)

    @property
    def open_gpus(self) -> int:
        """GPUs of nodes where new jobs can start."""
        return sum(sum(node.gpus.values()) for node in self.nodes if node.is_open)

    @property
    def gpus_in_service(self) -> int:
        """C(t), not weighted."""
        return sum(self.by_type().values())

    @property
    def gpus_used(self) -> int:
        """GPUs that jobs hold as whole GPUs."""
        return sum(sum(node.gpus_used.values()) for node in self.nodes)

    @property
    def gpus_free(self) -> int:
        """GPUs of open nodes that no job holds."""
        used = sum(sum(node.gpus_used.values()) for node in self.nodes if node.is_open)
        return self.open_gpus - used

    @property
    def gpus_down(self) -> int:
        """GPUs that are not in service."""
        return self.gpus - self.gpus_in_service

    def by_type(self) -> dict[str, int]:
        """GPUs in service by type, sorted: what type weights apply to."""
        counts: Counter[str] = Counter()
        for node in self.nodes:
            counts.update(node.gpus_in_service)
        return dict(sorted(counts.items()))

    def per_gpu(self, name: str) -> int:
        """Tokens of "shard" or "mps" a GPU has; 0 if none has any or nodes differ."""
        found = {node.per_gpu(name) for node in self.nodes} - {0}
        return found.pop() if len(found) == 1 else 0


def parts(gres: str) -> Gres:
    """Split canonical text: ("gpu", "a100", 4), ...

    >>> parts("gpu:a100=4,shard=16")
    (('gpu', 'a100', 4), ('shard', '', 16))
    """
    found = []
    for token in filter(None, gres.split(",")):
        name, _, count = token.rpartition("=")
        kind, _, model = name.partition(":")
        found.append((kind, model, int(count)))
    return tuple(found)


def devices(gres: str) -> dict[str, int]:
    """Whole GPUs by type of a node's canonical text, where typed and untyped do not overlap."""
    counts: Counter[str] = Counter()
    for kind, model, count in parts(gres):
        counts[model] += count if kind == "gpu" else 0
    return {model: count for model, count in sorted(counts.items()) if count}


# --- sinfo ----------------------------------------------------------------------------------------


def capacity(partitions: Iterable[str] = ()) -> Capacity:
    """Ask for the nodes of some partitions; of none named, of all.

    Raises:
        SlurmUnavailable, SlurmRefused: sinfo failed, or knows none of the partitions; a cluster
            without nodes is never the answer.
    """
    columns = ",".join(f"{field}:{DELIMITER}" for field in FIELDS)
    wanted = tuple(partitions)
    found = parse(run(["sinfo", "-h", "-N", "-a", "-O", columns]), wanted)
    if not found.nodes and not found.skipped:
        named = ", ".join(wanted)
        raise SlurmRefused(f"sinfo: no node{f' in partition {named}' if named else ''}")
    return found


def parse(text: str, partitions: Iterable[str] = ()) -> Capacity:
    """Read what `capacity` asked for, each node once. A row that cannot be read is named."""
    wanted = frozenset(partitions)
    nodes: dict[str, Node] = {}
    member: dict[str, list[str]] = {}
    skipped: list[Skipped] = []
    for number, line in enumerate(text.split("\n"), 1):
        cells = line.split(DELIMITER)
        if not line or (wanted and cells[1:2] and cells[1] not in wanted):
            continue
        try:
            if len(cells) != len(FIELDS) + 1:
                raise ValueError(f"expected {len(FIELDS)} columns, got {len(cells) - 1}")
            nodes[cells[0]] = _node(cells)
            member.setdefault(cells[0], []).append(cells[1])
        except ValueError as exc:
            skipped.append(Skipped(number, f"node {cells[0]}: {exc}", "sinfo"))
    return Capacity(
        tuple(_in_partitions(node, member[name]) for name, node in nodes.items()), tuple(skipped)
    )


def _node(cells: list[str]) -> Node:
    name, _, state, gres, used, cpus, memory, memory_used, _ = cells
    base, flags = node_state(state)
    allocated, _, _, total = (int(count) for count in cpus.split("/"))
    return Node(
        name=name,
        state=base,
        flags=flags,
        gres=words.gres_of_node(gres),
        gres_used=words.gres_of_node(used),
        cpus=total,
        cpus_used=allocated,
        memory_mb=int(memory),
        memory_used_mb=int(memory_used) if memory_used.isdecimal() else 0,
    )


def _in_partitions(node: Node, names: list[str]) -> Node:
    values = {field: getattr(node, field) for field in node.__slots__}
    return Node(**{**values, "partitions": tuple(dict.fromkeys(names))})


def node_state(text: str) -> tuple[str, frozenset[str]]:
    """Split a node's state, in sinfo's or scontrol's spelling, into base and flags.

    >>> base, flags = node_state("drained*")
    >>> base, sorted(flags)
    ('idle', ['drain', 'not_responding'])
    >>> node_state("ALLOCATED+DRAIN")[0], node_state("idle~")
    ('allocated', ('idle', frozenset({'powered_down'})))
    """
    match = re.fullmatch(r"([\w+]+?)([^\w+]*)", text.strip().lower())
    if not match:
        raise ValueError(f"cannot read node state {text!r}")
    first, *flags = match[1].split("+")
    base, flag = _TWO_WORDS.get(first, (first, ""))
    suffixes = [_SUFFIXES.get(mark, mark) for mark in match[2]]
    return base, frozenset(filter(None, (flag, *flags, *suffixes)))
