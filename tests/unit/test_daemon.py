"""The loop round a pass, with a clock that tests turn: rhythm, outages, stop, watchdog."""

from __future__ import annotations

import logging
import socket
import threading
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from slurm_ltgf.daemon import Notifier, Rhythm, serve
from slurm_ltgf.errors import LedgerError, SlurmUnavailable

AWAY = SlurmUnavailable("squeue (exit 1): Unable to contact slurm controller")


class Waiting(threading.Event):
    """A stop whose waiting only turns the clock; set at a time if one is given."""

    def __init__(self, ends_at: float) -> None:
        super().__init__()
        self.now = 0.0
        self.ends_at = ends_at

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert timeout > 0
        self.now = min(self.now + timeout, self.ends_at)
        if self.now == self.ends_at:
            self.set()
        return self.is_set()


@dataclass
class Service:
    """A daemon whose passes and newcomers are data.

    takes_s: of each pass. outages: from when until when Slurm does not answer. arrivals: moments
    at which a job is submitted.
    """

    takes_s: float = 0.0
    outages: tuple[tuple[float, float], ...] = ()
    arrivals: tuple[float, ...] = ()
    interval_s: float = 30.0
    arrivals_s: float = 2.0
    retry_max_s: float = 60.0
    began: list[float] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    said: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    stop: Waiting = field(default_factory=lambda: Waiting(0.0))

    def run(self, until: float) -> list[float]:
        """Serve until a moment; when passes began."""
        self.stop = Waiting(until)
        rhythm = Rhythm(self.interval_s, self.arrivals_s, self.retry_max_s)
        serve(
            self._pass, self._look, rhythm=rhythm, stop=self.stop, clock=lambda: self.stop.now,
            notifier=self,  # type: ignore[arg-type]
        )  # fmt: skip
        return self.began

    def say(self, *states: str) -> None:
        self.said.append((self.stop.now, states))

    @property
    def is_away(self) -> bool:
        return any(start <= self.stop.now < end for start, end in self.outages)

    def _pass(self) -> str:
        self.began.append(self.stop.now)
        if self.is_away:
            raise AWAY
        self.stop.now += self.takes_s
        return f"pass {len(self.began)}"

    def _look(self) -> bool:
        last = self.looks[-1] if self.looks else 0.0
        self.looks.append(self.stop.now)
        if self.is_away:
            raise AWAY
        return any(last < moment <= self.stop.now for moment in self.arrivals)


def test_passes_come_at_the_interval_whatever_they_take():
    assert Service(interval_s=30).run(100) == [0, 30, 60, 90]
    assert Service(interval_s=30, takes_s=5).run(100) == pytest.approx([0, 30, 60, 90])


def test_a_pass_longer_than_half_the_interval_leaves_as_long_a_pause():
    assert Service(interval_s=10, takes_s=20).run(130) == [0, 40, 80, 120]
    assert Service(interval_s=30, takes_s=20).run(130) == [0, 40, 80, 120]


def test_newcomers_are_looked_for_between_passes():
    service = Service(interval_s=10, arrivals_s=2)
    service.run(10)
    assert service.looks == [2, 4, 6, 8]


def test_a_newcomer_brings_the_next_pass_at_the_next_look():
    assert Service(arrivals=(5.5,)).run(50) == [0, 6, 36]


def test_a_stream_of_newcomers_does_not_make_a_busy_loop():
    service = Service(takes_s=7, arrivals=tuple(range(200)))
    began = service.run(200)
    assert began == pytest.approx([14 * k for k in range(len(began))])


def test_an_outage_is_waited_out_longer_each_time():
    service = Service(outages=((30, 1000),), arrivals_s=2, retry_max_s=60)
    began = service.run(300)
    assert began == [0, 30, 32, 36, 44, 60, 92, 152, 212, 272]


def test_the_rhythm_is_the_old_one_after_an_outage():
    service = Service(outages=((30, 40),), interval_s=30)
    assert service.run(120) == [0, 30, 32, 36, 44, 74, 104]


