"""The exporter: pages, forms, age, files; and clients that mean no good."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import stat
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from slurm_ltgf.cli.main import run
from slurm_ltgf.errors import LedgerError
from slurm_ltgf.metrics import server
from slurm_ltgf.metrics.catalog import SITE, family
from slurm_ltgf.metrics.exporter import Exporter
from slurm_ltgf.metrics.server import ListenError, address_of, serving
from tests.metrics_site import NOW, MetricsSite, finished, running, samples, value


def gauge(number: float) -> list[object]:
    made = family("ltgf_window_seconds")
    made.add_metric(("c1",), number)
    return [made]


class Source:
    """Values that a test sets; an error is raised in their place."""

    def __init__(self, *values: object) -> None:
        self.values = list(values)
        self.reads = 0

    def __call__(self) -> list[object]:
        self.reads += 1
        found = self.values.pop(0) if len(self.values) > 1 else self.values[0]
        if isinstance(found, Exception):
            raise found
        return gauge(found)  # type: ignore[arg-type]


# --- pages ----------------------------------------------------------------------------------------


def test_nothing_was_read_yet():
    found = samples(Exporter(Source(1), stale_s=600).page().text())
    assert value(found, "ltgf_up") == 0
    assert value(found, "ltgf_last_refresh_timestamp_seconds") is None


def test_a_failed_refresh_keeps_the_old_values_and_says_so_once(caplog):
    caplog.set_level(logging.WARNING, "ltgf")
    clock = [NOW]
    away = LedgerError("/x: is damaged")
    exporter = Exporter(Source(1, away, away, 2), stale_s=600, clock=lambda: clock[0])
    exporter.refresh()
    clock[0] += 60
    assert exporter.refresh() == "/x: is damaged"
    found = samples(exporter.page().text())
    assert value(found, "ltgf_up") == 0
    assert value(found, "ltgf_window_seconds") == 1
    assert value(found, "ltgf_last_refresh_timestamp_seconds") == NOW
    exporter.refresh()
    exporter.refresh()
    assert value(samples(exporter.page().text()), "ltgf_window_seconds") == 2
    assert [record.getMessage() for record in caplog.records] == [
        "metrics: /x: is damaged",
        "metrics: all values are read again",
    ]


def test_values_that_are_too_old_are_not_shown_even_if_nobody_refreshes():
    clock = [NOW]
    exporter = Exporter(Source(1), stale_s=600, clock=lambda: clock[0])
    exporter.refresh()
    clock[0] += 600
    assert value(samples(exporter.page().text()), "ltgf_window_seconds") == 1
    clock[0] += 1
    found = samples(exporter.page().text())
    assert value(found, "ltgf_window_seconds") is None
    assert value(found, "ltgf_up") == 0
    assert value(found, "ltgf_last_refresh_timestamp_seconds") == NOW


class Turning(threading.Event):
    """A stop whose waiting turns a clock, set at a time."""

    def __init__(self, ends_at: float) -> None:
        super().__init__()
        self.now, self.ends_at = 0.0, ends_at

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0
        if self.now >= self.ends_at:
            self.set()
        return self.is_set()


@pytest.mark.parametrize(("takes_s", "reads"), [(0.0, 10), (6.0, 5)])
def test_refreshes_come_as_often_as_wanted_and_take_a_tenth_at_most(monkeypatch, takes_s, reads):
    stop = Turning(300)
    monkeypatch.setattr("slurm_ltgf.metrics.exporter.time.monotonic", lambda: stop.now)
    told: list[float] = []
    source = Source(1)

    def read() -> list[object]:
        stop.now += takes_s
        return source()

    Exporter(read, stale_s=600).run(stop, every_s=30, alive=lambda _: told.append(stop.now))
    assert source.reads == reads
    gaps = [b - a for a, b in pairwise(told)]
    assert max(gaps) <= 30 + takes_s


def test_any_other_error_is_a_bug_and_not_hidden():
    exporter = Exporter(Source(ZeroDivisionError()), stale_s=600)
    with pytest.raises(ZeroDivisionError):
        exporter.refresh()


def test_a_page_is_written_once_in_each_form():
    source = Source(1)
    exporter = Exporter(source, stale_s=600)
    exporter.refresh()
    page = exporter.page()
    first = page.encoded("text/plain", is_gzip=True)
    assert page.encoded("*/*", is_gzip=True) is first
    assert gzip.decompress(first.content) == page.text()
    assert source.reads == 1


OPEN = "application/openmetrics-text"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "text/plain"),
        ("text/html,*/*", "text/plain"),
        (f"{OPEN};version=1.0.0,text/plain;version=0.0.4;q=0.5", OPEN),
        (f"{OPEN}; version=1.0.0; escaping=allow-utf-8", OPEN),
        (f"{OPEN};version=" + "9" * 5000, ""),  # either will do
        (f"{OPEN};version=x.y", ""),
        ("text/plain;version=" + "\x01", "text/plain"),
    ],
)
def test_the_client_chooses_the_format_and_nothing_else(accept, kind):
    exporter = Exporter(Source(1), stale_s=600)
    exporter.refresh()
    page = exporter.page()
    found = page.encoded(accept, is_gzip=False)
    assert found.content_type.startswith(kind)
    assert len(found.content_type) < 120
    assert len(page._forms) == 1


def test_openmetrics_is_what_the_parser_takes(tmp_path):
    site = MetricsSite(tmp_path / "ledger.db")
    site.accounts("a", "b")
    site.capacity(a100=8)
    site.store(running(1, "a", "gpu:a100=2,gpu=2", elapsed_s=60, now=NOW))
    text = site.exporter().page().encoded(OPEN, is_gzip=False).content.decode()
    assert text.endswith("# EOF\n")
    names = {made.name for made in text_string_to_metric_families(text)}
    assert {"ltgf_tenant_gpu_seconds", "ltgf_up", "gpu_migration"} <= names


def test_what_needs_the_capacity_is_absent_without_it(tmp_path):
    site = MetricsSite(tmp_path / "ledger.db")
    site.accounts("a", "b")
    site.store(finished(1, "a", "gpu=2", start=NOW - 60, elapsed_s=60))
    found = site.scrape()
    for name in ("rho", "credit", "share", "deficit_gpu_seconds", "quota_gpus"):
        assert value(found, f"ltgf_tenant_{name}", tenant="a") is None
    assert value(found, "ltgf_tenant_attained_gpu_seconds", tenant="a") == 120
    assert value(found, "gpu_effective_utilization") is None
    site.now -= 30
    site.capacity(a100=4)
    site.now += 30
    found = site.scrape()
    assert value(found, "ltgf_tenant_rho", tenant="a") == 1.0
    assert value(found, "ltgf_tenant_rho", tenant="b") is None  # idle is no number
    assert value(found, "gpu_effective_utilization") == pytest.approx(120 / (4 * 86400))


def test_a_runaway_holds_nothing(tmp_path):
    site = MetricsSite(tmp_path / "ledger.db")
    site.accounts("a")
    site.store(
        running(1, "a", "gpu=2", elapsed_s=90_000, now=NOW, limit_s=3600),
        running(2, "a", "gpu=1", elapsed_s=90, now=NOW, limit_s=3600),
    )
    found = site.scrape()
    assert value(found, "ltgf_tenant_held_gpus", tenant="a", gpu_type="untyped") == 1
    assert value(found, "ltgf_suspect_records") == 1


def test_every_metric_of_the_catalog_has_one_group_and_a_meaning():
    names = [one.name for group in SITE for one in group.metrics]
    assert len(names) == len(set(names))
    for group in SITE:
        for one in group.metrics:
            assert one.meaning.endswith("."), one.name
            assert one.name.endswith("_total") == (one.kind == "counter"), one.name


# --- HTTP -----------------------------------------------------------------------------------------


@contextmanager
def served(listen: str = "127.0.0.1:0"):
    exporter = Exporter(Source(1), stale_s=600)
    exporter.refresh()
    with serving(listen, exporter.page) as address:
        yield address


def get(address: tuple[str, int], path: str = "/metrics", **headers: str):
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    request = urllib.request.Request(f"http://{host}:{address[1]}{path}", headers=headers)
    return urllib.request.urlopen(request, timeout=5)


def test_get_head_and_what_is_not_there():
    with served() as address:
        with get(address) as answer:
            assert b"ltgf_up 1.0" in answer.read()
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        with get(address, **{"Accept-Encoding": "gzip"}) as answer:
            assert b"ltgf_up 1.0" in gzip.decompress(answer.read())
        with get(address, "/metrics?name[]=x") as answer:
            assert answer.status == 200
        with get(address, "/") as answer:
            assert b"/metrics" in answer.read()
        for path in ("/metrics/../etc/passwd", "/%2e%2e", "/x" * 1000):
            with pytest.raises(urllib.error.HTTPError, match="404") as refused:
                get(address, path)
            refused.value.close()
        request = urllib.request.Request(
            f"http://{address[0]}:{address[1]}/metrics", data=b"x", method="POST"
        )
        with pytest.raises(urllib.error.HTTPError, match="501") as refused:
            urllib.request.urlopen(request, timeout=5)
        refused.value.close()


def test_ipv6():
    with served("[::1]:0") as address, get(address) as answer:
        assert answer.status == 200


def say(address: tuple[str, int], words: bytes) -> socket.socket:
    made = socket.create_connection(address, timeout=5)
    made.sendall(words)
    return made


def test_slow_clients_hold_nobody_up_and_are_sent_away(monkeypatch):
    monkeypatch.setattr(server, "LONGEST_S", 1.0)
    with served() as address, ExitStack() as stack:
        slow = [
            stack.enter_context(say(address, b"GET /metrics HTTP/1.1\r\nX: "))
            for _ in range(server.MOST_CLIENTS - 1)
        ]
        with get(address) as answer:  # one is free
            assert answer.status == 200
        until = time.monotonic() + 5
        while time.monotonic() < until and any(_is_open(one, drip=True) for one in slow):
            time.sleep(0.1)
        assert not any(_is_open(one, drip=False) for one in slow)
        with get(address) as answer:
            assert answer.status == 200
        assert sum(t.name.startswith("Thread") for t in threading.enumerate()) <= 3


def _is_open(one: socket.socket, *, drip: bool) -> bool:
    """Whether the server still listens; drip: say one letter more, as a slow client does."""
    try:
        if drip:
            one.sendall(b"x")
        one.settimeout(0.01)
        return one.recv(100) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


def test_beyond_the_most_clients_are_sent_away_at_once():
    with served() as address, ExitStack() as stack:
        for _ in range(server.MOST_CLIENTS):
            stack.enter_context(say(address, b"GET"))
        time.sleep(0.3)
        extra = stack.enter_context(say(address, b"GET /metrics HTTP/1.1\r\n\r\n"))
        with suppress(ConnectionResetError):
            assert extra.recv(100) == b""


@pytest.mark.parametrize(
    "words",
    [
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(500)) + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"\r\n\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET\x00/metrics\x00HTTP/1.1\r\n\r\n",
    ],
    ids=["long line", "many headers", "TLS", "empty lines", "version", "zeros"],
)
def test_nonsense_is_refused_and_the_next_client_served(words, capfd, monkeypatch):
    monkeypatch.setattr(server, "LONGEST_S", 0.5)
    with served() as address:
        with say(address, b"") as one:
            try:
                one.sendall(words)
                assert not one.recv(65536).startswith(b"HTTP/1.0 200")
            except OSError:
                pass
        with get(address) as answer:
            assert answer.status == 200
    assert capfd.readouterr().err == ""


def test_who_does_not_listen_is_sent_away(monkeypatch):
    """A client that never reads its answer."""
    monkeypatch.setattr(server, "LONGEST_S", 0.5)
    exporter = Exporter(Source(1), stale_s=600)
    exporter.refresh()
    page = exporter.page()
    huge = page.encoded("", is_gzip=False)
    page._forms["text/plain", False] = type(huge)(huge.content_type, b"x" * 50_000_000, False)
    with (
        serving("127.0.0.1:0", exporter.page) as address,
        say(address, b"GET /metrics HTTP/1.1\r\n\r\n"),
    ):
        time.sleep(2)
        assert not [t for t in threading.enumerate() if "process_request_thread" in t.name]


@pytest.mark.parametrize("listen", ["", "9100", ":9100", "a:b", "1.2.3.4:65536", "::1:80", "a b:1"])
def test_addresses_that_are_none(listen):
    with pytest.raises(ListenError, match="must be ADDRESS:PORT"):
        address_of(listen)


def test_a_taken_address_is_one_clear_line(ledger, capsys):
    with served() as (host, port):
        assert run(["--ledger", ledger, "exporter", "--listen", f"{host}:{port}"]) == 74
    said = capsys.readouterr().err.strip()
    assert said.endswith(
        f"cannot listen at {host}:{port}: Address already in use; choose another address"
    )


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path, monkeypatch) -> str:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LTGF_CONFIG", raising=False)
    site = MetricsSite(tmp_path / "ledger.db", now=int(time.time()))
    site.accounts("a", "b")
    site.capacity(a100=8)
    site.store(finished(1, "a", "gpu:a100=2,gpu=2", start=site.now - 600, elapsed_s=600))
    return str(site.path)


def test_once_prints_what_a_scrape_would_give(ledger, capsysbinary):
    assert run(["--ledger", ledger, "exporter", "--once"]) == 0
    found = samples(capsysbinary.readouterr().out)
    assert value(found, "ltgf_tenant_attained_gpu_seconds", tenant="a") == 1200


def test_the_values_are_those_of_fairness(ledger, capsys):
    assert run(["--ledger", ledger, "fairness", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert run(["--ledger", ledger, "exporter", "--once", "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    found = {
        (one["name"], one["labels"].get("tenant")): one["value"]
        for one in metrics
        if "gpu_type" not in one["labels"]
    }
    for row in told["tenants"]:
        for key in ("weight", "rho", "credit", "share", "quota_gpus"):
            assert found.get((f"ltgf_tenant_{key}", row["tenant"])) == row[key]
        for key in ("attained", "deserved", "quota", "entitled"):
            assert found[f"ltgf_tenant_{key}_gpu_seconds", row["tenant"]] == row[f"{key}_gpu_s"]
    assert found["ltgf_jain_index", None] == told["jain"]
    assert found["ltgf_ledger_synced_timestamp_seconds", None] == told["meta"]["known_until"]


def test_a_file_is_replaced_and_everybody_may_read_it(ledger, tmp_path):
    path = tmp_path / "ltgf.prom"
    path.write_text("old")
    before = path.stat().st_ino
    assert run(["--ledger", ledger, "exporter", "--once", "--textfile", str(path)]) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.stat().st_ino != before
    assert value(samples(path.read_bytes()), "ltgf_up") == 1
    assert [p.name for p in tmp_path.iterdir() if "prom" in p.name] == ["ltgf.prom"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--once", "--ledger-is-not-there"], 2, "No such option"),
        (["--textfile", "/tmp/x.txt"], 2, "must end in .prom"),
        (["--refresh", "soon"], 2, "must be a duration"),
        (["--listen", "nowhere"], 74, "must be ADDRESS:PORT"),
        (["--once", "-M", "other"], 74, "no runs of other"),
        (["--once", "--textfile", "/nowhere/x.prom"], 74, "cannot write"),
    ],
)
def test_what_is_wrong_is_one_line(ledger, capsys, words, code, says):
    assert run(["--ledger", ledger, "exporter", *words]) == code
    assert says in capsys.readouterr().err


def test_no_ledger_is_one_line_when_asked_once(tmp_path, capsys):
    path = tmp_path / "none.db"
    assert run(["--ledger", str(path), "exporter", "--once"]) == 74
    assert "no ledger there" in capsys.readouterr().err
    assert not path.exists()


def test_the_reader_changes_nothing(ledger):
    path = Path(ledger)
    before = path.read_bytes()
    assert run(["--ledger", ledger, "exporter", "--once"]) == 0
    assert path.read_bytes() == before
