"""Asks, answers and records: what is written comes back, what is not to be believed is not."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ltgf.checkpoint.board import Board, BoardError, replace_owned
from slurm_ltgf.checkpoint.keys import ProtocolError, decode, encode
from slurm_ltgf.checkpoint.protocol import (
    Action,
    Answer,
    Ask,
    Mode,
    Phase,
    Record,
    answer_of,
    ask_id,
    ask_of,
    keys_of,
    record_keys,
    record_of,
    withdrawn,
)

UID = os.geteuid()
ASK = Ask(ask_id(), 7, 1, Action.REQUEUE, 1_000, 1_060, 900, by="ltgf requeue", reason="lease over")
ANSWER = Answer(7, 1, Phase.SAVED, ASK.id, 4, 101, "step-000000101", 1 << 30, 2.5, 950)
RECORD = Record(
    7, UID, 1, Mode.APP, Path("/shared/ckpt/7"), node="n1", signal="USR2", timeout_s=600
)

texts = st.text(st.characters(exclude_categories=()), max_size=50)
numbers = st.integers(0, 2**63 - 1)


@given(reason=texts, by=texts, step=st.none() | numbers)
def test_no_text_of_a_user_can_add_a_key(reason, by, step):
    ask = replace(ASK, reason=reason, by=by)
    keys = decode(encode(keys_of(ask)), "f")
    back = ask_of(keys, "f")
    assert replace(back, reason="", by="") == replace(ask, reason="", by="")
    answer = replace(ANSWER, why=reason, step=step)
    assert replace(answer_of(decode(encode(keys_of(answer)), "f"), "f"), why="") == replace(
        answer, why=""
    )


@given(content=st.binary(max_size=300))
def test_no_content_breaks_a_reader(content):
    try:
        keys = decode(content, "f")
    except ProtocolError:
        return
    for read in (
        lambda: ask_of(keys, "f"),
        lambda: answer_of(keys, "f"),
        lambda: record_of(keys, uid=0, what="f"),
    ):
        with pytest.raises(ProtocolError):
            read()


def test_what_the_plugin_writes_is_a_record(tmp_path):
    (tmp_path / f"7.{UID}").write_text(
        "format=1\njob_id=7\narray=5_2\nrestart=1\nnode=n1\nmode=criu\ndir=/d/7\n"
        "signal=USR2@60\ncommand=/bin/save\ntimeout_s=90\ninterval_s=600\nlater=x\n"
    )
    assert Board(tmp_path).record(7, UID) == Record(
        7, UID, 1, Mode.CRIU, Path("/d/7"), "n1", "5_2", "USR2@60", "/bin/save", 90, 600
    )


def test_the_longest_texts_are_no_longer_than_a_reader_takes():
    ask = replace(ASK, reason="\N{PILE OF POO}" * 5000, by="\N{PILE OF POO}" * 5000)
    assert len(ask_of(decode(encode(keys_of(ask)), "f"), "f").reason) == 500


def test_a_record_comes_back(tmp_path):
    board = Board(tmp_path)
    assert board.record(7, UID) is None
    board.enter(RECORD)
    assert board.record(7, UID) == RECORD
    assert record_of(
        {k: str(v) for k, v in record_keys(RECORD).items() if v}, uid=UID, what=""
    ) == (RECORD)


def test_the_record_in_the_jobs_own_folder_is_found(tmp_path):
    Board(tmp_path).enter(RECORD)
    (tmp_path / f"7.{UID}").rename(tmp_path / "ltgf-job")
    assert Board(tmp_path).record(7, UID) == RECORD
    assert Board(tmp_path).record(8, UID) is None


def test_ask_and_answer(tmp_path):
    board = Board(tmp_path)
    assert board.hear(7, UID) is None
    board.ask(ASK)
    assert board.hear(7, UID) == board.asked(7) == ASK
    board.say(ANSWER)
    assert board.answer(7, UID) == ANSWER
    later = withdrawn(ASK, Action.GO_ON, now=800)
    assert (later.id, later.action, later.time) == (ASK.id, Action.GO_ON, 901)
    board.ask(later)
    assert board.hear(7, UID) == later
    board.clear(7)
    board.clear(7)
    assert board.hear(7, UID) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cut, or no file"),
        ("format=1\nid=ab", "cut, or no file"),
        ("format=2\n", "format '2', this program knows 1"),
        ("format=1\nid=ab\n", "job_id is missing"),
        ("format=1\nid=ab\njob_id=x\n", "job_id='x': must be a number >= 0"),
        ("format=1\nid=ab\njob_id=-7\n", "job_id='-7': must be a number >= 0"),
        ("format=1\nid=ab\njob_id=7\nrestart=0\naction=die\n", "action='die': must be one of ch"),
        ("format=1\n" + "x" * 8192 + "\n", "longer than 8192 bytes"),
    ],
)
def test_a_wrong_ask_is_named(tmp_path, text, says):
    path = tmp_path / f"7.ask.{UID}"
    path.write_text(text)
    with pytest.raises(ProtocolError) as seen:
        Board(tmp_path).hear(7, UID)
    assert str(path) in str(seen.value)
    assert says in str(seen.value)


@pytest.mark.parametrize("name", ["../../etc", "..", "a/b"])
def test_an_answer_cannot_name_a_path(tmp_path, name):
    Board(tmp_path).say(replace(ANSWER, name=name))
    with pytest.raises(ProtocolError, match="must be a folder's name"):
        Board(tmp_path).answer(7, UID)


def test_links_pipes_and_second_names_are_not_believed(tmp_path):
    board = Board(tmp_path)
    path = tmp_path / f"7.{UID}.answer"
    board.say(ANSWER)
    path.rename(tmp_path / "other")
    path.symlink_to(tmp_path / "other")
    with pytest.raises(ProtocolError, match="a link"):
        board.answer(7, UID)
    path.unlink()
    os.link(tmp_path / "other", path)
    with pytest.raises(ProtocolError, match="no plain file"):
        board.answer(7, UID)
    path.unlink()
    os.mkfifo(path)
    began = time.monotonic()
    with pytest.raises(ProtocolError, match="no plain file"):
        board.answer(7, UID)
    assert time.monotonic() - began < 1


@pytest.mark.skipif(UID != 0, reason="gives files away")
def test_only_root_the_owner_and_the_user_are_heard(tmp_path):
    board = Board(tmp_path)
    os.chown(tmp_path, 64030, 64030)
    for by in (0, 64030, 1234, 4321):
        path = tmp_path / f"7.ask.{by}"
        replace_owned(path, encode(keys_of(replace(ASK, by=str(by), time=by))))
        os.chown(path, by, by)
    assert board.hear(7, 1234).by == "64030"
    (tmp_path / "7.ask.64030").unlink()
    assert board.hear(7, 1234).by == "1234"
    (tmp_path / "7.ask.1234").unlink()
    assert board.hear(7, 1234).by == "0"


@pytest.mark.skipif(UID != 0, reason="gives files away")
@pytest.mark.parametrize("kind", ["file", "link", "pipe", "folder"])
def test_a_name_that_somebody_else_took_is_no_ask_and_keeps_nobody_from_asking(tmp_path, kind):
    board = Board(tmp_path)
    os.chown(tmp_path, 64030, 64030)
    path = tmp_path / "7.ask.1234"
    if kind == "file":
        path.write_bytes(encode(keys_of(ASK)))
        os.chown(path, 4321, 4321)
    elif kind == "link":
        path.symlink_to("7.ask.0")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert board.hear(7, 1234) is None
    path.rename(tmp_path / f"7.ask.{UID}")
    assert board.asked(7) is None
    if kind != "folder":
        board.ask(ASK)
        assert board.hear(7, 1234) == ASK


@pytest.mark.skipif(UID != 0, reason="gives files away")
def test_nobody_answers_for_another(tmp_path):
    board = Board(tmp_path)
    board.say(ANSWER)
    path = tmp_path / f"7.{UID}.answer"
    os.chown(path, 1234, 1234)
    with pytest.raises(ProtocolError, match="belongs to user 1234"):
        board.answer(7, UID)


def test_a_board_that_is_not_there_says_so(tmp_path):
    board = Board(tmp_path / "no")
    for ask in (
        lambda: board.record(7, UID),
        lambda: board.hear(7, UID),
        lambda: board.say(ANSWER),
        lambda: board.ask(ASK),
    ):
        with pytest.raises(BoardError, match=str(tmp_path / "no")):
            ask()


def test_what_a_killed_writer_left_is_in_nobodys_way(tmp_path):
    (tmp_path / f".7.{UID}.answer.new").write_text("half")
    Board(tmp_path).say(ANSWER)
    assert Board(tmp_path).answer(7, UID) == ANSWER
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"7.{UID}.answer"]
