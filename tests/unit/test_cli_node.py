"""`ltgf node` before it serves: its own folders, its key, and a node without the driver's API."""

import os

import pytest

from slurm_ltgf.checkpoint import criu as module
from slurm_ltgf.checkpoint.driver import DriverError, Missing
from slurm_ltgf.checkpoint.phases import Op, Stage
from slurm_ltgf.checkpoint.preflight import verdict
from slurm_ltgf.cli.node import _images, own_folder
from slurm_ltgf.errors import ConfigError


def test_a_folder_of_root_s_is_made_and_closed(tmp_path):
    path = own_folder(tmp_path / "a" / "b")
    assert path.stat().st_mode & 0o777 == 0o700
    path.chmod(0o755)
    assert own_folder(path).stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_or_a_link_is_refused(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real").mkdir()
    for name in ("open", "link"):
        with pytest.raises(ConfigError, match="folder of root's that nobody else can write"):
            own_folder(tmp_path / name)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives folders away")
def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", 65534, -1)
    with pytest.raises(ConfigError, match="folder of root's"):
        own_folder(tmp_path / "theirs")


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A CRIU on PATH that says a version."""

    def says(text):
        path = tmp_path / "bin" / "criu"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")

    return says


def test_a_key_that_cannot_be_trusted_is_said_and_jobs_are_paused_all_the_same(tmp_path, program):
    program("Version: 4.1.1")
    work, said = own_folder(tmp_path / "work"), []
    (work / "key").write_bytes(bytes(32))
    (work / "key").chmod(0o644)
    assert _images(work, said.append) is None
    assert said[0].startswith("jobs cannot be written to disk: ")
    assert "mode 0600" in said[0]
    (work / "key").chmod(0o600)
    assert _images(work, said.append).key == bytes(32)


@pytest.mark.parametrize("text", ["Version: 3.17.1", "Version: 4.0", "what?", ""])
def test_an_old_criu_is_none(tmp_path, program, text):
    program(text)
    assert _images(own_folder(tmp_path / "work"), print) is None


def test_a_user_who_stops_criu_does_not_keep_it_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RUN_S", 0.2)
    assert module._spawn(["/bin/sleep", "60"], tmp_path, tmp_path / "log") == -9


def test_without_the_driver_s_api_jobs_are_told_why():
    device = Missing("cuda.core.checkpoint cannot be imported")
    assert device.state(os.getpid()) is Stage.RUNNING
    with pytest.raises(DriverError, match=r"lock of process 7: cuda\.core"):
        device.act(Op.LOCK, 7, 1.0)
    why, needs = verdict([], has_api=False)
    assert "pip install 'slurm-ltgf[gpu]'" in why
    assert needs == {}
