"""quota.toml: what it says, what it may not say, and a first one from what Slurm has."""

from __future__ import annotations

import math

import pytest

from slurm_ltgf.core.accounts import AccountRow, Book, QosRow, UserRow
from slurm_ltgf.core.quota_plan import plan
from slurm_ltgf.core.quota_wanted import KEEP
from slurm_ltgf.errors import ConfigError
from slurm_ltgf.service.quota_wanted import budget_min, rules_of, wanted_of
from slurm_ltgf.store.quota_file import hours_min, load_quota, parsed, shown_hours
from slurm_ltgf.store.quota_toml import toml_of

TRES = frozenset({"gres/gpu", "gres/gpu:h200", "billing", "cpu"})


def book(*rows, users=(), **more):
    accounts = {row.name: row for row in (AccountRow("root", ""), *rows)}
    return Book(accounts, tuple(UserRow(a, u) for a, u in users), tres=TRES, **more)


def changes(toml, known, credits_min=None):
    """target -> what changes, as (option, tres, old, new)."""
    found = plan(wanted_of(parsed(toml, "q.toml"), known, credits_min or {}), known)
    assert found.refused == ()
    return {c.target: [(s.option, s.tres, s.old, s.new) for s in c.settings] for c in found.changes}


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ("[accounts.a", "is not TOML: Expected ']' at the end of a table declaration"),
        ("[acounts.a]", "acounts: no such setting; did you mean accounts?"),
        ("accounts = 3", "accounts: must be a table, got 3"),
        ("[accounts]\na = 3", "accounts.a: must be a table, got 3"),
        ("[accounts.a]\nwieght = 1", "accounts.a.wieght: no such setting; did you mean weight?"),
        ("[accounts.a]\nweight = inf", "weight: must be a whole number from 0 to 2147483646, or"),
        ("[accounts.a]\nweight = 2147483647", "or 'parent', got 2147483647"),
        ("[accounts.a]\nweight = -1", "got -1"),
        ("[accounts.a]\nweight = 'par'", "got 'par'"),
        ("[accounts.a]\nweight = 1.5", "got 1.5"),
        ("[accounts.a]\ngpus = true", "accounts.a.gpus: must be a whole number from 0"),
        ("[accounts.a]\ngpus = -1", "accounts.a.gpus: must be a whole number from 0"),
        ("[accounts.a]\ngpu_hours = 0.33", "accounts.a.gpu_hours: must be a number of GPU-hours"),
        ("[accounts.a]\ngpu_hours = nan", "accounts.a.gpu_hours: must be"),
        ("[accounts.a]\ngpu_hours = '3h'", "accounts.a.gpu_hours: must be"),
        ("[accounts.a]\ngpu_hours = '1:60'", "accounts.a.gpu_hours: must be"),
        ("[accounts.a]\ngpu_type_hours = { h = 0.33 }", "accounts.a.gpu_type_hours: must be"),
        ("[accounts.a]\ngpu_type_hours = { h = 'none' }", "accounts.a.gpu_type_hours: must be"),
        ("[accounts.a]\nusers = 'bob'", "accounts.a.users: must be a list of texts, got 'bob'"),
        ("[accounts.a]\nabsent = true\ngpus = 1", "that is to be absent has no other keys"),
        ("[accounts.a]\n[accounts.A]", "accounts.A: there is another of this name"),
        ("[budgets]\nperiod = 'hourly'", "budgets.period: must be 'slurm', 'none', 'daily'"),
        ("[budgets]\nwarn_at = 80", "budgets.warn_at: must be from 0 to 1, got 80"),
        ("[budgets]\ngpu_factors = { h = -1 }", "budgets.gpu_factors: must be a table"),
        ("[qos.q]\nweight = 1", "qos.q.weight: no such setting"),
        ("[defaults]\nusers = []", "defaults.users: no such setting"),
    ],
)
def test_what_a_file_may_not_say_is_named_in_one_line(toml, complaint):
    with pytest.raises(ConfigError) as told:
        parsed(toml, "q.toml")
    assert str(told.value).startswith("q.toml: ")
    assert complaint in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no\.toml: cannot read: No such file"):
        load_quota(tmp_path / "no.toml")
    (tmp_path / "odd").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="must be UTF-8, got byte 0"):
        load_quota(tmp_path / "odd")


