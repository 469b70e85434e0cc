"""When no job may be moved whatever the verdicts: each guard, its edges and its sentence."""

from dataclasses import replace

import pytest

from slurm_ltgf.core.lease_guards import (
    HOUR_S,
    Failure,
    Guards,
    Situation,
    allowance,
    broken_until,
    set_aside,
)

NOW = 1_800_000_000
L = 3600
#: A Wednesday, 12:00.
NOON = Situation(NOW, weekday=2, minute=720)
GUARDS = Guards(concurrency=4, per_hour=10, breaker=3)


def of_different(*times):
    """Failures of as many users."""
    return [Failure(time, i) for i, time in enumerate(times)]


def allowed(situation=NOON, **guards):
    return allowance(replace(GUARDS, **guards), situation, lease_s=L)


def test_without_anything_against_it_as_many_as_may_yield_at_once():
    assert allowed() == (4, "")


@pytest.mark.parametrize(
    ("window", "weekday", "minute", "is_quiet"),
    [
        ("12:00-13:00", 2, 719, False),
        ("12:00-13:00", 2, 720, True),
        ("12:00-13:00", 2, 779, True),
        ("12:00-13:00", 2, 780, False),
        ("22:00-06:00", 2, 1320, True),
        ("22:00-06:00", 2, 359, True),
        ("22:00-06:00", 2, 360, False),
        ("wed 12:00-13:00", 2, 720, True),
        ("Wed 12:00-13:00", 3, 720, False),
        ("Sun 22:00-06:00", 0, 60, True),  # Monday before six
        ("Sun 22:00-06:00", 6, 60, False),  # Sunday before six
        ("Mon 22:00-06:00", 0, 60, False),
        ("00:00-24:00", 5, 0, True),
        ("08:00-08:00", 2, 480, False),
    ],
)
def test_quiet_times(window, weekday, minute, is_quiet):
    count, why = allowed(
        replace(NOON, weekday=weekday, minute=minute), quiet=("03:00-03:01", window)
    )
    assert (count == 0) is is_quiet
    assert why == (f"it is a quiet time (lease.quiet: {window})" if is_quiet else "")


@pytest.mark.parametrize("text", ["", "8:00-9:00", "08:00", "08:00-09:00-10:00", "Day 08:00-09:00"])
def test_a_text_that_is_no_window_is_refused(text):
    with pytest.raises(ValueError, match="must be like '22:00-06:00'"):
        allowed(quiet=(text,))


@pytest.mark.parametrize(("ahead_s", "count"), [(None, 4), (L, 4), (L - 1, 0), (0, 0), (-5, 0)])
def test_nobody_yields_when_a_maintenance_begins_before_a_lease_would_be_over(ahead_s, count):
    got, why = allowed(replace(NOON, maintenance_in_s=ahead_s))
    assert got == count
    assert ("a maintenance begins in" in why) is (count == 0)
    assert "-" not in why


def test_enough_failures_within_an_hour_stop_all_moves_for_a_while():
    failed = of_different(NOW - 900, NOW - 600, NOW - 300)
    count, why = allowed(replace(NOON, failed=failed), breaker_rest_s=1000)
    assert (count, why) == (
        0,
        "3 checkpoints failed within an hour: no moves for 700 s, or until `ltgf lease --reset`",
    )
    assert allowed(replace(NOON, failed=failed), breaker_rest_s=300) == (4, "")
    assert allowed(replace(NOON, failed=failed[1:])) == (4, "")


def test_an_admin_closes_the_breaker_and_it_counts_anew():
    failed = of_different(NOW - 900, NOW - 600, NOW - 300)
    assert allowed(replace(NOON, failed=failed, reset=NOW - 300)) == (4, "")
    later = replace(NOON, failed=[*failed, *of_different(NOW - 2, NOW - 1, NOW)], reset=NOW - 300)
    assert allowed(later)[0] == 0


@pytest.mark.parametrize(
    ("failed", "until"),
    [
        ([], None),
        ([1, 2], None),
        ([1, 2, 3], 3 + 50),
        ([3, 1, 2], 3 + 50),
        ([1, 2, HOUR_S + 1], None),
        ([1, 2, HOUR_S], HOUR_S + 50),
        ([1, 2, 3, 9000], 3 + 50),
        ([1, 2, 3, 9000, 9001, 9002], 9002 + 50),
    ],
)
def test_the_last_three_within_an_hour_count(failed, until):
    assert (
        broken_until(Guards(breaker=3, breaker_rest_s=50), of_different(*failed), reset=0) == until
    )


def test_one_failure_is_enough_where_the_site_says_so():
    assert broken_until(Guards(breaker=1, breaker_rest_s=50), [Failure(7, 1)], reset=0) == 57


def test_one_users_failures_stop_his_own_jobs_and_nobody_elses():
    own = [Failure(NOW - 10 * i, 1001) for i in range(9)]
    seen = replace(NOON, failed=own)
    assert allowed(seen) == (4, "")
    assert set_aside(GUARDS, seen) == {1001: HOUR_S}
    assert set_aside(GUARDS, replace(seen, failed=own[:2])) == {}
    assert set_aside(GUARDS, replace(seen, reset=NOW)) == {}
    assert set_aside(GUARDS, replace(seen, now=NOW + HOUR_S)) == {}
    assert allowed(replace(NOON, failed=[*own, Failure(NOW, 1002)]))[0] == 0  # it is not his alone


def test_the_hourly_rate_counts_what_began_within_an_hour():
    old, new = [NOW - HOUR_S] * 50, [NOW - HOUR_S + 1, *[NOW] * 7]
    assert allowed(replace(NOON, begun=old + new)) == (2, "")
    assert allowed(replace(NOON, begun=[*new, NOW, NOW])) == (
        0,
        "jobs that yielded within an hour: 10 (lease.per_hour)",
    )


def test_those_under_way_count_among_those_at_once():
    assert allowed(replace(NOON, under_way=3)) == (1, "")
    assert allowed(replace(NOON, under_way=4)) == (
        0,
        "jobs that yield just now: 4 (lease.concurrency)",
    )
