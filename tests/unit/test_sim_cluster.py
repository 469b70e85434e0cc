"""Node types, CPUs and memory, conservative backfill, runs that fail: scenarios by hand."""

import pytest

from slurm_ltgf.sim.backfill import Backfill
from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.engine import Costs, simulate
from slurm_ltgf.sim.explain import Decision
from slurm_ltgf.sim.metrics import measures, runs_of
from slurm_ltgf.sim.policies.fifo import Fifo
from slurm_ltgf.sim.workload import Job, workload


def job(job_id, gpus, run_s, *, submit=0, limit_s=None, **more):
    return Job(job_id, "a", gpus, submit, run_s, limit_s or run_s, **more)


def run(jobs, *types, backfill=None, observer=None):
    work = workload(jobs)
    return simulate(work, Cluster(types), Fifo(), backfill=backfill, observer=observer)


def starts(jobs, *types, backfill=None):
    return {j.job_id: j.start for j in run(jobs, *types, backfill=backfill).jobs}


# --- node types -----------------------------------------------------------------------------------


def test_a_job_goes_to_nodes_of_its_type_and_waits_for_these():
    jobs = [job(1, 4, 100, gpu_type="v100"), job(2, 4, 100, gpu_type="v100"), job(3, 4, 100)]
    outcome = run(jobs, NodeType(1, 8, "a100"), NodeType(1, 4, "v100"))
    assert [(j.start, j.nodes) for j in outcome.jobs] == [
        (0, ((1, 4),)),
        (100, ((1, 4),)),
        (0, ((0, 4),)),
    ]


def test_a_gang_stays_on_nodes_of_one_type():
    types = NodeType(1, 8, "a100"), NodeType(2, 4, "v100")
    assert Cluster(types).find(job(1, 8, 1, gpu_type="v100")) == ((1, 4), (2, 4))
    with pytest.raises(ValueError, match="job 7 asks for 12 GPUs"):
        run([job(7, 12, 1)], *types)


def test_cpus_and_memory_run_out_before_gpus():
    node = NodeType(1, 8, cpus=64, memory_mib=1000)
    jobs = [
        job(1, 1, 100, cpus=48),
        job(2, 1, 100, cpus=17),  # 16 are left
        job(3, 1, 100, cpus=16, memory_mib=1001 - 1),
        job(4, 1, 100, memory_mib=1),  # 3 has all
    ]
    assert starts(jobs, node) == {1: 0, 2: 100, 3: 0, 4: 100}


def test_the_cpus_of_a_gang_are_spread_as_its_gpus():
    cluster = Cluster([NodeType(2, 8, cpus=64)])
    gang = job(1, 12, 1, cpus=96)  # 8 GPUs with 64 CPUs, 4 with 32
    nodes = cluster.find(gang)
    cluster.take(nodes, gang)
    assert nodes == ((0, 8), (1, 4))
    assert cluster.find(job(2, 1, 1, cpus=33)) is None
    assert cluster.find(job(2, 1, 1, cpus=32)) == ((1, 1),)
    cluster.give(nodes, gang)
    assert cluster.find(job(3, 16, 1, cpus=128)) == ((0, 8), (1, 8))


def test_what_no_node_has_is_refused():
    with pytest.raises(ValueError, match="65 CPUs"):
        run([job(1, 1, 1, cpus=65)], NodeType(2, 8, cpus=64))
    with pytest.raises(ValueError, match="of type h200"):
        run([job(1, 1, 1, gpu_type="h200")], NodeType(2, 8, "a100"))


# --- backfill -------------------------------------------------------------------------------------


def test_a_late_job_may_use_what_the_reservation_leaves_of_a_node():
    """2 is promised 6 of the node's 8 GPUs at 100: one job may hold 2 beyond that, not two."""
    jobs = [job(1, 4, 100), job(2, 6, 50), job(3, 2, 999), job(4, 2, 999)]
    assert starts(jobs, NodeType(1, 8)) == {1: 0, 2: 100, 3: 0, 4: 150}


#: 8 GPUs. 1 holds 6 until 100. 2 (8 GPUs) is promised 100-150, 3 (2 GPUs, 100 s) starts now.
#: 4 (4 GPUs, 50 s) is promised 150 by conservative backfill, and 5 (4 GPUs, 1000 s) too; 6 (4
#: GPUs, 60 s) would fit only beyond: 200.
QUEUE = [
    job(1, 6, 100),
    job(2, 8, 50),
    job(3, 2, 100),
    job(4, 4, 50),
    job(5, 4, 1000),
    job(6, 4, 60),
]


