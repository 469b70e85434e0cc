"""`ltgf init` on a real cluster: what it finds is so, and the doctor has nothing to mend."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest
from commands import Ltgf

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

pytestmark = pytest.mark.cluster


def test_a_first_file_is_written_that_the_doctor_accepts(cluster: Lab, tmp_path: Path):
    ltgf = Ltgf(cluster, tmp_path, "")
    file = tmp_path / "first.toml"
    said = ltgf.run("init", "-o", str(file))
    assert said.startswith(f"wrote {file}\nnext:\n")
    text = file.read_text()
    assert tomllib.loads(text)["site"]["cluster"] == "ltgf"
    assert "\n# GPUs: 32 h200; nodes: 4\n# Partitions: main\n" in text
    assert "\n# Tenants and their weights, by Fairshare: astro 4, bio 2, chem 1\n" in text
    assert "not found" not in said.lower() + text.lower()
    assert "checks: 0 to fix" in ltgf.run("--config", str(file), "doctor")