def test_a_second_outage_begins_with_short_waits_again():
    service = Service(outages=((30, 40), (70, 1000)), interval_s=30)
    assert service.run(90) == [0, 30, 32, 36, 44, 70, 72, 76, 84]


def test_an_outage_is_told_once_and_its_end_once(caplog):
    caplog.set_level(logging.INFO, "ltgf")
    Service(outages=((30, 70),)).run(150)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    warnings = [text for level, text in told if level == "WARNING"]
    assert len(warnings) == 2
    assert warnings[0].startswith(f"{AWAY}; trying again, at the latest every 60 s")
    assert warnings[1] == "Slurm answers again after 5 attempts"
    assert [text for level, text in told if level == "INFO"] == ["pass 1", "pass 7", "pass 8"]


def test_a_look_that_gets_no_answer_leaves_the_telling_to_the_pass(caplog):
    assert Service(outages=((5, 8),)).run(20) == [0, 6, 8]
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 2


def test_any_other_error_ends_the_daemon():
    service = Service()
    service._pass = lambda: (_ for _ in ()).throw(LedgerError("disk full"))
    with pytest.raises(LedgerError):
        service.run(10)


def test_stop_ends_a_wait_at_once_and_starts_no_further_pass():
    service = Service()
    assert service.run(45) == [0, 30]
    assert service.stop.now == 45
    assert service.said[-1] == (45, ("STOPPING=1",))


def test_stop_ends_the_wait_of_an_outage():
    service = Service(outages=((0, 10_000),), retry_max_s=3000)
    service.run(500)
    assert service.stop.now == 500
    assert service.said[-1][1] == ("STOPPING=1",)


def test_stop_before_the_first_pass_is_no_pass():
    service = Service()
    stop = threading.Event()
    stop.set()
    rhythm = Rhythm(30, 2, 60)
    serve(
        service._pass, service._look, rhythm=rhythm, stop=stop, clock=lambda: 0.0,
        notifier=service,  # type: ignore[arg-type]
    )  # fmt: skip
    assert service.began == []


@pytest.mark.parametrize(
    "service",
    [
        pytest.param(Service(interval_s=3600, arrivals_s=600), id="between passes"),
        pytest.param(
            Service(outages=((0, 10_000),), arrivals_s=600, retry_max_s=3600), id="outage"
        ),
    ],
)
def test_the_watchdog_is_fed_while_waiting(service):
    service.run(3000)
    fed = [moment for moment, states in service.said if "WATCHDOG=1" in states]
    assert max(b - a for a, b in pairwise(fed)) <= 10


def test_systemd_hears_ready_first_then_each_pass_and_the_end():
    service = Service()
    service.run(35)
    states = [states for _, states in service.said if states != ("WATCHDOG=1",)]
    assert states == [
        ("READY=1", "STATUS=first pass"),
        ("WATCHDOG=1", "STATUS=pass 1"),
        ("WATCHDOG=1", "STATUS=pass 2"),
        ("STOPPING=1",),
    ]


def test_systemd_hears_of_an_outage():
    service = Service(outages=((0, 1000),))
    service.run(5)
    assert (0, ("WATCHDOG=1", f"STATUS=waiting for Slurm: {AWAY}")) in service.said


@pytest.mark.parametrize("abstract", [False, True])
def test_a_state_is_one_datagram(tmp_path, monkeypatch, abstract):
    monkeypatch.chdir(tmp_path)
    name = f"@ltgf-{tmp_path.name}" if abstract else "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name.replace("@", "\0"))
        Notifier({"NOTIFY_SOCKET": name}).say("READY=1", "STATUS=up")
        assert sock.recv(100) == b"READY=1\nSTATUS=up"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/gone/sock"}])
def test_where_nobody_listens_nothing_is_lost_but_the_message(environ):
    Notifier(environ).say("READY=1")
