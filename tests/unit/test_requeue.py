"""What squeue says of one job, whatever its user named its folder; work that a checkpoint keeps."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest

from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.job_fairness import job_fairness
from slurm_ltgf.core.model import Batch, Run, Runs, Window
from slurm_ltgf.core.timeline import Supply
from slurm_ltgf.errors import LedgerError, SlurmRefused, UsageError
from slurm_ltgf.slurm import queue, requeue
from slurm_ltgf.store.ledger import Ledger

H = 3600
USUAL = {
    "JobID": "12", "JobArrayID": "12", "ArrayJobID": "12", "ArrayTaskID": "N/A",
    "HetJobID": "0", "HetJobOffset": "0", "Account": "astro", "UserName": "alice",
    "Partition": "gpu", "QOS": "normal", "State": "RUNNING", "Reason": "None",
    "SubmitTime": "1800000000", "EligibleTime": "1800000000", "StartTime": "1800000010",
    "EndTime": "1800003610", "TimeLimit": "1:00:00", "PriorityLong": "100", "Nice": "0",
    "tres-alloc": "cpu=1,gres/gpu=4", "RestartCnt": "2", "NodeList": "n1",
    "UserID": "1001", "Requeue": "1", "PreemptTime": "N/A", "WorkDir": "/home/alice",
}  # fmt: skip


def cells(**changes: str) -> list[str]:
    return [*(USUAL | {key.replace("_", "-"): value for key, value in changes.items()}).values()]


def squeue(monkeypatch: pytest.MonkeyPatch, *rows: list[str]) -> None:
    """Have `find` read these rows, printed as squeue prints them: what follows a column is said."""

    def printed(argv: list[str], **_: object) -> str:
        ends = [column.split(":", 1)[1] for column in argv[-1].split(",")]
        assert len(ends) == len(USUAL)
        return "".join(
            "".join(cell + end for cell, end in zip(row, ends, strict=True)) + "\n" for row in rows
        )

    monkeypatch.setattr(requeue, "run", printed)


def test_a_row_says_who_where_and_whether_slurm_would(monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(monkeypatch, cells(), cells(JobID="13", Requeue="0", PreemptTime="1800000020"))
    first, second = requeue.find("12")
    assert (first.uid, first.may_requeue, first.preempted_at) == (1001, True, None)
    assert (first.job.restarts, first.job.gres, first.work_dir) == (2, "gpu=4", "/home/alice")
    assert (second.requeue_id, second.may_requeue) == ("13", False)
    assert second.preempted_at == 1_800_000_020


def test_a_folder_that_looks_like_a_row_is_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a user's waiting job could show the helper another user's running one."""
    forged = queue.DELIMITER.join([*cells(JobID="99", UserID="0"), ""])
    folder = f"/tmp/x\n{forged}\n\n{queue.DELIMITER}"
    squeue(monkeypatch, cells(State="PENDING", WorkDir=folder))
    (found,) = requeue.find("12")
    assert (found.job.job_id, found.job.state, found.uid) == (12, "PENDING", 1001)
    assert found.work_dir == folder


