"""slurm.dump: saved tables of every kind, and what is refused."""

from __future__ import annotations

import gzip
import io
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from slurm_ltgf.core.model import UNKNOWN, Runs, Skipped
from slurm_ltgf.errors import InputError
from slurm_ltgf.slurm import dump
from slurm_ltgf.slurm.dump import read_dump

HEADER = "JobID|JobIDRaw|Account|State|Start|End|ElapsedRaw|AllocTRES"
ROW = "41|41|lab|COMPLETED|2026-03-01T00:00:00|2026-03-01T01:00:00|3600|gres/gpu=2,node=1"
START = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
NOW = START + 86400


def read(table: str | bytes, *, zone=UTC, cluster: str | None = None, now: int = NOW):
    data = table.encode() if isinstance(table, str) else table
    batches = list(read_dump(io.BytesIO(data), cluster=cluster, timezone=zone, now=now))
    skipped: list[Skipped] = [row for batch in batches for row in batch.skipped]
    return Runs.concat([batch.runs for batch in batches]).rows(), skipped


def table(*rows: str, header: str = HEADER) -> str:
    return "".join(f"{line}\n" for line in (header, *rows))


# Forms of a table


def test_columns_are_known_by_name_in_any_order_and_any_case():
    rows, skipped = read(
        "alloctres|END|Start|elapsed|priority|account|jobid\n"
        "gres/gpu=2,node=1|2026-03-01T01:00:00|2026-03-01T00:00:00|01:00:00|7|Lab |41\n"
    )
    assert skipped == []
    assert (rows[0].account, rows[0].elapsed_s, rows[0].gres) == ("lab", 3600, "gpu=2")


@pytest.mark.parametrize("delimiter", ["|", "\x1f", "\t", ";", "^|^", "|#", "@@@"])
def test_the_delimiter_is_read_from_the_header(delimiter):
    rows, skipped = read(table(ROW).replace("|", delimiter))
    assert skipped == []
    assert rows == read(table(ROW))[0]


def test_parsable_with_a_delimiter_at_the_end_of_every_row():
    rows, skipped = read(table(f"{ROW}|", f"{ROW}|", header=f"{HEADER}|"))
    assert (rows, skipped) == (read(table(ROW, ROW))[0], [])


def test_lines_that_end_in_crlf_and_a_byte_order_mark():
    assert read(b"\xef\xbb\xbf" + table(ROW).replace("\n", "\r\n").encode()) == read(table(ROW))


def test_blank_lines_are_nothing():
    assert read("\n\n" + table(ROW, "", ROW, "", "")) == read(table(ROW, ROW))


@pytest.mark.parametrize("members", [1, 3])
def test_gzip_is_unpacked(members):
    pieces = [table(ROW), *(f"{ROW}\n" for _ in range(members - 1))]
    packed = b"".join(gzip.compress(piece.encode()) for piece in pieces)
    assert read(packed) == read("".join(pieces))


def test_a_header_alone_is_no_rows():
    assert read(table()) == ([], [])


def test_the_cluster_given_is_that_of_rows_that_do_not_tell():
    rows, _ = read(table(f"c1|{ROW}", f"|{ROW}", header=f"Cluster|{HEADER}"), cluster="c9")
    assert [row.cluster for row in rows] == ["c1", "c9"]
    assert read(table(ROW), cluster="c9")[0][0].cluster == "c9"


def test_batches_say_how_far_they_got(monkeypatch):
    monkeypatch.setattr(dump, "BLOCK_BYTES", 256)
    text = table(*[ROW] * 50).encode()
    batches = list(read_dump(io.BytesIO(text), cluster=None, timezone=UTC, now=NOW))
    assert sum(batch.bytes for batch in batches) == len(text)
    assert sum(batch.lines for batch in batches) == 51
    assert sum(len(batch.runs) for batch in batches) == 50


# What is refused


@pytest.mark.parametrize(
    ("foreign", "message"),
    [
        ("", "holds nothing"),
        ("\n\n", "holds nothing"),
        ("hello\n", "not a sacct dump: it begins with 'hello'"),
        ("JobID|State", "no line below it"),
        ("Name|Priority|GraceTime\nnormal|1|0\n", "not a sacct dump"),
        ("       JobID    JobName\n------------ ----------\n", "cuts its columns"),
        ("JobID,Account,Start,End,AllocTRES\n1,a,1,2,gres/gpu=1\n", "TRES lists too"),
        ("JobID|bad name|Start\n", "not a header of sacct"),
        ("\x89PNG\r\n", "not a sacct dump"),
        ("[1, 2]\n", "not a sacct dump"),
        ('{"jobs": 3}', "not an answer of sacct --json"),
        ('{"nodes": []}', "not an answer of sacct --json"),
    ],
)
def test_a_foreign_file_is_refused_with_what_was_seen(foreign, message):
    with pytest.raises(InputError, match=message):
        read(foreign)


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ({"JobID", "JobIDRaw"}, "JobIDRaw"),
        ({"Account"}, "Account"),
        ({"Start"}, "Start"),
        ({"End", "ElapsedRaw"}, "End"),
        ({"AllocTRES"}, "AllocTRES"),
    ],
)
def test_a_needed_column_that_is_missing_is_named(missing, named):
    header = "|".join(name for name in HEADER.split("|") if name not in missing)
    with pytest.raises(InputError, match=f"without column {named}; `ltgf sync --print-command`"):
        read(f"{header}\n")


