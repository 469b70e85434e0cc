"""What a report says besides its tables: the period, the tiles, the data, sreport beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slurm_ltgf.report.words import (
    DASH,
    counted,
    duration,
    elapsed,
    gpu_hours,
    known,
    number,
    percent,
)

Result = Mapping[str, Any]
#: The answer as a heading.
ANSWERS = {
    "fair": "Fair",
    "mostly fair": "Mostly fair",
    "not fair": "Not fair",
    "no usage": "No usage",
    "unknown": "Not known",
}
UNDEFINED = "n/a"
DIFFERENCES = (
    "sreport counts whole hours: it moves the start back and the end on to the full hour.",
    "sreport knows an hour once slurmdbd has summed it up, after its end (rollup); until then not.",
    "Both count every run of a job that was requeued; `sacct` alone does so only with -D.",
    "sreport counts devices: a MIG slice is one, all types weigh alike, gres/mps counts not.",
    "sreport counts the time of suspended jobs too, which keep their GPUs; attained leaves it out.",
    "sreport charges idle time of a reservation to its accounts; here jobs alone are charged.",
    "sreport's row of an account holds the accounts below it too.",
)
HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Tile:
    """One number of the first screen. note: what it is of; before: the same a period earlier."""

    title: str
    value: str
    note: str = ""
    before: str = ""


def moment(epoch: int) -> str:
    """A moment to the minute, UTC."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M")


def period(result: Result) -> str:
    """The period in words: days where it is whole days, else to the minute.

    >>> period({"period": {"start": 1795392000, "end": 1795996800}})
    '23 to 29 November 2026'
    """
    return span(result["period"])


def span(window: Mapping[str, int]) -> str:
    """A window in words, as `period` says it."""
    start, end = window["start"], window["end"]
    if start % 86400 or end % 86400:
        return f"{moment(start)} to {moment(end)} UTC"
    first, last = (datetime.fromtimestamp(at, UTC) for at in (start, end - 1))
    until = f"{last.day} {last:%B %Y}"
    if first.date() == last.date():
        return until
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day} to {until}"
    since = f"{first.day} {first:%B}" + (f" {first.year}" if first.year != last.year else "")
    return f"{since} to {until}"


def tiles(result: Result) -> list[Tile]:
    """The numbers of the first screen."""
    now, before = result["figures"], result["figures_before"] or {}
    due, due_before = _got_their_due(result, "rho"), _got_their_due(result, "before_rho")
    half, most = duration(now["median_wait_s"]), duration(now["p90_wait_s"])
    lost = now["lost_gpu_s"]
    part = percent(lost / now["held_gpu_s"]) if now["held_gpu_s"] else DASH
    jain = known(now["jain"])
    index_before = known(before.get("jain"))
    return [
        Tile("GPUs in use", percent(now["busy"]), "of the time", _was(percent, before, "busy")),
        Tile(
            "GPU-time held",
            f"{gpu_hours(now['held_gpu_s'])} h",
            f"of {gpu_hours(now['capacity_gpu_s'])} GPU-hours",
            _was(gpu_hours, before, "held_gpu_s"),
        ),
        Tile("Tenants that got their due", due, "rho at least 0.95", due_before),
        Tile("Half of the jobs started within", half, f"90 % within {most}",
             _was(duration, before, "median_wait_s")),
        Tile("Work lost", f"{gpu_hours(lost)} h", f"{part} of what was held",
             _was(gpu_hours, before, "lost_gpu_s")),
        Tile(
            "Fairness index",
            UNDEFINED if jain is None else f"{jain:.3f}",
            "Jain's, of shares; 1 is even",
            "" if index_before is None else f"{index_before:.3f}",
        ),
    ]  # fmt: skip


def _was(say: Any, before: Mapping[str, Any], key: str) -> str:
    return "" if known(before.get(key)) is None else say(before[key])


def _got_their_due(result: Result, key: str) -> str:
    rhos = [rho for row in result["tenants"] if (rho := known(row[key])) is not None]
    if not rhos:
        return "" if key.startswith("before") else UNDEFINED
    return f"{sum(rho >= 0.95 for rho in rhos)} of {len(rhos)}"


def data_notes(result: Result) -> Iterator[str]:
    """What a reader must know of the data, the gravest first."""
    quality, own, asked = result["quality"], result["period"], result["asked"]
    if own != asked:
        yield (
            f"The history covers {moment(own['start'])} to {moment(own['end'])} UTC of what was "
            f"asked for ({moment(asked['start'])} to {moment(asked['end'])}); of the rest nothing "
            "is told, and no total holds it."
        )
    for silence in quality["silences"]:
        yield (
            f"No record at all of {elapsed(silence['end'] - silence['start'])} from "
            f"{moment(silence['start'])} UTC on: nobody used the cluster, or that part of the "
            "history is missing. It counts neither as use nor as capacity."
        )
    if quality["skipped_total"]:
        yield f"{counted(quality['skipped_total'], 'row')} could not be read: in no sum."
    if quality["suspects_total"]:
        yield (
            f"{counted(quality['suspects_total'], 'record')} cannot be right; what was done is "
            "said below. `sacctmgr show runawayjobs` finds lost ends."
        )
    if quality["over"]:
        most = max(quality["over"], key=lambda one: one["held_gpus"] - one["capacity_gpus"])
        yield (
            f"In {counted(len(quality['over']), 'stretch', 'stretches')} jobs held more GPUs than "
            f"were in service, most at {moment(most['start'])} UTC, {number(most['held_gpus'])} of "
            f"{number(most['capacity_gpus'])}: changes are noted when nodes are looked at."
        )
    if result["meta"]["half_life_s"]:
        yield (
            f"Older GPU-time counts less (half-life {duration(result['meta']['half_life_s'])}) in "
            "the tenants' table; GPU-hours elsewhere are as they were."
        )
    yield from quality["notes"]


def compared(result: Result) -> Iterator[str]:
    """What came of asking sreport; nothing where it was not asked."""
    found = result["sreport"]
    if found is None:
        return
    if found["window"] is not None:
        rows, off = found["rows"], sum(not row["alike"] for row in found["rows"])
        here, there = (sum(row[key] for row in rows) for key in ("here_s", "sreport_s"))
        yield (
            f"Asked of {span(found['window'])}: {gpu_hours(here)} GPU-hours here, "
            f"{gpu_hours(there)} by sreport; of {counted(len(rows), 'user')} {number(off)} differ "
            "by more than a GPU-minute and 0.1 %."
        )
    yield from found["notes"]


def differences(result: Result) -> list[str]:
    """Where these numbers and sreport's mean the same, and why they may differ."""
    window = whole_hours(result["period"])
    times = " ".join(
        f"{word}={datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M}"
        for word, at in (("start", window["start"]), ("end", window["end"]))
    )
    said = [*compared(result)]
    asked = f"TZ=UTC sreport -t hours cluster AccountUtilizationByUser {times} -T gres/gpu"
    return [
        *said,
        f"Users' column “Devices, hours” means what `{asked}` says of a login.",
        *DIFFERENCES,
    ]


def whole_hours(window: Mapping[str, int]) -> dict[str, int]:
    """A window as sreport takes it: out to full hours.

    >>> whole_hours({"start": 1800, "end": 9000})
    {'start': 0, 'end': 10800}
    """
    return {
        "start": window["start"] // HOUR_S * HOUR_S,
        "end": -(-window["end"] // HOUR_S) * HOUR_S,
    }
