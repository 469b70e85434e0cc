"""`ltgf report` from a dump: numbers by hand, forms, whom it is about, what it refuses."""

import csv
import io
import json
import math
import re
import time
from pathlib import Path

import numpy as np
import pytest
from test_simulation_page import Reader

from slurm_ltgf.core.model import UNKNOWN, Run, Runs, Window
from slurm_ltgf.core.present import budget_course
from slurm_ltgf.core.quota import Period, Use, quota_state
from slurm_ltgf.core.report import silences
from slurm_ltgf.report.report_page import email_page, page
from slurm_ltgf.report.report_tables import SREPORT, TABLES
from slurm_ltgf.report.report_text import as_csv, as_markdown

HEAD = (
    "JobID|JobIDRaw|Cluster|Account|User|Partition|State|Submit|Eligible|Start|End|ElapsedRaw"
    "|AllocTRES|NodeList"
)
T0, H = 1_800_000_000, 3600
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
ROOT = Path(__file__).parents[2]


def row(job_id, account, start, end, gpus, *, eligible=0, user="ann", state="COMPLETED",
        nodes="n1", partition="gpu"):  # fmt: skip
    """A line of a dump; times in hours after T0."""
    at = [int(T0 + hour * H) for hour in (eligible, eligible, start, end)]
    return (
        f"{job_id}|{job_id}|c1|{account}|{user}|{partition}|{state}|{'|'.join(map(str, at))}"
        f"|{at[3] - at[2]}|cpu=1,gres/gpu={gpus},node=1|{nodes}"
    )


#: 4 hours, 8 GPUs, equal weights: a holds all of them for two, then b gets its four.
TWO = (row(1, "a", 0, 2, 8, nodes="n[1-2]"), row(2, "b", 2, 4, 4, user="bob", partition="big"))


@pytest.fixture
def report(ltgf, tmp_path):
    """Run `ltgf report` on a dump of these lines; the JSON, or (code, standard error)."""

    def call(*lines, args=(), window=(0, 4), capacity="8", head=HEAD):
        path = tmp_path / "dump.psv"
        path.write_text("\n".join([head, *lines, ""]), encoding="utf-8")
        since, until = (str(T0 + hour * H) for hour in window)
        words = ["report", "--from-file", str(path), "-S", since, "-E", until, "--json", *args]
        words += ["--capacity", capacity] if capacity else []
        code, out, err = ltgf(*words)
        return json.loads(out) if code == 0 else (code, err)

    return call


@pytest.fixture(scope="module")
def demo():
    from slurm_ltgf.cli.app import App
    from slurm_ltgf.cli.report import _facts
    from slurm_ltgf.report.result import result_of
    from slurm_ltgf.report.result_data import Only

    given = dict.fromkeys(
        ("window", "starttime", "endtime", "capacity", "weights", "cluster", "combined",
         "from_file", "timezone", "sreport")
    ) | {"demo": True}  # fmt: skip
    return result_of(_facts(App(None, None, False), given)[0], Only(), is_demo=True)


# --- numbers by hand ------------------------------------------------------------------------------


def test_the_answer_of_two_tenants_is_as_by_hand(report):
    found = report(*TWO)
    assert found["verdict"]["answer"] == "not fair"
    assert found["verdict"]["headline"] == (
        "1 of 2 tenants got less than they were due: b 50 % of it."
    )
    assert found["verdict"]["owed"] == [{"tenant": "b", "gpu_s": 8 * H, "share": 0.5, "rho": 0.5}]
    assert found["verdict"]["ahead"] == [{"tenant": "a", "gpu_s": 8 * H, "share": 2.0, "rho": 2.0}]
    a, b = found["tenants"]
    assert (a["attained_gpu_s"], a["entitled_gpu_s"], a["use_part"]) == (16 * H, 8 * H, 2 / 3)
    assert (b["difference_gpu_s"], b["weight_part"], b["state"]) == (-8 * H, 0.5, "loss")
    own = found["figures"]
    assert (own["busy"], own["starts"], own["median_wait_s"]) == (0.75, 2, 3600)
    assert own["free_gpu_s"] == 0