@pytest.mark.parametrize("kind", ["easy", "conservative"])
def test_both_kinds_of_backfill_fill_the_hole(kind):
    got = starts(QUEUE, NodeType(1, 8), backfill=Backfill(kind))
    assert got == {1: 0, 3: 0, 2: 100, 4: 150, 5: 150, 6: 200}


def test_without_backfill_all_wait_for_the_first_that_does_not_fit():
    got = starts(QUEUE, NodeType(1, 8), backfill=Backfill("none"))
    assert got == {1: 0, 2: 100, 3: 150, 4: 150, 5: 200, 6: 250}


def test_conservative_delays_no_job_for_a_later_one():
    """1 holds 5 of 8 GPUs until 100; 2 (6 GPUs) is promised 100, 3 (7 GPUs) 200. 4 (2 GPUs, 300 s)
    fits beside 2, which is all that EASY asks; beside 3 it does not.
    """
    jobs = [job(1, 5, 100), job(2, 6, 100), job(3, 7, 100), job(4, 2, 300)]
    assert starts(jobs, NodeType(1, 8), backfill=Backfill("easy"))[4] == 0
    got = starts(jobs, NodeType(1, 8), backfill=Backfill("conservative"))
    assert got == {1: 0, 2: 100, 3: 200, 4: 300}


def test_backfill_runs_every_interval_and_between_jobs_start_in_order():
    jobs = [job(1, 6, 100, submit=1), job(2, 8, 50, submit=1), job(3, 2, 20, submit=1)]
    assert starts(jobs, NodeType(1, 8), backfill=Backfill(interval_s=30)) == {1: 1, 3: 30, 2: 101}


def test_depth_limits_how_far_backfill_looks():
    jobs = [job(1, 6, 100), job(2, 8, 50), job(3, 4, 1), job(4, 2, 1)]
    assert starts(jobs, NodeType(1, 8), backfill=Backfill(depth=1))[4] == 150
    assert starts(jobs, NodeType(1, 8), backfill=Backfill(depth=2))[4] == 0


def test_a_reservation_may_keep_whole_nodes():
    """2 waits for node 0 until 100: 3, which is longer, may have its two spare GPUs, or wait."""
    jobs = [job(1, 6, 100), job(2, 6, 50), job(3, 2, 101)]
    for kind in ("easy", "conservative"):
        found = starts(jobs, NodeType(1, 8), backfill=Backfill(kind, whole_nodes=False))
        assert found == {1: 0, 2: 100, 3: 0}
        found = starts(jobs, NodeType(1, 8), backfill=Backfill(kind, whole_nodes=True))
        assert found == {1: 0, 2: 100, 3: 100}
    # what ends before the reservation begins may run all the same
    jobs[2] = job(3, 2, 100)
    for kind in ("easy", "conservative"):
        assert starts(jobs, NodeType(1, 8), backfill=Backfill(kind, whole_nodes=True))[3] == 0


@pytest.mark.parametrize("kind", ["easy", "conservative"])
def test_an_epilog_holds_the_gpus_of_a_run_that_is_over(kind):
    """1 ends at 100, its epilog at 103: 3 fits in before, but its own epilog lasts until 106."""
    jobs = [job(1, 6, 100), job(2, 8, 50), job(3, 2, 2, submit=101), job(4, 2, 4, submit=101)]
    outcome = simulate(
        workload(jobs),
        Cluster([NodeType(1, 8)]),
        Fifo(),
        costs=Costs(epilog_s=3),
        backfill=Backfill(kind),
    )
    found = [(j.start, j.end) for j in outcome.jobs]
    assert found == [(0, 100), (106, 156), (101, 103), (159, 163)]
    # nobody waits for the last epilog, and no tenant pays for any
    assert (outcome.horizon, outcome.overhead_gpu_s) == (163, 0)


