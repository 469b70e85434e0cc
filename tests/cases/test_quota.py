"""Cases of kind quota-sacctmgr: the field log's inputs and right answers, on a model of sacctmgr.

That the model is right is seen in tests/cluster/test_quota_live.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from slurm_ltgf.cli.main import run
from slurm_ltgf.core.accounts import AccountRow, Book, UserRow
from slurm_ltgf.core.model import Batch, Run, Runs
from slurm_ltgf.core.quota_plan import plan
from slurm_ltgf.service import quota
from slurm_ltgf.service.quota_apply import Doing, apply
from slurm_ltgf.service.quota_wanted import wanted_of
from slurm_ltgf.slurm import accounts_book
from slurm_ltgf.slurm.budgets import Counted, tres_counts
from slurm_ltgf.slurm.jobs import Queue
from slurm_ltgf.slurm.sacctmgr import argv
from slurm_ltgf.slurm.site import Site
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger
from slurm_ltgf.store.quota_file import parsed
from tests.sacctmgr_model import Sacctmgr

INPUTS = Path(__file__).parent / "inputs"
NOW = 1_796_000_000
TRES = frozenset({"cpu", "billing", "gres/gpu", "gres/gpu:a100"})


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as made:
        yield made


def applied(model, toml, ledger, tmp_path):
    """What `ltgf quota apply` does with this file."""
    file, doing = parsed(toml, "quota.toml"), Doing(tmp_path / "undo", "root", "test", NOW)
    return apply(lambda book: wanted_of(file, book, {}), model.hands(), ledger, doing)


# --- QUO-01 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps_defaults", [False, True], ids=["22.05", "newer"])
def test_quo_01_default_account_first_then_removal_and_jobs_block_their_own_user_alone(
    ledger, tmp_path, keeps_defaults
):
    text = (INPUTS / "quo-01.txt").read_text()
    ann, home, other = re.findall(r"user (\w+) default=(\S+) also in (\S+);", text)[0]
    bob, job = re.findall(r"user (\w+) with running job (\d+)", text)[0]
    accounts = {name: AccountRow(name) for name in (home, other, "root")}
    accounts["root"] = AccountRow("root", "")
    rows = (UserRow(home, ann), UserRow(other, ann), UserRow(home, bob), UserRow(home, "eve"))
    book = Book(accounts, rows, {ann: home, bob: home, "eve": home}, tres=TRES)
    running = {(home, bob): (int(job),)}
    model = Sacctmgr.of(book, running=running, keeps_defaults=keeps_defaults)
    found = applied(model, f"[accounts.{home}]\nusers = []\n", ledger, tmp_path)
    told = [(one.change.kind, one.change.user, one.state, one.why) for one in found.done]
    assert told == [
        ("set default", ann, "done", ""),
        ("remove user", ann, "done", ""),
        ("remove user", bob, "blocked", f"blocked by job {job}"),
        ("remove user", "eve", "done", ""),
    ]
    after = model.book()
    assert (after.members(home), after.defaults[ann]) == ({bob}, other)
    assert not found.is_whole, "the exit status says partial"
    assert [change.user for change in found.left.changes] == [bob], "read back"


def test_quo_01_success_that_changed_nothing_is_not_success(ledger, tmp_path):
    model = Sacctmgr.of(Book({"root": AccountRow("root", ""), "a": AccountRow("a")}, tres=TRES))
    model.call = lambda argv: None  # says yes and does nothing
    found = applied(model, "[accounts.a]\nweight = 7\n", ledger, tmp_path)
    assert [(one.state, one.why) for one in found.done] == [
        ("lost", "sacctmgr took it, but it is not so")
    ]
    assert not found.is_whole


# --- QUO-03 ---------------------------------------------------------------------------------------

SACCTMGR = r"""
line=$(printf '%s|' "$@"; readlink /proc/$$/fd/0)
echo "$line" >> "$FAKE/calls"
case "$*" in
*dump*) for word; do case $word in file=*) cp "$FAKE/dump" "${word#file=}" ;; esac; done ;;
*"show qos"*) echo "normal|||" ;;
*"show tres"*) printf 'cpu|\nbilling|\ngres|gpu\n' ;;
esac
"""
SCONTROL = "echo 'ClusterName = c'; echo 'AccountingStorageEnforce = limits'"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Programs on PATH in place of Slurm's; a function that tells how they were called."""
    fakes = tmp_path / "bin"
    fakes.mkdir()
    for name, script in (("sacctmgr", SACCTMGR), ("scontrol", SCONTROL), ("sshare", ""),
                         ("squeue", "")):  # fmt: skip
        (fakes / name).write_text(f"#!/bin/sh\n{script}\n")
        (fakes / name).chmod(0o755)
    (tmp_path / "dump").write_text("Cluster - 'c':Fairshare=1\nParent - 'root'\nAccount - 'a'\n")
    (tmp_path / "quota.toml").write_text("[accounts.a]\nweight = 7\n")
    toml = f'[site]\nledger = "{tmp_path}/l.db"\nquota_file = "{tmp_path}/quota.toml"\n'
    (tmp_path / "ltgf.toml").write_text(toml)
    monkeypatch.setenv("PATH", f"{fakes}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setenv("LTGF_CONFIG", str(tmp_path / "ltgf.toml"))
    return fakes


def test_quo_03_nothing_can_ask_back_and_runaway_jobs_are_not_looked_at(site, tmp_path, capsys):
    assert (INPUTS / "quo-03.txt").read_text().startswith("run under cron: stdin=/dev/null")
    assert run(["quota", "apply"]) == 1, "the fake changes nothing, and that is seen"
    calls = [line.split("|") for line in (tmp_path / "calls").read_text().splitlines()]
    writes = [call for call in calls if "-i" in call]
    reads = [call for call in calls if "-i" not in call]
    assert len(writes) == 1
    assert writes[0][1:3] == ["modify", "account"]
    assert len(reads) > 3
    assert all("-r" in call for call in reads)
    assert all("-n" in call and "-P" in call for call in reads if "show" in call)
    assert {call[-1] for call in calls} == {"/dev/null"}
    assert "runaway" not in (tmp_path / "calls").read_text()
    assert "lost" in capsys.readouterr().out


def test_quo_03_a_sacctmgr_that_hangs_is_given_up(site, monkeypatch, capsys):
    (site / "sacctmgr").write_text("#!/bin/sh\nsleep 30\n")
    monkeypatch.setattr(accounts_book, "READ_S", 0.2)
    assert run(["quota", "plan"]) == 3
    assert capsys.readouterr().err == "ltgf: sacctmgr: no answer in 0.2 s\n"


# --- QUO-04 ---------------------------------------------------------------------------------------


def of_quo_04():
    text = (INPUTS / "quo-04.txt").read_text()
    return {
        "now": re.findall(r"current GrpTRESMins=(\S+)", text)[0],
        "hours": int(re.findall(r"(\d+) GPU-hours", text)[0]),
        "used": int(re.findall(r"(\d+) min by sacct", text)[0]),
        "raw": int(re.findall(r"GrpTRESRaw shows (\d+)", text)[0]),
        "half_life": int(re.findall(r"half-life (\d+) d", text)[0]),
    }


def test_quo_04_a_budget_is_sent_in_minutes_and_other_tres_are_not_named():
    case = of_quo_04()
    row = AccountRow("lab", minutes=accounts_book.ours(case["now"]))
    book = Book({"root": AccountRow("root", ""), "lab": row}, tres=TRES)
    file = parsed(f"[accounts.lab]\ngpu_hours = {case['hours']}\n", "quota.toml")
    (change,) = plan(wanted_of(file, book, {}), book).changes
    assert argv(change, "c")[-1] == "GrpTRESMins=gres/gpu=30000"
    (change,) = plan(wanted_of(parsed("[accounts.lab]\n", "f"), book, {}), book).changes
    assert argv(change, "c")[-1] == "GrpTRESMins=gres/gpu=-1"


def test_quo_04_the_field_is_found_by_name_not_by_place():
    assert tres_counts("cpu=600000,gres/gpu=60000,gres/gpu:a100=30000")["gres/gpu"] == 60000
    assert tres_counts("gres/gpu:a100=30000,gres/gpu=60000")["gres/gpu"] == 60000


def test_quo_04_a_key_with_a_slip_is_named_and_nothing_is_done(site, tmp_path, capsys):
    (tmp_path / "quota.toml").write_text("[accounts.lab]\ngpu_hour = 500\n")
    assert run(["quota", "apply"]) == 78
    wrong = "accounts.lab.gpu_hour: no such setting; did you mean gpu_hours?"
    assert wrong in capsys.readouterr().err
    assert not (tmp_path / "calls").exists()


def test_quo_04_both_numbers_are_told_with_a_warning(ledger):
    case = of_quo_04()
    half_life = {"prioritydecayhalflife": f"{case['half_life']}-00:00:00"}
    enforce = {"accountingstorageenforce": "associations,limits"}
    site = Site({"clustername": "c", **half_life, **enforce})
    row = Counted("lab", "", tres_counts(case["now"]), {"gres/gpu": case["raw"]}, {})
    edges = quota.QuotaEdges("c", site, lambda: {"lab": row}, Queue)
    start = NOW - case["used"] * 60
    used = Run(
        "c", 1, "lab", "u", state="COMPLETED", submit=start, eligible=start, start=start, end=NOW,
        elapsed_s=NOW - start, gres="gpu=1",
    )  # fmt: skip
    ledger.store([Batch(Runs.of([used]))], source="test", observed_at=NOW)
    seen = quota.states(edges, ledger, Config(), now=NOW)
    (lab,) = seen.states
    assert (lab.used_gpu_s, lab.counted_gpu_s) == (61000 * 60, 40000 * 60)
    assert "halves every 14 days (PriorityDecayHalfLife)" in seen.notes[0]
    assert "NoDecay" in seen.notes[0]
    still = Site(dict(site.settings) | {"prioritydecayhalflife": "00:00:00"})
    calm = quota.states(quota.QuotaEdges("c", still, lambda: {"lab": row}, Queue), ledger,
                        Config(), now=NOW)  # fmt: skip
    assert not calm.decays


# --- hostile names --------------------------------------------------------------------------------

HOSTILE = ("$(touch x)", "a;b", "a b", "x*", "`id`", "-rf", "a'b", "a,b", "n[1-3]", "a|b", "<b>")


def test_hostile_names_are_whole_arguments_or_refused(site, tmp_path, capsys):
    tables = "".join(f"[accounts.{json.dumps(name)}]\nweight = 2\n" for name in HOSTILE)
    (tmp_path / "quota.toml").write_text(tables)
    assert run(["quota", "apply"]) == 1
    calls = (tmp_path / "calls").read_text().splitlines()
    added = {call.split("|")[3] for call in calls if call.startswith("-i|add")}
    assert added == {"name=$(touch x)", "name=a;b", "name=a b", "name=x*", "name=<b>"}
    said = capsys.readouterr().out
    for name in ("`id`", "-rf", "a'b", "a,b", "n[1-3]", "a|b"):
        assert f"account {name}: cannot be: sacctmgr does not take the name {name!r}" in said


def test_a_dump_with_a_line_that_is_none_of_its_kinds_stops_everything(site, tmp_path, capsys):
    (tmp_path / "dump").write_text("Parent - 'root'\nAccount - 'a\nUser - 'b'\n")
    assert run(["quota", "apply"]) == 65
    assert "sacctmgr dump, line 2: cannot read" in capsys.readouterr().err
