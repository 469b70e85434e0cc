"""The worked values of LTGF, computed by hand; hours on the page, seconds in the code."""

import math
from dataclasses import replace

import pytest

from slurm_ltgf.core.fairness import fairness, jain
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.job_fairness import job_fairness
from slurm_ltgf.core.model import UNKNOWN, Run, Runs, Tenant, Window
from slurm_ltgf.core.timeline import Supply

H = 3600


def run(account, *, eligible, start, end, gpus, job_id=1, state="COMPLETED"):
    """One run; times in hours, start None: it never ran."""
    return Run(
        "c",
        job_id,
        account=account,
        state=state,
        submit=eligible * H,
        eligible=eligible * H,
        start=UNKNOWN if start is None else start * H,
        end=end * H,
        elapsed_s=0 if start is None else (end - start) * H,
        gres=f"gpu={gpus}",
        gres_requested=f"gpu={gpus}",
    )


def tenants_of(rows, *, weights, capacity, hours, begin=0, half_life_h=math.inf):
    result = fairness(
        Runs.of(rows),
        Window(begin * H, hours * H),
        tenants={name: Tenant(name, weight) for name, weight in weights.items()},
        tenant_of={name: name for name in weights},
        supply=Supply.constant(weights, capacity),
        pricing=Pricing(),
        half_life_s=half_life_h * H,
    )
    return {row.tenant: row for row in result.tenants}, result


def jobs_of(rows, *, quota, hours, kept=True):
    result = job_fairness(
        Runs.of(rows),
        Window(0, hours * H),
        tenants=("a",),
        tenant_of={"a": "a"},
        supply=Supply.constant({"a": 1.0}, quota),
        pricing=Pricing(),
        requeued_work_kept=kept,
    )
    return {job.job_id: job for job in result.rows()}


def test_t1_two_tenants_take_turns_on_the_whole_cluster():
    rows = [
        run("a", eligible=0, start=0, end=4, gpus=8, state="REQUEUED"),
        run("a", eligible=4, start=8, end=10, gpus=8),
        run("b", eligible=4, start=4, end=8, gpus=8, job_id=2),
    ]
    by, all_ = tenants_of(rows, weights={"a": 1, "b": 1}, capacity=8, hours=10)
    a, b = by["a"], by["b"]
    assert (a.attained_gpu_s, a.deserved_gpu_s, a.quota_gpu_s) == (48 * H, 40 * H, 40 * H)
    assert (a.rho, a.credit, a.entitled_gpu_s, a.share) == (1.2, 1.2, 64 * H, 0.75)
    assert (b.attained_gpu_s, b.deserved_gpu_s, b.quota_gpu_s) == (32 * H, 16 * H, 40 * H)
    assert (b.rho, b.credit, b.entitled_gpu_s, b.share) == (2.0, 0.8, 16 * H, 2.0)
    assert a.entitled_gpu_s + b.entitled_gpu_s == 80 * H
    assert isinstance(a.attained_gpu_s, int)
    assert all_.max_min_gap == 1.25
    assert all_.mean_shortfall == 0


def test_t2_demand_below_quota_is_all_a_tenant_deserves():
    rows = [run("a", eligible=0, start=0, end=6, gpus=2)]
    by, _ = tenants_of(rows, weights={"a": 1, "b": 1}, capacity=8, hours=6)
    assert (by["a"].rho, by["a"].credit) == (1.0, 0.5)
    assert (by["b"].rho, by["b"].state) == (None, "idle")


def test_t3_idle_quota_is_lent_and_given_back():
    rows = [
        run("a", eligible=0, start=0, end=4, gpus=1),
        run("a", eligible=4, start=4, end=8, gpus=6, job_id=2),
        run("a", eligible=4, start=None, end=8, gpus=4, job_id=3),
        run("b", eligible=0, start=0, end=4, gpus=7, job_id=4),
        run("b", eligible=0, start=None, end=4, gpus=1, job_id=5),
        run("b", eligible=4, start=4, end=8, gpus=2, job_id=6),
        run("b", eligible=4, start=None, end=8, gpus=6, job_id=7),
    ]
    by, _ = tenants_of(rows, weights={"a": 3, "b": 1}, capacity=8, hours=8)
    a, b = by["a"], by["b"]
    assert (a.rho, b.rho) == (1.0, 2.25)
    assert (a.credit, b.credit) == (28 / 48, 36 / 16)
    assert (a.entitled_gpu_s, b.entitled_gpu_s) == ((4 * 1 + 4 * 6) * H, (4 * 7 + 4 * 2) * H)
    assert (a.quota_gpus, b.quota_gpus) == (6, 2)


