"""Whose usage it is and what each tenant is worth: the rules of core/tenants, by their words."""

from __future__ import annotations

import pytest

from slurm_ltgf.core.model import NO_ACCOUNT, Account, Tenant
from slurm_ltgf.core.tenants import Tenancy, Tree

LAB = (
    Account("root", user_shares=(1,)),
    Account("research", "root", 60, (10, 1)),
    Account("vision", "research", 1, (10,)),
    Account("product", "root", 40, (1, None)),
)


def weights(accounts, used=(), **kwargs):
    return {t.name: t.weight for t in Tenancy(accounts, **kwargs).tenants(used)}


def test_siblings_weigh_their_raw_fairshare():
    flat = [Account("root"), Account("a", "root", 3, (1,)), Account("b", "root", 1, (7, 7))]
    assert weights(flat) == {"a": 3, "b": 1}


def test_a_single_tenant_weighs_its_own_fairshare_not_its_users():
    assert weights([Account("root"), Account("a", "root", 40, (1,))]) == {"a": 40}


def test_deeper_tenants_share_their_parents_weight():
    assert weights(LAB) == {"vision": 5, "research": 55, "product": 40}


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        pytest.param(0, {"root": 1}, id="all one tenant"),
        pytest.param(1, {"research": 60, "product": 40}, id="usage of descendants belongs above"),
        pytest.param(2, {"vision": 5, "research": 55, "product": 40}, id="shallow ones stay"),
        pytest.param(9, {"vision": 5, "research": 55, "product": 40}, id="deeper than the tree"),
    ],
)
def test_the_level_says_which_accounts_are_tenants(level, expected):
    assert weights(LAB, level=level) == expected


def test_usage_of_descendants_belongs_to_the_tenant_above_once():
    tenancy = Tenancy(LAB, level=1)
    assert [tenancy.tenant_of(n) for n in ("vision", "research", "product", "root")] == [
        "research",
        "research",
        "product",
        "root",
    ]


def test_the_level_above_counts_from_where_the_tenants_part():
    deep = [
        Account("root"),
        Account("uni", "root", 1),
        Account("a", "uni", 30, (1,)),
        Account("b", "uni", 10, (1,)),
    ]
    assert weights(deep) == {"a": 30, "b": 10}


def test_own_users_and_sub_accounts_compete_as_children():
    tree = [
        Account("root"),
        Account("dept", "root", 100, (1, 2)),
        Account("lab", "dept", 7, (1,)),
    ]
    assert weights(tree) == {"dept": 3, "lab": 7}


def test_a_parent_account_is_transparent():
    tree = [
        Account("root"),
        Account("dept", "root", None, (2, 3)),
        Account("lab", "dept", 10, (1,)),
        Account("other", "root", 5, (1,)),
    ]
    assert weights(tree) == {"dept": 5, "lab": 10, "other": 5}


def test_a_parent_account_that_is_the_tenant_gathers_what_is_below_it():
    tree = [
        Account("root"),
        Account("dept", "root", None, (2, 3)),
        Account("lab", "dept", 10, (1,)),
        Account("other", "root", 5, (1,)),
    ]
    assert weights(tree, level=1) == {"dept": 15, "other": 5}


def test_a_parent_user_brings_no_share_of_his_own():
    tree = [Account("root"), Account("d", "root", 8, (2, None)), Account("l", "d", 2, (1,))]
    assert weights(tree) == {"d": 2, "l": 2}


def test_parent_users_alone_count_one_each():
    tree = [Account("root"), Account("d", "root", 8, (None, None)), Account("l", "d", 2, (1,))]
    assert weights(tree) == {"d": 2, "l": 2}


def test_shares_0_is_no_entitlement_however_deep():
    tree = [
        Account("root"),
        Account("a", "root", 0, (5,)),
        Account("b", "root", 1, (1,)),
        Account("c", "a", 9, (1,)),
    ]
    assert weights(tree) == {"a": 0, "b": 1, "c": 0}


def test_users_with_shares_0_leave_their_account_its_weight():
    assert weights([Account("root"), Account("a", "root", 9, (0,))]) == {"a": 9}


def test_an_account_without_users_or_usage_takes_no_part():
    tree = [*LAB, Account("empty", "root", 1000), Account("hollow", "research", 88)]
    assert weights(tree) == weights(LAB)


def test_an_account_with_usage_only_takes_part():
    tree = [*LAB, Account("empty", "root", 1000)]
    assert weights(tree, used=["empty"])["empty"] == 1000


def test_an_account_slurm_no_longer_has_is_deleted_with_weight_0():
    (gone,) = [t for t in Tenancy(LAB).tenants(["gone-lab"]) if t.name == "gone-lab"]
    assert gone == Tenant("gone-lab", 0.0, deleted=True)


def test_jobs_without_account_are_a_tenant_of_their_own():
    (none,) = [t for t in Tenancy(LAB).tenants([""]) if t.name == NO_ACCOUNT]
    assert none == Tenant(NO_ACCOUNT, 0.0)


def test_names_are_one_whatever_their_case():
    assert Tenancy(LAB).tenant_of("Vision") == "vision"
    assert weights(LAB, used=["VISION"]) == weights(LAB)


def test_a_weight_given_by_the_site_beats_the_tree():
    found = weights(LAB, used=["gone"], weights={"Vision": 50, "gone": 2, "new": 1})
    assert found == {"vision": 50, "research": 55, "product": 40, "gone": 2, "new": 1}


def test_without_any_account_every_name_in_use_weighs_1():
    assert Tenancy([]).tenants(["b", "a"]) == (Tenant("a", 1.0), Tenant("b", 1.0))


def test_the_roots_own_usage_is_nobodys():
    assert "root" not in weights(LAB, used=["root"])
    assert weights(LAB, excluded=())["root"] == 1


def test_an_excluded_account_gives_its_part_to_its_siblings():
    assert weights(LAB, excluded=["root", "vision"]) == {"research": 60, "product": 40}


def test_the_tightest_limit_on_the_path_holds():
    tree = [
        Account("root"),
        Account("dept", "root", 1, gpu_limit=8),
        Account("lab", "dept", 1, (1,), gpu_limit=16),
        Account("free", "root", 1, (1,)),
    ]
    assert {t.name: t.gpu_limit for t in Tenancy(tree).tenants()} == {"lab": 8, "free": None}


def test_an_unknown_parent_counts_as_the_root():
    tree = Tree([Account("root"), Account("x", "nowhere", 2, (1,))])
    assert tree.path("x") == ("root", "x")


@pytest.mark.parametrize(
    ("accounts", "kwargs", "message"),
    [
        pytest.param([Account("a"), Account("A")], {}, "listed twice", id="twice"),
        pytest.param([Account("a", "b"), Account("b", "a")], {}, "above itself", id="loop"),
        pytest.param([], {"weights": {"a": -1}}, "must be >= 0", id="negative weight"),
        pytest.param([], {"weights": {"a": float("nan")}}, "must be >= 0", id="nan"),
        pytest.param([], {"level": -1}, "level", id="negative level"),
    ],
)
def test_what_makes_no_sense_is_refused(accounts, kwargs, message):
    with pytest.raises(ValueError, match=message):
        Tenancy(accounts, **kwargs)
