"""Completion of ltgf and ltgf-ckpt: what real shells offer at TAB, and what that costs."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ROOT / "etc" / "completion"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds this checkout's commands and no settings of anybody."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(tmp_path), "TERM": "dumb", "LC_ALL": "C.UTF-8"}


SHELLS = {
    "bash": ("bash --norc --noprofile -i", f". {FILES}/ltgf; . {FILES}/ltgf-ckpt"),
    "zsh": ("zsh -f -i", f"fpath=({FILES} $fpath); autoload -U compinit; compinit -D -u"),
}


def completed(shell: str, typed: str, wanted: str, env: dict[str, str]) -> str:
    """What a shell on a terminal shows after TAB, until `wanted` is there or time is up."""
    argv, setup = SHELLS[shell][0].split(), SHELLS[shell][1]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], argv, env)
    try:
        os.write(terminal, f"{setup}; echo re''ady\n".encode())
        seen = read_until(terminal, "ready")
        assert "ready" in seen, seen
        os.write(terminal, f"{typed}\t".encode())
        return read_until(terminal, wanted)
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def read_until(terminal: int, wanted: str, timeout_s: float = 20) -> str:
    seen, ends = "", time.monotonic() + timeout_s
    while wanted not in seen and (left := ends - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            seen += os.read(terminal, 4096).decode(errors="replace")
    return seen


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("ltgf fairn", "ltgf fairness"),
        ("ltgf fairness --starttime now --endt", "--endtime"),
        ("ltgf-ckpt requ", "ltgf-ckpt requested"),
    ],
)
def test_a_shell_completes_what_was_begun(
    env: dict[str, str], shell: str, typed: str, wanted: str
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    assert wanted in completed(shell, typed, wanted, env).replace("\x07", "")


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ltgf fairn", "fairness\tWho got how much GPU-time, against what was due."),
        ("ltgf-ckpt requ", "requested\texit code 0: a checkpoint is due now; 1: none is"),
    ],
)
def test_fish_completes_with_help(env: dict[str, str], typed: str, offered: str) -> None:
    command = typed.split()[0]
    script = f"source {FILES}/{command}.fish; complete -C '{typed}'"
    argv = ["fish", "--no-config", "-c", script]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == offered


@pytest.mark.parametrize(
    ("words", "modules"),
    [("ltgf ", set()), ("ltgf fairness --", {"slurm_ltgf.cli.fairness"})],
    ids=["commands", "options"],
)
def test_completing_imports_no_more_than_the_options_and_starts_nothing(
    env: dict[str, str], words: str, modules: set[str]
) -> None:
    code = "import sys; from slurm_ltgf.cli import main; code = main.run()"
    code += "; print(code, *sys.modules, file=sys.stderr)"
    completing = {"_LTGF_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "1"}
    if modules:
        completing["COMP_CWORD"] = "2"
    env = {**env, **completing, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60)
    status, *loaded = done.stderr.split()
    assert status == "0"
    assert ("plain,--starttime" if modules else "plain,fairness") in done.stdout.splitlines()
    assert not {"numpy", "msgspec", "rich", "jinja2", "sqlite3", "subprocess"} & set(loaded)
    ours = {name for name in loaded if name.startswith("slurm_ltgf.cli.")}
    beside = {"main", "app", "options", "render"}
    assert ours - {f"slurm_ltgf.cli.{name}" for name in beside} == modules