def test_the_tables_are_as_by_hand(report):
    found = report(*TWO)
    waits = {(row["tenant"], row["gpus"]): row for row in found["waits"]}
    assert waits["b", "4-7"]["median_wait_s"] == 2 * H
    assert waits["a", "8-15"] == waits["a", "all"] | {"gpus": "8-15"}
    where = {(r["partition"], r["gpu_type"], r["node"]): r["gpu_s"] for r in found["where"]}
    assert where == {("big", None, "n1"): 8 * H, ("gpu", None, "n1"): 8 * H,
                     ("gpu", None, "n2"): 8 * H}  # fmt: skip
    assert [(r["user"], r["gpu_s"], r["device_s"]) for r in found["users"]] == [
        ("ann", 16 * H, 16 * H),
        ("bob", 8 * H, 8 * H),
    ]
    assert [(r["tenant"], r["jobs"], r["loss"]) for r in found["classes"]] == [
        ("a", 1, 0),
        ("b", 1, 1),
    ]


def test_stretches_are_means_and_rho_looks_back(report):
    found = report(*TWO)["over_time"]
    half = len(found["capacity_gpus"]) // 2
    assert set(found["held_gpus"]["a"][:half]) == {8.0}
    assert set(found["held_gpus"]["a"][half:]) == {0.0}
    assert set(found["waiting_gpus"]["b"][:half]) == {4.0}
    assert found["look_back_s"] == 4 * H
    assert found["rho"]["b"][0] == 0.0
    assert found["rho"]["b"][-1] == 0.5


def test_lost_and_saved_work_of_requeued_runs(report, ltgf, tmp_path):
    lines = (row(1, "a", 0, 1, 4, state="PREEMPTED"), row(1, "a", 2, 3, 4, eligible=1),
             row(2, "a", 0, 2, 2, state="NODE_FAIL"))  # fmt: skip
    found = report(*lines)
    assert [
        (r["cause"], r["runs"], r["lost_gpu_s"], r["saved_gpu_s"]) for r in found["requeues"]
    ] == [
        ("NODE_FAIL", 1, 4 * H, 0),
        ("PREEMPTED", 1, 4 * H, 0),
    ]
    (tmp_path / "kept.toml").write_text('[fairness]\nrequeued_work = "kept"\n')
    dump, config = str(tmp_path / "dump.psv"), str(tmp_path / "kept.toml")
    window = ("-S", str(T0), "-E", str(T0 + 4 * H))
    words = ("report", "--json", "--capacity", "8", *window, "--from-file", dump)
    code, out, _ = ltgf("--config", config, *words)
    assert code == 0
    own = json.loads(out)["figures"]
    assert (own["lost_gpu_s"], own["saved_gpu_s"]) == (0, 8 * H)


def test_who_waits_at_the_end_and_who_gave_up(report):
    head = f"{HEAD}|ReqTRES"
    asked = f"{T0}|{T0}|Unknown"
    waiting = f"3|3|c1|a|ann|gpu|PENDING|{asked}|Unknown|0|||gres/gpu=2"
    gave_up = f"4|4|c1|b|bob|gpu|CANCELLED by 7|{asked}|{T0 + H}|0|||gres/gpu=2"
    ran = f"{row(5, 'b', 0, 4, 1)}|gres/gpu=1"
    found = report(waiting, gave_up, ran, head=head)
    rows = {(r["tenant"], r["gpus"]): r for r in found["waits"]}
    assert (rows["a", "all"]["waiting"], rows["a", "all"]["longest_waiting_s"]) == (1, 4 * H)
    assert rows["b", "2-3"]["left"] == 1


