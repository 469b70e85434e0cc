"""The wheel: built, installed with the oldest libraries that it allows, used on a saved dump."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "flood-22.05"
DUMP = GOLDEN / "in.sacct"
WINDOW = ("-S", "1795980316", "-E", "1795980376")


def run(*argv: str | Path, cwd: Path) -> str:
    env = {**os.environ, "LTGF_CONFIG": "", "COLUMNS": "120"}
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def oldest() -> str:
    """The least versions that pyproject.toml allows, which are those of Debian 12 or older."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = tables["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["report"]]
    return "\n".join(wanted).replace(">=", "==")


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
    pip[0] = str(venv / "bin" / "python")
    (tmp_path / "oldest").write_text(oldest() if sys.version_info < (3, 12) else "")
    run(*pip, "install", "-c", tmp_path / "oldest", f"{wheel}[report]", cwd=tmp_path)

    ltgf, ledger = venv / "bin" / "ltgf", tmp_path / "ledger.db"
    assert run(ltgf, "--version", cwd=tmp_path).startswith("ltgf, version ")
    assert "fairness" in run(ltgf, "--help", cwd=tmp_path)
    run(ltgf, "--ledger", ledger, "sync", "--from-file", DUMP, cwd=tmp_path)
    words = ("--ledger", ledger, "fairness", "--capacity", "32", *WINDOW, "--json")
    answer = json.loads(run(ltgf, *words, cwd=tmp_path))
    attained = {row["tenant"]: row["attained_gpu_s"] for row in answer["tenants"]}
    wanted = json.loads((GOLDEN / "expected.json").read_text())
    assert attained == {tenant: row["attained"] for tenant, row in wanted.items()}
    for words in (["replay", "--gpus", "32"], ["report", "--capacity", "32", *WINDOW]):
        page = tmp_path / f"{words[0]}.html"
        run(ltgf, *words, "--from-file", DUMP, "-o", page, cwd=tmp_path)
        assert "</html>" in page.read_text()
    share = venv / "share"
    assert (share / "man" / "man1" / "ltgf.1").is_file()
    assert (share / "bash-completion" / "completions" / "ltgf").is_file()
    assert (share / "slurm-ltgf" / "systemd" / "ltgf.service").is_file()
