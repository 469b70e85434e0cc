"""A node for the tests of ltgf-mps: the command, its run directory, a stand-in for the daemon."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "tests/fakes/nvidia-cuda-mps-control"
ANNA, BERT = 45001, 45002  # user ids that no account of the machine has

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="daemons are started as other users")


def alive(pid):
    """Runs the process, and is it no zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def environ(pid):
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    return dict(item.partition("=")[::2] for item in text.split("\0") if item)


class Node:
    def __init__(self, command, place):
        self.command, self.place, self.rundir = command, place, place / "run"
        (place / "bin").mkdir()
        self.control = shutil.copy(FAKE, place / "bin")

    def mode(self, words=""):
        (self.place / "bin/mode").write_text(words)

    def arguments(self, word, **options):
        given = {"rundir": self.rundir, "control": self.control} | options
        flags = [f"--{k.replace('_', '-')}={v}" for k, v in given.items() if v is not True]
        flags += [f"--{k}" for k, v in given.items() if v is True]
        return [str(self.command), word, *flags]

    def run(self, word, **options):
        return subprocess.run(
            self.arguments(word, **options), capture_output=True, text=True, timeout=60, check=False
        )

    def do(self, word, **options):
        """Run what must succeed; its output."""
        done = self.run(word, **options)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def fail(self, word, **options):
        """Run what must fail; its one line."""
        done = self.run(word, **options)
        assert done.returncode == 1
        assert done.stderr.startswith("ltgf-mps: ")
        assert done.stderr.count("\n") == 1
        return done.stderr[len("ltgf-mps: ") : -1]

    def start(self, job=7, uid=ANNA, devices="2,3", **options):
        self.do("start", job=job, uid=uid, devices=devices, **options)
        return int(self.state(job)["pid"])

    def state(self, job, n=0):
        text = (self.rundir / f"{job}/mps.{n}/state").read_text()
        return dict(line.split("=", 1) for line in text.splitlines())

    def env(self, job=7, **options):
        return dict(line.split("=", 1) for line in self.do("env", job=job, **options).splitlines())

    def processes(self):
        """All that carry a pipe directory of this node."""
        pipes = (str(self.rundir), f"/tmp/ltgf.{os.getpid()}")
        pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
        found = {pid: environ(pid).get("CUDA_MPS_PIPE_DIRECTORY", "") for pid in pids}
        return [p for p, pipe in found.items() if pipe.startswith(pipes) and alive(p)]

    def left(self):
        """What is in the run directory, groups' and jobs' names."""
        return sorted(p.name for p in self.rundir.iterdir()) if self.rundir.exists() else []


class Client:
    """A CUDA program of this moment: connected to the daemon of an environment."""

    def __init__(self, env, uid=ANNA):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect(env["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
        limit = env.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "")
        self.sock.sendall(f"client {uid} {env['CUDA_VISIBLE_DEVICES']} {limit}\n".encode())
        self.sees = json.loads(self.sock.recv(4096))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()


def task(env, uid=ANNA, script="import time; time.sleep(60)"):
    """A process of a job: it stays when asked to end."""
    code = (
        f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); {script}"
    )
    child = subprocess.Popen(
        ["/usr/bin/python3", "-c", code], env=env, user=uid, stdout=subprocess.PIPE, cwd="/"
    )
    child.stdout.readline()
    return child


def seconds(call):
    """How long it took."""
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


@pytest.fixture(scope="session")
def ltgf_mps(tmp_path_factory):
    """The command, built with ASan and UBSan."""
    build = tmp_path_factory.mktemp("spank")
    subprocess.run(
        ["make", "-s", "-C", str(ROOT / "spank"), f"BUILD={build}", f"{build}/san/ltgf-mps"],
        check=True,
    )
    return build / "san/ltgf-mps"


@pytest.fixture
def node(ltgf_mps):
    """A node with nothing on it; whatever a test leaves on it is ended."""
    place = Path(f"/tmp/h{time.monotonic_ns() % 10**10}")
    place.mkdir(0o755)
    node = Node(ltgf_mps, place)
    yield node
    for pid in node.processes():
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(place)
