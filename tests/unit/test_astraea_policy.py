"""Policies that decide at ticks, and the rules of ASTRAEA's simulator, by hand."""

from slurm_ltgf.sim.backfill import Backfill
from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.engine import Costs, simulate
from slurm_ltgf.sim.policies.base import Base
from slurm_ltgf.sim.workload import Job, workload


def job(job_id, gpus, run_s, *, submit=0, tenant="a"):
    return Job(job_id, tenant, gpus, submit, run_s, run_s)


def outcome(jobs, policy, *, gpus=8, nodes=1, costs=None):
    cluster = Cluster([NodeType(nodes, gpus)], "packed")
    costs = costs or Costs(0, 0)
    return simulate(workload(jobs), cluster, policy, costs=costs, backfill=Backfill("none"))


def times(found):
    """job id -> [(start, end) of each run]."""
    return {
        job.job_id: [*((held.start, held.end) for held in job.runs), (job.start, job.end)]
        for job in found.jobs
    }


# --- the engine's part ----------------------------------------------------------------------------


class Ticking(Base):
    """In the order in which jobs came; stops what it is told to. asked: when it was."""

    tick_s = 10
    is_open = True

    def __init__(self, stops=None):
        super().__init__()
        self.stops = stops or {}
        self.waiting = {}
        self.asked = []

    def arrived(self, job, now):
        self.waiting[job.job_id] = job

    def started(self, job, now):
        del self.waiting[job.job_id]

    def candidates(self, now):
        assert now % 10 == 0
        return iter(list(self.waiting.values()))

    def evicted(self, now):
        self.asked.append(now)
        return self.stops.get(now, {})


def test_between_ticks_nothing_starts():
    jobs = [job(1, 8, 12, submit=3), job(2, 8, 5, submit=4)]
    policy = Ticking()
    assert times(outcome(jobs, policy)) == {1: [(10, 22)], 2: [(30, 35)]}
    assert policy.asked == [10, 20, 30]


def test_ticks_go_on_while_a_job_runs_and_nobody_waits():
    policy = Ticking()
    outcome([job(1, 8, 35, submit=1), job(2, 1, 5, submit=97)], policy)
    assert policy.asked == [10, 20, 30, 40, 100]


def test_who_is_stopped_gives_its_gpus_at_once_and_keeps_its_work():
    jobs = [job(1, 8, 50), job(2, 8, 7, submit=15)]
    found = times(outcome(jobs, Ticking({20: {1: 0}})))
    assert found == {1: [(0, 20), (30, 60)], 2: [(20, 27)]}


def test_who_is_stopped_may_lose_work():
    """Of 20 s of work 15 are lost: 45 of 50 are left."""
    jobs = [job(1, 8, 50), job(2, 8, 7, submit=15)]
    found = times(outcome(jobs, Ticking({20: {1: 15}})))
    assert found == {1: [(0, 20), (30, 75)], 2: [(20, 27)]}


def test_a_stop_costs_what_a_move_costs():
    """Its GPUs are free at 22, which is seen at 30; it restores until 44, and works 30 s more."""
    jobs = [job(1, 8, 50), job(2, 8, 7, submit=15)]
    result = outcome(jobs, Ticking({20: {1: 0}}), costs=Costs(2, 4))
    assert times(result) == {1: [(0, 22), (40, 74)], 2: [(30, 37)]}
    assert result.overhead_gpu_s == 8 * 2 + 8 * 4
