"""Quotas on a real sacctmgr: plans that come true and lead back, budgets that stop jobs, faults."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from commands import Ltgf
from lab import Lab, wait_until

from slurm_ltgf.core.accounts import ROOT, Book
from slurm_ltgf.core.quota_plan import plan
from slurm_ltgf.core.quota_wanted import KEEP, Wanted, WantedAccount
from slurm_ltgf.slurm.accounts_book import parse_dump
from slurm_ltgf.slurm.sacctmgr import argv
from tests.sacctmgr_model import Refused, Sacctmgr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.cluster

HOSTILE = "q $(touch /tmp/owned);<b>"
FIRST = f"""
[accounts.qtop]
weight = 8
gpus = 16
[accounts.qa]
parent = "qtop"
weight = "parent"
gpu_hours = "0:50"
gpu_type_hours = {{ h200 = 2 }}
users = ["alice"]
[accounts.qb]
parent = "qa"
weight = 0
gpu_types = {{ h200 = 3 }}
users = ["bob"]
[accounts."{HOSTILE}"]
weight = 2
"""
#: What somebody does by hand in between: to be seen, or to be kept and to come back.
BY_HAND = (
    ["modify", "account", "where", "name=qa", "set", "fairshare=6", "GrpTRES=cpu=9,mem=5G"],
    ["modify", "account", "where", "name=qb", "set", "MaxWall=60", "GrpTRESMins=cpu=7"],
    ["modify", "user", "where", "name=bob", "account=qb", "set", "QOS-=normal", "MaxJobs=4"],
    ["add", "user", "name=bob", "account=qb", "partition=main", "Fairshare=9"],
    ["modify", "user", "where", "name=bob", "set", "DefaultAccount=qb"],
    ["add", "coordinator", "account=qb", "names=bob"],
)
SECOND = """
[accounts.qa]
parent = "root"
weight = 2147483646
gpu_hours = 500
users = []
[accounts.qtop]
parent = "qa"
[accounts.qb]
absent = true
[accounts.chem]
weight = 3
gpus = 0
"""


@pytest.fixture(
    scope="module", params=["cluster", pytest.param("trixie", marks=pytest.mark.trixie)]
)
def lab(request: pytest.FixtureRequest) -> Lab:
    """A cluster of each series."""
    lab: Lab = request.getfixturevalue(request.param)
    lab.drain()
    return lab


class Quotas(Ltgf):
    """`ltgf quota` with a file of its own."""

    def file(self, toml: str) -> None:
        (self.folder / "quota.toml").write_text(toml)

    def quota(self, *args: str, rc: int = 0) -> str:
        """Run `ltgf quota ARGS`, which must exit with `rc` and complain of nothing."""
        done = self.ask("quota", *args)
        assert (done.returncode, done.stderr) == (rc, ""), f"ltgf quota {args}: {done}"
        return done.stdout

    def first_undo(self) -> str:
        return str(min((self.folder / "quota-undo").iterdir()))


@pytest.fixture
def ltgf(lab: Lab, tmp_path: Path) -> Quotas:
    """ltgf on each series."""
    return quotas(lab, tmp_path)


@pytest.fixture
def ours(cluster: Lab, tmp_path: Path) -> Iterator[Quotas]:
    """ltgf on this machine's own series; what a test applied is undone."""
    ours = quotas(cluster, tmp_path)
    yield ours
    cluster.drain()
    if (tmp_path / "quota-undo").exists():
        ours.quota("undo", ours.first_undo())


def quotas(lab: Lab, folder: Path) -> Quotas:
    folder.chmod(0o755)
    return Quotas(lab, folder, f'[site]\nquota_file = "{folder}/quota.toml"\n')


def dump(lab: Lab) -> str:
    """What `sacctmgr dump` writes of all accounts and users, in its order."""
    file = lab.state / "dumped"
    lab.run("sacctmgr", "-r", "dump", "cluster=ltgf", f"file={file}")
    return "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))


