"""Images of processes between root's folder on a node and the job's folder, sealed.

Who restores an image as root runs whatever is in it. So root signs what it wrote, with a key that
the job's user does not have, and restores nothing else: files are copied into root's folder first,
and what was copied is compared with the seal. The user may delete an image, and copy it, no more.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import stat
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from slurm_ltgf.checkpoint.archive import Archive
from slurm_ltgf.checkpoint.driver import Call, DriverError, result
from slurm_ltgf.checkpoint.node_files import Job, as_user
from slurm_ltgf.checkpoint.revive import OUTPUT, SEAL

_BLOCK = 16 << 20
_LARGEST_SEAL = 1 << 20


@dataclass(frozen=True, slots=True)
class Seal:
    """What an image consists of. root: its first process. gpus: UUIDs of the node's GPUs.

    files: name to size and SHA-256. output_bytes: of the program's output at that time.
    """

    job_id: int
    uid: int
    root: int
    gpus: tuple[str, ...]
    output_bytes: int
    files: dict[str, tuple[int, str]]

    @classmethod
    def of(cls, folder: Path, job: Job, root: int, gpus: tuple[str, ...]) -> Seal:
        """The seal of a folder that CRIU has just written."""
        files = {}
        for path in sorted(folder.iterdir()):
            with path.open("rb", buffering=0) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[path.name] = (path.stat().st_size, digest)
        size = result(as_user(job.uid, lambda: _output_bytes(job)), 30, "the program's output")
        return cls(job.job_id, job.uid, root, gpus, int(size), files)

    def write(self, folder: Path, key: bytes) -> None:
        """Put it beside the files."""
        content = json.dumps(asdict(self)).encode()
        mac = hmac.digest(key, content, "sha256").hex().encode()
        (folder / SEAL).write_bytes(mac + b"\n" + content)

    @classmethod
    def read(cls, text: bytes, key: bytes, job: Job) -> Seal:
        """A seal that root made for this job.

        Raises:
            DriverError: it is not.
        """
        mac, _, content = text.partition(b"\n")
        if not hmac.compare_digest(mac, hmac.digest(key, content, "sha256").hex().encode()):
            raise DriverError("the image was not sealed by this node, or was changed since")
        keys = json.loads(content)
        keys["files"] = {name: (size, digest) for name, (size, digest) in keys["files"].items()}
        seal = cls(**{**keys, "gpus": tuple(keys["gpus"])})
        if (seal.job_id, seal.uid) != (job.job_id, job.uid):
            raise DriverError(f"the image is of job {seal.job_id}, not of {job.job_id}")
        return seal


def _output_bytes(job: Job) -> str:
    try:
        return str((job.dir / OUTPUT).lstat().st_size)
    except FileNotFoundError:
        return "0"


# --- into the job's folder ------------------------------------------------------------------------


def keep(folder: Path, job: Job, key: str) -> Call:
    """Begin to copy root's folder into the job's, as its user, and to make it the last checkpoint.

    Root opens the files, and then, being the user, writes. Tells the name and the bytes.
    """
    names = sorted(path.name for path in folder.iterdir())
    sources = {name: os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC) for name in names}
    try:
        return as_user(job.uid, lambda: _keep(sources, job, key))
    finally:
        for source in sources.values():
            os.close(source)


def _keep(sources: dict[str, int], job: Job, key: str) -> str:
    archive, size = Archive(job.dir), 0
    archive.sweep()
    path = archive.begin(key)
    for name, source in sources.items():
        with (path / name).open("xb", buffering=0) as file:
            while block := os.read(source, _BLOCK):
                size += len(block)
                while block:
                    block = block[file.write(block) :]
    archive.check_share(path, 0, 1)
    name = archive.put_in_place(path, step=int(time.time()), ranks=1, notes={"by": "criu"})
    return f"{name} {size}"


# --- and back -------------------------------------------------------------------------------------


def fetch(name: str, job: Job, into: Path, key: bytes) -> Seal:
    """Copy an image from the job's folder into root's, and see that it is as it was sealed.

    Raises:
        DriverError: it is not, or cannot be read.
        OSError: there is no room for it.
    """
    with _opened(job, name, [SEAL]) as (source,):
        seal = Seal.read(os.read(source, _LARGEST_SEAL), key, job)
    names = sorted(seal.files)
    with _opened(job, name, names) as sources:
        for file, source in zip(names, sources, strict=True):
            if _copy(source, into / file, seal.files[file][0]) != seal.files[file][1]:
                raise DriverError(f"the image's {file} was changed since it was sealed")
    return seal


class _opened:  # noqa: N801 - used as a with statement alone
    """Files of a checkpoint, opened by the job's user, handed to root."""

    def __init__(self, job: Job, name: str, names: list[str]) -> None:
        self._job, self._name, self._names = job, name, names
        self._files: list[int] = []

    def __enter__(self) -> list[int]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            call = as_user(self._job.uid, lambda: self._send(theirs))
            theirs.close()
            while len(self._files) < len(self._names):
                _, files, _, _ = socket.recv_fds(ours, 1, 1)
                if not files:
                    break
                self._files += files
        try:
            result(call, 60, f"image {self._name}")
            for file in self._files:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise DriverError(f"image {self._name}: not all of it are files")
        except DriverError:
            self.__exit__()
            raise
        return self._files

    def __exit__(self, *exc: object) -> None:
        for file in self._files:
            os.close(file)

    def _send(self, to: socket.socket) -> str:
        if "/" in self._name or any("/" in name for name in self._names):
            raise DriverError(f"image {self._name!r}: no folder's name")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(self._job.dir / self._name, flags | os.O_DIRECTORY)
        for name in self._names:
            file = os.open(name, flags | os.O_NONBLOCK, dir_fd=folder)
            socket.send_fds(to, [b"."], [file])
            os.close(file)
        return ""


def _copy(source: int, to: Path, size: int) -> str:
    """Copy a file that should have this size; its SHA-256 as copied."""
    digest = hashlib.sha256()
    with to.open("xb", buffering=0) as file:
        while size > 0 and (block := os.read(source, min(_BLOCK, size))):
            size -= len(block)
            digest.update(block)
            while block:
                block = block[file.write(block) :]
    return digest.hexdigest() if size == 0 else ""


def cut_output(job: Job, size: int) -> None:
    """Bring the program's output back to what it was: CRIU takes a file of no other size.

    Raises:
        DriverError: it cannot be.
    """

    def work() -> str:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(job.dir / OUTPUT, flags, 0o600)
        os.ftruncate(file, size)
        os.close(file)
        return ""

    result(as_user(job.uid, work), 30, f"{job.dir / OUTPUT}")
