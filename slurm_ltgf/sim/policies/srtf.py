"""srtf: shortest remaining time first, preemptive, by run times that only an oracle knows.

Source: Schrage, "A proof of the optimality of the shortest remaining processing time discipline",
Operations Research 16 (1968), which preempts at arrivals and takes one server; on many, with gangs,
it is the usual yardstick for mean completion time (so in Tiresias and ASTRAEA). There is no quantum
in it: 900 s is the lease that ASTRAEA's comparison gives it.
"""

from __future__ import annotations

from slurm_ltgf.sim.policies.queues import Key, KeyedPreemptive
from slurm_ltgf.sim.workload import Job


class Srtf(KeyedPreemptive):
    """Least work left first. Of a running job the time since its start counts as worked."""

    name = "srtf"

    def __init__(self, lease_s: int = 900) -> None:
        super().__init__(lease_s=lease_s)

    def key(self, job: Job, now: int) -> Key:
        """Seconds of work left, then age."""
        worked = 0 if job.start is None else now - job.start
        return (max(job.left_s - worked, 0), job.submit, job.job_id)

    def reason(self, job: Job, now: int) -> str:
        """What is left of it."""
        return f"{job.left_s} s of work left"
