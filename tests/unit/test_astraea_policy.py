"""Policies that decide at ticks, and the rules of ASTRAEA's simulator, by hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_ltgf.sim.backfill import Backfill
from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.engine import Costs, simulate
from slurm_ltgf.sim.policies import Site, make
from slurm_ltgf.sim.policies.astraea import Astraea
from slurm_ltgf.sim.policies.astraea_tenant import Terms
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


# --- the artifact's rules -------------------------------------------------------------------------


def astraea(
    jobs, *, gpus=8, nodes=1, weights=None, placement="packed", limits=None, costs=None, **terms
):
    """(times of every job, the policy). Ticks of 10 s, no lease and no preemption unless said."""
    terms = {"tick_s": 10, "lease_s": None, "delay_s": 0} | terms
    policy = Astraea(weights or {"a": 1}, gpus * nodes, Terms(**terms))
    policy.limits = limits
    cluster, costs = Cluster([NodeType(nodes, gpus)], placement), costs or Costs(0, 0)
    found = simulate(workload(jobs), cluster, policy, costs=costs, backfill=Backfill("none"))
    return times(found), policy


BOTH = {"a": 1, "b": 1}
HOUR = 3600


def swap():
    """a holds all from 0 for two hours, b wants all from 100 s for ten minutes."""
    return [job(1, 8, 2 * HOUR), job(2, 8, 600, submit=100, tenant="b")]


def test_the_open_hour_does_not_count():
    """Before an hour is over both have U / W = 1 and a comes first; then a has 2 and b 0."""
    found, _ = astraea(swap(), weights=BOTH, tick_s=30, lease_s=900, floor=0)
    assert found == {1: [(0, 3600), (4200, 7800)], 2: [(3600, 4200)]}


def test_with_the_open_hour_the_first_lease_is_the_last():
    found, _ = astraea(swap(), weights=BOTH, tick_s=30, lease_s=900, floor=0, open_hour=True)
    assert found == {1: [(0, 900), (1500, 7800)], 2: [(900, 1500)]}


def test_who_wins_again_at_the_end_of_a_lease_is_not_touched():
    found, _ = astraea([job(1, 8, 100), job(2, 8, 5, submit=95)], lease_s=20, order="fifo")
    assert found == {1: [(0, 100)], 2: [(100, 105)]}


@pytest.mark.parametrize(
    ("floor", "first"),
    [
        pytest.param(0.2, {2, 4}, id="b holds nothing, so it goes before a's second"),
        pytest.param(0.0, {2, 3}, id="a: 4 x 900 / (4 x 3570 + 4 x 900) = 0.2, b: 2"),
    ],
)
def test_a_tenant_below_the_floor_goes_first(floor, first):
    jobs = [
        job(1, 8, 3590, tenant="b"),
        job(2, 4, HOUR, submit=3500),
        job(3, 4, HOUR, submit=3500),
        job(4, 4, HOUR, submit=3500, tenant="b"),
    ]
    found, _ = astraea(jobs, weights=BOTH, tick_s=30, lease_s=900, floor=floor)
    assert {k for k, runs in found.items() if runs[0][0] == HOUR} == first


def test_a_job_that_never_ran_goes_before_one_whose_lease_is_over():
    jobs = [job(1, 4, 60), job(2, 4, 10, submit=15)]
    found, _ = astraea(jobs, gpus=4, lease_s=20)
    assert found == {1: [(0, 20), (30, 70)], 2: [(20, 30)]}


def test_of_those_that_ran_the_lowest_rho_goes_first():
    """Due by 40: job 1 2 x 10 + 1 x 30 = 50, job 2 1 x 30. By 60 and 80 each 20 more.

    At 40 job 1 has 40 / 50 and job 2 20 / 30; at 60 40 / 70 and 40 / 50; at 80 80 / 90 and 40 / 70.
    """
    found, _ = astraea([job(1, 2, 60), job(2, 1, 60, submit=5)], gpus=2, lease_s=20)
    assert found == {1: [(0, 20), (60, 80), (100, 120)], 2: [(20, 60), (80, 100)]}


@pytest.mark.parametrize(
    ("submit", "at"),
    [
        pytest.param(125, 150, id="older than 120 s and younger than 300 s"),
        pytest.param(35, 120, id="a first lease is left alone for 120 s"),
        pytest.param(305, 600, id="too old: it ends first"),
    ],
)
def test_a_young_lease_is_given_up_for_a_job_that_never_ran_and_its_work_is_lost(submit, at):
    jobs = [job(1, 4, 600), job(2, 4, 30, submit=submit)]
    found, _ = astraea(jobs, gpus=4, tick_s=30, lease_s=900, delay_s=300)
    first = [(0, at), (at + 30, at + 630)] if at < 600 else [(0, 600)]
    assert found == {1: first, 2: [(at, at + 30)]}


def test_dynamic_quotas_borrow_below_the_ratio_and_are_taken_back_with_loss():
    """a: quota 4, may hold less than 6. Job 3 may not; job 2 is the one above the quota at 20."""
    jobs = [
        job(1, 4, 200),
        job(2, 1, 100),
        job(3, 1, 10, submit=1),
        job(4, 4, 50, submit=12, tenant="b"),
    ]
    terms = {"weights": BOTH, "quota": "dynamic", "order": "fifo", "ratio": 1.5}
    found, _ = astraea(jobs, **terms)
    assert found[1] == [(0, 200)]
    assert found[4] == [(20, 70)]
    assert found[2] == [(0, 20), (70, 170)]
    assert found[3] == [(170, 180)]
    assert astraea(jobs, **terms | {"ratio": 1.6})[0][3] == [(10, 20)]


def test_static_quotas_are_kept_and_a_larger_job_runs_alone():
    jobs = [job(1, 3, 20), job(2, 1, 20), job(3, 1, 20), job(4, 6, 20)]
    found, _ = astraea(jobs, weights=BOTH, quota="static", order="fifo", skips=False)
    assert found == {1: [(0, 20)], 2: [(0, 20)], 3: [(20, 40)], 4: [(40, 60)]}


@pytest.mark.parametrize(("blocks", "at"), [(True, 60), (False, 0)])
def test_the_first_that_does_not_fit_blocks_its_tenant(blocks, at):
    jobs = [job(1, 2, 30), job(2, 4, 30), job(3, 1, 30), job(4, 4, 30, tenant="b")]
    found, _ = astraea(jobs, weights=BOTH, quota="static", order="fifo", blocks=blocks)
    assert found[3][0][0] == at
    assert found[4] == [(0, 30)]


@pytest.mark.parametrize(("skips", "at"), [(True, 30), (False, 20)])
def test_of_two_that_end_together_the_second_is_seen_late(skips, at):
    jobs = [job(1, 1, 20), job(2, 1, 20), job(3, 1, 20, submit=5), job(4, 1, 20, submit=5)]
    found, _ = astraea(jobs, gpus=2, skips=skips)
    assert [found[k][0][0] for k in (1, 2, 3, 4)] == [0, 0, 20, at]


@pytest.mark.parametrize(("whole", "rho"), [(True, 4 / 3), (False, 4 / 3.5)])
def test_quotas_are_rounded_down(whole, rho):
    _, policy = astraea([job(1, 4, 30)], gpus=7, weights=BOTH, whole=whole)
    assert policy.rho == {1: pytest.approx(rho)}


def test_the_index_of_a_job():
    """Due: job 1 2 GPUs for 20 s; job 2 2 GPUs for 20 s, then 4 until the tick of 40."""
    _, policy = astraea([job(1, 4, 20), job(2, 4, 11), job(3, 1, 10, submit=100)], gpus=4)
    assert policy.rho == {1: pytest.approx(80 / 40), 2: pytest.approx(80 / 120), 3: 1}


def test_who_has_waited_too_long_goes_before_those_that_never_ran():
    jobs = [job(1, 1, 40), *(job(k, 1, 20, submit=20 * k - 25) for k in range(2, 9))]
    found, _ = astraea(jobs, gpus=1, lease_s=20, starvation_s=100)
    assert found[1] == [(0, 20), (120, 140)]
    assert found[7] == [(140, 160)]


@pytest.mark.parametrize(
    ("order", "first", "second"),
    [
        pytest.param("fifo", [(0, 100)], [(100, 130)], id="fifo"),
        pytest.param("srtf", [(0, 20), (50, 130)], [(20, 50)], id="80 s left against 30"),
        pytest.param(
            "2das", [(0, 20), (40, 60), (70, 130)], [(20, 40), (60, 70)], id="20 s had against 0"
        ),
        # at 20: 20 / (20 x 20 / 15 + 80) = 0.19 against 15 / (15 + 30) = 0.33; at 40: 40 /
        # (20 x 20 / 25 + 20 + 80) = 0.34 against 35 / (20 x 20 / 15 + 15 + 10) = 0.68
        pytest.param("themis", [(0, 20), (50, 130)], [(20, 50)], id="the highest goes first"),
    ],
)
def test_orders(order, first, second):
    jobs = [job(1, 1, 100), job(2, 1, 30, submit=5)]
    found, _ = astraea(jobs, gpus=1, lease_s=20, order=order)
    assert found == {1: first, 2: second}


def test_where_a_job_finds_no_nodes_its_tenant_waits_and_others_do_not():
    jobs = [
        job(1, 3, 30),
        job(2, 3, 50),
        job(3, 2, 10),
        job(4, 1, 10),
        job(5, 1, 10, tenant="b"),
    ]
    cluster = {"gpus": 4, "nodes": 2, "placement": "consolidated", "weights": BOTH}
    found, _ = astraea(jobs, skips=False, **cluster)
    assert {k: runs[0][0] for k, runs in found.items()} == {1: 0, 2: 0, 3: 30, 4: 30, 5: 0}


def test_a_cap_holds_for_every_kind_of_quota():
    jobs = [job(k, 1, 10) for k in (1, 2, 3)]
    found, _ = astraea(jobs, limits={"a": 2.4}, skips=False)
    assert [found[k][0][0] for k in (1, 2, 3)] == [0, 0, 10]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((1, 2, 4, 8)), st.integers(1, 400), st.integers(0, 900), st.booleans()
        ),
        max_size=25,
    ),
    st.sampled_from(("fair", "dynamic", "static")),
    st.sampled_from(("fairness", "fifo", "srtf", "2das", "themis")),
    st.booleans(),
    st.sampled_from((None, 30, 120)),
    st.sampled_from((Costs(0, 0), Costs(5, 20))),
)
def test_every_job_ends_and_what_is_not_preempted_works_once(
    rows, quota, order, flag, lease_s, costs
):
    jobs = [
        job(k, gpus, run_s, submit=submit, tenant="ab"[is_b])
        for k, (gpus, run_s, submit, is_b) in enumerate(rows, 1)
    ]
    terms = {"quota": quota, "order": order, "skips": flag, "blocks": flag, "lease_s": lease_s}
    terms |= {"weights": {"a": 2, "b": 1}, "tick_s": 30, "delay_s": 300, "costs": costs}
    found, policy = astraea(jobs, **terms)
    assert set(policy.rho) <= {one.job_id for one in jobs}
    for one in jobs:
        worked = sum(end - start for start, end in found[one.job_id])
        assert worked >= one.run_s
        moves = len(found[one.job_id]) - 1
        assert worked == one.run_s + moves * (costs.checkpoint_s + costs.restore_s) or (
            quota != "static"
        )
        assert all(start % 30 == 0 for start, _ in found[one.job_id])
    assert found == astraea(jobs, **terms)[0]


def test_its_spec():
    site = Site({"a": 1.0}, 8)
    policy = make("astraea:quota=static,order=fifo,lease=never,tick=1min", site)
    assert policy.terms == Terms(quota="static", order="fifo", lease_s=None, tick_s=60)
    assert policy.name == "astraea:lease=never,tick=1min,quota=static,order=fifo"
    assert make("astraea:lease=900", site).terms == Terms()


# --- the comparison -------------------------------------------------------------------------------

TRACE = """job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval
0,a,200,10,1,alexnet,100,0
1,a,100,20,1,alexnet,50,0
2,b,8,1814300,1,alexnet,400,0
"""


def compare(folder, *words):
    script = Path(__file__).parents[2] / "scripts" / "compare-with-astraea"
    done = subprocess.run(
        [sys.executable, script, "--traces", folder, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_comparison_measures_both_ways(tmp_path):
    """Quota 256: a's second job waits for the first. The cut at 1,814,400 s leaves b's job.

    Artifact: 30..130, seen to end at 150, then 150..200. Ours: 10..110, 110..160.
    By ticks job 0 has had 200 x 120 of 128 x 120, job 1 100 x 60 of 100 x 120 + 100 x 60.
    """
    (tmp_path / "philly_2w_11vc.csv").write_text(TRACE)
    (tmp_path / "share11.csv").write_text("name,share\na,1\nb,1\n")
    words = ("--only", "yarn-cs", "--no-switches")
    code, out, _ = compare(tmp_path, *words, "--json")
    row = json.loads(out)["rows"][0]
    its, same, ours = row["its_rules"], row["its_rules_our_measure"], row["our_rules"]
    assert code == 0
    assert [one["unfinished"] for one in (its, same, ours)] == [1, 1, 1]
    assert [one["mean_jct_s"] for one in (its, same, ours)] == [150.0, 150.0, 120.0]
    whole = 512 * 14 * 86400
    assert its["utilisation"] == round((200 * 120 + 100 * 60) / whole, 4)
    assert same["utilisation"] == ours["utilisation"] == round(25000 / whole, 4)
    assert its["rho_p5"] == pytest.approx(1 / 3 + 0.05 * (200 / 128 - 1 / 3), abs=1e-4)
    (tmp_path / "all.json").write_text(out)
    code, table, _ = compare(tmp_path, "--read", tmp_path / "all.json", "--markdown")
    assert code == 0
    assert "|  | difference |" in table
    assert f"| {150 / 66071 - 1:+.1%} |" in table
    assert f"| {1 - 871:+d} |" in table
    assert "| yarn-cs | artifact | 0.615 | 0.0229 | 51.4% |" in table
    assert len(table.splitlines()) == 7


def test_without_the_trace_the_comparison_is_one_line(tmp_path):
    code, out, err = compare(tmp_path)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "share11.csv" in err
