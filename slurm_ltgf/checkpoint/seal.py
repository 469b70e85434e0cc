"""Images of processes between root's folder on a node and the job's folder, sealed.

Who restores an image as root runs whatever is in it. So root signs what it wrote, with a key that
the job's user does not have, and restores nothing else: files are copied into root's folder first,
and what was copied is compared with the seal. The user may delete an image, and copy it, no more.
An image counts for later runs of the job that it was made of, and for nothing else.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from slurm_ltgf.checkpoint.archive import Archive
from slurm_ltgf.checkpoint.driver import Call, DriverError, result
from slurm_ltgf.checkpoint.node_files import Job, as_user
from slurm_ltgf.checkpoint.revive import OUTPUT, SEAL

FORMAT = 1
_BLOCK = 16 << 20
#: Room for some 100,000 files; longer ones are not written, and not read.
LARGEST_SEAL = 16 << 20
#: The user's folder, or a file in it, that does not answer for so long is away.
ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Seal:
    """What an image consists of. restart: the run of the job that it was made of.

    root: its first process. gids: the groups that it runs with. gpus: UUIDs of the node's GPUs.
    files: name to size and SHA-256. output_bytes: of the program's output at that time.
    """

    job_id: int
    uid: int
    restart: int
    root: int
    gids: tuple[int, ...]
    gpus: tuple[str, ...]
    output_bytes: int
    files: dict[str, tuple[int, str]]

    @classmethod
    def of(
        cls, folder: Path, job: Job, root: int, gids: tuple[int, ...], gpus: tuple[str, ...]
    ) -> Seal:
        """The seal of a folder that CRIU has just written."""
        files = {}
        for path in sorted(folder.iterdir()):
            with path.open("rb", buffering=0) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[path.name] = (path.stat().st_size, digest)
        size = result(as_user(job.uid, lambda: _output_bytes(job)), 30, "the program's output")
        return cls(job.job_id, job.uid, job.restart, root, gids, gpus, int(size), files)

    def write(self, folder: Path, key: bytes) -> None:
        """Put it beside the files.

        Raises:
            DriverError: it is too long to be read again.
        """
        content = json.dumps({"format": FORMAT, **asdict(self)}).encode()
        text = hmac.digest(key, content, "sha256").hex().encode() + b"\n" + content
        if len(text) > LARGEST_SEAL:
            raise DriverError(f"an image of {len(self.files)} files is too large to be sealed")
        (folder / SEAL).write_bytes(text)

    @classmethod
    def read(cls, text: bytes, key: bytes, job: Job) -> Seal:
        """A seal that root made of an earlier run of this job.

        Raises:
            DriverError: it is not.
        """
        mac, _, content = text.partition(b"\n")
        if not hmac.compare_digest(mac, hmac.digest(key, content, "sha256").hex().encode()):
            raise DriverError(
                "the image was not sealed by this node (or one with the same key), or its seal was"
                " changed since"
            )
        seal = cls._of_keys(json.loads(content))
        if (seal.job_id, seal.uid) != (job.job_id, job.uid):
            raise DriverError(
                f"the image is of job {seal.job_id} of user {seal.uid}, not of {job.job_id} of user"
                f" {job.uid}"
            )
        if seal.restart >= job.restart:
            raise DriverError(
                f"the image is of run {seal.restart} of job {job.job_id}, and this is run"
                f" {job.restart}: only a later run is brought back from it"
            )
        return seal

    @classmethod
    def _of_keys(cls, keys: Any) -> Seal:
        """What a seal of root's own says."""
        try:
            if keys.pop("format") != FORMAT:
                raise ValueError
            files = {_plain(name): (size, digest) for name, (size, digest) in keys["files"].items()}
            sets = {"files": files, "gids": tuple(keys["gids"]), "gpus": tuple(keys["gpus"])}
            return cls(**{**keys, **sets})
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise DriverError("the image was sealed by another version of ltgf") from exc


def _plain(name: str) -> str:
    if "/" in name or name in ("", ".", "..", SEAL):
        raise ValueError
    return name


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

    What lies beside it there, the seal does not name, and it is left there.

    Raises:
        DriverError: it is not, or cannot be read.
        OSError: there is no room for it.
    """
    ((_, source),) = _opened(job, name, [SEAL])
    with source:
        seal = Seal.read(_whole(source.fileno(), LARGEST_SEAL), key, job)
    for file, source in _opened(job, name, sorted(seal.files)):
        with source:
            size, digest = seal.files[file]
            if _copy(source.fileno(), into / file, size) != digest:
                raise DriverError(f"image {name}: {file} was changed since it was sealed")
    return seal


def _opened(job: Job, name: str, names: list[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Files of a checkpoint, each opened by the job's user and handed to root, who closes it.

    Raises:
        DriverError: one is not there, is no plain file, or the folder does not answer.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        ours.settimeout(ANSWER_S)
        sender = as_user(job.uid, lambda: _send(job.dir, name, names, theirs))
        theirs.close()
        try:
            for file in names:
                yield file, _received(ours, sender, f"image {name}")
        finally:
            ours.close()
            sender.kill()


def _received(ours: socket.socket, sender: Call, what: str) -> IO[bytes]:
    try:
        _, files, _, _ = socket.recv_fds(ours, 1, 1)
    except TimeoutError:
        raise DriverError(f"{what}: no answer in {ANSWER_S:g} s") from None
    if not files:
        result(sender, 5, what)
        raise DriverError(f"{what}: cannot be handed over: more files than may be open at once")
    if not stat.S_ISREG(os.fstat(files[0]).st_mode):
        os.close(files[0])
        raise DriverError(f"{what}: not all of it are plain files")
    return os.fdopen(files[0], "rb", buffering=0)


def _send(place: Path, name: str, names: list[str], to: socket.socket) -> str:
    """Being the user: open the files of a checkpoint, and hand each over."""
    if "/" in name or name in ("", ".", ".."):
        raise DriverError(f"{name!r} is no folder's name")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    file = name
    try:
        folder = os.open(place / name, flags | os.O_DIRECTORY)
        for file in names:
            descriptor = os.open(file, flags | os.O_NONBLOCK, dir_fd=folder)
            socket.send_fds(to, [b"."], [descriptor])
            os.close(descriptor)
    except OSError as exc:
        why = "a link" if exc.errno in (errno.ELOOP, errno.ENOTDIR) else exc.strerror
        raise DriverError(f"{file}: {why}") from exc
    return ""


def _whole(source: int, most: int) -> bytes:
    """All of a file, or one byte more than may be."""
    text = b""
    while len(text) <= most and (block := os.read(source, most + 1 - len(text))):
        text += block
    if len(text) > most:
        raise DriverError(f"the image's {SEAL} is longer than {most} bytes, not root's")
    return text


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
