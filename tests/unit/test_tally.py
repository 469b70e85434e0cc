"""What a move that has ended adds to the counters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_ltgf.cli.app import App
from slurm_ltgf.cli.move_site import _log
from slurm_ltgf.core.move import Goal, Move, State
from slurm_ltgf.core.requeue import NOT_TOLD
from slurm_ltgf.core.tally import of_move, result_of
from slurm_ltgf.service.move_facts import audit_entry
from slurm_ltgf.store.ledger import Ledger

REQUEUE = Move(
    7, 1000, 0, Goal.REQUEUE, "ask-1", "7", gpus=4, started=1000, began=2000, asked_at=2010,
)  # fmt: skip
SAVED = replace(REQUEUE, state=State.REQUEUED, saved_at=2017, ended_at=2020)


def test_a_requeue_with_a_checkpoint():
    assert of_move(SAVED) == {
        ("checkpoints", "saved"): 1,
        ("checkpoint_s le", "10.0"): 1,
        ("checkpoint_s", ""): 7,
        ("requeues", "saved"): 1,
        ("saved_gpu_s", ""): 4 * 1017,
        ("lost_gpu_s", ""): 4 * 3,
        ("requeue_s", ""): 20,
    }


def test_a_requeue_without_one_loses_the_run():
    move = replace(REQUEUE, asked_at=0, state=State.REQUEUED, ended_at=2020)
    counted = of_move(move)
    assert counted["requeues", "unsaved"] == 1
    assert counted["lost_gpu_s", ""] == 4 * 1020
    assert counted["saved_gpu_s", ""] == 0
    assert not any(name.startswith("checkpoint") for name, _ in counted)
    assert of_move(replace(move, started=0))["lost_gpu_s", ""] == 0
    assert of_move(replace(move, why=f"requeued; {NOT_TOLD}"))["lost_gpu_s", ""] == 0


@pytest.mark.parametrize(
    ("why", "result"),
    [
        ("not saved within 600 s, the job runs on", "failed"),
        ("saved at step 3, but not requeued, the job runs on: no", "failed"),
        ("the job is completed", "overtaken"),
        ("it said no, the job runs on: this program cannot pause in place", "refused"),
        ("Slurm or somebody else requeued it meanwhile", "overtaken"),
    ],
)
def test_what_failed_and_what_was_overtaken(why, result):
    move = replace(REQUEUE, state=State.FAILED, why=why, ended_at=2020)
    assert result_of(move) == result
    assert of_move(move) == {("checkpoints", result): 1, ("requeues", result): 1}


def test_a_checkpoint_alone_is_no_requeue():
    move = replace(SAVED, goal=Goal.CHECKPOINT, state=State.SAVED)
    names = {name for name, _ in of_move(move)}
    assert names == {"checkpoints", "checkpoint_s le", "checkpoint_s"}


def test_a_move_is_counted_once_where_its_end_is_logged(tmp_path):
    """The log of an end is written again when its writer was killed before the move was."""
    (tmp_path / "ltgf.toml").write_text('[site]\ncluster = "c"\n')
    path = tmp_path / "ledger.db"
    with Ledger(path):
        pass
    log = _log(App(tmp_path / "ltgf.toml", path, verbose=False))
    asked = replace(REQUEUE, state=State.ASKED)
    log(audit_entry(REQUEUE, asked, now=2010), asked)
    for _ in range(2):
        log(audit_entry(asked, SAVED, now=2020), SAVED)
    with Ledger(path, readonly=True) as ledger:
        assert ledger.counters("c") == dict(of_move(SAVED))
        assert len(ledger.audit_last()) == 3
