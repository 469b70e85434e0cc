"""Laws that the integrals obey, on random histories, against a second-by-second reference."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_ltgf.core.fairness import fairness
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.job_fairness import job_fairness
from slurm_ltgf.core.model import UNKNOWN, Run, Runs, Tenant, Window
from slurm_ltgf.core.timeline import Clock, Supply, water_fill

SPAN = 40
NAMES = ("a", "b", "c")


@st.composite
def histories(draw):
    """Up to a dozen runs of three tenants within 40 seconds; some never ran, some paused."""
    rows = []
    for job_id in range(1, draw(st.integers(0, 12)) + 1):
        eligible, wait, length = (draw(st.integers(0, SPAN // 2)) for _ in range(3))
        ran = draw(st.booleans()) and length > 0
        paused = draw(st.integers(0, length - 1)) if ran and draw(st.booleans()) else 0
        gpus = draw(st.integers(0, 8))
        rows.append(
            Run(
                "c",
                job_id,
                account=draw(st.sampled_from(NAMES)),
                state="COMPLETED",
                submit=eligible,
                eligible=eligible,
                start=eligible + wait if ran else UNKNOWN,
                end=eligible + wait + length,
                elapsed_s=length - paused if ran else 0,
                suspended_s=paused,
                gres=f"gpu={gpus}" if ran else "",
                gres_requested=f"gpu={gpus}",
            )
        )
    return rows


weights = st.fixed_dictionaries({name: st.integers(0, 4).map(float) for name in NAMES})
capacities = st.integers(0, 16)


def indices(rows, weights, capacity, *, window=(0, SPAN), half_life_s=math.inf, supply=None):
    result = fairness(
        Runs.of(rows),
        Window(*window),
        tenants={name: Tenant(name, weight) for name, weight in weights.items()},
        tenant_of={name: name for name in NAMES},
        supply=supply or Supply.constant(weights, capacity),
        pricing=Pricing(),
        half_life_s=half_life_s,
    )
    return {row.tenant: row for row in result.tenants}


def sums(rows, name):
    return [getattr(row, name) for row in rows.values()]


def close(a, b):
    return np.allclose(a, b, rtol=1e-9, atol=1e-6)


@given(histories(), weights, capacities)
@settings(max_examples=150)
def test_integrals_equal_a_walk_second_by_second(rows, weights, capacity):
    got = indices(rows, weights, capacity)
    total = sum(weights.values())
    deserved, entitled = dict.fromkeys(NAMES, 0.0), dict.fromkeys(NAMES, 0.0)
    for second in range(SPAN):
        demand = {
            name: sum(
                int(row.gres_requested[4:])
                for row in rows
                if row.account == name and row.eligible <= second < row.end
            )
            for name in NAMES
        }
        split = fill_by_hand(demand, weights, capacity)
        for name in NAMES:
            quota = capacity * weights[name] / total if total else 0.0
            deserved[name] += min(demand[name], quota)
            entitled[name] += split[name]
    assert close(sums(got, "deserved_gpu_s"), list(deserved.values()))
    assert close(sums(got, "entitled_gpu_s"), list(entitled.values()))


def fill_by_hand(demand, weights, capacity):
    """Progressive filling as the textbook has it; weightless tenants share the rest alike."""
    result = dict.fromkeys(demand, 0.0)
    for group in ([n for n in demand if weights[n] > 0], [n for n in demand if weights[n] == 0]):
        share = {n: weights[n] or 1.0 for n in group}
        left = capacity - sum(result.values())
        open_ = {n for n in group if demand[n] > 0}
        while open_ and left > 1e-12:
            total = sum(share[n] for n in open_)
            step = min((demand[n] - result[n]) / share[n] for n in open_)
            step = min(step, left / total)
            for n in open_:
                result[n] += step * share[n]
            left -= step * total
            open_ = {n for n in open_ if demand[n] - result[n] > 1e-12}
    return result


@given(histories(), weights)
def test_work_is_conserved(rows, weights):
    """While the cluster is never short, everybody holds what he is entitled to: ΣU = ΣX."""
    rows = [row for row in rows if row.start != UNKNOWN]
    rows = [
        Run(
            **{f: getattr(r, f) for f in Run.__slots__}
            | {"eligible": r.start, "elapsed_s": r.end - r.start, "suspended_s": 0}
        )
        for r in rows
    ]
    got = indices(rows, weights, 10**6, window=(0, 200))
    assert sum(sums(got, "attained_gpu_s")) == round(sum(sums(got, "entitled_gpu_s")))


@given(histories(), weights, capacities)
def test_entitlements_add_up_to_what_capacity_and_demand_allow(rows, weights, capacity):
    got = indices(rows, weights, capacity)
    asked = [
        min(capacity, sum(int(r.gres_requested[4:]) for r in rows if r.eligible <= t < r.end))
        for t in range(SPAN)
    ]
    assert close(sum(sums(got, "entitled_gpu_s")), sum(asked))


@given(histories(), weights, capacities, st.randoms())
def test_the_order_of_history_does_not_matter(rows, weights, capacity, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    first, second = indices(rows, weights, capacity), indices(shuffled, weights, capacity)
    assert sums(first, "attained_gpu_s") == sums(second, "attained_gpu_s")
    assert close(sums(first, "entitled_gpu_s"), sums(second, "entitled_gpu_s"))


@given(histories(), weights, capacities, st.integers(0, SPAN))
def test_two_part_windows_add_up(rows, weights, capacity, cut):
    whole = indices(rows, weights, capacity)
    left = indices(rows, weights, capacity, window=(0, cut))
    right = indices(rows, weights, capacity, window=(cut, SPAN))
    for name in ("deserved_gpu_s", "quota_gpu_s", "entitled_gpu_s"):
        assert close(sums(whole, name), np.add(sums(left, name), sums(right, name)))
    parts = np.add(sums(left, "attained_gpu_s"), sums(right, "attained_gpu_s"))
    assert sums(whole, "attained_gpu_s") == parts.tolist()


@given(histories(), weights, capacities)
def test_a_very_long_half_life_is_the_plain_sum(rows, weights, capacity):
    plain = indices(rows, weights, capacity)
    slow = indices(rows, weights, capacity, half_life_s=1e12)
    for name in ("attained_gpu_s", "deserved_gpu_s", "quota_gpu_s", "entitled_gpu_s"):
        assert close(sums(plain, name), sums(slow, name))


@given(histories(), weights, capacities, st.integers(1, 100))
def test_a_half_life_only_takes_away(rows, weights, capacity, half_life_s):
    plain = indices(rows, weights, capacity)
    decayed = indices(rows, weights, capacity, half_life_s=half_life_s)
    for name in ("attained_gpu_s", "entitled_gpu_s"):
        pairs = zip(sums(plain, name), sums(decayed, name), strict=True)
        assert all(-1e-9 <= d <= p + 1e-9 for p, d in pairs)


@given(histories(), weights, capacities, st.sampled_from(NAMES))
def test_more_weight_is_never_less_entitlement(rows, weights, capacity, name):
    more = {**weights, name: weights[name] + 1}
    before, after = indices(rows, weights, capacity), indices(rows, more, capacity)
    assert after[name].entitled_gpu_s >= before[name].entitled_gpu_s - 1e-6


@given(histories(), weights, capacities, capacities, st.integers(1, SPAN - 1))
def test_a_step_of_capacity_is_two_windows(rows, weights, before, after, cut):
    names = tuple(sorted(NAMES))
    shares = np.array([[weights[n] for n in names]] * 2)
    supply = Supply(names, np.array([0, cut]), np.array([before, after], dtype=float), shares)
    got = indices(rows, weights, 0, supply=supply)
    left = indices(rows, weights, before, window=(0, cut))
    right = indices(rows, weights, after, window=(cut, SPAN))
    for name in ("deserved_gpu_s", "quota_gpu_s", "entitled_gpu_s"):
        assert close(sums(got, name), np.add(sums(left, name), sums(right, name)))


@given(histories(), weights, st.sampled_from([math.inf, 1, 7, 100]))
def test_the_jobs_of_a_tenant_had_together_what_it_had(rows, weights, half_life_s):
    tenants = indices(rows, weights, 8, half_life_s=half_life_s)
    jobs = job_fairness(
        Runs.of(rows),
        Window(0, SPAN),
        tenants=tuple(sorted(NAMES)),
        tenant_of={name: name for name in NAMES},
        supply=None,
        pricing=Pricing(),
        half_life_s=half_life_s,
    )
    for name, tenant in tenants.items():
        own = [job.attained_gpu_s for job in jobs.rows() if job.tenant == name]
        assert close(sum(own), tenant.attained_gpu_s)


@given(histories(), st.integers(1, 16))
@settings(max_examples=100)
def test_job_integrals_equal_a_walk_second_by_second(rows, quota):
    got = job_fairness(
        Runs.of(rows),
        Window(0, SPAN),
        tenants=("a",),
        tenant_of={"a": "a"},
        supply=Supply.constant({"a": 1.0}, quota),
        pricing=Pricing(),
    )
    asked = [r for r in rows if r.account == "a" and r.gres_requested != "gpu=0"]
    for job in got.rows():
        (row,) = [r for r in asked if r.job_id == int(job.job_id)]
        due = 0.0
        for t in range(max(row.eligible, 0), min(row.end, SPAN)):
            active = sum(1 for r in asked if r.eligible <= t < r.end)
            due += min(int(row.gres_requested[4:]), quota / active)
        assert math.isclose(job.entitled_gpu_s, due, rel_tol=1e-9, abs_tol=1e-6)


splits = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(st.integers(0, 20), min_size=n, max_size=n), min_size=1, max_size=40),
        st.lists(st.integers(1, 5), min_size=n, max_size=n),
    )
)


@given(splits, st.integers(0, 60))
@settings(max_examples=200)
def test_nobody_can_gain_except_from_one_who_has_less(case, capacity):
    demand, weights = np.array(case[0], dtype=float), np.array(case[1], dtype=float)
    split = water_fill(demand.T, weights, np.full(len(demand), float(capacity))).T
    assert (split <= demand + 1e-9).all()
    assert close(split.sum(axis=1), np.minimum(demand.sum(axis=1), capacity))
    level = split / weights
    for row, wanted, per_weight in zip(split, demand, level, strict=True):
        short = row < wanted - 1e-6
        if short.any():  # whoever is short has at least the level of everybody else
            assert per_weight[short].min() >= per_weight.max() - 1e-6


@given(st.integers(1, 10**6), st.floats(1, 1e9), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_window_is_as_long_as_its_pieces(length, half_life_s, a, b):
    clock = Clock(Window(0, length), half_life_s)
    edges = np.sort(np.clip([0, a, b, length], 0, length))
    assert math.isclose(np.diff(clock(edges)).sum(), clock.length(), rel_tol=1e-9)
