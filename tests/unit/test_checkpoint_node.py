"""The agents of a job's nodes: real processes, and a driver that is late or fails."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from node_site import JOB, opened

from slurm_ltgf.checkpoint.board import replace_owned
from slurm_ltgf.checkpoint.keys import encode
from slurm_ltgf.checkpoint.node_hands import Room
from slurm_ltgf.checkpoint.phases import Op
from slurm_ltgf.checkpoint.protocol import (
    Action,
    Mode,
    Phase,
    Record,
    record_keys,
    withdrawn,
)


@pytest.fixture
def site(tmp_path):
    with opened(tmp_path) as made:
        yield made


def test_a_pause_holds_all_and_a_resume_brings_all_back(site):
    assert site.until(Phase.READY).ask == ""
    ask = site.ask()
    answer = site.until(Phase.SAVED)
    assert (answer.ask, answer.ranks, answer.bytes) == ("a1", 2, 1 << 30)
    assert site.stages == ["checkpointed"] * 4
    site.board.ask(withdrawn(ask, Action.RESUME, int(time.time())))
    assert site.until(Phase.GOING).ask == "a1"
    assert site.stages == ["running"] * 4
    for _ in range(5):
        site.run()
    assert not any((site.folder / f"marks{node}" / str(JOB)).exists() for node in (0, 1))
    assert (site.dir.stat().st_mode & 0o777) == 0o700


def test_one_process_that_fails_has_all_go_on_and_the_reason_is_told(site):
    site.until(Phase.READY)
    site.how(3, Op.CHECKPOINT, "fail")
    site.ask()
    answer = site.until(Phase.FAILED)
    assert "node 1: checkpoint of process" in answer.why
    assert site.stages == ["running"] * 4


def test_a_lock_that_is_late_once_is_tried_again(site, monkeypatch):
    monkeypatch.setattr("slurm_ltgf.checkpoint.phases.LOCK_S", 3)
    site.until(Phase.READY)
    site.how(2, Op.LOCK, "99")
    site.ask(within_s=60)
    end = time.monotonic() + 20
    while "locked" not in site.stages:
        site.run()
    while site.stages != ["running"] * 4:  # all have run on in between
        assert time.monotonic() < end
        site.run()
    site.how(2, Op.LOCK, "0")
    assert site.until(Phase.SAVED, within_s=30).ask == "a1"


def test_what_is_known_to_be_impossible_is_said_before_anything_is_touched(site):
    site.until(Phase.READY)
    site.why = "process 1 is a client of MPS"
    site.ask()
    answer = site.until(Phase.FAILED)
    assert "MPS" in answer.why
    assert site.stages == ["running"] * 4
    assert not list(site.gpu.glob(".*"))


@pytest.mark.parametrize("action", [Action.CHECKPOINT, Action.REQUEUE])
def test_the_driver_alone_writes_no_image(site, action):
    site.until(Phase.READY)
    site.ask(action)
    assert "--ckpt=criu" in site.until(Phase.REFUSED).why


def test_an_agent_that_never_comes_up_keeps_nobody_waiting(site):
    site.until(Phase.READY)
    site.ask(within_s=3)
    answer = site.until(Phase.FAILED, agents=site.agents[:1])
    assert "not heard of in time: node 1" in answer.why
    assert site.stages == ["running"] * 4


@pytest.mark.parametrize("stages", [["locked"], ["checkpointed"], ["locked", "checkpointed"]])
def test_an_agent_that_was_killed_is_followed_by_one_that_ends_the_pause(site, stages):
    """Both agents are dropped as soon as a process is there, the ask is gone when new ones come."""
    site.until(Phase.READY)
    site.how(1, Op.CHECKPOINT, "0.5")
    site.ask()
    while not set(stages) <= set(site.stages):
        site.run()
    site.board.clear(JOB)
    time.sleep(0.6)  # what was begun in the driver goes on
    site.agents = [site.agent(0), site.agent(1)]
    site.until_running()
    assert site.until(site.answer().phase).phase in (Phase.FAILED, Phase.GOING, Phase.WORKING)


def test_an_agent_that_was_killed_is_followed_by_one_that_keeps_the_pause(site):
    site.until(Phase.READY)
    ask = site.ask()
    site.until(Phase.SAVED)
    site.agents = [site.agent(0), site.agent(1)]
    for _ in range(10):
        site.run()
    assert site.stages == ["checkpointed"] * 4
    site.board.ask(withdrawn(ask, Action.RESUME, int(time.time())))
    site.until(Phase.GOING)
    assert site.stages == ["running"] * 4


def test_a_job_goes_on_only_when_its_memory_is_free_again(site):
    """A restore that finds too little memory loses the process: seen on a real GPU."""
    site.until(Phase.READY)
    ask = site.ask()
    site.until(Phase.SAVED)
    site.free = (1 << 30) - 1
    site.board.ask(withdrawn(ask, Action.RESUME, int(time.time())))
    for _ in range(20):
        site.run()
    assert site.stages == ["checkpointed"] * 4
    assert "waits until its GPUs' memory is free" in " ".join(site.said)
    site.agents = [site.agent(0), site.agent(1)]  # what it needs outlives the agent
    for _ in range(20):
        site.run()
    assert site.stages == ["checkpointed"] * 4
    site.free = 1 << 30
    site.until(Phase.GOING)
    assert site.stages == ["running"] * 4


def test_two_jobs_do_not_take_the_same_memory():
    room = Room(lambda: {"GPU-1": 10, "GPU-2": 10})
    assert room.take(1, {"GPU-1": 6})
    assert not room.take(2, {"GPU-1": 6})
    assert room.take(3, {"GPU-2": 6})
    room.leave(1)
    assert room.take(2, {"GPU-1": 6})


def test_a_pause_ends_by_itself(site):
    site.until(Phase.READY)
    site.ask(within_s=4, hold_s=1)
    site.until(Phase.SAVED)
    site.until(Phase.GOING)
    assert site.stages == ["running"] * 4


def test_a_job_whose_folder_is_gone_is_brought_back(site, monkeypatch):
    monkeypatch.setattr("slurm_ltgf.checkpoint.node_job.LOST_S", 0.5)
    site.until(Phase.READY)
    site.ask()
    site.until(Phase.SAVED)
    for path in site.dir.iterdir():
        path.unlink()
    site.dir.rmdir()
    site.dir.write_text("no folder")
    site.until_running()


def test_a_process_of_another_user_is_never_touched(site):
    if os.geteuid():
        pytest.skip("needs root")
    site.until(Phase.READY)
    stranger = subprocess.Popen(["sleep", "60"], user=65534)
    try:
        for agent in site.agents:
            (one,) = agent._jobs.values()
            known = agent.tools.pids(JOB)
            object.__setattr__(agent.tools, "pids", lambda job, k=known: {*k, stranger.pid})
            assert stranger.pid not in one.hands.pids()
    finally:
        stranger.send_signal(signal.SIGKILL)
        stranger.wait()


def test_a_plan_of_an_earlier_run_or_a_broken_one_is_none(site):
    site.until(Phase.READY)
    site.dir.mkdir(exist_ok=True)
    (site.dir / "ltgf-nodes").write_text("format=1\nkey=x\nrestart=7\nwant=hold\n")
    (site.dir / "ltgf-node-1").symlink_to("/etc/passwd")
    site.ask()
    site.until(Phase.SAVED)
    assert Path("/etc/passwd").read_text().startswith("root")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.parametrize("stranger", [1, 99999])
def test_a_record_of_somebody_else_for_the_job_changes_nothing(site, stranger):
    """Whichever of them is listed first."""
    path = site.board.folder / f"{JOB}.{stranger}"
    record = Record(JOB, stranger, 0, Mode.CRIU, Path("/etc"))
    replace_owned(path, encode(record_keys(record)))
    os.chown(path, stranger, stranger)
    site.until(Phase.READY)
    assert [one.job.dir for agent in site.agents for one in agent._jobs.values()] == [site.dir] * 2
    assert not Path("/etc/ltgf-nodes").exists()
