"""The book kept event by event equals the integrals over the records."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_ltgf.core.book import Book, split
from slurm_ltgf.core.fairness import fairness
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.model import Run, Runs, Tenant, Window
from slurm_ltgf.core.plan import Hold, standings
from slurm_ltgf.core.timeline import Supply, water_fill

WEIGHTS = {"a": 3.0, "b": 1.0, "c": 0.0}

jobs = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(1, 8),
        st.integers(0, 200),
        st.integers(0, 60),
        st.integers(1, 200),
    ),
    max_size=12,
)


@given(
    jobs,
    st.integers(1, 400),
    st.sampled_from([20, 100, math.inf]),
    st.sampled_from([math.inf, 30, 500]),
    st.sampled_from([5, 50]),
    st.sampled_from(["credit", "share"]),
)
@settings(max_examples=300, deadline=None)
def test_the_book_says_what_the_records_say(jobs, now, window_s, half_life_s, lease_s, key):
    if window_s == half_life_s == math.inf:
        window_s = now  # of an endless past, credit is what has passed
        book_window_s = math.inf
    else:
        book_window_s = window_s
        window_s = min(window_s, 100_000)  # decayed to nothing by then
    book = walked(
        jobs, now, window_s=book_window_s, half_life_s=half_life_s, lease_s=lease_s, key=key
    )
    rows, holds = records(jobs, now)
    result = fairness(
        Runs.of(rows),
        Window(now - window_s, now),
        tenants={name: Tenant(name, weight) for name, weight in WEIGHTS.items()},
        tenant_of={name: name for name in WEIGHTS},
        supply=Supply.constant(WEIGHTS, 16),
        pricing=Pricing(),
        half_life_s=half_life_s,
    )
    expected = standings(result.tenants, holds, key=key, lease_s=lease_s, now=now)
    for name in WEIGHTS:
        got = book.standing(name, now)
        for field in ("attained_gpu_s", "due_gpu_s", "quota_gpus", "held_gpus", "committed_gpu_s"):
            have, want = getattr(got, field), getattr(expected[name], field)
            assert math.isclose(have, want, rel_tol=1e-9, abs_tol=1e-6), (field, have, want)


asks = st.lists(st.floats(0, 100, allow_subnormal=False), min_size=4, max_size=4)
shares = st.lists(st.sampled_from([0.0, 0.5, 1.0, 7.0]), min_size=4, max_size=4)


@given(asks, shares, st.floats(0, 200))
def test_the_split_is_the_one_of_the_sweep(asked, weights, capacity):
    names = "abcd"
    got = split(
        capacity, dict(zip(names, asked, strict=True)), dict(zip(names, weights, strict=True))
    )
    want = water_fill(np.array(asked)[:, None], np.array(weights), np.array([capacity]))
    assert [got[name] for name in names] == pytest.approx(want[:, 0].tolist(), abs=1e-6)


def walked(jobs, now, *, lease_s, **terms):
    """The book after all events up to now."""
    book = Book(WEIGHTS, capacity_gpus=16, lease_s=lease_s, **terms)
    events = []
    for i, (tenant, gpus, eligible, wait, length) in enumerate(jobs):
        start = eligible + wait
        events += [
            (eligible, 1, i, tenant, gpus, length),
            (start, 2, i, tenant, gpus, length),
            (start + length, 0, i, tenant, gpus, 0),
        ]
    for time, kind, i, tenant, gpus, length in sorted(events):
        if time > now:
            continue
        if kind == 1:
            book.wait(tenant, gpus, time)
        elif kind == 2:
            book.start(i, tenant, gpus, time, length)
        else:
            book.stop(i, tenant, gpus, time)
    return book


def records(jobs, now):
    """The same as runs and as what is held now."""
    rows, holds = [], []
    for i, (tenant, gpus, eligible, wait, length) in enumerate(jobs):
        start = eligible + wait
        end = min(start + length, now)
        if eligible <= now:
            started = min(start, now)
            times = {"eligible": eligible, "start": started, "end": end, "elapsed_s": end - started}
            rows.append(Run("c", i + 1, account=tenant, gres=f"gpu={gpus}", **times))
        if start <= now < start + length:
            holds.append(Hold(i + 1, tenant, gpus, start, until=start + length))
    return rows, holds
