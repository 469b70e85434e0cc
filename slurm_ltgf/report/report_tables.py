"""The tables of a report: which columns each has, what they mean, and how values are said.

The page, Markdown and docs/reference/report.md are made of these; CSV and JSON have the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slurm_ltgf.report.words import duration, fixed, gpu_hours, known, number, percent, trimmed

Say = Callable[[Any], str]
Rows = list[dict[str, Any]]
#: What the states of tenants are called on a page.
STATES = {
    "loss": "under-served",
    "fair": "fair",
    "benefit": "well served",
    "idle": "idle",
    "no share": "no share",
    "unknown": "unknown",
}
#: Why a run ended to start again.
CAUSES = {
    "PREEMPTED": "preempted",
    "REQUEUED": "requeued",
    "NODE_FAIL": "node failed",
    "REQUEUE_HOLD": "requeued, held",
    "SPECIAL_EXIT": "special exit",
}


#: The states of budgets.
LEVELS = {"ok": "ok", "warn": "nearly used up", "over": "used up", "exempt": "exempt"}


def word(value: Any) -> str:
    """A text; a dash for none."""
    return str(value) if value not in (None, "") else "–"


def signed_hours(value: Any) -> str:
    """GPU-seconds as GPU-hours with their sign."""
    amount = known(value)
    said = gpu_hours(amount)
    return f"+{said}" if amount is not None and amount > 0 else said.replace("-", "−")


def state(value: Any) -> str:
    """A tenant's state in words."""
    return STATES.get(value, str(value))


def cause(value: Any) -> str:
    """A Slurm state in words."""
    return CAUSES.get(value, str(value).lower())


def level(value: Any) -> str:
    """A budget's state in words."""
    return LEVELS.get(value, str(value))


def when(value: Any) -> str:
    """An epoch second as a day and time, UTC."""
    amount = known(value)
    return "–" if amount is None else f"{datetime.fromtimestamp(amount, UTC):%Y-%m-%d %H:%M}"


