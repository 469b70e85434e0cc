"""The nodes of a site as rooms for leases: what jobs ask for, what they hold, what was promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.move import Move, State
from slurm_ltgf.core.order import Standing
from slurm_ltgf.core.pools import Pools, Shape, pools_of
from slurm_ltgf.service.places import held, places, shape, type_held
from slurm_ltgf.service.present import View
from slurm_ltgf.slurm.jobs import QueueJob

#: Of those that wait so many are looked at, in their order.
MOST_TAKERS = 256
#: A job for which others made room has it promised for so long.
PROMISED_S = 120


@dataclass(frozen=True, slots=True)
class Takers:
    """Those that wait, the first of them.

    waiting: by the order; others made room for none of them. promised: for these others did.
    """

    pools: Pools
    waiting: tuple[PendingJob, ...]
    promised: tuple[PendingJob, ...]

    def standings(self, before: Mapping[str, Standing], lease_s: float) -> dict[str, Standing]:
        """Accounts as if the promised jobs ran: their leases are charged, as are those of all."""
        found = dict(before)
        for job in self.promised:
            own = found[job.tenant]
            found[job.tenant] = own._replace(
                held_gpus=own.held_gpus + job.gpus,
                committed_gpu_s=own.committed_gpu_s + job.gpus * lease_s,
            )
        return found


def takers(
    seen: View, over: Sequence[QueueJob], known: Sequence[Move], asked: Mapping[int, int]
) -> Takers:
    """Who waits for GPUs that running jobs may have to give back, and where.

    Args:
        over: running jobs whose leases are over.
        known: moves. asked: job id -> nodes that it asked for.
    """
    records = {job.job_id: job for job in seen.queue.pending}
    to_jobs = {move.to_job for move in promises(known, seen.now)}
    first = [turn.job for turn in seen.plan.turns[:MOST_TAKERS] if turn.job.demand]
    shapes = {job.job_id: _shape(job, records.get(job.job_id), asked) for job in first}
    promised = tuple(job for job in first if job.job_id in to_jobs)
    waiting = tuple(job for job in first if job.job_id not in to_jobs)
    kinds = {node.name: sorted(node.gpus) for node in seen.capacity.nodes}
    holding = {job.job_id: on for job in over if (on := held(job))}
    pools = pools_of(
        [place for node in seen.capacity.nodes if node.is_open for place in places(node)],
        [found for job in waiting if (found := shapes[job.job_id])],
        holding,
        promised=[found for job in promised if (found := shapes[job.job_id])],
        types={
            job.job_id: type_held(job, holding[job.job_id], kinds)
            for job in over
            if job.job_id in holding
        },
    )
    return Takers(pools, waiting, promised)


def promises(known: Sequence[Move], now: int) -> list[Move]:
    """Moves by which others make room for a job, or just did."""
    return [
        move
        for move in known
        if move.to_job is not None
        and (
            not move.state.is_end
            or (move.state is State.REQUEUED and now - (move.ended_at or 0) < PROMISED_S)
        )
    ]


def _shape(job: PendingJob, record: QueueJob | None, asked: Mapping[int, int]) -> Shape | None:
    """What a waiting job asks for in devices; None: no whole GPUs."""
    return None if record is None else shape(record, asked.get(job.job_id, 1))
