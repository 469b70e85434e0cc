"""Random histories, written as dumps in many shapes, through `ltgf sync` and `ltgf fairness`.

The answer is compared with a slow reference that shares no code with the product: exact fractions,
interval by interval, from the history itself and not from its text.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from slurm_ltgf.cli.main import run as ltgf

#: LTGF_FUZZ=3000 for a long search.
CASES = int(os.environ.get("LTGF_FUZZ", "36"))
FIRST = int(os.environ.get("LTGF_FUZZ_FIRST", "0"))
HOUR, DAY = 3600, 86400
#: 12 h before clocks change in Berlin and New York, and an ordinary day.
BASES = [1_774_746_000, 1_792_846_800, 1_772_884_800, 1_793_448_000, 1_780_000_000]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]


# The history


@dataclass(frozen=True)
class Truth:
    """A run as it was. start None: never ran. end None: goes on at the time of the dump."""

    job: int
    shown: str
    account: str
    user: str
    state: str
    submit: int
    eligible: int | None
    start: int | None
    end: int | None
    elapsed: int
    suspended: int = 0
    limit: str = "UNLIMITED"
    limit_s: int | None = None
    alloc: tuple[tuple[str, int], ...] = ()
    req: tuple[tuple[str, int], ...] = ()
    tasks: int = 1
    #: Start and Elapsed as Slurm 22.05 writes them of a record that began by a resize.
    written: tuple[int, int] | None = None
    cluster: str = "c1"


@dataclass
class Case:
    """A history and what is asked about it."""

    runs: list[Truth]
    dumped: int
    weights: dict[str, float] = field(default_factory=dict)
    gpu_weights: dict[str, str] = field(default_factory=dict)
    shards: int = 0
    half_life: int | None = None
    kept: bool = False
    capacity: int = 8
    requeued: frozenset[str] = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL"})


ACCOUNTS = ["lab-a", "Lab-A ", "LAB-B", "lab-b", "phys ics", "Ünï", "", "a=b,c", "(x)", "ns;1"]
USERS = ["ann", "bob", "<b>", "$(id)", "o'neil", "\x1b[31m", "名", ""]
ENDED = ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 1001", "CANCELLED+", "NODE_FAIL"]
ENDED += ["PREEMPTED", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL", "FOO"]
TYPES = ["a100", "H100", "a100-sxm4.80gb", "nvidia_a30x", "a100:sxm"]
MIG = {"a100_1g.5gb": 7, "h100_3g.40gb": 7, "1g.10gb+me": 7, "a30_2g.12gb": 4, "7g.79gb": 7}


def some_gres(r: random.Random) -> tuple[tuple[str, int], ...]:
    kind = r.choice(["plain"] * 4 + ["typed", "both", "both", "two", "mig", "mps", "shard", "cpu"])
    n = r.choice([1, 1, 2, 4, 8, 64, 1000])
    if kind == "typed":
        return ((f"gpu:{r.choice(TYPES)}", n),)
    if kind == "both":
        return (("gpu", n), (f"gpu:{r.choice(TYPES)}", n))
    if kind == "two":
        return (("gpu", n + 3), ("gpu:a100", n), ("gpu:l40s", 2))
    if kind == "mig":
        a, b = r.sample(sorted(MIG), 2)
        return (("gpu", n + 1), (f"gpu:{a}", n), (f"gpu:{b}", 1))
    if kind in ("mps", "shard"):
        return ((kind, n),)
    return () if kind == "cpu" else (("gpu", n),)


def some_case(r: random.Random) -> Case:
    base = r.choice(BASES)
    dumped = base + 30 * HOUR
    runs: list[Truth] = []
    for i in range(r.randint(1, 14)):
        runs += some_job(r, base, dumped, 100 + 10 * i)
    if r.random() < 0.2:  # the id was in use years ago
        old = replace(runs[0], submit=base - 900 * DAY, eligible=base - 900 * DAY)
        start = base - 899 * DAY
        runs.append(
            replace(old, state="FAILED", start=start, end=start + 50, elapsed=50, suspended=0,
                    written=None, limit="10", limit_s=600, alloc=(("gpu", 2),), tasks=1,
                    shown=runs[0].shown.split("[")[0].rstrip("_"))
        )  # fmt: skip
    case = Case(runs, dumped, capacity=r.choice([1, 8, 100]))
    if r.random() < 0.5:
        case.weights = {"lab-a": 3, "lab-b": 0.5, "ghost": r.choice([0, 2])}
    if r.random() < 0.3:
        case.gpu_weights = {"a100": "0.5", "h100": "1.25"}
    if r.random() < 0.5:
        case.shards = 4
    if r.random() < 0.25:
        case.half_life = r.choice([HOUR, 5 * HOUR])
    case.kept = r.random() < 0.5
    return case


KINDS = ["ended"] * 6 + ["requeued", "resized", "running", "running", "runaway", "zero", "clock"]
KINDS += ["pending", "pending", "held", "cancelled", "longer"]


def some_job(r: random.Random, base: int, dumped: int, job: int) -> list[Truth]:
    shown = r.choice(["{}"] * 4 + ["7_{}", "9+{}"]).format(job)
    submit = base + r.randint(0, 20 * HOUR)
    gres = some_gres(r)
    at = Truth(
        job, shown, r.choice(ACCOUNTS), r.choice(USERS), "", submit, submit + r.randint(0, 2000),
        None, None, 0, alloc=gres, req=gres,
    )  # fmt: skip
    kind = r.choice(KINDS)
    if kind in ("pending", "held", "cancelled"):
        return [waiting(r, kind, replace(at, alloc=()))]
    if kind in ("running", "runaway"):
        return [running(r, kind, at, dumped)]
    return ended(r, kind, at)


def waiting(r: random.Random, kind: str, at: Truth) -> Truth:
    if kind == "held":
        return replace(at, state="PENDING", eligible=None)
    if kind == "cancelled":
        return replace(at, state="CANCELLED by 0", end=at.submit + r.randint(2000, 2 * HOUR))
    tasks, text = r.choice([(1, ""), (1, ""), (4, "_[3-5,9%2]"), (5, "_[0-8:2]")])
    return replace(at, shown=f"{at.job}{text}", state="PENDING", tasks=tasks)


def running(r: random.Random, kind: str, at: Truth, dumped: int) -> Truth:
    start = min((at.eligible or 0) + r.randint(0, 2 * HOUR), dumped - 1)
    suspended = min(r.choice([0, 0, r.randint(1, 500)]), dumped - start - 1)
    over = kind == "runaway" and dumped - start > 60 + 300
    minutes = 1 if over else 60 * 40
    return replace(
        at, state=r.choice(["RUNNING", "RUNNING", "SUSPENDED"]), start=start, suspended=suspended,
        elapsed=dumped - start - suspended, limit=str(minutes), limit_s=60 * minutes,
    )  # fmt: skip


def ended(r: random.Random, kind: str, at: Truth) -> list[Truth]:
    start = (at.eligible or 0) + r.randint(0, 2 * HOUR)
    length = r.choice([1, 59, 60, 3600, r.randint(1, 6 * HOUR)])
    suspended = r.choice([0, 0, 0, r.randint(1, 500)])
    end = start + length + suspended
    one = replace(
        at, state=r.choice(ENDED), start=start, end=end, elapsed=length, suspended=suspended
    )
    if kind == "zero":
        return [replace(one, end=start, elapsed=0, suspended=0)]
    if kind == "clock":
        return [replace(one, end=start - 400, suspended=0, elapsed=r.choice([0, length]))]
    if kind == "longer":
        return [replace(one, end=start + length // 2, suspended=0)]
    if kind == "requeued":
        again = end + 130
        two = replace(
            one, submit=end, eligible=end + 120, start=again, end=again + 700, elapsed=700,
            suspended=0,
        )  # fmt: skip
        return [replace(one, state=r.choice(["REQUEUED", "PREEMPTED", "NODE_FAIL"])), two]
    if kind == "resized":
        moment = start + length
        one = replace(one, end=moment, suspended=0, state="RESIZING")
        two = replace(
            one, state="COMPLETED", submit=moment, start=moment, end=moment + 500, elapsed=500,
            alloc=(("gpu", 1),), written=r.choice([(start, length + 500), (moment, 500)]),
        )  # fmt: skip
        return [one, two]
    return [one]


# The reference


@dataclass(frozen=True)
class Held:
    """What the reader can know of a run: GPUs wanted in [begin, end), used for `used` s of it."""

    tenant: str
    shown: str
    gpus: Fraction
    tasks: int
    begin: int
    start: int
    end: int
    used: int
    lost: bool


def worth(gres: tuple[tuple[str, int], ...], case: Case) -> Fraction | None:
    """GPUs, weighted; None: cannot be told."""
    counts = dict(gres)
    gpus = {name[4:]: n for name, n in counts.items() if name.split(":")[0] == "gpu"}
    if not gpus:
        if "mps" in counts:
            return Fraction(counts["mps"], 100)
        if "shard" in counts:
            return Fraction(counts["shard"], case.shards) if case.shards else None
        return Fraction(0)
    typed = {kind: n for kind, n in gpus.items() if kind}
    untyped = gpus.get("", sum(typed.values())) - sum(typed.values())
    total = Fraction(untyped)
    for kind, n in typed.items():
        part = Fraction(1)
        base = kind
        if kind in MIG:
            slices = int(kind[kind.index("g.") - 1])
            part, base = Fraction(slices, MIG[kind]), kind.split("_")[0]
        total += n * part * Fraction(case.gpu_weights.get(base.lower(), "1"))
    return total


def tenant_of(account: str) -> str:
    return account.strip().lower() or "(none)"


def ran(run: Truth, case: Case, seen: frozenset[str]) -> tuple[int, int]:
    """Charged seconds and end of a run that started, as far as a dump of these columns tells."""
    start = run.start or 0
    suspended = run.suspended if "suspended" in seen else 0
    elapsed, end = run.elapsed, run.end if "end" in seen else None
    if run.end is not None and end is None:
        end = start + elapsed + suspended
    if "elapsed" not in seen:
        elapsed = max((end or case.dumped) - start - suspended, 0)
    if end is None:
        end = start + elapsed + suspended
        if run.limit_s and "timelimitraw" in seen and end > start + run.limit_s + 300:
            return run.limit_s, start + run.limit_s
    return elapsed, max(end, start + elapsed)


def held(run: Truth, case: Case, seen: frozenset[str], until: int) -> Held | None:
    """seen: the columns that the dump has, lower case."""
    if run.start is not None:
        gpus, start = worth(run.alloc, case), run.start
        used, end = ran(run, case, seen)
    else:
        gpus = worth(run.req if "reqtres" in seen else (), case)
        start = end = until if run.end is None else run.end
        used = 0
    waits = {"eligible": run.eligible, "submit": run.submit}
    begin = next((waits[name] for name in waits if name in seen), None)
    if not gpus:
        return None
    shown = run.shown if "jobid" in seen and "[" not in run.shown else str(run.job)
    lost = "state" in seen and run.state in case.requeued
    begin = start if begin is None else min(begin, start)
    tenant, all_gpus = tenant_of(run.account), gpus * run.tasks
    return Held(tenant, shown, all_gpus, run.tasks, begin, start, end, used, lost)


def split(capacity: Fraction, demand: dict[str, Fraction], weight: dict[str, Fraction]):
    """Weighted max-min: satisfy the least hungry first; those without weight share what is left."""
    got = dict.fromkeys(demand, Fraction(0))
    for group in ([n for n in demand if weight[n] > 0], [n for n in demand if weight[n] == 0]):
        w = {n: weight[n] or Fraction(1) for n in group}
        order = sorted(group, key=lambda n: demand[n] / w[n])
        total = sum(w.values(), Fraction(0))
        for name in order:
            got[name] = min(demand[name], capacity * w[name] / total)
            capacity -= got[name]
            total -= w[name]
    return got


def weighted(case: Case, low: int, high: int, end: int) -> Any:
    """Length of [low, high) seen from the window's end."""
    if case.half_life is None:
        return Fraction(max(high - low, 0))
    h = case.half_life
    return h / math.log(2) * (2.0 ** ((high - end) / h) - 2.0 ** ((low - end) / h))


