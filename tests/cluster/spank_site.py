"""The SPANK plugin on a test's cluster: built, installed, with a stand-in for NVIDIA's daemon."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab import Lab, call, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "tests" / "fakes" / "nvidia-cuda-mps-control"
SHOW = "env | grep -E '^(CUDA_|LTGF_)' | sort"


def build(folder: Path, *goals: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run spank/Makefile with its output in a folder."""
    words = [f"{name}={value}" for name, value in {"BUILD": str(folder), **variables}.items()]
    return call("make", "-s", "-j2", "-C", str(ROOT / "spank"), *words, *(goals or ("all",)))


@dataclass(frozen=True)
class Site:
    """A cluster with the plugin; its files lie in the cluster's state directory."""

    lab: Lab
    built: Path
    headers: str

    @property
    def plugin(self) -> Path:
        """Where Slurm finds the plugin."""
        return self.lab.state / "lib" / "spank_ltgf.so"

    @property
    def mode(self) -> Path:
        """The stand-in's orders."""
        return self.lab.state / "lib" / "mode"

    @property
    def out(self) -> Path:
        """A folder that every user may write to."""
        return self.lab.state / "out"

    def rundir(self, node: str = "n1") -> Path:
        """The run directory of a node."""
        return self.lab.state / f"l.{node}"

    def plugstack(self, *words: str) -> None:
        """Write plugstack.conf; clients and steps read it at once, slurmd at its next start."""
        state = self.lab.state
        usual = (
            f"rundir={state}/l.%n", f"control={state}/lib/{FAKE.name}", "gpumem=80G",
            f"records={state}/rec", f"gpumap={state}/map.%n", f"gpustat={state}/stat.%n",
            "timeout=3s",
        )  # fmt: skip
        line = " ".join(["optional", str(self.plugin), *usual, *words])
        fresh = state / "etc" / "plugstack.conf.new"
        fresh.write_text(line + "\n")
        fresh.replace(state / "etc" / "plugstack.conf")  # an epilog may read it at this moment

    def install(self) -> None:
        """Put plugin, stand-in and folders there and let slurmd load the plugin."""
        for name in ("lib", "out", "rec"):
            folder = self.lab.state / name
            folder.mkdir(exist_ok=True)
            folder.chmod(0o1777 if name != "lib" else 0o755)
        for source, target in (
            (self.built / "spank_ltgf.so", self.plugin),
            (FAKE, self.plugin.with_name(FAKE.name)),
        ):
            fresh = target.with_name(f".{target.name}.new")
            fresh.write_bytes(source.read_bytes())
            fresh.chmod(0o755)
            fresh.replace(target)
        self.plugstack()
        self.restart()

    def restart(self, daemon: str = "slurmd") -> None:
        """Restart slurmd, by which it loads what plugstack.conf names."""
        self.lab.stop(daemon)
        self.lab.start(daemon)

    def uninstall(self) -> None:
        """Leave the cluster as it was."""
        self.lab.drain()
        (self.lab.state / "etc" / "plugstack.conf").unlink(missing_ok=True)
        self.restart()

    def as_user(
        self, *argv: str, user: str = "alice", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as a user, whatever comes of it."""
        script = ROOT / "scripts" / "cluster"
        prefix = [str(script), "as", "--state", str(self.lab.state), user, "--"]
        settings = ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
        return call(*prefix, *settings, *argv, env=self.lab.env)

    def srun(self, *args: str, script: str = SHOW, **env: str) -> str:
        """Run a shell line as a job of its own; what it prints."""
        done = self.as_user("srun", *args, "bash", "-c", script, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def variables(self, *args: str, **env: str) -> dict[str, str]:
        """The CUDA_… and LTGF_… variables of a task."""
        return variables(self.srun(*args, **env))

    def submit(self, *args: str, script: str = SHOW, **env: str) -> int:
        """Submit a batch script of alice's whose output goes to `out`; the job's id."""
        path = self.out / f"script{time.monotonic_ns()}"
        path.write_text(f"#!/bin/bash\n{script}\n")
        output = f"--output={self.out}/%j"
        done = self.as_user("sbatch", "--parsable", output, *args, str(path), **env)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def output(self, job: int, state: str = "COMPLETED") -> str:
        """What a job printed, once it has come to this state."""
        path = self.out / str(job)
        end = self.lab.wait_state(job, "COMPLETED", "FAILED")
        assert end == state, path.read_text()
        return path.read_text()

    def gone(self, job: int, node: str = "n1", timeout: float = 10) -> None:
        """Wait until nothing of the job's MPS is left on the node."""
        folder = self.rundir(node) / str(job)
        wait_until(lambda: not folder.exists(), timeout, lambda: f"{folder} is there")
        assert not self.daemons(job, node), "a daemon without its folder"

    def daemons(self, job: int, node: str = "n1") -> list[int]:
        """Process ids of the job's daemons and servers, by their pipe directory."""
        wanted = f"CUDA_MPS_PIPE_DIRECTORY={self.rundir(node)}/{job}/".encode()
        return [pid for pid in processes() if wanted in read(f"/proc/{pid}/environ")
                and FAKE.name.encode() in read(f"/proc/{pid}/cmdline")]  # fmt: skip

    def node_states(self) -> set[str]:
        """The states of all nodes."""
        return set(self.lab.run("sinfo", "-h", "-N", "-o", "%T").split())


def processes() -> Iterator[int]:
    """All process ids."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208


def read(path: str) -> bytes:
    """A file of /proc; nothing if its process is gone."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def variables(text: str) -> dict[str, str]:
    """Lines NAME=value of an output."""
    return dict(re.findall(r"^([A-Z][A-Z_]*)=(.*)$", text, re.MULTILINE))
