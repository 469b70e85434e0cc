"""Cases of kind spank-prolog, as far as no Slurm is needed.

The rest is in tests/cluster/test_spank_live.py: a bad value is refused and no node drained
(SPK-04), an option reaches inner steps and is overridden there (SPK-05), --export=NONE (SPK-06),
no prolog hook (SPK-08), a missing file (SPK-02).
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
INPUTS = Path(__file__).parent / "inputs"
SPANK = ROOT / "spank"


def given(case: str) -> str:
    return (INPUTS / f"{case}.txt").read_text()


def test_spk_01_a_build_for_another_slurm_is_told_before_plugstack_is_touched(
    tmp_path: Path,
) -> None:
    built, runs = re.findall(r"\d\d\.\d\d", given("spk-01"))
    major, minor = (int(part) for part in built.split("."))
    headers = tmp_path / "slurm"
    headers.mkdir()
    number = f"#define SLURM_VERSION_NUMBER 0x{major:02x}{minor:02x}03\n"
    (headers / "slurm_version.h").write_text(number)
    words = [f"SLURM_INCLUDE={tmp_path}", f"SLURM_VERSION=echo slurm {runs}.1", "version"]
    done = subprocess.run(
        ["make", "-s", "-C", str(SPANK), f"BUILD={tmp_path}", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert f"built for Slurm {built}, but this machine runs Slurm {runs}" in done.stderr


def test_spk_02_the_shipped_line_is_optional_and_absolute() -> None:
    assert "required" in given("spk-02")
    text = (ROOT / "etc" / "slurm" / "plugstack.ltgf.conf.example").read_text()
    (line,) = [line for line in text.splitlines() if not line.startswith("#")]
    word, path, *rest = line.split()
    assert word == "optional"
    assert path.startswith("/")
    assert path.endswith("/spank_ltgf.so")
    assert all("=" in word for word in rest)


def functions(path: Path) -> dict[str, str]:
    """The bodies of a file's functions."""
    found = re.findall(r"^\w[^;{}=]*?(\w+)\([^;{}]*\)\n\{\n(.*?)^\}", path.read_text(), re.M | re.S)
    return dict(found)


def test_spk_04_no_hook_can_drain_a_node() -> None:
    assert "MPS daemon fails to start" in given("spk-04")
    bodies = functions(SPANK / "ltgf_spank.c")
    hooks = {name: body for name, body in bodies.items() if name.startswith("slurm_spank_")}
    assert len(hooks) == 5
    for name, body in hooks.items():
        assert set(re.findall(r"return ([^;]*);", body)) == {"0"}, name
    ends = {p.name for p in SPANK.glob("*.c") if re.search(r"\b_?exit\(", p.read_text())}
    assert {name for name in ends if name.startswith(("context_node", "node"))} == set()
    words = "".join(p.read_text() for p in SPANK.glob("context_node.c"))
    assert "scontrol" not in words


def test_spk_05_options_are_registered_in_every_context_that_has_init() -> None:
    assert "srun" in given("spk-05")
    body = functions(SPANK / "ltgf_spank.c")["slurm_spank_init"]
    before, _, _ = body.partition("spank_option_register")
    assert re.findall(r"S_CTX_\w+", before) == ["S_CTX_SLURMD"]


def test_spk_06_a_job_without_option_values_has_the_environment_as_a_second_channel() -> None:
    assert "--export=NONE" in given("spk-06")
    text = (ROOT / "docs" / "reference" / "spank-options.md").read_text()
    assert "SPANK_LTGF_MPS" in text
    assert "REST" in text


def test_spk_08_the_line_for_a_hook_that_did_not_run_names_the_node_and_the_remedy() -> None:
    assert "slurmd not restarted" in given("spk-08")
    text = "".join(path.read_text() for path in SPANK.glob("mps*.c"))
    assert re.search(r'"the prolog hook did not run on %s.{,200}restart slurmd', text, re.DOTALL)
    page = (ROOT / "docs" / "how-to" / "install-the-spank-plugin.md").read_text()
    assert "systemctl restart slurmd" in page