def expected(case: Case, runs: list[Truth], seen: frozenset[str], start: int, end: int):
    until = max(until_of(run, case, seen) for run in runs)
    now = min(end, until)
    known = [held(run, case, seen, now) for run in runs]
    loads = [h for h in known if h and h.begin < end and h.end > start and h.end > h.begin]
    names = sorted({tenant_of(run.account) for run in runs} | set(case.weights))
    weight = {n: Fraction(str(case.weights.get(n, 1))) for n in names}
    all_weight = sum(weight.values(), Fraction(0))
    quota = {
        n: case.capacity * weight[n] / all_weight if all_weight else Fraction(0) for n in names
    }
    marks = {start, end}
    marks |= {t for h in loads for t in (h.begin, h.end) if start < t < end}
    sums = {n: {"D": 0, "W": 0, "X": 0, "U": 0, "slack": 0} for n in names}
    jobs: dict[str, dict[str, Any]] = {}
    for low, high in pairwise(sorted(marks)):
        length = weighted(case, low, high, end)
        active = [h for h in loads if h.begin <= low and h.end >= high]
        demand = {n: sum((h.gpus for h in active if h.tenant == n), Fraction(0)) for n in names}
        entitled = split(Fraction(case.capacity), demand, weight)
        for n in names:
            sums[n]["D"] += min(demand[n], quota[n]) * length
            sums[n]["W"] += quota[n] * length
            sums[n]["X"] += entitled[n] * length
        for h in active:
            among = sum(g.tasks for g in active if g.tenant == h.tenant)
            due = min(h.gpus / h.tasks, quota[h.tenant] / among) * h.tasks * length
            job = jobs.setdefault(h.shown, {"E": 0, "U": 0, "kept": 0, "slack": 0})
            job["E"] += due
    for h in loads:
        low, high = max(h.start, start), min(h.end, end)
        span = h.end - h.start
        if high <= low:
            continue
        plain = h.used == span
        part = Fraction(h.used, span)
        u = h.gpus * part * weighted(case, low, high, end)
        # seconds are whole: at each edge inside the run a second may go to either side
        edges = 0 if plain else (low > h.start) + (high < h.end)
        slack = float(h.gpus) * edges * (1 if case.half_life is None else 2)
        job = jobs[h.shown]
        for sums_of in (sums[h.tenant], job):
            sums_of["U"] += u
            sums_of["slack"] += slack
        job["kept"] += 0 if h.lost and not case.kept else u
    return sums, quota, jobs, until


