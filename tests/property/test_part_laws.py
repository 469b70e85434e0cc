"""Working in parts is for speed alone: results are those of the whole, bit for bit or nearly."""

from itertools import pairwise
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_ltgf.core import demand, fairness, history, timeline
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.job_fairness import job_fairness
from slurm_ltgf.core.model import Run, Runs, Window
from slurm_ltgf.core.timeline import Supply, in_parts, water_fill
from tests.property.test_fairness_laws import NAMES, SPAN, close, histories, indices, weights

WINDOW = Window(3, SPAN)
half_lives = st.sampled_from([float("inf"), 15.0])
in_pieces = [
    mock.patch.object(module, "PART_RUNS", 3) for module in (demand, fairness, history, timeline)
]


def by_parts(result):
    """What a function gives when three runs are a part."""
    for patch in in_pieces:
        patch.start()
    try:
        return result()
    finally:
        for patch in in_pieces:
            patch.stop()


@given(histories(), weights, st.integers(0, 16), half_lives)
@settings(max_examples=150)
def test_tenants_indices_do_not_depend_on_the_parts(rows, weights, capacity, half_life_s):
    def result():
        window = (WINDOW.start, WINDOW.end)
        return indices(rows, weights, capacity, window=window, half_life_s=half_life_s)

    whole, parts = result(), by_parts(result)
    for name in NAMES:
        a, b = whole[name], parts[name]
        assert (a.attained_gpu_s, a.device_s) == (b.attained_gpu_s, b.device_s) or (
            half_life_s < 1e9 and close(a.attained_gpu_s, b.attained_gpu_s)
        )
        assert a.suspended_gpu_s == b.suspended_gpu_s
        assert close(
            [a.deserved_gpu_s, a.quota_gpu_s, a.entitled_gpu_s],
            [b.deserved_gpu_s, b.quota_gpu_s, b.entitled_gpu_s],
        )


@given(histories(), weights, st.integers(0, 16), half_lives)
@settings(max_examples=150)
def test_jobs_indices_do_not_depend_on_the_parts(rows, weights, capacity, half_life_s):
    def result():
        return job_fairness(
            Runs.of(rows),
            WINDOW,
            tenants=NAMES,
            tenant_of={name: name for name in NAMES},
            supply=Supply.constant(weights, capacity),
            pricing=Pricing(),
            half_life_s=half_life_s,
        )

    whole, parts = result(), by_parts(result)
    assert whole.first.tolist() == parts.first.tolist()
    for name in ("attained", "kept", "entitled"):
        assert close(getattr(whole, name), getattr(parts, name))


@given(histories())
def test_each_part_has_exactly_the_intervals_that_meet_it(rows):
    begin = np.array([max(row.eligible, 0) for row in rows], dtype=np.int64)
    end = begin + np.array([row.elapsed_s + 1 for row in rows], dtype=np.int64)
    parts = by_parts(lambda: list(in_parts(begin, end, WINDOW)))
    assert parts[0][0].start == WINDOW.start
    assert parts[-1][0].end == WINDOW.end
    assert all(a.end == b.start for (a, _), (b, _) in pairwise(parts))
    for part, found in parts:
        meets = (begin < part.end) & (end > part.start)
        assert found.tolist() == np.flatnonzero(meets).tolist()


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=1, max_size=90),
    st.lists(st.integers(0, 5), min_size=4, max_size=4),
    st.integers(0, 30),
)
@settings(max_examples=200)
def test_an_instant_is_split_as_if_it_were_alone(demands, weights, capacity):
    demand = np.array(demands, dtype=float).T / 3
    shares, room = np.array(weights, dtype=float), np.full(demand.shape[1], capacity / 3)
    together = water_fill(demand, shares, room)
    alone = [water_fill(demand[:, [i]], shares, room[[i]]) for i in range(demand.shape[1])]
    assert np.allclose(together, np.concatenate(alone, axis=1), rtol=1e-12, atol=1e-12)


def test_runs_of_one_job_that_lie_apart_are_one_job():
    first = Run("c", 7, account="a", state="REQUEUED", submit=1, eligible=1, start=2, end=5,
                elapsed_s=3, gres="gpu=1", gres_requested="gpu=1")  # fmt: skip
    other = Run("c", 3, account="a", state="COMPLETED", submit=4, eligible=4, start=4, end=9,
                elapsed_s=5, gres="gpu=2", gres_requested="gpu=2")  # fmt: skip
    again = Run("c", 7, account="a", state="COMPLETED", submit=6, eligible=6, start=8, end=12,
                elapsed_s=4, gres="gpu=1", gres_requested="gpu=1")  # fmt: skip
    found = job_fairness(
        Runs.of([again, other, first]),
        Window(0, 20),
        tenants=("a",),
        tenant_of={"a": "a"},
        supply=Supply.constant({"a": 1.0}, 4),
        pricing=Pricing(),
    )
    assert {row.job_id: (row.attained_gpu_s, row.kept_gpu_s) for row in found.rows()} == {
        "7": (7, 4),
        "3": (10, 10),
    }
