"""The wheel: built, installed into an environment of its own, and used there on a saved dump."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DUMP = ROOT / "tests" / "golden" / "flood-22.05" / "in.sacct"


def run(*argv: str | Path, cwd: Path) -> str:
    env = {**os.environ, "LTGF_CONFIG": "", "COLUMNS": "120"}
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_installed_alone_has_all_that_the_commands_need(tmp_path: Path) -> None:
    tree, venv = tmp_path / "tree", tmp_path / "venv"
    for name in ("slurm_ltgf", "man", "etc", "pyproject.toml", "README.md", "LICENSE"):
        source = ROOT / name
        tree.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tree / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    run(*pip, "wheel", "--no-deps", "-w", tmp_path, tree, cwd=tmp_path)
    (wheel,) = tmp_path.glob("slurm_ltgf-*.whl")
    run(sys.executable, "-m", "venv", venv, cwd=tmp_path)
    run(venv / "bin" / "pip", "--disable-pip-version-check", "-q", "install", wheel, cwd=tmp_path)

    ltgf, ledger = venv / "bin" / "ltgf", tmp_path / "ledger.db"
    assert run(ltgf, "--version", cwd=tmp_path).startswith("ltgf, version ")
    assert "fairness" in run(ltgf, "--help", cwd=tmp_path)
    run(ltgf, "--ledger", ledger, "sync", "--from-file", DUMP, cwd=tmp_path)
    shown = run(ltgf, "--ledger", ledger, "fairness", "--capacity", "32", cwd=tmp_path)
    assert "astro" in shown
    page = tmp_path / "replay.html"
    run(ltgf, "replay", "--from-file", DUMP, "--gpus", "32", "-o", page, cwd=tmp_path)
    assert "</html>" in page.read_text()
    share = venv / "share"
    assert (share / "man" / "man1" / "ltgf.1").is_file()
    assert (share / "bash-completion" / "completions" / "ltgf").is_file()
    assert (share / "slurm-ltgf" / "systemd" / "ltgf.service").is_file()