def test_j1_a_job_that_waited_for_a_smaller_one():
    rows = [
        run("a", eligible=0, start=0, end=2, gpus=4, state="REQUEUED"),
        run("a", eligible=2, start=3, end=4, gpus=4),
        run("a", eligible=1, start=2, end=3, gpus=2, job_id=2),
    ]
    by = jobs_of(rows, quota=4, hours=4)
    assert (by["1"].entitled_gpu_s, by["1"].kept_gpu_s, by["1"].rho) == (12 * H, 12 * H, 1.0)
    assert (by["2"].entitled_gpu_s, by["2"].kept_gpu_s, by["2"].rho) == (4 * H, 2 * H, 0.5)


def test_work_that_a_requeue_threw_away_does_not_count_for_the_job():
    rows = [
        run("a", eligible=0, start=0, end=2, gpus=4, state="REQUEUED"),
        run("a", eligible=2, start=3, end=4, gpus=4),
    ]
    job = jobs_of(rows, quota=4, hours=4, kept=False)["1"]
    assert (job.attained_gpu_s, job.kept_gpu_s) == (12 * H, 4 * H)
    assert job.rho == 0.25
    assert job.klass == "loss"


@pytest.mark.parametrize(
    ("big", "small", "rho_big", "rho_small"),
    [(0, 1, 9.0, 0.5294), (1, 0, 0.9, 1.125)],
    ids=["big first", "small first"],
)
def test_j2_one_big_job_against_eight_small_ones(big, small, rho_big, rho_small):
    rows = [run("a", eligible=0, start=big, end=big + 1, gpus=8)]
    rows += [
        run("a", eligible=0, start=small, end=small + 1, gpus=1, job_id=k) for k in range(2, 10)
    ]
    by = jobs_of(rows, quota=8, hours=2)
    assert by["1"].rho == rho_big
    assert [round(by[str(k)].rho, 4) for k in range(2, 10)] == [rho_small] * 8


@pytest.mark.parametrize(("at", "rho"), [(24, 1.0), (36, 0.25)])
def test_w1_the_window_slides(at, rho):
    rows = [
        run("a", eligible=0, start=0, end=12, gpus=20),
        run("a", eligible=12, start=None, end=24, gpus=20, job_id=2),
        run("a", eligible=24, start=24, end=36, gpus=5, job_id=3),
        run("a", eligible=24, start=None, end=36, gpus=15, job_id=4),
    ]
    by, _ = tenants_of(rows, weights={"a": 1}, capacity=10, hours=at, begin=at - 24)
    assert by["a"].rho == rho


@pytest.mark.parametrize(
    ("lease_s", "percent"), [(300, 7.7), (600, 4.0), (900, 2.7), (1800, 1.4), (3600, 0.7)]
)
def test_o1_the_price_of_a_lease(lease_s, percent):
    """One checkpoint and resume of 25 s a lease, as part of lease plus price."""
    assert round(100 * 25 / (lease_s + 25), 1) == percent


def test_a_half_life_weighs_an_hour_by_its_age():
    """One GPU all the time, half-life 1 h, window 2 h: U = h/ln2 · (1 - 1/4)."""
    by, _ = tenants_of(
        [run("a", eligible=0, start=0, end=2, gpus=1)],
        weights={"a": 1},
        capacity=1,
        hours=2,
        half_life_h=1,
    )
    expected = H / math.log(2) * 0.75
    assert math.isclose(by["a"].attained_gpu_s, expected, rel_tol=1e-12)
    assert math.isclose(by["a"].rho, 1.0, rel_tol=1e-12)


def test_a_tenant_without_entitlement_gets_what_the_others_leave():
    rows = [
        run("a", eligible=0, start=0, end=2, gpus=3),
        run("z", eligible=0, start=0, end=2, gpus=9, job_id=2),
    ]
    by, _ = tenants_of(rows, weights={"a": 1, "z": 0}, capacity=8, hours=2)
    assert by["z"].entitled_gpu_s == 5 * 2 * H
    assert (by["z"].state, by["z"].rho, by["z"].credit) == ("no share", None, None)


