"""Cases of kind report: the field log's inputs and right answers."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime

import pytest
from reading import INPUTS

from slurm_ltgf.cli.main import run
from slurm_ltgf.core.model import Batch, Run, Runs, Window
from slurm_ltgf.core.slurm_usage import Comparison, beside, device_seconds
from slurm_ltgf.report.report_page import email_page, page
from slurm_ltgf.report.report_text import as_csv, as_markdown
from slurm_ltgf.report.report_words import whole_hours
from slurm_ltgf.report.result import result_of
from slurm_ltgf.report.result_data import Only
from slurm_ltgf.service.past import Question
from slurm_ltgf.service.report import facts
from slurm_ltgf.slurm.nodes import DELIMITER
from slurm_ltgf.slurm.nodes import parse as parse_nodes
from slurm_ltgf.store.config import parsed
from slurm_ltgf.store.ledger import Ledger

HOUR = 3600
DAY = 24 * HOUR
T0 = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
FORMS = (page, email_page, as_csv, as_markdown, json.dumps)


def report(tmp_path, runs, window, *, weights, until=None, gpus=4.0):
    """The report of a ledger with these runs, the history being known until the window's end."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        until = ("c", window.end if until is None else until)
        ledger.store([Batch(Runs.of(runs))], source="case", observed_at=until[1], until=until)
        question = Question(window=window, weights=weights, capacity_gpus=gpus)
        found = facts(ledger, parsed("", "case"), question, now=window.end)
    return result_of(found, Only())


def ran(job_id, account, start, end, gpus=1, **more):
    return Run("c", job_id, account=account, user="u", partition="p", state="COMPLETED",
               submit=start, eligible=start, start=start, end=end, elapsed_s=end - start,
               gres=f"gpu={gpus}", gres_requested=f"gpu={gpus}", **more)  # fmt: skip


# --- REP-01: division by zero ---------------------------------------------------------------------


def given_tenants():
    """The case's text: tenant -> (share, use in seconds)."""
    text = (INPUTS / "rep-01.txt").read_text()
    found = re.findall(r"(lab-\w) share (\d+) use (\d+)", text)
    return {name: (int(share), int(use)) for name, share, use in found}


def test_rep_01_nothing_used_and_no_share_are_named(tmp_path):
    tenants = given_tenants()
    assert tenants == {"lab-a": (1, 0), "lab-b": (0, 3600), "lab-c": (1, 3600)}
    runs = [
        ran(i, name, T0, T0 + use) for i, (name, (_, use)) in enumerate(tenants.items(), 1) if use
    ]
    # lab-a used nothing, though it wanted to
    runs.append(Run("c", 9, account="lab-a", state="PENDING", submit=T0, eligible=T0,
                    gres_requested="gpu=4"))  # fmt: skip
    weights = {name: float(share) for name, (share, _) in tenants.items()}
    found = report(tmp_path, runs, Window(T0, T0 + HOUR), weights=weights)
    rows = {row["tenant"]: row for row in found["tenants"]}
    assert (rows["lab-a"]["use_part"], rows["lab-a"]["state"]) == (0, "loss")
    assert rows["lab-b"]["state"] == "no share"
    assert "| lab-a | under-served | 50.0 % | 0.0 % |" in as_markdown(found).replace("\\", "")
    assert "no share" in page(found)


def test_rep_01_the_idle_day_has_no_usage_and_no_index(tmp_path):
    runs = [ran(1, "lab-c", T0, T0 + HOUR)]
    window = Window(T0 + DAY, T0 + 2 * DAY)
    found = report(tmp_path, runs, window, weights={"lab-a": 1, "lab-b": 0, "lab-c": 1})
    assert found["verdict"]["answer"] == "no usage"
    assert found["figures"]["jain"] is None
    assert [row["rho"] for row in found["tenants"]] == [None] * 3
    html = page(found)
    assert "No usage" in html
    assert "n/a" in html
    for form in FORMS:
        form(found)


def test_rep_01_jobs_without_length_divide_nothing(tmp_path):
    runs = [
        ran(1, "lab-a", T0, T0),
        ran(2, "lab-a", T0, T0 + 1, gpus=0),
        ran(3, "lab-c", T0, T0 + 9),
    ]
    found = report(tmp_path, runs, Window(T0, T0 + HOUR), weights={"lab-a": 0, "lab-c": 0})
    for form in FORMS:
        form(found)


# --- REP-02: above 100 % --------------------------------------------------------------------------


def test_rep_02_a_node_of_two_partitions_is_counted_once():
    text = (INPUTS / "rep-02.txt").read_text()
    gpus, util = map(int, re.search(r"(\d+) GPUs, gpuutil (\d+)", text).groups())
    assert util / gpus == 99.0  # the sum is over the GPUs: such a number is no utilisation
    row = f"n1|{{}}|mixed|gpu:{gpus}|gpu:2(IDX:0-1)|8/8/0/16|64000|0|\n"
    rows = (row.format("a") + row.format("b")).replace("|", DELIMITER)
    assert sum(parse_nodes(rows).by_type().values()) == gpus


def test_rep_02_a_cut_answer_gives_the_covered_part_and_no_total_of_the_rest(tmp_path):
    runs = [ran(i, "lab-a", T0 + i * HOUR, T0 + (i + 1) * HOUR, gpus=4) for i in range(8)]
    found = report(tmp_path, runs, Window(T0, T0 + DAY), weights={"lab-a": 1}, until=T0 + 8 * HOUR)
    assert found["period"] == {"start": T0, "end": T0 + 8 * HOUR}
    assert found["figures"]["busy"] == 1.0  # of what is known, not a third of the day
    assert "covers 2026-03-01 00:00 to 2026-03-01 08:00 UTC" in page(found)


