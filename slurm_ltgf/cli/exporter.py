"""`ltgf exporter`: metrics for Prometheus, over HTTP or in a file; the daemon's, too."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import render
from slurm_ltgf.cli.app import App, now

if TYPE_CHECKING:
    from slurm_ltgf.metrics.exporter import Exporter, Page

#: Values that could not be read anew so often are not shown any more.
STALE_REFRESHES = 3


@click.command("exporter")
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    help="Where to answer scrapes; default: metrics.listen, else 127.0.0.1:15843.",
)
@click.option(
    "--textfile",
    metavar="PATH",
    help="A file for node_exporter, replaced at each refresh; default: metrics.textfile.",
)
@click.option("--once", is_flag=True, help="Print the metrics, or write the file, and end.")
@click.option("--json", "json_", is_flag=True, help="With --once: print JSON.")
@click.option("--refresh", metavar="DURATION", help="How often to read; default: metrics.refresh.")
@click.option("--jobs", type=click.IntRange(0), help="Jobs told of one by one; metrics.jobs.")
@click.option("-M", "--cluster", metavar="NAME", help="Cluster; default: the site's.")
@click.option("--node", is_flag=True, help="Tell of this node's GPUs, by NVML, and nothing else.")
@click.option(
    "--gpumap",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="With --node: what plugstack.conf names as gpumap= or gpustat=.",
)
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Metrics for Prometheus, from the ledger alone: no scrape asks Slurm for anything.

    The daemon does the same where metrics.listen or metrics.textfile is set; this command is for
    another machine, another user, or a site that runs `ltgf sync` by cron. With --node it tells of
    the GPUs of the node it runs on instead: held against used.
    """
    app = App.of(ctx)
    cluster, jobs, is_node = given["cluster"], given["jobs"], given["node"]
    textfile = _textfile(given["textfile"])
    every_s = _refresh_s(given["refresh"]) or app.config.metrics.refresh_s
    exporter = (
        _of_node(given["gpumap"], jobs or 0, textfile=textfile, every_s=every_s)
        if is_node
        else exporter_of(app, lambda: cluster, every_s=every_s, most_jobs=jobs, textfile=textfile)
    )
    if given["once"]:
        _once(exporter, json_=given["json_"], is_file=textfile is not None)
        return
    has_file = textfile is not None or bool(app.config.metrics.textfile and not is_node)
    run(app, exporter, listen=_listen(app, given["listen"], has_file=has_file), every_s=every_s)


def run(app: App, exporter: Exporter, *, listen: str, every_s: int) -> None:
    """Show what an exporter has until SIGTERM.

    Raises:
        ListenError: the address cannot be listened at.
    """
    from slurm_ltgf.cli.daemon import log, log_to_stderr
    from slurm_ltgf.daemon import Notifier, Stop
    from slurm_ltgf.metrics.server import serving

    with ExitStack() as stack:
        address = stack.enter_context(serving(listen, exporter.page)) if listen else None
        log_to_stderr(app.verbose)
        stop, notifier = Stop().listen(), Notifier(os.environ)
        if address:
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            log.info("metrics at http://%s:%d/metrics", host, address[1])
        notifier.say("READY=1")
        exporter.run(
            stop,
            every_s=every_s,
            alive=lambda problem: notifier.say("WATCHDOG=1", f"STATUS={problem or 'all is read'}"),
        )
    notifier.say("STOPPING=1")


@contextmanager
def in_daemon(app: App, cluster: Callable[[], str | None]) -> Iterator[None]:
    """The daemon's metrics for the time of a block, in threads beside its passes.

    They read the ledger on their own: what goes wrong here holds no pass up, and ends none.
    """
    from slurm_ltgf.cli.daemon import log
    from slurm_ltgf.errors import LtgfError

    settings = app.config.metrics
    if not settings.listen and not settings.textfile:
        yield
        return
    from slurm_ltgf.metrics.server import serving

    exporter = exporter_of(app, cluster, every_s=settings.refresh_s)
    stop = threading.Event()
    with ExitStack() as stack:
        if settings.listen:
            try:
                stack.enter_context(serving(settings.listen, exporter.page))
            except LtgfError as exc:
                log.warning("metrics: %s; going on without", exc)
        thread = threading.Thread(
            target=exporter.run,
            args=(stop,),
            kwargs={"every_s": settings.refresh_s},
            name="metrics",
            daemon=True,
        )
        thread.start()
        stack.callback(stop.set)
        yield