def two_digits(value: Any) -> str:
    """A number with two decimals."""
    return fixed(value, 2)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: key into the row, heading, how a value is said, what it means."""

    key: str
    title: str
    say: Say
    meaning: str
    is_number: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """A table: where it is in the result, its name, its columns. most: rows shown to people."""

    key: str
    title: str
    columns: tuple[Column, ...]
    most: int = 200

    def rows(self, result: Mapping[str, Any]) -> Rows:
        """Its rows in a result; none where the part is missing."""
        if self.key == "over_time":
            return list(over_time(result))
        found = result[self.key] or []
        return list(found["rows"] if isinstance(found, Mapping) else found)


def _name(key: str, title: str, meaning: str, say: Say = word) -> Column:
    return Column(key, title, say, meaning, is_number=False)


TENANT = _name("tenant", "Tenant", "a Slurm account, or what `fairness.tenant_level` makes of them")
TENANTS = Table(
    "tenants",
    "Tenants",
    (
        TENANT,
        _name("state", "State", "by rho: under-served below 0.95, well served above 1.05", state),
        Column("weight_part", "Of shares", percent, "weight over the sum of all weights"),
        Column("use_part", "Of use", percent, "attained over what all tenants attained"),
        Column("entitled_gpu_s", "Entitled, h", gpu_hours, "X: fair split of all GPUs over time"),
        Column("attained_gpu_s", "Attained, h", gpu_hours, "U: GPU-time held"),
        Column("difference_gpu_s", "Difference, h", signed_hours, "U - X; below 0: owed"),
        Column("share", "Share", fixed, "U/X"),
        Column("rho", "rho", fixed, "U/D: over what a cluster of its quota would have given"),
        Column("before_rho", "rho before", fixed, "the same of the period before"),
        Column("before_use_part", "Of use before", percent, "of the period before"),
        Column("quota_gpus", "Quota", number, "Q: its part of the GPUs by weight"),
        Column("weight", "Weight", trimmed, "raw shares of the account"),
        Column("credit", "Credit", fixed, "U over the whole quota; the lowest goes first"),
    ),
)
WAITS = Table(
    "waits",
    "Waiting by tenant and size",
    (
        TENANT,
        _name("gpus", "GPUs", "GPUs of a job; all: of any size"),
        Column("starts", "Started", number, "runs that started in the period"),
        Column("median_wait_s", "Median wait", duration, "of these, from eligible to start"),
        Column("p90_wait_s", "90 % within", duration, "nine of ten waited no longer"),
        Column("mean_wait_s", "Mean wait", duration, "of these"),
        Column("max_wait_s", "Longest wait", duration, "of these"),
        Column("waiting", "Still waiting", number, "jobs that wait at the period's end"),
        Column("longest_waiting_s", "for up to", duration, "the longest of these, so far"),
        Column("left", "Gave up", number, "jobs cancelled before they ever ran"),
    ),
)
CLASSES = Table(
    "classes",
    "Jobs by class",
    (
        TENANT,
        Column("jobs", "Jobs", number, "jobs that held or wanted GPUs in the period"),
        Column("loss", "Loss", number, "rho below 0.95"),
        Column("fair", "Fair", number, "rho from 0.95 to 1.05"),
        Column("benefit", "Benefit", number, "rho above 1.05"),
        Column("no_share", "No share", number, "due nothing"),
        Column("unknown", "Unknown", number, "capacity is not known"),
        Column("rho_p5", "rho, P5", fixed, "5 % of the jobs have a lower one"),
        Column("rho_median", "rho, median", fixed, "half of the jobs have a lower one"),
    ),
)
WHERE = Table(
    "where",
    "GPU-hours by partition, GPU type and node",
    (
        _name("partition", "Partition", "as the job was submitted to"),
        _name("gpu_type", "GPU type", "empty: sacct names none"),
        _name("node", "Node", "a run on several nodes counts on each in equal parts"),
        Column("gpu_s", "Held, GPU-hours", gpu_hours, "physical GPUs, not weighted by type"),
        Column("runs", "Runs", number, "runs that held GPUs there in the period"),
    ),
    most=400,
)
USERS = Table(
    "users",
    "Users",
    (
        TENANT,
        _name("account", "Account", "Slurm's account"),
        _name("user", "User", ""),
        Column("gpu_s", "Held, GPU-hours", gpu_hours, "weighted by GPU type, as attained is"),
        Column("device_s", "Devices, hours", gpu_hours, "devices times hours, as Slurm counts"),
        Column("starts", "Started", number, "runs that started in the period"),
        Column("median_wait_s", "Median wait", duration, "of these, from eligible to start"),
    ),
    most=100,
)
REQUEUES = Table(
    "requeues",
    "Runs that ended to start again",
    (
        TENANT,
        _name("cause", "Cause", "Slurm's state of the run", cause),
        Column("runs", "Runs", number, "runs that ended so in the period"),
        Column("checkpointed", "Saved first", number, "of these, ltgf had them save first"),
        Column("gpu_s", "Held, GPU-hours", gpu_hours, "by these runs in the period"),
        Column("saved_gpu_s", "Saved, GPU-hours", gpu_hours, "of that, what was not lost"),
        Column("lost_gpu_s", "Lost, GPU-hours", gpu_hours, "of that, work to be done again"),
    ),
)
MOVES = Table(
    "moves",
    "Moves by ltgf",
    (
        _name("goal", "Asked for", "requeue, checkpoint or pause"),
        _name("result", "Result", "how far it came; each step counts"),
        Column("moves", "Moves", number, ""),
    ),
)
SREPORT = Table(
    "sreport",
    "Here and sreport",
    (
        _name("account", "Account", "Slurm's account"),
        _name("user", "User", "the login"),
        Column("here_s", "Here, hours", gpu_hours, "device-seconds, suspended time too"),
        Column("sreport_s", "sreport, hours", gpu_hours, "what sreport says"),
        Column("difference_s", "Difference, hours", signed_hours, "here less sreport"),
    ),
)
FRAGMENTATION = Table(
    "fragmentation",
    "Free GPUs and what could use them",
    (
        _name("pool", "Pool", "partition and GPU type"),
        Column("gpus", "GPUs", number, "of all its nodes"),
        Column("free_gpus", "Free", number, "held by no job"),
        Column("usable_gpus", "Usable", number, "free, and jobs could be given them one by one"),
        Column("score", "Score", two_digits, "part of the free GPUs that no job could be given"),
        Column("largest_gpus", "Largest job", number, "GPUs of the largest that could start now"),
        Column("largest_possible_gpus", "could be", number, "were what is free in one piece"),
        Column("blocked_jobs", "Blocked jobs", number, "enough is free, but not where they fit"),
        _name("demand", "Measured by", "jobs that wait (pending), or did in the history"),
        _name("why", "Stranded", "free GPUs that no job can be given, by reason"),
        Column("variance", "Variance", two_digits, "how unevenly nodes are filled"),
    ),
)
BUDGETS = Table(
    "budgets",
    "Budgets",
    (
        _name("account", "Account", "with all below it"),
        _name("level", "State", "ok, nearly used up, used up; exempt: never warned of", level),
        Column("budget_gpu_s", "Budget, h", gpu_hours, "of the period, credits included"),
        Column("counted_gpu_s", "Used, h", gpu_hours, "as Slurm counts it, less what it forgot"),
        Column("ratio", "Used", percent, "of the budget"),
        Column("held_gpu_s", "Held, h", gpu_hours, "running jobs, if they use all their limits"),
        Column("left_gpu_s", "Left, h", gpu_hours, "neither used nor held"),
        Column("rate_gpus", "Rate, GPUs", number, "held on average lately; the forecast's"),
        Column("exhausted_at", "Runs out", when, "at that rate; –: not in this period"),
        Column("returns_at", "Comes back", when, "when jobs may start again after that"),
        _name("tres", "Of", "the TRES that is limited"),
        Column("gpu_limit", "At once", number, "GPUs it may hold at once"),
    ),
)
OVER_TIME = Table(
    "over_time",
    "Over time",
    (
        Column("start", "From", number, "epoch seconds, UTC"),
        Column("end", "Until", number, "epoch seconds, UTC"),
        TENANT,
        Column("held_gpus", "Held, GPUs", number, "mean of the stretch"),
        Column("waiting_gpus", "Waited for, GPUs", number, "asked for by eligible jobs; mean"),
        Column("rho", "rho", fixed, "U/D over `look_back_s` up to the stretch's end"),
        Column("capacity_gpus", "In service, GPUs", number, "of the cluster; mean"),
    ),
)
TABLES = (
    TENANTS,
    WAITS,
    CLASSES,
    WHERE,
    USERS,
    REQUEUES,
    MOVES,
    FRAGMENTATION,
    BUDGETS,
    SREPORT,
    OVER_TIME,
)


def over_time(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The series as rows: one a stretch and tenant."""
    found = result["over_time"]
    edges: Sequence[int] = found["edges"]
    for i, capacity in enumerate(found["capacity_gpus"]):
        for tenant in found["held_gpus"]:
            yield {
                "start": edges[i],
                "end": edges[i + 1],
                "tenant": tenant,
                "held_gpus": found["held_gpus"][tenant][i],
                "waiting_gpus": found["waiting_gpus"][tenant][i],
                "rho": found["rho"][tenant][i],
                "capacity_gpus": capacity,
            }
