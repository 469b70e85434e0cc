"""ASTRAEA's own results, and how each of them is computed again.

The artifact (github.com/yzs981130/Astraea_Artifacts) was run at its commit 7ab4bac5, only made
faster: two weeks of Philly from 2017-10-15 (22,009 jobs of 11 tenants), 64 nodes of 8 GPUs, a tick
of 30 s, starvation 6 h, delay 300 s, blocking, placement "consolidate"; cut at 21 days. It charges
no costs of moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_ltgf.sim.cluster import Placement
from slurm_ltgf.sim.policies.astraea_tenant import Terms

NODES = 64


@dataclass(frozen=True, slots=True)
class Figures:
    """What is compared. Of jobs only those that ended; None: not told.

    worst_window, shortfall: rho of tenants in 24-hour windows, hourly, of the first 14 days.
    below_095: part of jobs with rho < 0.95. utilisation: of the first 14 days.
    """

    worst_window: float | None
    shortfall: float | None
    below_095: float | None
    rho_p5: float | None
    mean_jct_s: float
    p50_jct_s: float | None
    p99_jct_s: float | None
    utilisation: float | None
    unfinished: int


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the artifact's results; how it is computed with its rules and with ours."""

    name: str
    told: Figures
    terms: Terms
    spec: str
    nodes: int = NODES


@dataclass(frozen=True, slots=True)
class Switch:
    """One rule of a row changed: of the artifact's, or where there is a spec, of ours."""

    row: str
    name: str
    terms: Mapping[str, Any] = field(default_factory=dict)
    placement: Placement = "packed"
    backfill: str = "none"
    shuffled: int | None = None
    spec: str = ""


#: The artifact at its commit 7ab4bac5, only made faster, on the same two files.
ROWS = (
    Row(
        "astraea 900 s",
        Figures(0.958, 0.0007, 0.006, 1.00, 10638, 1336, 207262, 0.844, 41),
        Terms(),
        "ltgf-lease:lease=15min",
    ),
    Row(
        "astraea 300 s",
        Figures(0.960, 0.0005, 0.005, 1.00, 10531, None, 207000, 0.843, 41),
        Terms(lease_s=300),
        "ltgf-lease:lease=5min",
    ),
    Row(
        "astraea 3600 s",
        Figures(0.870, 0.0033, 0.054, 0.936, 10983, None, 208000, 0.845, 41),
        Terms(lease_s=3600),
        "ltgf-lease:lease=1h",
    ),
    Row(
        "srtf",
        Figures(0.996, 0.0000, 0.188, 0.620, 17868, None, 227000, 0.639, 113),
        Terms(quota="dynamic", order="srtf"),
        "srtf:lease=15min,cap=1.2",
    ),
    Row(
        "themis",
        Figures(0.946, 0.0003, 0.254, 0.592, 21090, 3275, 249704, 0.638, 128),
        Terms(quota="dynamic", order="themis"),
        "themis:lease=15min,cap=1.2",
    ),
    Row(
        "2das",
        Figures(0.969, 0.0001, 0.205, 0.711, 27384, 3731, 279444, 0.641, 189),
        Terms(quota="dynamic", order="2das"),
        "las-2d:lease=15min,cap=1.2",
    ),
    Row(
        "fifo",
        Figures(0.990, 0.0001, 0.461, 0.042, 51366, None, 601000, 0.650, 682),
        Terms(quota="dynamic", order="fifo", lease_s=None),
        "fifo:cap=1.2",
    ),
    Row(
        "yarn-cs",
        Figures(0.615, 0.0229, 0.514, 0.018, 66071, None, 639000, 0.588, 871),
        Terms(quota="static", order="fifo", lease_s=None),
        "fifo-static",
    ),
    Row(
        "astraea, 704 GPUs",
        Figures(0.987, 0.0002, 0.001, None, 9672, None, 189162, 0.685, 36),
        Terms(),
        "ltgf-lease:lease=15min",
        88,
    ),
)


def ours(name: str, more: str = "", placement: Placement = "packed") -> Switch:
    """A rule of ours changed."""
    spec = f"ltgf-lease:lease=15min{more}"
    return Switch("astraea 900 s", name, {}, placement, "easy", spec=spec)


SWITCHES = (
    *(Switch("astraea 900 s", f"tenants in another order ({k})", shuffled=k) for k in (1, 2, 3)),
    Switch("astraea 900 s", "all that end at a tick are seen at it", {"skips": False}),
    Switch("astraea 900 s", "a tick of 10 s", {"tick_s": 10}),
    Switch("astraea 900 s", "no young lease is given up", {"delay_s": 0}),
    Switch("astraea 900 s", "the open hour counts", {"open_hour": True}),
    Switch("astraea 900 s", "quotas are not rounded", {"whole": False}),
    Switch("astraea 900 s", "who does not fit blocks nobody", {"blocks": False}),
    Switch("astraea 900 s", "a node or wait, EASY", {}, "consolidated", "easy"),
    *(
        Switch(row, f"tenants in another order ({k})", shuffled=k)
        for row in ("astraea 3600 s", "astraea, 704 GPUs")
        for k in (1, 2)
    ),
    Switch("srtf", "tenants borrow in another order", {"seed": 2}),
    Switch("srtf", "all that end at a tick are seen at it", {"skips": False}),
    Switch("srtf", "a tick of 10 s", {"tick_s": 10}),
    Switch("srtf", "who does not fit blocks nobody", {"blocks": False}),
    Switch("srtf", "a node or wait, EASY", {}, "consolidated", "easy"),
    Switch("themis", "a tick of 10 s", {"tick_s": 10}),
    Switch("2das", "a tick of 10 s", {"tick_s": 10}),
    Switch("fifo", "tenants borrow in another order", {"seed": 2}),
    Switch("fifo", "who does not fit blocks nobody", {"blocks": False}),
    Switch("fifo", "a node or wait, EASY", {}, "consolidated", "easy"),
    Switch("yarn-cs", "a tick of 10 s", {"tick_s": 10}),
    Switch("yarn-cs", "a node or wait, EASY", {}, "consolidated", "easy"),
    ours("any gain is worth a move", ",margin=0", "consolidated"),
    ours("split rather than wait"),
    ours("split, any gain is worth a move", ",margin=0"),
    ours("split, leases end together", ",pass=15min"),
    ours("split, credit of 7 days", ",window=7d"),
)
