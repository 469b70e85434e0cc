"""Checkpoints on disk: written beside, checked, put in place in one step, kept until the next.

A checkpoint is a folder `step-000000101` in the job's checkpoint folder. It is written as
`.new-…`; when all ranks have written, each checks a share of the files and says what it found;
their sum is MANIFEST, the last file to be written. A rename gives the folder its name, a renamed
link `last` makes it the one that counts. So a reader finds the old checkpoint or the new one,
whatever was killed when, and whatever disk was full.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurm_ltgf.checkpoint.board import replace_owned
from slurm_ltgf.checkpoint.disk import checksum, sync_folder, sync_tree
from slurm_ltgf.errors import InputError

MANIFEST, LAST = "MANIFEST", "last"
#: Complete checkpoints that are kept: the last one, and the one before it should it be damaged.
KEPT = 2
_NAME = re.compile(r"step-(\d{9,})(?:\.(\d+))?")
#: What a rank found, while it is written and when it is; no part of the checkpoint.
_SHARES = (".share-", "..share-")


class DamagedCheckpoint(InputError):
    """A checkpoint is not as its MANIFEST says: which file, and how."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint. notes: what the program wanted to find again (a tracker's run id)."""

    path: Path
    step: int
    ranks: int = 1
    bytes: int = 0
    time: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.path.name