def until_of(run: Truth, case: Case, seen: frozenset[str]) -> int:
    """The last instant that a record tells of."""
    end = run.end if run.end is not None and "end" in seen else 0
    last = 0
    if run.start is not None:
        suspended = run.suspended if "suspended" in seen else 0
        last = run.start + ran(replace(run, limit_s=None), case, seen)[0] + suspended
    return max(end, last, first_known(run, seen))


def first_known(run: Truth, seen: frozenset[str]) -> int:
    """What stands in for Submit."""
    times = [run.submit if "submit" in seen else None]
    times.append(run.eligible if "eligible" in seen else None)
    return next((t for t in (*times, run.start) if t is not None), 0)


# The writing


NAMES = {
    "jobid": "JobID", "jobidraw": "JobIDRaw", "cluster": "Cluster", "account": "Account",
    "user": "User", "state": "State", "submit": "Submit", "eligible": "Eligible",
    "start": "Start", "end": "End", "elapsed": "ElapsedRaw", "suspended": "Suspended",
    "timelimitraw": "TimelimitRaw", "alloctres": "AllocTRES", "reqtres": "ReqTRES",
    "partition": "Partition", "nnodes": "NNodes", "jobname": "JobName",
}  # fmt: skip
NEEDED = {"account", "start", "alloctres"}


