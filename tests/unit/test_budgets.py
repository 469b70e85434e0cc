"""Budgets: what is left, when it runs out and comes back; Slurm's periods; use of account trees."""

from __future__ import annotations

import math
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from slurm_ltgf.core.model import Account, Batch, Run, Runs
from slurm_ltgf.core.quota import (
    Period,
    Terms,
    Use,
    exhausted_at,
    quota_state,
    returns_at,
    summed_up,
    worst,
)
from slurm_ltgf.core.tenants import Tree
from slurm_ltgf.errors import InputError
from slurm_ltgf.service import quota
from slurm_ltgf.service.quota_period import half_life_of, kind_of, period_of
from slurm_ltgf.slurm.budgets import Counted, parse, tres_counts
from slurm_ltgf.slurm.jobs import Queue, QueueJob
from slurm_ltgf.slurm.site import Site
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger

NOW = 1_000_000
MONTH = Period(NOW - 500_000, NOW + 500_000)
EVER = Period(0)
WEEK_S = 604800.0


def state(budget=1000, period=MONTH, terms=Terms(), **use):  # noqa: B008
    return quota_state(
        "a", budget_gpu_s=budget, use=Use(**use), period=period, now=NOW, terms=terms
    )


# --- the core -------------------------------------------------------------------------------------


def test_left_is_what_is_neither_used_nor_held():
    seen = state(used_gpu_s=300, held_gpu_s=200)
    assert (seen.left_gpu_s, seen.ratio, seen.level) == (500, 0.3, "ok")


def test_what_slurm_counts_goes_before_history():
    seen = state(used_gpu_s=61000, counted_gpu_s=400)
    assert (seen.used_gpu_s, seen.counted_gpu_s, seen.ratio) == (61000, 400, 0.4)


@pytest.mark.parametrize(
    ("use", "terms", "level"),
    [
        ({"used_gpu_s": 799}, Terms(), "ok"),
        ({"used_gpu_s": 800}, Terms(), "warn"),
        ({"used_gpu_s": 800}, Terms(warn_at=0.9), "ok"),
        ({"used_gpu_s": 1000}, Terms(), "over"),
        ({"used_gpu_s": 1000}, Terms(is_exempt=True), "exempt"),
        pytest.param({"held_gpu_s": 1000}, Terms(), "warn", id="what runs may use all"),
        pytest.param({"held_gpu_s": math.inf}, Terms(), "warn", id="a job without limit"),
    ],
)
def test_levels(use, terms, level):
    assert state(terms=terms, **use).level == level


def test_no_budget_is_no_level_and_a_budget_of_0_is_over():
    assert (state(budget=None).level, state(budget=None).left_gpu_s) == ("none", None)
    assert (state(budget=0).level, state(budget=0).ratio) == ("over", math.inf)


def test_a_budget_runs_out_at_the_recent_rate_and_comes_back_with_the_period():
    seen = state(used_gpu_s=400, rate_gpus=2)
    assert (seen.exhausted_at, seen.returns_at) == (NOW + 300, MONTH.end)


def test_what_lasts_beyond_the_period_does_not_run_out():
    seen = state(budget=10**7, rate_gpus=2)
    assert (seen.exhausted_at, seen.returns_at) == (None, None)


def test_without_periods_a_budget_that_ran_out_never_comes_back_by_itself():
    seen = state(period=EVER, used_gpu_s=1000)
    assert (seen.exhausted_at, seen.returns_at) == (NOW, None)


def test_use_that_is_forgotten_as_fast_as_it_is_made_never_exhausts_a_budget():
    steady = 1000 * math.log(2) / WEEK_S
    decaying = Period(0, None, WEEK_S)
    assert exhausted_at(1000, 0, steady, period=decaying, now=NOW) is None
    assert exhausted_at(1000, 0, steady * 1.01, period=decaying, now=NOW) is not None


@pytest.mark.parametrize("counted", [0.0, 300.0, 999.0])
def test_exhaustion_with_a_half_life_agrees_with_stepping_through_time(counted):
    decaying, rate = Period(0, None, 5000.0), 0.25
    told = exhausted_at(1000, counted, rate, period=decaying, now=0)
    step, passed = 0.5, 0.0
    while counted < 1000:
        counted = counted * 2 ** (-step / 5000) + rate * step
        passed += step
    assert told == pytest.approx(passed, rel=1e-3, abs=1.5)


def test_with_a_half_life_one_who_used_twice_the_budget_returns_after_one():
    assert returns_at(1000, 2000, period=Period(0, None, 5000.0), now=NOW) == NOW + 5000
    assert returns_at(1000, 2000, period=Period(0, NOW + 100, 5000.0), now=NOW) == NOW + 100


