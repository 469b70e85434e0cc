"""Rows to text: tables for people, `-P` and `--json` for programs. Hours and percent are made here.

Names of users, accounts and the like are other people's text: control characters are shown as
escapes, and nothing of it is read as markup.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

Cell = Any


@dataclass(frozen=True, slots=True)
class Column:
    """A column: key into the row, heading, and how a value is shown; right-aligned if numeric."""

    key: str
    title: str
    show: Callable[[Cell], str] = str
    numeric: bool = True


def clean(text: str) -> str:
    """The text with control characters and delimiters of ours made visible."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def word(value: Cell) -> str:
    """Text, or a dash for nothing."""
    return clean(str(value)) if value not in (None, "") else "-"


def number(digits: int) -> Callable[[Cell], str]:
    """Fixed digits; a dash for not known, inf in words."""

    def show(value: Cell) -> str:
        if value is None:
            return "-"
        return "inf" if math.isinf(value) else f"{value:.{digits}f}"

    return show


def gpus(value: Cell) -> str:
    """GPUs: whole, or with as few digits as it takes."""
    return "-" if value is None else f"{value:.4g}"


def hours(value: Cell) -> str:
    """GPU-seconds as GPU-hours; the more digits the fewer there are."""
    if value is None:
        return "-"
    in_hours = value / 3600
    return f"{in_hours:.{1 if in_hours >= 1000 else 2 if in_hours >= 10 else 4}f}"


def duration(seconds: Cell) -> str:
    """Seconds as Slurm prints them: [D-]HH:MM:SS."""
    if seconds is None or seconds < 0:
        return "-"
    days, rest = divmod(int(seconds), 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def moment(epoch: Cell) -> str:
    """An instant in this machine's zone, with its offset."""
    if epoch is None or epoch < 0:
        return "-"
    return datetime.fromtimestamp(epoch).astimezone().strftime("%Y-%m-%d %H:%M:%S%z")


def table(title: str, columns: Sequence[Column], rows: Iterable[Mapping[str, Cell]]) -> None:
    """Print a table, without colour when the output is not a terminal.

    On a narrow terminal it is set tight and its texts are folded at spaces; no cell is ever cut,
    so that what is still too wide is left to the terminal to wrap.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = [[column.show(row.get(column.key)) for column in columns] for row in rows]
    texts = [[column.title, *(cells[i] for cells in shown)] for i, column in enumerate(columns)]
    screen, between = Console().width, len(columns) - 1
    widths = _widths(texts)
    roomy = sum(widths) + 3 * between + 4
    is_tight = sys.stdout.isatty() and roomy > screen
    if is_tight:
        widths = _widths(texts, screen - between)
    grid = Table(
        title=Text(clean(title)),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=not is_tight,
        padding=(0, 0 if is_tight else 1),
    )
    for column, width in zip(columns, widths, strict=True):
        grid.add_column(
            Text(column.title), justify="right" if column.numeric else "left", width=width
        )
    for cells in shown:
        grid.add_row(*[Text(cell) for cell in cells])
    width = max(screen, sum(widths) + between if is_tight else roomy)
    console = Console(width=width, highlight=False)
    with console.capture() as drawn:
        console.print(grid)
    click.echo(drawn.get(), nl=False)  # rich itself would end the process when `head` goes away


def _widths(texts: Sequence[Sequence[str]], room: int | None = None) -> list[int]:
    """Width of each column of texts; with too little room those lose that can be folded most."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in texts]
    least = [max(map(cell_len, " ".join(column).split())) for column in texts]
    while room is not None and sum(widths) > room and widths != least:
        slack = [width - low for width, low in zip(widths, least, strict=True)]
        widths[slack.index(max(slack))] -= 1
    return widths


def parsable(
    columns: Sequence[Column], rows: Iterable[Mapping[str, Cell]], *, header: bool = True
) -> None:
    """Print `|`-separated rows as Slurm's -P does: keys as headings, plain numbers."""
    if header:
        click.echo("|".join(column.key for column in columns))
    for row in rows:
        click.echo("|".join(_plain(row.get(column.key)) for column in columns))


def as_json(value: Any) -> None:
    """Print JSON: numbers are numbers, absent is null, nothing that is not JSON (no NaN)."""
    click.echo(json.dumps(value, indent=2, allow_nan=False, default=str))


def finite(value: float | None) -> float | None:
    """The number, or None where JSON has no word for it."""
    return None if value is None or not math.isfinite(value) else value


def note(text: str) -> None:
    """A line for the person at the terminal, on standard error."""
    click.echo(clean(text), err=True)


def live() -> bool:
    """Whether standard error is a terminal on which progress may be drawn."""
    return sys.stderr.isatty() and "NO_PROGRESS" not in os.environ


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show on a terminal that something is going on."""
    if not live():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def _plain(value: Cell) -> str:
    if value is None:
        return ""
    return clean(str(value)).replace("|", "\\x7c")
