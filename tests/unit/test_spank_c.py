"""The C of spank/: its unit tests under ASan and UBSan, what it exports, how it is installed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

SPANK = Path(__file__).parents[2] / "spank"
OURS = ("ltgf_spank", "context_", "task", "options", "values", "arguments", "share", "ckpt")
OURS += ("gpumap", "node", "shim")


def make(*words: str) -> subprocess.CompletedProcess[str]:
    argv = ["make", "-s", "-j2", "-C", str(SPANK), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spank")
    done = make(f"BUILD={folder}", "all")
    assert done.returncode == 0, done.stderr
    return folder


def test_the_pure_parts_hold_under_asan_and_ubsan(built: Path) -> None:
    done = make(f"BUILD={built}", "check")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("options", "values", "arguments", "share", "files"):
        assert re.search(rf"test_{name}\n\d+ checks, 0 failed", done.stdout), done.stdout


def test_a_broken_rule_is_found(built: Path, tmp_path: Path) -> None:
    """A check that could not fail would be worth nothing: 0 % as a thread limit."""
    broken = tmp_path / "spank"
    call = ["cp", "-r", str(SPANK), str(broken)]
    subprocess.run(call, check=True)
    text = (broken / "values.c").read_text()
    (broken / "values.c").write_text(text.replace("&value) || value < 1)", "&value))"))
    argv = [
        "make",
        "-s",
        "-C",
        str(broken),
        f"BUILD={tmp_path / 'b'}",
        f"{tmp_path}/b/san/test_values",
    ]
    subprocess.run(argv, check=True, capture_output=True, timeout=300)
    done = subprocess.run(
        [f"{tmp_path}/b/san/test_values"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert 'ltgf_read_percent("0", &percent)' in done.stdout


def symbols(built: Path, *options: str) -> set[str]:
    argv = ["nm", "-D", *options, str(built / "spank_ltgf.so")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}


def test_only_slurms_symbols_leave_the_plugin(built: Path) -> None:
    found = symbols(built, "--defined-only")
    assert {"plugin_name", "plugin_type", "plugin_version", "spank_plugin_version"} < found
    assert all(re.match(r"(spank_)?plugin_|slurm_spank_", name) for name in found), found


def test_nothing_is_called_of_slurm_but_what_spank_h_offers(built: Path) -> None:
    offered = set(
        re.findall(r"\b(spank_\w+|slurm_\w+)\b", Path("/usr/include/slurm/spank.h").read_text())
    )
    wanted = {name for name in symbols(built, "-u") if re.match(r"spank_|slurm_", name)}
    assert wanted
    assert wanted <= offered


def test_nothing_runs_a_shell_or_looks_along_a_path(built: Path) -> None:
    forbidden = {
        "system",
        "popen",
        "execvp",
        "execlp",
        "execvpe",
        "strcpy",
        "sprintf",
        "atoi",
        "gets",
    }
    assert not symbols(built, "-u") & forbidden


def test_install_puts_one_file_there_by_rename_and_uninstall_takes_it(
    built: Path, tmp_path: Path
) -> None:
    where = (
        f"BUILD={built}",
        f"DESTDIR={tmp_path}",
        "PLUGINDIR=/lib/x",
        "SLURM_VERSION=echo slurm-wlm 22.05.8",
    )
    plugin = tmp_path / "lib" / "x" / "spank_ltgf.so"
    assert make(*where, "install").returncode == 0
    with plugin.open("rb") as held:  # as slurmd holds it
        before = plugin.stat().st_ino
        assert make(*where, "install").returncode == 0
        assert plugin.stat().st_ino != before
        assert held.read(4) == b"\x7fELF"
    assert [path.name for path in plugin.parent.iterdir()] == ["spank_ltgf.so"]
    assert make(*where, "uninstall").returncode == 0
    assert not plugin.exists()


def test_an_install_for_another_slurm_is_refused_with_both_versions(
    built: Path, tmp_path: Path
) -> None:
    done = make(
        f"BUILD={built}", f"DESTDIR={tmp_path}", "SLURM_VERSION=echo slurm 24.11.5", "install"
    )
    assert done.returncode != 0
    assert "built for Slurm 22.05, but this machine runs Slurm 24.11" in done.stderr
    assert not list(tmp_path.rglob("spank_ltgf.so"))


def test_every_option_variable_and_word_is_in_the_reference() -> None:
    page = (SPANK.parent / "docs" / "reference" / "spank-options.md").read_text()
    table = re.findall(
        r'\[LTGF_\w+\] = \{ "([a-z-]+)", "(LTGF_\w+)"', (SPANK / "options.c").read_text()
    )
    assert len(table) == 9
    for name, variable in table:
        assert re.search(rf"^\| `--{name}[=\[].*`{variable}` \|$", page, re.MULTILINE), name
    words = re.findall(r'KEY\("(\w+)"', (SPANK / "arguments.c").read_text())
    assert len(words) == 14
    for word in words:
        assert re.search(rf"^\| `{word}=`", page, re.MULTILINE), word
    given = re.findall(r'"(LTGF_CKPT_\w+)"', (SPANK / "task_ckpt.c").read_text())
    assert all(f"`{variable}`" in page for variable in given)


FILES = [path for path in sorted(SPANK.glob("*.[ch]")) if path.name.startswith(OURS)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_and_lines_are_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 300
    assert not [line for line in lines if len(line.expandtabs(8)) > 100]
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", path.read_text())
