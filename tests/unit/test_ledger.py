"""The ledger keeps what it was given, once, whole, and finds it again."""

from __future__ import annotations

import multiprocessing
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurm_ltgf.core.model import (
    NO_LIMIT,
    UNKNOWN,
    Account,
    Batch,
    Run,
    Runs,
    Skipped,
    Window,
    Words,
)
from slurm_ltgf.errors import LedgerError
from slurm_ltgf.store import ledger_blocks, ledger_history
from slurm_ltgf.store.ledger import AuditEntry, Holdings, Ledger, Step, StoreCounts
from tests.folders import open_to_all

ALWAYS = Window(0, 1 << 40)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger(path) as opened:
        yield opened


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_blocks, "BLOCK_ROWS", 8)


def run(job_id: int, **values: object) -> Run:
    usual: dict[str, object] = {
        "cluster": "c1", "account": "nlp", "user": "ann", "state": "COMPLETED",
        "submit": 1000 + job_id, "eligible": 1000 + job_id, "start": 1010 + job_id,
        "end": 1110 + job_id, "elapsed_s": 100, "limit_s": 3600, "gres": "gres/gpu=4",
    }  # fmt: skip
    return Run(job_id=job_id, **(usual | values))  # type: ignore[arg-type]


def pending(job_id: int, **values: object) -> Run:
    waits: dict[str, object] = {"state": "PENDING", "start": UNKNOWN, "end": UNKNOWN}
    return run(job_id, **(waits | values))


def store(ledger: Ledger, *rows: Run, at: int = 5000, listing: str | None = None) -> StoreCounts:
    batches = [Batch(Runs.of(rows))]
    return ledger.store(batches, source="test", observed_at=at, replace_open=listing)


def held(ledger: Ledger, window: Window = ALWAYS, cluster: str | None = None) -> list[Run]:
    return ledger.runs(cluster, window).rows()


def many(count: int, *, first: int = 1, start: int = 100_000) -> Runs:
    """Runs that start one after the other, as columns."""
    job_id = np.arange(first, first + count)
    unknown = np.full(count, UNKNOWN)
    submit = start + job_id
    word = {name: Words(np.zeros(count, np.int32), (name,)) for name in ("account", "user")}
    gres = Words((job_id % 3).astype(np.int32), ("", "gres/gpu=1", "gres/gpu=8"))
    return Runs(
        cluster=Words(np.zeros(count, np.int32), ("c1",)), job_id=job_id, **word,
        partition=word["user"], state=Words(np.zeros(count, np.int32), ("COMPLETED",)),
        submit=submit, eligible=submit, start=submit + 5, end=submit + 65,
        elapsed_s=submit * 0 + 60, suspended_s=submit * 0, limit_s=unknown,
        gres=gres, gres_requested=gres, array_job=unknown, array_task=unknown,
        het_job=unknown, het_offset=unknown,
        tasks=submit * 0 + 1, restarts=unknown, nodes=word["user"],
    )  # fmt: skip


# What goes in comes out


def test_a_run_comes_back_as_it_was_with_every_field(ledger: Ledger) -> None:
    full = Run(
        "c1", 7703, "nlp", "ann", "gpu", "TIMEOUT", 100, 101, 102, 103, 1, 2, NO_LIMIT,
        "gres/gpu=4", "gpu:4", 7700, 3, 12, 1, 5, 2, "n[1-2]",
    )  # fmt: skip
    store(ledger, full, run(2, end=1 << 33, array_task=(1 << 31) + 5))
    assert held(ledger) == [full, run(2, end=1 << 33, array_task=(1 << 31) + 5)]


def test_text_of_any_script_and_newlines_survives(ledger: Ledger) -> None:
    odd = run(1, account="Übung\n|'\"", user="", nodes="nœud-7")
    store(ledger, odd)
    assert held(ledger) == [odd]


def test_storing_again_writes_nothing(ledger: Ledger, path: Path) -> None:
    rows = [run(1), run(2), pending(3)]
    assert store(ledger, *rows) == StoreCounts(new=2, open=1)
    before = path.with_name("ledger.db-wal").read_bytes()
    assert store(ledger, *rows) == StoreCounts(unchanged=2, open=1)
    assert path.with_name("ledger.db-wal").read_bytes() == before


