"""Jobs that know nothing of checkpoints, on a real GPU under a real Slurm, with `ltgf node`.

Two jobs share one GPU (gres/shard). The low one is paused by `ltgf pause`, the high one takes
nearly all of the GPU's memory, the low one waits for that, goes on, and ends with the losses of a
run that was left alone; the agent is killed in between. Then a job is written to disk by CRIU,
requeued, and brought back.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from one_node import OneNode

ROOT = Path(__file__).resolve().parents[2]
TRAINING = ROOT / "scripts" / "gpu" / "plain_training.py"
Check = Callable[..., None]
STEPS = 40
PACE_S = 0.25


@dataclass
class Stage:
    """The cluster, the agent, and what jobs write. Everything lies below the cluster's folder."""

    node: OneNode
    check: Check
    low: str
    high: str
    agent: subprocess.Popen[bytes] | None = None
    took: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.library, self.work = self.node.state / "lib", self.node.state / "work"
        self.records, self.wrapped = self.node.state / "rec", self.node.state / "wrapped"
        for folder in (self.library, self.work, self.records, self.wrapped):
            folder.mkdir(exist_ok=True)
        for folder in (self.work, self.records):
            folder.chmod(0o1777)
        shutil.copytree(ROOT / "slurm_ltgf", self.library / "slurm_ltgf", dirs_exist_ok=True)
        shutil.copy(TRAINING, self.library)
        for path in [self.library, *self.library.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.config = self.node.state / "etc/ltgf.toml"

    def prepare(self) -> None:
        """Slurm's commands for a Python that must not have Slurm's libraries; the settings."""
        library = self.node.env().get("LD_LIBRARY_PATH", "")
        for name in ("scontrol", "squeue", "sinfo", "sacct"):
            found = shutil.which(name, path=self.node.env()["PATH"]) or "/bin/false"
            wrapper = self.wrapped / name
            wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={library} exec {found} "$@"\n')
            wrapper.chmod(0o755)
        self.config.write_text(
            f'[site]\nledger = "{self.node.state}/ledger.db"\n'
            f'[checkpoint]\nrecords = "{self.records}"\nstate = "{self.node.state}/moves"\n'
            'timeout = "90s"\n'
        )

    def env(self) -> dict[str, str]:
        """Of ltgf's own commands."""
        path = f"{self.wrapped}:{os.environ['PATH']}"
        paths = f"{self.library}:{os.environ.get('PYTHONPATH', '')}"
        conf = self.node.env()["SLURM_CONF"]
        return {**os.environ, "PATH": path, "PYTHONPATH": paths, "SLURM_CONF": conf}

    def start_agent(self) -> None:
        argv = [
            sys.executable, "-m", "slurm_ltgf", "--config", str(self.config), "node",
            "--name", "gpunode", "--state", str(self.node.state / "marks"),
            "--work", str(self.node.state / "images"),
        ]  # fmt: skip
        with (self.node.state / "log" / "agent").open("ab") as out:
            self.agent = subprocess.Popen(argv, env=self.env(), stdout=out, stderr=out, cwd="/")

    def kill_agent(self) -> None:
        if self.agent is not None:
            self.agent.send_signal(signal.SIGKILL)
            self.agent.wait()

    def ltgf(self, *words: str) -> tuple[int, str, float]:
        """One command of ltgf: its exit code, what it said, seconds."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "slurm_ltgf", "--config", str(self.config), *words],
            env=self.env(), capture_output=True, text=True, check=False, cwd="/", timeout=180,
        )  # fmt: skip
        said = (done.stdout + done.stderr).strip()
        return done.returncode, said, time.monotonic() - began

    def submit(self, user: str, command: str, *options: str) -> tuple[int, Path]:
        """A job, and where it writes."""
        script = self.work / f"{time.monotonic_ns()}.sh"
        script.write_text(
            "#!/bin/sh\nunset LD_LIBRARY_PATH\nexport CUBLAS_WORKSPACE_CONFIG=:4096:8\n"
            f"export PYTHONPATH={self.library} HOME=/tmp\n{command}\n"
        )
        script.chmod(0o755)
        told = self.node.told(
            "sbatch", "--parsable", "--requeue", "--open-mode=append",
            f"--output={self.work}/%j.out", *options, str(script), user=user,
        )  # fmt: skip
        job = int(told.strip())
        return job, self.work / f"{job}.out"

    def training(self, gib: float, steps: int = STEPS) -> str:
        return f"{sys.executable} {self.library / TRAINING.name} {gib} {steps} {PACE_S}"

    def answer(self, job: int) -> dict[str, str]:
        """What the job's answer on the board says."""
        for path in self.records.glob(f"{job}.*.answer"):
            lines = path.read_text().splitlines()
            return dict(line.split("=", 1) for line in lines if "=" in line)
        return {}

    def until(self, what: str, is_so: Callable[[], object], within_s: float = 60) -> float:
        """Wait; the seconds it took. RuntimeError: it did not come."""
        began = time.monotonic()
        while not is_so():
            if time.monotonic() - began > within_s:
                log = (self.node.state / "log" / "agent").read_text(errors="replace")[-1500:]
                queue = self.node.told("squeue", "-a")
                raise RuntimeError(f"{what}: not within {within_s:.0f} s\n{queue}\n{log}")
            time.sleep(0.05)
        return time.monotonic() - began

    def until_saved(self, phase: str, job: int, within_s: float = 60) -> float:
        return self.until(
            f"{phase} of job {job}", lambda: self.answer(job).get("phase") == phase, within_s
        )


def steps_of(out: Path) -> list[str]:
    """The lines of a training in order; the same line twice counts once.

    A program that was written to disk and is killed may get one more step done in between.
    """
    text = out.read_text(errors="replace") if out.exists() else ""
    return list(dict.fromkeys(line for line in text.splitlines() if line.startswith("step ")))


def is_over(out: Path) -> bool:
    return out.exists() and "done" in out.read_text(errors="replace").splitlines()


def left_alone(stage: Stage) -> list[str]:
    """The losses of a run that nobody touches."""
    job, out = stage.submit(stage.low, stage.training(2), "--gres=shard:4")
    stage.until(f"the end of job {job}", lambda: is_over(out), 120)
    return steps_of(out)


def two_jobs(stage: Stage, alone: list[str], used_mib: Callable[[], int], total_gib: int) -> None:
    """Pause, a job that needs nearly all of the GPU, the agent killed, resume."""
    check, go = stage.check, stage.work / "go"
    job, out = stage.submit(stage.low, stage.training(2), "--gres=shard:4", "--ckpt=driver")
    stage.until_saved("ready", job)
    stage.until("some steps", lambda: len(steps_of(out)) > 5)
    code, said, seconds = stage.ltgf("pause", str(job), "--reason", "somebody else needs it")
    check("ltgf pause", f"{said} ({seconds:.1f} s, the agent {stage.answer(job).get('seconds')} s)",
          ok=code == 0)  # fmt: skip
    check("the GPU then", f"{used_mib()} MiB in use", ok=used_mib() < 600)
    at = len(steps_of(out))
    holding = f"{sys.executable} {stage.library / TRAINING.name} {total_gib - 2} 0 0 {go}"
    other, held = stage.submit(stage.high, holding, "--gres=shard:4")
    stage.until("the high job", lambda: held.exists() and "holds" in held.read_text())
    check("the high job", held.read_text().strip(), ok=True)
    stage.kill_agent()
    stage.start_agent()
    code, said, _ = stage.ltgf("resume", str(job))
    check("ltgf resume while the GPU is full", said, ok=code == 0)
    time.sleep(8)
    log = (stage.node.state / "log" / "agent").read_text(errors="replace")
    check("the low job waits, the agent was killed in between", log.splitlines()[-1:],
          ok="waits until" in log and len(steps_of(out)) == at)  # fmt: skip
    go.touch()
    took = stage.until("going on", lambda: len(steps_of(out)) > at)
    check("the high job is over, the low one goes on", f"after {took:.1f} s", ok=is_over(held))
    stage.until(f"the end of job {job}", lambda: is_over(out), 90)
    check("its losses are those of a run left alone", f"{len(steps_of(out))} steps, paused at {at}",
          ok=steps_of(out) == alone)  # fmt: skip
    check("both jobs", f"{job}, {other}", ok=True)


def to_disk(stage: Stage, alone: list[str]) -> None:
    """A job by CRIU: written, requeued, brought back under the same job id."""
    check = stage.check
    command = f"{sys.executable} -m slurm_ltgf.checkpoint run -- {stage.training(2)}"
    job, out = stage.submit(stage.low, command, "--gres=shard:4", "--ckpt=criu")
    stage.until_saved("ready", job)
    stage.until("some steps", lambda: len(steps_of(out)) > 5)
    code, said, seconds = stage.ltgf("checkpoint", str(job))
    check("criu: ltgf checkpoint", f"{said} ({seconds:.1f} s; {stage.answer(job)})", ok=code == 0)
    at = len(steps_of(out))
    stage.until("going on", lambda: len(steps_of(out)) > at + 3)
    code, said, seconds = stage.ltgf("requeue", str(job))
    check("criu: ltgf requeue", f"{said} ({seconds:.1f} s; {stage.answer(job)})", ok=code == 0)
    at = len(steps_of(out))
    # Slurm itself lets a requeued job wait for two minutes; at once it would be refused
    time.sleep(5)
    stage.node.told("scontrol", "update", f"jobid={job}", "starttime=now")
    took = stage.until("the job's next run", lambda: len(steps_of(out)) > at, 120)
    check("criu: goes on in the next run", f"after {took:.1f} s at step {at}", ok=True)
    stage.until(f"the end of job {job}", lambda: is_over(out), 90)
    check("criu: its losses are those of a run left alone", f"{len(steps_of(out))} steps",
          ok=steps_of(out) == alone)  # fmt: skip
    shown = stage.node.told("scontrol", "show", "job", str(job))
    words = [word for word in shown.split() if word.startswith(("Restarts=", "JobState="))]
    check("criu: the job", " ".join(words), ok="Restarts=1" in words)


def outside(stage: Stage, used_mib: Callable[[], int], total_gib: int, parts: str) -> None:
    """What is asked for."""
    stage.prepare()
    stage.start_agent()
    try:
        alone = left_alone(stage)
        stage.check("a run left alone", f"{len(alone)} steps", ok=len(alone) == STEPS)
        for part, work in (
            ("pause", lambda: two_jobs(stage, alone, used_mib, total_gib)),
            ("criu", lambda: to_disk(stage, alone)),
        ):
            if part in parts.split(","):
                try:
                    work()
                except RuntimeError as error:
                    stage.check(part, error, ok=False)
    finally:
        stage.kill_agent()
        log = (stage.node.state / "log" / "agent").read_text(errors="replace")
        print("      agent: " + log.replace("\n", "\n      agent: "))