@pytest.mark.parametrize("cut", range(1, len(ROW) + 1))
def test_a_table_cut_anywhere_in_its_last_row_is_refused(cut):
    with pytest.raises(InputError, match="cut short"):
        read(table(ROW, ROW)[:-cut])


def test_a_table_cut_after_the_empty_first_cell_of_a_row_is_refused():
    with pytest.raises(InputError, match="cut short"):
        read(table(ROW).replace("|", "\t") + "\t")


def test_a_last_row_of_too_few_fields_is_a_cut_file():
    with pytest.raises(InputError, match="its last row, line 3, has 4 fields"):
        read(table(ROW, "42|42|lab|COMPLETED", ""))


@pytest.mark.parametrize("cut", [1, 8, 20, 60])
def test_a_gzip_file_cut_short_is_refused(cut):
    with pytest.raises(InputError, match="gzip file is cut short"):
        read(gzip.compress(table(*[ROW] * 9).encode())[:-cut])


def test_a_damaged_gzip_file_is_refused():
    packed = bytearray(gzip.compress(table(*[ROW] * 9).encode()))
    packed[20] ^= 0xFF
    with pytest.raises(InputError, match="gzip file"):
        read(bytes(packed))


def test_a_table_of_which_nothing_can_be_read_is_refused():
    with pytest.raises(InputError, match=r"none of the first 100 rows.*line 2: start: cannot read"):
        read(table(*[ROW.replace("2026-03-01T", "01.03.2026 ")] * 100))


