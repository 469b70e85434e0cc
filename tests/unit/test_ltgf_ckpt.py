"""`ltgf-ckpt`: programs that know nothing of the protocol are saved, told, awaited, spared."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.lint import lint
from slurm_ltgf.checkpoint.processes import Process, targets
from slurm_ltgf.checkpoint.protocol import Action, Ask, Mode, Phase, Record, ask_id, withdrawn

JOB, UID = 91, os.geteuid()
RANK = """
import os, signal, sys, time
name = sys.argv[1]
def save(*_):
    new = f"{name}-{time.time_ns()}"
    os.mkdir(os.path.join(os.environ["LTGF_CKPT_DIR"], new))
    os.symlink(new, new + ".link")
    os.rename(new + ".link", os.path.join(os.environ["LTGF_CKPT_DIR"], "last"))
signal.signal(signal.SIGUSR2, save)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    time.sleep(0.05)
"""


class Wrapped:
    """A program under `ltgf-ckpt run`."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder, self.board = home, home / "ckpt", Board(home / "ckpt")
        self.process: subprocess.Popen | None = None

    def start(self, *argv: str, words=(), **extra: str) -> None:
        command = [sys.executable, "-m", "slurm_ltgf.checkpoint", "run", *words, "--", *argv]
        self.process = subprocess.Popen(
            command, env=environment(self.folder, **extra), cwd=self.home,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def rank(self, seconds: float = 30, **extra: str) -> None:
        self.start(sys.executable, "-c", RANK, "one", str(seconds), **extra)

    def ask(self, action=Action.CHECKPOINT, within_s=10, hold_s=60) -> Ask:
        now = int(time.time())
        ask = Ask(ask_id(), JOB, 0, action, now + within_s, now + hold_s, now)
        self.board.ask(ask)
        return ask

    def answer(self, phase: Phase, ask: str = "", within_s: float = 15):
        end, seen = time.monotonic() + within_s, None
        while time.monotonic() < end:
            seen = self.board.answer(JOB, UID) if self.folder.exists() else None
            if seen and (seen.phase, seen.ask) == (phase, ask):
                return seen
            time.sleep(0.05)
        raise AssertionError(f"no {phase}, but {seen}")

    def end(self, limit_s: float = 30) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=limit_s)
        return self.process.returncode, said


def environment(folder: Path, **extra: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "LTGF"))}
    return {**env, "SLURM_JOB_ID": str(JOB), "LTGF_CKPT_DIR": str(folder), **extra}


@pytest.fixture
def wrapped(tmp_path):
    found = Wrapped(tmp_path)
    yield found
    if found.process and found.process.poll() is None:
        found.process.terminate()
        try:
            found.process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            found.process.kill()
            found.process.communicate()


# --- run ------------------------------------------------------------------------------------------


def test_the_exit_code_is_the_programs(wrapped):
    for program, code in (("exit 7", 7), ("kill -9 $$", 137), ("true", 0)):
        wrapped.start("bash", "-c", program)
        assert wrapped.end() == (code, "")
    wrapped.start("/no/such/program")
    assert wrapped.end() == (127, "ltgf-ckpt: /no/such/program: No such file or directory\n")


def test_an_ask_signals_who_catches_and_waits_for_the_link(wrapped):
    wrapped.rank()
    wrapped.answer(Phase.READY)
    first = wrapped.ask()
    answer = wrapped.answer(Phase.SAVED, first.id)
    assert answer.name == str((wrapped.folder / "last").readlink())
    again = wrapped.ask(Action.REQUEUE)
    assert wrapped.answer(Phase.SAVED, again.id).name != answer.name
    wrapped.board.ask(withdrawn(again, Action.GO_ON, int(time.time())))
    wrapped.answer(Phase.GOING, again.id)


def test_a_command_saves(wrapped):
    command = wrapped.home / "save"
    command.write_text('#!/bin/sh\nmkdir "$LTGF_CKPT_DIR/a" && ln -sfn a "$LTGF_CKPT_DIR/last"\n')
    command.chmod(0o700)
    wrapped.start("sleep", "30", words=["--ckpt-command", str(command)])
    wrapped.answer(Phase.READY)
    assert wrapped.answer(Phase.SAVED, wrapped.ask().id).name == "a"
    why = wrapped.answer(Phase.FAILED, wrapped.ask().id).why
    assert why == f"{command} ended with 1"
    assert wrapped.process.poll() is None


def test_a_save_that_never_comes_fails_at_the_deadline_and_nothing_is_killed(wrapped):
    code = "import signal,time; signal.signal(signal.SIGUSR2, lambda *_: None); time.sleep(4)"
    wrapped.start(sys.executable, "-c", f"{code}; time.sleep(2)")
    wrapped.answer(Phase.READY)
    assert "not saved in" in wrapped.answer(Phase.FAILED, wrapped.ask(within_s=2).id).why
    assert wrapped.end()[0] == 0