class Writer:
    """A dump in one of many shapes."""

    def __init__(self, r: random.Random, case: Case) -> None:
        self.r, self.case = r, case
        columns = {c for c in NAMES if c in NEEDED or r.random() < 0.75}
        columns |= {"jobid"} if not columns & {"jobid", "jobidraw"} else set()
        columns |= {"end"} if not columns & {"end", "elapsed"} else set()
        if any(run.written for run in case.runs):
            columns |= {"submit", "elapsed"}
        # what tells one record of a job from another, and what is over from what is not
        columns |= {"submit", "state", "end"}
        if r.random() < 0.3 and not any(self._needs_submit(run) for run in case.runs):
            columns -= {"submit"}
        if any(run.end is not None and run.start is not None and run.end < run.start + run.elapsed
               for run in case.runs):  # fmt: skip
            columns |= {"elapsed"}
        if "[" in "".join(run.shown for run in case.runs):
            columns |= {"jobid"}
        self.columns = r.sample(sorted(columns), len(columns))
        self.zone = r.choice(ZONES)
        self.seen = frozenset(columns)
        self.times = r.choice(["iso", "epoch", "offset", "mixed"])
        self.delimiter = r.choice(["|", "|", "\x1f", "^|^", "\t", ";;"])
        self.row_end = r.choice(["\n", "\n", "\r\n", "-p", "EOR"])
        if self.row_end == "EOR":
            self.delimiter = "^|^"

    @staticmethod
    def _needs_submit(run: Truth) -> bool:
        return run.start is None or run.written is not None

    def dump(self, steps: bool = True) -> tuple[bytes, list[int]]:
        """The file, and the lines of rows that nobody can read."""
        r = self.r
        rows: list[tuple[str, bool]] = []
        for run in r.sample(self.case.runs, len(self.case.runs)):
            cells = self.cells(run)
            rows.append((self.row(cells), False))
            if steps and run.start is not None and r.random() < 0.4:
                for step in r.sample([".batch", ".extern", ".0", ".interactive"], 2):
                    ids = {c: cells[c] + step for c in ("jobid", "jobidraw")}
                    rows.append((self.row({**cells, **ids, "account": ""}), False))
            if r.random() < 0.08:
                rows.append((self.row({**cells, **self.damage()}), True))
        head = self.delimiter.join(NAMES[c] for c in self.columns)
        head = r.choice([str, str, str.lower, str.upper])(head)
        end = {"-p": self.delimiter + "\n", "EOR": self.delimiter + "EOR\n"}.get(
            self.row_end, self.row_end
        )
        text = end.join([head, *(text for text, _ in rows), ""])
        if self.row_end in ("\n", "\r\n") and r.random() < 0.2:
            text += end * 3
        data = text.encode()
        if r.random() < 0.2:
            data = b"\xef\xbb\xbf" + data
        if r.random() < 0.2:
            data = gzip.compress(data)
        return data, [i for i, (_, bad) in enumerate(rows, start=2) if bad]

    def damage(self) -> dict[str, str]:
        return self.r.choice(
            [
                {"start": "2026-02-30T00:00:00"},
                {"alloctres": "cpu=1,gres/gpu=4,node="},
                {"alloctres": "cpu=1,gres/gp"},
                {"jobid": "x", "jobidraw": "x"},
                {"start": "yesterday"},
            ]
        )

    def row(self, cells: dict[str, str]) -> str:
        return self.delimiter.join(cells[c] for c in self.columns)

    def cells(self, run: Truth) -> dict[str, str]:
        r = self.r
        start, elapsed = run.written or (run.start, run.elapsed)
        closed = run.end is not None and run.start is not None
        told = closed and "elapsed" in self.seen
        return {
            "jobid": run.shown,
            "jobidraw": str(run.job),
            "cluster": run.cluster,
            "account": run.account,
            "user": run.user,
            "state": run.state,
            "submit": self.time(run.submit),
            "eligible": self.time(run.eligible),
            "start": self.time(start, plain=told and not self.twice(run.end)),
            "end": self.time(run.end, plain=told and not self.twice(start)),
            "elapsed": str(elapsed),
            "suspended": duration(run.suspended),
            "timelimitraw": run.limit,
            "alloctres": self.tres(run.alloc) if run.start is not None else r.choice(["", ""]),
            "reqtres": self.tres(run.req),
            "partition": "gpu",
            "nnodes": "1",
            "jobname": r.choice(["train", "a b", "x,y=z", "ü", "-" * 200]),
        }

    def tres(self, gres: tuple[tuple[str, int], ...]) -> str:
        others = ["mem=512000M", "node=1", "billing=77", "gres/gpumem=0", "gres/gpuutil=396"]
        others += ["gres/gpfs:ess=1", "fs/disk=7"]
        chosen = ["cpu=8", *self.r.sample(others, 3)]
        chosen += [f"gres/{name}={n}" for name, n in gres]
        self.r.shuffle(chosen)
        return ",".join(chosen)

    def twice(self, moment: int | None) -> bool:
        if moment is None:
            return False
        local = datetime.fromtimestamp(moment, ZoneInfo(self.zone))
        return local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset()

    def time(self, moment: int | None, *, plain: bool = False) -> str:
        """plain: also a local time that comes twice, for the others tell which it is."""
        if moment is None:
            return self.r.choice(["Unknown", "None", "", "N/A"])
        form = self.r.choice(["iso", "epoch", "offset"]) if self.times == "mixed" else self.times
        if form == "epoch":
            return str(moment)
        if form == "offset":
            zone = ZoneInfo(self.r.choice(ZONES))
            return datetime.fromtimestamp(moment, zone).isoformat()
        if self.twice(moment) and not plain:
            return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return datetime.fromtimestamp(moment, ZoneInfo(self.zone)).strftime("%Y-%m-%dT%H:%M:%S")


