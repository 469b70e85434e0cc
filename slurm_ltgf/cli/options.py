"""Options that several commands share, in Slurm's own letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def output(*, parsable: bool = True) -> Decorator:
    """--json, and -P and -n where rows are printed."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        options = [click.option("--json", "json_", is_flag=True, help="Print JSON.")]
        if parsable:
            options += [
                click.option("-P", "--parsable2", is_flag=True, help="Print '|'-separated rows."),
                click.option("-n", "--noheader", is_flag=True, help="With -P: no heading."),
            ]
        for option in reversed(options):
            function = option(function)
        return function

    return add


def interval(function: Callable[..., Any]) -> Callable[..., Any]:
    """-S and -E: a window, in Slurm's time syntax."""
    for option in (
        click.option("-E", "--endtime", metavar="TIME", help="End of the window; default: now."),
        click.option(
            "-S",
            "--starttime",
            metavar="TIME",
            help="Start of the window: 2026-03-01T12:00, now-7days, epoch seconds; local time.",
        ),
    ):
        function = option(function)
    return function


def moment(text: str | None, now: int) -> int | None:
    """A TIME argument as epoch seconds; None for none."""
    if text is None:
        return None
    from datetime import datetime

    from slurm_ltgf.errors import UsageError
    from slurm_ltgf.slurm.times import time_argument

    local = datetime.now().astimezone().tzinfo
    if local is None:
        raise UsageError("this machine's time zone is not known: set TZ")
    try:
        return time_argument(text, now, local)
    except ValueError as exc:
        raise UsageError(f"{text!r}: {exc}") from exc