def test_rep_02_a_missing_day_is_named_and_in_no_total(tmp_path):
    runs = [
        ran(100 * day + i, "lab-a", start, start + 360, gpus=4)
        for day in (0, 2)
        for i in range(240)
        for start in [T0 + day * DAY + 360 * i]
    ]
    found = report(tmp_path, runs, Window(T0, T0 + 3 * DAY), weights={"lab-a": 1})
    assert found["quality"]["silences"] == [{"start": T0 + DAY, "end": T0 + 2 * DAY}]
    assert found["figures"]["busy"] == pytest.approx(1.0, abs=0.02)
    assert "No record at all of 1 d from 2026-03-02 00:00 UTC" in page(found)


def test_rep_02_above_all_there_was_stops_the_report_with_the_rows(tmp_path, capsys):
    dump = tmp_path / "dump"
    rows = [f"{i}|lab-a|COMPLETED|{T0}|{T0}|{T0}|{T0 + HOUR}|3600|gres/gpu=3" for i in (7, 8)]
    head = "JobIDRaw|Account|State|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES"
    dump.write_text("\n".join([head, *rows, ""]))
    words = ["report", "--from-file", str(dump), "-S", str(T0), "-E", str(T0 + HOUR), "--json"]
    assert run([*words, "--capacity", "4"]) == 65
    out, err = capsys.readouterr()
    assert out == ""
    assert "jobs held 6.0 GPU-hours and there were 4.0" in err
    assert "7 (3.0 GPU-hours), 8 (3.0 GPU-hours)" in err


# --- REP-04: beside sreport -----------------------------------------------------------------------


def test_rep_04_ours_to_the_second_and_sreports_full_hours(tmp_path):
    text = (INPUTS / "rep-04.txt").read_text()
    times = [
        datetime.fromisoformat(t).replace(tzinfo=UTC)
        for t in re.findall(r"2026-\S+T\d\d:\d\d", text)
    ]
    window = Window(*(int(t.timestamp()) for t in times))
    job = ran(1, "lab-a", T0 + 45 * 60, T0 + 135 * 60, gpus=2)
    found = report(tmp_path, [job], window, weights={"lab-a": 1})
    assert found["users"][0]["gpu_s"] == 10800
    assert found["users"][0]["device_s"] == 10800
    # sreport's window is 00:00 to 03:00, and there it says 180 GPU-minutes
    around = whole_hours({"start": window.start, "end": window.end})
    assert around == {"start": T0, "end": T0 + 3 * HOUR}
    ours = device_seconds(Runs.of([job]), Window(around["start"], around["end"]))
    assert ours == {("lab-a", "u"): 10800}
    (row,) = beside(ours, {("lab-a", "u"): 180 * 60})
    assert row.is_alike
    assert "start=2026-03-01T00:00 end=2026-03-01T03:00" in as_markdown(found).replace("\\", "")


def test_rep_04_a_late_rollup_is_named_as_the_cause(tmp_path):
    window = Window(T0, T0 + 2 * HOUR)
    runs = [ran(1, "lab-a", T0, T0 + 2 * HOUR)]
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.store([Batch(Runs.of(runs))], source="c", observed_at=T0, until=("c", window.end))
        question = Question(window=window, capacity_gpus=4)
        found = facts(ledger, parsed("", "c"), question, now=window.end)
    late = "slurmdbd has summed up (rollup) until 2026-03-01 01:00 UTC only"
    rows = beside({("lab-a", "u"): HOUR}, {("lab-a", "u"): HOUR})
    told = Comparison(Window(T0, T0 + HOUR), T0 + HOUR, rows, (late,))
    result = result_of(found, Only(), beside=told)
    assert late in page(result)
    assert "of 1 user 0 differ by more than a GPU-minute and 0.1 %" in as_markdown(result)


# --- hostile text ---------------------------------------------------------------------------------


def test_txt_04_a_broken_byte_is_shown_and_every_file_is_utf_8(tmp_path):
    text = (INPUTS / "txt-04.txt").read_text()
    lines = re.search(r"b'(.*?)'", text)[1].encode().decode("unicode_escape").encode("latin-1")
    rows = [
        b"|".join((line.split(b"|")[0], str(T0).encode(), *line.split(b"|")[1:]))
        for line in lines.strip().split(b"\n")
    ]
    head = b"JobIDRaw|Start|State|ElapsedRaw|AllocTRES|Account|User"
    (tmp_path / "dump").write_bytes(b"\n".join([head, *rows, b""]))
    outs = [tmp_path / f"r.{kind}" for kind in ("html", "csv", "json", "md")]
    words = ["report", "--from-file", str(tmp_path / "dump"), "-S", str(T0), "-E", str(T0 + HOUR)]
    assert run([*words, "--capacity", "4", *(w for out in outs for w in ("-o", str(out)))]) == 0
    for out in outs:
        said = out.read_bytes().decode("utf-8")
        assert "r-dich" in said
    found = json.loads(outs[2].read_text())
    assert sum(row["gpu_s"] for row in found["users"]) == 1200
    users = {r["user"] for r in csv.DictReader(io.StringIO(outs[1].read_text())) if r["user"]}
    assert users == {"f\ufffdr-dich", "ok"} or users == {"f\\udcfcr-dich", "ok"}
