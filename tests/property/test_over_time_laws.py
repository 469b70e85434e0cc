"""The stretches of a period add up to the period, on random histories and random edges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_fairness_laws import NAMES, SPAN, capacities, histories, indices, weights

from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.model import UNKNOWN, Runs, Window
from slurm_ltgf.core.over_time import capacity_gpu_s, course, over_the_last, ratio
from slurm_ltgf.core.timeline import Supply

cuts = st.lists(st.integers(1, SPAN - 1), unique=True, max_size=60).map(
    lambda inner: np.array([0, *sorted(inner), SPAN])
)


def measured(rows, edges, supply):
    return course(
        Runs.of(rows), edges, tenants=NAMES, tenant_of={name: name for name in NAMES},
        supply=supply, pricing=Pricing(),
    )  # fmt: skip


@given(histories(), weights, capacities, cuts)
def test_stretches_add_up_to_the_period(rows, weights, capacity, edges):
    found = measured(rows, edges, Supply.constant(weights, capacity))
    whole = indices(rows, weights, capacity)
    for i, name in enumerate(NAMES):
        row = whole[name]
        assert found.attained[:, i].sum() == row.attained_gpu_s
        assert found.deserved[:, i].sum() == pytest.approx(row.deserved_gpu_s)
        assert found.quota[:, i].sum() == pytest.approx(row.quota_gpu_s)
        assert found.entitled[:, i].sum() == pytest.approx(row.entitled_gpu_s)
    assert found.capacity.sum() == capacity * SPAN


@given(histories(), cuts)
def test_what_is_waited_for_is_counted_from_eligible_to_start(rows, edges):
    found = measured(rows, edges, None)
    for i, name in enumerate(NAMES):
        waited = sum(
            (min(row.end if row.start == UNKNOWN else row.start, SPAN) - min(row.eligible, SPAN))
            * int(row.gres_requested.split("=")[1])
            for row in rows
            if row.account == name
        )
        assert found.waiting[:, i].sum() == waited
    assert np.isnan(found.entitled).all()
    assert np.isnan(found.capacity).all()


def test_sums_of_the_last_rows_are_unknown_before_there_are_so_many():
    sums = over_the_last(np.array([[1.0], [2.0], [4.0]]), 2)
    assert np.isnan(sums[0, 0])
    assert sums[1:, 0].tolist() == [3.0, 6.0]
    assert np.isnan(ratio(np.array([1.0]), np.array([0.0]))).all()


def test_capacity_is_the_steps_times_their_length():
    supply = Supply((), np.array([0, 10]), np.array([8.0, 4.0]), np.zeros((2, 0)))
    assert capacity_gpu_s(supply, Window(5, 20)) == 5 * 8 + 10 * 4
