"""A file is old or new, never half; a lock says who holds it."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from slurm_ltgf.store.files import FileError, LockHeldError, lock, replace_bytes, replace_text
from slurm_ltgf.store.ledger import Ledger

FORK = multiprocessing.get_context("fork")


def test_a_file_is_made_and_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    replace_text(path, "größer\n")
    assert (path.read_text(encoding="utf-8"), path.stat().st_mode & 0o777) == ("größer\n", 0o644)
    replace_bytes(path, b"\x00\xff", mode=0o600)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"\x00\xff", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_who_has_the_old_file_open_keeps_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    replace_text(path, "old")
    with path.open(encoding="utf-8") as reader:
        replace_text(path, "new")
        assert reader.read() == "old"
    assert path.read_text(encoding="utf-8") == "new"


def test_on_failure_the_old_file_stands_and_nothing_is_left_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    replace_text(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"a: cannot write: No space left"):
        replace_text(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["missing/a", "file/a"])
def test_a_place_where_no_file_can_be_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=place):
        replace_text(tmp_path / place, "x")
    with pytest.raises(FileError, match=place), lock(tmp_path / place):
        pass


def test_a_held_lock_names_its_holder_and_is_free_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        lock(path),
        pytest.raises(LockHeldError, match=f"held by process {os.getpid()}"),
        lock(path),
    ):
        pass
    with lock(path):
        assert path.read_text() == f"{os.getpid()}\n"
    assert path.read_text() == ""


def hold(path: Path, told: Connection) -> None:
    with lock(path):
        told.send("held")
        told.recv()


def test_a_full_disk_is_no_reason_not_to_lock() -> None:
    with (
        lock("/dev/full"),
        pytest.raises(LockHeldError, match="another process"),
        lock("/dev/full"),
    ):
        pass


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=hold, args=(path, theirs))
    child.start()
    assert ours.recv() == "held"
    with pytest.raises(LockHeldError, match=str(child.pid)), lock(path):
        pass
    child.kill()
    child.join()
    with lock(path):
        assert path.read_text() == f"{os.getpid()}\n"


def replace_for_ever(path: Path, told: Connection) -> None:
    told.send("ready")
    while True:
        for letter in "ab":
            replace_text(path, letter * 100_000)


def test_killed_at_any_moment_the_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    ours, theirs = FORK.Pipe()
    for _ in range(5):
        child = FORK.Process(target=replace_for_ever, args=(path, theirs))
        child.start()
        ours.recv()
        while not path.exists():
            pass
        for _ in range(20):
            text = path.read_text()
            assert text in {"a" * 100_000, "b" * 100_000}
        child.kill()
        child.join()
        assert len(set(path.read_text())) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_belongs_to_the_directorys_owner(tmp_path):
    os.chown(tmp_path, 65534, 65534)
    with lock(tmp_path / "lock"), Ledger(tmp_path / "ledger.db") as ledger:
        ledger.state_set("key", "value")
        owners = {path.name: path.stat().st_uid for path in tmp_path.iterdir()}
    assert owners.keys() >= {"lock", "ledger.db", "ledger.db-wal"}
    assert set(owners.values()) == {65534}