def duration(seconds: int) -> str:
    days, rest = divmod(seconds, DAY)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


class JsonWriter:
    """`sacct --json` of 21.08 to 25.11."""

    def __init__(self, r: random.Random, case: Case) -> None:
        self.r, self.case = r, case
        self.series = r.choice([21, 22, 23, 24, 25])

    def dump(self) -> bytes:
        r = self.r
        jobs = [self.job(run) for run in r.sample(self.case.runs, len(self.case.runs))]
        answer: dict[str, Any] = {"meta": {"Slurm": {}}, "jobs": jobs, "errors": []}
        answer["warnings"] = [{"description": "w"}]
        if r.random() < 0.3:
            answer = dict(reversed(answer.items()))
        return json.dumps(answer, indent=r.choice([None, 1])).encode()

    def number(self, value: int | None, *, infinite: bool = False) -> Any:
        if self.series < 23:
            return 0 if value is None else value
        return {"set": value is not None, "infinite": infinite, "number": value or 0}

    def state(self, text: str) -> Any:
        word = text.removesuffix("+").split(" ")[0]
        words = [word]
        if word in ("REQUEUED", "RESIZING") and self.series >= 24:
            words = self.r.sample(["PENDING", word], 2)
        elif word == "COMPLETED" and self.series >= 23:
            words = self.r.sample([word, "COMPLETING"], 2)
        if self.series < 23:
            return {"current": word, "reason": "None"}
        return words if self.r.random() < 0.5 else {"current": words, "reason": "None"}

    @staticmethod
    def tres(gres: tuple[tuple[str, int], ...]) -> list[dict[str, Any]]:
        listed = [("cpu", "", 8), ("mem", "", 512), ("energy", "", -2), ("billing", "", 9)]
        listed += [("gres", name, n) for name, n in gres] + [("gres", "gpumem", 0)]
        return [{"type": t, "name": n, "id": 1, "count": c} for t, n, c in listed]

    def ids(self, run: Truth) -> dict[str, Any]:
        array: dict[str, Any] = {"job_id": 0, "task_id": self.number(None), "task": ""}
        het: dict[str, Any] = {"job_id": 0, "job_offset": self.number(None)}
        if "_" in run.shown:
            first, _, rest = run.shown.partition("_")
            one = None if "[" in rest else int(rest)
            array["job_id"] = int(first)
            array["task_id"] = one if self.series < 23 else self.number(one)
            array["task"] = rest.strip("[]") if one is None else ""
        if "+" in run.shown:
            first, _, rest = run.shown.partition("+")
            het = {"job_id": int(first), "job_offset": self.number(int(rest))}
        return {"job_id": run.job, "array": array, "het": het}

    def job(self, run: Truth) -> dict[str, Any]:
        start, elapsed = run.written or (run.start, run.elapsed)
        limit = None if run.limit == "UNLIMITED" else int(run.limit)
        times = {
            "submission": run.submit, "eligible": run.eligible or 0,
            "start": self.r.choice([0, 4294967294]) if start is None else start,
            "end": run.end or 0, "elapsed": elapsed, "suspended": run.suspended,
            "limit": self.number(limit, infinite=limit is None), "total": {"seconds": 1},
        }  # fmt: skip
        allocated = self.tres(run.alloc) if run.start is not None else []
        return {
            **self.ids(run), "account": run.account, "cluster": run.cluster, "user": run.user,
            "partition": "gpu", "state": self.state(run.state), "nodes": "n1", "name": "x\n|y",
            "steps": [{"tres": {"allocated": allocated}}], "association": {"account": "wrong"},
            "time": times, "tres": {"allocated": allocated, "requested": self.tres(run.req)},
        }  # fmt: skip