def test_a_plan_comes_true_leaves_nothing_to_do_and_leads_back_exactly(lab: Lab, ltgf: Quotas):
    was = dump(lab)
    ltgf.file(FIRST)
    planned = ltgf.quota("plan", rc=1).splitlines()
    done = ltgf.quota("apply").splitlines()
    assert done[:-1] == [line for line in planned if line[0] in "+-~>"]
    assert "nothing to change" in ltgf.quota("plan")
    rows = parse_dump(dump(lab)).accounts
    assert (rows["qa"].parent, rows["qa"].share) == ("qtop", None)
    assert rows["qa"].minutes == {"gres/gpu": 50, "gres/gpu:h200": 120}
    assert (rows["qb"].share, rows["qb"].gpus) == (0, {"gres/gpu:h200": 3})
    assert rows[HOSTILE].share == 2
    assert not os.path.lexists("/tmp/owned")
    for words in BY_HAND:
        lab.run("sacctmgr", "-i", *words)
    assert ltgf.quota("plan", rc=1).splitlines()[0] == "~ account qa: Fairshare 6 -> parent"
    middle = dump(lab)

    ltgf.file(SECOND)
    assert "~ user bob of bio: DefaultAccount qb -> bio" in ltgf.quota("apply")
    assert "nothing to change" in ltgf.quota("apply")
    book = parse_dump(dump(lab))
    assert "qb" not in book.accounts
    assert ("qb", "bob") not in book.coordinators
    assert (book.parent("qa"), book.parent("qtop")) == (ROOT, "qa")
    assert book.accounts["qa"].share == 2147483646
    assert dict(book.accounts["qa"].options)["GrpTRES"] == "cpu=9,mem=5G", "not ours: kept"
    assert book.accounts["qa"].minutes == {"gres/gpu": 30000}
    assert book.members("qa") == frozenset()
    ltgf.quota("undo")
    assert dump(lab) == middle
    ltgf.quota("undo", ltgf.first_undo())
    assert dump(lab) == was


def test_the_model_of_sacctmgr_is_right(lab: Lab, ltgf: Quotas):
    """tests/property/test_quota_plan_laws.py stands on it."""
    choose = random.Random(4)
    names = ("qa", "qb", "qc", "q d;e")
    start = parse_dump(dump(lab))
    model = Sacctmgr.of(Book(start.accounts, start.users, start.defaults, tres=TRES))
    some = Wanted(tuple(some_account(choose, name, names) for name in names))
    for wanted in (some, Wanted(tuple(WantedAccount(name, absent=True) for name in names))):
        for change in plan(wanted, model.book()).changes:
            lab.run(*argv(change, "ltgf"))
            model.call(argv(change, "c"))
        real, told = parse_dump(dump(lab)), model.book()
        assert real.accounts.keys() == told.accounts.keys()
        for name in names:
            if name in told.accounts:
                mine, theirs = told.accounts[name], real.accounts[name]
                for key in ("parent", "share", "gpus", "minutes"):
                    assert getattr(mine, key) == getattr(theirs, key), (name, key)
        pairs = [{(r.account, r.user) for r in b.users} for b in (real, told)]
        assert pairs[0] == pairs[1]
        assert real.defaults == told.defaults


REFUSED = (
    ["add", "account", "name=qz", "cluster=c", "Parent=nosuch"],
    ["modify", "account", "where", "name=nosuch", "cluster=c", "set", "Fairshare=1"],
    ["modify", "account", "where", "name=chem", "cluster=c", "set", "GrpTRES=gres/gpu:x=1"],
    ["modify", "user", "where", "name=bob", "cluster=c", "set", "DefaultAccount=astro"],
    ["delete", "account", "where", "name=nosuch", "cluster=c"],
)


def test_what_sacctmgr_refuses_the_model_refuses(lab: Lab):
    model = Sacctmgr.of(Book(parse_dump(dump(lab)).accounts, tres=TRES))
    for words in REFUSED:
        with pytest.raises(Refused):
            model.call(["sacctmgr", "-i", *words])
        real = [word.replace("cluster=c", "cluster=ltgf") for word in words]
        with pytest.raises(AssertionError, match="exited 1"):
            lab.run("sacctmgr", "-i", *real)


TRES = frozenset({"cpu", "mem", "billing", "gres/gpu", "gres/gpu:h200"})


