"""Accounts from sacctmgr and from saved sshare output."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from slurm_ltgf.core.model import Account
from slurm_ltgf.errors import InputError, SlurmRefused, SlurmUnavailable
from slurm_ltgf.slurm import associations
from slurm_ltgf.slurm.associations import gpu_limit, of_sshare, parse, shares

RECORDED = """\
lab|root||||1|
lab|root|root|||1|
lab|product|||root|40|cpu=100,gres/gpu=20
lab|product|carol|||1|
lab|product|dave|||parent|
lab|Research|||root|60|
lab|research|bob|||10|
lab|research|bob|debug||1|
lab|vision|||research|parent|
lab|vision|alice|||10|
other|root||||1|
other|vision|||root|7|gres/gpu:a100=4,gres/gpu:h100=2
"""


def test_accounts_come_with_parent_shares_users_and_limit():
    assert parse(RECORDED)["lab"] == [
        Account("root", "", 1, (1,)),
        Account("product", "root", 40, (1, None), 20.0),
        Account("research", "root", 60, (10, 1)),
        Account("vision", "research", None, (10,)),
    ]


def test_clusters_are_kept_apart():
    assert parse(RECORDED)["other"] == [
        Account("root"),
        Account("vision", "root", 7, gpu_limit=6.0),
    ]


@pytest.mark.parametrize(
    ("text", "value"), [("parent", None), ("2147483647", None), ("0", 0), ("1000", 1000), ("", 1)]
)
def test_fairshare(text, value):
    assert shares(text) == value


def test_a_limit_that_is_none_is_none_not_0():
    assert gpu_limit("cpu=4") is None
    assert gpu_limit("gres/gpu=0") == 0


@pytest.mark.parametrize("line", ["lab|root||||1", "lab|root||||many|", "Cluster"])
def test_a_row_that_cannot_be_read_stops_the_pass(line):
    with pytest.raises(InputError, match="sacctmgr show assoc, row 2"):
        parse(f"lab|root||||1|\n{line}\n")


@pytest.fixture
def sacctmgr(tmp_path, monkeypatch):
    def make(out: str = "", err: str = "", rc: int = 0) -> Path:
        (tmp_path / "out").write_text(out)
        (tmp_path / "err").write_text(err)
        program = tmp_path / "sacctmgr"
        program.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$*" > {tmp_path}/argv\n'
            f"cat {tmp_path}/out; cat {tmp_path}/err >&2; exit {rc}\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "argv"

    return make


def test_sacctmgr_is_only_asked(sacctmgr):
    argv = sacctmgr(RECORDED)
    assert len(associations.accounts("lab")) == 4
    assert argv.read_text().startswith("-n -P -r show assoc cluster=lab format=Cluster,Account,")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param({"rc": 1, "err": "sacctmgr: error: … Connection refused"}, 75, id="away"),
        pytest.param({"rc": 0, "err": "sacctmgr: error: slurmdbd: lost"}, 75, id="rc 0"),
        pytest.param({"rc": 0}, 77, id="no such cluster"),
        pytest.param({"rc": 1, "err": "You are not running a supported …"}, 77, id="refused"),
    ],
)
def test_a_failed_sacctmgr_is_never_an_empty_tree(sacctmgr, answer, error):
    sacctmgr(**answer)
    with pytest.raises((SlurmUnavailable, SlurmRefused)) as caught:
        associations.accounts("lab")
    assert caught.value.exit_code == error


def test_a_row_of_sshare_under_no_account_is_an_error():
    with pytest.raises(InputError, match="row 2"):
        of_sshare("root|||1\n   lost||1\n")


def test_a_header_names_the_columns_of_sshare():
    text = "Account|RawShares|User\nroot||\n lab|5|\n  lab|3|ann\n"
    assert of_sshare(text) == [Account("root"), Account("lab", "root", 5, (3,))]


SHARED = Path(os.environ.get("LTGF_SHARED", Path(__file__).parents[3] / "shared"))
SSHARE = SHARED / "cases" / "files" / "SckyzO_slurm_exporter"


@pytest.mark.skipif(not SSHARE.is_dir(), reason="LTGF_SHARED: no real files here")
def test_real_sshare_files_are_read_without_crash():
    paths = sorted(SSHARE.rglob("fairshare.txt"))
    found = {str(path.relative_to(SSHARE)): of_sshare(path.read_text()) for path in paths}
    assert len(found) >= 3
    assert all(found.values())
    assert found["fairshare.txt"][2] == Account("account_b", "root", 1000, (1,))
