"""A file that is written or read in a thread while memory is copied from or to elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any


class Transfer:
    """Reads or writes a file part by part in a thread, as far as it was told it may.

    For a `with` block inside of the file's own: the thread ends before the block does, whatever
    was raised.

    move: reads or writes from a byte on so many, at most part_bytes; may raise OSError.
    """

    def __init__(self, move: Callable[[int, int], None], part_bytes: int) -> None:
        self._move, self._may, self._done = move, 0, 0
        self._part_bytes = part_bytes
        self._is_last = False
        self._error: OSError | None = None
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ltgf-transfer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(0)

    def reached(self, end: int) -> None:
        """It may go on to this byte."""
        with self._change:
            self._may = end
            self._change.notify_all()

    def wait_for(self, end: int) -> None:
        """Wait until it has got to this byte; its error is raised here."""
        with self._change:
            self._change.wait_for(lambda: self._done >= end or self._error is not None)
        if self._error is not None:
            raise self._error

    def finish(self, end: int) -> None:
        """Let it run to the end, and wait for it."""
        self._end(end)
        if self._error is not None:
            raise self._error

    def _end(self, end: int) -> None:
        with self._change:
            self._may, self._is_last = end, True
            self._change.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            for begin, end in self._parts():
                self._move(begin, end - begin)
                with self._change:
                    self._done = end
                    self._change.notify_all()
        except OSError as exc:
            with self._change:
                self._error = exc
                self._change.notify_all()

    def _parts(self) -> Iterator[tuple[int, int]]:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._may > self._done or self._is_last)
                begin, end = self._done, min(self._may, self._done + self._part_bytes)
                if begin >= self._may:
                    return
            yield begin, end


def write(file: Any, content: memoryview) -> None:
    """Write all of it into an unbuffered file.

    Raises:
        OSError: the disk refuses.
    """
    while content:
        content = content[file.write(content) :]


def read(file: Any, into: memoryview) -> None:
    """Fill it from an unbuffered file.

    Raises:
        OSError: it cannot be read, or is too short.
    """
    while into:
        got = file.readinto(into)
        if not got:
            raise OSError(0, "shorter than its index says", file.name)
        into = into[got:]
