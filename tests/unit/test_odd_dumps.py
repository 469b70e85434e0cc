"""A dump through `ltgf sync` and `ltgf fairness`: what once gave a wrong number or a crash."""

from __future__ import annotations

import gzip
import io
import json
import sys
from typing import Any

import pytest

from slurm_ltgf.cli.main import run

T = 1_772_366_400  # 2026-03-01T12:00:00Z
YEAR = 365 * 86400
HEAD = "JobID|Account|Submit|Start|End|ElapsedRaw|State|AllocTRES"
NO_SUBMIT = HEAD.replace("|Submit", "")
LOCAL = "JobID|Account|Start|End|AllocTRES"


def row(job: object, account: str = "a", **given: object) -> str:
    """A run of 700 s on a GPU, some of it changed."""
    usual = {"submit": T, "start": T, "end": T + 700, "elapsed": 700, "state": "COMPLETED"}
    cells = {**usual, "tres": "gres/gpu=1,node=1", **given}
    return "|".join(map(str, (job, account, *cells.values())))


def table(*rows: str, head: str = HEAD) -> bytes:
    return "\n".join([head, *rows, ""]).encode()


class Site:
    """`ltgf` on a ledger of its own."""

    def __init__(self, folder: Any, capsys: Any, monkeypatch: Any) -> None:
        self._ledger = str(folder / "ledger.db")
        self._config = folder / "ltgf.toml"
        self._config.write_text("")
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def call(self, *words: object, stdin: bytes = b"") -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run(["--config", str(self._config), "--ledger", self._ledger, *map(str, words)])
        out, err = self._capsys.readouterr()
        return code, out, err

    def settings(self, text: str) -> None:
        self._config.write_text(text)

    def sync(self, dump: bytes, *words: str) -> dict[str, Any]:
        code, out, err = self.call("sync", "--from-file", "-", "--json", *words, stdin=dump)
        assert (code, err) == (0, "")
        report: dict[str, Any] = json.loads(out)
        return report

    def refused(self, dump: bytes) -> str:
        """The one line of a refusal."""
        code, out, err = self.call("sync", "--from-file", "-", stdin=dump)
        assert (code, out, err.count("\n")) == (65, "", 1)
        return err

    def fairness(self, start: int = T - YEAR, end: int = T + YEAR, *words: str) -> dict[str, Any]:
        asked = ("--json", "--jobs", "--capacity", 8, "-S", start, "-E", end, *words)
        code, out, err = self.call("fairness", *asked)
        assert (code, err) == (0, "")
        answer: dict[str, Any] = json.loads(out)
        return answer

    def attained(self, *given: Any) -> dict[str, float]:
        return {t["tenant"]: t["attained_gpu_s"] for t in self.fairness(*given)["tenants"]}


