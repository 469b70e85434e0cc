"""The loop round a pass: when to run the next, how to wait out an outage, when to stop.

It knows nothing of what a pass does. A pass that raises SlurmUnavailable is tried again, later each
time; any other error ends the process, and systemd starts it anew.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_ltgf.errors import SlurmUnavailable

log = logging.getLogger("ltgf")

#: Passes take at most this part of the time, whatever the interval, newcomers or not.
BUSY_PART = 0.5


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Seconds: from pass to pass, between looks for newcomers, the longest wait in an outage."""

    interval_s: float
    arrivals_s: float
    retry_max_s: float


class Notifier:
    """Tells systemd what the service is doing (sd_notify(3)); says nothing where there is none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]

    def say(self, *states: str) -> None:
        """Send states such as READY=1, WATCHDOG=1, STATUS=…; a lost message is no error."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.connect(self._address)
                sock.sendall("\n".join(states).encode())
        except OSError as exc:
            log.debug("sd_notify: %s", exc)


class Stop(threading.Event):
    """Set by SIGTERM or SIGINT: finish the pass under way, then end."""

    def listen(self) -> Stop:
        """Take the signals."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.set())
        return self


def serve(
    one_pass: Callable[[], str],
    has_newcomers: Callable[[], bool],
    *,
    rhythm: Rhythm,
    stop: threading.Event,
    clock: Callable[[], float],
    notifier: Notifier | None = None,
) -> None:
    """Run passes until told to stop.

    Args:
        one_pass: does a pass and returns its log line.
        has_newcomers: a cheap look; True hastens the next pass.
        clock: monotonic seconds.
    """
    notifier = notifier or Notifier(os.environ)
    notifier.say("READY=1", "STATUS=first pass")
    failures = 0
    while not stop.is_set():
        began = clock()
        try:
            line = one_pass()
        except SlurmUnavailable as exc:
            failures += 1
            _tell_outage(exc, failures, rhythm)
            notifier.say("WATCHDOG=1", f"STATUS=waiting for Slurm: {exc}")
            _wait(_retry_s(failures, rhythm), stop, notifier)
            continue
        if failures:
            log.warning("Slurm answers again after %d attempts", failures)
            failures = 0
        log.info("%s", line)
        notifier.say("WATCHDOG=1", f"STATUS={line}")
        _pause(clock() - began, has_newcomers, rhythm=rhythm, stop=stop, notifier=notifier)
    notifier.say("STOPPING=1")


def _tell_outage(exc: SlurmUnavailable, failures: int, rhythm: Rhythm) -> None:
    """Once a warning, then only for those who ask for details."""
    if failures == 1:
        log.warning(
            "%s; trying again, at the latest every %g s: Slurm schedules as before",
            exc,
            rhythm.retry_max_s,
        )
    else:
        log.debug("attempt %d: %s", failures, exc)


def _retry_s(failures: int, rhythm: Rhythm) -> float:
    return float(min(rhythm.arrivals_s * 2 ** min(failures - 1, 30), rhythm.retry_max_s))


def _pause(
    took_s: float,
    has_newcomers: Callable[[], bool],
    *,
    rhythm: Rhythm,
    stop: threading.Event,
    notifier: Notifier,
) -> None:
    """Wait for the next pass; newcomers shorten it, though not to a busy loop."""
    rest_s = took_s * (1 / BUSY_PART - 1)
    left_s = max(rhythm.interval_s - took_s, rest_s)
    step_s = max(rhythm.arrivals_s, rest_s)
    while left_s > 0:
        if _wait(min(step_s, left_s), stop, notifier):
            return
        left_s -= step_s
        if left_s > 0 and _look(has_newcomers):
            return


def _look(has_newcomers: Callable[[], bool]) -> bool:
    """Look; when Slurm does not answer let the pass find out, which knows how to wait."""
    try:
        return has_newcomers()
    except SlurmUnavailable:
        return True


def _wait(seconds: float, stop: threading.Event, notifier: Notifier) -> bool:
    """Wait, feeding the watchdog; True when told to stop."""
    while seconds > 0:
        part = min(seconds, 10.0)
        if stop.wait(part):
            return True
        notifier.say("WATCHDOG=1")
        seconds -= part
    return stop.is_set()
