"""What is installed beside the modules: packages name what there is, units and logrotate hold."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import tomllib
from pathlib import Path

import pytest

from slurm_ltgf import __version__
from slurm_ltgf.cli import node
from slurm_ltgf.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
DEBIAN = ROOT / "debian"
UNITS = sorted((ROOT / "etc" / "systemd").glob("*.service"))
SCRIPTS = [path for path in DEBIAN.iterdir() if path.suffix in (".postinst", ".prerm", ".postrm")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

#: systemd-analyze's exposure times 10, as this unit may have it at most.
EXPOSURE = {"ltgf": 14, "ltgf-exporter": 20, "ltgf-report": 20}


def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


# --- packages -------------------------------------------------------------------------------------


def test_one_version_everywhere():
    debian = re.match(r"slurm-ltgf \(([^-]+)-", (DEBIAN / "changelog").read_text())
    assert debian is not None
    assert {debian[1], PROJECT["project"]["version"], __version__} == {__version__}


def test_every_file_that_the_packages_name_is_there():
    files = [*DEBIAN.glob("*.install"), *DEBIAN.glob("*.docs"), *DEBIAN.glob("*.examples")]
    named = [
        line.split()[0]
        for path in (*files, *DEBIAN.glob("*.manpages"))
        for line in path.read_text().splitlines()
    ]
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_pattern_of_the_wheels_data_files_finds_some():
    data = PROJECT["tool"]["setuptools"]["data-files"]
    patterns = [pattern for patterns in data.values() for pattern in patterns]
    assert [pattern for pattern in patterns if not list(ROOT.glob(pattern))] == []


def test_what_is_vendored_is_a_dependency_and_meets_its_least_version():
    least = dict(one.split(">=") for one in PROJECT["project"]["dependencies"])
    pinned = re.compile(r"^(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}$", re.MULTILINE)
    for name, version in pinned.findall((DEBIAN / "vendored.txt").read_text()):
        numbers = [[int(part) for part in text.split(".")] for text in (version, least.pop(name))]
        assert numbers[0] >= numbers[1]
    assert "msgspec" not in least


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_maintainer_scripts_are_sound_and_leave_slurm_alone(script):
    assert run("sh", "-n", script).stderr == ""
    text = script.read_text()
    assert "#DEBHELPER#" in text
    commands = re.sub(r"echo .*|#.*|^\s*\".*", "", text, flags=re.MULTILINE)
    assert not re.search(r"systemctl|service|scontrol|sacctmgr|\brm\b|restart", commands)


@pytest.mark.parametrize("name", ["ltgf", "ltgf-ckpt"])
def test_debians_commands_are_those_of_the_wheel(name):
    module, function = PROJECT["project"]["scripts"][name].split(":")
    assert f"from {module} import {function}\n" in (DEBIAN / "bin" / name).read_text()


# --- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_a_unit_runs_a_command_that_there_is(unit):
    started = re.findall(r"^Exec\w+=-?(\S+) (\S+)", unit.read_text(), re.MULTILINE)
    assert started
    assert {program for program, _ in started} == {"/opt/ltgf/bin/ltgf"}
    assert {word for _, word in started} <= set(COMMANDS)


@needs("systemd-analyze")
def test_systemd_has_nothing_to_say_of_the_units(tmp_path):
    for path in (ROOT / "etc" / "systemd").iterdir():
        (tmp_path / path.name).write_text(
            path.read_text().replace("/opt/ltgf/bin/ltgf", "/bin/true")
        )
    done = run("systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir()))
    ours = [line for line in done.stderr.splitlines() if "ltgf" in line]
    assert (done.returncode, ours) == (0, [])


@needs("systemd-analyze")
@pytest.mark.parametrize("name", EXPOSURE)
def test_a_unit_is_exposed_no_more_than(name):
    unit = ROOT / "etc" / "systemd" / f"{name}.service"
    options = ("--offline=true", "--no-pager", f"--threshold={EXPOSURE[name]}")
    done = run("systemd-analyze", "security", *options, unit)
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_the_node_agent_tells_systemd_ready_alive_and_the_end(ltgf, monkeypatch, tmp_path):
    class Agent:
        """Serves one round."""

        def serve(self, stop, alive):
            alive()

    monkeypatch.setattr(node, "_agent", lambda *_: Agent())
    monkeypatch.setattr(node.os, "geteuid", lambda: 0)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"{tmp_path}/notify")
        sock.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/notify")
        assert ltgf("node")[0] == 0
        told = [sock.recv(100) for _ in range(3)]
    assert told == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


# --- logrotate ------------------------------------------------------------------------------------


@needs("logrotate")
def test_logrotate_takes_old_logs_away_and_nothing_else(tmp_path):
    text = (ROOT / "etc" / "logrotate" / "ltgf").read_text()
    conf, state = tmp_path / "ltgf", tmp_path / "state"
    conf.write_text(text.replace("/var/lib/ltgf-node", str(tmp_path)))
    conf.chmod(0o644)
    for name in ("7.dump.log", "7.lock"):
        (tmp_path / name).write_text("x")
    done = run("logrotate", "-d", "-s", state, conf)
    assert (done.returncode, "error" in done.stderr) == (0, False)
    state.write_text(f'logrotate state -- version 2\n"{tmp_path}/7.dump.log" 2020-1-1-0:0:0\n')
    assert run("logrotate", "-s", state, conf).returncode == 0
    assert not (tmp_path / "7.dump.log").exists()
    assert (tmp_path / "7.lock").exists()
