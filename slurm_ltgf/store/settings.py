"""The settings themselves: every name, unit, default and meaning, here and only here.

Names in the file are those of the fields without their unit: `lease` is `lease_s` in here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct, field

from slurm_ltgf.core.duration import shown
from slurm_ltgf.store.move_settings import Checkpoint, Defrag, Lease
from slurm_ltgf.store.setting_kinds import count, duration, meta, text, texts


class Site(Struct, frozen=True, forbid_unknown_fields=True):
    """Where things are, and what is managed."""

    cluster: Annotated[str, text("Name of the cluster; empty: Slurm's ClusterName.")] = ""
    ledger: Annotated[
        str, text("The ledger's file, on a local file system; its directory is made.")
    ] = "/var/lib/ltgf/ledger.db"
    partitions: Annotated[
        tuple[str, ...],
        texts("Only jobs and nodes of these partitions are managed; empty: of all."),
    ] = ()
    factor_table: Annotated[
        str,
        text(
            "The table that slurmctld's site_factor plugin reads, like '/run/ltgf/factors'; "
            "empty: none is written."
        ),
    ] = ""
    stale_after_s: Annotated[
        int, duration("Age at which the plugin drops the table: then every SiteFactor is 0.")
    ] = field(default=600, name="stale_after")
    quota_file: Annotated[
        str, text("Who gets how many GPUs and GPU-hours, for `ltgf quota`; none there: no quotas.")
    ] = "/etc/ltgf/quota.toml"
    timezone: Annotated[
        str,
        text(
            "What local times in a saved dump mean; live queries do not need it.",
            "a time zone's name like 'Europe/Berlin' or 'UTC'",
        ),
    ] = "UTC"


class Fairness(Struct, frozen=True, forbid_unknown_fields=True):
    """What counts, for whom, and how much."""

    window_s: Annotated[
        float,
        duration("How far back GPU-time is counted; 'infinite': all of it.", endless="infinite"),
    ] = field(default=86400, name="window")
    half_life_s: Annotated[
        float,
        duration(
            "After this time a GPU-second counts half; 'none': all count alike.", endless="none"
        ),
    ] = field(default=math.inf, name="half_life")
    tenant_level: Annotated[
        Literal["leaf"] | Annotated[int, Meta(ge=1)],
        meta(
            "Which accounts are tenants: the leaves of the account tree, or those at this depth.",
            "'leaf' or depth",
            "'leaf' or a whole number >= 1",
        ),
    ] = "leaf"
    exclude_accounts: Annotated[
        tuple[str, ...], texts("Accounts that are no tenants; their use still occupies GPUs.")
    ] = ("root",)
    gpu_weights: Annotated[
        dict[str, Annotated[float, Meta(ge=1e-6, le=1e6)]],
        meta(
            "What an hour of a GPU type is worth, like { h100 = 1.0, t4 = 0.2 }; others: 1.",
            "type = weight",
            "a table of numbers from 1e-6 to 1e6",
        ),
    ] = field(default_factory=dict)
    mps_per_gpu: Annotated[int, count("gres/mps that make one GPU.", "mps")] = 100
    shards_per_gpu: Annotated[
        int,
        count("gres/shard that make one GPU; 0: taken from the nodes.", "shards", least=0),
    ] = 0
    mig_slices: Annotated[
        dict[str, Annotated[int, Meta(ge=1)]],
        meta(
            "Compute slices of one GPU under MIG, by type; types not named: 7.",
            "type = slices",
            "a table of whole numbers >= 1",
        ),
    ] = field(default_factory=lambda: {"a30": 4})
    requeued_work: Annotated[
        Literal["lost", "kept"],
        meta(
            "Whether a run that was requeued, preempted or lost its node kept its work, if no "
            "checkpoint of it is known.",
            "'lost' or 'kept'",
            "'lost' or 'kept'",
        ),
    ] = "lost"
    weights_from: Annotated[
        Literal["fairshare", "grptres"],
        meta(
            "Where weights come from: accounts' Fairshare, or their GPU quota GrpTRES=gres/gpu=N "
            "(accounts without one: 0).",
            "'fairshare' or 'grptres'",
            "'fairshare' or 'grptres'",
        ),
    ] = "fairshare"
    weights: Annotated[
        dict[str, Annotated[float, Meta(ge=0)]],
        meta(
            "Tenants' weights in place of their Fairshare in Slurm, like { nlp = 3, vision = 1 }.",
            "tenant = weight",
            "a table of numbers >= 0",
        ),
    ] = field(default_factory=dict)
    capacity_gpus: Annotated[
        float,
        meta("GPUs in service; 0: Slurm is asked.", "GPUs", "a number >= 0", ge=0),
    ] = 0.0


class Queue(Struct, frozen=True, forbid_unknown_fields=True):
    """The order of pending jobs, and how it is told to Slurm."""

    lease_s: Annotated[
        int,
        duration("L of the order: what a job is charged in advance, for each of its GPUs."),
    ] = field(default=3600, name="lease")
    key: Annotated[
        Literal["credit", "share"],
        meta(
            "Whose turn it is by: attained over quota ('credit'), or over entitlement ('share').",
            "'credit' or 'share'",
            "'credit' or 'share'",
        ),
    ] = "credit"
    starvation_s: Annotated[
        int, duration("Jobs that wait longer go first within their tenant.")
    ] = field(default=6 * 3600, name="starvation")
    floor: Annotated[
        float,
        meta(
            "A tenant that holds less than this part of its quota goes first; 0: off.",
            "fraction",
            "a number from 0 to 1",
            ge=0,
            le=1,
        ),
    ] = 0.2
    head: Annotated[int, count("Positions of the queue that are ordered exactly.", "jobs")] = 256
    step: Annotated[int, count("Distance between neighbours in SiteFactor.", "priority points")] = (
        1_000_000
    )
    max_writes: Annotated[
        int, count("Jobs whose SiteFactor one pass may write, at most.", "jobs")
    ] = 2000
    priority_bound: Annotated[
        bool,
        meta(
            "Whether Slurm's own priority comes before fairness between jobs of one tenant.",
            "true or false",
            "true or false",
        ),
    ] = False


class Daemon(Struct, frozen=True, forbid_unknown_fields=True):
    """The loop."""

    interval_s: Annotated[int, duration("Time from one pass to the next.")] = field(
        default=30, name="interval"
    )
    arrivals_s: Annotated[int, duration("How often newcomers are looked for.")] = field(
        default=2, name="arrivals"
    )
    overlap_s: Annotated[
        int,
        duration(
            "How much history is read again at each sync, for what slurmdbd learnt late.",
            least_s=0,
        ),
    ] = field(default=3600, name="overlap")
    slice_s: Annotated[int, duration("History that one call of sacct is asked for.")] = field(
        default=86400, name="slice"
    )
    command_timeout_s: Annotated[
        int, duration("How long sacct may be silent before it is given up.")
    ] = field(default=60, name="command_timeout")
    retry_max_s: Annotated[
        int, duration("Longest pause between attempts while Slurm does not answer.")
    ] = field(default=300, name="retry_max")
    audit_days: Annotated[int, count("How long the log of writes to Slurm is kept.", "days")] = 30
    associations_every_s: Annotated[int, duration("How often accounts and shares are read.")] = (
        field(default=60, name="associations_every")
    )


class Sync(Struct, frozen=True, forbid_unknown_fields=True):
    """How history is read."""

    reader: Annotated[
        Literal["sacct", "pyslurm"],
        meta(
            "What reads slurmdbd: the command, or PySlurm if it is installed.",
            "'sacct' or 'pyslurm'",
            "'sacct' or 'pyslurm'",
        ),
    ] = "sacct"


class Metrics(Struct, frozen=True, forbid_unknown_fields=True):
    """What Prometheus is told: by the daemon, and by `ltgf exporter`."""

    listen: Annotated[
        str,
        meta(
            "Where the daemon answers scrapes, like '127.0.0.1:15843'; empty: nowhere.",
            "address:port",
            "empty or ADDRESS:PORT like '127.0.0.1:15843' or '[::1]:15843'",
            pattern=r"^$|^(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):\d{1,5}$",
        ),
    ] = ""
    textfile: Annotated[
        str,
        meta(
            "A file for node_exporter's textfile collector, replaced at each refresh; empty: none.",
            "path",
            "empty or an absolute path that ends in .prom",
            pattern=r"^$|^/.*\.prom$",
        ),
    ] = ""
    refresh_s: Annotated[
        int, duration("How often the values are read from the ledger; scrapes read nothing.")
    ] = field(default=30, name="refresh")
    max_tenants: Annotated[
        int,
        count(
            "Tenants with series of their own, at most: those with the largest weights.", "tenants"
        ),
    ] = 1000
    jobs: Annotated[
        int,
        count("Running jobs with series of their own, the largest first.", "jobs", least=0),
    ] = 0


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings."""

    site: Site = Site()
    fairness: Fairness = field(default_factory=Fairness)
    queue: Queue = Queue()
    daemon: Daemon = Daemon()
    sync: Sync = Sync()
    checkpoint: Checkpoint = Checkpoint()
    lease: Lease = field(default_factory=Lease)
    defrag: Defrag = Defrag()
    metrics: Metrics = Metrics()


