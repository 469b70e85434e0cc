"""Trainings of alice's on a test's cluster: they save when asked, and go on where they were."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands import ROOT
from lab import Lab, wait_until

sys.path.insert(0, str(ROOT / "scripts"))
from train_in_step import expected

STEP_MS = 20


@dataclass
class Trainings:
    """A cluster with a records folder, and a training that users can run."""

    lab: Lab

    @property
    def home(self) -> Path:
        """Everything of these tests lies here."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Make the folders anew, and put what the training needs where users can read it."""
        shutil.rmtree(self.home, ignore_errors=True)
        for name, owner, mode in (
            ("", "root", 0o755),
            ("work", "alice", 0o755),
            ("records", "slurm", 0o1777),
        ):
            folder = self.home / name
            folder.mkdir()
            shutil.chown(folder, owner)
            folder.chmod(mode)
        lib = self.home / "lib" / "slurm_ltgf"
        shutil.copytree(ROOT / "slurm_ltgf" / "checkpoint", lib / "checkpoint")
        for name in ("__init__.py", "errors.py"):
            shutil.copy(ROOT / "slurm_ltgf" / name, lib)
        shutil.copy(ROOT / "scripts" / "train_in_step.py", lib.parent)

    def train(self, gpus: int, *options: str) -> int:
        """A training of alice's that runs until it is told its last step."""
        work = self.home / "work"
        script = f"""export PYTHONPATH={self.home}/lib LTGF_CKPT_RECORDS={self.home}/records
export LTGF_CKPT_DIR={work}/ckpt-$SLURM_JOB_ID
mkdir -p {work}/result-$SLURM_JOB_ID
exec python3 {self.home}/lib/train_in_step.py --steps 100000 --step-ms {STEP_MS} \\
    --result {work}/result-$SLURM_JOB_ID --end {work}/end-$SLURM_JOB_ID"""
        return self.lab.submit("alice", f"--gres=gpu:{gpus}", *options, script=script)

    def trainings(self, count: int, gpus: int) -> list[int]:
        """So many that run and can be asked."""
        jobs = [self.train(gpus) for _ in range(count)]
        self.ready(*jobs)
        return jobs

    def ready(self, *jobs: int, restart: int = 0) -> None:
        """Wait until these runs said that they can be asked."""
        paths = [next_answer(self.home / "records", job) for job in jobs]

        def are_ready() -> bool:
            return all(
                path.exists() and f"restart={restart}\n" in path.read_text() for path in paths
            )

        wait_until(are_ready, 40, lambda: self.lab.run("squeue", "-a"))

    def end(self, job: int) -> int:
        """Let a training come to its end, 400 steps after the one it has saved; the last step."""
        last = self.saved(job) + 400
        (self.home / "work" / f"end-{job}").write_text(str(last))
        self.lab.wait_state(job, "COMPLETED")
        found = (self.home / "work" / f"result-{job}" / "result-0").read_text()
        assert [found] == expected(last, 1)
        return last

    def saved(self, job: int) -> int:
        """The step of the last checkpoint."""
        link = self.home / "work" / f"ckpt-{job}" / "last"
        return int(link.readlink().name.split("-")[1].split(".")[0])

    def restarts(self, job: int) -> int:
        """How often Slurm has restarted it."""
        shown = self.lab.run("scontrol", "-o", "show", "job", str(job))
        return int(shown.split("Restarts=", 1)[1].split()[0])

    def start(self, job: int) -> int:
        """When its run began."""
        shown = self.lab.run(
            "env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-o", "%S", "-j", str(job)
        )
        return int(shown)

    def moves(self) -> dict[int, dict[str, Any]]:
        """Moves as they are written down, by job."""
        found = (self.home / "moves").glob("*.move")
        return {int(path.stem): json.loads(path.read_text()) for path in found}


def next_answer(records: Path, job: int) -> Path:
    """Where alice's job answers."""
    return records / f"{job}.1001.answer"