def test_a_run_is_changed_only_when_a_value_differs(ledger: Ledger) -> None:
    store(ledger, run(1), run(2))
    assert store(ledger, run(1), run(2, end=9999)) == StoreCounts(changed=1, unchanged=1)
    assert held(ledger) == [run(1), run(2, end=9999)]


def test_the_last_of_two_rows_with_one_key_counts(ledger: Ledger) -> None:
    assert store(ledger, run(1, end=7), run(2), run(1, end=8)) == StoreCounts(new=2)
    assert held(ledger) == [run(1, end=8), run(2)]


def test_two_runs_of_a_requeued_job_are_two(ledger: Ledger) -> None:
    again = run(1, submit=3000, eligible=3000, start=3001, end=3002)
    store(ledger, run(1, state="PREEMPTED"), again)
    assert held(ledger) == [run(1, state="PREEMPTED"), again]


@pytest.mark.usefixtures("small_blocks")
def test_rows_with_equal_submit_and_job_id_are_kept_apart_by_task(ledger: Ledger) -> None:
    tasks = [run(7, array_job=7, array_task=i) for i in range(40)]
    store(ledger, *tasks[::2])
    assert store(ledger, *tasks, run(6)) == StoreCounts(new=21, unchanged=20)
    assert held(ledger) == [run(6), *tasks]


@pytest.mark.usefixtures("small_blocks")
def test_blocks_stay_small_and_in_order_wherever_rows_come_in(ledger: Ledger) -> None:
    order = random.Random(3).sample(range(1, 301), 300)
    for at in range(0, 300, 7):
        store(ledger, *(run(i) for i in order[at : at + 7]))
    assert [r.job_id for r in held(ledger)] == list(range(1, 301))
    sizes = ledger._db.rows("SELECT n FROM blocks")
    assert max(n for (n,) in sizes) <= 12
    assert ledger.check() == []


def test_piles_that_are_written_early_are_one_transaction(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_history, "PILE_BYTES", 1)
    batches = [Batch(Runs.of([run(i), pending(100 + i)])) for i in range(5)]
    counts = ledger.store(batches, source="s", observed_at=1)
    assert counts == StoreCounts(new=5, open=5)


def test_a_reader_that_fails_leaves_the_ledger_as_it_was(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_history, "PILE_BYTES", 1)
    store(ledger, run(1), pending(2))

    def broken() -> Iterator[Batch]:
        yield Batch(Runs.of([run(3, account="new"), run(1, end=1)]))
        raise KeyError("sacct went away")

    with pytest.raises(KeyError):
        ledger.store(broken(), source="s", observed_at=9, replace_open="c1", until=("c1", 9))
    assert held(ledger) == [run(1), pending(2)]
    assert ledger.synced_until("c1") is None
    assert store(ledger, run(3, account="new")) == StoreCounts(new=1)


def test_progress_hears_of_each_batch(ledger: Ledger) -> None:
    heard: list[Batch] = []
    batches = [Batch(Runs.of([run(1)]), lines=1), Batch(Runs.of([]), lines=2)]
    ledger.store(batches, source="s", observed_at=1, progress=heard.append)
    assert heard == batches


@pytest.mark.parametrize(
    ("field", "value"), [("end", -7), ("job_id", 1 << 32), ("submit", (1 << 32) - 1)]
)
def test_a_number_no_run_can_have_is_refused_by_name(
    ledger: Ledger, field: str, value: int
) -> None:
    with pytest.raises(ValueError, match=field):
        store(ledger, replace(run(1), **{field: value}))


# Open runs


def test_a_finished_run_replaces_its_open_one(ledger: Ledger) -> None:
    store(ledger, pending(1), pending(2))
    store(ledger, run(1))
    assert held(ledger) == [run(1), pending(2)]


def test_an_open_run_of_a_finished_submission_is_not_taken(ledger: Ledger) -> None:
    store(ledger, run(1))
    assert store(ledger, pending(1), pending(2)) == StoreCounts(open=1)
    assert held(ledger) == [run(1), pending(2)]


def test_a_requeued_job_waits_beside_its_finished_run(ledger: Ledger) -> None:
    store(ledger, run(1, state="REQUEUED"))
    again = pending(1, submit=3000, eligible=3120)
    store(ledger, again)
    assert held(ledger) == [run(1, state="REQUEUED"), again]