def test_no_job_is_no_row_and_other_failures_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(monkeypatch)
    assert requeue.find("12") == []
    said = iter(["squeue (exit 1): slurm_load_jobs error: Invalid job id specified", "no rights"])

    def fails(argv: list[str], **_: object) -> str:
        raise SlurmRefused(next(said))

    monkeypatch.setattr(requeue, "run", fails)
    assert requeue.find("12") == []
    with pytest.raises(SlurmRefused, match="no rights"):
        requeue.find("12")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"UserID": "alice"}, "invalid literal"),
        ({"PreemptTime": "soon"}, "soon"),
        ({"State": "DREAMING"}, "unknown state"),
        ({"RestartCnt": ""}, "invalid literal"),
        ({"tres_alloc": "gres/gpu=many"}, "many"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_row_that_cannot_be_read_is_named_not_guessed(monkeypatch, changes, why) -> None:
    squeue(monkeypatch, cells(**changes))
    with pytest.raises(SlurmRefused, match=f"a row of job '12' cannot be read: .*{why}"):
        requeue.find("12")


@pytest.mark.parametrize("names", ["", "a b", "a,", "a\n", "a;id", "a=b", "../a,b c"])
def test_what_is_no_partition_never_reaches_slurm(monkeypatch, names: str) -> None:
    monkeypatch.setattr(requeue, "run", lambda *_: pytest.fail("told Slurm"))
    with pytest.raises(UsageError, match="must be names of partitions"):
        requeue.send_to("12", names)


# --- what is kept ---------------------------------------------------------------------------------


def kept_of(kept: dict, *, window=(0, 10), half_life_h=math.inf, default=False) -> float:
    """S, in GPU-hours, of a job of 2 GPUs: a run from 0 to 4 h that was requeued, one from 6 h."""
    usual = {"account": "a", "gres": "gpu=2", "gres_requested": "gpu=2"}
    runs = [
        Run("c", 1, state="REQUEUED", submit=0, eligible=0, start=1, end=4 * H,
            elapsed_s=4 * H - 1, **usual),
        Run("c", 1, state="COMPLETED", submit=4 * H, eligible=4 * H, start=6 * H, end=8 * H,
            elapsed_s=2 * H, **usual),
    ]  # fmt: skip
    begin, end = window
    (job,) = job_fairness(
        Runs.of(runs),
        Window(begin * H, end * H),
        tenants=("a",),
        tenant_of={"a": "a"},
        supply=Supply.constant({"a": 1.0}, 8),
        pricing=Pricing(),
        half_life_s=half_life_h * H,
        requeued_work_kept=default,
        kept=kept,
    ).rows()
    return job.kept_gpu_s / H


@pytest.mark.parametrize(
    ("until_h", "gpu_h"), [(3, 6), (4, 8), (0, 0), (99, 8)], ids=["most", "all", "none", "lie"]
)
@pytest.mark.parametrize("default", [False, True])
def test_the_run_that_was_requeued_counts_until_its_checkpoint(until_h, gpu_h, default) -> None:
    found = kept_of({(1, 1): until_h * H}, default=default)
    assert found == pytest.approx(gpu_h + 4, abs=1e-3)


@pytest.mark.parametrize("key", [(2, 1), (1, 2)], ids=["another job", "another run"])
def test_what_is_kept_of_others_says_nothing(key) -> None:
    assert kept_of({key: 3 * H}) == 4
    assert kept_of({key: 3 * H}, default=True) == pytest.approx(12, abs=1e-3)


def test_a_window_cuts_what_is_kept_as_what_was_held() -> None:
    assert kept_of({(1, 1): 3 * H}, window=(2, 10)) == pytest.approx(2 + 4)
    assert kept_of({(1, 1): 1 * H}, window=(2, 10)) == pytest.approx(4)
    assert kept_of({(1, 1): 3 * H}, window=(5, 10)) == pytest.approx(4)


def test_older_kept_work_counts_less_under_a_half_life() -> None:
    """The integral of 2^-((10-t)/5) over [0, 3] and [6, 8], times 2 GPUs."""

    def worth(begin: float, end: float) -> float:
        return 2 * 5 / math.log(2) * (2 ** ((end - 10) / 5) - 2 ** ((begin - 10) / 5))

    wanted = worth(0, 3) + worth(6, 8)
    assert kept_of({(1, 1): 3 * H}, half_life_h=5) == pytest.approx(wanted, rel=1e-3)


# --- the ledger -----------------------------------------------------------------------------------


def test_an_older_ledger_is_brought_up_to_date_with_all_it_held(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    row = Run("c", 5, account="a", state="COMPLETED", submit=1, eligible=1, start=2, end=9)
    with Ledger(path) as ledger:
        ledger.store([Batch(Runs.of([row]))], source="test", observed_at=10)
        ledger.state_set("some", "thing")
    with sqlite3.connect(path) as db:
        # all that came since version 1
        for table in ("kept", "used", "counters", "counted", "credits"):
            db.execute(f"DROP TABLE {table}")
        db.execute("PRAGMA user_version = 1")
    db.close()
    with pytest.raises(LedgerError, match="is of version 1, not 4: `ltgf sync` mends that"):
        Ledger(path, readonly=True)
    with Ledger(path) as ledger:
        assert [run.job_id for run in ledger.runs("c", Window(0, 100)).rows()] == [5]
        assert ledger.state_get("some") == "thing"
        assert ledger.kept("c") == {}
        ledger.keep("c", 5, 2, until=7)
    with Ledger(path, readonly=True) as ledger:
        assert ledger.kept("c") == {(5, 2): 7}


def test_the_last_checkpoint_of_a_run_counts_and_old_ones_are_left_out(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        for start, until in ((2, 7), (2, 8), (20, 30)):
            ledger.keep("c", 5, start, until=until)
        ledger.keep("other", 5, 2, until=50)
        assert ledger.kept("c") == {(5, 2): 8, (5, 20): 30}
        assert ledger.kept("c", since=9) == {(5, 20): 30}
