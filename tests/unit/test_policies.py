"""Policies: scenarios computed by hand, laws, caps, specs, and LTGF against core's order."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_ltgf.core.lease import contest
from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.order import Rules, Standing, in_tenant, order
from slurm_ltgf.errors import UsageError
from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.engine import simulate
from slurm_ltgf.sim.metrics import measures
from slurm_ltgf.sim.policies import KEYS, POLICIES, Site, make, split
from slurm_ltgf.sim.policies.ltgf import LtgfLease, Terms
from slurm_ltgf.sim.policies.stage2 import Indices, TenantQueue
from slurm_ltgf.sim.traces.generated import generated
from slurm_ltgf.sim.workload import Hold, Job, workload


def job(job_id, gpus, run_s, *, submit=0, tenant="a", limit_s=None):
    return Job(job_id, tenant, gpus, submit, run_s, limit_s or run_s)


def nodes_of(count, gpus, placement="consolidated"):
    return Cluster([NodeType(count, gpus)], placement)


def ran(jobs, spec, *, nodes=1, per_node=8, weights=None, **terms):
    """Of each job its times: (start, end) each time it held GPUs."""
    weights = weights or {j.tenant: 1.0 for j in jobs}
    site = Site(weights, nodes * per_node, rules=Rules(**terms))
    outcome = simulate(workload(jobs), nodes_of(nodes, per_node), make(spec, site))
    return {j.job_id: [*((h.start, h.end) for h in j.runs), (j.start, j.end)] for j in outcome.jobs}


def starts(jobs, spec, **more):
    """Start time of each job's last run."""
    return {job_id: spans[-1][0] for job_id, spans in ran(jobs, spec, **more).items()}


# --- queues, Slurm, LTGF --------------------------------------------------------------------------


def flood():
    """a asks for everything at 0; b comes at 10 with two jobs; 8 GPUs, jobs of 4 GPUs and 100 s."""
    early = [job(k, 4, 100) for k in range(1, 7)]
    return early + [job(k, 4, 100, submit=10, tenant="b") for k in (11, 12)]


def test_fifo_serves_the_flood_first():
    assert starts(flood(), "fifo") == {1: 0, 2: 0, 3: 100, 4: 100, 5: 200, 6: 200, 11: 300, 12: 300}


def test_fifo_static_keeps_each_to_its_quota():
    assert starts(flood(), "fifo-static") == {
        1: 0,
        2: 100,
        3: 200,
        4: 300,
        5: 400,
        6: 500,
        11: 10,
        12: 110,
    }


def test_fair_tree_serves_the_one_without_usage_first():
    """At the calculation of 300 a has used 8 x 300 GPU-s and b none: b's LF is infinite."""
    got = starts(flood(), "slurm-fairtree")
    assert {k: v for k, v in got.items() if v >= 200} == {5: 200, 6: 200, 11: 300, 12: 300}
    jobs = [job(k, 8, 200) for k in range(1, 6)] + [job(11, 8, 200, submit=10, tenant="b")]
    assert starts(jobs, "slurm-fairtree") == {1: 0, 2: 200, 11: 400, 3: 600, 4: 800, 5: 1000}


def test_fair_tree_usage_decays_with_its_half_life():
    """10 GPUs for 600 s, one half-life: slurmctld adds half of them at 600, and halves that."""
    policy = make("slurm-fairtree:half_life=600,period=600", Site({"a": 1, "b": 1}, 16))
    first = job(1, 10, 600)
    policy.arrived(first, 0)
    policy.started(first, 0)
    policy.ended(first, 600)
    policy.arrived(job(2, 1, 1), 1200)
    usage = 10 * 600 / 2 / 2 / 3600
    assert policy.reason(first, 1200) == f"fairshare 0.500, usage {usage:.4g} GPU-h"


def test_fair_tree_counts_each_period_apart():
    """10 GPUs from 100 on, h 600, r = 2^(-1/2): 2000 r^(2/3) = 1587 at 300; u r + 3000 r: 3244
    at 600, 4415, 5243 at 1200. A job that ends before a calculation: 1500 r^(1/2) = 1261 at once.
    """
    policy = make("slurm-fairtree:half_life=600,period=300", Site({"a": 1, "b": 1}, 32))
    long, short = job(1, 10, 2000), job(2, 10, 150, tenant="b")
    for each in (long, short):
        policy.arrived(each, 0)
        policy.started(each, 100)
    policy.ended(short, 250)
    assert policy.reason(short, 250).endswith(f"usage {1261.34 / 3600:.4g} GPU-h")
    policy.arrived(job(3, 1, 1), 1200)
    assert policy.reason(long, 1200).endswith(f"usage {5243.21 / 3600:.4g} GPU-h")


