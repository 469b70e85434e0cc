"""A cluster with trainings that can be asked for checkpoints, and `ltgf` to ask them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands import ROOT, Daemon, Ltgf, as_user
from lab import Lab, call, wait_until

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.protocol import Phase

sys.path.insert(0, str(ROOT / "scripts"))
from train_in_step import expected

if TYPE_CHECKING:
    from collections.abc import Iterator

ALICE = 1001
SETTINGS = """
[site]
ledger = "{state}/rq/ledger.db"
[daemon]
interval = "1s"
arrivals = "1s"
[lease]
mode = "off"
[checkpoint]
timeout = "30s"
hold = "60s"
stagger = "0s"
per_node = 10
"""
AS_USER = as_user(
    "numpy",
    *(f"slurm_ltgf.service.{name}" for name in ("moves", "terms")),
    *(f"slurm_ltgf.cli.{name}" for name in ("requeue", "checkpoint", "pause", "resume")),
    *(f"slurm_ltgf.slurm.{name}" for name in ("nodes", "site")),
    "slurm_ltgf.store.ledger",
)


@dataclass(frozen=True)
class Site:
    """A cluster with a records folder of SlurmUser's, and programs that users can read."""

    ltgf: Ltgf
    records: Path | None
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    daemons: list[Daemon] = field(default_factory=list)

    @property
    def lab(self) -> Lab:
        """The cluster."""
        return self.ltgf.lab

    @property
    def home(self) -> Path:
        """Everything of these tests lies here."""
        return self.lab.state / "rq"

    @property
    def moves(self) -> Path:
        """Where root's moves are."""
        return self.home / "moves"

    def submit(
        self,
        *options: str,
        ranks: int = 1,
        steps: int = 100_000,
        start: str | None = None,
        then: str = "",
    ) -> int:
        """Submit a training of alice's that runs until its steps are done; the job's id.

        start: what starts python3, srun if it is None and there are several ranks.
        """
        srun = f"srun --mpi=none -n{ranks} " if ranks > 1 else ""
        srun = srun if start is None else f"{start} "
        records = f"export LTGF_CKPT_RECORDS={self.records}\n" if self.records else ""
        work = f"cd {self.home}/work\n"
        script = f"""{work}export PYTHONPATH={self.home}/lib
export LTGF_CKPT_DIR={self.home}/work/ltgf-ckpt/$SLURM_JOB_ID
{records}{srun}python3 {self.home}/lib/train_in_step.py --steps {steps} --step-ms 5 \\
    --result $LTGF_CKPT_DIR --end {self.home}/work/end-$SLURM_JOB_ID
{then}"""
        options = (f"--chdir={self.home}/work", "--gres=gpu:1", f"-n{ranks}", *options)
        return self.lab.submit("alice", *options, script=script)

    def folder(self, job: int) -> Path:
        """Its checkpoint folder."""
        return self.home / "work" / "ltgf-ckpt" / str(job)

    def board(self, job: int) -> Board:
        """Where it is asked."""
        return Board(self.records or self.folder(job))

    def ready(self, job: int, restart: int = 0) -> int:
        """Wait until the job says that it can be asked; its id."""

        def is_ready() -> bool:
            if not self.board(job).folder.exists():
                return False
            said = self.board(job).answer(job, ALICE)
            return said is not None and said.restart == restart

        wait_until(is_ready, 60, lambda: self.lab.run("squeue", "-a"))
        return job

    def show(self, name: str | int, field_: str) -> str:
        """A field of scontrol show job."""
        shown = self.lab.run("scontrol", "-o", "show", "job", str(name))
        return shown.split(f"{field_}=", 1)[1].split()[0]

    def restarts(self, name: str | int) -> int:
        """How often Slurm has restarted it."""
        return int(self.show(name, "Restarts"))

    def ask(self, *args: str, user: str = "") -> subprocess.CompletedProcess[str]:
        """Run `ltgf ARGS` as root or a user."""
        program = ("-c", AS_USER, user) if user else ("-m", "slurm_ltgf")
        own = {"XDG_STATE_HOME": str(self.home / "states" / (user or "root"))}
        argv = self.ltgf.argv(*args, program=program)
        at = argv.index("--ledger")  # the settings name it, too: users need not be able to read it
        return call(*argv[:at], *argv[at + 2 :], env=self.ltgf.env | own)

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start `ltgf ARGS` and do not wait for it."""
        process = subprocess.Popen(
            self.ltgf.argv(*args), env=self.ltgf.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def daemon(self) -> Daemon:
        """Start the daemon."""
        self.daemons.append(Daemon(self.ltgf))
        return self.daemons[-1]

    def said(self, job: int) -> Phase | None:
        """Where the job says it is."""
        answer = self.board(job).answer(job, ALICE)
        return None if answer is None else answer.phase

    def stopped(self, job: int) -> None:
        """Wait until the job says that it saved for Slurm's signal, and ends."""
        wait_until(lambda: self.said(job) is Phase.STOPPED, 20, lambda: str(self.said(job)))

    def move(self, job: int) -> dict[str, Any]:
        """The move's file, {} without one."""
        try:
            found: dict[str, Any] = json.loads((self.moves / f"{job}.move").read_text())
        except FileNotFoundError:
            return {}
        return found

    def end(self, job: int, ranks: int = 1) -> None:
        """Let it come to its last step, and compare every rank's value to the last bit."""
        self.check_end(job, self.order_end(job), ranks)

    def order_end(self, job: int, ahead: int = 500) -> int:
        """Tell a job that has just begun its last step, which is returned."""
        last = int((self.folder(job) / "last").readlink().name.split("-")[1].split(".")[0]) + ahead
        (self.home / "work" / f"end-{job}").write_text(str(last))
        return last

    def check_end(self, job: int, last: int, ranks: int = 1) -> None:
        """Wait for the end, and compare every rank's value to the last bit."""
        self.lab.wait_state(job, "COMPLETED")
        values = [(self.folder(job) / f"result-{rank}").read_text() for rank in range(ranks)]
        assert values == expected(last, ranks)


def site_of(cluster: Lab, *, records: bool) -> Site:
    """A folder of its own, with what jobs and users need. records: whether there is a board."""
    home = cluster.state / "rq"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o755)
    folder = home / "records" if records else None
    (home / "work").mkdir()
    (home / "states").mkdir()
    (home / "states").chmod(0o1777)
    shutil.chown(home / "work", "alice")
    if folder:
        folder.mkdir()
        shutil.chown(folder, "slurm")
        folder.chmod(0o1777)
    lib = home / "lib"
    shutil.copytree(ROOT / "slurm_ltgf" / "checkpoint", lib / "slurm_ltgf" / "checkpoint")
    for name in ("__init__.py", "errors.py"):
        shutil.copy(ROOT / "slurm_ltgf" / name, lib / "slurm_ltgf")
    shutil.copy(ROOT / "scripts" / "train_in_step.py", lib)
    settings = SETTINGS.format(state=cluster.state)
    if folder:
        settings += f'records = "{folder}"\n'
    return Site(Ltgf(cluster, home, settings), folder)


def used(site: Site) -> Iterator[Site]:
    """The site with an empty queue before and after, and nothing of ours left running."""
    site.lab.drain()
    yield site
    for daemon in site.daemons:
        daemon.kill()
        print(*daemon.lines, sep="\n")
    for process in site.started:
        process.kill()
        process.communicate()
    site.lab.drain()
