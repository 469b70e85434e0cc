"""Waiting jobs of the virtual cluster, and the shortest time limit of those of each size."""

from __future__ import annotations

import heapq
from functools import lru_cache

from slurm_ltgf.sim.cluster import Plain, is_plain
from slurm_ltgf.sim.workload import Job


class Waiting:
    """The jobs that wait."""

    def __init__(self) -> None:
        self._since: dict[int, int] = {}  # job id -> number of its entry
        self._entries = 0
        self._by_gpus: dict[int, list[tuple[int, int, int]]] = {}  # (limit, entry, job id)

    def __bool__(self) -> bool:
        """Whether any job waits."""
        return bool(self._since)

    def __contains__(self, job: Job) -> bool:
        """Whether this one does."""
        return job.job_id in self._since

    def add(self, job: Job) -> None:
        """A job waits, for the first time or again."""
        self._entries += 1
        self._since[job.job_id] = self._entries
        # what else a job asks for may be free where there is one GPU only
        gpus = job.gpus if is_plain(job) else 1
        entry = (job.limit_s, self._entries, job.job_id)
        heapq.heappush(self._by_gpus.setdefault(gpus, []), entry)

    def remove(self, job: Job) -> None:
        """It waits no more."""
        del self._since[job.job_id]

    def least(self) -> Plain:
        """What a job asks for at least; if that does not fit, none of those that wait does."""
        return _plain(min(self.shortest_limits_s()))

    def shortest_limits_s(self) -> dict[int, int]:
        """GPUs that a job needs at least -> the shortest limit of the waiting ones that do."""
        found = {}
        for gpus, entries in list(self._by_gpus.items()):
            while entries and self._since.get(entries[0][2]) != entries[0][1]:
                heapq.heappop(entries)
            if entries:
                found[gpus] = entries[0][0]
            else:
                del self._by_gpus[gpus]
        return found


@lru_cache
def _plain(gpus: int) -> Plain:
    return Plain(gpus)