@pytest.fixture
def site(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return Site(tmp_path, capsys, monkeypatch)


# Counting GPUs

COUNTS = {
    "cpu=4, gres/gpu=2": 2,
    "gres/gpu=0,gres/mps=50": 0.5,
    "gres/gpu=1,gres/gpu:a100:1g.5gb=1": 1 / 7,
    "gres/gpu=1,gres/gpu:h100 1g.10gb+me=1": 1 / 7,
    "gres/gpu=1,gres/gpu:A100_3G.20GB=1": 3 / 7,
    "gres/gpu=3,gres/gpu:a100_1c.3g.20gb=3": 3 / 7,
    "gres/gpu=1,gres/gpu:A30_2g.12gb=1": 2 / 4,
}


@pytest.mark.parametrize("tres", COUNTS)
def test_counts(site, tres):
    site.sync(table(row(1, tres=tres)))
    assert site.attained() == {"a": pytest.approx(700 * COUNTS[tres])}


@pytest.mark.parametrize("gres", ["gres:gpu:2", "gres/gpu:2", "gpu=2", "7696487:2", "gpu:a100:2"])
def test_counts_of_old_slurm(site, gres):
    site.sync(table(row(1, tres=gres), head=HEAD.replace("AllocTRES", "AllocGRES")))
    assert site.attained() == {"a": 1400}


@pytest.mark.parametrize(
    "tres",
    ["1=4,2=100,1001=2", "gpu=2", "gres/gpu:=2", "GRES/GPU=2", "gres/gpu=999999999999999999999"],
)
def test_a_count_that_is_not_clear_is_named_and_not_0(site, tres):
    report = site.sync(table(row(1, tres=tres)))
    assert (report["new"], report["skipped_total"]) == (0, 1)
    assert report["skipped"][0]["reason"].startswith("alloctres: cannot read")


def test_a_weight_is_of_a_type_in_any_case(site):
    site.settings("[fairness]\ngpu_weights = { a100 = 0.5 }\n")
    site.sync(table(row(1, tres="gres/gpu=1,gres/gpu:A100=1")))
    assert site.attained() == {"a": 350}


def test_thirds_and_sevenths_together_are_exact_to_a_billionth(site):
    site.settings("[fairness]\ngpu_weights = { a100 = 0.333333 }\n")
    rows = (row(1, tres="gres/gpu:a100=1"), row(2, "b", tres="gres/gpu:1g.5gb=1"))
    site.sync(table(*rows))
    assert site.attained() == {"a": pytest.approx(233.3331), "b": pytest.approx(100, rel=1e-8)}


# Numbers that no job has


@pytest.mark.parametrize(
    "odd",
    [
        {"job": 2**32 - 1},
        {"job": 10**11},
        {"job": 10**20},
        {"job": f"7_[0-{10**20}]"},
        {"elapsed": 10**14},
    ],
)
def test_numbers_that_no_job_has_are_named(site, odd):
    report = site.sync(table(row(odd.pop("job", 2), **odd), row(1)))
    assert (report["new"], report["skipped_total"]) == (1, 1)
    assert site.attained() == {"a": 700}


@pytest.mark.parametrize("column", ["TimelimitRaw", "Suspended", "Restarts"])
def test_a_number_beyond_64_bits_is_named(site, column):
    dump = table(row(1) + f"|{10**30}", row(2) + "|1", head=f"{HEAD}|{column}")
    assert [line["line"] for line in site.sync(dump)["skipped"]] == [2]


def test_gpu_seconds_beyond_64_bits_are_exact(site):
    big = row(1, tres="gres/gpu=100000000", end=T + YEAR, elapsed=YEAR)
    site.sync(table(*(row(i, tres="gres/gpu=1,gres/gpu:a100_1g.5gb=1") for i in (2, 3)), big))
    site.settings("[fairness]\ngpu_weights = { a100 = 0.123456 }\n")
    whole = site.attained()["a"]
    assert whole == pytest.approx(10**8 * YEAR, rel=1e-9)


@pytest.mark.parametrize("weight", ["1e30", "1e-9"])
def test_weights_that_cannot_be_meant_are_refused(site, weight):
    site.settings(f"[fairness]\ngpu_weights = {{ a100 = {weight} }}\n")
    code, _, err = site.call("sync", "--from-file", "-", stdin=table())
    assert (code, "gpu_weights" in err) == (78, True)


@pytest.mark.parametrize("moment", ["9" * 30, "now-99999999999999weeks", "now-9999999weeks"])
def test_a_window_outside_of_time_is_refused(site, moment):
    site.sync(table(row(1)))
    code, _, err = site.call("fairness", "-S", moment)
    assert (code, err.count("\n")) == (2, 1)


# Windows


@pytest.mark.parametrize("odd", [{"elapsed": 1000}, {"end": T - 100, "elapsed": 300}])
def test_half_windows_add_up_where_elapsed_is_beyond_the_end(site, odd):
    site.sync(table(row(1, **odd)))
    parts = [site.attained(T + a, T + a + 250)["a"] for a in range(0, 1500, 250)]
    assert sum(parts) == site.attained()["a"] == odd["elapsed"]


def test_suspended_time_adds_up_too(site):
    head = HEAD.replace("State", "Suspended|State")
    site.sync(table(row(1, elapsed="400|300"), head=head))
    parts = [site.fairness(T + a, T + a + 350)["tenants"][0] for a in (0, 350)]
    assert [part["suspended_gpu_s"] for part in parts] == [150, 150]
    assert [part["attained_gpu_s"] for part in parts] == [200, 200]


# The hour that comes twice


@pytest.mark.parametrize(
    ("dump", "used"),
    [
        (table("1|a|2026-10-25T02:50:00|2026-10-25T02:10:00|gres/gpu=1", head=LOCAL), 1200),
        (
            table("1|a|2026-10-25T02:50:00|2026-10-25T02:10:00|Unknown|3600|RUNNING|gres/gpu=1"),
            3600,
        ),
        (
            table(
                "1|a|2026-10-25T02:50:00|2026-10-25T02:10:00|2026-10-25T02:40:00|1800|X|gres/gpu=1"
            ),
            1800,
        ),
    ],
)
def test_no_job_ends_before_it_starts_or_starts_before_its_submission(site, dump, used):
    site.sync(dump, "--timezone", "Europe/Berlin")
    assert site.attained() == {"a": used}


def test_no_job_starts_before_it_is_eligible(site):
    """A clock was set twice here, so that End - Start is not Elapsed; Start is in winter time."""
    head = "JobID|Account|Eligible|Start|End|ElapsedRaw|AllocTRES"
    times = "2026-11-01T06:00:52Z|2026-11-01T01:47:03|2026-11-01T02:31:25|5325"
    site.sync(table(f"1|a|{times}|gres/gpu=1", head=head), "--timezone", "America/New_York")
    (job,) = site.fairness()["jobs"]
    assert job["attained_gpu_s"] == 5325
    assert site.fairness()["meta"]["known_until"] == 1_793_515_623 + 5325


# Whose it is


def test_accounts_of_another_cluster_take_no_share(site):
    site.sync(table("c1|" + row(1, "a"), "c2|" + row(2, "b"), head=f"Cluster|{HEAD}"))
    assert site.attained(T, T + 700, "-M", "c1") == {"a": 700}
    assert site.attained(T, T + 700, "-M", "c2") == {"b": 700}


def test_the_account_of_a_row_that_cannot_be_read_is_no_tenant(site):
    site.sync(table(row(1), row(2, "x", start="yesterday")))
    assert site.attained() == {"a": 700}


@pytest.mark.parametrize("name", ["7_{}", "7+{}"])
def test_without_raw_ids_tasks_are_jobs_of_their_own(site, name):
    requeued = row(name.format(1), state="REQUEUED")
    again = row(name.format(1), submit=T + 700, start=T + 900, end=T + 1600)
    other = row(name.format(2), submit=T + 800, start=T + 900, end=T + 1600)
    site.sync(table(requeued, again, other))
    jobs = {job["job_id"]: job["attained_gpu_s"] for job in site.fairness()["jobs"]}
    assert jobs == {name.format(1): 1400, name.format(2): 700}


@pytest.mark.parametrize(
    "other",
    [
        "1|a|{0}|{1}|700|COMPLETED|gres/gpu=1",
        "1|a|{0}|{1}|700|COMPLETED|gres/gpu:a100=1",
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_run_in_dumps_of_different_columns_is_charged_once(site, other, turned):
    dumps = [table(row(1, submit=T - 50)), table(other.format(T, T + 700), head=NO_SUBMIT)]
    for dump in reversed(dumps) if turned else dumps:
        site.sync(dump)
    answer = site.fairness()
    assert answer["tenants"][0]["attained_gpu_s"] == 700
    assert "charged once" in answer["suspects"][0]["reason"]


RAW, BOTH = (HEAD.replace("JobID", ids) for ids in ("JobIDRaw", "JobID|JobIDRaw"))


@pytest.mark.parametrize("sep", "_+")
@pytest.mark.parametrize("head", [RAW, HEAD])
def test_a_run_known_by_one_of_its_ids_and_by_both_is_charged_once(site, sep, head):
    ids = {HEAD: "7{0}{1}", RAW: "{2}", BOTH: "7{0}{1}|{2}"}
    for columns in (head, BOTH):
        tasks = (row(ids[columns].format(sep, i, 7 + i)) for i in range(3))
        site.sync(table(*tasks, head=columns))
    answer = site.fairness()
    assert answer["tenants"][0]["attained_gpu_s"] == 3 * 700
    assert answer["suspects_total"] >= 2  # the first has the id of the whole


def test_records_of_a_run_that_overlap_are_named(site):
    site.sync(table(row(1)))
    site.sync(table(row(1, start=T + 500, elapsed=200)))
    (suspect,) = site.fairness()["suspects"]
    assert suspect["reason"] == "200 s are in another record of it too: charged twice"


def test_a_history_without_any_gpu_is_not_shown_as_measured(site):
    site.sync(table(row(1, tres="billing=1,cpu=1,mem=512M,node=1")))
    assert any("AccountingStorageTRES" in text for text in site.fairness()["warnings"])
    site.sync(table(row(2)))
    assert not any("AccountingStorageTRES" in text for text in site.fairness()["warnings"])


def test_runs_that_asked_for_gpus_and_have_none_are_told(site):
    head = HEAD.replace("AllocTRES", "ReqTRES|AllocTRES")
    rows = (row(1, tres="cpu=1,gres/gpu=2|cpu=1"), row(2, tres="cpu=1,gres/gpu=2|gres/gpu=2"))
    site.sync(table(*rows, head=head))
    assert any(text.startswith("1 runs asked for GPUs") for text in site.fairness()["warnings"])


def test_gpu_time_that_is_nobodys_is_told(site):
    site.sync(table(row(1, "root"), row(2)))
    answer = site.fairness()
    assert answer["attained_gpu_s"] == 700
    assert any(text.startswith("1 runs with GPUs are of accounts") for text in answer["warnings"])


# Files


def test_a_header_once_more_is_no_row(site):
    marked = b"\xef\xbb\xbf" + table(row(2), head=HEAD.upper())
    report = site.sync(table(row(1)) * 2 + marked)
    assert (report["new"], report["skipped_total"]) == (2, 0)


@pytest.mark.parametrize(
    "head", [HEAD.replace("|Account", "|User|Account"), "Account|JobID|Start|End|AllocTRES"]
)
@pytest.mark.parametrize("name", ["", "|JobName"])
def test_a_header_of_other_columns_is_refused(site, head, name):
    other = table("|".join("1" for _ in head.split("|")), head=head)
    both = table(row(1) + name, head=HEAD + name) + other
    assert "line 3 is a header with other columns" in site.refused(both)


@pytest.mark.parametrize("dump", [b'{"jobs": []}', b'{"jobs": [], "warnings": [{}]}', table()])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_no_jobs_are_no_tenants(site, dump, mark):
    assert site.sync(gzip.compress(mark + dump))["new"] == 0
    answer = site.fairness()
    assert (answer["tenants"], answer["jobs"], answer["attained_gpu_s"]) == ([], [], 0)
    assert answer["capacity_gpu_s"] == 8 * 2 * YEAR


def test_an_answer_with_errors_is_refused(site):
    answer = {"jobs": [], "errors": [{"description": "Unable to connect to database"}]}
    assert "Unable to connect to database" in site.refused(json.dumps(answer).encode())


@pytest.mark.parametrize("place", ["job_id", "restart_cnt"])
@pytest.mark.parametrize("number", [10**20, 1.5, "7"])
def test_an_answer_with_impossible_numbers_is_refused(site, place, number):
    job = {"job_id": 1, "state": ["RUNNING"], "tres": {"allocated": []}}
    job["time"] = {"start": T, "end": 0, "elapsed": 9}
    assert f"jobs[0].{place}" in site.refused(
        json.dumps({"jobs": [job | {place: number}]}).encode()
    )


def test_several_answers_in_one_file_are_refused(site):
    assert "one by one" in site.refused(b'{"jobs": []}\n{"jobs": []}\n')
