"""Laws of core/tenants on random trees of accounts."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slurm_ltgf.core.model import Account
from slurm_ltgf.core.tenants import Tenancy, Tree

shares = st.none() | st.integers(0, 50)
levels = st.sampled_from(["leaf", 0, 1, 2, 3])


@st.composite
def trees(draw, share=shares):
    """A root and up to 12 accounts, each below an earlier one."""
    count = draw(st.integers(1, 12))
    accounts = [Account("root")]
    for i in range(count):
        parent = draw(st.sampled_from(accounts)).name
        users = tuple(draw(st.lists(share, max_size=3)))
        limit = draw(st.none() | st.integers(0, 64))
        accounts.append(Account(f"a{i}", parent, draw(share), users, limit))
    return accounts


@st.composite
def used(draw):
    return draw(st.sets(st.sampled_from([f"a{i}" for i in range(14)])))


def weights(accounts, names=(), **kwargs):
    return {t.name: t.weight for t in Tenancy(accounts, **kwargs).tenants(names)}


def alike(one, other):
    return one.keys() == other.keys() and all(
        math.isclose(one[name], other[name], rel_tol=1e-12) for name in one
    )


@given(trees(), used(), levels)
def test_weights_are_finite_and_never_negative(accounts, names, level):
    assert all(0 <= w < math.inf for w in weights(accounts, names, level=level).values())


@given(trees(), used(), levels)
def test_every_account_in_use_has_exactly_one_tenant(accounts, names, level):
    tenancy = Tenancy(accounts, level=level)
    listed = [t.name for t in tenancy.tenants(names)]
    assert len(listed) == len(set(listed))
    assert all(tenancy.tenant_of(name) in listed for name in names)


@given(trees(), levels)
def test_the_tenant_of_a_tenant_is_itself(accounts, level):
    tenancy = Tenancy(accounts, level=level)
    for account in accounts:
        tenant = tenancy.tenant_of(account.name)
        assert tenancy.tenant_of(tenant) == tenant
        assert tenant in tenancy.tree.path(account.name)


@given(trees(), used(), levels, st.randoms(use_true_random=False))
def test_the_order_of_accounts_does_not_matter(accounts, names, level, rng):
    mixed = list(accounts)
    rng.shuffle(mixed)
    expected = Tenancy(accounts, level=level).tenants(names)
    assert Tenancy(mixed, level=level).tenants(names) == expected


@given(trees(), levels)
def test_renaming_does_not_matter(accounts, level):
    def new(name):
        return f"Z{name}"[::-1] if name not in ("root", "") else name

    renamed = [replace(a, name=new(a.name), parent=new(a.parent)) for a in accounts]
    expected = {new(name).lower(): w for name, w in weights(accounts, level=level).items()}
    assert weights(renamed, level=level) == expected


@given(trees(st.integers(0, 50)), levels, st.integers(2, 9))
def test_shares_are_relative(accounts, level, factor):
    accounts = [replace(a, user_shares=a.user_shares or (1,)) for a in accounts]
    scaled = [
        replace(a, shares=a.shares * factor, user_shares=tuple(s * factor for s in a.user_shares))
        for a in accounts[1:]
    ]
    before = weights(accounts, level=level)
    after = weights([accounts[0], *scaled], level=level)
    total, total_after = sum(before.values()) or 1, sum(after.values()) or 1
    assert alike(
        {name: w / total for name, w in before.items()},
        {name: w / total_after for name, w in after.items()},
    )


@given(trees(st.integers(1, 50)), used())
def test_a_coarser_level_sums_the_finer_one(accounts, names):
    """With an entitlement everywhere, splitting a tenant shares its weight and no other's."""
    accounts = [replace(a, user_shares=a.user_shares or (1,)) for a in accounts]
    fine = weights(accounts, names, excluded=())
    coarse = Tenancy(accounts, level=1, excluded=())
    summed: dict[str, float] = {}
    for name, weight in fine.items():
        tenant = coarse.tenant_of(name)
        summed[tenant] = summed.get(tenant, 0.0) + weight
    found = {t.name: t.weight for t in coarse.tenants(names)}
    total, total_found = sum(summed.values()), sum(found.values())
    assert alike(
        {name: w / total for name, w in summed.items()},
        {name: w / total_found for name, w in found.items()},
    )


@given(trees(), levels)
def test_accounts_without_users_or_usage_change_nothing(accounts, level):
    more = [*accounts, Account("idle", "root", 33), Account("idler", "idle", None)]
    assert weights(more, level=level) == weights(accounts, level=level)


@given(trees(), used())
def test_a_given_weight_is_the_weight(accounts, names):
    found = weights(accounts, names, weights={"a0": 2.5})
    rest = weights(accounts, names)
    assert found.pop("a0") == 2.5
    rest.pop("a0", None)
    assert found == rest


@given(trees())
def test_a_limit_never_exceeds_an_ancestors(accounts):
    tree = Tree(accounts)
    limits = {t.name: t.gpu_limit for t in Tenancy(accounts).tenants()}
    for name, limit in limits.items():
        for step in tree.path(name):
            above = tree.accounts[step].gpu_limit
            assert above is None or (limit is not None and limit <= above)