def test_a_started_run_replaces_the_pending_one_and_not_the_reverse(ledger: Ledger) -> None:
    running = run(1, state="RUNNING", end=UNKNOWN)
    store(ledger, pending(1))
    store(ledger, running, at=5001)
    store(ledger, pending(1), at=5002)
    assert held(ledger) == [running]


def test_squeue_may_say_that_a_started_run_is_pending_again(ledger: Ledger) -> None:
    store(ledger, run(1, state="RUNNING", end=UNKNOWN))
    store(ledger, pending(1), at=5002, listing="c1")
    assert held(ledger) == [pending(1)]


def test_an_older_observation_changes_nothing(ledger: Ledger) -> None:
    store(ledger, pending(1, partition="new"), at=5000)
    store(ledger, pending(1, partition="old"), at=4000)
    assert held(ledger) == [pending(1, partition="new")]


def test_a_terminal_state_without_end_is_finished(ledger: Ledger) -> None:
    lost = run(1, state="CANCELLED by 1000", end=UNKNOWN)
    assert store(ledger, lost, pending(2)) == StoreCounts(new=1, open=1)
    assert held(ledger, Window(1010, 1020)) == [lost, pending(2)]
    assert lost not in held(ledger, Window(1200, 1300))


def test_a_listing_drops_what_it_does_not_name_in_its_cluster_only(ledger: Ledger) -> None:
    store(ledger, pending(1), pending(2), pending(3, cluster="c2"))
    store(ledger, pending(2), at=5001, listing="c1")
    assert held(ledger) == [pending(2), pending(3, cluster="c2")]
    assert ledger.store([], source="s", observed_at=5002, replace_open="c1").open == 0
    assert held(ledger) == [pending(3, cluster="c2")]


def test_open_runs_say_when_they_were_seen_and_whether_squeue_named_them(ledger: Ledger) -> None:
    store(ledger, pending(1), pending(2), at=5000)
    store(ledger, pending(1), pending(2), at=5001, listing="c1")
    store(ledger, pending(1), pending(3), at=5002)
    seen = ledger.open_runs("c1")
    assert seen.runs.rows() == [pending(1), pending(2), pending(3)]
    assert seen.seen_at.tolist() == [5002, 5001, 5002]
    assert seen.listed.tolist() == [True, True, False]
    assert len(ledger.open_runs("nowhere").runs) == 0


# Windows


@pytest.mark.parametrize(
    ("window", "inside"),
    [
        pytest.param((0, 1000), False, id="before"),
        pytest.param((0, 1001), True, id="submitted in its last second"),
        pytest.param((1050, 1060), True, id="waits all the time"),
        pytest.param((1150, 1160), True, id="runs all the time"),
        pytest.param((1199, 1300), True, id="ends after its first second"),
        pytest.param((1200, 1300), False, id="ended as it begins"),
    ],
)
def test_a_run_is_in_a_window_that_it_waited_or_ran_in(
    ledger: Ledger, window: tuple[int, int], inside: bool
) -> None:
    store(ledger, run(1, submit=900, eligible=1000, start=1100, end=1200))
    assert len(ledger.runs("c1", Window(*window))) == inside


def test_a_job_cancelled_before_it_was_eligible_counts_from_submit(ledger: Ledger) -> None:
    never = run(1, state="CANCELLED", submit=10, eligible=UNKNOWN, start=UNKNOWN, end=20)
    store(ledger, never)
    assert held(ledger, Window(19, 20)) == [never]
    assert held(ledger, Window(20, 30)) == []


def test_a_run_without_length_is_in_its_second(ledger: Ledger) -> None:
    store(ledger, run(1, submit=10, eligible=10, start=10, end=10, elapsed_s=0))
    assert [len(ledger.runs("c1", Window(a, a + 1))) for a in (9, 10, 11)] == [0, 1, 0]


def test_a_run_reaches_as_far_as_it_is_charged_where_that_is_beyond_its_end(ledger: Ledger) -> None:
    store(ledger, run(1, submit=10, eligible=10, start=10, end=20, elapsed_s=100))
    assert [len(ledger.runs("c1", Window(a, a + 1))) for a in (9, 10, 109, 110)] == [0, 1, 1, 0]


def test_an_open_run_reaches_into_every_later_window(ledger: Ledger) -> None:
    store(ledger, pending(1))
    assert held(ledger, Window(1 << 35, 1 << 36)) == [pending(1)]
    assert held(ledger, Window(0, 1001)) == []
    assert len(ledger.runs("c1", ALWAYS, include_open=False)) == 0


