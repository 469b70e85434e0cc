"""What quota.toml may hold: every key, unit and meaning, here and only here.

A limit that is left out is no limit, so a limit is never None here but "none"; None is a key that
the file leaves out, which [defaults] may fill.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from slurm_ltgf.store import setting_kinds as kinds

#: GPU-hours: a number, or hours and minutes as text, or none.
Hours = float | str
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
#: Fairshare 2147483647 is Slurm's number for the word "parent".
Weight = Annotated[int, Meta(ge=0, le=2_147_483_646)]

HOURS = "a number of GPU-hours >= 0 that is whole minutes, or like '1666:40' (hours:minutes)"
COUNT = "a whole number from 0 to 1000000000, or 'none'"
COUNTS = "a table of whole numbers from 0 to 1000000000"
WEIGHT = "a whole number from 0 to 2147483646, or 'parent'"


class Budgets(Struct, frozen=True, forbid_unknown_fields=True):
    """How budgets are counted and watched."""

    period: Annotated[
        Literal["slurm", "none", "daily", "weekly", "monthly", "quarterly", "yearly"],
        kinds.meta(
            "What a budget is for. Slurm alone begins anew (PriorityUsageResetPeriod); if the two "
            "differ, plan and show say so. Credits hold for the period in which they are given.",
            "period",
            "'slurm', 'none', 'daily', 'weekly', 'monthly', 'quarterly' or 'yearly'",
        ),
    ] = "slurm"
    warn_at: Annotated[
        float,
        kinds.meta(
            "Part of a budget from which on it is warned of.", "fraction", "from 0 to 1", ge=0, le=1
        ),
    ] = 0.8
    forecast_s: Annotated[
        int, kinds.duration("How far back the rate looks by which a forecast is made.")
    ] = field(default=7 * 86400, name="forecast")
    exempt: Annotated[
        tuple[str, ...],
        kinds.texts("Accounts that get no [defaults] and are never warned of."),
    ] = ("root",)
    gpu_factors: Annotated[
        dict[str, Annotated[float, Meta(ge=0, le=1e6)]],
        kinds.meta(
            "What an hour of a GPU type counts against gpu_hours, like { h100 = 1.0, t4 = 0.25 }; "
            "types not named: 1. Budgets are then limits of TRES billing.",
            "type = factor",
            "a table of numbers from 0 to 1e6",
        ),
    ] = field(default_factory=dict)
    billing_per_gpu: Annotated[
        int,
        kinds.count(
            "With gpu_factors: billing of a GPU of factor 1, as TRESBillingWeights must have it.",
            "billing",
        ),
    ] = 100


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Weight and limits of accounts that leave them out, and of accounts new to the file."""

    weight: Annotated[
        Weight | Literal["parent"] | None,
        kinds.meta("Fairshare; 'parent': the account is transparent.", "shares", WEIGHT),
    ] = None
    gpus: Annotated[
        Count | Literal["none"] | None,
        kinds.meta(
            "GPUs at once, of any type (GrpTRES=gres/gpu).",
            "GPUs",
            COUNT,
        ),
    ] = None
    gpu_types: Annotated[
        dict[str, Count] | None,
        kinds.meta(
            "GPUs of a type at once, like { h100 = 4 } (GrpTRES=gres/gpu:h100).",
            "type = GPUs",
            COUNTS,
        ),
    ] = None
    gpu_hours: Annotated[
        Hours | None,
        kinds.meta(
            "GPU-hours a period (GrpTRESMins=gres/gpu, in minutes).",
            "GPU-hours",
            f"{HOURS}, or 'none'",
        ),
    ] = None
    gpu_type_hours: Annotated[
        dict[str, Hours] | None,
        kinds.meta(
            "GPU-hours of a type a period, like { h100 = 100 } (GrpTRESMins=gres/gpu:h100).",
            "type = GPU-hours",
            f"a table, each {HOURS}",
        ),
    ] = None


class AccountTable(Limits, frozen=True, forbid_unknown_fields=True):
    """An account: [accounts.NAME]."""

    parent: Annotated[
        str | None,
        kinds.text("The account above; left out: as it is, of a new account the root."),
    ] = None
    warn_at: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        kinds.meta("As [budgets] warn_at, for this account.", "fraction", "from 0 to 1"),
    ] = None
    users: Annotated[
        tuple[str, ...] | None,
        kinds.texts("Exactly these users are in it; left out: membership is left alone."),
    ] = None
    absent: Annotated[
        bool,
        kinds.meta(
            "There is to be no such account; it and its users' membership are removed.",
            "true or false",
            "true or false",
        ),
    ] = False


class QosTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A QOS that exists: [qos.NAME]; its limits bind all its jobs together."""

    gpus: Annotated[
        Count | Literal["none"] | None,
        kinds.meta(
            "GPUs at once (GrpTRES=gres/gpu).",
            "GPUs",
            COUNT,
        ),
    ] = None
    gpu_types: Annotated[
        dict[str, Count] | None,
        kinds.meta(
            "GPUs of a type at once.",
            "type = GPUs",
            COUNTS,
        ),
    ] = None
    gpu_hours: Annotated[
        Hours | None,
        kinds.meta(
            "GPU-hours a period; for ever with no_decay.", "GPU-hours", f"{HOURS}, or 'none'"
        ),
    ] = None
    gpu_type_hours: Annotated[
        dict[str, Hours] | None,
        kinds.meta("GPU-hours of a type a period.", "type = GPU-hours", f"a table, each {HOURS}"),
    ] = None
    no_decay: Annotated[
        bool,
        kinds.meta(
            "Flag NoDecay: its use is neither forgotten by half-lives nor begun anew.",
            "true or false",
            "true or false",
        ),
    ] = False


#: Section as it is written -> what it may hold.
QUOTA_SECTIONS: dict[str, type[Struct]] = {
    "budgets": Budgets,
    "defaults": Limits,
    "accounts.NAME": AccountTable,
    "qos.NAME": QosTable,
}