def test_tenants_without_entitlement_do_not_tell_how_fair_the_others_have_it():
    rows = [
        run("a", eligible=0, start=0, end=2, gpus=4),
        run("b", eligible=0, start=0, end=2, gpus=4, job_id=2),
        run("z", eligible=0, start=0, end=2, gpus=4, job_id=3),
    ]
    _, all_ = tenants_of(rows, weights={"a": 1, "b": 1, "z": 0}, capacity=8, hours=2)
    assert (all_.jain, all_.max_min_gap, all_.min_rho) == (1.0, 0.0, 1.0)


def test_demand_is_capped_by_the_tenants_own_limit():
    rows = [
        run("a", eligible=0, start=0, end=2, gpus=2),
        run("a", eligible=0, start=None, end=2, gpus=6, job_id=2),
    ]
    result = fairness(
        Runs.of(rows),
        Window(0, 2 * H),
        tenants={"a": Tenant("a", 1, gpu_limit=2)},
        tenant_of={"a": "a"},
        supply=Supply.constant({"a": 1}, 8),
        pricing=Pricing(),
    )
    assert result.tenants[0].entitled_gpu_s == 2 * 2 * H


def test_without_capacity_only_what_was_attained_is_known():
    result = fairness(
        Runs.of([run("a", eligible=0, start=0, end=2, gpus=2)]),
        Window(0, 2 * H),
        tenants={"a": Tenant("a", 1)},
        tenant_of={"a": "a"},
        supply=None,
        pricing=Pricing(),
    )
    (a,) = result.tenants
    assert (a.attained_gpu_s, a.rho, a.quota_gpu_s, a.state) == (4 * H, None, None, "unknown")
    assert result.jain is None


def test_gpu_seconds_stay_whole_for_mig_slices():
    gres = "gpu:a100_1g.10gb=2,gpu:a100_3g.40gb=1,gpu=3"
    mig = replace(run("a", eligible=0, start=0, end=1, gpus=1), gres=gres, end=7000, elapsed_s=7000)
    by, _ = tenants_of([mig], weights={"a": 1}, capacity=8, hours=2)
    assert (by["a"].attained_gpu_s, by["a"].device_s) == (5000, 21000)


def test_suspended_time_is_not_attained_but_shown():
    paused = replace(
        run("a", eligible=0, start=0, end=3, gpus=2), elapsed_s=2 * H, suspended_s=1 * H
    )
    by, _ = tenants_of([paused], weights={"a": 1}, capacity=8, hours=3)
    assert (by["a"].attained_gpu_s, by["a"].suspended_gpu_s) == (14400, 7200)


def test_a_run_whose_end_lies_before_its_start_is_charged_what_elapsed():
    """After a clock step; Elapsed is what Slurm charged."""
    odd = replace(run("a", eligible=3, start=3, end=2, gpus=2), elapsed_s=1 * H)
    by, _ = tenants_of([odd], weights={"a": 1}, capacity=8, hours=10)
    assert (by["a"].attained_gpu_s, by["a"].deserved_gpu_s) == (2 * H, 2 * H)


def test_a_run_is_demand_from_its_start_on_whatever_its_eligible_time_says():
    odd = run("a", eligible=3, start=2, end=4, gpus=2)
    by, _ = tenants_of([odd], weights={"a": 1}, capacity=8, hours=10)
    assert (by["a"].attained_gpu_s, by["a"].deserved_gpu_s) == (4 * H, 4 * H)


def test_a_job_that_was_resized_is_one_job_and_kept_its_work():
    rows = [
        run("a", eligible=0, start=0, end=1, gpus=4, state="RESIZING"),
        run("a", eligible=0, start=1, end=2, gpus=2),
    ]
    (job,) = jobs_of(rows, quota=8, hours=2, kept=False).values()
    assert (job.attained_gpu_s, job.kept_gpu_s) == (6 * H, 6 * H)


@pytest.mark.parametrize(
    ("values", "index"), [([1, 1, 1], 1.0), ([1, 0, 0], 1 / 3), ([], None), ([0, 0], None)]
)
def test_jain(values, index):
    assert jain(values) == index