def test_fair_tree_charges_from_the_start_and_tied_accounts_rank_alike():
    """36 GPUs from 250 on: at 300 there are 36 x 50 GPU-s = 0.5 GPU-h, at its end (450) 2 GPU-h."""
    policy = make("slurm-fairtree:half_life=none", Site(dict.fromkeys("abc", 1), 64))
    first = job(1, 36, 200)
    policy.arrived(first, 250)
    policy.started(first, 250)
    list(policy.candidates(300))
    assert policy.reason(first, 300) == "fairshare 0.333, usage 0.5 GPU-h"
    policy.ended(first, 450)
    assert policy.reason(first, 450) == "fairshare 0.333, usage 2 GPU-h"
    assert policy.reason(job(2, 1, 1, tenant="b"), 450) == "fairshare 1.000, usage 0 GPU-h"
    assert policy.reason(job(3, 1, 1, tenant="c"), 450) == "fairshare 1.000, usage 0 GPU-h"


def test_an_account_without_shares_ranks_last():
    policy = make("slurm-fairtree", Site({"a": 0, "b": 1}, 8))
    one = job(1, 8, 900, tenant="b")
    policy.arrived(one, 0)
    policy.started(one, 0)
    list(policy.candidates(300))
    says = [policy.reason(job(2, 1, 1, tenant=name), 300).split(",")[0] for name in "ab"]
    assert says == ["fairshare 0.500", "fairshare 1.000"]


def test_ltgf_turns_to_the_one_that_had_less():
    got = starts(flood(), "ltgf", lease_s=50, floor=0)
    assert (got[11], got[12]) == (100, 100)
    assert sorted(got[k] for k in range(1, 7)) == [0, 0, 200, 200, 300, 300]


def test_a_lease_moves_a_job_and_charges_both_ends_of_the_move():
    """a holds all; b comes at 10. At 2010 the lease of a ends (2000 s, and the next pass of 30 s):
    5 s checkpoint, b runs 100 s, a restores for 20 s and works its other 2990 s."""
    jobs = [job(1, 8, 5000), job(11, 8, 100, submit=10, tenant="b")]
    site = Site({"a": 1.0, "b": 1.0}, 8, rules=Rules(lease_s=2000))
    outcome = simulate(workload(jobs), nodes_of(1, 8), make("ltgf-lease:pass=30", site))
    a, b = outcome.jobs
    assert (a.runs, b.start, b.end) == ([(0, 2015, "PREEMPTED")], 2015, 2115)
    assert (a.start, a.end) == (2115, 2115 + 20 + 2990)
    m = measures(outcome, {"a": 1, "b": 1})
    assert (m.preemptions, m.overhead_gpu_s) == (1, 8 * 25)
    assert m.tenants[0].attained_gpu_s == 8 * (2015 + 3010)


@pytest.mark.parametrize(
    ("more", "start"),
    [(",pass=30,rest=0", 2105), (",pass=2000,rest=0", 4005), (",pass=30", 2010 + 1800 + 5)],
)
def test_leases_that_end_together_let_a_large_job_in(more, start):
    """The lease of job 1 ends at 2010, but 4 GPUs are too few: it is asked again each pass, and at
    2100 with job 2. With pass=2000 both are asked at 4000, with a rest of half an hour at 3810."""
    jobs = [job(1, 4, 5000), job(2, 4, 5000, submit=100)]
    jobs += [job(11, 8, 100, submit=110, tenant="b")]
    assert starts(jobs, f"ltgf-lease:lease=2000{more}")[11] == start


def test_a_job_that_comes_does_not_wait_for_the_next_look_at_leases():
    """Nobody waits at 2010, when the lease of job 1 ends; the next look would be at 3000."""
    jobs = [job(1, 8, 5000), job(2, 8, 100, submit=2345, tenant="b")]
    assert starts(jobs, "ltgf-lease:lease=2000,pass=1000")[2] == 2345 + 5


def test_after_a_look_in_vain_a_job_that_comes_is_looked_for_all_the_same():
    """Job 2 of 16 GPUs has no room at 2950: the next look is at 5000; job 3 has, at 3500."""
    jobs = [job(1, 8, 9000), job(4, 8, 2900), job(5, 8, 9000, submit=2900, tenant="b")]
    jobs += [job(2, 16, 100, submit=2950, tenant="b"), job(3, 8, 100, submit=3500, tenant="c")]
    policy = make("ltgf-lease:lease=2000,pass=1000,rest=2000", Site(dict.fromkeys("abc", 1.0), 16))
    done = {one.job_id: one for one in simulate(workload(jobs), nodes_of(2, 8), policy).jobs}
    assert done[3].start == 3505


def test_a_lease_ends_only_for_a_job_that_can_use_these_nodes():
    """b wants GPUs of type y: a's job on them yields, the one on x does not."""
    cluster = Cluster([NodeType(1, 4, "x"), NodeType(1, 4, "y")])
    jobs = [replace(job(k, 4, 5000), gpu_type=kind) for k, kind in ((1, "x"), (2, "y"))]
    jobs += [replace(job(11, 4, 100, submit=10, tenant="b"), gpu_type="y")]
    policy = make("ltgf-lease:lease=2000,pass=30", Site({"a": 1.0, "b": 1.0}, 8))
    one, two, other = simulate(workload(jobs), cluster, policy).jobs
    assert (one.end, two.runs, other.start) == (5000, [(0, 2015, "PREEMPTED")], 2015)


