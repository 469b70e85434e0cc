"""Users' folders are looked into, and nobody waits for a file system that does not answer."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import pytest
from move_world import Site

from slurm_ltgf.core.move import State
from slurm_ltgf.service import user_folders
from slurm_ltgf.service.user_folders import filesystem, has

OWN = os.geteuid()


def test_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    assert has(tmp_path, "step-1", uid=OWN) is True
    assert has(tmp_path, "step-2", uid=OWN) is False
    assert has(tmp_path / "nowhere", "step-1", uid=OWN) is None
    assert has(tmp_path, "a\0b", uid=OWN) is None


@pytest.mark.skipif(OWN != 0, reason="becomes another user")
def test_it_is_seen_as_its_user_sees_it(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    tmp_path.chmod(0o700)
    assert has(tmp_path, "step-1", uid=65534) is None


def test_the_file_system_of_a_folder_is_known_without_looking_at_it() -> None:
    assert filesystem(Path("/proc/1/x")) == filesystem(Path("/proc")) != filesystem(Path("/dev/x"))
    assert filesystem(Path("/nowhere/alice/ckpt/7")) == "nowhere/alice"


@pytest.fixture
def hung(tmp_path: Path):
    """A FUSE file system whose server never answers: whoever touches it waits until killed."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder = tmp_path / "hung"
    folder.mkdir()
    try:
        server = os.open("/dev/fuse", os.O_RDWR)
    except OSError as exc:
        pytest.skip(f"no FUSE here: {exc}")
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"asks", bytes(folder), b"fuse", 0, options):
        os.close(server)
        pytest.skip(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    yield folder
    libc.umount2(bytes(folder), 2)  # MNT_DETACH
    os.close(server)


def test_a_file_system_that_hangs_holds_nobody_up(hung: Path) -> None:
    began = time.monotonic()
    assert has(hung, "step-1", uid=OWN, within_s=0.5) is None
    assert filesystem(hung / "ckpt").startswith("device ")
    assert 0.4 < time.monotonic() - began < 2
    time.sleep(0.2)
    has(Path("/"), "tmp", uid=OWN)
    assert not user_folders._left  # the child was killed, and collected


def test_a_job_whose_folder_hangs_here_is_requeued_on_its_word(
    hung: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(user_folders, "WITHIN_S", 0.3)
    site = Site(tmp_path / "site")
    record = site.board.record(7, OWN)
    assert record is not None
    site.board.enter(type(record)(7, OWN, 0, record.mode, hung))
    began = time.monotonic()
    assert site.to_the_end(site.begin()).state is State.REQUEUED
    assert time.monotonic() - began < 10