# The comparison


class Bench:
    """Runs the command line in a folder."""

    def __init__(self, folder: Any, capsys: Any) -> None:
        self.folder, self.capsys, self.n = folder, capsys, 0

    def call(self, *words: object) -> Any:
        code = ltgf([str(word) for word in words])
        out, err = self.capsys.readouterr()
        assert (code, err) == (0, ""), err
        return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    def sync(self, *dumps: bytes, case: Case, zone: str) -> tuple[list[object], list[Any]]:
        self.n += 1
        config = self.folder / f"{self.n}.toml"
        weights = ", ".join(f"{kind} = {value}" for kind, value in case.gpu_weights.items())
        config.write_text(
            f"[fairness]\ngpu_weights = {{ {weights} }}\nshards_per_gpu = {case.shards}\n"
            f'half_life = "{f"{case.half_life}s" if case.half_life else "none"}"\n'
            f'requeued_work = "{"kept" if case.kept else "lost"}"\n'
        )
        base: list[object] = ["--config", config, "--ledger", self.folder / f"{self.n}.db"]
        reports = []
        for i, dump in enumerate(dumps):
            path = self.folder / f"{self.n}-{i}.psv"
            path.write_bytes(dump)
            os.utime(path, (case.dumped, case.dumped))
            words = ("sync", "--from-file", path, "--timezone", zone, "-M", "c1", "--json")
            reports.append(self.call(*base, *words))
        return base, reports

    def fairness(self, base: list[object], case: Case, start: int, end: int) -> Any:
        words = [
            "fairness",
            "--json",
            "--jobs",
            "-S",
            start,
            "-E",
            end,
            "--capacity",
            case.capacity,
        ]
        if case.weights:
            words += ["--weights", ",".join(f"{n}={w}" for n, w in case.weights.items())]
        return self.call(*base, *words)


