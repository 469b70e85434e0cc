"""Settings: defaults without a file, and a refusal that says what to mend."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import msgspec
import pytest

from slurm_ltgf.errors import ConfigError
from slurm_ltgf.store import config as config_module
from slurm_ltgf.store.config import Config, config_file, load_config, parsed, settings_table
from slurm_ltgf.store.config_pages import as_markdown, as_toml

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "etc" / "ltgf.toml"


def test_no_file_means_the_defaults() -> None:
    config = load_config(None)
    assert config == Config()
    assert config.site.ledger == "/var/lib/ltgf/ledger.db"
    assert config.fairness.window_s == 86400
    assert config.fairness.half_life_s == math.inf
    assert config.fairness.exclude_accounts == ("root",)
    assert config.fairness.mig_slices == {"a30": 4}
    assert (config.queue.lease_s, config.queue.starvation_s, config.queue.floor) == (
        3600,
        21600,
        0.2,
    )
    assert (config.daemon.interval_s, config.daemon.slice_s) == (30, 86400)
    assert config.sync.reader == "sacct"


def test_the_sample_file_is_all_defaults_and_names_every_setting() -> None:
    assert load_config(SAMPLE) == Config()
    tables = tomllib.loads(SAMPLE.read_text(encoding="utf-8"))
    named = [(section, key) for section, table in tables.items() for key in table]
    assert named == [(row.section, row.key) for row in settings_table()]


def test_the_sample_file_says_unit_default_and_meaning_of_each() -> None:
    text = SAMPLE.read_text(encoding="utf-8")
    for row in settings_table():
        comment = f"# {row.meaning} ({row.unit}, default {row.default})"
        assert f"{comment}\n{row.key} = {row.default}\n" in text


def test_the_sample_file_is_as_generated() -> None:
    assert SAMPLE.read_text(encoding="utf-8") == as_toml(), (
        "run: python -m slurm_ltgf.store.config_pages toml > etc/ltgf.toml"
    )


def test_the_reference_page_is_as_generated() -> None:
    page = ROOT / "docs" / "reference" / "ltgf-toml.md"
    assert page.read_text(encoding="utf-8") == as_markdown(), (
        f"run: python -m slurm_ltgf.store.config_pages md > {page}"
    )


def test_every_meaning_is_one_sentence() -> None:
    for row in settings_table():
        assert row.meaning.endswith("."), row.key
        assert "|" not in row.meaning + row.unit + row.default, row.key


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("'90s'", 90), ("'15min'", 900), ("'24h'", 86400), ("'7d'", 604800),
        ("'2w'", 1209600), ("'24 h'", 86400), ("1", 1),
    ],
)  # fmt: skip
def test_a_duration_is_seconds_or_a_number_with_its_unit(text: str, seconds: int) -> None:
    assert parsed(f"[queue]\nlease = {text}", "f").queue.lease_s == seconds
    assert parsed(f"[fairness]\nwindow = {text}", "f").fairness.window_s == seconds


def test_what_may_be_endless_has_a_word_for_it() -> None:
    fairness = parsed("[fairness]\nwindow = 'infinite'\nhalf_life = '7d'", "f").fairness
    assert (fairness.window_s, fairness.half_life_s) == (math.inf, 604800)
    assert parsed("[fairness]\nhalf_life = 'none'", "f").fairness.half_life_s == math.inf


def test_tables_and_lists_are_taken_whole() -> None:
    text = "[fairness]\nweights = { nlp = 3, cv = 0.5 }\nmig_slices = {}\ntenant_level = 2"
    fairness = parsed(text + "\n[site]\npartitions = ['gpu', 'long']", "f")
    assert fairness.fairness.weights == {"nlp": 3.0, "cv": 0.5}
    assert fairness.fairness.mig_slices == {}
    assert fairness.fairness.tenant_level == 2
    assert fairness.site.partitions == ("gpu", "long")


TIMEZONE = "must be a time zone's name like 'Europe/Berlin' or 'UTC'"
DURATION = "must be a duration of 1 s or more, like 90, '15min', '24h', '7d'"


@pytest.mark.parametrize(
    ("section", "line", "message"),
    [
        ("queue", "lease = 'soon'", f"queue.lease: {DURATION}, got 'soon'"),
        ("queue", "lease = '1.5h'", f"queue.lease: {DURATION}, got '1.5h'"),
        ("queue", "lease = 0", f"queue.lease: {DURATION}, got 0"),
        ("queue", "lease = -5", f"queue.lease: {DURATION}, got -5"),
        ("queue", "lease = true", f"queue.lease: {DURATION}, got True"),
        ("queue", "lease = 'none'", f"queue.lease: {DURATION}, got 'none'"),
        ("fairness", "window = 1.5", f"fairness.window: {DURATION} or 'infinite', got 1.5"),
        ("fairness", "window = inf", f"fairness.window: {DURATION} or 'infinite', got inf"),
        ("fairness", "window = 'none'", f"fairness.window: {DURATION} or 'infinite', got 'none'"),
        ("queue", "floor = 1.1", "queue.floor: must be a number from 0 to 1, got 1.1"),
        ("queue", "floor = nan", "queue.floor: must be a number from 0 to 1, got nan"),
        ("queue", "head = 0", "queue.head: must be a whole number >= 1, got 0"),
        ("queue", "head = 2.5", "queue.head: must be a whole number >= 1, got 2.5"),
        ("queue", "key = 'rho'", "queue.key: must be 'credit' or 'share', got 'rho'"),
        ("queue", "priority_bound = 1", "queue.priority_bound: must be true or false, got 1"),
        (
            "fairness",
            "tenant_level = 'root'",
            "fairness.tenant_level: must be 'leaf' or a whole number >= 1, got 'root'",
        ),
        (
            "fairness",
            "weights = { nlp = -1 }",
            "fairness.weights: must be a table of numbers >= 0, got {'nlp': -1}",
        ),
        (
            "fairness",
            "gpu_weights = { t4 = 0 }",
            "fairness.gpu_weights: must be a table of numbers from 1e-6 to 1e6, got {'t4': 0}",
        ),
        ("site", "partitions = 'gpu'", "site.partitions: must be a list of texts, got 'gpu'"),
        ("site", "timezone = 'Mars'", f"site.timezone: {TIMEZONE}, got 'Mars'"),
        ("queue", "laese = 5", "queue.laese: no such setting; did you mean lease?"),
        ("queues", "lease = 5", "queues: no such setting; did you mean queue?"),
        (
            "sync",
            "xyzzy = 5",
            "sync.xyzzy: no such setting; known: reader",
        ),
    ],
)  # fmt: skip
def test_a_refusal_names_file_key_what_it_must_be_and_what_it_is(
    section: str, line: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(f"[{section}]\n{line}\n", "ltgf.toml")
    assert str(caught.value) == f"ltgf.toml: {message}"


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"[queue\n", "is not TOML"), (b"queue = 3", "must be a table, got 3"), (b"\xff", "UTF-8")],
)
def test_a_file_that_is_no_settings_file_is_refused(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "ltgf.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_config(path)


def test_every_setting_refuses_a_value_of_another_kind() -> None:
    for row in settings_table():
        with pytest.raises(ConfigError) as caught:
            parsed(f"[{row.section}]\n{row.key} = [[1979-05-27]]", "f")
        assert str(caught.value).startswith(f"f: {row.section}.{row.key}: must be {row.must}, got ")


def test_settings_cannot_be_changed_by_accident() -> None:
    config = Config()
    with pytest.raises(AttributeError):
        config.queue.head = 3  # type: ignore[misc]
    assert msgspec.structs.replace(config.queue, head=3).head == 3


# Which file


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    home = tmp_path / "home" / ".config" / "ltgf" / "ltgf.toml"
    made = {"named": tmp_path / "n.toml", "environ": tmp_path / "e.toml", "home": home}
    made["system"] = tmp_path / "etc.toml"
    monkeypatch.setattr(config_module, "SYSTEM_FILE", made["system"])
    home.parent.mkdir(parents=True)
    for path in made.values():
        path.write_text("")
    return made


def test_the_nearest_file_is_taken(tmp_path: Path, places: dict[str, Path]) -> None:
    environ = {"HOME": str(tmp_path / "home"), "LTGF_CONFIG": str(places["environ"])}
    assert config_file(places["named"], environ) == places["named"]
    assert config_file(None, environ) == places["environ"]
    environ["LTGF_CONFIG"] = ""
    assert config_file(None, environ) == places["home"]
    places["home"].unlink()
    assert config_file(None, environ) == places["system"]
    places["system"].unlink()
    assert config_file(None, environ) is None
    assert config_file(None, {}) is None


def test_a_named_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(ConfigError, match=r"none\.toml: no such file \(--config names it\)"):
        config_file(missing, {})
    with pytest.raises(ConfigError, match=r"LTGF_CONFIG names it"):
        config_file(None, {"LTGF_CONFIG": str(missing)})


def test_a_home_that_is_closed_to_this_user_is_no_error(monkeypatch):
    def closed(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.is_file", closed)
    assert config_file(None, {"HOME": "/root"}) is None
    with pytest.raises(ConfigError, match="closed to this user"):
        config_file("/root/ltgf.toml", {})
