"""Laws of the ledger: what it holds depends on what it was told, not on how it came."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_ltgf.core.model import NO_LIMIT, RUN_FIELDS, UNKNOWN, Batch, Run, Runs, Window
from slurm_ltgf.store import ledger_blocks, ledger_history
from slurm_ltgf.store.ledger import Ledger, StoreCounts
from slurm_ltgf.store.ledger_blocks import packed, unpacked
from slurm_ltgf.store.ledger_pile import Pile, is_terminal

ALWAYS = Window(0, 1 << 40)

words = st.sampled_from(["", "a", "b", "gres/gpu=4"])
times = st.sampled_from([UNKNOWN, 0, 1, 5, 6, 7, 50, 51, 90, (1 << 31) + 3])
small = st.sampled_from([UNKNOWN, 0, 1, 2])
big = st.sampled_from([UNKNOWN, 0, 300, 1 << 40, NO_LIMIT])

runs = st.builds(
    Run,
    cluster=st.sampled_from(["c1", "c2"]),
    job_id=st.integers(1, 6),
    account=words, user=words, partition=words, gres=words, gres_requested=words, nodes=words,
    state=st.sampled_from(["PENDING", "RUNNING", "COMPLETED", "CANCELLED by 7", ""]),
    submit=times, eligible=times, start=times, end=times,
    elapsed_s=big, suspended_s=big, limit_s=big,
    array_job=small, array_task=small, het_job=small, het_offset=small,
    tasks=big, restarts=small,
)  # fmt: skip


def is_finished(run: Run) -> bool:
    return run.end != UNKNOWN or is_terminal(run.state)


def submission(run: Run) -> tuple[object, ...]:
    return run.cluster, run.job_id, run.submit, run.array_task, run.het_offset


def key(run: Run) -> tuple[object, ...]:
    return (*submission(run), run.start)


def expected(rows: Iterable[Run]) -> set[Run]:
    """What a ledger must hold after these rows, said without blocks, piles or SQL."""
    finished = {key(run): run for run in rows if is_finished(run)}
    over = {submission(run) for run in finished.values()}
    waiting: dict[tuple[object, ...], Run] = {}
    for run in rows:
        if is_finished(run) or submission(run) in over:
            continue
        held = waiting.get(submission(run))
        if held is None or held.start == UNKNOWN or run.start != UNKNOWN:
            waiting[submission(run)] = run
    return {*finished.values(), *waiting.values()}


def begin(run: Run) -> int:
    waits = run.eligible if run.eligible != UNKNOWN else run.submit
    known = [time for time in (waits, run.start) if time != UNKNOWN]
    return min(known) if known else run.end


def reach(run: Run) -> float:
    if not is_finished(run):
        return float("inf")
    charged = run.start + run.elapsed_s if UNKNOWN not in (run.start, run.elapsed_s) else UNKNOWN
    return max(run.end, charged, begin(run) + 1)


def meets(run: Run, window: Window) -> bool:
    return begin(run) < window.end and reach(run) > window.start


class Scratch(Ledger):
    """A ledger in a folder of with own, with blocks and piles that little data splits."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._patches = [
            mock.patch.object(ledger_blocks, "BLOCK_ROWS", 4),
            mock.patch.object(ledger_history, "PILE_BYTES", 2000),
        ]
        for patch in self._patches:
            patch.start()
        super().__init__(Path(self._folder.name) / "ledger.db")

    def close(self) -> None:
        super().close()
        for patch in self._patches:
            patch.stop()
        self._folder.cleanup()

    def take(self, rows: Sequence[Run], cuts: Sequence[int] = ()) -> StoreCounts:
        edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
        parts = [rows[a:b] for a, b in pairwise(edges)]
        return self.store([Batch(Runs.of(part)) for part in parts], source="s", observed_at=9)

    def everything(self) -> set[Run]:
        found = self.runs(None, ALWAYS).rows()
        assert len(found) == len(set(found))
        return set(found)


def dated(rows: Iterable[Run]) -> set[Run]:
    """Those that are in the window of all time: not the ones without any time."""
    return {run for run in rows if meets(run, ALWAYS)}


