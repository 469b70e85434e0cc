"""Plans of quotas being made: faults in the middle, the log, undo files, what is said before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest

from slurm_ltgf.cli import quota_plan, quota_text
from slurm_ltgf.cli.main import run
from slurm_ltgf.core.accounts import AccountRow, Book, Change, QosRow, Setting, Undo, UserRow
from slurm_ltgf.core.quota_plan import plan
from slurm_ltgf.core.quota_undo import going_back
from slurm_ltgf.core.quota_wanted import Wanted, WantedAccount
from slurm_ltgf.errors import InputError, SlurmRefused, SlurmUnavailable, UsageError
from slurm_ltgf.service import quota_apply
from slurm_ltgf.service.quota import QuotaEdges
from slurm_ltgf.service.quota_apply import Doing, apply
from slurm_ltgf.service.quota_look import look, notes_of
from slurm_ltgf.slurm import sacctmgr
from slurm_ltgf.slurm.accounts_book import parse_dump
from slurm_ltgf.slurm.budgets import Counted
from slurm_ltgf.slurm.jobs import Queue, QueueJob
from slurm_ltgf.slurm.site import Site
from slurm_ltgf.store.ledger import Ledger
from slurm_ltgf.store.quota_file import parsed
from slurm_ltgf.store.quota_undo import FORMAT, UndoFile, newest_undo, read_undo, write_undo
from tests.sacctmgr_model import Sacctmgr

NOW = 1_796_000_000
TRES = frozenset({"gres/gpu", "gres/gpu:h200", "billing", "cpu"})
KNOWN = Book(
    {"root": AccountRow("root", ""), "a": AccountRow("a"), "b": AccountRow("b")},
    (UserRow("a", "ann"), UserRow("b", "bob")),
    {"ann": "a", "bob": "b"},
    tres=TRES,
)
WANTED = Wanted((WantedAccount("a", share=5), WantedAccount("b", share=6), WantedAccount("c")))


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as made:
        yield made


@pytest.fixture
def made(ledger, tmp_path):
    """Apply what is wanted with these hands."""

    def make(hands, wanted=WANTED, by="ann"):
        doing = Doing(tmp_path / "undo", by, "quota.toml", NOW)
        return apply(lambda _: wanted, hands, ledger, doing)

    return make


def told(applied):
    return [(one.change.target, one.state) for one in applied.done]


def test_each_change_that_was_made_is_logged_with_author_and_reason(made, ledger):
    applied = made(Sacctmgr.of(KNOWN).hands())
    assert applied.is_whole
    log = ledger.audit_last(action=quota_apply.ACTION)
    assert [(w.job_id, w.old, w.new, w.actor, w.reason) for w in reversed(log)] == [
        ("account c", None, "Parent root", "ann", "add account: quota.toml"),
        ("account a", "Fairshare 1", "Fairshare 5", "ann", "set account: quota.toml"),
        ("account b", "Fairshare 1", "Fairshare 6", "ann", "set account: quota.toml"),
    ]


def test_a_second_time_there_is_nothing_to_do_and_no_undo_file(made, tmp_path):
    model = Sacctmgr.of(KNOWN)
    made(model.hands())
    again = made(model.hands())
    assert (again.done, again.undo, again.is_whole) == ((), None, True)
    assert len(list((tmp_path / "undo").iterdir())) == 1


def test_slurmdbd_that_goes_away_in_the_middle_leaves_what_was_made_named(made, ledger):
    model = Sacctmgr.of(KNOWN)
    hands, calls = model.hands(), []

    def write(change):
        calls.append(change)
        if len(calls) == 2:
            raise SlurmUnavailable("sacctmgr: Connection refused")
        return hands.write(change)

    def read():
        if len(calls) >= 2:
            raise SlurmUnavailable("sacctmgr: Connection refused")
        return hands.read()

    applied = made(replace(hands, write=write, read=read))
    assert told(applied) == [
        ("account c", "done"), ("account a", "not tried"), ("account b", "not tried"),
    ]  # fmt: skip
    assert (applied.left, applied.broken) == (None, "sacctmgr: Connection refused")
    assert len(ledger.audit_last(action=quota_apply.ACTION)) == 1
    assert made(model.hands()).is_whole, "the next one goes on"


def test_without_rights_nothing_is_changed_and_no_undo_file_lies_about(made, tmp_path):
    def write(change):
        raise SlurmRefused("no rights")

    with pytest.raises(SlurmRefused):
        made(replace(Sacctmgr.of(KNOWN).hands(), write=write))
    assert list((tmp_path / "undo").iterdir()) == []


def test_an_account_that_got_company_meanwhile_is_not_removed(made):
    model = Sacctmgr.of(KNOWN)
    hands, reads = model.hands(), []

    def read():
        reads.append(1)
        if len(reads) == 2:
            model.call(["sacctmgr", "-i", "add", "account", "name=late", "Parent=b"])
        return hands.read()

    wanted = Wanted((WantedAccount("b", absent=True),))
    applied = made(replace(hands, read=read), wanted)
    assert told(applied) == [("user bob of b", "done"), ("account b", "refused")]
    assert applied.done[1].why == "it has accounts late, which would go along"
    assert "late" in model.accounts


def test_the_undo_file_is_there_before_the_first_change(made, tmp_path):
    model = Sacctmgr.of(KNOWN)
    hands = model.hands()

    def write(change):
        assert read_undo(newest_undo(tmp_path / "undo")).by == "ann"
        return hands.write(change)

    made(replace(hands, write=write))


# --- what sacctmgr says ---------------------------------------------------------------------------

CHANGE = Change("remove user", "a", "ann")


@pytest.fixture
def said(tmp_path, monkeypatch):
    """A sacctmgr that says this and exits so."""

    def put(text, code=1):
        (tmp_path / "sacctmgr").write_text(f"#!/bin/sh\ncat <<'.'\n{text}\n.\nexit {code}\n")
        (tmp_path / "sacctmgr").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return sacctmgr.write(CHANGE, "c")

    return put


def test_jobs_that_block_are_read_from_its_answer_whatever_accounts_are_called(said):
    lines = " JobID = {}          C = c          A = slurmdbd   U = connection\n"
    text = "Error with request: Job(s) active, cancel job(s) before remove\n"
    outcome = said(text + lines.format(77) + lines.format("78_[3-5]") + lines.format(77))
    assert outcome.jobs == ("77", "78")
    assert not outcome.is_done


def test_its_other_answers(said):
    assert said("", 0).is_done
    assert said(" Nothing deleted").why == "Nothing deleted"
    with pytest.raises(SlurmRefused, match="privilege"):
        said(" Your user doesn't have privilege to perform this action")
    with pytest.raises(SlurmUnavailable):
        said("sacctmgr: error: Problem talking to the database: Connection refused")


# --- undo files -----------------------------------------------------------------------------------


def test_an_undo_file_keeps_everything_and_leads_back(tmp_path):
    rows = {
        "a": AccountRow("a", "root", None, {"gres/gpu": 3}, {"cpu": 1}, (("MaxJobs", "3"),)),
        "root": AccountRow("root", ""),
    }
    users = (UserRow("a", "ann", "main", (("QOS", "-long"),)), UserRow("a", "ann"))
    coordinators = frozenset({("a", "ann")})
    qos = {"q": QosRow("q", {"gres/gpu": 1}, {}, no_decay=True)}
    before = Book(rows, users, {"ann": "a"}, coordinators, qos, TRES)
    undo = Undo(before, frozenset({"$(x)"}), frozenset({"a"}), {"ann": "a", "eve": ""})
    content = UndoFile(FORMAT, "c", NOW, "ann", "f", undo)
    first = write_undo(tmp_path / "undo", content)
    second = write_undo(tmp_path / "undo", replace(content, by="bob"))
    assert first != second
    assert read_undo(first) == content
    assert newest_undo(tmp_path / "undo") == second
    assert first.stat().st_mode & 0o777 == 0o640
    assert going_back(read_undo(first).undo).restore == before


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 1}', "\xff"])
def test_what_is_no_undo_file_is_refused(tmp_path, text):
    (tmp_path / "x").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match="is no undo file"):
        read_undo(tmp_path / "x")


def test_without_an_undo_file_there_is_nothing_to_undo(tmp_path):
    with pytest.raises(UsageError, match="has no undo file"):
        newest_undo(tmp_path)


# --- notes before a plan is made ------------------------------------------------------------------

CALM = Site(
    {
        "clustername": "c",
        "prioritydecayhalflife": "00:00:00",
        "priorityusageresetperiod": "MONTHLY",
        "accountingstorageenforce": "limits",
    }
)


def notes(toml, *, jobs=(), counters=(), site=CALM, billing=None, book=KNOWN):
    hands = Sacctmgr.of(book).hands()
    seen = look(parsed(toml, "q.toml"), hands, {})
    rows = {row.account: row for row in counters}
    edges = QuotaEdges("c", site, lambda: rows, lambda: Queue(tuple(jobs)))
    return notes_of(seen, edges, billing or {})


def test_a_budget_that_is_used_already_would_end_what_runs_there_and_below():
    deep = Book({**KNOWN.accounts, "d": AccountRow("d", "a")}, KNOWN.users, tres=TRES)
    toml = "[accounts.a]\ngpu_hours = 1\n[accounts.b]\n"
    used = (Counted("a", used={"gres/gpu": 61}),)
    jobs = (QueueJob(7, "7", account="d", state="RUNNING"), QueueJob(8, "8", account="b"))
    (ends, _) = notes(toml, jobs=jobs, counters=used, book=deep)
    assert ends == (
        "account a: the new limit of gres/gpu is used already (61 min): Slurm will end its running "
        "jobs, 7"
    )
    assert len(notes(toml, jobs=jobs[1:], counters=used, book=deep)) == 1
    safe = Site(dict(CALM.settings) | {"accountingstorageenforce": "associations,safe"})
    assert len(notes(toml, jobs=jobs, counters=used, book=deep, site=safe)) == 1


def test_removals_that_running_jobs_block_are_told():
    jobs = tuple(
        QueueJob(n, str(n), account="a", user="ann", state="RUNNING") for n in range(1, 11)
    )
    toml = "[accounts.a]\nusers = []\n[accounts.b]\n"
    assert notes(toml, jobs=jobs) == (
        "user ann of a: blocked by job 1, 2, 3, 4, 5, 6, 7, 8 and 2 more, until it has ended",
    )


def test_partitions_that_do_not_count_types_as_the_factors_say_are_told():
    toml = "[budgets]\ngpu_factors = { h200 = 1, t4 = 0.25 }\n[accounts.a]\n[accounts.b]\n"
    book = replace(KNOWN, tres=TRES | {"gres/gpu:t4", "gres/gpu:A30"})
    right = {"gres/gpu": "1", "gres/gpu:a30": "99", "gres/gpu:h200": "99.0", "gres/gpu:t4": "24"}
    for wrong in ({**right, "cpu": "1.0"}, {**right, "gres/gpu": "0"}, {}):
        (told,) = notes(toml, billing={"good": right, "bad": wrong}, book=book)
        assert told.startswith("partition bad does not count GPUs as gpu_factors says")
        weights = "GRES/gpu=1,GRES/gpu:A30=99,GRES/gpu:h200=99,GRES/gpu:t4=24"
        assert f'TRESBillingWeights="{weights}"' in told
    largest = Site(dict(CALM.settings) | {"priorityflags": "MAX_TRES"})
    (told,) = notes(toml, billing={"good": right}, book=book, site=largest)
    assert "GRES/gpu=1,GRES/gpu:A30=100,GRES/gpu:h200=100,GRES/gpu:t4=25" in told


def test_accounts_that_the_file_says_nothing_of_are_told():
    assert notes("[accounts.a]\n") == ("not in q.toml, and left alone: b",)
    assert notes("[defaults]\n[accounts.a]\n") == ()


# --- text and command -----------------------------------------------------------------------------


def test_lines_of_changes():
    account = WantedAccount("a", "b", None, {}, {"gres/gpu": 90}, frozenset())
    rows = {**KNOWN.accounts, "a": AccountRow("a", gpus={"gres/gpu": 4})}
    book = Book(rows, KNOWN.users, KNOWN.defaults, tres=TRES)
    changes = plan(Wanted((account,)), book).changes
    set_ = (
        "~ account a: Fairshare 1 -> parent; GrpTRES gres/gpu 4 -> none; "
        "GrpTRESMins gres/gpu none -> 90 (1.5 GPU-hours)"
    )
    assert [click.unstyle(quota_text.line(change)) for change in changes] == [
        "> account a: Parent root -> b",
        set_,
        "- user ann of a",
    ]
    odd = Change("set account", "a\x1b[31m", settings=(Setting("Fairshare", old="1", new="2"),))
    assert "\x1b[31m" not in quota_text.line(odd)


def test_credits_need_a_budget_a_reason_and_hours(tmp_path, monkeypatch, capsys):
    (tmp_path / "q.toml").write_text("[accounts.a]\ngpu_hours = 1\n[accounts.b]\n")
    toml = f'[site]\nledger = "{tmp_path}/l.db"\nquota_file = "{tmp_path}/q.toml"\n'
    (tmp_path / "ltgf.toml").write_text(toml)
    monkeypatch.setenv("LTGF_CONFIG", str(tmp_path / "ltgf.toml"))
    for words, why in (
        (["b", "5", "--reason", "x"], "b has no gpu_hours in"),
        (["nosuch", "5", "--reason", "x"], "nosuch has no gpu_hours in"),
        (["a", "-5", "--reason", "x"], "No such option"),
        (["a", "0", "--reason", "x"], "HOURS: must be GPU-hours > 0"),
        (["a", "inf", "--reason", "x"], "HOURS: must be GPU-hours > 0"),
        (["a", "x", "--reason", "x"], "HOURS: must be GPU-hours > 0"),
        (["a", "1e99", "--reason", "x"], "HOURS: must be GPU-hours > 0"),
        (["a", "5", "--reason", " "], "--reason: say why"),
        (["a", "5"], "Missing option '--reason'"),
    ):
        assert run(["quota", "credit", *words]) == 2, words
        assert why in capsys.readouterr().err
    assert not (tmp_path / "l.db").exists()


def test_the_author_behind_sudo_is_who_called_it(monkeypatch):
    monkeypatch.setattr(quota_plan.os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "ann")
    assert quota_plan.author() == "ann"
    monkeypatch.setattr(quota_plan.os, "geteuid", lambda: 4242424)
    assert quota_plan.author() == "4242424"


def test_an_undo_of_another_cluster_is_refused(tmp_path, monkeypatch, capsys):
    content = UndoFile(FORMAT, "other", NOW, "ann", "f", Undo(KNOWN))
    path = write_undo(tmp_path / "undo", content)
    (tmp_path / "ltgf.toml").write_text('[site]\ncluster = "mine"\n')
    monkeypatch.setenv("LTGF_CONFIG", str(tmp_path / "ltgf.toml"))
    assert run(["quota", "undo", str(path)]) == 2
    assert "is of cluster 'other', not of 'mine'" in capsys.readouterr().err
    assert json.loads(path.read_text())["cluster"] == "other"


# --- a dump ---------------------------------------------------------------------------------------


def test_a_dump_is_read_whole_with_a_users_default_and_partition():
    text = (
        "# comment\nCluster - 'c':Fairshare=1:GrpTRES=gres/gpu=30:QOS='normal'\nParent - 'root'\n"
        "User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1\n"
        "Account - 'a|b:c':Description='x:y=1':Fairshare=2147483647:"
        "GrpTRESMins=cpu=7,gres/gpu:H200=9,gres/gpu=60:GrpTRES=mem=10G,gres/gpu=2:QOS='long'\n"
        "Parent - 'a|b:c'\n"
        "User - 'ann':Partition='main':DefaultAccount='a|b:c':Coordinator='a|b:c':Fairshare=3\n"
    )
    book = parse_dump(text)
    row = book.accounts["a|b:c"]
    assert (row.parent, row.share, row.gpus) == ("root", None, {"gres/gpu": 2})
    assert row.minutes == {"gres/gpu:H200": 9, "gres/gpu": 60}
    assert dict(row.options)["GrpTRES"] == "mem=10G,gres/gpu=2"
    assert book.accounts["root"].gpus == {"gres/gpu": 30}
    assert UserRow("a|b:c", "ann", "main", (("Fairshare", "3"),)) in book.users
    assert (book.defaults["ann"], book.coordinators) == ("a|b:c", {("a|b:c", "ann")})


@pytest.mark.parametrize(
    "line", ["Account - 'a", "Akkount - 'a'", "Account - 'a':Fairshare", "Account - 'a':x", "'"]
)
def test_a_dump_that_is_damaged_is_refused_by_line(line):
    with pytest.raises(InputError, match="sacctmgr dump, line 2: "):
        parse_dump(f"Parent - 'root'\n{line}\n")


# --- the how-to -----------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "set-quotas-by-file.md"


def test_the_how_to_shows_what_its_file_changes():
    page = PAGE.read_text()
    toml = page.split("## Change it\n\n```toml\n")[1].split("```")[0]
    shown = page.split("$ ltgf quota plan\n")[1].split("```")[0]
    rows = {
        "root": AccountRow("root", ""),
        "physics": AccountRow("physics", share=60),
        "plasma": AccountRow("plasma", minutes={"gres/gpu": 60000}),
        "old-lab": AccountRow("old-lab", share=2),
    }
    pairs = (("plasma", "bob"), ("old-lab", "eve"), ("physics", "eve"), ("old-lab", "bob"))
    book = Book(
        rows,
        tuple(UserRow(*pair) for pair in pairs),
        {"bob": "plasma", "eve": "old-lab"},
        tres=TRES | {"gres/gpu:h100"},
    )
    seen = look(parsed(toml, "/etc/ltgf/quota.toml"), Sacctmgr.of(book).hands(), {})
    lines = [click.unstyle(quota_text.line(change)) for change in seen.plan.changes]
    running = QueueJob(77, "77", account="old-lab", user="bob", state="RUNNING")
    lines += [f"note: {note}" for note in notes(toml, jobs=(running,), book=book)]
    lines.append(f"{len(seen.plan.changes)} to change: ltgf quota apply\n")
    assert "\n".join(lines) == shown