@dataclass(frozen=True, slots=True)
class Archive:
    """The checkpoints of a job."""

    folder: Path

    def begin(self, key: str) -> Path:
        """The folder that all ranks write into, made if it is not there."""
        path = self.folder / f".new-{key}"
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def drop(self, path: Path) -> None:
        """Give up what was begun."""
        shutil.rmtree(path, ignore_errors=True)

    def check_share(self, path: Path, rank: int, ranks: int) -> None:
        """Flush and checksum this rank's share of the files, and write down what was found.

        Raises:
            OSError: a file cannot be read or written.
        """
        found = {
            name: checksum(path / name, flush=True)
            for name in _files(path)
            if zlib.crc32(os.fsencode(name)) % ranks == rank
        }
        share = json.dumps(found).encode()
        _write(path / f".share-{rank}", share)

    def put_in_place(self, path: Path, *, step: int, ranks: int, notes: Mapping[str, str]) -> str:
        """Make what all ranks wrote and checked the checkpoint that counts; its name.

        Raises:
            OSError: it cannot be written; the old one counts.
        """
        self._seal(path, step=step, ranks=ranks, notes=notes)
        name = self._free_name(step)
        path.rename(self.folder / name)
        sync_folder(self.folder)
        self._point(name)
        self._prune(name)
        return name

    def take_over(self, name: str, *, step: int) -> None:
        """Make what somebody else wrote under a name of his own the checkpoint that counts.

        Nothing is removed: what lies beside it is not known to be ours.

        Raises:
            OSError: it is not there, or cannot be read or written.
        """
        path = self.folder / name
        if path.is_dir():
            self.check_share(path, 0, 1)
            self._seal(path, step=step, ranks=1, notes={})
        else:
            checksum(path, flush=True)
        sync_folder(self.folder)
        self._point(name)

    def settle(self, found: Checkpoint | None) -> None:
        """Have `last` name what is continued from; its old target, damaged, stays where it is.

        Raises:
            OSError: it cannot be written.
        """
        if found is None:
            with contextlib.suppress(FileNotFoundError):
                (self.folder / LAST).unlink()
        elif self.named_by_link() != found.path:
            self._point(found.name)

    def named_by_link(self) -> Path | None:
        """What `last` names, if that lies in the folder itself."""
        try:
            name = str((self.folder / LAST).readlink())
        except OSError:
            return None
        path = self.folder / name
        return path if "/" not in name and path.exists() else None

    def _seal(self, path: Path, *, step: int, ranks: int, notes: Mapping[str, str]) -> None:
        files: dict[str, tuple[int, int]] = {}
        for rank in range(ranks):
            share = path / f".share-{rank}"
            files |= json.loads(share.read_bytes())
            share.unlink()
        content = {
            "format": 1,
            "step": step,
            "ranks": ranks,
            "time": int(time.time()),
            "notes": dict(notes),
            "files": dict(sorted(files.items())),
        }
        _write(path / MANIFEST, json.dumps(content, indent=0).encode())
        sync_tree(path)

    def last(
        self, *, verify: bool = True, say: Callable[[str], None] = lambda line: None
    ) -> Checkpoint | None:
        """The newest checkpoint that is whole; None: there is none.

        verify: checksums too, not only sizes. say: told of each that was passed over.
        """
        for name in self._newest_first():
            try:
                found = self.read(name)
                check(found, checksums=verify)
            except (OSError, DamagedCheckpoint) as exc:
                say(f"checkpoint {name} is passed over: {exc}")
            else:
                return found
        return None

    def read(self, name: str) -> Checkpoint:
        """A checkpoint by its name.

        Raises:
            OSError, DamagedCheckpoint: it is not there, or has no MANIFEST that can be read.
        """
        path = self.folder / name
        try:
            content = json.loads((path / MANIFEST).read_bytes())
            files = {file: (size, crc) for file, (size, crc) in content["files"].items()}
            return Checkpoint(
                path=path,
                step=int(content["step"]),
                ranks=int(content["ranks"]),
                bytes=sum(size for size, _ in files.values()),
                time=int(content["time"]),
                notes=dict(content["notes"]),
                files=files,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise DamagedCheckpoint(f"{path / MANIFEST}: cannot be read: {exc}") from exc

    def sweep(self) -> None:
        """Remove what was begun by runs that are no more."""
        for path in self.folder.glob(".new-*"):
            self.drop(path)

    def _newest_first(self) -> Iterator[str]:
        """`last`'s first, then by step; the others are there should it be damaged."""
        named = self.named_by_link()
        first = named.name if named else ""
        if named:
            yield first
        yield from sorted(set(self._names()) - {first}, key=_order, reverse=True)

    def _names(self) -> list[str]:
        return [path.name for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]

    def _free_name(self, step: int) -> str:
        name, again = f"step-{step:09d}", 0
        while (self.folder / name).exists():
            again += 1
            name = f"step-{step:09d}.{again}"
        return name

    def _point(self, name: str) -> None:
        fresh = self.folder / f".{LAST}.new"
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        fresh.symlink_to(name)
        fresh.rename(self.folder / LAST)
        sync_folder(self.folder)

    def _prune(self, newest: str) -> None:
        """Keep the newest ones; a folder is renamed before it is emptied, so that none is half."""
        others = sorted(set(self._names()) - {newest}, key=self._written, reverse=True)
        for name in others[KEPT - 1 :]:
            going = self.folder / f".new-{name}-going"
            with contextlib.suppress(OSError):
                (self.folder / name).rename(going)
                self.drop(going)

    def _written(self, name: str) -> tuple[int, tuple[int, int]]:
        try:
            return (self.folder / name / MANIFEST).stat().st_mtime_ns, _order(name)
        except OSError:
            return 0, _order(name)


def check(found: Checkpoint, *, checksums: bool) -> None:
    """See that a checkpoint's files are as its MANIFEST says.

    Raises:
        DamagedCheckpoint: one is not.
    """
    for name, (size, crc) in found.files.items():
        path = found.path / name
        try:
            seen = checksum(path) if checksums else (path.stat().st_size, crc)
        except OSError as exc:
            raise DamagedCheckpoint(f"{path}: {exc.strerror}") from exc
        if seen != (size, crc):
            what = f"{seen[0]} bytes, not {size}" if seen[0] != size else "its checksum is wrong"
            raise DamagedCheckpoint(f"{path}: {what}")


def _order(name: str) -> tuple[int, int]:
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2] or 0)) if match else (-1, 0)


def _files(path: Path) -> list[str]:
    """Files of a checkpoint that is being written, by their path in it."""
    found = []
    for root, _, names in os.walk(path):
        inside = Path(root).relative_to(path)
        found += [str(inside / name) for name in names if not name.startswith(_SHARES)]
    return sorted(set(found) - {MANIFEST})


def _write(path: Path, content: bytes) -> None:
    replace_owned(path, content, mode=0o600)