def test_failed_and_last_runs_have_an_epilog_too():
    """1 fails after 10 s and must wait for its own epilog: 2, of the other node, does not."""
    jobs = [job(1, 8, 100, lost_s=(10,)), job(2, 8, 5), job(3, 8, 5, submit=1)]
    outcome = simulate(
        workload(jobs), Cluster([NodeType(2, 8)]), Fifo(), costs=Costs(0, 0, epilog_s=4)
    )
    assert [(j.start, j.nodes) for j in outcome.jobs] == [
        (14, ((0, 8),)),
        (0, ((1, 8),)),
        (9, ((1, 8),)),
    ]


@pytest.mark.parametrize("wrong", [{"kind": "firstfit"}, {"interval_s": -1}, {"depth": -1}])
def test_wrong_backfill_is_refused(wrong):
    with pytest.raises(ValueError, match=r"backfill is|must be"):
        Backfill(**wrong)


# --- runs that fail -------------------------------------------------------------------------------


def test_a_failed_run_gives_its_gpus_back_and_the_job_waits_again():
    """1 fails after 30 s and again after 10; 2 waits at its first failure and goes first."""
    jobs = [job(1, 8, 100, lost_s=(30, 10)), job(2, 8, 50, submit=5)]
    outcome = run(jobs, NodeType(1, 8))
    one, two = outcome.jobs
    assert [(h.start, h.end, h.state) for h in one.runs] == [
        (0, 30, "NODE_FAIL"),
        (80, 90, "NODE_FAIL"),
    ]
    assert (one.start, one.end, one.moves, two.start) == (90, 190, 0, 30)
    m = measures(outcome, {"a": 1})
    assert (m.failed_gpu_s, m.overhead_gpu_s, m.preemptions) == (8 * 40, 0, 0)
    assert m.tenants[0].attained_gpu_s == 8 * (140 + 50)
    assert runs_of(outcome).row(0).state == "NODE_FAIL"


# --- measures -------------------------------------------------------------------------------------


def test_the_series_say_who_held_what_when():
    """One job of 4 GPUs from 1 h to 3 h: hours 2 and 3."""
    outcome = run([job(1, 4, 7200, submit=3600)], NodeType(1, 8))
    m = measures(outcome, {"a": 1, "b": 1})
    said = m.as_dict()
    assert said["series"]["times_s"] == [3600, 7200, 10800]
    assert said["series"]["held_gpus"] == {"a": [0, 4, 4], "b": [0, 0, 0]}
    assert said["series"]["rho"]["a"] == [None, None, None]  # no 24 hours yet
    assert said["by_size"] == [
        {
            "gpus": "4-7",
            "jobs": 1,
            "mean_jct_s": 7200.0,
            "mean_wait_s": 0.0,
            "p99_wait_s": 0.0,
            "rho_p5": 1.0,
            "jobs_below_095": 0.0,
        }
    ]
    assert said["quantiles"]["jct_s"] == [7200.0] * 101
    assert (m.job_loss, m.job_fair, m.job_benefit) == (0, 1, 0)


def test_jobs_that_come_after_the_horizon_are_not_measured():
    work = workload([job(1, 8, 100), job(2, 8, 100, submit=500)])
    outcome = simulate(work, Cluster([NodeType(1, 8)]), Fifo(), horizon=200)
    m = measures(outcome, {"a": 1})
    assert (m.mean_jct_s, m.unfinished) == (100, 0)


def test_without_jobs_there_are_no_numbers():
    m = measures(run([], NodeType(1, 8)), {"a": 1})
    assert (m.mean_jct_s, m.mean_wait_s, m.job_loss, m.jobs_below_095) == (None,) * 4


# --- what an observer sees ------------------------------------------------------------------------


class Watch:
    """Sees all there is."""

    def __init__(self):
        self.seen = []

    def wants(self, now):
        return now == 0

    def decided(self, now, rows):
        self.seen += rows


def test_an_observer_is_told_what_became_of_each_job():
    watch = Watch()
    jobs = [job(1, 6, 100), job(2, 8, 50), job(3, 2, 101), job(4, 4, 1), job(5, 1, 100)]
    run(jobs, NodeType(1, 8), observer=watch)
    assert watch.seen == [
        Decision(1, "a", 6, "started", ((0, 6),), 100),
        Decision(2, "a", 8, "reserved", ((0, 8),), 100),
        Decision(3, "a", 2, "barred"),
        Decision(4, "a", 4, "no room"),
        Decision(5, "a", 1, "backfilled", ((0, 1),), 100),
    ]
