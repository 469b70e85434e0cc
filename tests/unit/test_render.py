"""Tables for people: whole where they fit, folded where they do not, no digit ever lost."""

import io
import re
import sys

import pytest

from slurm_ltgf.cli import render
from slurm_ltgf.cli.render import Column

COLUMNS = (
    Column("tenant", "Tenant", render.word, numeric=False),
    Column("attained", "Attained hours", render.number(4)),
    Column("factor", "SiteFactor", render.word),
    Column("why", "Why", render.word, numeric=False),
)
ROW = {
    "tenant": "astrophysics",
    "attained": 123456.7891,
    "factor": 2144527623,
    "why": "8 GPUs of its tenant first",
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(monkeypatch, width, out):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", out)
    render.table("Title", COLUMNS, [ROW])
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


@pytest.mark.parametrize("width", [20, 50, 60, 80, 200])
def test_no_cell_is_cut_however_narrow_the_terminal(monkeypatch, width):
    text = printed(monkeypatch, width, Terminal())
    assert "…" not in text
    for word in ("astrophysics", "123456.7891", "2144527623", *ROW["why"].split()):
        assert word in text


def test_a_table_is_folded_to_fit_the_terminal(monkeypatch):
    lines = printed(monkeypatch, 60, Terminal()).splitlines()
    assert max(map(len, lines)) <= 60
    assert "8 GPUs of its tenant first" not in "\n".join(lines)


def test_what_is_no_terminal_gets_each_row_in_one_line(monkeypatch):
    text = printed(monkeypatch, 20, io.StringIO())
    row = next(line for line in text.splitlines() if "astrophysics" in line)
    assert all(word in row for word in ("123456.7891", "2144527623", ROW["why"]))


def test_a_reader_that_goes_away_is_a_broken_pipe_for_the_caller(monkeypatch):
    class Gone(Terminal):
        def write(self, text):
            if text:
                raise BrokenPipeError
            return 0

    with pytest.raises(BrokenPipeError):
        printed(monkeypatch, 80, Gone())