def some_account(choose: random.Random, name: str, names: tuple[str, ...]) -> WantedAccount:
    if choose.random() < 0.2:
        return WantedAccount(name, absent=True)
    limits = ({}, {"gres/gpu": 3}, {"gres/gpu": 0, "gres/gpu:h200": 2})
    users = (None, frozenset(), frozenset({"alice"}), frozenset({"bob", "carol"}))
    return WantedAccount(
        name,
        choose.choice((KEEP, ROOT, *names)),
        choose.choice((KEEP, None, 0, 7)),
        choose.choice((KEEP, *limits)),
        choose.choice((KEEP, *limits)),
        choose.choice(users),
    )


def test_a_budget_stops_a_job_a_credit_lets_it_run_and_then_it_blocks_removal(
    cluster: Lab, ours: Quotas
):
    cluster.drain()
    ours.file('[accounts.qa]\ngpu_hours = 0\nusers = ["alice", "bob"]\n')
    ours.quota("apply")
    ours.run("sync")
    job = cluster.submit("bob", "-A", "qa", "--gres=gpu:2", "-t", "10")

    def reason() -> str:
        return cluster.run("squeue", "-h", "-o", "%r", "-j", str(job)).strip()

    wait_until(lambda: reason() == "AssocGrpGRESMinutes", 20, reason)
    ours.quota("credit", "qa", "1:30", "--reason", "deadline; $(id)")
    ours.quota("debit", "qa", "0.5", "--reason", "joke")
    assert ours.quota("apply").startswith(
        "~ account qa: GrpTRESMins gres/gpu 0 -> 60 (0 -> 1 GPU-hours)\n"
    )
    cluster.wait_state(job, "RUNNING")
    (row,) = ours.json("quota", "show", "-A", "qa")["accounts"]
    assert (row["budget_gpu_s"], row["credit_gpu_s"], row["gpus"]) == (3600, 3600, 2)
    assert 1150 < row["held_gpu_s"] <= 1200
    assert row["left_gpu_s"] == 3600 - row["counted_gpu_s"] - row["held_gpu_s"]
    given = ours.json("quota", "log")["credits"]
    assert [(c["gpu_s"], c["by"], c["reason"]) for c in given] == [
        (5400, "root", "deadline; $(id)"), (-1800, "root", "joke"),
    ]  # fmt: skip

    ours.file("[accounts.qa]\nweight = 4\ngpu_hours = 0\nusers = []\n")
    assert ours.quota("apply", rc=1).splitlines()[:-1] == [
        "~ account qa: Fairshare 1 -> 4",
        "- user alice of qa",
        f"- user bob of qa  blocked by job {job}",
    ]


def test_a_kill_in_the_middle_can_be_undone(cluster: Lab, ours: Quotas):
    was = dump(cluster)
    fakes, count = ours.folder / "bin", ours.folder / "count"
    fakes.mkdir()
    kill = f"echo >>{count}; [ $(wc -l <{count}) = 3 ] && kill -9 $PPID && exit 1"
    script = f'case "$*" in "-i "*) {kill} ;; esac\nPATH=${{PATH#*:}} exec sacctmgr "$@"\n'
    (fakes / "sacctmgr").write_text(f"#!/bin/sh\n{script}")
    (fakes / "sacctmgr").chmod(0o755)
    ours.file(FIRST)
    sane = cluster.env["PATH"]
    cluster.env["PATH"] = f"{fakes}:{sane}"
    try:
        assert ours.ask("quota", "apply").returncode == -9
    finally:
        cluster.env["PATH"] = sane
    there = parse_dump(dump(cluster)).accounts.keys()
    assert "qtop" in there
    assert "qb" not in there
    ours.quota("undo")
    assert dump(cluster) == was
    assert "nothing to change" in ours.quota("undo", ours.first_undo())


def test_without_slurmdbd_one_line_says_so_and_show_still_works(cluster: Lab, ours: Quotas):
    ours.file("[accounts.chem]\nweight = 9\n")
    ours.run("sync")
    cluster.stop("slurmdbd")
    try:
        done = ours.ask("quota", "apply")
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("ltgf: sacctmgr ")
        assert done.stderr.count("\n") == 1
        assert ours.json("quota", "show")["period"]["half_life_s"] is None
    finally:
        cluster.start("slurmdbd")
