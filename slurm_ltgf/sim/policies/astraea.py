"""astraea: the rules of the simulator that ASTRAEA's authors published, to compare ours with it.

At every tick the jobs whose lease is over give their GPUs back on paper; then each tenant's jobs
are let in, in order, as far as its quota goes and up to the first that does not fit. Who holds GPUs
before and after is not touched. Quotas:

    fair     by a stage before: GPUs are granted job by job to the tenant with the least U / W of
             the last 24 whole hours; one that holds less than a fifth of its quota goes first
    dynamic  C · w_i / Σw; who is first in a full queue may borrow up to `ratio` of it where others
             leave GPUs; a tenant below its quota takes them back, and that lease's work is lost
    static   C · w_i / Σw

What differs from LTGF.md is an option of `Terms`. Nodes are the engine's: the authors' placement
never fails while enough GPUs are free, as our "packed". They drop a job larger than its tenant's
quota; here it may run while the tenant holds nothing else.

Source: github.com/yzs981130/Astraea_Artifacts, simulation/alg/scheduler/lease.py, read for its
rules; Ye et al., "ASTRAEA: a fair deep learning scheduler for multi-tenant GPU clusters", IEEE TPDS
33 (2022).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import count

from slurm_ltgf.sim.policies.astraea_tenant import Entry, Tenant, Terms
from slurm_ltgf.sim.policies.base import Base
from slurm_ltgf.sim.workload import Job

#: Stands for a lease without end.
_EVER_S = 10_000_000


class Astraea(Base):
    """The artifact's scheduler. rho: its index of every job seen to have ended, by job id."""

    name = "astraea"

    def __init__(self, weights: Mapping[str, float], gpus: int, terms: Terms | None = None) -> None:
        super().__init__()
        self.terms = terms = terms or Terms()
        self.tick_s: int = terms.tick_s
        self.rho: dict[int, float] = {}
        total = sum(weights.values()) or 1.0
        self._tenants: dict[str, Tenant] = {}
        for name, weight in weights.items():
            quota = gpus * weight / total
            self._tenants[name] = Tenant(name, terms.rounded(quota), terms)
        self._last = 0
        self._free = gpus
        self._numbers, self._tickets = count(), count()
        self._random = random.Random(terms.seed)
        self._of: dict[int, Entry] = {}
        self._coming: list[Entry] = []
        self._running: dict[int, Entry] = {}  # in the order in which their leases began
        self._due: set[int] = set()
        self._leases: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._stopped: dict[int, int] = {}
        self._starting: dict[int, Entry] = {}
        self._leaving: set[int] = set()

    @property
    def is_open(self) -> bool:
        """Quotas keep jobs out."""
        return False

    def arrived(self, job: Job, now: int) -> None:
        """It is seen at the next tick; one that was stopped is known already."""
        if job.job_id in self._leaving:
            self._leaving.discard(job.job_id)
            return
        entry = self._of[job.job_id] = Entry(job, next(self._numbers), since=now)
        self._coming.append(entry)

    def started(self, job: Job, now: int) -> None:
        """As it was decided."""
        super().started(job, now)
        del self._starting[job.job_id]

    def ended(self, job: Job, now: int) -> None:
        """Its GPUs are seen to be free at the next tick."""
        super().ended(job, now)
        if job.job_id not in self._leaving:
            entry = self._of.pop(job.job_id)
            entry.ended = now
            self._due.add(entry.number)

    def evicted(self, now: int) -> Mapping[int, int]:
        """Decide what this tick brings; the jobs that stop."""
        for entry in list(self._starting.values()):
            self._undo_start(entry)
        for tick in range(self._last + self.tick_s, now, self.tick_s):
            self._begin(tick)  # nothing ran and nothing waited: the engine did not ask
        self._begin(now)
        self._last = now
        for entry in self._coming:
            self._tenants[entry.job.tenant].come(entry, now)
            self._wait(entry)
        self._coming.clear()
        self._allocate(now)
        stopped, self._stopped = self._stopped, {}
        self._leaving.update(stopped)
        return stopped

    def candidates(self, now: int) -> Iterator[Job]:
        """What was decided to start; a tenant's jobs behind one that finds no nodes wait too."""
        stuck: set[str] = set()
        for job in [entry.job for entry in self._starting.values()]:
            if job.tenant not in stuck and job.job_id not in self._leaving:
                yield job
                if job.start is None:
                    stuck.add(job.tenant)

    # --- ends of jobs and of leases ---------------------------------------------------------------

    def _begin(self, now: int) -> None:
        for tenant in self._tenants.values():
            tenant.book(now)
            tenant.begin(now)
        self._end_due(now)

    def _end_due(self, now: int) -> None:
        """Take the GPUs of jobs that have ended and of those whose lease is over."""
        for number, since in self._leases.pop(now, ()):
            entry = self._running.get(number)
            if entry is not None and entry.since == since:
                self._due.add(number)
        for number in self._seen_due():
            self._due.discard(number)
            entry = self._running[number]
            worked = entry.done_s + now - entry.since
            if entry.ended is None:
                entry.done_s = worked
                entry.expiries += 1
                self._requeue(entry, now, lost_s=0)
                continue
            tenant = self._tenants[entry.job.tenant]
            self.rho[entry.job.job_id] = tenant.rho(entry, worked, now)
            tenant.leave(entry, now)
            del self._running[number]
            self._free += entry.job.gpus

    def _seen_due(self) -> list[int]:
        """Who of the due ones is seen at this tick, in the order in which their leases began."""
        left, skip = len(self._due), False
        seen: list[int] = []
        for number in self._running:
            if not left:
                break
            if number not in self._due:
                skip = False
                continue
            left -= 1
            if not skip:
                seen.append(number)
            skip = self.terms.skips and not skip
        return seen

    # --- who is let in ----------------------------------------------------------------------------

    def _allocate(self, now: int) -> None:
        """Let jobs in, tenant by tenant; then let tenants borrow."""
        queues = {t.name: t.queue(now) for t in self._tenants.values() if t.waits}
        if not queues:
            return
        granted = self._granted(now) if self.terms.quota == "fair" else {}
        kept_out: list[Entry] = []
        left = 0.0
        for tenant in self._tenants.values():
            room = granted.get(tenant.name, tenant.quota)
            if self.limits is not None:
                room = min(room, self.limits[tenant.name])
            left += self._serve(tenant, queues.get(tenant.name, iter(())), room, kept_out, now)
        if self.terms.quota == "dynamic":
            self._random.shuffle(kept_out)
            for entry in kept_out:
                left -= self._borrow(entry, left, now)

    def _granted(self, now: int) -> dict[str, float]:
        """GPUs that each tenant may hold after this tick, by the least U / W."""
        lease_s = self.terms.lease_s or _EVER_S
        room: dict[str, float] = {}
        attained, due, key, share = {}, {}, {}, {}
        queues = {}
        for name, tenant in self._tenants.items():
            room[name] = tenant.used
            queues[name] = tenant.queue(now)
            attained[name], due[name] = tenant.account()
            key[name] = attained[name] / due[name] if due[name] else 1.0
            share[name] = tenant.used / tenant.quota
            due[name] += tenant.quota * lease_s
        free = self._free
        while free > 0 and key:
            name = min(share, key=share.__getitem__)
            if share[name] >= self.terms.floor:
                name = min(key, key=key.__getitem__)
            gpus = next((e.job.gpus for e in queues[name] if e.job.gpus <= free), 0)
            if not gpus:
                del key[name], share[name]
                continue
            free -= gpus
            room[name] += gpus
            attained[name] += gpus * lease_s
            key[name] = attained[name] / due[name]
            share[name] = room[name] / self._tenants[name].quota
        return room

    def _serve(
        self, tenant: Tenant, queue: Iterator[Entry], room: float, kept_out: list[Entry], now: int
    ) -> float:
        """Let a tenant's jobs in; how many GPUs of its quota it leaves to others."""
        starving, left = len(tenant.starving), tenant.quota - tenant.used
        for entry in queue:
            gpus = entry.job.gpus
            if self.terms.quota != "fair" and not tenant.used:
                room = max(room, gpus)
            self._make_room(tenant, entry, room, now)
            if tenant.used + gpus <= room and gpus <= self._free:
                self._start(entry, now)
                starving, left = max(0, starving - 1), left - gpus
                continue
            kept_out.append(entry)
            if starving or self.terms.blocks:
                return 0.0
        return left

    def _make_room(self, tenant: Tenant, entry: Entry, room: float, now: int) -> None:
        """Preempt for a job: young leases of its tenant, or what others have borrowed."""
        gpus = entry.job.gpus
        is_due = tenant.used + gpus <= min(room, tenant.quota)
        if self.terms.quota == "dynamic" and is_due and gpus > self._free:
            for one in self._borrowed():
                if gpus <= self._free:
                    break
                self._preempt(one, now)
        if self.terms.quota == "fair" and self.terms.delay_s and entry.is_new:
            while tenant.used + gpus > room and (young := tenant.young(now)):
                self._preempt(young.pop(0), now)

    def _borrow(self, entry: Entry, left: float, now: int) -> int:
        """Let a job in above its tenant's quota, if others leave so many; its GPUs, or 0."""
        tenant, gpus = self._tenants[entry.job.tenant], entry.job.gpus
        most = self.terms.ratio * tenant.quota
        if gpus > left or gpus > self._free or tenant.used + gpus >= most:
            return 0
        self._start(entry, now)
        return gpus

    def _borrowed(self) -> list[Entry]:
        """Running jobs beyond their tenants' quotas, by time of submission."""
        used: dict[str, int] = defaultdict(int)
        found = []
        for entry in sorted(self._running.values(), key=lambda e: e.job.submit):
            used[entry.job.tenant] += entry.job.gpus
            over = used[entry.job.tenant] > self._tenants[entry.job.tenant].quota
            if over and entry.ended is None:
                found.append(entry)
        return found

    # --- starts and stops -------------------------------------------------------------------------

    def _start(self, entry: Entry, now: int) -> None:
        self._tenants[entry.job.tenant].start(entry, now)
        self._running[entry.number] = entry
        self._free -= entry.job.gpus
        if self.terms.lease_s is not None:
            over = now + -(-self.terms.lease_s // self.tick_s) * self.tick_s
            self._leases[over].append((entry.number, now))
        if self._stopped.pop(entry.job.job_id, None) is None:
            self._starting[entry.job.job_id] = entry

    def _preempt(self, entry: Entry, now: int) -> None:
        """End a lease before its time: its work is lost."""
        entry.is_preempted = True
        self._requeue(entry, now, lost_s=now - entry.since)

    def _requeue(self, entry: Entry, now: int, *, lost_s: int) -> None:
        self._take(entry)
        if self._starting.pop(entry.job.job_id, None) is None:  # else it began on paper only
            self._stopped[entry.job.job_id] = lost_s
        entry.since = now
        self._wait(entry)

    def _undo_start(self, entry: Entry) -> None:
        """It found no nodes: it waits as before."""
        del self._starting[entry.job.job_id]
        self._take(entry)
        entry.since = entry.waited_since
        self._tenants[entry.job.tenant].wait(entry, entry.place[2])

    def _take(self, entry: Entry) -> None:
        self._tenants[entry.job.tenant].stop(entry)
        del self._running[entry.number]
        self._free += entry.job.gpus

    def _wait(self, entry: Entry) -> None:
        self._tenants[entry.job.tenant].wait(entry, next(self._tickets))
