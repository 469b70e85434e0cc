"""Cases of kind sacct-text: the field log's inputs and right answers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from reading import INPUTS, dated, read, usage

from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN, Run
from slurm_ltgf.errors import InputError, LtgfError, SlurmUnavailable
from slurm_ltgf.slurm import text
from slurm_ltgf.slurm.history import SacctReader

BAD_NAME = b"""Start|JobIDRaw|State|ElapsedRaw|AllocTRES|Account|JobName
2026-03-01T00:00:00|630|COMPLETED|600|gres/gpu=1,node=1|lab-a|f\xfcr-dich
2026-03-01T00:00:00|631|COMPLETED|600|gres/gpu=1,node=1|lab-a|ok
"""


def given(name: str) -> str:
    return (INPUTS / name).read_text()


def test_txt_01_a_delimiter_in_the_last_text_costs_no_row():
    runs, skipped = read(dated(given("txt-01.psv")))
    assert usage(runs) == {"lab-a": 7260}
    assert (len(runs), skipped) == (2, [])


def test_txt_02_a_newline_inside_a_record_with_an_end_token_is_no_record():
    header, first, rest, second = given("txt-02.txt").splitlines()
    start = "1772323200^|^"
    dump = f"Start^|^{header}\n{start}{first}\n{rest}\n{start}{second}\n"
    runs, skipped = read(dump)
    assert usage(runs) == {"lab-b": 9000}
    assert skipped == []


def test_txt_02_a_newline_inside_a_text_in_the_middle_is_mended():
    dump = (
        "JobIDRaw|ElapsedRaw|AllocTRES|SubmitLine|Account|Start\n"
        "611|1800|gres/gpu=4,node=1|srun bash -c echo a &&\n"
        "echo b|lab-b|1772323200\n"
        "612|1800|gres/gpu=1,node=1|python \\n x.py|lab-b|1772323200\n"
    )
    runs, skipped = read(dump)
    assert usage(runs) == {"lab-b": 9000}
    assert skipped == []


def test_txt_03_a_crafted_name_charges_nobody_else():
    runs, skipped = read(dated(given("txt-03.psv")))
    assert usage(runs) == {"lab-c": 288000}
    assert [(run.user, run.account) for run in runs.rows()] == [("mallory", "lab-c")]
    assert skipped == []


def test_txt_03_a_crafted_name_that_comes_first_is_refused_loudly():
    dump = (
        "JobName|JobIDRaw|User|Account|State|ElapsedRaw|AllocTRES|Start\n"
        "x|1|root|admin|COMPLETED|1|gres/gpu=0|2|620|mallory|lab-c|COMPLETED|36000"
        "|gres/gpu=8,node=1|1772323200\n"
        "ok|621|mallory|lab-c|COMPLETED|60|gres/gpu=1|1772323200\n"
    )
    runs, skipped = read(dump)
    assert [run.job_id for run in runs.rows()] == [621]
    assert [row.line for row in skipped] == [2]
    assert "jobname" in skipped[0].reason
    assert "can't be split safely" in skipped[0].reason


def test_txt_04_bad_bytes_cost_no_row():
    runs, skipped = read(BAD_NAME)
    assert usage(runs) == {"lab-a": 1200}
    assert skipped == []


def test_txt_04_the_locale_does_not_matter(tmp_path):
    dump = tmp_path / "dump.psv"
    dump.write_bytes(BAD_NAME.replace(b"lab-a", b"lab-\xfc"))
    program = (
        "import sys; from datetime import UTC; from slurm_ltgf.slurm.dump import read_dump\n"
        "batches = read_dump(open(sys.argv[1], 'rb'), cluster=None, timezone=UTC, now=0)\n"
        "print(*(ascii(run.account) for b in batches for run in b.runs.rows()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(dump)],
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("lab-\\ufffd") == 2


def test_txt_05_words_for_unknown_times_and_limits():
    now = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp())
    runs, skipped = read(given("txt-05.psv"), now=now)
    waiting, cancelled, running = runs.rows()
    assert usage(runs, now=now) == {"lab-a": 14400}
    assert skipped == []
    assert (waiting.start, waiting.end, waiting.elapsed_s) == (UNKNOWN, UNKNOWN, 0)
    assert (cancelled.start, cancelled.limit_s, cancelled.state) == (UNKNOWN, UNKNOWN, "CANCELLED")
    assert (running.end, running.limit_s, running.elapsed_s) == (UNKNOWN, NO_LIMIT, 7200)


def test_txt_06_cancelled_by_somebody_is_cancelled_and_charged():
    runs, _ = read(dated(given("txt-06.psv")))
    assert text.state("CANCELLED by 10477") == ("CANCELLED", "10477")
    assert runs.row(0).state == "CANCELLED"
    assert usage(runs) == {"lab-b": 994836}


def test_txt_07_a_pending_array_is_its_tasks():
    rows = given("txt-07.psv").splitlines()
    dump = dated("\n".join(rows[:3])) + f"Unknown|{rows[3]}\n"
    runs, skipped = read(dump)
    tasks = runs.row(2)
    assert usage(runs) == {"lab-a": 200}
    assert skipped == []
    assert (tasks.tasks, tasks.gres_requested, tasks.array_job) == (4, "gpu=1", 7700)
    assert [run.shown_id for run in runs.rows()] == ["7700_1", "7700_2", "7700"]


@pytest.mark.parametrize(
    ("expression", "tasks"),
    [
        ("[3-5,9%2]", (4, 2)),
        ("[1-10]", (10, None)),
        ("[1,5]", (2, None)),
        ("[0-6:2]", (4, None)),
        ("[1-3,7%5]", (4, 5)),
        ("[0-4000000]", (4_000_001, None)),
    ],
)
def test_txt_07_forms_of_array_tasks(expression, tasks):
    assert text.array_tasks(expression) == tasks


def test_txt_09_steps_add_nothing():
    runs, skipped = read(dated(given("txt-09.psv")))
    assert usage(runs) == {"lab-a": 14400}
    assert (len(runs), skipped) == (1, [])


def test_txt_10_forms_of_durations():
    limits, _, elapsed = given("txt-10.txt").strip().partition(" ; ")
    given_limits = limits.partition(": ")[2].split(" | ")
    given_elapsed = elapsed.partition(": ")[2].split(" | ")
    assert [text.limit_s(limit) for limit in given_limits] == [
        *(600, 610, 3600, 306000, 306600, 306600),
        *(NO_LIMIT, UNKNOWN, UNKNOWN, UNKNOWN),
    ]
    assert [text.elapsed_s(duration) for duration in given_elapsed] == [10, 62.345, 86400]


def test_txt_11_a_cut_tres_list_is_an_error_not_0_gpus():
    cut = given("txt-11.txt").split("|")[5].split()[0]
    with pytest.raises(ValueError, match="cut short"):
        text.gres_of_tres(cut)
    dump = f"JobIDRaw|Account|Start|ElapsedRaw|AllocTRES\n22|hpc|1772323200|60|{cut}\n"
    runs, skipped = read(dump)
    assert len(runs) == 0
    assert re.search("alloctres: .*cut short at 'node='", skipped[0].reason)


TABLE = (
    "JobIDRaw\x1fState\x1fStart\x1fEnd\x1fElapsedRaw\x1fAllocTRES\x1fAccount\n"
    "3451067\x1fFOO\x1f1767225600\x1f1767229200\x1f3600\x1fgres/gpu=1,node=1\x1flab-a\n"
)


def read_live(tmp_path, monkeypatch, *, out: str, err: str, code: int) -> list[Run]:
    """What the live reader makes of a sacct that answers like this."""
    (tmp_path / "out").write_text(out)
    (tmp_path / "err").write_text(err)
    fake = tmp_path / "sacct"
    fake.write_text(
        "#!/bin/sh\n"
        'case "$1" in --helpformat) echo JobID; exit 0;; esac\n'
        f"cat {tmp_path}/out; cat {tmp_path}/err >&2; exit {code}\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    reader = SacctReader(clock=lambda: 1_767_300_000)
    return [run for batch in reader.read(1_767_225_600, 1_767_230_000) for run in batch.runs.rows()]


@pytest.mark.parametrize("code", [0, 1, 2])
@pytest.mark.parametrize("err", ["", "sacct: error: Unknown error 1021\n"])
@pytest.mark.parametrize("out", ["", TABLE, "Segmentation fault\n"], ids=["empty", "good", "bad"])
def test_txt_12_only_a_clean_answer_counts(tmp_path, monkeypatch, out, err, code):
    if code or err or out.startswith("Seg"):
        with pytest.raises(LtgfError):
            read_live(tmp_path, monkeypatch, out=out, err=err, code=code)
    else:
        rows = read_live(tmp_path, monkeypatch, out=out, err=err, code=code)
        assert len(rows) == (1 if out else 0)


def test_txt_12_slurmdbd_complaining_with_status_0_is_a_failure(tmp_path, monkeypatch):
    err = "slurmdbd: Operation not permitted\n"
    with pytest.raises(SlurmUnavailable, match="Operation not permitted"):
        read_live(tmp_path, monkeypatch, out=TABLE, err=err, code=0)


def test_txt_12_a_state_never_seen_before_is_charged():
    runs, skipped = read(TABLE)
    assert usage(runs) == {"lab-a": 3600}
    assert (runs.row(0).state, skipped) == ("FOO", [])


def test_the_log_of_another_tool_is_a_foreign_file():
    with pytest.raises(InputError, match=r"not a sacct dump.*--print-command"):
        read("3451067|3451067|phillips|focaccia|qos|chaff\n")