def close(got: float, exact: Any, slack: float = 0.0) -> bool:
    return abs(got - float(exact)) <= slack + 1e-6 + 1e-9 * abs(float(exact))


def check(answer: Any, case: Case, seen: frozenset[str], start: int, end: int) -> None:
    sums, quota, jobs, until = expected(case, case.runs, seen, start, end)
    assert answer["meta"]["known_until"] == until
    assert [t["tenant"] for t in answer["tenants"]] == sorted(sums)
    for t in answer["tenants"]:
        due = sums[t["tenant"]]
        assert close(t["attained_gpu_s"], due["U"], due["slack"]), (t, due)
        assert close(t["deserved_gpu_s"], due["D"]), (t, due)
        assert close(t["quota_gpu_s"], due["W"]), (t, due)
        assert close(t["entitled_gpu_s"], due["X"]), (t, due)
        assert close(t["quota_gpus"], quota[t["tenant"]])
        if case.half_life is None and not due["slack"] and Fraction(due["U"]).denominator == 1:
            assert isinstance(t["attained_gpu_s"], int), t
        if due["D"] == 0 and due["U"] == 0:
            assert t["rho"] is None
        elif due["D"] > 0 and not due["slack"]:
            assert t["rho"] == pytest.approx(float(due["U"]) / float(due["D"]))
    total = sum(s["U"] for s in sums.values())
    assert close(answer["attained_gpu_s"], total, sum(s["slack"] for s in sums.values()))
    got: dict[str, dict[str, float]] = {}
    for job in answer["jobs"]:
        mine = got.setdefault(job["job_id"], {"E": 0, "U": 0, "kept": 0})
        mine["E"] += job["entitled_gpu_s"]
        mine["U"] += job["attained_gpu_s"]
        mine["kept"] += job["kept_gpu_s"]
    assert got.keys() == jobs.keys()
    for name, mine in got.items():
        slack = jobs[name]["slack"]
        assert close(mine["E"], jobs[name]["E"]), (name, mine, jobs[name])
        assert close(mine["U"], jobs[name]["U"], slack), (name, mine, jobs[name])
        assert close(mine["kept"], jobs[name]["kept"], slack), (name, mine, jobs[name])


