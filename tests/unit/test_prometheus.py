"""A real Prometheus: scrapes the exporter, takes the rules, answers what the dashboard asks."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_ltgf.metrics.catalog import SITE
from slurm_ltgf.metrics.catalog_node import NODE
from slurm_ltgf.store.config import parsed
from tests.metrics_site import (
    PROMETHEUS,
    PROMTOOL,
    MetricsSite,
    full_site,
    has_no_objection,
    samples,
)

ROOT = Path(__file__).parents[2]
RULES = ROOT / "etc" / "prometheus" / "ltgf.rules.yml"
DASHBOARD = json.loads((ROOT / "etc" / "grafana" / "ltgf.json").read_text())
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="no promtool: apt-get install prometheus"
)
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None, reason="no prometheus here: see scripts/test"
)


def promtool(*words: str, text: bytes = b"") -> None:
    done = subprocess.run([str(PROMTOOL), *words], input=text, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def expressions() -> list[str]:
    """Every query of the dashboard, its variables filled in as Grafana does."""
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    for name, filled in (("$cluster", ".*"), ("$tenant", ".*"), ("$__rate_interval", "1m")):
        found = [expr.replace(name, filled) for expr in found]
    return found


def metrics_in(text: str) -> set[str]:
    """Names of metrics in a query: not those of labels, nor those that rules record."""
    plain = re.sub(r'"[^"]*"|(?:by|on) \([^)]*\)|\w+:\w+:\w+', "", text)
    return set(re.findall(r"\b(?:ltgf_|gpu_)[a-z_]+", plain))


KNOWN = {
    one.name + ending
    for group in (*SITE, *NODE)
    for one in group.metrics
    for ending in {
        "gauge": ("",),
        "counter": ("",),
        "histogram": ("_bucket", "_sum", "_count"),
        "summary": ("_sum", "_count"),
    }[one.kind]
}


@needs_promtool
def test_the_page_has_everything_in_the_catalog_and_promtool_has_nothing_to_say(tmp_path):
    site = full_site(tmp_path / "ledger.db", now=int(time.time()))
    site.config = parsed("[metrics]\njobs = 5\n", "test")
    site.most_jobs = 5
    text = site.exporter().page().text()
    has_no_objection(text)
    of_nodes = {one.name for group in NODE for one in group.metrics}
    assert {name for name, _ in samples(text)} == KNOWN - of_nodes


@needs_promtool
def test_the_rules_are_clean_and_fire_when_they_should():
    promtool("check", "rules", str(RULES))
    promtool("test", "rules", str(RULES.with_suffix(".test.yml")))


def test_rules_and_dashboard_ask_for_metrics_that_exist():
    rules = re.findall(r"expr: (?:>\n)?((?:.|\n)*?)\n {8}\w", RULES.read_text())
    assert len(rules) > 10
    asked = set().union(*(metrics_in(text) for text in (*rules, *expressions())))
    assert len(asked) > 25
    assert asked <= KNOWN


def test_the_dashboard_is_one_that_grafana_can_read():
    panels = DASHBOARD["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(ids) == len(set(ids))
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not own & cells, f"{panel['title']} lies on another panel"
        cells |= own
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${DS_PROMETHEUS}"
            assert {t["refId"] for t in panel["targets"]}
    assert DASHBOARD["uid"] == "ltgf-fairness"
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    assert variables == {"DS_PROMETHEUS", "cluster", "tenant"}


# --- a server -------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Server:
    """A Prometheus that scrapes a site's exporter each second."""

    site: MetricsSite
    port: int

    def ask(self, path: str, **query: str) -> dict:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as exc:
            with exc:
                return json.load(exc)

    def query(self, expr: str) -> dict[str, float]:
        """Tenant (or "") -> value of an instant query."""
        answer = self.ask("query", query=expr)
        assert answer["status"] == "success", f"{expr}: {answer}"
        return {
            row["metric"].get("tenant", ""): float(row["value"][1])
            for row in answer["data"]["result"]
        }

    def until(self, expr: str, *, within_s: float = 20) -> dict[str, float]:
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            try:
                if found := self.query(expr):
                    return found
            except (OSError, AssertionError):
                pass
            time.sleep(0.3)
        raise AssertionError(f"{expr}: no answer within {within_s} s")


