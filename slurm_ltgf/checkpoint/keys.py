"""The text of the files between a job and who asks it: `key=value` a line, the first `format=1`.

Unknown keys are skipped. Standard library alone: training images import this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from slurm_ltgf.errors import InputError

FORMAT = 1
#: No file on the board is longer, and no text in it that is not a path.
LARGEST_BYTES, LONGEST_TEXT = 8192, 500

_E = TypeVar("_E", bound=StrEnum)


class ProtocolError(InputError):
    """A file on the board is not what it should be: which, what, why."""


def encode(keys: Mapping[str, object]) -> bytes:
    """The file of some keys: None and "" are left out; no value can begin a line of its own.

    >>> encode({"id": "ab", "why": "two\\nlines", "step": None})
    b'format=1\\nid=ab\\nwhy=two lines\\n'
    """
    lines = [f"format={FORMAT}"]
    for key, value in keys.items():
        if value is None or value == "":
            continue
        shown = str(int(value)) if isinstance(value, bool) else str(value)
        longest = None if key in ("dir", "command") else LONGEST_TEXT
        lines.append(f"{key}={one_line(shown)[:longest]}")
    return ("\n".join(lines) + "\n").encode(errors="surrogateescape")


def one_line(text: str) -> str:
    """A text without what could begin a line, or speak to a terminal."""
    return "".join(c if c.isprintable() or "\udc80" <= c <= "\udcff" else " " for c in text)


def decode(content: bytes, what: str) -> dict[str, str]:
    """Keys and values of a file.

    Raises:
        ProtocolError: too long, cut, or of another format.
    """
    if len(content) > LARGEST_BYTES:
        raise ProtocolError(f"{what}: longer than {LARGEST_BYTES} bytes")
    lines = content.decode(errors="surrogateescape").split("\n")
    if not content.endswith(b"\n") or not lines[0].startswith("format="):
        raise ProtocolError(f"{what}: cut, or no file of the checkpoint protocol")
    keys = dict(line.split("=", 1) for line in lines if "=" in line)
    if keys["format"] != str(FORMAT):
        raise ProtocolError(f"{what}: format {keys['format'][:20]!r}, this program knows {FORMAT}")
    return keys


class Reader:
    """Values of keys; raises ProtocolError, which names the one that is wrong."""

    def __init__(self, keys: Mapping[str, str], what: str) -> None:
        self._keys, self._what = keys, what

    def text(self, key: str, *, needed: bool = False) -> str:
        """Its text; "" if it is not there."""
        if needed and not self._keys.get(key):
            raise ProtocolError(f"{self._what}: {key} is missing")
        return self._keys.get(key, "")

    def number(self, key: str) -> int:
        """Its number, which must be there."""
        found = self.optional(key, int)
        if found is None:
            raise ProtocolError(f"{self._what}: {key} is missing")
        return int(found)

    def optional(self, key: str, kind: Callable[[str], Any]) -> Any:
        """Its number by `kind`; None if it is not there."""
        value = self.text(key)
        if not value:
            return None
        try:
            found = kind(value)
        except ValueError:
            found = -1
        if not 0 <= found < 1 << 63:
            raise ProtocolError(f"{self._what}: {key}={value[:40]!r}: must be a number >= 0")
        return found

    def word(self, key: str, words: type[_E]) -> _E:
        """Its word, which must be there and one of these."""
        value = self.text(key, needed=True)
        if value not in set(words):
            known = ", ".join(words)
            raise ProtocolError(f"{self._what}: {key}={value[:40]!r}: must be one of {known}")
        return words(value)