@pytest.mark.parametrize("minutes", [0, 1, 6, 50, 59, 60, 90, 30000, 100000, 10**12])
def test_minutes_survive_the_file(minutes):
    hours = shown_hours(minutes)
    assert hours_min(hours.strip('"') if '"' in hours else float(hours)) == minutes


def test_hours_are_exact_and_none_is_none():
    assert (hours_min(0.1), hours_min("0:06"), hours_min("none"), hours_min(None)) == (
        6, 6, None, None,
    )  # fmt: skip
    with pytest.raises(ValueError, match="whole minutes"):
        hours_min(math.pi)


# --- what it means --------------------------------------------------------------------------------


def test_a_limit_that_is_left_out_is_no_limit_and_a_weight_stays():
    known = book(AccountRow("a", share=7, gpus={"gres/gpu": 3}, minutes={"gres/gpu:h200": 60}))
    assert changes("[accounts.a]\n", known) == {
        "account a": [("GrpTRES", "gres/gpu", "3", ""), ("GrpTRESMins", "gres/gpu:h200", "60", "")]
    }


def test_defaults_fill_what_a_named_account_leaves_out_unless_it_says_none():
    toml = "[defaults]\nweight = 2\ngpus = 4\ngpu_hours = 1\n[accounts.a]\ngpus = 'none'\nweight=3"
    assert changes(toml, book(AccountRow("a"))) == {
        "account a": [("Fairshare", "", "1", "3"), ("GrpTRESMins", "gres/gpu", "", "60")]
    }


def test_an_account_new_to_the_file_gets_defaults_for_what_it_has_none_of_and_once():
    toml = '[budgets]\nexempt = ["staff"]\n[defaults]\nweight = 2\ngpu_hours = 1\n'
    rows = (AccountRow("new"), AccountRow("set", share=9), AccountRow("staff"), AccountRow("idle"))
    known = book(*rows, users=(("new", "u"), ("set", "u"), ("staff", "u"), ("root", "root")))
    assert changes(toml, known) == {
        "account new": [("Fairshare", "", "1", "2"), ("GrpTRESMins", "gres/gpu", "", "60")],
        "account set": [("GrpTRESMins", "gres/gpu", "", "60")],
    }
    served = book(AccountRow("new", share=2, minutes={"gres/gpu": 90}), users=(("new", "u"),))
    assert changes(toml, served) == {}
    assert changes(toml.replace("[defaults]", "").split("weight")[0], known) == {}


def test_credits_and_debits_change_the_budget_never_below_nothing():
    known = book(AccountRow("a", minutes={"gres/gpu": 60}))
    toml = "[accounts.a]\ngpu_hours = 1\n"
    assert changes(toml, known, {"a": 30})["account a"][0][-1] == "90"
    assert changes(toml, known, {"a": -90})["account a"][0][-1] == "0"
    assert changes(toml, known, {"b": 30}) == {}
    assert (budget_min(parsed(toml, "q"), "a"), budget_min(parsed(toml, "q"), "b")) == (60, None)


def test_factors_make_it_a_limit_of_billing_and_without_them_billing_is_not_ours():
    toml = "[budgets]\ngpu_factors = { t4 = 0.25 }\n[accounts.a]\ngpu_hours = 2\n"
    known = book(AccountRow("a", minutes={"gres/gpu": 60, "billing": 5}))
    assert changes(toml, known) == {
        "account a": [
            ("GrpTRESMins", "billing", "5", "12000"),
            ("GrpTRESMins", "gres/gpu", "60", ""),
        ]
    }
    assert changes("[accounts.a]\ngpu_hours = 1\n", known) == {}