def some_window(r: random.Random, case: Case) -> tuple[int, int]:
    edges = [t for run in case.runs for t in (run.submit, run.start, run.end) if t is not None]
    edges += [case.dumped, case.dumped + DAY, min(edges) - 100]
    low, high = sorted((r.choice(edges) + r.randint(-50, 50), r.choice(edges) + r.randint(-50, 50)))
    return low, max(high, low + 1)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES))
def test_a_history_in_any_shape_gives_its_sums(seed, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    r = random.Random(seed)
    case = some_case(r)
    bench = Bench(tmp_path, capsys)
    if r.random() < 0.25:
        dump, bad, seen, zone = JsonWriter(r, case).dump(), [], frozenset(NAMES), "UTC"
    else:
        writer = Writer(r, case)
        (dump, bad), seen, zone = writer.dump(), writer.seen, writer.zone
    base, (report,) = bench.sync(dump, case=case, zone=zone)
    assert [row["line"] for row in report["skipped"]] == bad
    finished = [run for run in case.runs if run.end is not None]
    assert (report["new"], report["open"]) == (len(finished), len(case.runs) - len(finished))
    windows = [some_window(r, case) for _ in range(2)]
    answers = [bench.fairness(base, case, *window) for window in windows]
    for window, answer in zip(windows, answers, strict=True):
        check(answer, case, seen, *window)
        assert answer["skipped_total"] == len(bad)
    if case.half_life is None:
        halves_add_up(bench, base, case, windows[0], answers[0], r)


def halves_add_up(bench, base, case, window, whole, r) -> None:
    middle = r.randint(*window)
    parts = [
        bench.fairness(base, case, low, high)
        for low, high in ((window[0], middle), (middle, window[1]))
        if low < high
    ]
    for i, tenant in enumerate(whole["tenants"]):
        for name in ("attained", "suspended", "deserved", "quota", "entitled"):
            key = f"{name}_gpu_s"
            assert close(sum(part["tenants"][i][key] for part in parts), tenant[key]), (key, tenant)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES // 6))
def test_order_and_repetition_change_nothing(seed, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    r = random.Random(seed)
    case = some_case(r)
    bench = Bench(tmp_path, capsys)
    writer = Writer(r, case)
    monkeypatch.setattr(writer, "damage", dict)
    first, second = (writer.dump()[0] for _ in range(2))
    one, _ = bench.sync(first, case=case, zone=writer.zone)
    two, (_, again) = bench.sync(second, first, case=case, zone=writer.zone)
    assert (again["new"], again["changed"]) == (0, 0)
    window = some_window(r, case)
    answers = [bench.fairness(base, case, *window) for base in (one, two)]
    for key in ("tenants", "jobs", "suspects_total", "warnings"):
        a, b = (answer[key] for answer in answers)
        if isinstance(a, list):
            a, b = (sorted(map(json.dumps, rows)) for rows in (a, b))
        assert a == b, key


@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(CASES // 30, 1)))
def test_a_cut_file_is_refused_or_read_as_what_it_is(seed, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    r = random.Random(seed)
    case = some_case(r)
    case.runs = case.runs[:3]
    writer = Writer(r, case)
    dump = JsonWriter(r, case).dump() if seed % 5 == 4 else writer.dump()[0]
    whole = not (dump.startswith(b"{") or dump.startswith(b"\x1f\x8b"))
    for cut in r.sample(range(len(dump)), min(60, len(dump))):
        path = tmp_path / "cut"
        path.write_bytes(dump[:cut])
        code = ltgf(["--ledger", str(tmp_path / f"{cut}.db"), "sync", "--from-file", str(path)])
        _, err = capsys.readouterr()
        rows, newline, rest = dump[:cut].rpartition(b"\n")
        at_an_end = whole and newline and rows.strip() and rest in (b"", b"\r")
        if not at_an_end:
            assert code == 65, cut
            assert err.startswith(f"ltgf: {path}: ")
            assert err.count("\n") == 1
        else:
            assert code == 0, err