def test_under_a_cap_a_job_yields_to_one_of_its_tenant_beside_free_gpus():
    """a may hold 4 of 8 GPUs: what its second job lacks is not a node."""
    jobs = [job(1, 4, 5000), job(2, 4, 100, submit=10)]
    policy = make("ltgf-lease:lease=2000,pass=30,cap=1", Site({"a": 1.0, "b": 1.0}, 8))
    one, two = simulate(workload(jobs), nodes_of(1, 8), policy).jobs
    assert (one.runs, two.start) == ([(0, 2015, "PREEMPTED")], 2015)


def test_a_lease_is_renewed_for_nothing_while_nobody_waits():
    site = Site({"a": 1.0}, 8, rules=Rules(lease_s=2000))
    outcome = simulate(workload([job(1, 8, 9000)]), nodes_of(1, 8), POLICIES["ltgf-lease"](site))
    assert (outcome.jobs[0].moves, outcome.jobs[0].end) == (0, 9000)


# --- preemption in rounds -------------------------------------------------------------------------


def test_srtf_lets_the_shorter_go_first_at_the_end_of_a_quantum():
    """At 900 job 1 has 4100 s left: more than 2, less than 3. 5 s checkpoint, 20 s restore."""
    jobs = [job(1, 8, 5000), job(2, 8, 100, submit=10), job(3, 8, 4500, submit=20)]
    assert ran(jobs, "srtf") == {
        1: [(0, 905), (1005, 5125)],
        2: [(905, 1005)],
        3: [(5125, 9625)],
    }


def test_nobody_yields_for_a_job_that_would_not_fit_then():
    """At 900 only job 1 has run its quantum, and its 4 GPUs are too few for job 3."""
    jobs = [job(1, 4, 5000), job(2, 4, 5000, submit=1), job(3, 8, 100, submit=10)]
    assert ran(jobs, "srtf") == {
        1: [(0, 1805), (1905, 5125)],
        2: [(1, 1805), (1905, 5126)],
        3: [(1805, 1905)],
    }


def test_whoever_sits_on_a_node_that_a_winner_needs_goes_on_elsewhere():
    """From 63 on both nodes have one GPU free, and job 5 needs two on one. At 900 job 1 has run
    its quantum, and would fit beside 5 by number: it leaves its node to 5 and goes on beside 3."""
    jobs = [job(1, 1, 5000), job(2, 1, 50, submit=1), job(3, 1, 5000, submit=2)]
    jobs += [job(4, 1, 60, submit=3), job(5, 2, 100, submit=10)]
    got = ran(jobs, "srtf", nodes=2, per_node=2)
    assert (got[1], got[3], got[5]) == ([(0, 905), (905, 5025)], [(2, 5002)], [(905, 1005)])


def test_whoever_comes_before_a_job_is_not_moved_for_it():
    """The same with a job 5 that is longer than what job 1 has left: it waits."""
    jobs = [job(1, 1, 5000), job(2, 1, 50, submit=1), job(3, 1, 5000, submit=2)]
    jobs += [job(4, 1, 60, submit=3), job(5, 2, 6000, submit=10)]
    got = ran(jobs, "srtf", nodes=2, per_node=2)
    assert (got[1], got[3], got[5]) == ([(0, 5000)], [(2, 5002)], [(5000, 11000)])


def test_losers_whose_nodes_nobody_can_use_stay():
    """At 900 job 9 (4 GPUs) wins, by number at the cost of 2 and 3; but on their nodes 4 and 5,
    whose quantum is not over, are in its way. Job 1 leaves its node, 2 and 3 stay."""
    jobs = [job(1, 4, 5000), job(2, 3, 6000), job(3, 3, 6100)]
    jobs += [job(4, 1, 7000, submit=1), job(5, 1, 7000, submit=1), job(9, 4, 100, submit=10)]
    got = ran(jobs, "srtf", nodes=3, per_node=4)
    assert (got[1], got[9]) == ([(0, 905), (1005, 5125)], [(905, 1005)])
    assert (got[2], got[3]) == ([(0, 6000)], [(0, 6100)])


def test_only_losers_whose_nodes_are_needed_yield():
    """Job 4 needs a GPU: of jobs 1, 2, 3, on a node each, the longest gives it."""
    jobs = [job(k, 2, 5000 + k) for k in (1, 2, 3)]
    got = ran([*jobs, job(4, 1, 100, submit=10)], "srtf", nodes=3, per_node=2)
    assert {k: len(spans) for k, spans in got.items()} == {1: 1, 2: 1, 3: 2, 4: 1}


def test_las_lets_a_job_below_the_threshold_go_before_one_above():
    """8 GPUs have 18,000 GPU-s after 2250 s: job 1 yields at 2700, not before, though 2 waits."""
    jobs = [job(1, 8, 5000), job(2, 8, 1000, submit=10)]
    assert ran(jobs, "las-2d") == {1: [(0, 2705), (3705, 6025)], 2: [(2705, 3705)]}


LATER = [(2, 10), (3, 3000), (4, 3100), (5, 4200)]


