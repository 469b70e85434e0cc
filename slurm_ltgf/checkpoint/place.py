"""Where a process is: its job and run, its rank, the job's folder, the board. From the environment.

Works under srun, torchrun, in a batch script, in a container, and outside of Slurm, where nobody
asks and the folder is `ltgf-ckpt/local`.
"""

from __future__ import annotations

import contextlib
import os
import signal as signals
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_ltgf.checkpoint.board import Board, BoardError
from slurm_ltgf.checkpoint.claims import Claim, Claims, What
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.checkpoint.protocol import Answer, Ask, Mode, Phase, Record
from slurm_ltgf.errors import UsageError

SIGNAL = "USR2"
_LAUNCH = ("SLURM_RESTART_COUNT", "SLURM_STEP_ID", "TORCHELASTIC_RESTART_COUNT")
TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Place:
    """One process of a job. job_id: 0 outside of Slurm. restart: of the job, 0 at its first run.

    launch: tells apart the times that ranks were started together, also within one run of the job.
    records: the site's folder for records; None: none. signal: "" for none; lead is left out.
    """

    folder: Path
    rank: int = 0
    ranks: int = 1
    job_id: int = 0
    restart: int = 0
    launch: str = "0"
    records: Path | None = None
    signal: str = SIGNAL
    timeout_s: int = TIMEOUT_S
    interval_s: int | None = None
    node: str = ""
    mode: str = ""

    @property
    def board(self) -> Board:
        """Where the job is asked, and answers."""
        return Board(self.records or self.folder)

    @property
    def is_leader(self) -> bool:
        """Whether this process speaks for all."""
        return self.rank == 0

    def answer(
        self,
        phase: Phase,
        ask: str = "",
        *,
        step: int | None = None,
        name: str = "",
        size: int | None = None,
        seconds: float | None = None,
        why: str = "",
    ) -> Answer:
        """What this run says of itself now; size: bytes of the checkpoint."""
        return Answer(
            self.job_id, self.restart, phase, ask, self.ranks,
            step=step, name=name, bytes=size, seconds=seconds, time=int(time.time()), why=why,
        )  # fmt: skip

    def hear(self, say: Callable[[str], None]) -> Ask | None:
        """What this run is asked, be it answered or not; say: told why it cannot be heard."""
        if not self.job_id:
            return None
        try:
            ask = self.board.hear(self.job_id, os.geteuid())
        except (BoardError, ProtocolError) as exc:
            say(f"cannot hear asks: {exc}")
            return None
        return ask if ask is not None and ask.restart == self.restart else None

    def claim(self, what: What, *, saved_at: int, step: int | None, name: str) -> None:
        """Leave word for the site's books; a board that cannot be written must end no training."""
        if self.records is None or not self.job_id:
            return
        claim = Claim(self.job_id, what, int(time.time()), saved_at, step=step, name=name)
        with contextlib.suppress(OSError):
            Claims(self.records).leave(claim)

    def make(self) -> None:
        """Make the folder.

        Raises:
            BoardError: the folder cannot be made or written.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            owner = self.folder.stat().st_uid
        except OSError as exc:
            raise BoardError(
                f"{self.folder}: cannot be the checkpoint folder: {exc.strerror}; name another by"
                " --ckpt-dir or session(folder=...)"
            ) from exc
        if owner != os.geteuid():
            raise BoardError(f"{self.folder}: belongs to user {owner}, not to this job's user")

    def enter(self) -> None:
        """Put the job's record on the board if it is not there.

        Raises:
            BoardError, ProtocolError: the board cannot be read or written.
        """
        uid = os.geteuid()
        known = self.board.record(self.job_id, uid)
        if known is not None and (known.restart, known.dir) == (self.restart, self.folder):
            return
        mode = Mode(self.mode) if self.mode in set(Mode) else Mode.APP
        record = Record(
            self.job_id, uid, self.restart, mode, self.folder.absolute(), node=self.node,
            signal=self.signal, timeout_s=self.timeout_s, interval_s=self.interval_s,
        )  # fmt: skip
        self.board.enter(record)


def here(
    environment: Mapping[str, str] | None = None,
    *,
    folder: str | Path | None = None,
    rank: int | None = None,
    ranks: int | None = None,
    signal: str | None = None,
    timeout_s: int | None = None,
    interval_s: int | None = None,
) -> Place:
    """The place of this process; what is given comes before the environment.

    RANK and WORLD_SIZE (torchrun, Lightning, accelerate) come before srun's own; in a batch script
    without srun there is one process.

    Raises:
        UsageError: the signal that is given is none.
    """
    env = os.environ if environment is None else environment
    own, world = _ranks(env)
    job_id = _number(env.get("SLURM_JOB_ID"), 0)
    base = Path(env.get("SLURM_SUBMIT_DIR") or ".") / "ltgf-ckpt"
    default = env.get("LTGF_CKPT_DIR") or base / (str(job_id) if job_id else "local")
    records = env.get("LTGF_CKPT_RECORDS")
    return Place(
        folder=Path(folder or default).absolute(),
        rank=own if rank is None else rank,
        ranks=world if ranks is None else ranks,
        job_id=job_id,
        restart=_number(env.get("SLURM_RESTART_COUNT"), 0),
        launch=".".join(env.get(name, "") or "0" for name in _LAUNCH),
        records=Path(records) if records else None,
        signal=_known(env.get("LTGF_CKPT_SIGNAL", SIGNAL), given=signal),
        timeout_s=timeout_s or _number(env.get("LTGF_CKPT_TIMEOUT_S"), TIMEOUT_S),
        interval_s=interval_s or _number(env.get("LTGF_CKPT_INTERVAL_S"), 0) or None,
        node=env.get("SLURMD_NODENAME", ""),
        mode=env.get("LTGF_CKPT_MODE", ""),
    )


def _known(default: str, *, given: str | None) -> str:
    """USR2 of SIGUSR2@60."""
    name = (default if given is None else given).partition("@")[0].removeprefix("SIG")
    if given and not hasattr(signals, f"SIG{name}"):
        raise UsageError(f"signal {given!r}: must be a signal's name like USR2")
    return name


def _ranks(env: Mapping[str, str]) -> tuple[int, int]:
    if "WORLD_SIZE" in env and "RANK" in env:
        return _number(env["RANK"], 0), max(_number(env["WORLD_SIZE"], 1), 1)
    if "SLURM_STEP_NUM_TASKS" in env:
        world = max(_number(env["SLURM_STEP_NUM_TASKS"], 1), 1)
        return _number(env.get("SLURM_PROCID"), 0), world
    return 0, 1


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() else default
