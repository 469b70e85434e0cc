"""The man pages: they are what the commands say (test_docs), read well, and are sound roff."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from slurm_ltgf.cli.main import COMMANDS
from slurm_ltgf.store.settings import settings_table

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "man").iterdir())


@pytest.fixture(scope="module")
def made() -> dict[str, object]:
    """The generator's functions."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return runpy.run_path(str(ROOT / "scripts" / "man_pages.py"))
    finally:
        sys.path.pop(0)


def shown(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    argv = ["man", *options, "-l", str(page)]
    env = {"PATH": "/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60)


def test_there_is_a_page_for_each_command_and_for_the_settings():
    commands = {f"ltgf-{name}.1" for name in COMMANDS}
    assert {page.name for page in PAGES} == commands | {
        "ltgf.1",
        "ltgf-ckpt.1",
        "ltgf-mps.8",
        "ltgf.toml.5",
        "quota.toml.5",
    }


@pytest.mark.skipif(not shutil.which("mandoc"), reason="mandoc is not installed")
def test_mandoc_has_nothing_to_say():
    argv = ["mandoc", "-T", "lint", *map(str, PAGES)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_groff_has_nothing_to_say():
    for page in PAGES:
        argv = ["groff", "-ww", "-man", "-z", "-Tutf8", str(page)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
        assert done.stderr == "", page.name


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
def test_man_shows_every_setting():
    done = shown(ROOT / "man" / "ltgf.toml.5", "--warnings")
    assert done.stderr == ""
    lines = [line.strip() for line in done.stdout.splitlines()]
    for row in settings_table():
        assert any(line.startswith(f"{row.key} = {row.default}"[:60]) for line in lines), row.key


@pytest.mark.skipif(not shutil.which("mandoc"), reason="mandoc is not installed")
def test_text_is_shown_as_it_is_whatever_roff_makes_of_it(made, tmp_path):
    text = r"'.so /etc/passwd' \n[x] ^~`- -- é \fBbold"
    page = tmp_path / "x.1"
    page.write_text(
        made["page"]("x", 1, "y", [("T", made["tagged"]([(text, f".{text}")]))], see=[])
    )
    argv = ["mandoc", "-T", "utf8", "-O", "width=200", str(page)]
    out = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    plain = "".join(c for i, c in enumerate(out) if c != "\b" and out[i + 1 : i + 2] != "\b")
    assert [line.strip() for line in plain.splitlines() if "passwd" in line] == [text, f".{text}"]


def test_a_groups_subcommands_are_on_its_page(made):
    @click.group()
    def group() -> None:
        """Of many."""

    @group.command("plan")
    @click.option("--deep", help="How deep.")
    def plan(deep: str) -> None:
        """Show what would be done."""

    with click.Context(group, info_name="ltgf quota") as ctx:
        lines = made["group_parts"](group, ctx)
    headings = [heading for heading, _ in lines]
    assert headings == ["SYNOPSIS", "DESCRIPTION", "OPTIONS", "LTGF QUOTA PLAN"]
    assert r"\fB\-\-deep TEXT\fR" in dict(lines)["LTGF QUOTA PLAN"]