def exporter_of(
    app: App,
    cluster: Callable[[], str | None],
    *,
    every_s: int,
    most_jobs: int | None = None,
    textfile: Path | None = None,
) -> Exporter:
    """The exporter of a site; options beat its settings."""
    from slurm_ltgf.metrics.exporter import Exporter
    from slurm_ltgf.metrics.site import families
    from slurm_ltgf.service.readings import readings

    settings = app.config.metrics
    most_jobs = settings.jobs if most_jobs is None else most_jobs
    file = textfile or (Path(settings.textfile) if settings.textfile else None)

    def read() -> Iterator[Any]:
        with app.ledger(readonly=True) as ledger:
            seen = readings(
                ledger,
                app.config,
                cluster(),
                now=now(),
                most_tenants=settings.max_tenants,
                most_jobs=most_jobs,
            )
        return families(seen)

    return Exporter(
        read,
        stale_s=max(app.config.site.stale_after_s, STALE_REFRESHES * every_s),
        put=_putter(file),
    )


def _of_node(
    gpumap: Path | None, most_jobs: int, *, textfile: Path | None, every_s: int
) -> Exporter:
    """The exporter of this node's GPUs."""
    from slurm_ltgf.metrics.exporter import Exporter
    from slurm_ltgf.metrics.node import families
    from slurm_ltgf.metrics.nvml import Nvml

    nvml = Nvml()
    return Exporter(
        lambda: families(nvml, gpumap, most_jobs=most_jobs),
        stale_s=STALE_REFRESHES * every_s,
        put=_putter(textfile),
    )


def _putter(file: Path | None) -> Callable[[bytes], None] | None:
    from slurm_ltgf.store.files import replace_bytes

    return None if file is None else lambda text: replace_bytes(file, text, mode=0o644)


def _once(exporter: Exporter, *, json_: bool, is_file: bool) -> None:
    from slurm_ltgf.errors import LedgerError

    logging.getLogger("ltgf").addHandler(logging.NullHandler())  # the error says it
    problem = exporter.refresh()
    if problem:
        raise LedgerError(f"metrics: {problem}")
    if json_:
        render.as_json(as_json(exporter.page()))
    elif not is_file:
        click.echo(exporter.page().text(), nl=False)


def as_json(page: Page) -> dict[str, Any]:
    """A page for programs."""
    from slurm_ltgf import __version__

    return {
        "meta": {"version": __version__, "generated": now()},
        "metrics": [
            {
                "name": sample.name,
                "type": made.type,
                "labels": sample.labels,
                "value": render.finite(sample.value),
            }
            for made in page.collect()
            for sample in made.samples
        ],
    }


def _listen(app: App, option: str | None, *, has_file: bool) -> str:
    """Where to listen; nowhere if a file was asked for and no address."""
    from slurm_ltgf.metrics.server import DEFAULT_LISTEN

    return option or app.config.metrics.listen or ("" if has_file else DEFAULT_LISTEN)


def _textfile(option: str | None) -> Path | None:
    from slurm_ltgf.errors import UsageError

    if option is not None and not option.endswith(".prom"):
        raise UsageError(
            f"--textfile: must end in .prom, or node_exporter skips it, got {option!r}"
        )
    return None if option is None else Path(option)


def _refresh_s(option: str | None) -> int | None:
    from slurm_ltgf.core.duration import duration_s
    from slurm_ltgf.errors import UsageError

    seconds = duration_s(option) if option else None
    if option and not seconds:
        raise UsageError(f"--refresh: must be a duration like 30s or 5min, got {option!r}")
    return seconds
