"""Field cases of jobs that save themselves: signals that reach nobody, one rank, or come late."""

import logging
import os
import signal
import subprocess
import sys
import time

import pytest

from slurm_ltgf import checkpoint
from slurm_ltgf.checkpoint.archive import Archive
from slurm_ltgf.checkpoint.lint import lint
from slurm_ltgf.checkpoint.place import here
from slurm_ltgf.checkpoint.processes import Process, below, targets
from slurm_ltgf.checkpoint.wrapper import Wrapper
from tests.cases.reading import INPUTS
from tests.training import Training, steps_kept

USR2 = int(signal.SIGUSR2)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("SLURM_", "LTGF_")) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LTGF_CKPT_DIR", str(tmp_path))
    before = signal.getsignal(signal.SIGUSR2)
    yield tmp_path
    signal.signal(signal.SIGUSR2, before)


def save(ckpt, step):
    with ckpt.commit(step) as folder:
        (folder / "state").write_text(str(step))
    return ckpt.saved


def script_of(line: str) -> str:
    """A batch script as a line of chk-01.txt describes it."""
    option, _, rest = line.partition("->")[0].partition("+")
    lines = ["#SBATCH --open-mode=append", option.strip()]
    lines += ["trap save USR1"] if "trap" in rest else []
    command = rest.rpartition("'")[0].rpartition("'")[2]
    lines += [f"{command.removesuffix(' & wait')} &", "wait"] if "& wait" in command else [command]
    return "\n".join(lines)


def test_chk_01_lint_names_the_two_forms_in_which_nothing_is_saved():
    said = [
        [one.text for one in lint(script_of(line)) if "NCCL" not in one.text]
        for line in (INPUTS / "chk-01.txt").read_text().splitlines()
    ]
    assert "never sees USR1" in said[0][0]
    assert "only after `python train.py` has ended" in said[1][0]
    assert said[2] == []
    longest = "#SBATCH --open-mode=append --signal=USR2@65535\nsrun x"
    assert lint(longest) == []
    assert "at most 65535" in lint(longest.replace("65535", "65536"))[0].text


def test_chk_01_the_wrapper_waits_on_and_passes_the_exit_code(alone):
    code = "import signal,time; signal.signal(10, lambda *_: print('saved', flush=True))\n"
    code += "print('on', flush=True); end = time.time() + 1.5\n"
    code += "while time.time() < end: time.sleep(0.1)\nraise SystemExit(5)"
    argv = [sys.executable, "-m", "slurm_ltgf.checkpoint", "run", "--ckpt-signal", "USR1", "--"]
    with subprocess.Popen([*argv, sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"on\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.read() == b"saved\n"
    assert process.returncode == 5


def test_chk_02_ranks_are_signalled_and_not_their_agent(alone, capfd):
    def process(pid, parent, line="", rank=""):
        env = {"LOCAL_RANK": rank} if rank else {}
        return Process(pid, parent, "python", frozenset({USR2} if rank else ()), pid, line, env)

    agent = process(1, 0, "/usr/bin/python torchrun --nproc 4 train.py")
    tree = [agent, *(process(pid, 1, rank=str(pid)) for pid in (2, 3, 4, 5))]
    found = targets(tree, USR2, "USR2")
    assert (found.pids, found.agent) == ((2, 3, 4, 5), 1)
    script = "#SBATCH --open-mode=append --signal=USR2@600\nsrun torchrun --nproc 4 train.py"
    assert "torchrun does not pass USR2 on, it dies of it" in lint(script)[0].text

    wrapper = Wrapper(["sh", "-c", ": torchrun; sleep 0.7; :"], here(), "", mask=set())
    time.sleep(0.2)
    wrapper._warn_of_agent(90.0)
    wrapper._warn_of_agent(20.0)
    wrapper.wait()
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "a save took 90 s, but torchrun kills its workers 30 s after TERM" in said


def test_chk_03_usr2_by_default_and_a_taken_signal_is_said(alone, monkeypatch, capfd):
    assert here().signal == "USR2"
    monkeypatch.setenv("LTGF_CKPT_SIGNAL", "USR1@60")
    assert here().signal == "USR1"
    before = signal.getsignal(signal.SIGUSR1)
    try:
        ckpt = checkpoint.session()
        signal.signal(signal.SIGUSR1, lambda *_: None)
        for step in (1, 2):
            ckpt._next_look = 0
            ckpt.requested(step)
        assert capfd.readouterr().err.count("another handler took SIGUSR1") == 1
        kept = checkpoint.session(keep_signal=True)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        kept.requested(3)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert kept.requested(4)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_chk_04_a_signal_to_one_rank_of_eight_saves_one_step_of_all(tmp_path):
    training = Training(tmp_path, ranks=8, steps=100_000, step_ms=20)
    training.start()
    try:
        training.ready()
        time.sleep(0.5)
        training.processes[3].send_signal(signal.SIGUSR2)
        training.wait()
        found = Archive(training.folder).last()
        assert (found.ranks, len(found.files)) == (8, 8)
        training.steps = found.step + 20
        training.start()
        training.wait()
        training.check()
    finally:
        training.kill()


def test_chk_05_the_handler_takes_no_lock_and_a_second_signal_is_the_same(alone):
    ckpt = checkpoint.session()
    handler = logging.StreamHandler()
    handler.acquire()
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR2)
    finally:
        handler.release()
    assert steps_kept(alone) == [], "nothing is saved in the handler"
    assert ckpt.requested(1)
    assert save(ckpt, 1)
    assert ckpt.must_stop
    ckpt._next_look = 0
    assert not ckpt.requested(2)


def test_chk_07_first_start_and_an_unplanned_restart(alone, monkeypatch, capfd):
    ckpt = checkpoint.session()
    assert (ckpt.is_restart, ckpt.restarts, ckpt.last, ckpt.step) == (False, 0, None, 0)
    assert save(ckpt, 500)
    assert capfd.readouterr().err == ""
    ckpt._leader._beat_at = -1e9
    ckpt._next_look = 0
    ckpt.requested(730)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    again = checkpoint.session()
    assert (again.is_restart, again.restarts, again.step) == (True, 1, 500)
    said = capfd.readouterr().err
    assert "restart 1: unplanned" in said
    assert "continues from step 500, what came after it is lost, at least 230 steps" in said


def test_chk_10_two_are_kept_the_run_id_comes_back_and_the_log_is_kept(alone):
    for restart in range(4):
        ckpt = checkpoint.session(notes={} if restart else {"wandb": "3ab9"})
        assert ckpt.notes == {"wandb": "3ab9"}
        assert save(ckpt, (restart + 1) * 100)
    assert steps_kept(alone) == ["step-000000300", "step-000000400"]
    assert "--open-mode=append" in lint("#SBATCH --requeue\nsrun python train.py")[0].text


def test_chk_15_process_1_of_a_container_without_a_handler_is_reported():
    unshare = ["unshare", "--fork", "--pid", "--kill-child", "sleep", "20"]
    if os.geteuid() != 0 or subprocess.run([*unshare[:-2], "true"], check=False).returncode:
        pytest.skip("pid namespaces need root here")
    with subprocess.Popen(unshare) as process:
        try:
            time.sleep(0.5)
            found = targets(below(process.pid), USR2, "USR2")
        finally:
            process.kill()
    assert found.pids == ()
    assert "(sleep) is process 1 of its container and ignores USR2: it has no handler" in (
        found.why_not
    )
