"""`ltgf init`: what the first ltgf.toml sets and suggests; the doctor has nothing against it."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from test_doctor import H200, MIXED, conf, facts, ledger, nodes

from slurm_ltgf.cli import init
from slurm_ltgf.core.model import Account
from slurm_ltgf.errors import SlurmUnavailable
from slurm_ltgf.service.doctor import examine
from slurm_ltgf.service.doctor_facts import TOML
from slurm_ltgf.service.first_config import as_toml, not_found
from slurm_ltgf.slurm.nodes import Node
from slurm_ltgf.slurm.probe import plugin_words
from slurm_ltgf.slurm.site import Partition
from slurm_ltgf.store.config import Config, load_config, parsed

EVIL = 'x"\n[queue]\nstep = 1\x1b[31m\x7f\U0001f600'
LIMITED = (Account("root"), Account("nlp", "root", 1, (1,), gpu_limit=8))
DEEP = (Account("root"), Account("lab", "root"), Account("nlp", "lab", 1, (1,)))
ALMOST = {"PriorityWeightAge": "1000000", "PriorityWeightQOS": "5"}

#: facts that are changed, lines that the file then has
CASES = [
    ({}, ['cluster = "ltgf"', 'ledger = "/l/ledger.db"']),
    ({"conf_plugin": "site_factor/ltgf", "conf_table": "/s/t"}, ['factor_table = "/s/t"']),
    ({"conf_plugin": "site_factor/ltgf"}, ['factor_table = "/run/ltgf/factors"']),
    ({}, ['#partitions = ["main"]', "# No GPUs in debug: to manage"]),
    ({"capacity": MIXED}, ['#gpu_weights = { "h200" = 1.0, "t4" = 1.0 }', "# GPUs: 8 h200, 4 t4"]),
    ({"capacity": nodes(replace(H200, gres="gpu:h200=8,mps=1600"))}, ["mps_per_gpu = 200"]),
    ({"site": conf(PriorityDecayHalfLife="7-00:00:00")}, ['#half_life = "7d"']),
    ({"site": conf(**ALMOST)}, ["step = 1000006"]),
    ({"accounts": LIMITED}, ['#weights_from = "grptres"']),
    ({"accounts": DEEP}, ["#tenant_level = 1", "# Accounts are 2 levels deep"]),
    ({"conf_records": "/s/rec"}, ['records = "/s/rec"']),
    ({"accounts": None, "unread": {"accounts": "slurmdbd is\naway"}}, ["# Not found: accounts"]),
    ({"site": conf(PriorityType="priority/basic")}, ["# PriorityType priority/basic, site"]),
]


@pytest.mark.parametrize(("changed", "lines"), CASES)
def test_a_fact_becomes_a_line(changed, lines):
    text = as_toml(facts(**changed), program="me")
    for line in lines:
        assert f"\n{line}" in text


@pytest.mark.parametrize(("changed", "lines"), CASES)
def test_the_doctor_has_nothing_to_mend_in_the_file(changed, lines):
    seen = facts(**changed)
    config = parsed(as_toml(seen, program="me"), "f")
    wrong = [f for f in examine(replace(seen, config=config)) if TOML in f.fix]
    assert wrong == []


def test_without_need_nothing_but_names_is_set():
    tables = tomllib.loads(as_toml(facts(), program="me"))
    assert tables == {"site": {"cluster": "ltgf", "ledger": "/l/ledger.db"}}


def test_every_suggestion_holds_when_it_is_taken():
    fading = conf(PriorityDecayHalfLife="1-00:00:00")
    seen = facts(capacity=MIXED, accounts=DEEP, site=fading)
    lines = as_toml(seen, program="me").splitlines()
    taken = [line[1:] if line.startswith("#") and line[1:2] != " " else line for line in lines]
    config = parsed("\n".join(taken), "f")
    assert (config.fairness.tenant_level, config.fairness.half_life_s) == (1, 86400)
    assert config.fairness.gpu_weights == {"h200": 1.0, "t4": 1.0}
    assert config.site.partitions == ("main",)


def test_hostile_names_stay_names():
    seen = facts(
        site=conf(ClusterName=EVIL, SlurmUser=EVIL, PriorityType=EVIL),
        partitions=(Partition(EVIL), Partition("main")),
        accounts=(Account("root"), Account(EVIL.lower(), "root", 1, (1,))),
        capacity=nodes(Node("n", ("main",), gres="gpu:h200=8")),
        ledger=ledger(path=Path(f"/l/{EVIL}")),
        conf_records=EVIL,
    )
    text = as_toml(seen, program="me")
    config = parsed(text, "f")
    assert (config.site.cluster, config.checkpoint.records) == (EVIL, EVIL)
    assert config.queue == Config().queue
    assert all(line.isprintable() for line in text.split("\n"))


def test_what_was_not_found_is_named_with_the_reason():
    seen = facts(capacity=None, unread={"capacity": "sinfo: no node"})
    assert not_found(seen) == ["GPU types and how many GPUs there are, mps per GPU: sinfo: no node"]


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def site(monkeypatch):
    """A site where all is well, in Slurm's place."""
    monkeypatch.setattr(init, "look", lambda _: facts())