def test_numbers_are_those_of_ltgf_fairness(report, ltgf, tmp_path):
    found = report(*TWO, window=(1, 3))
    ltgf("sync", "--from-file", str(tmp_path / "dump.psv"))
    since, until = str(T0 + H), str(T0 + 3 * H)
    _, out, _ = ltgf("fairness", "-S", since, "-E", until, "--capacity", "8", "--json", "--jobs")
    same = json.loads(out)
    for own, other in zip(found["tenants"], same["tenants"], strict=True):
        shared = set(own) & set(other)
        assert {key: own[key] for key in shared} == {key: other[key] for key in shared}
    assert sum(r["jobs"] for r in found["classes"]) == len(same["jobs"])


# --- what it covers, what it refuses --------------------------------------------------------------


def test_a_period_that_history_does_not_cover_is_cut_and_said(report):
    found = report(*TWO, window=(-10, 20))
    assert found["period"] == {"start": T0, "end": T0 + 4 * H}
    assert found["asked"] == {"start": T0 - 10 * H, "end": T0 + 20 * H}
    assert found["figures"]["busy"] == 0.75
    assert "of the rest nothing is told" in as_markdown(found)


def test_no_history_at_all_is_an_error_with_what_to_do(report):
    code, err = report(*TWO, window=(-10, -5))
    assert code == 65
    assert "no history in the window" in err


def test_more_than_there_was_stops_the_report_with_the_rows(report):
    code, err = report(*TWO, capacity="4")
    assert code == 65
    assert "jobs held 24.0 GPU-hours and there were 16.0" in err
    assert "1 (16.0 GPU-hours), 2 (8.0 GPU-hours)" in err


def test_without_capacity_only_what_was_held_is_told(report):
    found = report(*TWO, capacity=None)
    assert found["verdict"]["answer"] == "unknown"
    assert found["figures"]["busy"] is None
    assert "0 of" not in found["verdict"]["headline"]
    for text in (page(found), as_csv(found), as_markdown(found)):
        assert not re.search(r"\bnan\b|\bNone\b(?![:.])", text)


def test_the_period_before_is_compared_when_it_is_known(report):
    found = report(*TWO, window=(2, 4))
    assert found["before"] == {"start": T0, "end": T0 + 2 * H}
    assert found["figures_before"]["busy"] == 1.0
    assert report(*TWO, window=(1, 4))["before"] is None


def test_a_silence_is_named_and_counts_neither_as_use_nor_as_capacity(report):
    lines = [row(i, "a", i / 10, i / 10 + 0.1, 8, eligible=i / 10) for i in range(200)]
    lines += [row(500 + i, "a", 60 + i / 10, 60 + i / 10 + 0.1, 8, eligible=60) for i in range(200)]
    found = report(*lines, window=(0, 80))
    assert found["quality"]["silences"] == [{"start": T0 + 20 * H, "end": T0 + 60 * H}]
    assert None in found["over_time"]["held_gpus"]["a"]
    assert found["figures"]["busy"] == pytest.approx(1.0, abs=0.01)
    assert "1 stretch has no record at all" in found["verdict"]["todo"][-1]


def test_a_quiet_site_has_no_silence():
    runs = [
        Run("c", i, submit=i * 20 * H, start=i * 20 * H, end=i * 20 * H + 60) for i in range(1, 9)
    ]
    assert silences(Runs.of(runs), Window(0, 200 * H)) == ()
    assert silences(Runs.of([Run("c", 1, start=UNKNOWN)]), Window(0, 200 * H)) == ()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("-o", "x.pdf"), "must end in one of"),
        (("-o", "/nowhere/x.html"), "no such folder"),
        (("--email",), "--email is for -o FILE.html"),
        (("--demo", "-M", "x"), "it has no -M"),
        (("--timezone", "UTC"), "--timezone is for --from-file"),
    ],
)
def test_what_cannot_be_is_refused(ltgf, args, said):
    code, out, err = ltgf("report", *args)
    assert (code, out) == (2, "")
    assert said in err


# --- whom it is about -----------------------------------------------------------------------------


