"""Board files are read again where they are others, and only there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.protocol import Answer, Mode, Phase, Record
from slurm_ltgf.service.savers import BoardMemory, Savers
from slurm_ltgf.slurm.jobs import QueueJob
from slurm_ltgf.store.config import parsed

OWN = os.geteuid()


@pytest.fixture
def board(tmp_path: Path) -> Board:
    board = Board(tmp_path)
    board.enter(Record(7, OWN, 0, Mode.APP, tmp_path))
    board.say(Answer(7, 0, Phase.READY, seconds=3.0))
    return board


def saver(board: Board, memory: BoardMemory, restarts: int = 0):
    config = parsed(f'[checkpoint]\nrecords = "{board.folder}"\n', "test")
    return Savers(config, lambda _: OWN, memory).saver(QueueJob(7, restarts=restarts))


def test_a_file_that_is_the_same_is_read_once(board: Board, monkeypatch) -> None:
    memory, read = BoardMemory(), []
    original = Board._read
    monkeypatch.setattr(Board, "_read", lambda *a, **k: read.append(a[1]) or original(*a, **k))
    for _ in range(3):
        assert saver(board, memory) == (True, 6.0)
    assert read == [f"7.{OWN}", f"7.{OWN}.answer"]


def test_a_file_that_changed_or_came_or_went_is_seen(board: Board) -> None:
    memory = BoardMemory()
    assert saver(board, memory) == (True, 6.0)
    board.say(Answer(7, 1, Phase.READY, seconds=9.0))
    assert saver(board, memory).can_save is False  # of another run
    assert saver(board, memory, restarts=1) == (True, 18.0)
    (board.folder / f"7.{OWN}.answer").unlink()
    assert saver(board, memory, restarts=1).can_save is False
    board.say(Answer(7, 1, Phase.READY))
    assert saver(board, memory, restarts=1).can_save is True


@pytest.mark.skipif(OWN != 0, reason="gives a file to another user")
def test_a_file_that_was_given_to_another_user_is_not_believed_any_more(board: Board) -> None:
    memory = BoardMemory()
    assert saver(board, memory).can_save
    os.chown(board.folder / f"7.{OWN}.answer", 65534, 65534)
    assert not saver(board, memory).can_save


def test_what_was_not_asked_for_twice_is_forgotten(board: Board) -> None:
    memory = BoardMemory()
    saver(board, memory)
    memory.begin()
    memory.begin()
    assert memory._before == memory._now == {}
