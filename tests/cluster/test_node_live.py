"""`ltgf node` on a real Slurm without a GPU: whose processes it takes, what it tells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands import ROOT, Ltgf
from lab import Lab, call, wait_until

sys.path.insert(0, str(ROOT / "tests" / "unit"))
from criu_here import criu  # noqa: F401 - a fixture

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.protocol import Phase
from slurm_ltgf.slurm import node_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_ltgf.checkpoint.protocol import Answer

pytestmark = pytest.mark.cluster

ALICE, BOB = 1001, 1002
NODE = "n1"
SETTINGS = """
[site]
ledger = "{home}/ledger.db"
[checkpoint]
records = "{home}/records"
state = "{home}/moves"
timeout = "20s"
stagger = "0s"
"""
#: Says at the start that it is there, and counts; has the driver's library if it is given one.
PROGRAM = """
import mmap, os, sys, time
out, *library = sys.argv[1:]
for path in library:
    with open(path, "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
n = 0
while not os.path.exists(out + ".end"):
    n += 1
    print(n, flush=True)
    with open(out, "w") as file:
        file.write(f"{os.getpid()} {n}")
    time.sleep(0.05)
sys.exit(7)
"""


@dataclass
class Site:
    """A cluster, the agent of its first node, and what jobs write."""

    ltgf: Ltgf
    home: Path
    path: str = ""
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def lab(self) -> Lab:
        """The cluster."""
        return self.ltgf.lab

    @property
    def board(self) -> Board:
        """Where jobs are asked."""
        return Board(self.home / "records")

    @property
    def log(self) -> str:
        """What the agent has said."""
        return (self.home / "agent.log").read_text()

    def start_agent(self) -> None:
        """As systemd would."""
        argv = self.ltgf.argv("node", "--name", NODE, "--state", str(self.home / "marks"))
        argv += ["--work", str(self.home / "images")]
        env = self.ltgf.env | {"PATH": f"{self.path}{self.ltgf.env['PATH']}"}
        with (self.home / "agent.log").open("ab") as out:
            self.agents.append(
                subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            )

    def submit(self, user: str, mode: str, *words: str, head: str = "") -> int:
        """A job that counts on the agent's node, and says how it can be checkpointed."""
        lib = self.home / "lib"
        program = f"python3 {lib}/program.py {self.home}/work/$SLURM_JOB_ID {' '.join(words)}"
        if mode == "criu":
            program = f"python3 -m slurm_ltgf.checkpoint run -- {program}"
        script = f"""export PYTHONPATH={lib} LTGF_CKPT_RECORDS={self.board.folder}
export LTGF_CKPT_MODE={mode} LTGF_CKPT_DIR={self.home}/work/ckpt-$SLURM_JOB_ID
python3 -c 'from slurm_ltgf.checkpoint.place import here; here().make(); here().enter()'
{head}
{program}"""
        options = ("--chdir=/tmp", "--requeue", f"--nodelist={NODE}", "-n1", "--gres=gpu:1")
        return self.lab.submit(user, *options, script=script)

    def counted(self, job: int) -> tuple[int, int]:
        """The program's process, and how far it is."""
        try:
            pid, count = (self.home / "work" / str(job)).read_text().split()
        except (OSError, ValueError):
            return 0, 0
        return int(pid), int(count)

    def goes_on(self, job: int) -> None:
        """Wait until it counts on."""
        at = self.counted(job)[1]
        wait_until(lambda: self.counted(job)[1] > at, 20, lambda: f"{at}: {self.log}")

    def answered(self, job: int, uid: int, phase: Phase) -> Answer:
        """Wait for this answer."""
        found: list[Answer] = []

        def is_there() -> bool:
            said = self.board.answer(job, uid)
            found[:] = [said] if said is not None else []
            return said is not None and said.phase is phase

        wait_until(is_there, 30, lambda: f"{found}: {self.log}")
        return found[0]

    def ask(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run `ltgf ARGS` as root."""
        return call(*self.ltgf.argv(*args), env=self.ltgf.env)


@pytest.fixture
def site(cluster: Lab) -> Iterator[Site]:
    """With one agent."""
    home = cluster.state / "node"
    shutil.rmtree(home, ignore_errors=True)
    for name in ("records", "work", "lib"):
        (home / name).mkdir(parents=True)
    home.chmod(0o755)
    shutil.chown(home / "records", "slurm")
    for name in ("records", "work"):
        (home / name).chmod(0o1777)
    package = home / "lib" / "slurm_ltgf"
    shutil.copytree(ROOT / "slurm_ltgf" / "checkpoint", package / "checkpoint")
    for name in ("__init__.py", "errors.py"):
        shutil.copy(ROOT / "slurm_ltgf" / name, package)
    (home / "lib" / "program.py").write_text(PROGRAM)
    (home / "lib" / "libcuda.so.1").write_bytes(b"x" * 4096)
    made = Site(Ltgf(cluster, home, SETTINGS.format(home=home)), home)
    cluster.drain()
    yield made
    for agent in made.agents:
        agent.kill()
        agent.wait()
    cluster.drain()


def squat(site: Site, job: int) -> None:
    """What bob can do to alice's job: any name on the board that nobody has taken yet."""
    records, other = site.board.folder, BOB
    named = {
        f"{job}.{other}": f"format=1\njob_id={job}\nrestart=0\nmode=criu\ndir=/etc\n",
        f"{job}.ask.0": f"format=1\nid=a1\njob_id={job}\nrestart=0\naction=pause\n"
        "deadline=9999999999\nhold_until=9999999999\ntime=9999999999\n",
        f"{job}.ask.{ALICE}": "\x00" * 9000,
        f"{job}.{other}.answer": "format=1\n$(touch /tmp/no)\n`id`\n'; DROP TABLE jobs; --\n",
        "0.0": "format=1\n", f"{'9' * 200}.{'9' * 40}": "", ".1.2.new": "", "1.2\n3": "",
    }  # fmt: skip
    for name, text in named.items():
        (records / name).write_text(text)
        os.chown(records / name, BOB, BOB)
    (records / f"{job}.4242").symlink_to("/etc/passwd")
    os.mkfifo(records / f"{job}.4243")
    (records / f"{job}.4244").mkdir()


def test_whoever_asks_is_told_why_and_the_job_goes_on_whatever_lies_on_the_board(
    site: Site,
) -> None:
    site.start_agent()
    library = str(site.home / "lib" / "libcuda.so.1")
    other = site.submit("bob", "driver", library)
    job = site.submit("alice", "driver", library, head=f"sleep 1; ls {site.board.folder}")
    squat(site, job)
    site.answered(job, ALICE, Phase.READY)
    site.answered(other, BOB, Phase.READY)
    took = time.monotonic()
    done = site.ask("pause", str(job), "--reason", "$(reboot) <b>'x'")
    assert time.monotonic() - took < 20
    assert done.returncode != 0
    assert "no NVIDIA driver is loaded on the node" in done.stderr
    assert "pip install 'slurm-ltgf[gpu]'" in done.stderr
    assert site.board.answer(job, ALICE).phase is Phase.FAILED
    site.goes_on(job)
    site.goes_on(other)
    assert site.board.answer(other, BOB).phase is Phase.READY  # nobody asked it
    assert site.board.answer(other, BOB).ask == ""
    assert list((site.home / "marks").iterdir()) == []
    assert site.agents[0].poll() is None, site.log
    assert not Path("/tmp/no").exists()
    assert not Path("/etc/ltgf-nodes").exists()
    assert site.lab.job_state(job) == site.lab.job_state(other) == "RUNNING"


def test_the_job_s_processes_are_those_that_slurm_names_on_this_node(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in site.lab.env.items():
        monkeypatch.setenv(name, value)
    one, other = site.submit("alice", "driver"), site.submit("bob", "driver")
    stranger = subprocess.Popen(["sleep", "300"], user=ALICE)
    try:
        site.goes_on(one)
        site.goes_on(other)
        found = node_jobs.processes(NODE)
        assert set(found) == {one, other}
        assert site.counted(one)[0] in found[one]
        assert site.counted(other)[0] in found[other]
        assert not found[one] & found[other]
        assert stranger.pid not in found[one] | found[other]
        assert node_jobs.processes("n2") == {}
        assert node_jobs.seat(one, NODE) == (ALICE, 0, 0, 1)
        assert node_jobs.seat(one, "n2") is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_user_s_program_is_requeued_by_criu_and_goes_on(
    site: Site,
    criu: str,  # noqa: F811 - the fixture
) -> None:
    site.path = f"{Path(criu).parent}:"
    site.start_agent()
    job = site.submit("alice", "criu")
    site.answered(job, ALICE, Phase.READY)
    site.goes_on(job)
    pid, _ = site.counted(job)
    assert f"\t{ALICE}\t" in Path(f"/proc/{pid}/status").read_text()
    done = site.ask("checkpoint", str(job))
    assert done.returncode == 0, done
    site.goes_on(job)
    done = site.ask("requeue", str(job))
    assert done.returncode == 0, (done, site.log)
    saved = site.counted(job)
    site.agents[0].kill()
    site.agents[0].wait()
    site.start_agent()

    site.lab.wait_state(job, "PENDING", "RUNNING")  # Slurm refuses while the run before completes
    site.lab.run("scontrol", "update", f"jobid={job}", "starttime=now", check=False)
    wait_until(lambda: site.counted(job)[1] > saved[1] + 3, 150, lambda: site.log)
    assert site.counted(job)[0] == pid
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"Uid:\t{ALICE}\t{ALICE}\t{ALICE}\t{ALICE}" in status
    assert "CapPrm:\t0000000000000000" in status
    (site.home / "work" / f"{job}.end").touch()
    site.lab.wait_state(job, "FAILED")
    assert site.lab.sacct(job, "exitcode", "FAILED")[0] == "7:0"
    out = (site.home / "work" / f"ckpt-{job}" / "ltgf-out").read_text().split()
    assert out == [str(n) for n in range(1, len(out) + 1)]