@pytest.mark.parametrize("args", [("--tenant", "b"), ("-u", "bob")])
def test_a_report_about_some_names_nobody_else(report, args):
    lines = (row(1, "rivals", 0, 2, 8, user="them1"), *TWO[1:])
    found = report(*lines, args=args)
    for text in (json.dumps(found), page(found), email_page(found), as_csv(found)):
        assert "rivals" not in text
        assert "them1" not in text
    assert found["verdict"]["headline"] == "b got 50 % of what it was due."
    assert found["figures"]["starts"] == 1
    assert found["figures"]["busy"] == 0.75  # of the cluster
    assert [r["user"] for r in found["users"]] == ["bob"]


def test_a_report_about_one_tenant_has_its_budget_alone(ltgf, tmp_path):
    out = str(tmp_path / "r.json")
    assert ltgf("report", "--demo", "--tenant", "bio", "-o", out)[0] == 0
    found = json.loads(Path(out).read_text())
    assert [row["account"] for row in found["budgets"]["rows"]] == ["bio"]
    assert "climate" not in json.dumps(found)


# --- budgets and pools ----------------------------------------------------------------------------


def course_of(*, half_life_s=math.inf, used=(3600.0, 7200.0), counted=18_000, rate=2.0, start=0):
    """What is left of a budget of 10 GPU-hours: two hours that are over, one to come."""
    period = Period(start, 100 * H, half_life_s)
    state = quota_state("a", budget_gpu_s=36_000, use=Use(counted, counted, rate_gpus=rate),
                        period=period, now=12 * H)  # fmt: skip
    edges = np.array([10 * H, 11 * H, 12 * H])
    return budget_course(state, np.array(used), edges, period, until=13 * H)


def test_a_budget_burns_down_to_now_and_on_at_the_recent_rate():
    found = course_of()
    # 5 of 10 hours are counted now; 3 of them came in the last two hours
    assert found.left[:3] == (0.8, 0.7, 0.5)
    assert found.times[:3] == (10 * H, 11 * H, 12 * H)
    assert (found.times[-1], found.left[-1]) == (13 * H, pytest.approx(0.3))  # 2 GPUs, an hour


def test_a_budget_stays_at_nothing_once_it_is_used_up():
    assert course_of(rate=100.0).left[-1] == 0.0
    assert min(course_of(counted=50_000).left) == 0.0


def test_what_slurm_forgets_has_no_past_and_falls_by_halves():
    found = course_of(half_life_s=H, rate=0.0)
    assert found.left[:2] == (None, None)
    assert (found.left[2], found.left[-1]) == (0.5, 0.75)


def test_before_the_period_nothing_is_known():
    assert course_of(start=11 * H).left[:2] == (None, 0.7)


def test_without_slurm_budgets_and_pools_are_left_out_and_said(ltgf, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    start = int(time.time()) - 4 * H
    line = (
        row(1, "a", 0, 3, 4)
        .replace(str(T0), str(start))
        .replace(str(T0 + 3 * H), str(start + 3 * H))
    )
    (tmp_path / "dump.psv").write_text(f"{HEAD}\n{line}\n")
    assert ltgf("sync", "--from-file", str(tmp_path / "dump.psv"))[0] == 0
    code, out, _ = ltgf("report", "--capacity", "8", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["budgets"], found["fragmentation"]) == (None, None)
    left_out = [note for note in found["quality"]["notes"] if "left out" in note]
    assert len(left_out) == 2
    assert "no such command on PATH" in left_out[0]


# --- forms ----------------------------------------------------------------------------------------


def test_the_demo_has_something_in_every_table_and_its_page_is_small(demo):
    for table in TABLES:
        assert table.rows(demo) or table is SREPORT, table.key
    assert len(page(demo).encode()) < 500_000
    assert len(email_page(demo).encode()) < 100_000


def test_every_key_of_a_report_is_in_its_reference(demo):
    text = (ROOT / "docs" / "reference" / "report.md").read_text()
    for table in TABLES:
        part = text.split(f"\n### {table.key}\n")[1].split("\n### ")[0]
        for column in table.columns:
            meaning = column.meaning or column.title.lower()
            assert f"| `{column.key}` | {column.title} | {meaning} |" in part
    named = {*keys(demo)} - {*demo["over_time"]["held_gpus"], "version", "generated", "cluster",
                             "known_until", "start", "end", "rows"}  # fmt: skip
    tables = {table.key for table in TABLES}
    assert {k for k in named - tables if f"`{k}`" not in text and f".{k}`" not in text} == set()


def keys(value):
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from keys(inner)


def test_the_page_is_sound_and_closed_in_itself(demo):
    read = ReportReader(page(demo))
    assert len(read.ids) == len(set(read.ids))
    assert {link.removeprefix("#") for link in read.links} <= set(read.ids)
    assert read.tags.count("main") == read.tags.count("h1") == 1
    (policy,) = [v for tag, name, v in read.attributes if (tag, name) == ("meta", "content")
                 and "default-src" in v]  # fmt: skip
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    assert not {"link", "img", "iframe", "object", "form", "use"} & set(read.tags)
    assert read.tags.count("script") == 1
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]


