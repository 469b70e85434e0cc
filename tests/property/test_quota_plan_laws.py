"""Laws of quota plans, on a model of sacctmgr: apply(plan(wanted, actual)) is wanted, and stays."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slurm_ltgf.core.accounts import ROOT, AccountRow, Book, QosRow, UserRow
from slurm_ltgf.core.quota_plan import plan
from slurm_ltgf.core.quota_undo import going_back, of_plan
from slurm_ltgf.core.quota_wanted import KEEP, Wanted, WantedAccount
from slurm_ltgf.service.quota_apply import make
from slurm_ltgf.slurm.sacctmgr import argv
from tests.sacctmgr_model import Sacctmgr, as_dumped

NAMES = ("a", "b", "c", "d", "e$(x) y")
USERS = ("ann", "bob", "eve")
TRES = ("gres/gpu", "gres/gpu:h200")
KNOWN = frozenset({*TRES, "billing", "cpu"})

limits = st.dictionaries(st.sampled_from(TRES), st.integers(0, 3))
shares = st.none() | st.integers(0, 3)


@st.composite
def books(draw):
    """A tree of accounts with users, and QOS."""
    accounts = {ROOT: AccountRow(ROOT, "")}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        parent = draw(st.sampled_from(sorted(accounts)))
        row = AccountRow(name, parent, draw(shares), draw(limits), draw(limits))
        accounts[name] = as_dumped(row)
    below = sorted(set(accounts) - {ROOT})
    pairs = st.tuples(st.sampled_from(below), st.sampled_from(USERS)) if below else st.nothing()
    members = draw(st.sets(pairs, max_size=6)) if below else set()
    users = tuple(sorted(UserRow(a, u, "", (("Fairshare", "2"),)) for a, u in members))
    defaults = {
        user: draw(st.sampled_from(sorted(a for a, u in members if u == user)))
        for user in sorted({u for _, u in members})
    }
    qos = {"q": QosRow("q", draw(limits), draw(limits), draw(st.booleans()))}
    return Book(accounts, users, defaults, frozenset(), qos, KNOWN)


def kept_or(values):
    return st.just(KEEP) | values


wanted_accounts = st.builds(
    WantedAccount,
    name=st.sampled_from(NAMES),
    parent=kept_or(st.sampled_from((*NAMES, ROOT))),
    share=kept_or(shares),
    gpus=kept_or(limits),
    minutes=kept_or(limits),
    users=st.none() | st.frozensets(st.sampled_from(USERS)),
    absent=st.just(False),
) | st.builds(WantedAccount, name=st.sampled_from(NAMES), absent=st.just(True))

wanted_qos = st.builds(
    lambda gpus, minutes, no_decay: (QosRow("q", gpus, minutes, no_decay),),
    limits,
    limits,
    st.booleans(),
)
wants = st.builds(
    Wanted,
    accounts=st.lists(wanted_accounts, unique_by=lambda a: a.name, max_size=5).map(tuple),
    qos=st.just(())
    | st.builds(lambda g, m, d: (QosRow("q", g, m, d),), limits, limits, st.booleans()),
)


def made(book, changes, **more):
    """The book after all changes, each through sacctmgr's arguments."""
    model = Sacctmgr.of(book, **more)
    for change in changes:
        model.call(argv(change, "c"))
    return model.book()


@given(books(), wants)
def test_a_plan_that_was_made_leaves_nothing_to_do(book, wanted):
    first = plan(wanted, book)
    for keeps_defaults in (False, True):
        after = made(book, first.changes, keeps_defaults=keeps_defaults)
        again = plan(wanted, after)
        assert again.changes == ()
        assert again.refused == first.refused


@given(books(), wants)
def test_what_is_wanted_is_there_and_the_rest_is_as_it_was(book, wanted):
    found = plan(wanted, book)
    refused = {refusal.target.removeprefix("account ") for refusal in found.refused}
    after = made(book, found.changes)
    named = {account.name for account in wanted.accounts}
    for name in book.accounts.keys() - named:
        assert after.accounts[name] == book.accounts[name]
        assert after.members(name) == book.members(name)
    for account in wanted.accounts:
        if account.name in refused:
            assert after.accounts.get(account.name) == book.accounts.get(account.name)
            continue
        row = after.accounts.get(account.name)
        assert (row is None) == account.absent
        if row is not None:
            for key in ("parent", "share", "gpus", "minutes"):
                should = getattr(account, key)
                before = getattr(book.accounts.get(account.name, AccountRow(account.name)), key)
                assert getattr(row, key) == (before if should is KEEP else should)
            assert account.users in (None, after.members(account.name))


@given(books(), wants)
def test_nobody_is_left_without_a_default_account_who_has_an_account(book, wanted):
    after = made(book, plan(wanted, book).changes)
    for user in {row.user for row in after.users}:
        assert user in after.members(after.defaults[user])


@given(books(), wants)
def test_a_plan_names_what_exists_and_never_more_than_differs(book, wanted):
    for change in plan(wanted, book).changes:
        assert all(setting.old != setting.new for setting in change.settings)
        assert change.settings or change.kind in ("add user", "remove user", "remove account")


@given(books(), wants, st.data())
def test_undo_leads_back_from_wherever_a_kill_left_it(book, wanted, data):
    found = plan(wanted, book)
    undo = of_plan(found, book)
    part = data.draw(st.integers(0, len(found.changes)))
    half = made(book, found.changes[:part])
    back = plan(going_back(undo), half)
    assert back.refused == ()
    after = made(half, back.changes)
    assert after.accounts == book.accounts
    assert (after.users, after.defaults, after.qos) == (book.users, book.defaults, book.qos)
    assert plan(going_back(undo), after).changes == ()


@given(books(), wants)
def test_jobs_that_run_hinder_what_concerns_them_and_nothing_else(book, wanted):
    running = {(row.account, row.user): (77,) for row in book.users if row.user == "bob"}
    model = Sacctmgr.of(book, running=running)
    for change in plan(wanted, book).changes:
        done = make(change, model.hands())
        assert done.state == "done" or change.kind in ("remove user", "remove account")
    left = plan(wanted, model.book()).changes
    assert all(c.kind in ("remove user", "remove account") for c in left)
    kept = replace(model, running={})
    for change in left:
        kept.call(argv(change, "c"))
    assert plan(wanted, kept.book()).changes == ()