# Rows that cannot be read


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("|3600|", "|soon|", "elapsedraw: cannot read duration 'soon'"),
        ("T01:00:00|", "T25:00:00|", "end: cannot read time '2026-03-01T25:00:00'"),
        ("2026-03-01T00", "2026-02-29T00", "start: cannot read time '2026-02-29T00:00:00'"),
        ("41|41", "root|41", "jobid: cannot read job id 'root'"),
        ("41|41", "41|x", "jobidraw: cannot read job id 'x'"),
        (",node=1", ",node=", "alloctres: TRES list is cut short"),
        ("2026-03-01T00:00:00", "Unknown", "start: not known, but the job ran"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_the_others_count(old, new, reason):
    rows, skipped = read(table(ROW, ROW.replace(old, new), ROW))
    assert len(rows) == 2
    assert [row.line for row in skipped] == [3]
    assert skipped[0].reason.startswith(reason)


@pytest.mark.parametrize("short", ["42|42|lab", "42|42|lab|COMPLETED|1|2|3|gres/gpu=1|extra"])
def test_a_row_of_the_wrong_width_without_free_text_is_named(short):
    rows, skipped = read(table(ROW, short, ROW))
    assert len(rows) == 2
    assert [row.line for row in skipped] == [3]
    assert "instead of 8" in skipped[0].reason


# Free text

FREE = f"{HEADER}|JobName"
MIDDLE = "JobID|JobName|Account|Start|ElapsedRaw|AllocTRES"


def middle(job: int, name: str) -> str:
    return f"{job}|{name}|lab|2026-03-01T00:00:00|60|gres/gpu=1"


@pytest.mark.parametrize("name", ["a", "a|b", "||", "a|b|c", "a\nb", "a\n\nb", "a|b\nc|d", "a\n|"])
def test_free_text_that_comes_last_may_hold_anything(name):
    rows, skipped = read(table(f"{ROW}|{name}", f"{ROW}|next", header=FREE))
    assert (len(rows), skipped) == (2, [])


@pytest.mark.parametrize("name", ["a\nb", "a\n\n b", "srun x &&\n  y \\n z"])
def test_a_newline_in_free_text_in_the_middle_is_mended(name):
    rows, skipped = read(
        table(middle(1, "x"), middle(2, name), middle(3, name), middle(4, "y"), header=MIDDLE)
    )
    assert ([row.job_id for row in rows], skipped) == ([1, 2, 3, 4], [])


def test_a_delimiter_in_free_text_in_the_middle_is_refused():
    rows, skipped = read(table(middle(1, "a|b"), middle(2, "c"), header=MIDDLE))
    assert [row.job_id for row in rows] == [2]
    assert skipped[0].line == 2
    assert "jobname" in skipped[0].reason


def test_a_whole_row_between_two_halves_of_one_is_not_believed():
    forged = middle(9, "f")
    rows, skipped = read(
        table(middle(1, "x"), middle(2, f"a\n{forged}\nb"), middle(3, "y"), header=MIDDLE)
    )
    assert [row.job_id for row in rows] == [1, 3]
    assert [row.line for row in skipped] == [3, 4, 5]
    assert "forged" in skipped[1].reason


def test_a_broken_row_in_a_column_that_is_no_free_text_is_not_mended():
    rows, skipped = read(
        table(middle(1, "x"), "2|b|la", "b|1772323200|60|gres/gpu=1", middle(3, "y"), header=MIDDLE)
    )
    assert [row.job_id for row in rows] == [1, 3]
    assert [row.line for row in skipped] == [3, 4]


def test_a_row_broken_across_blocks_is_mended(monkeypatch):
    monkeypatch.setattr(dump, "BLOCK_BYTES", 64)
    names = ["a\nb", "c", "d\ne\nf"] * 20
    rows, skipped = read(
        table(*(middle(i, name) for i, name in enumerate(names, 1)), header=MIDDLE)
    )
    assert ([row.job_id for row in rows], skipped) == (list(range(1, 61)), [])


# Meaning


def test_ids_of_arrays_and_heterogeneous_jobs():
    rows, _ = read(
        table(
            ROW.replace("41|41", "7700_3|7703"),
            ROW.replace("41|41", "12+1|13"),
            ROW.replace("41|41", "7700_[4-6%2]|7700"),
        )
    )
    assert [(r.job_id, r.array_job, r.array_task, r.het_job, r.het_offset) for r in rows] == [
        (7703, 7700, 3, UNKNOWN, UNKNOWN),
        (13, UNKNOWN, UNKNOWN, 12, 1),
        (7700, 7700, UNKNOWN, UNKNOWN, UNKNOWN),
    ]
    assert [row.tasks for row in rows] == [1, 1, 3]


def test_ids_without_jobidraw_are_still_different_jobs():
    header = HEADER.replace("JobIDRaw|", "")
    shown = ("7700_3", "7700_4", "7700", "7700+0", "7700+1")
    rows, _ = read(table(*(ROW.replace("41|41", name) for name in shown), header=header))
    assert {row.job_id for row in rows} == {7700}
    assert len({(row.job_id, row.array_task, row.het_offset) for row in rows}) == 5


def test_steps_are_dropped_by_either_id():
    raw = HEADER.replace("JobID|", "")
    rows, skipped = read(table(ROW[3:], "41.batch" + ROW[5:], "41.0" + ROW[5:], header=raw))
    assert (len(rows), skipped) == (1, [])


def test_a_missing_submit_time_falls_back_for_the_key():
    assert read(table(ROW))[0][0].submit == START
    rows, _ = read(table(f"{ROW}|{START - 60}", header=f"{HEADER}|Eligible"))
    assert (rows[0].submit, rows[0].eligible) == (START - 60, START - 60)
    rows, _ = read(table(f"{ROW}|{START - 90}", header=f"{HEADER}|Submit"))
    assert (rows[0].submit, rows[0].eligible) == (START - 90, START - 90)


def test_a_held_job_is_not_eligible():
    rows, _ = read(
        table(
            f"41|41|lab|PENDING|Unknown|Unknown|0||{START}|Unknown",
            header=f"{HEADER}|Submit|Eligible",
        )
    )
    assert (rows[0].submit, rows[0].eligible, rows[0].start) == (START, UNKNOWN, UNKNOWN)


def test_what_is_missing_of_start_end_and_elapsed_follows():
    without_end = "JobID|Account|State|Start|Elapsed|Suspended|AllocTRES"
    rows, _ = read(
        table(f"1|lab|COMPLETED|{START}|01:00:00|00:10:00|gres/gpu=1", header=without_end)
    )
    assert (rows[0].end, rows[0].suspended_s) == (START + 4200, 600)
    without_elapsed = "JobID|Account|Start|End|Suspended|AllocTRES"
    rows, _ = read(table(f"1|lab|{START}|{START + 4200}|600|gres/gpu=1", header=without_elapsed))
    assert rows[0].elapsed_s == 3600
    rows, _ = read(
        table(f"1|lab|{START}|Unknown|0|gres/gpu=1", header=without_elapsed), now=START + 50
    )
    assert (rows[0].end, rows[0].elapsed_s) == (UNKNOWN, 50)


def test_a_resized_job_is_charged_once_for_each_second():
    rows, _ = read(
        table(
            f"34|34|lab|RESIZING|{START}|{START + 6}|6|gres/gpu=2|{START}",
            f"34|34|lab|CANCELLED by 0|{START}|{START + 11}|11|gres/gpu=1|{START + 6}",
            f"35|35|lab|RUNNING|{START}|Unknown|11|gres/gpu=1|{START + 6}",
            header=f"{HEADER}|Submit",
        )
    )
    assert [(r.start - START, r.elapsed_s) for r in rows] == [(0, 6), (6, 5), (6, 5)]
    assert len({(r.job_id, r.submit, r.start) for r in rows}) == 3


def test_an_end_before_the_submit_time_is_no_resize():
    row = f"1|1|lab|FAILED|{START}|{START - 448}|0|gres/gpu=1|{START + 60}"
    rows, _ = read(table(row, header=f"{HEADER}|Submit"))
    assert (rows[0].start, rows[0].end, rows[0].elapsed_s) == (START, START - 448, 0)


def test_suspended_time_with_days():
    rows, _ = read(table(f"{ROW}|1-02:03:04", header=f"{HEADER}|Suspended"))
    assert rows[0].suspended_s == 93784


def test_allocgres_of_old_slurm_stands_for_alloctres():
    header = HEADER.replace("AllocTRES", "AllocGRES")
    rows, _ = read(table(ROW.replace("gres/gpu=2,node=1", "gpu:tesla:2"), header=header))
    assert rows[0].gres == "gpu:tesla=2"


def test_words_that_are_no_restart_count_are_unknown():
    rows, _ = read(table(f"{ROW}|2", f"{ROW}|", header=f"{HEADER}|Restarts"))
    assert [row.restarts for row in rows] == [2, UNKNOWN]


# Times


def test_iso_times_with_an_offset_need_no_zone():
    rows, _ = read(table(ROW.replace("T00:00:00|", "T02:00:00+02:00|")), zone=timezone.max)
    assert rows[0].start == START


def test_epoch_times_and_iso_times_are_the_same():
    epoch = ROW.replace("2026-03-01T00:00:00", str(START)).replace(
        "2026-03-01T01:00:00", str(START + 3600)
    )
    assert read(table(epoch)) == read(table(ROW))


@pytest.mark.parametrize("word", ["Unknown", "None", "", "N/A", "0", "4294967294", "4294967295"])
def test_words_and_numbers_for_an_unknown_end(word):
    rows, skipped = read(
        table(ROW.replace("2026-03-01T01:00:00", word).replace("COMPLETED", "RUNNING"))
    )
    assert (rows[0].end, skipped) == (UNKNOWN, [])


BERLIN = ZoneInfo("Europe/Berlin")  # 2026-10-25T03:00 CEST -> 02:00 CET at 01:00 UTC


@pytest.mark.parametrize(
    ("start", "end", "elapsed", "utc_start", "utc_end"),
    [
        ("2026-10-25T01:30:00", "2026-10-25T02:30:00", 3600, "23:30", "00:30"),
        ("2026-10-25T01:30:00", "2026-10-25T02:30:00", 7200, "23:30", "01:30"),
        ("2026-10-25T02:30:00", "2026-10-25T02:10:00", 2400, "00:30", "01:10"),
        ("2026-10-25T02:10:00", "2026-10-25T03:10:00", 3600, "01:10", "02:10"),
        ("2026-10-25T02:10:00", "2026-10-25T03:10:00", 7200, "00:10", "02:10"),
        ("2026-10-25T02:10:00", "2026-10-25T02:20:00", 600, "00:10", "00:20"),
        ("2026-10-25T02:10:00", "2026-10-25T02:20:00", 999, "00:10", "00:20"),
    ],
)
def test_the_hour_that_comes_twice_is_read_as_elapsed_says(start, end, elapsed, utc_start, utc_end):
    rows, skipped = read(
        table(f"1|1|lab|COMPLETED|{start}|{end}|{elapsed}|gres/gpu=1"), zone=BERLIN
    )
    clock = [f"{datetime.fromtimestamp(t, UTC):%H:%M}" for t in (rows[0].start, rows[0].end)]
    assert (clock, skipped) == ([utc_start, utc_end], [])


def test_a_time_that_never_was_is_shifted_forward():
    row = "1|1|lab|COMPLETED|2026-03-29T02:30:00|2026-03-29T04:00:00|1800|gres/gpu=1"
    rows, _ = read(table(row), zone=BERLIN)
    assert rows[0].start == datetime(2026, 3, 29, 1, 30, tzinfo=UTC).timestamp()
    assert rows[0].end == datetime(2026, 3, 29, 2, 0, tzinfo=UTC).timestamp()


def test_a_fixed_offset_is_a_zone_too():
    rows, _ = read(table(ROW), zone=timezone(timedelta(hours=-5)))
    assert rows[0].start == START + 5 * 3600