@pytest.mark.parametrize("wrong", [{"half_life_s": 0.0}, {"end": 5}])
def test_a_period_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        Period(5, **wrong)


def test_use_belongs_to_every_account_above_once():
    tree = Tree([Account("root"), Account("lab", "root"), Account("team", "lab")])
    assert summed_up(tree, {"team": 3, "lab": 4, "gone": 5}) == {
        "root": 7,
        "lab": 7,
        "team": 3,
        "gone": 5,
    }


def test_the_worst_level_is_the_one_to_look_at():
    assert (worst(["ok", "over", "warn"]), worst([])) == ("over", "none")


# --- Slurm's periods ------------------------------------------------------------------------------

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("kind", "start", "end"),
    [
        ("daily", "2026-10-25", "2026-10-26"),
        ("weekly", "2026-10-25", "2026-11-01"),
        ("monthly", "2026-10-01", "2026-11-01"),
        ("quarterly", "2026-10-01", "2027-01-01"),
        ("yearly", "2026-01-01", "2027-01-01"),
    ],
)
def test_periods_begin_at_local_midnight_also_over_a_change_of_the_clock(kind, start, end):
    def epoch(day):
        return int(datetime.fromisoformat(day).replace(tzinfo=BERLIN).timestamp())

    moment = int(datetime(2026, 10, 25, 13, tzinfo=BERLIN).timestamp())
    period = period_of(kind, moment, half_life_s=math.inf, zone=BERLIN)
    assert (period.start, period.end) == (epoch(start), epoch(end))


def test_slurms_words_for_periods():
    site = Site({"prioritydecayhalflife": "7-00:00:00", "priorityusageresetperiod": "MONTHLY"})
    assert (half_life_of(site), kind_of(site)) == (WEEK_S, "monthly")
    none = Site({"prioritydecayhalflife": "00:00:00", "priorityusageresetperiod": "NONE"})
    assert (half_life_of(none), kind_of(none)) == (math.inf, "none")


# --- sshare ---------------------------------------------------------------------------------------


def test_a_tres_is_found_by_its_name_wherever_it_stands():
    assert tres_counts("cpu=600000,gres/gpu=60000,gres/gpu:a100=30000") == {
        "cpu": 600000,
        "gres/gpu": 60000,
        "gres/gpu:a100": 30000,
    }
    assert tres_counts("mem=1000G,gres/gpu=5") == {"gres/gpu": 5}
    with pytest.raises(InputError, match="gpu=many"):
        tres_counts("gres/gpu=many")


def test_sshare_tells_the_tree_by_indentation_and_users_are_passed_over():
    text = (
        "root|||x=1|\n root|root|||\n a||gres/gpu=6|gres/gpu=4|gres/gpu=1\n  b|||x=1|\n c|||x=1|\n"
    )
    rows = parse(text)
    assert {name: row.parent for name, row in rows.items()} == {
        "root": "",
        "a": "root",
        "b": "a",
        "c": "root",
    }
    with pytest.raises(InputError, match="columns"):
        parse("a|b\n")


# --- all of it ------------------------------------------------------------------------------------

DAY = 86400
YEARLY = Site(
    {
        "clustername": "c",
        "prioritydecayhalflife": "00:00:00",
        "priorityusageresetperiod": "YEARLY",
        "accountingstorageenforce": "associations,limits",
    }
)
LATE = int(datetime(2026, 6, 1).timestamp())  # noqa: DTZ001 (the machine's zone, as slurmctld)


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as made:
        yield made


def run(job_id, account, start, hours, gres="gpu=2"):
    return Run(
        "c", job_id, account, "u", state="COMPLETED", submit=start, eligible=start, start=start,
        end=start + hours * 3600, elapsed_s=hours * 3600, gres=gres,
    )  # fmt: skip


def store(ledger, *rows):
    ledger.store([Batch(Runs.of(rows))], source="test", observed_at=LATE)


def view(ledger, counters, jobs=(), rules=None, site=YEARLY):
    rows = {row.account: row for row in counters}
    edges = quota.QuotaEdges("c", site, lambda: rows, lambda: Queue(tuple(jobs)))
    return quota.states(edges, ledger, Config(), rules, now=LATE)


def running(job_id, account, gpus=1, limit_s=7200, ran_s=3600):
    return QueueJob(
        job_id, account=account, state="RUNNING", submit=LATE - ran_s, eligible=LATE - ran_s,
        start=LATE - ran_s, limit_s=limit_s, gres=f"gpu={gpus}",
    )  # fmt: skip