def test_every_chart_has_a_description_and_headings_say_their_scope(demo):
    text = page(demo)
    assert text.count("<svg class=") == text.count("<desc>") >= 7
    assert not re.findall(r"<th(?! scope=)[ >]", text)


def test_a_letter_has_neither_script_nor_style_sheet_nor_svg(demo):
    text = email_page(demo)
    read = ReportReader(text)
    assert not {"script", "style", "svg", "link", "img", "form"} & set(read.tags)
    assert not [name for _, name, _ in read.attributes if name in ("class", "id", "href")]


def test_hostile_names_are_text_in_every_form(report):
    lines = (row(1, HOSTILE, 0, 2, 8, user=HOSTILE, partition=HOSTILE),
             row(2, "=cmd' /C calc'!A0", 2, 4, 4, eligible=1, user="@x"))  # fmt: skip
    found = report(*lines)
    for text in (page(found), email_page(found)):
        read = ReportReader(text)
        assert "img" not in read.tags
        assert read.tags.count("script") <= 1
        assert not [name for _, name, _ in read.attributes if name.startswith("on")]
        assert HOSTILE in read.text
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert not [v for r in rows for v in r.values() if v.startswith(("=", "@", "+"))]
    assert any(r["user"] == "'@x" for r in rows)
    assert "<script>" not in as_markdown(found).replace("\\<script\\>", "")


def test_csv_is_one_table_of_tables_with_the_numbers_of_json(demo):
    rows = list(csv.DictReader(io.StringIO(as_csv(demo))))
    assert {r["table"] for r in rows} == {
        "verdict",
        "figures",
        *(t.key for t in TABLES if t is not SREPORT),
    }
    own = {r["tenant"]: r for r in rows if r["table"] == "tenants"}
    assert own["vision"]["attained_gpu_s"] == str(demo["tenants"][-1]["attained_gpu_s"])


def test_files_are_written_by_their_names_with_the_last_day(ltgf, tmp_path):
    names = [str(tmp_path / f"r-{{date}}.{kind}") for kind in ("html", "json", "csv", "md")]
    code, out, _ = ltgf("report", "--demo", *(word for name in names for word in ("-o", name)))
    assert (code, out) == (0, "")
    assert sorted(path.name for path in tmp_path.glob("r-*")) == [
        f"r-2026-11-29.{kind}" for kind in ("csv", "html", "json", "md")
    ]
    assert json.loads((tmp_path / "r-2026-11-29.json").read_text())["meta"]["demo"] is True


def test_without_a_file_the_words_are_printed(ltgf):
    code, out, _ = ltgf("report", "--demo")
    assert code == 0
    assert out.startswith("demo, 23 to 29 November 2026\nWas it fair? Mostly fair. 5 of 6 tenants")
    assert "under-served" in out


class ReportReader(Reader):
    """Reads a report; its script is no words."""

    def handle_data(self, data):
        if self.open[-1:] != ["script"]:
            super().handle_data(data)
