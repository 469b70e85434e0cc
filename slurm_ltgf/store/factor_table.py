"""The factor table that slurmctld's plugin reads, and the status file in which it answers.

The layout is described in docs/reference/factor-table.md and checked by site_factor/factors.c; both
languages read tests/golden/factor_table.bin. A table is replaced in one step, so that a reader has
the old one or the new one; its checksum finds what a disk or a hand did to it.
"""

from __future__ import annotations

import contextlib
import glob
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from slurm_ltgf.store.files import FileError, replace_bytes

MAGIC, VERSION = b"LTGFFACT", 2
#: Nothing on the axis of a table lies further, and no tag as far as those without entitlement.
FAR, NO_DUE = 1e300, 1e280
#: The plugin writes its status every 5 s; older than this it is gone.
STATUS_FRESH_S = 20

_HEADER = struct.Struct("<8sIIQqIIIIIIII")
_CRC_AT = 12
_JOB = np.dtype([("job_id", "<u4"), ("label", "<i4")])


class Anchor(NamedTuple):
    """A place on the axis and the label that a job there has."""

    x: float
    label: int


class TenantEntry(NamedTuple):
    """A tenant's account as the order has it (`core.order.Account`): where its next job stands.

    has = spent_gpu_s + lease_s x charged_gpus, tag = has / due_gpu_s. charged_gpus: of its jobs
    that wait; those that come are added. While held and charged are less than floor_gpus its place
    is before all tags, at -1 / (1 + tag); with nothing due it is after all, at (1 + has) x NO_DUE.
    """

    spent_gpu_s: float
    lease_s: float
    due_gpu_s: float
    held_gpus: float = 0.0
    floor_gpus: float = 0.0
    charged_gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class FactorTable:
    """All that the plugin needs to answer for any job.

    anchors: at least two, x strictly rising, labels never rising. accounts: account -> index in
    tenants. prices: TRES name -> weighted GPUs of one unit. partitions: those managed, empty: all.
    labels: job id -> SiteFactor.
    """

    generated_ns: int
    stale_after_s: int
    anchors: Sequence[Anchor]
    tenants: Sequence[TenantEntry] = ()
    accounts: Mapping[str, int] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    partitions: Sequence[str] = ()
    labels: Mapping[int, int] = field(default_factory=dict)


def encode(table: FactorTable) -> bytes:
    """The table's bytes."""
    strings = _Strings()
    accounts = sorted((name.encode(), tenant) for name, tenant in table.accounts.items())
    prices = sorted(table.prices.items())
    jobs = np.array(sorted(table.labels.items()), dtype=np.int64).reshape(-1, 2)
    packed = np.empty(len(jobs), dtype=_JOB)
    packed["job_id"], packed["label"] = jobs[:, 0], jobs[:, 1]
    body = b"".join(
        [
            *(struct.pack("<dq", *anchor) for anchor in table.anchors),
            *(struct.pack("<6d", *tenant) for tenant in table.tenants),
            *(struct.pack("<II", strings.at(name), tenant) for name, tenant in accounts),
            *(
                struct.pack("<dII", gpus, strings.at(name.encode()), _kind(name))
                for name, gpus in prices
            ),
            *(struct.pack("<II", strings.at(name.encode()), 0) for name in table.partitions),
            packed.tobytes(),
            strings.bytes,
        ]
    )
    head = _HEADER.pack(
        MAGIC,
        VERSION,
        0,
        _HEADER.size + len(body),
        table.generated_ns,
        table.stale_after_s,
        len(table.anchors),
        len(table.tenants),
        len(accounts),
        len(prices),
        len(table.partitions),
        len(jobs),
        len(strings.bytes),
    )
    crc = struct.pack("<I", zlib.crc32(head + body))
    return head[:_CRC_AT] + crc + head[_CRC_AT + 4 :] + body


def _kind(tres: str) -> int:
    """How a price counts: the untyped GPUs are the typed ones' total."""
    return 2 if tres == "gres/gpu" else int(tres.startswith("gres/gpu:"))


class _Strings:
    """Texts one after the other, each with a NUL behind it."""

    def __init__(self) -> None:
        self.bytes = b"\0"

    def at(self, text: bytes) -> int:
        offset = len(self.bytes)
        self.bytes += text.replace(b"\0", b"") + b"\0"
        return offset


def decode_labels(content: bytes) -> dict[int, int]:
    """Job id -> SiteFactor of a table's bytes; {} if they are no table."""
    if len(content) < _HEADER.size or content[: len(MAGIC)] != MAGIC:
        return {}
    *_, jobs, strings = _HEADER.unpack_from(content)
    end = len(content) - strings
    begin = end - jobs * _JOB.itemsize
    crc = zlib.crc32(content[:_CRC_AT] + bytes(4) + content[_CRC_AT + 4 :])
    if begin < _HEADER.size or struct.pack("<I", crc) != content[_CRC_AT : _CRC_AT + 4]:
        return {}
    rows = np.frombuffer(content[begin:end], dtype=_JOB)
    return dict(zip(rows["job_id"].tolist(), rows["label"].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """What the plugin says of itself. state: "ok", or why every factor is 0."""

    pid: int
    time: int
    state: str
    generated_ns: int
    jobs: int = 0
    tenants: int = 0

    def is_alive(self, now: float) -> bool:
        """Whether a slurmctld with the plugin runs now."""
        return abs(now - self.time) <= STATUS_FRESH_S


@dataclass(frozen=True, slots=True)
class FactorFile:
    """The edge to the plugin: the table's file, and the status that it writes beside it."""

    path: Path

    def write(self, table: FactorTable) -> None:
        """Replace the table, and sweep up what a writer that was killed left of another.

        There is one writer at a time: whoever holds the ledger's lock.

        Raises:
            FileError: it cannot be written; the old one stands.
        """
        replace_bytes(self.path, encode(table))
        for left in self.path.parent.glob(f".{glob.escape(self.path.name)}.????????"):
            with contextlib.suppress(OSError):
                left.unlink()

    def remove(self) -> None:
        """Take the table away: the plugin then gives every job 0.

        Raises:
            FileError: it cannot be removed.
        """
        try:
            self.path.unlink(missing_ok=True)
        except OSError as exc:
            raise FileError(f"{self.path}: cannot remove: {exc.strerror}") from exc

    def labels(self) -> dict[int, int]:
        """Job id -> SiteFactor of the table that is there; {} if none can be read."""
        try:
            return decode_labels(self.path.read_bytes())
        except OSError:
            return {}

    def status(self) -> PluginStatus | None:
        """What the plugin wrote last; None: nothing, or nothing that can be read."""
        beside = self.path.with_name(f"{self.path.name}.status")
        try:
            return parse_status(beside.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return None


def parse_status(text: str) -> PluginStatus | None:
    """Read the plugin's status file; None if a line is missing or no number.

    >>> parse_status("pid=7\\ntime=90\\nstate=ok\\ngenerated_ns=5\\njobs=2\\ntenants=1\\n")
    PluginStatus(pid=7, time=90, state='ok', generated_ns=5, jobs=2, tenants=1)
    """
    found = dict(line.split("=", 1) for line in text.split("\n") if "=" in line)
    try:
        pid, time, generated_ns, jobs, tenants = (
            int(found[key]) for key in ("pid", "time", "generated_ns", "jobs", "tenants")
        )
        return PluginStatus(pid, time, found["state"], generated_ns, jobs, tenants)
    except (KeyError, ValueError):
        return None
