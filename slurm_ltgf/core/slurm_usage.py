"""GPU-time as Slurm's own reports count it, to be laid beside them.

sreport counts devices of gres/gpu from a run's start to its end, suspended time and all: whoever is
suspended keeps its GPUs. It knows nothing of type weights, MPS or shards, and a MIG slice is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slurm_ltgf.core.demand import effective_times
from slurm_ltgf.core.model import UNKNOWN, Runs, Window

Who = tuple[str, str]
#: Differences of at most so many device-seconds, or such a part, are none.
ALIKE_S, ALIKE = 60, 0.001


@dataclass(frozen=True, slots=True)
class Beside:
    """One account's user in both: device-seconds here and there, and whether they are alike."""

    account: str
    user: str
    here_s: int
    sreport_s: int

    @property
    def difference_s(self) -> int:
        """Here less there."""
        return self.here_s - self.sreport_s

    @property
    def is_alike(self) -> bool:
        """Whether the difference is no more than rounding."""
        most = max(self.here_s, self.sreport_s)
        return abs(self.difference_s) <= max(ALIKE_S, ALIKE * most)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both beside each other. window: whole hours that both know; None: there are none.

    rolled_up_until: how far slurmdbd had summed up, None: it did not say. rows: largest difference
    first. notes: what hindered, and what explains a difference.
    """

    window: Window | None
    rolled_up_until: int | None
    rows: tuple[Beside, ...]
    notes: tuple[str, ...]


def device_seconds(runs: Runs, window: Window) -> dict[Who, int]:
    """Device-seconds of gres/gpu in the window by account and user, those above 0.

    runs: all that overlap the window, every end known.
    """
    start, end = effective_times(runs)
    seconds = np.clip(end, window.start, window.end) - np.clip(start, window.start, window.end)
    devices = np.array([gpu_devices(text) for text in runs.gres.names], dtype=np.int64)
    held = np.where(start == UNKNOWN, 0, seconds) * (devices[runs.gres.codes] if len(runs) else 0)
    width = max(len(runs.user.names), 1)
    pair = runs.account.codes.astype(np.int64) * width + runs.user.codes
    keys, place = np.unique(pair, return_inverse=True)
    sums = np.zeros(len(keys), dtype=np.int64)
    np.add.at(sums, place, held)
    return {
        (runs.account.names[key // width], runs.user.names[key % width]): total
        for key, total in zip(keys.tolist(), sums.tolist(), strict=True)
        if total
    }


def beside(here: Mapping[Who, int], there: Mapping[Who, int]) -> tuple[Beside, ...]:
    """Both, the largest difference first."""
    held = {who for found in (here, there) for who, seconds in found.items() if seconds}
    rows = [Beside(*who, here.get(who, 0), there.get(who, 0)) for who in held]
    rows.sort(key=lambda row: (-abs(row.difference_s), -row.here_s, row.account, row.user))
    return tuple(rows)


def gpu_devices(gres: str) -> int:
    """Devices of gres/gpu: the untyped total where there is one, else the sum of the types.

    >>> gpu_devices("gpu:a100=2,gpu=4"), gpu_devices("mps=50")
    (4, 0)
    """
    parts = [token.rpartition("=") for token in gres.split(",") if token]
    counts = {key: int(count) for key, _, count in parts if key.split(":")[0] == "gpu"}
    return counts["gpu"] if "gpu" in counts else sum(counts.values())