@pytest.mark.parametrize(("knob", "first"), [("0.5", 1), ("none", 5)])
def test_las_promotes_a_job_that_waited_long_for_what_it_ran(knob, first):
    """Job 1 ran 2705 s: with a knob of 0.5 it is promoted at 4057.5, behind 4 and before 5."""
    jobs = [job(1, 8, 5000), *(job(k, 8, 1000, submit=t) for k, t in LATER)]
    got = starts(jobs, f"las-2d:knob={knob}")
    assert (got[2], got[3], got[4], got[first]) == (2705, 3705, 4705, 5705)
    assert got[5] == (5705 if first == 5 else 8025)


def test_las_counts_all_runs_and_all_waits():
    """8000 GPU-s: 600 s, and 400 of the next run. 1100 s run and 100 s waited at 1200: with a knob
    of 1 another 1000 s of waiting promote it."""
    policy = make("las-2d:threshold=8000,knob=1", Site({"a": 1}, 8))
    one = job(1, 8, 5000)
    policy.arrived(one, 0)
    for start, end in ((0, 600), (700, 1200)):
        one.start = start
        policy.started(one, start)
        if end == 1200:
            assert [policy.key(one, now)[:2] for now in (1099, 1100)] == [(0, 0), (1, 1100)]
        policy.ended(one, end)
        one.start = None
        policy.arrived(one, end)
    for now, says in (
        (2199, "queue 2 since 1100 s, attained 8800 GPU-s"),
        (2200, "queue 1 since 2200 s, attained 0 GPU-s"),
    ):
        assert list(policy.candidates(now)) == [one]
        assert policy.reason(one, now) == says


def test_a_running_job_competes_with_what_it_has_left():
    """At 900: 4100 s left of job 1, 4500 of 2. At 600 rho is 1000/2000 of job 1, 1600/2000 of 2."""
    for spec, now, left, want in (("srtf", 900, 4500, [1, 2]), ("themis", 600, 1000, [2, 1])):
        policy = make(spec, Site({"a": 1}, 8))
        runs, waits = job(1, 8, 5000 if spec == "srtf" else 1000), job(2, 8, left)
        policy.arrived(runs, 0)
        policy.arrived(waits, 0)
        runs.start = 0
        policy.started(runs, 0)
        assert [j.job_id for j in policy.contest([runs], now)] == want


def test_themis_knows_how_many_jobs_there_were_since_a_job_came():
    """Job 2: two jobs for 400 s, then one for 100 s: 1.8; rho = 2500 / (2000 · 1.8). Job 1 would
    be no slower on the half of a cluster alone than on all of it."""
    policy = make("themis", Site({"a": 1}, 8))
    one, two = job(1, 4, 1000), job(2, 8, 2000)
    policy.arrived(one, 0)
    assert policy.reason(one, 0) == "rho 1"
    policy.arrived(two, 0)
    assert (policy.reason(one, 0), policy.reason(two, 0)) == ("rho 1", "rho 0.5")
    policy.started(one, 0)
    policy.ended(one, 400)
    assert policy.reason(two, 500) == "rho 0.6944"


def test_themis_serves_the_largest_rho():
    """One cluster, N jobs: T_isolated is N times the run time. At 1200 rho is 4000/12000 for job 1,
    2200/3000 for 2, 9200/24000 for 3. At 2205 it is .417 for 1, .425 for 3; at 3600, N having been
    2.6125 in the mean, .612 for 1, .488 for 3; at 6000 .676 and .666: job 1 stays."""
    jobs = [job(1, 8, 4000), job(2, 8, 1000), job(3, 8, 8000)]
    got = ran(jobs, "themis")
    assert got[1] == [(0, 1205), (3605, 6425)]
    assert got[2] == [(1205, 2205)]
    assert got[3][0] == (2205, 3605)
    assert got[3][1][0] == 6425


def test_gandiva_fair_takes_turns_of_users_and_then_of_their_jobs():
    """b comes with the pass that a has at 10, so at 900 it is behind by 890 s and goes first. Then
    a's jobs 3 and 4, which never ran, go before 1 and 2."""
    jobs = [job(k, 4, 1700) for k in (1, 2, 3, 4)] + [job(11, 8, 900, submit=10, tenant="b")]
    got = ran(jobs, "gandiva-fair")
    assert got[11] == [(905, 1805)]
    assert got[3] == got[4] == [(1805, 3505)]
    assert got[1] == got[2] == [(0, 905), (3505, 3505 + 20 + 800)]


def test_gandiva_fair_gives_a_newcomer_no_credit_for_its_absence():
    """a held 8 GPUs for 9000 s when b comes: from then on they take turns, 8 GPUs for 4 and 4."""
    policy = make("gandiva-fair", Site({"a": 1, "b": 1}, 8))
    first = job(1, 8, 9000)
    policy.arrived(first, 0)
    first.start = 0
    policy.started(first, 0)
    for k, tenant in ((2, "a"), (3, "a"), (11, "b"), (12, "b")):
        policy.arrived(job(k, 4, 100, submit=9000, tenant=tenant), 9000)
    assert [j.job_id for j in policy.contest([first], 9000)] == [1, 11, 12, 2, 3]
    policy.ended(first, 9000)
    assert [j.job_id for j in policy.candidates(9000)] == [2, 11, 3, 12]