def test_a_program_that_would_die_of_the_signal_is_spared(wrapped):
    wrapped.start("sleep", "3")
    time.sleep(0.7)
    wrapped.process.send_signal(signal.SIGUSR2)
    code, said = wrapped.end()
    assert code == 0
    assert "(sleep) would be killed by USR2: it has no handler; not signalled" in said
    assert wrapped.board.answer(JOB, UID) is None, "never ready: it must not be asked"


def test_slurms_own_signal_saves_too(wrapped):
    wrapped.rank(3)
    wrapped.answer(Phase.READY)
    for _ in range(3):
        wrapped.process.send_signal(signal.SIGUSR2)
    assert wrapped.end() == (0, "")
    assert (wrapped.folder / "last").exists()


SAVES_AND_ENDS = """
import os, signal, time
def save(*_):
    os.mkdir(os.path.join(os.environ["LTGF_CKPT_DIR"], "a"))
    os.symlink("a", os.path.join(os.environ["LTGF_CKPT_DIR"], "last"))
    raise SystemExit
signal.signal(signal.SIGUSR2, save)
time.sleep(30)
"""


def test_a_program_that_saves_for_slurms_signal_and_ends_at_once_has_stopped(wrapped):
    wrapped.start(sys.executable, "-c", SAVES_AND_ENDS)
    wrapped.answer(Phase.READY)
    assert ckpt(wrapped.folder, "stopped").returncode == 1
    wrapped.process.send_signal(signal.SIGUSR2)
    assert wrapped.end() == (0, "")
    assert wrapped.answer(Phase.STOPPED).name == "a"
    assert ckpt(wrapped.folder, "stopped").returncode == 0
    assert ckpt(wrapped.folder, "stopped", SLURM_RESTART_COUNT="1").returncode == 1


def test_a_program_that_ends_by_itself_has_not_stopped(wrapped):
    wrapped.rank(3)
    wrapped.answer(Phase.READY)
    wrapped.answer(Phase.SAVED, wrapped.ask().id)
    assert wrapped.end()[0] == 0
    assert ckpt(wrapped.folder, "stopped").returncode == 1


def test_term_is_passed_on_once_the_save_is_made(wrapped):
    wrapped.rank()
    wrapped.answer(Phase.READY)
    wrapped.process.terminate()
    assert wrapped.end() == (128 + signal.SIGTERM, "")
    assert (wrapped.folder / "last").exists()


def test_a_session_inside_speaks_for_itself(wrapped):
    script = Path(__file__).parents[2] / "scripts" / "train_in_step.py"
    wrapped.start(sys.executable, str(script), "--steps", "5000", "--step-ms", "1")
    wrapped.answer(Phase.READY)
    time.sleep(1)
    for _ in range(2):
        answer = wrapped.answer(Phase.SAVED, wrapped.ask().id)
        assert answer.name == f"step-{answer.step:09d}"
    wrapped.process.send_signal(signal.SIGUSR2)
    assert wrapped.end()[0] == 0


def test_ranks_of_a_launcher_are_told_and_the_launcher_is_not(wrapped):
    (wrapped.home / "rank.py").write_text(RANK)
    (wrapped.home / "torchrun").write_text(
        "#!/bin/bash\nfor r in 0 1 2 3; do RANK=$r LOCAL_RANK=$r "
        f"{sys.executable} rank.py r$r 4 & done; wait\n"
    )
    (wrapped.home / "torchrun").chmod(0o700)
    wrapped.start("./torchrun")
    wrapped.answer(Phase.READY)
    time.sleep(1)
    wrapped.answer(Phase.SAVED, wrapped.ask().id)
    assert wrapped.end()[0] == 0
    assert len({path.name[:2] for path in wrapped.folder.glob("r?-*")}) == 4


# --- whom to tell ---------------------------------------------------------------------------------

USR2 = int(signal.SIGUSR2)


def one(pid, parent, *, catches=True, inside=None, line="", **env):
    numbers = frozenset({USR2} if catches else ())
    return Process(pid, parent, f"p{pid}", numbers, inside or pid, line, env)


def test_a_ranks_own_helpers_are_not_told():
    tree = [one(1, 0, catches=False), one(2, 1, RANK="0"), one(3, 2, RANK="0")]
    assert targets(tree, USR2, "USR2").pids == (2,)


def test_process_1_of_a_container_without_a_handler_is_named():
    tree = [one(10, 1, catches=False), one(11, 10, catches=False, inside=1)]
    why = targets(tree, USR2, "USR2").why_not
    assert why == (
        "process 11 (p11) is process 1 of its container and ignores USR2: it has no handler"
    )


def test_an_agent_that_catches_is_not_told():
    tree = [one(5, 1, line="python -m torch.distributed.run x.py", SLURM_PROCID="0")]
    assert targets(tree, USR2, "USR2").pids == ()


# --- loops in shell scripts -----------------------------------------------------------------------

