"""`ltgf` on a test's cluster: its own settings and ledger, each command echoed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import Lab, call, wait_until

from slurm_ltgf.store.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]


def as_user(*modules: str) -> str:
    """`ltgf` that becomes a user once loaded: this interpreter may lie where users cannot read."""
    return f"""
import os, pwd, sys
import {", ".join(modules)}
from slurm_ltgf.cli.main import main
user = pwd.getpwnam(sys.argv.pop(1))
os.initgroups(user.pw_name, user.pw_gid), os.setgid(user.pw_gid), os.setuid(user.pw_uid)
os.environ["HOME"] = user.pw_dir
main()
"""


AS_USER = as_user(
    "numpy",
    "slurm_ltgf.cli.tick",
    "slurm_ltgf.cli.explain",
    "slurm_ltgf.service.tick",
    "slurm_ltgf.store.files",
    "slurm_ltgf.slurm.site",
    "slurm_ltgf.slurm.history",
)


@dataclass(frozen=True)
class Ltgf:
    """A cluster, and a folder with the settings and the ledger that a test uses on it."""

    lab: Lab
    folder: Path
    settings: str = ""

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self.folder / "ledger.db"

    @property
    def env(self) -> dict[str, str]:
        """The environment of `ltgf`: it finds the cluster and this working tree."""
        return self.lab.env | {"PYTHONPATH": str(ROOT), "NOTIFY_SOCKET": ""}

    def argv(self, *args: str, program: Sequence[str] = ("-m", "slurm_ltgf")) -> list[str]:
        """The command line of `ltgf ARGS`."""
        config = self.folder / "ltgf.toml"
        config.write_text(self.settings)
        files = ("--config", str(config), "--ledger", str(self.path))
        return [sys.executable, *program, *files, *args]

    def ask(self, *args: str, user: str = "") -> subprocess.CompletedProcess[str]:
        """Run `ltgf ARGS`, as root or a user, whatever comes of it."""
        program = ("-c", AS_USER, user) if user else ("-m", "slurm_ltgf")
        return call(*self.argv(*args, program=program), env=self.env)

    def run(self, *args: str) -> str:
        """Run `ltgf ARGS`, which must end well and complain of nothing; its stdout."""
        done = self.ask(*args)
        assert (done.returncode, done.stderr) == (0, ""), f"ltgf {args}: {done}"
        return done.stdout

    def json(self, *args: str) -> dict[str, Any]:
        """Run `ltgf ARGS --json` and read its answer."""
        answer: dict[str, Any] = json.loads(self.run(*args, "--json"))
        return answer

    def audit(self) -> list[tuple[str, str | None]]:
        """(job, SiteFactor) of each write to Slurm that the ledger tells of, newest first."""
        with Ledger(self.path, readonly=True) as ledger:
            return [(entry.job_id, entry.new) for entry in ledger.audit_last(10_000)]


class Daemon:
    """A running `ltgf daemon` and its log."""

    def __init__(self, ltgf: Ltgf, **env: str) -> None:
        self.log = ltgf.folder / "daemon.log"
        with self.log.open("a") as out:
            self.process = subprocess.Popen(
                ltgf.argv("daemon"), env=ltgf.env | env, stdin=subprocess.DEVNULL,
                stdout=out, stderr=out,
            )  # fmt: skip

    @property
    def lines(self) -> list[str]:
        """Its whole log lines, without their time."""
        text = self.log.read_text()
        whole = text[: text.rfind("\n") + 1]
        return [re.sub(r"^[\d-]+ [\d:,]+ ", "", line) for line in whole.splitlines()]

    @property
    def passes(self) -> list[dict[str, str]]:
        """The figures of each pass, by name."""
        found = (dict(re.findall(r"(\w+)=(\S+)", line)) for line in self.lines)
        return [figures for figures in found if "tenants" in figures]

    def matching(self, pattern: str) -> list[str]:
        """The log lines that match."""
        return [line for line in self.lines if re.search(pattern, line)]

    def wait_line(self, pattern: str, timeout: float = 30) -> None:
        """Wait until a log line matches."""
        wait_until(
            lambda: bool(self.matching(pattern)), timeout, lambda: f"{pattern} in {self.lines}"
        )

    def wait_passes(self, more: int = 1, timeout: float = 30) -> dict[str, str]:
        """Wait for whole passes from now on; the last one's figures."""
        wanted = len(self.passes) + more
        wait_until(lambda: len(self.passes) >= wanted, timeout, lambda: "\n".join(self.lines))
        return self.passes[-1]

    def stop(self) -> tuple[int, float]:
        """End it by SIGTERM: its exit status, and the seconds that it took."""
        began = time.monotonic()
        self.process.terminate()
        return self.process.wait(60), time.monotonic() - began

    def kill(self) -> None:
        """End it by SIGKILL, if it is still there."""
        self.process.kill()
        self.process.wait(60)
