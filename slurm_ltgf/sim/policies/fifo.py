"""fifo: one queue over all tenants by time of arrival, no quotas (what Slurm does unconfigured).

fifo-static is fifo:cap=1, a queue a tenant, each inside its fixed quota: the capacity scheduler
without borrowing (YARN-CS), as ASTRAEA and Tiresias compare with it; cap=1.2 is what ASTRAEA's
simulator calls dynamic quotas.
"""

from __future__ import annotations

from slurm_ltgf.sim.policies.queues import Key, KeyedQueue
from slurm_ltgf.sim.workload import Job


class Fifo(KeyedQueue):
    """First in, first out; a job that comes again goes to the end."""

    name = "fifo"

    def key(self, job: Job, now: int) -> Key:
        """As they came."""
        return (now, job.submit, job.job_id)