LOOP = """
set -e
ckpt() { "$PYTHON" -m slurm_ltgf.checkpoint "$@"; }
from=0
if last=$(ckpt last); then from=$(cat "$last/i"); fi
ckpt ready
for i in $(seq $((from + 1)) "$STEPS"); do
    sleep 0.1
    echo "$i" >> "$LTGF_CKPT_DIR/log"
    if ckpt requested; then
        mkdir "$LTGF_CKPT_DIR/at-$i"
        echo "$i" > "$LTGF_CKPT_DIR/at-$i/i"
        ckpt commit "at-$i" --step "$i"
    fi
done
"""


def test_a_shell_loop_is_saved_killed_and_continues(wrapped):
    env = {"PYTHON": sys.executable, "STEPS": "200"}
    process = subprocess.Popen(
        ["bash", "-c", LOOP], env=environment(wrapped.folder, **env), start_new_session=True
    )
    try:
        wrapped.answer(Phase.READY)
        ask = wrapped.ask(Action.REQUEUE)
        saved = wrapped.answer(Phase.SAVED, ask.id)
        time.sleep(1)
        assert process.poll() is None, "it holds"
        done = (wrapped.folder / "log").read_text().split()
        assert done[-1] == str(saved.step), "and does nothing meanwhile"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    env |= {"STEPS": str(saved.step + 2), "SLURM_RESTART_COUNT": "1"}
    subprocess.run(["bash", "-c", LOOP], env=environment(wrapped.folder, **env), check=True)
    steps = (wrapped.folder / "log").read_text().split()
    assert steps == [str(n) for n in range(1, saved.step + 3)]


def ckpt(folder: Path, *argv: str, **extra: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "slurm_ltgf.checkpoint", *argv],
        env=environment(folder, **extra), capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_what_cannot_be_committed_is_said_and_answered(wrapped):
    assert ckpt(wrapped.folder, "ready").returncode == 0
    assert ckpt(wrapped.folder, "last").returncode == 1
    assert ckpt(wrapped.folder, "requested").returncode == 1
    ask = wrapped.ask()
    assert ckpt(wrapped.folder, "requested").returncode == 0
    wrapped.answer(Phase.WORKING, ask.id)
    done = ckpt(wrapped.folder, "commit", "nothing")
    assert done.returncode == 74
    assert "nothing: No such file or directory" in done.stderr
    wrapped.answer(Phase.FAILED, ask.id)
    assert ckpt(wrapped.folder, "commit", "../x").returncode == 2
    assert not (wrapped.folder / "last").is_symlink()


def test_an_interval_is_kept_by_shell_loops(wrapped):
    assert ckpt(wrapped.folder, "ready").returncode == 0
    assert ckpt(wrapped.folder, "requested", LTGF_CKPT_INTERVAL_S="60").returncode == 1
    old = time.time() - 61
    os.utime(wrapped.folder / "ltgf-ready", (old, old))
    assert ckpt(wrapped.folder, "requested", LTGF_CKPT_INTERVAL_S="60").returncode == 0


def test_a_record_that_the_plugin_wrote_is_kept(wrapped):
    wrapped.folder.mkdir(mode=0o700)
    record = Record(JOB, UID, 0, Mode.APP, wrapped.folder, command="/bin/save", timeout_s=90)
    wrapped.board.enter(record)
    ckpt(wrapped.folder, "ready")
    assert wrapped.board.record(JOB, UID) == record


# --- lint -----------------------------------------------------------------------------------------

GOOD = "#!/bin/bash\n#SBATCH --open-mode=append\n#SBATCH --signal=B:USR2@120\n"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (GOOD + "exec ltgf-ckpt run -- python train.py\n", []),
        ("#SBATCH --open-mode=append --signal=USR2@120\nsrun python train.py\n", []),
        ("#SBATCH --open-mode append\npython train.py\n", []),
        (GOOD + "trap save USR2\npython train.py &\nwait\n", []),
        (GOOD + "ltgf-ckpt run -- python train.py\n", ["3: USR2 ends the batch script"]),
        ("python train.py\n", ["1: a requeue overwrites the output"]),
        (
            "#SBATCH --signal=B:USR2@70000\nexec ltgf-ckpt run -- x",
            ["1: a requeue", "1: --signal="],
        ),
        ("#SBATCH --signal=oops!\nx", ["1: a requeue", "1: --signal=oops!: must be"]),
    ],
)
def test_lint(script, says):
    found = [f"{one.line}: {one.text}" for one in lint(script)]
    assert len(found) == len(says), found
    assert all(text.startswith(start) for text, start in zip(found, says, strict=True)), found


def test_lint_as_a_command(tmp_path):
    path = tmp_path / "job.sh"
    path.write_text("python train.py\n")
    done = ckpt(tmp_path, "lint", str(path))
    assert done.returncode == 1
    assert done.stdout.startswith(f"{path}:1: a requeue overwrites")
