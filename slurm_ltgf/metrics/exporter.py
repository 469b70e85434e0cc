"""What is shown: read anew every so often, and kept as text until the next time.

A scrape only hands out text that is there already: it asks neither Slurm nor the ledger, however
many scrape, and however often. When a refresh fails the old values stay, with `ltgf_up` 0 and their
time beside them; when they are older than `stale_s` they go, for old is not now.
"""

from __future__ import annotations

import gzip
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from slurm_ltgf import __version__
from slurm_ltgf.errors import LtgfError
from slurm_ltgf.metrics.catalog import family

log = logging.getLogger("ltgf")

#: Of the time, at most, goes into refreshes.
BUSY_PART = 0.1

PLAIN, OPEN_METRICS = "text/plain", "application/openmetrics-text"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A page as it is sent. is_gzip: its content is packed."""

    content_type: str
    content: bytes
    is_gzip: bool


@dataclass(slots=True)
class Page:
    """All families at one time, and each form of them once it was asked for."""

    families: tuple[Any, ...]
    _forms: dict[tuple[str, bool], Encoded] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def collect(self) -> Iterator[Any]:
        """As prometheus_client wants a registry."""
        return iter(self.families)

    def text(self) -> bytes:
        """Prometheus' text format: what node_exporter reads from files."""
        return self.encoded("", is_gzip=False).content

    def encoded(self, accept: str, *, is_gzip: bool) -> Encoded:
        """The form that a client asks for: OpenMetrics if it accepts that, else text."""
        kind = _kind(accept)
        with self._lock:
            if (kind, is_gzip) not in self._forms:
                self._forms[kind, is_gzip] = self._encode(kind, is_gzip=is_gzip)
            return self._forms[kind, is_gzip]

    def _encode(self, kind: str, *, is_gzip: bool) -> Encoded:
        from prometheus_client.exposition import choose_encoder

        accept = f"{OPEN_METRICS}; version=1.0.0" if kind == OPEN_METRICS else PLAIN
        encoder, content_type = choose_encoder(accept)
        content = encoder(self)
        return Encoded(content_type, gzip.compress(content) if is_gzip else content, is_gzip)


def _kind(accept: str) -> str:
    """Of two formats the one that a client prefers; a client's own words go no further."""
    from prometheus_client.exposition import choose_encoder

    try:
        _, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is no number
        return PLAIN
    return OPEN_METRICS if content_type.startswith(OPEN_METRICS) else PLAIN


class Exporter:
    """The pages of one source.

    Args:
        read: all families but those of health; raises LtgfError when it cannot.
        stale_s: values that are older are not shown.
        put: what else is done with each page, like writing a file; raises LtgfError.
        clock: epoch seconds.
    """

    def __init__(
        self,
        read: Callable[[], Iterable[Any]],
        *,
        stale_s: float,
        put: Callable[[bytes], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._read = read
        self._stale_s = stale_s
        self._put = put
        self._clock = clock
        self._values: tuple[Any, ...] = ()
        self._read_at: float | None = None
        self._took_s = 0.0
        self._said = ""
        self._page = Page(self._health(is_up=False))
        self._old = self._page

    def page(self) -> Page:
        """What there is to show now."""
        read_at = self._read_at
        is_old = read_at is not None and self._clock() - read_at > self._stale_s
        return self._old if is_old else self._page

    def refresh(self) -> str:
        """Read anew; what went wrong, "" for nothing."""
        began = time.monotonic()
        try:
            values = tuple(self._read())
        except LtgfError as exc:
            problem = str(exc)
        else:
            problem = ""
            self._took_s = time.monotonic() - began
            self._read_at = self._clock()
            self._values = values
        self._old = Page(self._health(is_up=False))
        self._page = Page((*self._health(is_up=not problem), *self._values))
        problem = problem or self._write()
        self._tell(problem)
        return problem

    def run(
        self,
        stop: threading.Event,
        *,
        every_s: float,
        alive: Callable[[str], object] = lambda problem: None,
    ) -> None:
        """Refresh until told to stop; alive is told how it is, at least twice a minute.

        Refreshes take at most a part BUSY_PART of the time, however often they are wanted.
        """
        while not stop.is_set():
            began = time.monotonic()
            problem = self.refresh()
            took_s = time.monotonic() - began
            end = began + max(every_s, took_s / BUSY_PART)
            alive(problem)
            while (left := end - time.monotonic()) > 0 and not stop.wait(min(left, 30)):
                alive(problem)

    def _write(self) -> str:
        if self._put is None:
            return ""
        try:
            self._put(self.page().text())
        except LtgfError as exc:
            return str(exc)
        return ""

    def _tell(self, problem: str) -> None:
        """Once what went wrong, and once that it is over."""
        if problem and problem != self._said:
            log.warning("metrics: %s", problem)
        elif self._said and not problem:
            log.warning("metrics: all values are read again")
        self._said = problem

    def _health(self, *, is_up: bool) -> tuple[Any, ...]:
        build = family("ltgf_build_info")
        build.add_metric((__version__,), 1)
        found = [build]
        values = {"ltgf_up": float(is_up)}
        if self._read_at is not None:
            values["ltgf_last_refresh_timestamp_seconds"] = round(self._read_at, 3)
            values["ltgf_refresh_duration_seconds"] = round(self._took_s, 6)
        for name, value in values.items():
            made = family(name)
            made.add_metric((), value)
            found.append(made)
        return tuple(found)