def test_clusters_are_asked_for_one_by_one_several_or_all(ledger: Ledger) -> None:
    store(ledger, run(1, cluster="b"), run(2, cluster="a"), pending(3, cluster="c"))
    assert ledger.clusters() == ["a", "b", "c"]
    assert [r.job_id for r in held(ledger, cluster="a")] == [2]
    assert ledger.runs(["c", "b", "c", "x"], ALWAYS).job_id.tolist() == [1, 3]
    assert ledger.runs([], ALWAYS).rows() == []
    assert ledger.runs(None, ALWAYS).job_id.tolist() == [2, 1, 3]


def test_words_of_a_window_are_those_of_its_rows(ledger: Ledger) -> None:
    store(ledger, *(run(i, user=f"u{i}", nodes=f"n{i}") for i in range(2000)))
    found = ledger.runs("c1", Window(1500, 1501))
    assert set(found.user.names) == {f"u{i}" for i in range(391, 501)}
    assert found.row(0).nodes == f"n{found.row(0).job_id}"


@pytest.mark.usefixtures("small_blocks")
def test_a_window_opens_the_blocks_that_meet_it_and_no_others(ledger: Ledger) -> None:
    ledger.store([Batch(many(5000))], source="s", observed_at=1)
    opened: list[str] = []
    ledger._file._db.set_trace_callback(opened.append)
    assert len(ledger.runs("c1", Window(102_000, 102_010))) == 74
    assert sum("SELECT body" in sql for sql in opened) <= 12


# Finding jobs


@pytest.mark.parametrize(
    ("asked", "jobs"),
    [
        ("41", [41]), ("41.batch", [41]), (" 41 ", [41]), ("7700", [7700, 7703, 7704]),
        ("7700_3", [7703]), ("7700_3.0", [7703]), ("7700_[5-9%2]", [7700, 7703, 7704]),
        ("7703", [7703]), ("12+1", [13]), ("12", [12, 13]), ("12+1.batch", [13]), ("7700_9", []),
        ("99", []), ("gpu", []), ("", []), ("-1", []), ("41,42", []),
    ],
)  # fmt: skip
def test_a_job_is_found_by_any_id_slurm_prints(ledger: Ledger, asked: str, jobs: list[int]) -> None:
    store(
        ledger,
        run(41),
        run(7703, array_job=7700, array_task=3),
        run(7704, array_job=7700, array_task=4, end=UNKNOWN, state="RUNNING"),
        pending(7700, array_job=7700, tasks=5),
        run(12, het_job=12, het_offset=0),
        run(13, het_job=12, het_offset=1),
    )
    assert sorted(ledger.find(asked).job_id.tolist()) == jobs
    assert ledger.find(asked, "other").rows() == []


def test_holdings_count_and_date_a_cluster(ledger: Ledger) -> None:
    assert ledger.holdings("c1") == Holdings(0, 0, None, None)
    store(ledger, run(1), run(2), pending(3))
    assert ledger.holdings("c1") == Holdings(2, 1, 1001, 1112)


# The file


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_refused_at_once(path: Path) -> None:
    Ledger(path).close()
    path.chmod(0o440)
    with pytest.raises(LedgerError, match="reading only"), Ledger(path) as ledger:
        ledger.state_set("a", "1")


def test_the_file_and_its_directory_are_not_for_everybody(ledger: Ledger, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.parent.stat().st_mode & 0o777 == 0o750


def test_a_reader_without_a_ledger_is_told_how_to_make_one(path: Path) -> None:
    with pytest.raises(LedgerError, match="ltgf sync"):
        Ledger(path, readonly=True)


def test_a_reader_cannot_write(ledger: Ledger, path: Path) -> None:
    with Ledger(path, readonly=True) as reader, pytest.raises(LedgerError, match="reading only"):
        reader.state_set("a", "1")


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (x)")


def newer(path: Path) -> None:
    Ledger(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")


def half(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.store([Batch(many(5000))], source="s", observed_at=1)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text("JobID|User\n" * 300), "is not a ledger"),
        (foreign, "not a ledger"),
        (newer, "upgrade ltgf"),
        (half, "damaged"),
        (lambda path: path.mkdir(), "cannot open|no ledger"),
    ],
    ids=["text", "foreign", "newer", "half", "directory"],
)
def test_what_is_not_our_ledger_is_refused_in_one_line_and_left_alone(
    tmp_path: Path, make: Callable[[Path], None], words: str, readonly: bool
) -> None:
    path = tmp_path / "ledger.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(LedgerError, match=words) as caught, Ledger(path, readonly=readonly) as it:
        it.runs(None, ALWAYS)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_flipped_bit_in_a_block_is_noticed(ledger: Ledger) -> None:
    store(ledger, run(1))
    ((body,),) = ledger._db.rows("SELECT body FROM blocks")
    bad = bytes([*body[:-1], body[-1] ^ 1])
    ledger._db.run("UPDATE blocks SET body = ?", (bad,))
    with pytest.raises(LedgerError, match="checksum"):
        held(ledger)
    assert "checksum" in ledger.check()[0]


