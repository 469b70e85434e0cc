"""The shortest time limits of the jobs that wait, by what they ask for."""

from hypothesis import given
from hypothesis import strategies as st

from slurm_ltgf.sim.waiting import Waiting
from slurm_ltgf.sim.workload import Job


def job(job_id, gpus, limit_s, **more):
    return Job(job_id, "a", gpus, submit=0, run_s=limit_s, limit_s=limit_s, **more)


def test_whoever_wants_more_than_gpus_counts_as_a_job_of_one():
    waiting = Waiting()
    waiting.add(job(1, 8, 100))
    waiting.add(job(2, 4, 60, cpus=12))
    waiting.add(job(3, 4, 70, gpu_type="h200"))
    assert waiting.shortest_limits_s() == {8: 100, 1: 60}
    assert waiting.least().gpus == 1


def test_a_job_that_waits_again_counts_with_its_new_limit():
    waiting = Waiting()
    waiting.add(job(1, 2, 100))
    waiting.remove(job(1, 2, 100))
    assert not waiting
    assert waiting.shortest_limits_s() == {}
    waiting.add(job(1, 2, 300))
    assert waiting.shortest_limits_s() == {2: 300}


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 50)), max_size=30))
def test_it_is_the_least_over_all_that_wait(steps):
    """Each step adds a job, or takes it away if it waits."""
    waiting, there = Waiting(), {}
    for job_id, gpus, limit_s in steps:
        if job_id in there:
            waiting.remove(there.pop(job_id))
        else:
            there[job_id] = job(job_id, gpus, limit_s)
            waiting.add(there[job_id])
        want = {}
        for one in there.values():
            want[one.gpus] = min(one.limit_s, want.get(one.gpus, 1 << 60))
        assert waiting.shortest_limits_s() == want
        assert bool(waiting) == bool(there)
        assert all(one in waiting for one in there.values())
