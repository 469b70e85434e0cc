"""Cases of kind accounts-tree: the field log's inputs and right answers."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from slurm_ltgf.core.model import NO_ACCOUNT, Account
from slurm_ltgf.core.tenants import Tenancy, Tree, label, moved
from slurm_ltgf.slurm.associations import of_sshare, parse
from slurm_ltgf.slurm.nodes import devices
from slurm_ltgf.slurm.text import gres_of_tres

INPUTS = Path(__file__).parent / "inputs"
SITE = [Account("root"), Account("lab-a", "root", 1, (1,)), Account("lab-b", "root", 1, (1,))]


def gpu_s(tres: str, elapsed: str) -> int:
    return sum(devices(gres_of_tres(tres)).values()) * int(elapsed)


def test_acc_01_parents_come_from_indentation():
    accounts = of_sshare((INPUTS / "acc-01.psv").read_text(), ["Account", "FairShare"])
    tree = Tree(accounts)
    assert len(accounts) == 8
    assert tree.path("plasma_sim") == ("root", "physics", "plasma", "plasma_sim")
    assert tree.parent("genomics_ml") == "genomics"
    assert [tree.depth(name) for name in ("root", "physics", "optics", "plasma_sim")] == [
        0,
        1,
        2,
        3,
    ]


def test_acc_02_parent_0_and_inf_are_read_and_entitlement_is_1000_to_1():
    accounts = of_sshare((INPUTS / "acc-02.psv").read_text())
    by_name = {account.name: account for account in accounts}
    assert by_name["root"].user_shares == (None,), "robot competes inside the account's share"
    assert by_name["lab-b"].user_shares == (0,)
    weights = {t.name: t.weight for t in Tenancy(accounts).tenants(["lab-b", "lab-c"])}
    assert weights == {"lab-b": 1000, "lab-c": 1}
    assert all(math.isfinite(weight) for weight in weights.values())


def test_acc_02_shares_0_is_no_entitlement():
    accounts = [*SITE, Account("none", "root", 0, (1,))]
    assert {t.name: t.weight for t in Tenancy(accounts).tenants()}["none"] == 0


def test_acc_04_usage_belongs_to_the_account_charged_in_any_case_and_none_is_listed():
    _, *lines = (INPUTS / "acc-04.psv").read_text().splitlines()
    tenancy = Tenancy(SITE)
    used: Counter[str] = Counter()
    by_user: Counter[str] = Counter()
    for _, user, account, elapsed, tres in (line.split("|") for line in lines):
        used[tenancy.tenant_of(account)] += gpu_s(tres, elapsed)
        by_user[user] += gpu_s(tres, elapsed)
    assert used == {"lab-a": 200, "lab-b": 300, NO_ACCOUNT: 100}
    assert by_user["ann"] == 500
    listed = {t.name: (t.weight, t.deleted) for t in tenancy.tenants(used)}
    assert listed == {"lab-a": (1, False), "lab-b": (1, False), NO_ACCOUNT: (0, False)}


def test_acc_05_a_deleted_account_keeps_its_usage_under_its_name():
    words = (INPUTS / "acc-05.txt").read_text().partition(" ; ")[0].removeprefix("sacct row ")
    _, _, account, elapsed, tres = words.split("|")
    tenancy = Tenancy(SITE)
    tenants = {t.name: t for t in tenancy.tenants([account])}
    assert gpu_s(tres, elapsed) == 28800
    assert label(tenants[tenancy.tenant_of(account)]) == "gone-lab (deleted)"
    assert {n: t.weight for n, t in tenants.items()} == {"gone-lab": 0, "lab-a": 1, "lab-b": 1}


def test_acc_05_a_moved_account_is_counted_by_the_tree_in_hand_and_noted():
    departments = [Account("root"), Account("dept1", "root"), Account("dept2", "root")]
    before = Tenancy([*departments, Account("lab-x", "dept1", 1, (1,))], level=1)
    after = Tenancy([*departments, Account("lab-x", "dept2", 1, (1,))], level=1)
    assert (before.tenant_of("lab-x"), after.tenant_of("lab-x")) == ("dept1", "dept2")
    assert moved(before.tree, after.tree) == {"lab-x": ("dept1", "dept2")}


def test_acc_06_equal_names_on_two_clusters_are_two_entitlements():
    text = (INPUTS / "acc-06.txt").read_text()
    rows = [part.split(",")[0].split("|") for part in text.split(" and ")]
    used = {(cluster, account): gpu_s(tres, s) for cluster, account, tres, s in rows}
    assert used == {("c1", "lab-a"): 3600, ("c2", "lab-a"): 3600}
    trees = parse("c1|root||||1|\nc1|lab-a|||root|1|\nc2|root||||1|\nc2|lab-a|||root|9|\n")
    weights = {c: Tenancy(accounts).tenants(["lab-a"])[0].weight for c, accounts in trees.items()}
    assert weights == {"c1": 1, "c2": 9}
    quota_gpu_s = {"c1": 10 * 3600, "c2": 100 * 3600}
    assert [used[c, "lab-a"] / quota_gpu_s[c] for c in ("c1", "c2")] == [0.1, 0.01]