def test_a_path_that_cannot_be_made_is_a_ledger_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="cannot make"):
        Ledger(tmp_path / "file" / "ledger.db")


def test_an_odd_name_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=ro#b%20c" / "l e.db"
    Ledger(path).close()
    with Ledger(path, readonly=True) as ledger:
        assert ledger.clusters() == []


def as_nobody(path: Path) -> int:
    """Runs seen by a user who may read the file and nothing else."""
    receive, send = FORK.Pipe(duplex=False)

    def look() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        with Ledger(path, readonly=True) as reader:
            send.send(len(reader.runs(None, ALWAYS)))

    child = FORK.Process(target=look)
    child.start()
    child.join()
    return int(receive.recv()) if receive.poll() else -1


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("daemon", [True, False], ids=["daemon runs", "daemon is down"])
def test_a_user_without_write_permission_can_read(tmp_path: Path, daemon: bool) -> None:
    open_to_all(tmp_path)
    path = tmp_path / "ledger.db"
    Ledger(path).close()
    path.chmod(0o644)
    with Ledger(path) as writer:
        store(writer, run(1), pending(2))
        if daemon:
            assert as_nobody(path) == 2
    if not daemon:
        assert as_nobody(path) == 2


# Several processes


def store_many(path: Path, parts: int, rows: int) -> None:
    with Ledger(path) as ledger:
        batches = (Batch(many(rows, first=1 + i * rows)) for i in range(parts))
        ledger.store(batches, source="s", observed_at=1)


def test_readers_see_all_or_nothing_of_a_big_store_and_do_not_wait(path: Path) -> None:
    Ledger(path).close()
    child = FORK.Process(target=store_many, args=(path, 6, 50_000))
    child.start()
    seen = set()
    slowest = 0.0
    with Ledger(path, readonly=True) as reader:
        while child.is_alive():
            began = time.perf_counter()
            seen.add(len(reader.runs("c1", Window(110_000, 110_100))))
            slowest = max(slowest, time.perf_counter() - began)
        seen.add(len(reader.runs("c1", Window(110_000, 110_100))))
    child.join()
    assert seen <= {0, 164}
    assert 164 in seen
    assert slowest < 2


