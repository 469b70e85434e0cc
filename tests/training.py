"""Ranks of scripts/train_in_step.py as processes of this machine, asked through their board."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.protocol import Action, Answer, Ask, Phase, ask_id

SCRIPT = Path(__file__).parents[1] / "scripts" / "train_in_step.py"
sys.path.insert(0, str(SCRIPT.parent))
from train_in_step import expected  # noqa: E402

JOB = 77


@dataclass
class Training:
    """One job's ranks; started again it continues."""

    home: Path
    ranks: int = 1
    steps: int = 4000
    step_ms: float = 1
    restart: int = -1
    extra: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The checkpoint folder."""
        return self.home / "ckpt"

    @property
    def board(self) -> Board:
        """Where it is asked."""
        return Board(self.folder)

    @property
    def result(self) -> list[str]:
        """Every rank's value at the end."""
        return [(self.home / f"result-{rank}").read_text() for rank in range(self.ranks)]

    def start(self) -> None:
        """Start all ranks, as Slurm would the first or the next time."""
        self.restart += 1
        self.processes = [self._process(rank) for rank in range(self.ranks)]

    def _process(self, rank: int) -> subprocess.Popen[str]:
        env = {
            **os.environ,
            "SLURM_JOB_ID": str(JOB),
            "SLURM_RESTART_COUNT": str(self.restart),
            "LTGF_CKPT_DIR": str(self.folder),
            "LTGF_CKPT_TIMEOUT_S": "20",
            "RANK": str(rank),
            "WORLD_SIZE": str(self.ranks),
            **self.extra,
        }
        argv = [sys.executable, str(SCRIPT), "--steps", str(self.steps)]
        argv += ["--step-ms", str(self.step_ms), "--result", str(self.home)]
        return subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)

    def ask(
        self, action: Action, *, within_s: int = 15, hold_s: int = 60, restart: int | None = None
    ) -> Ask:
        """Put an ask on the board."""
        now = int(time.time())
        run = self.restart if restart is None else restart
        ask = Ask(ask_id(), JOB, run, action, now + within_s, now + hold_s, now)
        self.board.ask(ask)
        return ask

    def answer(self, *phases: Phase, ask: str = "", within_s: float = 20) -> Answer:
        """Wait for an answer in one of these phases, of this ask."""
        end = time.monotonic() + within_s
        seen = None
        while time.monotonic() < end:
            if self.folder.exists():
                seen = self.board.answer(JOB, os.geteuid())
            if seen and seen.phase in phases and seen.ask == ask and seen.restart == self.restart:
                return seen
            time.sleep(0.02)
        raise AssertionError(f"no {phases} within {within_s} s, the last answer is {seen}")

    def ready(self) -> Answer:
        """Wait until it can be asked."""
        return self.answer(Phase.READY)

    def kill(self) -> list[str]:
        """What a node failure does; what they said until then."""
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
        return [process.communicate()[1] for process in self.processes]

    def wait(self, *, limit_s: float = 60) -> list[str]:
        """Wait for the end of all ranks, which must be 0; what they said."""
        said = [process.communicate(timeout=limit_s)[1] for process in self.processes]
        assert [process.returncode for process in self.processes] == [0] * self.ranks, said
        return said

    def check(self) -> None:
        """See that the end is that of an undisturbed run, to the last bit."""
        assert self.result == expected(self.steps, self.ranks)


def steps_kept(folder: Path) -> list[str]:
    """Names of what is kept."""
    return sorted(path.name for path in folder.glob("step-*"))