def test_a_qos_has_the_limits_of_the_file_and_its_flag():
    known = book(qos={"q": QosRow("q", {"gres/gpu": 2}, {}, no_decay=False)})
    assert changes("[qos.q]\ngpu_hours = 1\nno_decay = true\n", known) == {
        "QOS q": [
            ("GrpTRES", "gres/gpu", "2", ""),
            ("GrpTRESMins", "gres/gpu", "", "60"),
            ("Flags", "NoDecay", "", "NoDecay"),
        ]
    }


def test_rules_of_warnings():
    toml = (
        "[budgets]\nwarn_at = 0.5\nforecast = '2d'\nexempt = ['Staff']\nperiod = 'monthly'\n"
        "[accounts.a]\nwarn_at = 0.9\n"
    )
    rules = rules_of(parsed(toml, "q"), {"a": 2})
    assert (rules.terms("a").warn_at, rules.terms("b").warn_at) == (0.9, 0.5)
    assert rules.terms("staff").is_exempt
    assert (rules.recent_s, rules.period, rules.credits_gpu_s) == (172800, "monthly", {"a": 120})


# --- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toml", "target", "why"),
    [
        ("[accounts.a]\nparent = 'nosuch'", "account a", "its parent nosuch is not there"),
        ("[accounts.a]\nparent = 'b'\n[accounts.b]\nparent = 'a'", "account a", "a > b > a"),
        ("[accounts.a]\nparent = 'a'", "account a", "a > a"),
        ("[accounts.root]\nabsent = true", "account root", "can be neither moved nor removed"),
        ("[accounts.root]\nparent = 'a'", "account root", "can be neither moved nor removed"),
        ("[accounts.b]\nabsent = true", "account b", "c would still be below it"),
        ("[accounts.a]\ngpu_types = { x = 1 }", "account a", "gres/gpu:x is not in Accounting"),
        ("[qos.nosuch]\ngpus = 1", "QOS nosuch", "sacctmgr add qos nosuch"),
        ("[accounts.\"a,b\"]", "account a,b", "'a,b' for what it is"),
        ("[accounts.a]\nusers = ['x[1-2]']", "account a", "'x[1-2]' for what it is"),
        ("[accounts.a]\nparent = '''o'x'''", "account a", "for what it is"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name_and_the_rest_is_planned(toml, target, why):
    known = book(AccountRow("a"), AccountRow("b"), AccountRow("c", "b"), AccountRow("ok"))
    text = f"{toml}\n[accounts.ok]\nweight = 5\n"
    found = plan(wanted_of(parsed(text, "q"), known, {}), known)
    assert why in {one.target: one.why for one in found.refused}[target]
    assert [change.target for change in found.changes] == ["account ok"]


# --- a first file ---------------------------------------------------------------------------------


def test_a_first_file_says_what_is_there_whatever_its_names():
    rows = (
        AccountRow("a", "root", None, {"gres/gpu": 3}, {"gres/gpu": 50}),
        AccountRow("a b;$(x)", "a", 0, {"gres/gpu:h200": 1}, {"gres/gpu:h200": 120}),
        AccountRow("plain", "a b;$(x)", 2147483646, {}, {"billing": 7}),
    )
    qos = {"q": QosRow("q", {}, {"gres/gpu": 6000}, no_decay=True), "normal": QosRow("normal")}
    known = book(*rows, qos=qos)
    text = toml_of(known, "c")
    file = parsed(text, "first")
    assert set(file.accounts) == {"a", "a b;$(x)", "plain"}
    assert set(file.qos) == {"q"}
    wanted = wanted_of(file, known, {})
    assert plan(wanted, known).changes == ()
    assert all(account.share is not KEEP for account in wanted.accounts)
