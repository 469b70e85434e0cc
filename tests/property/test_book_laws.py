"""The book kept event by event equals the integrals over the records."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_ltgf.core.book import Book
from slurm_ltgf.core.fairness import fairness
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.model import Run, Runs, Tenant, Window
from slurm_ltgf.core.plan import Hold, standings
from slurm_ltgf.core.timeline import Supply

WEIGHTS = {"a": 3.0, "b": 1.0}

jobs = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 8), st.integers(0, 200), st.integers(1, 200)),
    max_size=12,
)


@given(jobs, st.integers(1, 400), st.sampled_from([20, 100]), st.sampled_from([5, 50]))
@settings(max_examples=200)
def test_the_book_says_what_the_records_say(jobs, now, window_s, lease_s):
    book = walked(jobs, now, window_s=window_s, lease_s=lease_s)
    rows, holds = records(jobs, now)
    result = fairness(
        Runs.of(rows),
        Window(now - window_s, now),
        tenants={name: Tenant(name, weight) for name, weight in WEIGHTS.items()},
        tenant_of={name: name for name in WEIGHTS},
        supply=Supply.constant(WEIGHTS, 16),
        pricing=Pricing(),
    )
    expected = standings(result.tenants, holds, key="credit", lease_s=lease_s, now=now)
    for name in WEIGHTS:
        got = book.standing(name, now)
        for field in ("attained_gpu_s", "due_gpu_s", "quota_gpus", "held_gpus", "committed_gpu_s"):
            have, want = getattr(got, field), getattr(expected[name], field)
            assert math.isclose(have, want, abs_tol=1e-6), field


def walked(jobs, now, *, window_s, lease_s):
    """The book after all events up to now."""
    book = Book(WEIGHTS, capacity_gpus=16, window_s=window_s, lease_s=lease_s)
    events = []
    for i, (tenant, gpus, start, length) in enumerate(jobs):
        events += [(start, 1, i, tenant, gpus, length), (start + length, 0, i, tenant, gpus, 0)]
    for time, kind, i, tenant, gpus, length in sorted(events):
        if time <= now and kind:
            book.start(i, tenant, gpus, time, length)
        elif time <= now:
            book.stop(i, tenant, gpus, time)
    return book


def records(jobs, now):
    """The same as runs and as what is held now."""
    rows, holds = [], []
    for i, (tenant, gpus, start, length) in enumerate(jobs):
        end = min(start + length, now)
        if start <= now:
            times = {"eligible": start, "start": start, "end": end, "elapsed_s": end - start}
            rows.append(Run("c", i + 1, account=tenant, gres=f"gpu={gpus}", **times))
        if start <= now < start + length:
            holds.append(Hold(i + 1, tenant, gpus, start, until=start + length))
    return rows, holds
