"""Laws of reading: parse(print(x)) == x, a column reads as its cells do, cuts change nothing."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from unittest.mock import patch
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_ltgf.core.model import UNKNOWN, Runs
from slurm_ltgf.errors import InputError
from slurm_ltgf.slurm import columns, dump, text
from slurm_ltgf.slurm.cells import Cells
from slurm_ltgf.slurm.local_clock import LocalClock
from slurm_ltgf.slurm.vocabulary import Vocabulary

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]
EPOCHS = st.integers(min_value=86400, max_value=4_000_000_000)
WORDS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)


# parse(print(x)) == x


@given(st.integers(min_value=0, max_value=10**8))
def test_durations(seconds):
    assert text.elapsed_s(text.duration_text(seconds)) == seconds


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_limits(days, hours, minutes, seconds):
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert text.limit_s(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == total
    assert text.limit_s(f"{hours}:{minutes:02}:{seconds:02}") == total - days * 86400


COUNTS = st.dictionaries(
    st.sampled_from(["gpu", "gpu:a100", "gpu:h100_1g.10gb", "mps", "mps:h200", "shard"]),
    st.integers(0, 10**6),
)
OTHERS = st.lists(
    st.sampled_from(["cpu=4", "mem=64G", "node=1", "billing=9", "gres/gpfs:x=1", "gres/gpumem=0"]),
    unique=True,
)


@given(COUNTS, OTHERS, st.randoms())
def test_gres_of_a_tres_list_in_any_order(counts, others, random):
    tokens = [*others, *(f"gres/{name}={count}" for name, count in counts.items())]
    random.shuffle(tokens)
    gres = text.gres_of_tres(",".join(tokens))
    assert {n: int(c) for n, _, c in (t.partition("=") for t in gres.split(",") if t)} == counts
    as_node = ",".join(token.replace("=", ":") for token in gres.split(",") if token)
    assert text.gres_of_node(as_node) == gres


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40, unique=True), st.integers(1, 9))
def test_array_expressions(tasks, throttle):
    expression = ",".join(map(str, tasks))
    assert text.array_tasks(f"[{expression}%{throttle}]") == (len(tasks), throttle)
    bits = sum(1 << task for task in tasks)
    assert text.array_tasks(f"0x{bits:X}") == (len(tasks), None)


RANGES = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 5)), min_size=1, max_size=4)


@given(WORDS.filter(lambda w: not w[-1].isdigit()), RANGES, st.booleans())
def test_host_lists(name, ranges, padded):
    width = 4 if padded else 1
    numbers = [f"{n:0{width}}" for first, more in ranges for n in range(first, first + more + 1)]
    inside = ",".join(f"{a:0{width}}-{a + b:0{width}}" if b else f"{a:0{width}}" for a, b in ranges)
    assert text.expand_hostlist(f"{name}[{inside}]") == [f"{name}{number}" for number in numbers]


@given(EPOCHS, st.sampled_from(ZONES))
def test_moments(moment, zone):
    timezone = ZoneInfo(zone)
    local = datetime.fromtimestamp(moment, timezone)
    assert text.moment(local.isoformat(), timezone) == moment
    assert text.time_argument(local.isoformat(), 0, timezone) == moment
    naive = local.replace(tzinfo=None).isoformat()
    first = int(local.replace(fold=0).timestamp())
    assert text.moment(naive, timezone) == first


# Columns read as single cells do


@settings(deadline=None)
@given(st.lists(st.tuples(EPOCHS, st.sampled_from([0, 1])), min_size=1), st.sampled_from(ZONES))
@example([(1_792_890_000 + 60 * i, 0) for i in range(120)], "Europe/Berlin")
def test_a_column_of_local_times_is_read_as_python_reads_it(moments, zone):
    timezone = ZoneInfo(zone)
    local = [(datetime(1970, 1, 1) + timedelta(seconds=m), f) for m, f in moments]  # noqa: DTZ001
    cells = Cells.of([time.isoformat().encode() for time, _ in local])
    first, second, faults = columns.moments(cells, LocalClock(timezone))
    assert not faults
    for i, (time, _) in enumerate(local):
        readings = [time.replace(tzinfo=timezone, fold=fold).timestamp() for fold in (0, 1)]
        assert first[i] == readings[0]
        assert second[i] == max(readings)


TIME_CELLS = st.one_of(
    EPOCHS.map(lambda t: datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%S")),
    EPOCHS.map(str),
    st.sampled_from(["Unknown", "None", "", "0", "4294967294", "2026-02-30T00:00:00", "x" * 19]),
    st.text("0123456789-T:. ", max_size=20),
)
DURATION_CELLS = st.one_of(
    st.integers(0, 10**9).map(str),
    st.integers(0, 10**7).map(text.duration_text),
    st.text("0123456789-:.", max_size=10),
    st.sampled_from(["INVALID", "", "UNLIMITED", "00:61"]),
)
ID_CELLS = st.one_of(
    st.integers(0, 10**8).map(str),
    st.tuples(st.integers(0, 10**8), st.integers(0, 10**7)).map(lambda t: f"{t[0]}_{t[1]}"),
    st.sampled_from(["12+1", "7_[1-3]", "7_4294967294", "1.batch", "", "_", "7_", "_7", "7__1"]),
    st.text("0123456789_+[]%,-.", max_size=24),
)


def expected(read, cell):
    try:
        return read(cell)
    except ValueError:
        return "fault"


def as_cells(values: list[str]) -> Cells:
    return Cells.of([value.encode() for value in values])


@given(st.lists(TIME_CELLS, min_size=1))
def test_a_column_of_times(values):
    first, _, faults = columns.moments(as_cells(values), LocalClock(UTC))
    for i, cell in enumerate(values):
        read = expected(lambda c: text.moment(c, UTC), cell)
        if isinstance(read, int) and not 0 < read < 4_294_967_293:
            read = UNKNOWN
        assert ("fault" if i in faults else first[i]) == read, cell


@given(st.lists(DURATION_CELLS, min_size=1))
def test_a_column_of_durations(values):
    seconds, faults = columns.durations(as_cells(values))
    for i, cell in enumerate(values):
        read = expected(lambda c: int(text.elapsed_s(c)), cell)
        assert ("fault" if i in faults else seconds[i]) == read, cell


@given(st.lists(ID_CELLS, min_size=1))
def test_a_column_of_job_ids(values):
    read_ids, faults = columns.job_ids(as_cells(values))
    for i, cell in enumerate(values):
        read = expected(text.job_id, cell)
        if isinstance(read, text.JobId):
            found = [
                int(read_ids[name][i]) for name in ("job", "array_task", "het_offset", "tasks")
            ]
            assert found == [read.job, read.array_task, read.het_offset, read.tasks], cell
            assert (read_ids["array_job"][i] == read.job) == read.is_array
        else:
            assert i in faults, cell


@given(st.lists(st.lists(st.binary(max_size=80), min_size=1), min_size=1, max_size=3))
@example([[b"", b"\0", b"\0\0", b"a", b"a\0"], [b"x" * 64, b"x" * 65, b"x" * 64 + b"y"]])
def test_a_column_of_text(blocks):
    vocabulary = Vocabulary(str)
    for cells in blocks:
        words, faults = vocabulary.words(Cells.of(cells))
        assert not faults
        assert [words[i] for i in range(len(words))] == [
            c.decode("utf-8", "replace") for c in cells
        ]
        assert set(words.names) == {words[i] for i in range(len(words))}


# Cutting changes nothing

HEADER = "JobID|JobName|JobIDRaw|Account|User|State|Submit|Start|End|ElapsedRaw|AllocTRES|Comment"


@st.composite
def rows(draw):
    job = draw(st.integers(1, 10**6))
    start = draw(st.integers(1_700_000_000, 1_800_000_000))
    elapsed = draw(st.integers(0, 10**6))
    name = draw(st.sampled_from(["train", "a b", "x\ny", "a|b", "-" * 70, "ü"]))
    task = draw(st.sampled_from(["", "_3", "_[1-4]"]))
    comment = draw(st.sampled_from(["", "c", "c|d", "c\nd"]))
    tres = draw(st.sampled_from(["gres/gpu=1,node=1", "cpu=4", "", "gres/gpu:a100=2,gres/gpu=2"]))
    state = draw(st.sampled_from(["COMPLETED", "CANCELLED by 0", "RUNNING", "FOO"]))
    return (
        f"{job}{task}|{name}|{job}|lab-{job % 7}|u{job % 5}|{state}|{start - 60}|{start}"
        f"|{start + elapsed}|{elapsed}|{tres}|{comment}\n"
    )


def read(data: bytes, size: int):
    with patch.object(dump, "BLOCK_BYTES", size), patch.object(dump, "_HEAD_BYTES", size):
        stream = io.BytesIO(data)
        batches = list(dump.read_dump(stream, cluster="c", timezone=UTC, now=1_900_000_000))
    skipped = [row for batch in batches for row in batch.skipped]
    return Runs.concat([batch.runs for batch in batches]).rows(), skipped


def outcome(data: bytes, size: int):
    try:
        return read(data, size)
    except InputError as exc:
        return str(exc)


@settings(deadline=None)
@given(st.lists(rows(), max_size=30), st.integers(1, 400))
def test_a_dump_in_blocks_is_the_dump_in_one(lines, size):
    data = f"{HEADER}\n{''.join(lines)}".encode()
    assert outcome(data, size) == outcome(data, 1 << 20)


@given(st.lists(rows(), min_size=2, max_size=12), st.data())
def test_a_damaged_dump_gives_rows_or_names_them_or_is_refused(lines, data):
    dumped = bytearray(f"{HEADER}\n{''.join(lines)}".encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(dumped) - 1))
        dumped[place] = data.draw(st.sampled_from(b"|\n0-_[ \xff\x1f"))
    try:
        found, _ = read(bytes(dumped), 1 << 20)
    except InputError:
        return
    assert len(found) <= bytes(dumped).count(b"\n")
    assert all(run.elapsed_s >= 0 and run.suspended_s >= 0 for run in found)


@settings(deadline=None)
@given(st.lists(EPOCHS, min_size=2), st.sampled_from(ZONES))
def test_a_clock_learns_its_changes_in_any_order(moments, zone):
    one_by_one, at_once = LocalClock(ZoneInfo(zone)), LocalClock(ZoneInfo(zone))
    local = np.array(moments, dtype=np.int64)
    singly = np.concatenate([one_by_one.utc(local[i : i + 1])[0] for i in range(len(local))])
    assert (singly == at_once.utc(local)[0]).all()