def test_gandiva_fair_does_not_charge_what_a_job_holds_before_it_wins_again():
    """Both users have a pass of 7200 at 900; a's running job is its first."""
    policy = make("gandiva-fair", Site({"a": 1, "b": 1}, 8))
    first = job(1, 8, 9000)
    policy.arrived(first, 0)
    first.start = 0
    policy.started(first, 0)
    policy.arrived(job(11, 8, 100, submit=900, tenant="b"), 900)
    assert [j.job_id for j in policy.contest([first], 900)] == [1, 11]
    assert [j.job_id for j in policy.contest([], 900)] == [11]


def test_gandiva_fair_starts_a_new_job_at_the_pass_of_its_users_others():
    policy = make("gandiva-fair", Site({"a": 1}, 8))
    first = job(1, 8, 9000)
    policy.arrived(first, 0)
    first.start = 0
    policy.started(first, 0)
    policy.ended(first, 900)
    first.start = None
    policy.arrived(first, 900)
    policy.arrived(job(2, 8, 100, submit=1000), 1000)
    assert [j.job_id for j in policy.candidates(1000)] == [1, 2]


def test_gandiva_fair_passes_a_gang_over_and_serves_it_in_the_next_quantum():
    """At 60 job 11 of 8 GPUs does not fit beside job 2, whose quantum is not over: nobody yields.
    At 120 both are over."""
    jobs = [job(1, 4, 500), job(2, 4, 500, submit=1), job(11, 8, 50, submit=2, tenant="b")]
    got = ran(jobs, "gandiva-fair:lease=60")
    assert got[11] == [(125, 175)]
    assert [got[1][0], got[2][0]] == [(0, 125), (1, 125)]


@pytest.mark.parametrize("spec", ["ltgf", "gandiva-fair:lease=60"])
def test_tenants_share_by_weight_over_time(spec):
    jobs = [job(k, 1, 50, tenant="a") for k in range(1, 400)]
    jobs += [job(k, 1, 50, tenant="b") for k in range(1001, 1400)]
    site = Site({"a": 3.0, "b": 1.0}, 8, rules=Rules(lease_s=50))
    outcome = simulate(workload(jobs), nodes_of(1, 8), make(spec, site), horizon=2000)
    by = {row.tenant: row.attained_gpu_s for row in measures(outcome, {"a": 3, "b": 1}).tenants}
    assert by["a"] / by["b"] == pytest.approx(3, rel=0.05)


# --- caps -----------------------------------------------------------------------------------------


def test_a_cap_holds_back_and_so_do_those_before_one_of_the_same_tenant():
    """a may hold 4 of 8: job 2 (3 GPUs) must wait for 1, and 3, which would fit, stays behind it.
    Job 4 is larger than the cap: it runs alone. b is not held back by any of that."""
    jobs = [job(1, 3, 100), job(2, 3, 100), job(3, 1, 100), job(4, 6, 100)]
    jobs += [job(11, 2, 10, tenant="b")]
    assert starts(jobs, "fifo:cap=1") == {1: 0, 2: 100, 3: 100, 4: 200, 11: 0}
    assert starts(jobs, "fifo:cap=none") == starts(jobs, "fifo")


def test_a_job_yields_to_one_of_its_own_tenant_for_the_quota():
    """8 of 16 GPUs are a's, and job 1 has them, on the second node: the shorter job 2 could start
    on the first, but for the quota."""
    jobs = [job(11, 8, 50, tenant="b"), job(1, 8, 5000), job(2, 8, 100, submit=10)]
    got = ran(jobs, "srtf:cap=1", nodes=2)
    assert got == {11: [(0, 50)], 1: [(0, 905), (1005, 5125)], 2: [(905, 1005)]}


def test_nobody_yields_quota_to_a_job_that_finds_no_nodes():
    """a may hold 3 of 8. At 900 job 2 (3 GPUs) has no node even without job 1, as 11 and 12 are in
    their first quantum; at 1800 job 11 makes room."""
    jobs = [job(1, 2, 5000), job(11, 2, 5000, submit=1, tenant="b")]
    jobs += [job(12, 3, 5000, submit=2, tenant="b"), job(2, 3, 100, submit=10)]
    got = ran(jobs, "srtf:cap=1", nodes=2, per_node=4, weights={"a": 3.0, "b": 5.0})
    assert (got[1][0], got[2], got[12]) == ((0, 1805), [(1805, 1905)], [(2, 5002)])


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_policy_lets_a_tenant_hold_more_than_its_cap(policy):
    work, weights = generated(jobs=300, tenants=4, gpus=32)
    outcome = simulate(work, nodes_of(4, 8), make(f"{policy}:cap=1.2", Site(weights, 32)))
    assert all(j.end is not None for j in outcome.jobs)
    for tenant, weight in weights.items():
        limit = 1.2 * 32 * weight / sum(weights.values())
        events = [event for j in outcome.jobs if j.tenant == tenant for event in _events(j)]
        held = {}
        for time, is_start, job_id, gpus in sorted(events):
            if is_start:
                held[job_id] = gpus
            else:
                del held[job_id]
            assert len(held) <= 1 or sum(held.values()) <= limit, time


