"""A job of two nodes with two real processes each, and a driver that is late or fails."""

import mmap
import os
import subprocess
import sys
import time
from contextlib import contextmanager

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.driver import DriverError
from slurm_ltgf.checkpoint.node import Agent, Processes
from slurm_ltgf.checkpoint.node_hands import Room, Tools
from slurm_ltgf.checkpoint.phases import Op, Stage
from slurm_ltgf.checkpoint.protocol import Action, Ask, Mode, Record

AFTER = {
    Op.LOCK: ("running", "locked"),
    Op.CHECKPOINT: ("locked", "checkpointed"),
    Op.RESTORE: ("checkpointed", "locked"),
    Op.UNLOCK: ("locked", "running"),
}
PROGRAM = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print(1, flush=True)
sys.stdin.read()
"""
JOB = 4711


class FakeDriver:
    """Keeps in files where each process is; `PID.op` says how an act goes: `fail` or seconds."""

    def __init__(self, folder):
        self.folder = folder

    def state(self, pid):
        path = self.folder / str(pid)
        return Stage(path.read_text()) if path.exists() else None

    def act(self, op, pid, timeout_s):
        how = self.folder / f"{pid}.{op}"
        word = how.read_text() if how.exists() else "0"
        (self.folder / f"{pid}.{op}.at").touch()
        if word == "fail":
            raise DriverError(f"{op} of process {pid}: not supported")
        if op is Op.LOCK and float(word) > timeout_s:
            time.sleep(timeout_s)
            raise DriverError(f"{op} of process {pid}: not ready")
        time.sleep(float(word))
        before, after = AFTER[op]
        assert (self.folder / str(pid)).read_text() == before
        fresh = self.folder / f".{pid}"
        fresh.write_text(after)
        fresh.rename(self.folder / str(pid))


class Site:
    """A job of two nodes with two processes each."""

    def __init__(self, tmp_path, mode=Mode.DRIVER):
        self.folder, self.gpu = tmp_path, tmp_path / "gpu"
        self.board = Board(tmp_path / "records")
        self.dir = tmp_path / "ckpt"
        for path in (self.gpu, self.board.folder):
            path.mkdir()
        library = tmp_path / "libcuda.so.1"
        library.write_bytes(b"x" * mmap.PAGESIZE)
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(library)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
            for _ in range(4)
        ]  # fmt: skip
        for one in self.processes:
            one.stdout.readline()
            (self.gpu / str(one.pid)).write_text("running")
        self.uid = os.geteuid()
        self.board.enter(Record(JOB, self.uid, 0, mode, self.dir))
        self.why, self.free = "", 2 << 30
        self.said = []
        self.agents = [self.agent(0), self.agent(1)]

    def agent(self, node):
        marks = self.folder / f"marks{node}"
        marks.mkdir(exist_ok=True)
        pids = frozenset(one.pid for one in self.processes[2 * node : 2 * node + 2])
        processes = Processes(lambda: {JOB: pids}, self.said.append)
        tools = Tools(
            self.board, FakeDriver(self.gpu), processes.of,
            lambda pids: (self.why, {"GPU-1": 1 << 30}),
            Room(lambda: {"GPU-1": self.free}), marks, self.said.append,
        )  # fmt: skip
        return Agent(tools, processes, lambda job_id: (self.uid, 0, node, 2))

    def how(self, number, op, word):
        (self.gpu / f"{self.processes[number].pid}.{op}").write_text(word)

    @property
    def stages(self):
        return [(self.gpu / str(one.pid)).read_text() for one in self.processes]

    def ask(self, action=Action.PAUSE, within_s=20, hold_s=60):
        now = int(time.time())
        ask = Ask("a1", JOB, 0, action, now + within_s, now + within_s + hold_s, now)
        self.board.ask(ask)
        return ask

    def answer(self):
        return self.board.answer(JOB, self.uid)

    def until(self, phase, within_s=20, agents=None):
        end = time.monotonic() + within_s
        while (answer := self.answer()) is None or answer.phase is not phase:
            assert time.monotonic() < end, (answer, self.stages, self.said)
            self.run(agents)
        return answer

    def run(self, agents=None):
        for one in self.agents if agents is None else agents:
            one.tick(int(time.time()))
        time.sleep(0.02)

    def until_running(self, within_s=20, agents=None):
        end = time.monotonic() + within_s
        while self.stages != ["running"] * 4:
            assert time.monotonic() < end, (self.stages, self.said)
            self.run(agents)


@contextmanager
def opened(folder):
    """A site whose processes end with it."""
    made = Site(folder)
    try:
        yield made
    finally:
        for one in made.processes:
            one.kill()
            one.wait()
            one.stdin.close()
            one.stdout.close()
