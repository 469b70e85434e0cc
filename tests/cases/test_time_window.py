"""Cases of kind time-window: the field log's inputs and right answers, as far as reading goes."""

from __future__ import annotations

import os
import re
import shlex
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from reading import INPUTS, read, usage

from slurm_ltgf.core.history import settle
from slurm_ltgf.core.model import UNKNOWN, Window
from slurm_ltgf.slurm import history
from slurm_ltgf.slurm.run import environment
from slurm_ltgf.slurm.text import time_argument

DAY_S = 86400


def given(name: str) -> str:
    return (INPUTS / name).read_text()


def epoch(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def asked(tmp_path, monkeypatch, start: int, end: int, *, now: int) -> list[list[str]]:
    """The command lines that the live reader sends for a window."""
    fake, log = tmp_path / "sacct", tmp_path / "log"
    fake.write_text(
        "#!/bin/sh\n"
        'case "$1" in --helpformat) echo JobID Restarts; exit 0;; esac\n'
        f'for word; do printf "%s\\n" "$word"; done >> {log}; echo --- >> {log}\n'
    )
    fake.chmod(0o755)
    log.touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert list(history.SacctReader("c", clock=lambda: now).read(start, end)) == []
    return [call.split("\n") for call in log.read_text().split("---\n") if call]


@pytest.mark.parametrize("days", [1, 30], ids=["daily pull", "30-day history"])
def test_win_01_every_call_says_its_whole_window(tmp_path, monkeypatch, days):
    start, end = epoch("2026-03-01T12:00:00"), epoch("2026-03-01T12:00:00") + days * DAY_S
    calls = asked(tmp_path, monkeypatch, start, end, now=end + 60)
    windows = [(call[call.index("-S") + 1], call[call.index("-E") + 1]) for call in calls]
    assert windows[0][0] == "2026-03-01T12:00:00"
    assert epoch(windows[-1][1]) == end
    assert all(earlier[1] == later[0] for earlier, later in pairwise(windows))
    assert all({"-a", "-X", "-D", "-P", "-M"} <= set(call) for call in calls)
    assert "Restarts" in calls[0][calls[0].index("-o") + 1]


def test_win_01_the_printed_command_says_it_too():
    words = shlex.split(history.dump_command(epoch("2026-03-01T00:00:00"), epoch("2026-03-02")))
    assert words[words.index("-S") + 1] == "2026-03-01T00:00:00"
    assert words[words.index("-E") + 1] == "2026-03-02T00:00:00"
    assert {"TZ=UTC", "SLURM_TIME_FORMAT=%s"} <= set(words)
    assert not {"jobname", "comment", "submitline"} & set(history.COLUMNS)


def test_win_02_additive_over_any_cut_of_time():
    header, *rows = given("win-02.psv").splitlines()
    runs, _ = read("\n".join([header.split()[0], *rows, ""]))
    day_1 = Window(epoch("2026-02-01"), epoch("2026-02-02"))
    day_2 = Window(day_1.end, epoch("2026-02-03"))
    assert usage(runs, day_1) == {"lab-a": 57600, "lab-b": 3600}
    assert usage(runs, day_2) == {"lab-a": 57600}
    assert sum(usage(runs).values()) == 118800


def test_win_04_a_shell_cannot_change_what_slurm_answers(monkeypatch):
    for name, value in re.findall(r"(\w+)=('[^']*'|\S+)", given("win-04.txt")):
        monkeypatch.setenv(name, value.strip("'"))
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    monkeypatch.setenv("SLURM_JWT", "token")
    names = set(environment())
    assert not {"SLURM_TIME_FORMAT", "SACCT_FORMAT", "SQUEUE_FORMAT", "SLURM_CLUSTERS"} & names
    assert {"SLURM_CONF", "SLURM_JWT", "PATH"} <= names
    assert environment()["TZ"] == "UTC"
    assert environment({"SLURM_TIME_FORMAT": "%s"})["SLURM_TIME_FORMAT"] == "%s"


def test_win_04_a_date_in_another_form_is_named_never_turned_round():
    dump = "JobIDRaw|Account|Start|ElapsedRaw|AllocTRES\n1|lab|03/02/26|60|gres/gpu=1\n"
    runs, skipped = read(dump)
    assert len(runs) == 0
    assert skipped[0].reason == "start: cannot read time '03/02/26'"


def test_win_05_a_window_is_never_asked_in_the_future(tmp_path, monkeypatch):
    now = time_argument("2026-08-21T15:38Z", 0, ZoneInfo("America/New_York"))
    calls = asked(tmp_path, monkeypatch, now - DAY_S, now + 4 * 3600, now=now)
    assert all(epoch(call[call.index("-S") + 1]) < now for call in calls)
    assert epoch(calls[-1][calls[-1].index("-E") + 1]) == now
    assert asked(tmp_path / "..", monkeypatch, now + 60, now + 3600, now=now) == []


def test_win_05_a_long_job_counts_where_it_overlaps():
    now = epoch("2026-08-21T15:38:00")
    elapsed = now - epoch("2026-07-14T00:00:00")
    dump = (
        "JobIDRaw|Account|State|Start|End|ElapsedRaw|AllocTRES\n"
        f"7|lab|RUNNING|2026-07-14T00:00:00|Unknown|{elapsed}|gres/gpu=8\n"
    )
    runs, _ = read(dump, now=now)
    assert usage(runs, Window(now - DAY_S, now), now=now) == {"lab": 691200}


def test_win_06_a_job_id_is_not_a_key():
    now = epoch("2026-08-20T12:05:00")
    runs, _ = read(given("win-06.psv"), now=now)
    keys = {(run.cluster, run.job_id, run.submit, run.start) for run in runs.rows()}
    assert len(keys) == 3
    august = Window(epoch("2026-08-01"), epoch("2026-09-01"))
    on_c1 = runs.take(runs.cluster.codes == runs.cluster.names.index("c1"))
    on_c2 = runs.take(runs.cluster.codes == runs.cluster.names.index("c2"))
    assert usage(on_c1, august, now=now) == {"lab-a": 28800}
    assert usage(on_c2, august, now=now) == {"lab-a": 7200}


def test_win_08_suspended_time_is_in_its_own_column_and_not_charged():
    header, row = given("win-08.txt").splitlines()
    runs, skipped = read(f"{header.strip('()')}\n{row}\n")
    run = runs.row(0)
    assert usage(runs) == {"lab-a": 14400}
    assert (run.elapsed_s, run.suspended_s, skipped) == (7200, 3600, [])


def test_win_09_a_runaway_record_is_read_as_it_is_and_capped_by_the_core():
    start = 1_613_725_209
    dump = (
        "JobIDRaw|Account|State|Start|End|ElapsedRaw|TimelimitRaw|AllocTRES\n"
        f"4|mila|RUNNING|{start}|0|102228976|7200|gres/gpu=2\n"
    )
    runs, _ = read(dump)
    assert (runs.row(0).end, runs.row(0).elapsed_s) == (UNKNOWN, 102228976)
    settled = settle(runs, now=start + 102228976, live=set())
    assert usage(runs, now=start + 102228976) == {"mila": 864000}
    assert "runawayjobs" in settled.suspects[0].reason


def test_win_10_elapsed_is_kept_where_end_disagrees():
    rows = re.findall(r"start=(\d+) end=(\d+) elapsed=(\d+)", given("win-10.txt"))
    lines = [f"{i}|lab-{i}|{s}|{e}|{x}|gres/gpu=1\n" for i, (s, e, x) in enumerate(rows, 1)]
    runs, skipped = read("".join(["JobIDRaw|Account|Start|End|ElapsedRaw|AllocTRES\n", *lines]))
    assert skipped == []
    assert usage(runs) == {"lab-1": 86301}
    assert settle(runs, now=1_800_000_000).odd == 2


def test_win_11_steps_that_end_after_midnight_do_not_lengthen_the_job():
    rows = [f"{row}|gres/gpu=1|lab\n" for row in given("win-11.psv").splitlines()]
    runs, skipped = read("".join(["JobID|State|Start|End|AllocTRES|Account\n", *rows]))
    day = Window(epoch("2026-04-07"), epoch("2026-04-08"))
    assert (len(runs), skipped) == (1, [])
    assert usage(runs, day) == {"lab": 21 * 3600 + 59 * 60 + 40}
    assert usage(runs, Window(day.end, day.end + DAY_S)) == {}
