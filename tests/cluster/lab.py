"""A real Slurm cluster for tests: runs `scripts/cluster` and asks Slurm's own commands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = Path(__file__).parents[2] / "scripts" / "cluster"
LIMIT_S = 180
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE"}


def call(
    *argv: str, env: dict[str, str] | None = None, text: str | None = None, limit_s: float = LIMIT_S
) -> subprocess.CompletedProcess[str]:
    """Run a command, echoed with `+`, its complaints too."""
    print("+", shlex.join(argv), flush=True)
    done = subprocess.run(
        argv,
        env=env,
        input=text or "",
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    if done.stderr:
        print(done.stderr.rstrip(), flush=True)
    return done


def wait_until(ready: Callable[[], bool], timeout: float, what: Callable[[], str]) -> None:
    """Poll until ready; fail with `what()` after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not ready():
        assert time.monotonic() < end, f"not within {timeout:.0f} s: {what()}"
        time.sleep(0.2)


@dataclass(frozen=True)
class Lab:
    """One cluster; its state directory names it."""

    state: Path
    port: int

    def script(self, command: str, *args: str, text: str | None = None) -> str:
        """Run a command of scripts/cluster on this cluster; fail with its message."""
        argv = [str(SCRIPT), command, "--state", str(self.state), *args]
        done = call(*argv, text=text, limit_s=900)
        assert done.returncode == 0, f"{shlex.join(argv)} exited {done.returncode}: {done.stderr}"
        return done.stdout

    def up(self, *args: str) -> str:
        """Start the cluster, or what is dead of it."""
        return self.script("up", "--port", str(self.port), *args)

    def down(self, *args: str) -> str:
        """Stop the cluster."""
        return self.script("down", *args)

    @cached_property
    def env(self) -> dict[str, str]:
        """The environment of a program that is to find this cluster."""
        pairs = self.script("exec", "--", "env", "-0").rstrip("\0").split("\0")
        return dict(pair.split("=", 1) for pair in pairs)

    @property
    def status(self) -> dict[str, Any]:
        """What `scripts/cluster status --json` reports, also with dead daemons."""
        done = call(str(SCRIPT), "status", "--json", "--state", str(self.state))
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def run(
        self,
        *argv: str,
        check: bool = True,
        user: str | None = None,
        input: str | None = None,  # noqa: A002 - as subprocess.run names it
    ) -> str:
        """Run a command and return its stdout; as `user`, it runs in the user's home."""
        switch = [str(SCRIPT), "as", "--state", str(self.state), user or "", "--"]
        done = call(*(switch if user else []), *argv, env=self.env, text=input)
        if check:
            assert done.returncode == 0, f"{argv} exited {done.returncode}: {done.stderr}"
        return done.stdout

    def submit(self, user: str, *sbatch_args: str, script: str = "sleep 60") -> int:
        """Submit a batch script as `user` and return the job's id."""
        argv = ["sbatch", "--parsable", "--output=/dev/null", *sbatch_args]
        answer = self.run(*argv, user=user, input=f"#!/bin/bash\n{script}\n")
        return int(re.split(r"[;\n]", answer)[0])

    def job_state(self, job_id: int) -> str:
        """Return the state of a job: the controller's, or sacct's once that forgot it."""
        found = self.run("squeue", "-h", "-t", "all", "-o", "%T", "-j", str(job_id), check=False)
        if not found.strip():
            found = self.run("sacct", "-n", "-X", "-P", "-o", "state", "-j", str(job_id))
        words = found.split()
        return words[0] if words else "UNKNOWN"

    def wait_state(self, job_id: int, *states: str, timeout: float = 60) -> str:
        """Wait until the job is in one of these states and return it; another end fails at once."""
        state = ""

        def what() -> str:
            job = self.run("scontrol", "-o", "show", "job", str(job_id), check=False)
            return f"job {job_id} is {state}, wanted {' or '.join(states)}: {job}"

        def reached() -> bool:
            nonlocal state
            state = self.job_state(job_id)
            assert state in states or state not in ENDED, what()
            return state in states

        wait_until(reached, timeout, what)
        return state

    def sacct(self, job_id: int, fields: str, state: str = "", timeout: float = 30) -> list[str]:
        """Return the job's fields once sacct has it in `state`; it lags behind the controller."""
        argv = ["sacct", "-n", "-X", "-P", "-o", f"state,{fields}", "-j", str(job_id)]
        row = [""]

        def recorded() -> bool:
            row[0] = self.run(*argv).partition("\n")[0]
            return bool(row[0]) and row[0].startswith(state)

        wait_until(recorded, timeout, lambda: f"sacct's {state} of job {job_id}, seen {row[0]!r}")
        return row[0].split("|")[1:]

    def drain(self, timeout: float = 200) -> None:
        """Cancel every job and wait until the queue is empty.

        A slurmd's "the job has ended" that met a stopped slurmctld is asked for again after
        KillWait + 2 x MessageTimeout, at the next purge of old jobs: up to two minutes.
        """

        def empty() -> bool:
            jobs = set(self.run("squeue", "-h", "-o", "%A").split())
            if jobs:
                self.run("scancel", "-Q", *sorted(jobs), check=False)
            return not jobs

        wait_until(empty, timeout, lambda: self.run("squeue"))

    def stop(self, daemon: str) -> None:
        """Stop a daemon: munged, mariadbd, slurmdbd, slurmctld, slurmd or slurmd:n2."""
        self.script("stop", daemon)

    def start(self, daemon: str) -> None:
        """Start a daemon and wait until it answers."""
        self.script("start", daemon)

    def kill(self, daemon: str) -> None:
        """End a daemon by SIGKILL."""
        self.script("kill", daemon)

    def sql(self, text: str) -> str:
        """Run SQL on the accounting database; rows come as tab-separated lines."""
        return self.script("sql", "--", "-N", "-B", text=text)