def _events(j):
    for start, end in [*((h.start, h.end) for h in j.runs), (j.start, j.end)]:
        yield from ((end, False, j.job_id, j.gpus), (start, True, j.job_id, j.gpus))


# --- specs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("fifo", "fifo"),
        ("fifo:cap=1.20", "fifo:cap=1.2"),
        ("fifo:cap=none", "fifo:cap=none"),
        ("las-2d:knob=none,lease=60", "las-2d:lease=1min,knob=none"),
        (
            "ltgf:order=size,key=share,window=7d,lease=900,half_life=1d,floor=0,starvation=6h",
            "ltgf:key=share,window=7d,half_life=24h,lease=15min,floor=0,starvation=6h,order=size",
        ),
        ("ltgf:window=infinite,starvation=0", "ltgf:window=infinite,starvation=0"),
    ],
)
def test_a_policy_is_called_by_its_canonical_spec(spec, name):
    site = Site({"a": 1.0}, 8)
    assert make(spec, site).name == name
    assert make(name, site).name == name


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("lottery", "policy 'lottery': no such policy; there are fifo-static, fifo,"),
        ("", "policy '': no such policy"),
        ("fifo\n:", "policy 'fifo\\n': no such policy"),
        ("fifo:", "policy fifo: '': no such option; there are cap="),
        ("srtf:quantum=1", "'quantum=1': no such option; there are lease=, cap="),
        ("srtf:lease", "'lease': no such option"),
        ("srtf:lease=0", "lease= must be a duration of 1 s or more like 900, 15min"),
        ("srtf:lease=-5", "got '-5'"),
        ("srtf:lease=1e3", "got '1e3'"),
        ("srtf:lease=" + "9" * 5000, "lease= must be"),
        ("ltgf:key=both", "key= must be one of credit, share, got 'both'"),
        ("ltgf:floor=nan", "floor= must be a number >= 0, got 'nan'"),
        ("fifo:cap=0", "cap= must be a number >= 0.01, or none, got '0'"),
        ("fifo:cap=1,cap=2", "cap= is given twice"),
    ],
)
def test_a_wrong_spec_is_one_line_that_says_what_there_is(spec, says):
    with pytest.raises(UsageError) as caught:
        make(spec, Site({"a": 1.0}, 8))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_specs_of_a_list_keep_their_options():
    text = "fifo,ltgf:key=share,window=7d,srtf,fifo:cap=1"
    assert split(text) == ["fifo", "ltgf:key=share,window=7d", "srtf", "fifo:cap=1"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("ltgf", "ltgf:key=share"),
        ("ltgf", "ltgf:window=infinite,half_life=1h"),
        ("ltgf", "ltgf:order=size"),
        ("ltgf:order=size", "ltgf:order=short"),
        ("ltgf", "ltgf:lease=60"),
        ("ltgf", "ltgf:floor=0.9"),
        ("ltgf:order=size", "ltgf:order=size,starvation=60"),
        ("ltgf-lease:lease=30min", "ltgf-lease:lease=30min,pass=30min"),
        ("ltgf-lease:lease=30min", "ltgf-lease:lease=30min,restarts=1"),
        ("ltgf-lease:lease=30min", "ltgf-lease:lease=30min,margin=3"),
        ("ltgf-lease:lease=30min", "ltgf-lease:lease=30min,overhead=0.001"),
        ("ltgf-lease:lease=30min", "ltgf-lease:lease=30min,min_run=7d"),
        ("las-2d", "las-2d:threshold=1000"),
        ("slurm-fairtree", "slurm-fairtree:age=100000"),
        ("slurm-fairtree", "slurm-fairtree:half_life=10min"),
    ],
)
def test_every_option_changes_something(a, b):
    work, weights = generated(jobs=600, tenants=4, gpus=16, load=1.3)
    one, two = (
        [j.start for j in simulate(work, nodes_of(2, 8), make(s, Site(weights, 16))).jobs]
        for s in (a, b)
    )
    assert one != two


# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_same_workload_gives_the_same_result(policy):
    work, weights = generated(jobs=300, tenants=4, gpus=16)
    results = [
        simulate(work, nodes_of(2, 8), POLICIES[policy](Site(weights, 16))).jobs for _ in range(2)
    ]
    assert results[0] == results[1]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_gpu_is_held_twice_and_every_job_runs_its_time(policy):
    work, weights = generated(jobs=300, tenants=4, gpus=16)
    outcome = simulate(work, nodes_of(2, 8), POLICIES[policy](Site(weights, 16)))
    events = []
    for j in outcome.jobs:
        assert j.first_start >= j.submit
        held = j.end - j.start + sum(h.end - h.start for h in j.runs)
        assert held == j.run_s + 25 * j.moves
        events += [(j.end, -1, j.gpus), (j.start, 1, j.gpus)]
        events += [e for s, t, _ in j.runs for e in ((t, -1, j.gpus), (s, 1, j.gpus))]
    busy = 0
    for _, sign, gpus in sorted(events):
        busy += sign * gpus
        assert 0 <= busy <= 16


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("weights", [{"a": 0.0, "b": 1.0}, {"a": 0.0, "b": 0.0}])
def test_tenants_without_a_share_run_too(policy, weights):
    jobs = [job(k, 4, 1000, submit=k, tenant="ab"[k % 2]) for k in range(1, 9)]
    for cap in ("none", "1"):
        spans = ran(jobs, f"{policy}:cap={cap}", weights=weights)
        assert all(end is not None for ((_, end), *_) in (own[::-1] for own in spans.values()))


