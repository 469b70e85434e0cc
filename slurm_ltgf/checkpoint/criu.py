"""CRIU: a program and its children to files, and back, once the driver has freed the GPU.

Whoever could give root's CRIU files of their own to restore would be root. So what it writes and
reads lies in a folder of root's on the node, `work`; `seal` has how it gets from there into the
job's folder and back. And the paths in an image are the user's, who may have laid a link there
since: so CRIU runs with the user's own rights to files (`program.Rights`). No plugin is loaded: the
driver's part is done before the dump and after the restore, by us (a dump that counts on a plugin
which is not there would lose the GPU's memory without a word).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import resource
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm_ltgf.checkpoint.driver import Call, DriverError, call, result
from slurm_ltgf.checkpoint.node_files import Job
from slurm_ltgf.checkpoint.program import Rights, root_of
from slurm_ltgf.checkpoint.seal import Seal, keep
from slurm_ltgf.errors import ConfigError

LEAST = (4, 1)
#: Writing images into the job's folder may take as long as disks do.
KEEP_S = 3600.0
#: CRIU itself: who has the user's rights can be stopped by the user, and is not waited for then.
RUN_S = 3600.0
KEY_BYTES = 32
#: What is asked of CRIU both ways. Its plugins would lie beside the images: there are none.
_BOTH = (
    "--images-dir=.", "--libdir=.", "-v1", "--tcp-established", "--ext-unix-sk", "--file-locks",
    "--manage-cgroups=ignore",
)  # fmt: skip
_ERROR = re.compile(r"Error \([^)]*\): (.*)")


@dataclass(frozen=True, slots=True)
class Criu:
    """This node's CRIU. work: a folder of root's that nobody else can enter.

    key: seals images. gpus: UUIDs of the node's.
    """

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
            rights = Rights.of(root, job.uid)
            after = "--leave-running" if leave_running else "--leave-stopped"
            os.chown(folder, job.uid, -1)
            self._run("dump", folder, rights, f"--tree={root}", after)
            os.chown(folder, os.geteuid(), -1)
            seal = Seal.of(folder, job, root, rights.gids, tuple(self.gpus()))
            seal.write(folder, self.key)
            return result(keep(folder, job, key), KEEP_S, "the image")

    def restore(self, folder: Path, rights: Rights) -> None:
        """Bring back what lies in a folder of root's; its first process becomes our child.

        Raises:
            DriverError: CRIU could not: why.
        """
        for path in (folder, *folder.iterdir()):  # none but CRIU comes as far as there
            path.chmod(0o755 if path.is_dir() else 0o644)
        self._run("restore", folder, rights, "--restore-detached", "--restore-sibling")

    def _run(self, verb: str, folder: Path, rights: Rights, *options: str) -> None:
        log = self.work / f"{folder.name}.{verb}.log"
        code = _spawn([*rights.criu(self.program, verb), *_BOTH, *options], folder, log)
        why = first_errors(log)
        if code:
            raise DriverError(f"criu {verb}: {why or f'exit {code}'}")
        log.unlink(missing_ok=True)

    @contextmanager
    def locked(self, job_id: int, *, wait: bool = True) -> Iterator[None]:
        """One at a time for a job, also across agents: a killed one's CRIU goes on, and holds it.

        Raises:
            BlockingIOError: somebody is at it.
        """
        path = self.work / f"{job_id}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.set_inheritable(descriptor, True)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def room(self, job_id: int) -> Iterator[Path]:
        """An empty folder of root's, as long as it is needed."""
        many_files()
        folder = self.work / f"{job_id}.images"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def forget(self, job_id: int) -> None:
        """The job is gone from this node."""
        if not self.is_busy(job_id):
            (self.work / f"{job_id}.lock").unlink(missing_ok=True)


def find(work: Path, gpus: Callable[[], Sequence[str]]) -> Criu | None:
    """This node's CRIU; None: there is none, or one that is too old.

    Raises:
        OSError: the folder cannot be used.
        ConfigError: its key cannot be trusted.
    """
    program = shutil.which("criu")
    if program is None or version(program) < LEAST:
        return None
    return Criu(program, work, key_in(work / "key"), gpus)


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


def key_in(path: Path) -> bytes:
    """The key that seals images: a site's own if it put one on all nodes, else made here.

    Raises:
        ConfigError: who knows or chose it cannot be told, or it is too short.
        OSError: it cannot be read or made.
    """
    if not path.exists() and not path.is_symlink():
        fresh = path.with_name(".key.new")
        fresh.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
        fresh.unlink(missing_ok=True)
    if path.is_symlink():
        raise ConfigError(f"{path}: a link; it must be a file of root's, mode 0600")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        found = os.fstat(file.fileno())
        is_ours = found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if not stat.S_ISREG(found.st_mode) or not is_ours:
            raise ConfigError(
                f"{path}: who can read or write it could have root restore anything: make it a file"
                " of root's, mode 0600, or remove it and all images that it sealed"
            )
        key = file.read(4096)
    if len(key) < KEY_BYTES:
        raise ConfigError(f"{path}: {len(key)} bytes, a key has {KEY_BYTES} or more; remove it")
    return key


def many_files() -> None:
    """Let this process open as many files as it may: an image has some of each thread's."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _spawn(argv: Sequence[str], folder: Path, log: Path) -> int:
    """Run a program in a folder to its end, away from our own files; its exit code.

    Raises:
        DriverError: it cannot be started.
    """
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDWR, 0),
        (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_RDWR, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(log), write, 0o600),
    ]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    try:
        with contextlib.chdir(folder):
            pid = os.posix_spawn(argv[0], list(argv), environment, file_actions=actions)
    except OSError as exc:
        raise DriverError(f"{argv[0]}: {exc.strerror}") from exc
    until = time.monotonic() + RUN_S
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(ended[1])


def first_errors(log: Path) -> str:
    """The first two errors of CRIU's log: those after them follow from them; "" for none."""
    try:
        found = _ERROR.findall(log.read_text(errors="replace"))
    except OSError:
        return ""
    return "; ".join(line.strip()[:150] for line in found[:2])