def test_a_file_is_written_once(ltgf, site, tmp_path):
    path = tmp_path / "etc" / "ltgf.toml"
    code, out, err = ltgf("init", "-o", str(path))
    assert (code, err) == (0, "")
    assert out.startswith(f"wrote {path}\nnext:\n  install -d -o slurm -m 750 /l  #")
    assert f"\n  sudo -u slurm ltgf --config {path} doctor" in out
    assert load_config(path).site.cluster == "ltgf"
    assert path.stat().st_mode & 0o777 == 0o644
    path.write_text("mine")
    code, out, err = ltgf("init", "-o", str(path))
    assert (code, out) == (2, "")
    assert err == f"ltgf: {path}: is there; --force replaces it, -o FILE writes another\n"
    assert path.read_text() == "mine"
    assert ltgf("init", "-o", str(path), "--force")[0] == 0
    assert load_config(path).site.cluster == "ltgf"


def test_a_file_that_comes_meanwhile_is_kept(ltgf, monkeypatch, tmp_path):
    path = tmp_path / "ltgf.toml"
    monkeypatch.setattr(init, "look", lambda _: (path.write_text("mine"), facts())[1])
    assert ltgf("init", "-o", str(path))[0] == 2
    assert path.read_text() == "mine"


def test_a_dry_run_prints_the_file_and_writes_none(ltgf, site, tmp_path):
    path = tmp_path / "ltgf.toml"
    code, out, _ = ltgf("--config", str(path), "init", "--dry-run")
    assert code == 0
    assert parsed(out, "f").site.cluster == "ltgf"
    assert not path.exists()


def test_json_says_what_was_done(ltgf, site, tmp_path):
    path = tmp_path / "ltgf.toml"
    answer = json.loads(ltgf("init", "--json", "-o", str(path))[1])
    assert answer["file"] == str(path)
    assert answer["settings"] == {"site": {"cluster": "ltgf", "ledger": "/l/ledger.db"}}
    assert [row["setting"] for row in answer["suggestions"]] == ["site.partitions"]
    assert json.loads(ltgf("init", "--json", "--dry-run")[1])["file"] is None


def test_a_place_that_cannot_be_written_is_one_line(ltgf, site, tmp_path):
    code, out, err = ltgf("init", "-o", str(tmp_path / "no" / "such" / "x.toml"))
    assert (code, out) == (74, "")
    assert "cannot write: No such file or directory; -o FILE" in err


@pytest.mark.parametrize("words", [[], ["--dry-run"], ["--json"]])
def test_without_slurm_it_says_what_it_cannot_know(ltgf, monkeypatch, tmp_path, words):
    def away(_):
        raise SlurmUnavailable("scontrol: no such command on PATH")

    monkeypatch.setattr(init, "look", away)
    path = tmp_path / "ltgf.toml"
    code, out, err = ltgf("init", "-o", str(path), *words)
    assert code == 3
    assert not path.exists()
    missing = json.loads(out)["not_found"] if "--json" in words else err.splitlines()
    assert any("SlurmUser" in line for line in missing)
    assert "--json" in words or "no such command" in err


def test_words_of_the_spank_plugin_are_found_where_they_are_included(tmp_path):
    (tmp_path / "plugstack.conf").write_text("# x\ninclude p.d/*.conf\n")
    (tmp_path / "p.d").mkdir()
    (tmp_path / "p.d" / "a.conf").write_text("required other.so records=no\n")
    line = "optional /usr/lib/spank_ltgf.so rundir=/r records=/s/rec  # yes\n"
    (tmp_path / "p.d" / "b.conf").write_text(line)
    conf_file = tmp_path / "slurm.conf"
    words = {"rundir": "/r", "records": "/s/rec"}
    assert plugin_words(conf_file, "spank_ltgf.so") == words
    conf_file.write_text(f"PlugStackConfig={tmp_path}/p.d/a.conf\n")
    assert plugin_words(conf_file, "spank_ltgf.so") == {}


def test_a_plugstack_that_includes_itself_ends(tmp_path):
    (tmp_path / "plugstack.conf").write_text("include plugstack.conf\n")
    assert plugin_words(tmp_path / "slurm.conf", "spank_ltgf.so") == {}