SECTIONS: dict[str, type[Struct]] = {
    "site": Site,
    "fairness": Fairness,
    "queue": Queue,
    "daemon": Daemon,
    "sync": Sync,
    "checkpoint": Checkpoint,
    "lease": Lease,
    "defrag": Defrag,
    "metrics": Metrics,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the reference: default is as one writes it in TOML."""

    section: str
    key: str
    unit: str
    default: str
    meaning: str
    must: str
    endless: str = ""


def settings_table() -> list[Setting]:
    """Every setting with unit, default and meaning, in the order of the file."""
    return [
        row for section, struct in SECTIONS.items() for row in settings_of(section, struct).values()
    ]


def settings_of(section: str, struct: type[Struct]) -> dict[str, Setting]:
    """A section's settings by the name they have in the file."""
    hints = get_type_hints(struct, include_extras=True)
    found = {}
    for info in msgspec.structs.fields(struct):
        meta = next(m for m in reversed(get_args(hints[info.name])) if isinstance(m, Meta))
        extra = meta.extra or {}
        value = info.default if info.default is not msgspec.NODEFAULT else info.default_factory()
        endless = extra.get("endless", "")
        found[info.encode_name] = Setting(
            section,
            info.encode_name,
            extra["unit"],
            _shown(value, is_duration=extra["unit"] == "duration", endless=endless),
            meta.description or "",
            extra["must"],
            endless,
        )
    return found


def _shown(value: object, *, is_duration: bool, endless: str) -> str:
    """A value as one writes it in TOML."""
    if is_duration and isinstance(value, int | float):
        return f'"{endless}"' if math.isinf(value) else f'"{shown(int(value))}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(_shown(item, is_duration=False, endless='') for item in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{k} = {v}' for k, v in value.items())} }}" if value else "{}"
    return f"{value:g}" if isinstance(value, float) else str(value)
