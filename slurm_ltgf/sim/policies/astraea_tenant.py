"""What the policy `astraea` keeps of a job and of a tenant: its rules, the queue, two accounts."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain
from operator import itemgetter
from typing import Literal

from slurm_ltgf.sim.workload import Job

#: A job in its first lease is not preempted before it ran so long.
SETTLED_S = 120
#: Sorts the jobs of a tenant, lowest first; ends with a number that no other has.
Place = tuple[float, int, int]


@dataclass(frozen=True, slots=True)
class Terms:
    """The rules.

    tick_s: decisions only at multiples. lease_s: None: without end. quota: see `astraea`. ratio:
    how far above its quota a tenant may borrow. floor: part of its quota below which a tenant goes
    first. starvation_s: a job that waited so long goes before others. delay_s: a lease younger than
    this may be ended for a job of the tenant that never ran, and its work is lost; 0: none is.
    blocks: a tenant's first job that does not fit holds up those behind it. skips: of jobs that end
    at a tick and were started one right after the other every second one is seen a tick later (the
    authors' list shrinks while it is walked through). whole: quotas are rounded down. open_hour:
    the present hour counts in U / W. seed: of the order in which tenants borrow.
    """

    tick_s: int = 30
    lease_s: int | None = 900
    quota: Literal["fair", "dynamic", "static"] = "fair"
    order: Literal["fairness", "fifo", "srtf", "2das", "themis"] = "fairness"
    ratio: float = 1.2
    floor: float = 0.2
    starvation_s: int = 21600
    delay_s: int = 300
    blocks: bool = True
    skips: bool = True
    whole: bool = True
    open_hour: bool = False
    seed: int = 1

    def rounded(self, quota: float) -> float:
        """A quota as the rules see it; never 0, by which they divide."""
        return max(int(quota), 1) if self.whole else max(quota, 1e-9)


@dataclass(slots=True, eq=False)
class Entry:
    """A job as the rules see it. Times are ticks, but `ended`, its true end.

    number: no two have the same. since: when it began to wait, or its present lease began; before
    that it waited since `waited_since`. done_s: work up to the present lease. deserved0: what its
    tenant's jobs of this size had been due when it was first seen. expiries: leases that were over.
    """

    job: Job
    number: int
    since: int
    waited_since: int = 0
    deserved0: float = 0.0
    done_s: int = 0
    expiries: int = 0
    is_preempted: bool = False
    place: Place = (0.0, 0, 0)
    ended: int | None = None

    @property
    def is_new(self) -> bool:
        """It has never run."""
        return not self.done_s and not self.is_preempted


@dataclass(slots=True, eq=False)
class Tenant:
    """A tenant. used: GPUs of its running jobs. present: how many jobs it has, waiting or running.

    hours: (U, W) in GPU-seconds of its last whole hours; attained, due: of the present one.
    deserved: GPUs of a job -> what such a job has been due since the first of them came. lane:
    waiting jobs whose places stand still; moving: those whose places change with time.
    """

    name: str
    quota: float
    terms: Terms
    hours: deque[tuple[float, float]] = field(default_factory=lambda: deque([(0, 0)], maxlen=24))
    used: int = 0
    present: int = 0
    attained: float = 0.0
    due: float = 0.0
    deserved: dict[int, float] = field(default_factory=dict)
    running: dict[int, Entry] = field(default_factory=dict)
    lane: list[tuple[Place, Entry]] = field(default_factory=list)
    moving: dict[int, Entry] = field(default_factory=dict)
    starving: list[tuple[int, int, Entry]] = field(default_factory=list)
    _to_starve: list[tuple[int, int, Entry, int]] = field(default_factory=list)
    _settled: int = 0
    _sorted: list[Entry] | None = None
    _young: list[Entry] | None = None

    # --- accounts ---------------------------------------------------------------------------------

    def book(self, now: int) -> None:
        """U and W of the time since the last tick; at a whole hour the one before is closed."""
        if now % 3600 == 0 and now:
            self.hours.append((self.attained, self.due))
            self.attained = self.due = 0.0
        if now:
            self.attained += self.used * self.terms.tick_s
            self.due += self.quota * self.terms.tick_s

    def account(self) -> tuple[float, float]:
        """U and W of the last hours."""
        attained = sum(hour[0] for hour in self.hours)
        due = sum(hour[1] for hour in self.hours)
        if self.terms.open_hour:
            return attained + self.attained, due + self.due
        return attained, due

    def settle(self, now: int) -> None:
        """Bring `deserved` up to date; before `present` changes."""
        if self.present and now > self._settled:
            share = self.quota / self.present
            for gpus in self.deserved:
                self.deserved[gpus] += min(gpus, share) * (now - self._settled)
        self._settled = now

    def deserved_by(self, entry: Entry, now: int) -> float:
        """What a job was due since it was first seen, in GPU-seconds."""
        self.settle(now)
        return self.deserved[entry.job.gpus] - entry.deserved0

    def rho(self, entry: Entry, done_s: int, now: int) -> float:
        """The job's index if it has worked so long: 0 while it was due nothing."""
        due = self.deserved_by(entry, now)
        return entry.job.gpus * done_s / due if due else 0.0

    # --- what becomes of jobs ---------------------------------------------------------------------

    def come(self, entry: Entry, now: int) -> None:
        """See a job for the first time."""
        self.settle(now)
        self.present += 1
        entry.deserved0 = self.deserved.setdefault(entry.job.gpus, 0.0)

    def leave(self, entry: Entry, now: int) -> None:
        """A running job has ended."""
        self.settle(now)
        self.present -= 1
        self.stop(entry)

    def start(self, entry: Entry, now: int) -> None:
        """Take a job out of the queue and give it its GPUs."""
        self._forget(entry)
        entry.waited_since, entry.since = entry.since, now
        self.running[entry.number] = entry
        self.used += entry.job.gpus

    def stop(self, entry: Entry) -> None:
        """Take a running job's GPUs."""
        del self.running[entry.number]
        self.used -= entry.job.gpus

    def wait(self, entry: Entry, ticket: int) -> None:
        """Put a job into the queue. ticket: as it came to wait."""
        order = self.terms.order
        moves = order == "themis" or (order == "fairness" and bool(entry.done_s))
        value = {"srtf": entry.job.attempt_s - entry.done_s, "2das": entry.done_s}.get(order, 0)
        entry.place = (value, entry.job.submit, ticket)
        if moves:
            self.moving[entry.number] = entry
        else:
            insort(self.lane, (entry.place, entry))
        starves_at = entry.since + self.terms.starvation_s
        heappush(self._to_starve, (starves_at, ticket, entry, entry.since))

    def _forget(self, entry: Entry) -> None:
        """Out of the queue, wherever it is."""
        if self.moving.pop(entry.number, None) is not None:
            return
        k = bisect_left(self.lane, entry.place, key=itemgetter(0))
        if k < len(self.lane) and self.lane[k][1] is entry:
            del self.lane[k]
        else:
            self.starving.remove((entry.job.submit, entry.place[2], entry))

    # --- orders -----------------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        """A tick: jobs that have waited too long go before all others from now on."""
        self._sorted = self._young = None
        while self._to_starve and self._to_starve[0][0] <= now:
            _, _, entry, since = heappop(self._to_starve)
            if entry.number not in self.running and entry.since == since and entry.ended is None:
                self._forget(entry)
                insort(self.starving, (entry.job.submit, entry.place[2], entry))

    @property
    def waits(self) -> bool:
        """Whether any of its jobs does."""
        return bool(self.lane or self.moving or self.starving)

    def queue(self, now: int) -> Iterator[Entry]:
        """Those that wait now, in order: the starving ones, by time of submission, then the others.

        Whoever comes to wait later in the tick is not among them.
        """
        first = [entry for _, _, entry in self.starving]
        first += [entry for _, entry in self.lane]
        return chain(first, self._by_index(list(self.moving.values()), now))

    def _by_index(self, moving: list[Entry], now: int) -> Iterator[Entry]:
        if self._sorted is None:
            self._sorted = sorted(moving, key=lambda entry: self._moved(entry, now))
        yield from self._sorted

    def _moved(self, entry: Entry, now: int) -> Place:
        """The present place of a job: by rho, or by the artifact's finish-time unfairness."""
        due, done_s = self.deserved_by(entry, now), entry.done_s
        attained = entry.job.gpus * done_s
        if self.terms.order == "fairness":
            return (attained / due, entry.job.submit, entry.place[2])
        life_s = now - entry.job.submit
        if not due:
            return (-1.0, 0, entry.place[2])
        isolated_s = done_s * attained / due + life_s - done_s
        return (-life_s / (isolated_s + entry.job.attempt_s - done_s), 0, entry.place[2])

    def young(self, now: int) -> list[Entry]:
        """Jobs that may be preempted for one that never ran, highest rho first; those not taken."""
        if self._young is not None:
            return self._young
        self._young = []
        for entry in reversed(self.running.values()):
            age_s = now - entry.since
            if age_s >= self.terms.delay_s:
                break
            if age_s and entry.ended is None and (entry.expiries or age_s >= SETTLED_S):
                self._young.append(entry)
        self._young.sort(key=lambda e: (-self.rho(e, e.done_s, now), -e.job.submit, e.number))
        return self._young