TREE = (
    Counted("root"),
    Counted("lab", "root", {"gres/gpu": 600}, {"gres/gpu": 240}, {}),
    Counted("team", "lab"),
)


def test_use_of_the_period_and_of_running_jobs_belongs_to_the_account_with_the_budget(ledger):
    store(ledger, run(1, "team", LATE - DAY, 2), run(2, "lab", LATE - 400 * DAY, 5))
    found = {s.account: s for s in view(ledger, TREE, [running(3, "team")]).states}
    lab = found["lab"]
    # 2 GPUs for 2 h and 1 for the last hour; the run of last year is in no sum
    assert (lab.used_gpu_s, lab.held_gpu_s, lab.gpus) == (5 * 3600, 3600, 1)
    assert (lab.budget_gpu_s, lab.counted_gpu_s) == (36000, 14400)
    assert lab.left_gpu_s == 36000 - 14400 - 3600
    assert (found["team"].level, found["team"].used_gpu_s) == ("none", 5 * 3600)
    assert "root" not in found


def test_both_what_was_used_and_what_slurm_counts_after_decay_are_told(ledger):
    store(ledger, run(1, "a", LATE - DAY, 10, gres="gpu=4"))
    decaying = Site(dict(YEARLY.settings) | {"prioritydecayhalflife": "14-00:00:00"})
    rows = (Counted("a", "", {"gres/gpu": 6000}, {"gres/gpu": 2000}, {}),)
    seen = view(ledger, rows, site=decaying)
    (a,) = seen.states
    assert (a.used_gpu_s, a.counted_gpu_s, seen.decays) == (40 * 3600, 2000 * 60, True)
    assert "halves every 14 days" in seen.notes[0]
    assert "NoDecay" in seen.notes[0]


def test_a_budget_of_one_type_counts_that_type_alone(ledger):
    store(
        ledger,
        run(1, "a", LATE - DAY, 1, gres="gpu:h100=2,gpu=2"),
        run(2, "a", LATE - DAY, 1, gres="gpu:t4=8,gpu=8"),
    )
    rows = (Counted("a", "", {"gres/gpu": 600, "gres/gpu:h100": 600}, {}, {}),)
    found = {s.tres: s for s in view(ledger, rows).states}
    assert found["gres/gpu"].used_gpu_s == 10 * 3600
    assert found["gres/gpu:h100"].used_gpu_s == 2 * 3600
    assert found["gres/gpu"].counted_gpu_s is None


def test_factors_make_budgets_limits_of_billing(ledger):
    store(
        ledger,
        run(1, "a", LATE - DAY, 1, gres="gpu:h100=2,gpu=2"),
        run(2, "a", LATE - DAY, 1, gres="gpu:t4=8,gpu=8"),
    )
    rows = (Counted("a", "", {"billing": 60000}, {"billing": 24000}, {}),)
    rules = quota.Rules(factors={"t4": 0.25}, billing_per_gpu=100)
    (a,) = view(ledger, rows, rules=rules).states
    assert (a.tres, a.budget_gpu_s, a.counted_gpu_s) == ("billing", 36000, 14400)
    assert a.used_gpu_s == 4 * 3600


def test_a_job_without_limit_holds_all_that_is_left(ledger):
    (lab,) = (s for s in view(ledger, TREE, [running(3, "lab", limit_s=1 << 60)]).states)
    assert (lab.held_gpu_s, lab.left_gpu_s, lab.level) == (math.inf, -math.inf, "warn")


def test_the_forecast_goes_by_what_was_held_lately(ledger):
    store(ledger, run(1, "lab", LATE - 10 * DAY, 240, gres="gpu=1"))
    rules = quota.Rules(recent_s=2 * DAY)
    row = Counted("lab", "", {"gres/gpu": 24 * 60 * 11}, {"gres/gpu": 24 * 60 * 10}, {})
    (lab,) = view(ledger, (row,), rules=rules).states
    assert (lab.rate_gpus, lab.exhausted_at) == (1, LATE + DAY)


def test_what_makes_the_numbers_doubtful_is_said(ledger):
    loose = Site({"priorityusageresetperiod": "NONE", "accountingstorageenforce": "associations"})
    notes = "\n".join(view(ledger, TREE, site=loose, rules=quota.Rules("monthly")).notes)
    assert "never begins anew" in notes
    assert "PriorityUsageResetPeriod=NONE: set it" in notes
    assert "lacks 'limits'" in notes
    assert "`ltgf sync`" in notes


@pytest.mark.parametrize("words", ["safe", "associations,safe,qos", "all", "limits"])
def test_what_enforces_limits(words):
    assert "limits" in quota.enforced(Site({"accountingstorageenforce": words}))