def test_two_processes_may_make_the_ledger_at_once(path: Path) -> None:
    children = [FORK.Process(target=store_many, args=(path, 1, 500)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4
    with Ledger(path) as ledger:
        assert ledger.holdings("c1").finished == 500


KILLED_ROWS = 700


def store_for_ever(path: Path, first: int) -> None:
    with Ledger(path) as ledger:
        for part in range(first, 1 << 20):
            batches = [Batch(many(KILLED_ROWS, first=1 + part * KILLED_ROWS))]
            ledger.store(batches, source="s", observed_at=1, until=("c1", part + 1))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment_the_ledger_holds_whole_stores(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    parts = 0
    for _ in range(8):
        child = FORK.Process(target=store_for_ever, args=(path, parts))
        child.start()
        time.sleep(chance.uniform(0, 0.12))
        child.kill()
        child.join()
        with Ledger(path) as ledger:
            parts = ledger.synced_until("c1") or 0
            assert ledger.holdings("c1").finished == parts * KILLED_ROWS
    assert parts > 0
    with Ledger(path) as ledger:
        assert ledger.check() == []
        whole = many((parts + 1) * KILLED_ROWS)
        counts = ledger.store([Batch(whole)], source="s", observed_at=1)
        assert counts == StoreCounts(new=KILLED_ROWS, unchanged=parts * KILLED_ROWS)
        assert ledger.runs("c1", ALWAYS).job_id.tolist() == whole.job_id.tolist()


# Records


def test_the_watermark_moves_with_the_store_it_belongs_to(ledger: Ledger) -> None:
    assert ledger.synced_until("c1") is None
    ledger.store([], source="s", observed_at=1, until=("c1", 70))
    assert ledger.synced_until("c1") == 70
    ledger.set_synced_until("c1", 50)
    assert ledger.synced_until("c1") == 50
    assert ledger.synced_until("c2") is None


def test_skipped_rows_are_those_of_each_source_s_last_store(ledger: Ledger) -> None:
    bad = Batch(Runs.of([]), skipped=(Skipped(3, "no end"), Skipped(9, "no id")))
    assert ledger.store([bad], source="a", observed_at=1).skipped == 2
    ledger.store([bad, bad], source="b", observed_at=1)
    assert ledger.skipped("a") == [Skipped(3, "no end", "a"), Skipped(9, "no id", "a")]
    assert (ledger.skipped_total(), ledger.skipped_total("b")) == (6, 4)
    ledger.store([], source="b", observed_at=2)
    assert ledger.skipped() == ledger.skipped("a")
    assert ledger.skipped_total() == 2


def test_a_thousand_skipped_rows_are_named_and_all_are_counted(ledger: Ledger) -> None:
    bad = [Batch(Runs.of([]), skipped=(Skipped(i, "x"),) * 7) for i in range(1000)]
    assert ledger.store(bad, source="a", observed_at=1).skipped == 7000
    assert len(ledger.skipped()) == 1000
    assert ledger.skipped_total() == 7000


def test_supply_is_written_only_when_it_differs(ledger: Ledger) -> None:
    told = [(100, {"a100": 8}), (200, {"a100": 8}), (300, {"a100": 8, "": 2}), (250, {}), (400, {})]
    news = [ledger.observe_capacity("c1", time, gpus) for time, gpus in told]
    assert news == [True, False, True, False, True]
    assert ledger.capacity("c1", Window(50, 500)) == [
        Step(50, None), Step(100, {"a100": 8}), Step(300, {"a100": 8, "": 2}), Step(400, {}),
    ]  # fmt: skip


def test_the_step_in_force_at_the_window_s_start_comes_first(ledger: Ledger) -> None:
    for at in (100, 200, 300):
        ledger.observe_shares("c1", at, {"nlp": at})
    assert ledger.shares("c1", Window(200, 300)) == [Step(200, {"nlp": 200})]
    assert ledger.shares("c1", Window(250, 301)) == [
        Step(250, {"nlp": 200}),
        Step(300, {"nlp": 300}),
    ]
    assert ledger.shares("c2", Window(0, 9)) == [Step(0, None)]
    assert ledger.capacity("c1", Window(250, 301)) == [Step(250, None)]


def test_a_second_observation_of_one_time_replaces_the_first(ledger: Ledger) -> None:
    ledger.observe_shares("c1", 100, {"nlp": 1, "cv": 1})
    assert ledger.observe_shares("c1", 100, {"nlp": 2})
    assert ledger.shares("c1", Window(100, 101)) == [Step(100, {"nlp": 2})]


def test_tenants_seen_are_all_that_ever_had_a_weight(ledger: Ledger) -> None:
    ledger.observe_shares("c1", 100, {"nlp": 1, "cv": 1})
    ledger.observe_shares("c1", 200, {"bio": 1})
    assert ledger.tenants_seen("c1") == ["bio", "cv", "nlp"]


def test_accounts_are_as_last_read_and_the_gone_ones_are_known(ledger: Ledger) -> None:
    root, nlp = Account("root"), Account("nlp", "root", None, (1, None), 4.0)
    assert ledger.accounts("c1") == []
    assert ledger.accounts_read_at("c1") is None
    ledger.set_accounts("c1", [root, nlp], time=100)
    assert ledger.accounts("c1") == [nlp, root]
    ledger.set_accounts("c1", [root], time=200)
    ledger.set_accounts("c1", [root], time=300)
    assert ledger.accounts("c1") == [root]
    assert ledger.accounts_gone("c1") == {"nlp": 200}
    assert ledger.accounts_read_at("c1") == 300
    ledger.set_accounts("c1", [root, nlp], time=400)
    assert ledger.accounts_gone("c1") == {}


def test_state_is_remembered_replaced_and_forgotten(ledger: Ledger) -> None:
    assert ledger.state_get("lease") is None
    ledger.state_set("lease", '{"41": 3}')
    ledger.state_set("lease", "{}")
    assert ledger.state_get("lease") == "{}"
    ledger.state_set("lease", None)
    assert ledger.state_get("lease") is None


def test_the_audit_log_is_read_from_its_end_and_pruned_from_its_start(ledger: Ledger) -> None:
    entries = [
        AuditEntry(i, "ltgf", "site_factor", f"7700_{i % 2}", None, str(i), "its turn")
        for i in range(10)
    ]
    ledger.audit(entries[:6])
    ledger.audit(entries[6:])
    ledger.audit([])
    assert ledger.audit_last(2) == [entries[9], entries[8]]
    assert ledger.audit_last(job_id="7700_1") == entries[9::-2]
    assert ledger.audit_prune(8) == 8
    assert ledger.audit_last() == [entries[9], entries[8]]


def test_use_is_raised_while_a_job_runs_and_corrected_beside(ledger: Ledger) -> None:
    def use() -> list[tuple[str, str, int, int]]:
        return [(u.account, u.gres, u.counted_s, u.corrected_s) for u in ledger.used("c1")]

    def runs_for(elapsed_s: int, **values: object) -> Run:
        return run(7, state="RUNNING", end=UNKNOWN, elapsed_s=elapsed_s, **values)

    store(ledger, pending(7), listing="c1")
    assert use() == []
    store(ledger, runs_for(60), at=5060, listing="c1")
    store(ledger, runs_for(90), at=5090, listing="c1")
    assert use() == [("nlp", "gres/gpu=4", 90, 0)]
    for _ in range(3):  # COMPLETED in three polls, ended a little before it was last seen
        store(ledger, run(7, elapsed_s=85, end=1102))
    assert use() == [("nlp", "gres/gpu=4", 90, 5)]
    store(ledger, run(7, elapsed_s=20, end=1037))  # a runaway corrected downwards
    store(ledger, run(8, elapsed_s=1000, end=2018))
    assert use() == [("nlp", "gres/gpu=4", 1090, 70)]


def test_a_runaway_counts_as_far_as_its_limit(ledger: Ledger) -> None:
    for elapsed_s in (3600, 3800, 90_000, 900_000):
        row = run(7, state="RUNNING", end=UNKNOWN, elapsed_s=elapsed_s, limit_s=3600)
        store(ledger, row, at=1000 + elapsed_s, listing="c1")
    (use,) = ledger.used("c1")
    assert (use.counted_s, use.corrected_s) == (3800, 200)


def test_an_event_is_counted_once_whoever_tells_of_it(path: Path) -> None:
    with Ledger(path) as one, Ledger(path) as other:
        assert one.count("c1", "ask-1", {("requeues", "saved"): 1, ("lost", ""): 2.5}, time=10)
        assert not other.count("c1", "ask-1", {("requeues", "saved"): 1}, time=11)
        assert other.count("c1", "ask-2", {("requeues", "saved"): 1}, time=20)
        assert one.counters("c1") == {("lost", ""): 2.5, ("requeues", "saved"): 2}
        assert other.forget_counted(15) == 1
        assert one.counters("c1")[("requeues", "saved")] == 2
        assert other.counters("c2") == {}
        with pytest.raises(ValueError, match="only rise"):
            one.count("c1", "ask-3", {("requeues", "saved"): -1}, time=30)


def test_a_ledger_of_version_2_counts_what_comes_from_then_on(path: Path) -> None:
    with Ledger(path) as old:
        store(old, run(1), run(2, state="RUNNING", end=UNKNOWN, elapsed_s=50), listing="c1")
    with sqlite3.connect(path) as db:
        for table in ("used", "counters", "counted", "credits"):
            db.execute(f"DROP TABLE {table}")
        db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(LedgerError, match="version 2, not 4"):
        Ledger(path, readonly=True)
    with Ledger(path) as ledger:
        assert ledger.used("c1") == []
        store(ledger, run(1), run(2, end=1092, elapsed_s=80))
        (use,) = ledger.used("c1")
        assert (use.counted_s, use.corrected_s) == (30, 0)