# --- LTGF against the functions that the daemon calls --------------------------------------------


def test_job_indices_are_those_of_the_worked_value_j1():
    """LTGF.md section 7, J1, at 3: E1 = 4 + 2 + 2 = S1; E2 = 4, S2 = 2."""
    indices = Indices(4, rho_step=1)
    one, two, three = job(1, 4, 3), job(2, 2, 1), job(3, 4, 9)

    def rho(one, now):
        record = PendingJob(one.job_id, "a", one.gpus, submit=0, eligible=0)
        ((index, _, _),) = indices.rated([indices.stake(one, (), record)], now)
        return index

    indices.arrived(one, 0)
    indices.arrived(two, 1)
    one.kept_s, two.kept_s = 2, 1
    assert (rho(one, 3), rho(two, 3)) == (1.0, 0.5)
    indices.arrived(three, 3)
    assert math.isinf(rho(three, 3))
    two.start = 3  # and runs on from what it got
    assert rho(two, 5) == (2 + 2 * 2) / (2 + 2 + 4 / 3 + 4 / 3)


def test_above_what_was_due_job_indices_count_in_steps():
    indices = Indices(4, rho_step=2)
    jobs = [job(k, 1, 100, submit=k) for k in (1, 2, 3, 4, 5)]
    for one, got_s in zip(jobs, (39, 24, 16, 12, 8), strict=True):
        one.kept_s = got_s
        indices.arrived(one, 0)  # four GPUs for five jobs: by 10, 8 GPU-seconds were due to each
    records = [PendingJob(one.job_id, "a", 1, submit=0, eligible=one.submit) for one in jobs]
    stakes = [
        indices.stake(one, (record.eligible,), record)
        for one, record in zip(jobs, records, strict=True)
    ]
    rated = indices.rated(stakes, 10)
    assert [row[2].job_id for row in rated] == [4, 5, 2, 3, 1]  # 1.5 and 1; 3 and 2; 4.9
    assert [row[2].job_id for row in indices.rated(stakes, 13)] == [5, 3, 4, 1, 2]
    want = in_tenant(
        records,
        rules=Rules(rho_step=2),
        now=10,
        rho={one.job_id: one.kept_s / 8 for one in jobs},
    )
    assert [record.job_id for record in want] == [4, 5, 2, 3, 1]


def test_a_job_that_was_moved_starves_from_its_requeue_not_from_its_first_submission():
    indices = Indices(4, rho_step=1)
    queue = TenantQueue("rho", 100, indices)
    moved, fresh = job(1, 1, 500), job(2, 1, 500)
    indices.arrived(moved, 0)
    queue.add(moved, PendingJob(1, "a", 1, submit=0, eligible=0))
    queue.remove(moved)
    moved.runs.append(Hold(0, 90))
    moved.kept_s = 90
    queue.add(moved, PendingJob(1, "a", 1, submit=90, eligible=90))
    indices.arrived(fresh, 95)
    queue.add(fresh, PendingJob(2, "a", 1, submit=95, eligible=95))
    assert [record.job_id for record in queue.in_order(110)] == [2, 1]
    assert [record.job_id for record in queue.in_order(191)] == [1, 2]


def test_leases_are_looked_at_only_for_the_first_job_of_its_size():
    indices = Indices(4, rho_step=1)
    queue = TenantQueue("rho", math.inf, indices)
    for job_id, gpus in ((1, 4), (2, 8), (3, 2), (4, 2), (5, 4)):
        one = job(job_id, gpus, 100)
        indices.arrived(one, job_id)
        queue.add(one, PendingJob(job_id, "a", gpus, submit=job_id, eligible=job_id))
    first = [
        k
        for k, gpus in ((1, 4), (2, 8), (3, 2), (4, 2), (5, 4))
        if queue.first_like(job(k, gpus, 100), 6)
    ]
    assert first == [1, 3]


def test_a_tenants_moved_jobs_go_by_rho_behind_those_that_never_ran_or_failed():
    indices = Indices(4, rho_step=1)
    queue = TenantQueue("rho", math.inf, indices)
    runs = {1: [Hold(0, 8)], 2: [Hold(0, 4)], 3: [Hold(0, 8, "NODE_FAIL")], 4: []}
    for job_id, held in runs.items():
        one = job(job_id, 1, 100)
        one.runs.extend(held)
        one.kept_s = sum(hold.end - hold.start for hold in held if hold.state == "PREEMPTED")
        indices.arrived(one, 0)
        queue.add(one, PendingJob(job_id, "a", 1, submit=0, eligible=10))
    assert [record.job_id for record in queue.in_order(20)] == [3, 4, 2, 1]


