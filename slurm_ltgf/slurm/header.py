"""The first line of a sacct table: its columns, its delimiter, and what ends a row. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_ltgf.errors import InputError

_HINT = "`ltgf sync --print-command` shows how to dump"

#: What `sacct --helpformat` lists, 20.02 to 26.05, as far as Slurm itself fills it.
_OWN = frozenset(
    re.findall(
        r"\w+",
        """account alloccpus allocgres allocnodes alloctres associd avecpu avecpufreq avediskread
        avediskwrite avepages averss avevmsize blockid cluster consumedenergy
        consumedenergyraw cputime cputimeraw dbindex derivedexitcode derivedes elapsed
        elapsedraw eligible end exitcode failednode flags gid group jobid jobidraw
        layout maxdiskread maxdiskreadnode maxdiskreadtask maxdiskwrite maxdiskwritenode
        maxdiskwritetask maxpages maxpagesnode maxpagestask maxrss maxrssnode maxrsstask
        maxvmsize maxvmsizenode maxvmsizetask mincpu mincpunode mincputask ncpus nnodes
        nodelist ntasks partition planned plannedcpu plannedcpuraw priority qos qosraw
        qosreq reason reqcpufreq reqcpufreqgov reqcpufreqmax reqcpufreqmin reqcpus
        reqgres reqmem reqnodes reqtres reservationid reserved resvcpu resvcpuraw
        restarts segmentsize sluid start state submit suspended systemcpu timelimit
        timelimitraw totalcpu tres tresusageinave tresusageinmax tresusageinmaxnode
        tresusageinmaxtask tresusageinmin tresusageinminnode tresusageinmintask
        tresusageintot tresusageoutave tresusageoutmax tresusageoutmaxnode
        tresusageoutmaxtask tresusageoutmin tresusageoutminnode tresusageoutmintask
        tresusageouttot uid user usercpu wckeyid""",
    )
)
#: Text that users (or site tools) choose: it may hold the delimiter, newlines, anything.
_FREE = frozenset(
    re.findall(
        r"\w+",
        """admincomment comment constraints container extra jobname licenses mcslabel reservation
        stdin stdout stderr submitline systemcomment wckey workdir""",
    )
)
#: Stands for a delimiter of several characters while a table is read.
UNIT = b"\x1f"
#: Stands for a newline inside a row whose end has a token of its own.
INNER_NEWLINE = b"\v"
#: What some programs put before the first character of a text in UTF-8.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says about the rows below it.

    names: columns, lower case. written: the delimiter as it stands in the file. row_end: what ends
    a row, as bytes of the file. free: which columns hold free text.
    """

    names: tuple[str, ...]
    written: bytes
    row_end: bytes
    free: tuple[bool, ...]

    @property
    def width(self) -> int:
        """Fields of a row."""
        return len(self.names)

    @property
    def delimiter(self) -> bytes:
        """The one byte between fields after `normal`."""
        return self.written if len(self.written) == 1 else UNIT

    @property
    def free_tail(self) -> int:
        """Column from which on there is only free text; width if the last is not."""
        tail = self.width
        while tail > 0 and self.free[tail - 1]:
            tail -= 1
        return tail

    def columns_of(self, line: bytes) -> tuple[str, ...]:
        """The columns that a line below this header names, if it is a header again; else ()."""
        cells = line.removeprefix(BYTE_ORDER_MARK).strip(b"\r ").split(self.delimiter)
        names = tuple(cell.decode("utf-8", "replace").lower() for cell in cells)
        known = len(names) > 1 and all(name in _OWN or name in self.names for name in names)
        return names if known else ()

    def normal(self, rows: bytes) -> bytes:
        """Whole rows of the file, with one byte between fields and a newline after each row."""
        if self.row_end != b"\n":
            rows = rows.replace(INNER_NEWLINE, b" ").replace(b"\x1e", b" ")
            rows = rows.replace(self.row_end, b"\x1e").replace(b"\n", INNER_NEWLINE)
            rows = rows.replace(b"\x1e", b"\n")
        if self.delimiter != self.written:
            rows = rows.replace(UNIT, b" ").replace(self.written, UNIT)
        return rows


def read_header(line: bytes) -> Header:
    """Understand a header line (without its newline).

    >>> read_header(b"JobID|State|JobName").free
    (False, False, True)
    >>> read_header(b"JobIDRaw^|^State^|^EOR").row_end
    b'^|^EOR\\n'

    Raises:
        InputError: it is no header of sacct, or one whose rows cannot be split.
    """
    newline = b"\r\n" if line.endswith(b"\r") else b"\n"
    line = line.removeprefix(BYTE_ORDER_MARK).rstrip(b"\r")
    match = re.match(rb"\s*([A-Za-z]\w*)([^\w\n]+)", line)
    if not match or match[1].decode().lower() not in _OWN | _FREE:
        raise InputError(f"not a sacct dump: it begins with {_shown(line)}; {_HINT}")
    written = match[2]
    if not written.strip(b" ") or written in (b",", b"."):
        why = "cuts its columns" if not written.strip() else "is in its TRES lists too"
        raise InputError(f"this sacct dump cannot be split: {_shown(written)} {why}; {_HINT}")
    words = line.strip(b" ").split(written)
    if not all(re.fullmatch(rb"\w*", word) for word in words):
        raise InputError(f"not a header of sacct: {_shown(line)}; {_HINT}")
    return _header([word.decode().lower() for word in words], written, newline)


def _header(names: list[str], written: bytes, newline: bytes) -> Header:
    row_end = newline
    if names[-1] == "eor":
        names, row_end = names[:-1], written + b"EOR" + newline
    elif names[-1] == "":  # sacct -p: a delimiter after the last column too
        names, row_end = names[:-1], written + newline
    free = tuple(name in _FREE or name not in _OWN for name in names)
    return Header(tuple(names), written, row_end, free)


def _shown(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "replace"))
