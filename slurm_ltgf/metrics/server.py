"""The HTTP end of the exporter: hands out pages, and lets no client hold anybody up.

Each connection is one request in a thread of its own; there are never more than MOST_CLIENTS, and
none lives longer than LONGEST_S, however slowly it talks or listens. Who comes beyond that is sent
away at once. Nothing a client sends is kept, run or repeated.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from slurm_ltgf.errors import LtgfError
from slurm_ltgf.metrics.exporter import Page

MOST_CLIENTS = 16
LONGEST_S = 10.0
#: Where it is heard if nothing else is said: outside of 9100-9999, all of which are allocated.
DEFAULT_LISTEN = "127.0.0.1:15843"

_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]\s]+)):(?P<port>\d{1,5})")


class ListenError(LtgfError):
    """The address cannot be listened at: taken, or not this machine's. Name another."""

    exit_code = 74


def address_of(listen: str) -> tuple[str, int]:
    """Host and port of '127.0.0.1:15843', '[::1]:15843' or 'host:15843'.

    Raises:
        ListenError: it is none.
    """
    match = _ADDRESS.fullmatch(listen)
    if match is None or not int(match["port"]) < 1 << 16:
        raise ListenError(f"listen: must be ADDRESS:PORT like {DEFAULT_LISTEN}, got {listen!r}")
    return match["six"] or match["host"], int(match["port"])


@contextmanager
def serving(listen: str, page: Callable[[], Page]) -> Iterator[tuple[str, int]]:
    """Serve pages for the time of a block; the address, as the kernel gave it for port 0.

    Raises:
        ListenError: the address cannot be listened at.
    """
    host, port = address_of(listen)
    try:
        server = _Server((host, port), page)
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise ListenError(f"cannot listen at {listen}: {reason}; choose another address") from exc
    thread = threading.Thread(target=server.serve_forever, name="metrics-http", daemon=True)
    thread.start()
    try:
        found = server.server_address
        yield str(found[0]), int(found[1])
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingMixIn, TCPServer):
    """Few threads, none for long."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], page: Callable[[], Page]) -> None:
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(address[0]).version == 6:
                self.address_family = socket.AF_INET6
        self.page = page
        self._began: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for one more."""
        with self._lock:
            if len(self._began) >= MOST_CLIENTS:
                return False
            self._began[request] = time.monotonic()
        request.settimeout(LONGEST_S)
        return True

    def service_actions(self) -> None:
        """Twice a second: end connections that have lasted too long."""
        with self._lock:
            late = [
                one for one, began in self._began.items() if time.monotonic() - began > LONGEST_S
            ]
        for request in late:
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """The end of a connection, by whomever."""
        with self._lock:
            self._began.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    """One request: GET or HEAD of /metrics, or of / for people."""

    server_version, sys_version = "ltgf", ""
    server: _Server

    def do_GET(self) -> None:
        """Answer with a page."""
        self._answer(with_content=True)

    def do_HEAD(self) -> None:
        """Answer with its head."""
        self._answer(with_content=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: a log that clients fill is theirs."""

    def _answer(self, *, with_content: bool) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            wants_gzip = "gzip" in self.headers.get("Accept-Encoding", "").replace(" ", "").split(
                ","
            )
            page = self.server.page().encoded(self.headers.get("Accept", ""), is_gzip=wants_gzip)
            self._send(200, page.content_type, page.content, page.is_gzip, with_content)
        elif path == "/":
            text = b"ltgf exporter: see /metrics\n"
            self._send(200, "text/plain; charset=utf-8", text, False, with_content)
        else:
            self._send(404, "text/plain; charset=utf-8", b"not found\n", False, with_content)

    def _send(
        self, status: int, content_type: str, content: bytes, is_gzip: bool, with_content: bool
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if is_gzip:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if with_content:
            self.wfile.write(content)