class Checked(LtgfLease):
    """LTGF that at each look compares its order with core's, from everything that ever happened."""

    def __init__(self, weights, gpus, terms):
        super().__init__(weights, gpus, terms)
        self.compared = self.with_moved = self.with_starving = 0
        self.spans = []  # [job, start, end or None]
        self.present = {name: [] for name in weights}  # (time, +1 or -1)
        self.here = {}

    def arrived(self, job, now):
        super().arrived(job, now)
        self.here[job.job_id] = job
        self.present[job.tenant].append((now, 1))

    def started(self, job, now):
        super().started(job, now)
        del self.here[job.job_id]
        self.spans.append([job, now, None])

    def ended(self, job, now):
        super().ended(job, now)
        self.present[job.tenant].append((now, -1))
        next(span for span in self.spans if span[0] is job and span[2] is None)[2] = now

    def queue(self, now, closed):
        got = list(super().queue(now, closed))
        rho = {j.job_id: self.naive_rho(j, now) for j in self.here.values() if j.runs}
        want = order(
            [self._waiting[j.tenant].records[j.job_id][1] for j in self.here.values()],
            {name: self.naive_standing(name, now) for name in self.present},
            rules=self._rules,
            now=now,
            rho=rho,
        )
        assert [j.job_id for j in got] == [turn.job.job_id for turn in want]
        self.compared += len(got) > 1
        self.with_moved += len(rho) > 1
        self.with_starving += any(turn.starving for turn in want)
        return iter(got)

    def yielding(self, over, room, now):
        """Enough that jobs which were moved wait, whatever core.lease says."""
        return {j.job_id for j in over if j.moves < 3}

    def naive_standing(self, tenant, now):
        window_s, lease_s = self._terms.window_s, self._rules.lease_s
        attained = held = left = 0
        for j, start, end in self.spans:
            if j.tenant == tenant:
                until = now if end is None else end
                attained += j.gpus * max(until - max(start, now - window_s), 0)
            if j.tenant == tenant and end is None:
                held += j.gpus
                left += j.gpus * max(min(start + lease_s, start + j.limit_s) - now, 0)
        quota = self._book.quotas[tenant]
        return Standing(attained, quota * window_s, quota, held, left)

    def naive_rho(self, j, now):
        quota, due, there, last = self._book.quotas[j.tenant], 0.0, 0, 0
        for time, change in [*self.present[j.tenant], (now, 0)]:
            if there:
                due += min(j.gpus, quota / there) * max(time - max(last, j.submit), 0)
            there, last = there + change, time
        return j.gpus * sum(h.end - h.start for h in j.runs) / due if due else math.inf


def test_ltgf_is_the_order_of_core_at_every_look():
    work, weights = generated(jobs=250, tenants=3, gpus=16, load=1.5, seed=5)
    rules = Rules(lease_s=900, starvation_s=4 * 3600)
    policy = Checked(weights, 16, Terms(window_s=6 * 3600, rules=rules))
    simulate(work, nodes_of(2, 8), policy)
    assert min(policy.compared, policy.with_moved, policy.with_starving) > 50


class CheckedLease(LtgfLease):
    """LTGF that at each look compares who stands where with what core.lease makes of it."""

    compared = with_moved = 0

    def _contest(self, over, pending, standings, now):
        got = super()._contest(over, pending, standings, now)
        gpu_s = {j.job_id: j.gpus * j.kept_s for j in self._jobs.values()}
        rho = {}
        for j in self._jobs.values():
            if j.runs or j.start is not None:
                got_s = gpu_s[j.job_id] + (0 if j.start is None else j.gpus * (now - j.start))
                indices = self._indices[j.tenant]
                due = indices._due[j.gpus] - indices._begun[j.job_id]
                rho[j.job_id] = got_s / due if due > 0 else math.inf
        want = contest(
            [leased for leased, _, _ in over],
            [self._waiting[j.tenant].records[j.job_id][1] for j in pending],
            standings,
            rules=self._rules,
            now=now,
            rho=rho,
        )
        assert got == want
        self.compared += 1
        self.with_moved += any(j.runs for j in pending)
        return got


def test_leases_are_contested_in_the_order_of_core():
    work, weights = generated(jobs=400, tenants=3, gpus=16, load=1.5, seed=6)
    rules = Rules(lease_s=900, starvation_s=4 * 3600)
    policy = CheckedLease(weights, 16, Terms(window_s=6 * 3600, rules=rules))
    simulate(work, nodes_of(2, 8), policy)
    assert min(policy.compared, policy.with_moved) > 50


# --- the page -------------------------------------------------------------------------------------


def test_the_page_has_every_policy_and_every_option():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "policies.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    named = {re.findall(r"`([^`]+)`", line.split("|")[1])[0] for line in rows}
    keys = {f"{key.name}=" for keys in KEYS.values() for key in keys}
    assert named == keys | set(POLICIES)