@contextmanager
def started(words: list[str], **more: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, **more) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.terminate()
            process.wait(20)


CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: ltgf
    static_configs: [{{targets: ["{target}"]}}]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prometheus")
    site = full_site(folder / "ledger.db", now=int(time.time()))
    port = free_port()
    exporter = [sys.executable, "-m", "slurm_ltgf", "--ledger", str(site.path), "exporter"]
    prometheus = [
        str(PROMETHEUS), f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]  # fmt: skip
    with ExitStack() as stack:
        one = stack.enter_context(
            started([*exporter, "--listen", "127.0.0.1:0", "--refresh", "1s"])
        )
        assert one.stderr is not None
        target = one.stderr.readline().split("//")[1].partition("/")[0]
        config = CONFIG.format(rules=RULES, target=target)
        (folder / "prometheus.yml").write_text(config)
        stack.enter_context(started(prometheus, cwd=folder))
        found = Server(site, port)
        found.until("ltgf_up == 1")
        yield found


@needs_prometheus
def test_what_prometheus_has_is_what_fairness_says(server, capsys):
    from slurm_ltgf.cli.main import run

    assert run(["--ledger", str(server.site.path), "fairness", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert server.query("min(up)") == {"": 1}
    for key in ("rho", "credit", "share", "quota_gpus", "weight"):
        expected = {row["tenant"]: row[key] for row in told["tenants"] if row[key] is not None}
        assert server.query(f"ltgf_tenant_{key}") == pytest.approx(expected), key
    attained = {row["tenant"]: row["attained_gpu_s"] for row in told["tenants"]}
    assert server.query("ltgf_tenant_attained_gpu_seconds") == attained
    assert server.query("sum by (tenant) (ltgf_tenant_gpu_seconds_total)") == {
        "astro": 4 * 3600 + 4 * 1800, "bio": 2 * 600 * 2, "chem": 0,
    }  # fmt: skip
    assert server.query("ltgf_jain_index") == pytest.approx({"": told["jain"]})
    quantile = "histogram_quantile(0.5, ltgf_checkpoint_duration_seconds_bucket)"
    assert 10 < server.query(quantile)[""] <= 20


@needs_prometheus
def test_every_query_of_the_dashboard_has_an_answer(server):
    server.until("rate(ltgf_tenant_gpu_seconds_total[1m])")
    for expr in expressions():
        answer = server.query(expr)
        is_about_now = not re.search(r"rate\(|increase\(|ltgf_node_", expr)
        assert answer or not is_about_now, f"{expr}: nothing"


@needs_prometheus
def test_the_rules_are_taken_and_nothing_is_wrong_with_a_site_that_is_well(server):
    server.until("cluster:ltgf_held:ratio")
    groups = server.ask("rules")["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}, [r.get("lastError") for r in rules]
    assert len(rules) == RULES.read_text().count("      - alert:") + 2
    firing = [alert["labels"]["alertname"] for alert in server.ask("alerts")["data"]["alerts"]
              if alert["state"] == "firing"]  # fmt: skip
    assert firing == []
    assert server.query("cluster:ltgf_held:ratio") == {"": pytest.approx(6 / 16)}


@needs_prometheus
def test_prometheus_takes_openmetrics_from_us(server):
    """It asks for it, and its scrape has neither an error nor a dropped sample."""
    (target,) = server.ask("targets")["data"]["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    page = len(samples(server.site.exporter().page().text()))
    assert server.query("scrape_samples_scraped")[""] == pytest.approx(page, abs=2)