@settings(deadline=None)
@given(st.lists(runs, max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_a_ledger_holds_the_last_of_each_run_and_no_open_one_that_is_over(
    rows: list[Run], cuts: list[int]
) -> None:
    with Scratch() as ledger:
        ledger.take(rows, cuts)
        assert ledger.everything() == dated(expected(rows))
        assert ledger.check() == []


@settings(deadline=None)
@given(st.lists(runs, max_size=40), st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(rows: list[Run], chance: random.Random) -> None:
    distinct = list({key(run): run for run in rows}.values())
    once = {submission(run): run for run in distinct if not is_finished(run)}
    rows = [run for run in distinct if is_finished(run) or once[submission(run)] == run]
    with Scratch() as first, Scratch() as second:
        first.take(rows)
        shuffled = chance.sample(rows, len(rows))
        for run in shuffled:
            second.take([run])
        assert first.everything() == second.everything()


@settings(deadline=None)
@given(st.lists(runs, max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_a_history_may_be_stored_in_any_slices(rows: list[Run], cuts: list[int]) -> None:
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    with Scratch() as whole, Scratch() as sliced:
        whole.take(rows)
        for a, b in pairwise(edges):
            sliced.take(rows[a:b])
        assert whole.everything() == sliced.everything()


@settings(deadline=None)
@given(st.lists(runs, max_size=40, unique_by=key))
def test_storing_twice_is_storing_once(rows: list[Run]) -> None:
    with Scratch() as ledger:
        first = ledger.take(rows)
        held = ledger.everything()
        again = ledger.take(rows)
        assert ledger.everything() == held
        assert again == StoreCounts(unchanged=first.new, open=first.open)


def use(rows: Iterable[Run]) -> Counter[tuple[str, ...]]:
    """(Cluster, account, partition, GRES) -> seconds of use, said run by run."""
    total: Counter[tuple[str, ...]] = Counter()
    for run in rows:
        seconds = max(run.elapsed_s, 0) if run.start != UNKNOWN else 0
        if is_finished(run):
            ran = max(run.end - run.start, 0) if run.start != UNKNOWN else 0
            seconds = run.elapsed_s if run.elapsed_s != UNKNOWN else ran
        elif run.limit_s not in (UNKNOWN, NO_LIMIT) and seconds > run.limit_s + 300:
            seconds = run.limit_s
        tasks = min(max(run.tasks, 0), 1 << 23)
        total[run.cluster, run.account, run.partition, run.gres] += min(seconds, 1 << 32) * tasks
    return +total


@settings(deadline=None)
@given(st.lists(runs, max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_use_is_counted_once_a_run_and_no_count_falls(rows: list[Run], cuts: list[int]) -> None:
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    before: dict[tuple[str, ...], tuple[int, int]] = {}
    with Scratch() as ledger:
        for a, b in pairwise(edges):
            ledger.take(rows[a:b])
            now = {
                (name, one.account, one.partition, one.gres): (one.counted_s, one.corrected_s)
                for name in ("c1", "c2")
                for one in ledger.used(name)
            }
            for what, (counted, corrected) in before.items():
                assert now[what] >= (counted, corrected)
                assert now[what][1] >= corrected
            true = {what: counted - corrected for what, (counted, corrected) in now.items()}
            assert +Counter(true) == use(expected(rows[:b]))
            before = now


@settings(deadline=None)
@given(st.lists(runs, max_size=40), st.integers(0, 100), st.integers(0, 60))
def test_a_window_holds_exactly_the_runs_that_meet_it(
    rows: list[Run], start: int, length: int
) -> None:
    window = Window(start, start + length)
    with Scratch() as ledger:
        ledger.take(rows)
        found = ledger.runs(["c1"], window).rows()
        assert len(found) == len(set(found))
        assert set(found) == {
            run for run in expected(rows) if run.cluster == "c1" and meets(run, window)
        }


@settings(deadline=None)
@given(st.lists(runs, max_size=40), st.integers(0, 7))
def test_a_job_is_found_whole_by_its_number(rows: list[Run], job: int) -> None:
    with Scratch() as ledger:
        ledger.take(rows)
        found = ledger.find(str(job)).rows()
        assert sorted(map(astuple, found)) == sorted(
            astuple(run)
            for run in expected(rows)
            if job in (run.job_id, run.array_job, run.het_job)
        )


@given(
    st.lists(
        st.lists(
            st.one_of(st.integers(-2, 3), st.integers(-2, 1 << 62)),
            min_size=len(RUN_FIELDS),
            max_size=len(RUN_FIELDS),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_block_unpacks_to_what_was_packed(table: list[list[int]]) -> None:
    rows = np.array(table, dtype=np.int64)
    rows[:, 0] = 7
    assert unpacked(packed(rows), 7).T.tolist() == rows.tolist()


@given(st.lists(runs, min_size=1, max_size=20))
def test_a_pile_hands_over_each_row_once(rows: list[Run]) -> None:
    pile = Pile()
    pile.add(Runs.of(rows))
    taken = pile.take()
    assert len(taken.finished) == sum(map(is_finished, rows))
    assert len(taken.finished) + len(taken.open) == len(rows)
    assert len(pile.take().finished) == 0
