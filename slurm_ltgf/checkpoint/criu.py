"""CRIU: a program and its children to files, and back, once the driver has freed the GPU.

CRIU runs as root, and whoever could give it files of their own to restore would be root. So what it
writes and reads lies in a folder of root's on the node, `work`; `seal` has how it gets from there
into the job's folder and back. No plugin is loaded: the driver's part is done before the dump and
after the restore, by us (a dump that counts on a plugin which is not there would lose the GPU's
memory without a word).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm_ltgf.checkpoint.driver import Call, DriverError, call, result
from slurm_ltgf.checkpoint.node_files import Job
from slurm_ltgf.checkpoint.seal import Seal, keep

LEAST = (4, 1)
#: Writing images into the job's folder may take as long as disks do.
KEEP_S = 3600.0
#: What is asked of CRIU both ways.
_BOTH = ("--tcp-established", "--ext-unix-sk", "--file-locks", "--manage-cgroups=ignore")
_ERROR = re.compile(r"Error \([^)]*\): (.*)")


@dataclass(frozen=True, slots=True)
class Criu:
    """This node's CRIU. work: a folder of root's. key: seals images. gpus: UUIDs of the node's."""

    program: str
    work: Path
    key: bytes
    gpus: Callable[[], Sequence[str]] = tuple

    def start(self, job: Job, pids: Sequence[int], *, key: str, leave_running: bool) -> Call:
        """Begin to write a job's processes into its folder; tells the name and the bytes."""
        return call(lambda: self._write(job, pids, key, leave_running=leave_running))

    def is_busy(self, job_id: int) -> bool:
        """Whether processes of this job are being written, by whomever."""
        try:
            with self.locked(job_id, wait=False):
                return False
        except BlockingIOError:
            return True

    def _write(self, job: Job, pids: Sequence[int], key: str, *, leave_running: bool) -> str:
        with self.locked(job.job_id), self.room(job.job_id) as folder:
            root = root_of(pids)
            after = "--leave-running" if leave_running else "--leave-stopped"
            self.run("dump", folder, "--tree", str(root), after)
            Seal.of(folder, job, root, tuple(self.gpus())).write(folder, self.key)
            return result(keep(folder, job, key), KEEP_S, "the image")

    def restore(self, folder: Path) -> None:
        """Bring back what lies in a folder of root's; its first process becomes our child.

        Raises:
            DriverError: CRIU could not: why.
        """
        self.run("restore", folder, "--restore-detached", "--restore-sibling")

    def run(self, verb: str, folder: Path, *options: str) -> None:
        """One command of CRIU.

        Raises:
            DriverError: it failed: the first error of its log.
        """
        plugins = self.work / "no-plugins"
        plugins.mkdir(mode=0o700, exist_ok=True)
        log = self.work / f"{folder.name}.{verb}.log"
        argv = [
            self.program, verb, "--images-dir", str(folder), "--libdir", str(plugins),
            "--log-file", str(log), "-v1", *_BOTH, *options,
        ]  # fmt: skip
        code = spawn(argv)
        why = first_errors(log)
        if code:
            raise DriverError(f"criu {verb}: {why or f'exit {code}'}")
        log.unlink(missing_ok=True)

    @contextmanager
    def locked(self, job_id: int, *, wait: bool = True) -> Iterator[None]:
        """One at a time for a job, also across agents: a killed one's child goes on.

        Raises:
            BlockingIOError: somebody is at it.
        """
        path = self.work / f"{job_id}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def room(self, job_id: int) -> Iterator[Path]:
        """An empty folder of root's, as long as it is needed."""
        folder = self.work / f"{job_id}.images"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def forget(self, job_id: int) -> None:
        """The job is gone from this node."""
        (self.work / f"{job_id}.lock").unlink(missing_ok=True)


def find(work: Path, gpus: Callable[[], Sequence[str]]) -> Criu | None:
    """This node's CRIU; None: there is none, or one that is too old.

    Raises:
        OSError: the folder cannot be used.
    """
    program = shutil.which("criu")
    if program is None or version(program) < LEAST:
        return None
    return Criu(program, work, _key(work / "key"), gpus)


def version(program: str) -> tuple[int, ...]:
    """What it says it is; () for nothing."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    actions = [(os.POSIX_SPAWN_DUP2, writer, 1)]
    try:
        pid = os.posix_spawn(program, [program, "--version"], os.environ, file_actions=actions)
    except OSError:
        return ()
    finally:
        os.close(writer)
    with os.fdopen(reader) as out:
        found = re.search(r"Version: (\d+)\.(\d+)", out.read())
    os.waitpid(pid, 0)
    return (int(found[1]), int(found[2])) if found else ()


def _key(path: Path) -> bytes:
    """The key that seals images: a site's own if it put one on all nodes, else made here."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(os.urandom(32))
    except FileExistsError:
        pass
    return path.read_bytes()


def root_of(pids: Sequence[int]) -> int:
    """The program that `ltgf-ckpt run` started or an agent brought back: in a session of its own.

    Steps and the batch script are in sessions too, but Slurm's daemon started those.

    Raises:
        DriverError: there is none, or several.
    """
    found = [
        pid
        for pid in pids
        if (stat := stat_of(pid)) and int(stat[3]) == pid and not is_step(int(stat[1]))
    ]
    if len(found) != 1:
        raise DriverError(
            f"{len(found)} programs in sessions of their own, not one: the batch script must start"
            " it by `ltgf-ckpt run -- PROGRAM`, without srun"
        )
    return found[0]


def is_step(pid: int) -> bool:
    """Whether a process is Slurm's own for a step."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").startswith("slurmstepd")
    return False


def stat_of(pid: int) -> list[str]:
    """/proc/PID/stat from the state on: state, parent, group, session ...; [] if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def spawn(argv: Sequence[str]) -> int:
    """Run a program to its end, away from our own files; its exit code.

    Raises:
        DriverError: it cannot be started.
    """
    actions = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in range(3)]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    try:
        pid = os.posix_spawn(argv[0], list(argv), environment, file_actions=actions)
    except OSError as exc:
        raise DriverError(f"{argv[0]}: {exc.strerror}") from exc
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def first_errors(log: Path) -> str:
    """The first two errors of CRIU's log: those after them follow from them; "" for none."""
    try:
        found = _ERROR.findall(log.read_text(errors="replace"))
    except OSError:
        return ""
    return "; ".join(line.strip()[:150] for line in found[:2])
