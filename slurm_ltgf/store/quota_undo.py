"""Undo files of `ltgf quota`: what accounts were before a plan was made, on disk before it is.

One JSON file a plan, written whole and synced to disk before the first change, so that a kill or a
power cut at any later moment finds it there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from slurm_ltgf.core.accounts import Undo
from slurm_ltgf.errors import InputError, UsageError
from slurm_ltgf.store.files import FileError, give_to_owner_of_directory, replace_bytes

FORMAT = 1
_NAME = re.compile(r"\d{8}T\d{6}Z(-\d+)?\.json")


@dataclass(frozen=True, slots=True)
class UndoFile:
    """An undo and where it is from. made_at: epoch seconds. by: who; why: the file applied."""

    format: int
    cluster: str
    made_at: int
    by: str
    why: str
    undo: Undo


def write_undo(folder: Path, content: UndoFile) -> Path:
    """Put an undo down, in a file of its own; the folder is made.

    Raises:
        FileError: it cannot be written.
    """
    try:
        if not folder.exists():
            folder.mkdir(mode=0o750)
            give_to_owner_of_directory(folder)
    except OSError as exc:
        raise FileError(f"{folder}: cannot be made: {exc.strerror}") from exc
    stem = datetime.fromtimestamp(content.made_at, UTC).strftime("%Y%m%dT%H%M%SZ")
    path, n = folder / f"{stem}.json", 1
    while path.exists():
        path, n = folder / f"{stem}-{n}.json", n + 1
    text = msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
    replace_bytes(path, text, mode=0o640)
    give_to_owner_of_directory(path)
    return path


def read_undo(path: Path) -> UndoFile:
    """Read an undo file.

    Raises:
        FileError: it cannot be read. InputError: it is none of ours.
    """
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise FileError(f"{path}: cannot read: {exc.strerror}") from exc
    try:
        found = msgspec.json.decode(content, type=UndoFile)
    except (msgspec.MsgspecError, ValueError) as exc:
        raise InputError(f"{path}: is no undo file of ltgf quota: {exc}") from exc
    if found.format != FORMAT:
        raise InputError(f"{path}: has format {found.format}, this ltgf knows {FORMAT}")
    return found


def newest_undo(folder: Path) -> Path:
    """The undo file that was made last.

    Raises:
        UsageError: there is none.
    """
    try:
        names = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
        found = [(path.stat().st_mtime_ns, path.name, path) for path in names]
    except FileNotFoundError:
        found = []
    except OSError as exc:
        raise FileError(f"{folder}: cannot read: {exc.strerror}") from exc
    if not found:
        raise UsageError(f"{folder} has no undo file: nothing was applied from here")
    return max(found)[2]
