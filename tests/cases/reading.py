"""Reading a dump in a test, and what its runs are worth."""

from __future__ import annotations

import io
from datetime import UTC, tzinfo
from pathlib import Path

from slurm_ltgf.core.demand import load
from slurm_ltgf.core.fairness import attained_gpu_s
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.history import settle
from slurm_ltgf.core.model import Runs, Skipped, Window
from slurm_ltgf.core.timeline import Clock
from slurm_ltgf.slurm.dump import read_dump

INPUTS = Path(__file__).parent / "inputs"
NOW = 1_800_000_000
EVER = Window(1, NOW)


def read(
    dump: str | bytes, *, timezone: tzinfo = UTC, now: int = NOW, cluster: str | None = "c"
) -> tuple[Runs, list[Skipped]]:
    """All runs and all skipped rows of a dump."""
    data = dump.encode() if isinstance(dump, str) else dump
    batches = list(read_dump(io.BytesIO(data), cluster=cluster, timezone=timezone, now=now))
    assert sum(batch.bytes for batch in batches) == len(data)
    skipped = [row for batch in batches for row in batch.skipped]
    return Runs.concat([batch.runs for batch in batches]), skipped


def usage(
    runs: Runs, window: Window = EVER, *, now: int = NOW, pricing: Pricing | None = None
) -> dict[str, float]:
    """Attained GPU-seconds of each account that has any."""
    runs = settle(runs, now=now).runs
    names = sorted(set(runs.account.names))
    pricing = pricing or Pricing()
    asked, _ = load(runs, window, tenant_of=names.index, pricing=pricing)
    attained = attained_gpu_s(asked, Clock(window), len(names))
    return {name: used for name, used in zip(names, attained, strict=True) if used}


def dated(dump: str, *, delimiter: str = "|", start: str = "2026-03-01T00:00:00") -> str:
    """A dump of the field log that has no Start, with one column of it put first."""
    header, *rows = dump.splitlines()
    lines = [f"Start{delimiter}{header}", *(f"{start}{delimiter}{row}" for row in rows)]
    return "".join(f"{line}\n" for line in lines)
