"""Slurm's words <-> values: TRES and GRES lists, job ids, states, host lists. Pure.

Times and durations are in `times` (their names can be had from here too).

A text that cannot be read is a ValueError that quotes it: never 0, never a guess. Text that says
"not known" is `UNKNOWN`, text that says "no limit" is `NO_LIMIT`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from slurm_ltgf.core.model import NO_ACCOUNT, UNKNOWN
from slurm_ltgf.slurm.times import (
    SENTINEL,
    duration_text,
    elapsed_s,
    is_unknown,
    limit_s,
    moment,
    time_argument,
)

__all__ = [
    "JobId",
    "account_name",
    "array_tasks",
    "base_state",
    "duration_text",
    "elapsed_s",
    "expand_hostlist",
    "gres_of_node",
    "gres_of_tres",
    "is_unknown",
    "job_id",
    "limit_s",
    "moment",
    "node_list",
    "state",
    "time_argument",
]

#: Exactly these: gres/gpumem, gres/gpuutil and gres/gpfs only start alike.
_GPU_TRES = re.compile(r"gres/((?:gpu|mps|shard)(?::[^=]+)?)")
#: What would be a GPU if sacct wrote it so, or a type by its number in slurmdbd: no 0 is meant.
_UNCLEAR_TRES = re.compile(r"(gres[/:])?(gpu|mps|shard)(:.*)?|\d+", re.IGNORECASE)
#: Hosts that a range may stand for.
_MOST_HOSTS = 1_000_000
#: More of one kind no job can hold: a damaged number.
_MOST = 10**8
_GPU_GRES = re.compile(r"(gpu|mps|shard)(?::([^:]+))?[:=](\d+)")
#: What sacct has put before a GRES, and "gpu" as the number that old ones printed for it.
_GRES_PREFIX = re.compile(r"(?:PER_[A-Z]+:)?(?:gres[:/])?(7696487(?=:))?")


def gres_of_tres(tres: str) -> str:
    """Take the GPU part of a TRES list as canonical text, sorted; '' when it has none.

    >>> gres_of_tres("cpu=32,gres/gpu:a100=4,gres/gpu=4,mem=100G,node=1")
    'gpu:a100=4,gpu=4'
    >>> gres_of_tres("cpu=2,gres/gpfs:ess=1,gres/gpumem=0,node=1")
    ''
    >>> gres_of_tres("cpu=2,mem=512M,node=")
    Traceback (most recent call last):
    ValueError: TRES list is cut short at 'node=': 'cpu=2,mem=512M,node='
    """
    if not tres:
        return ""
    found: dict[str, int] = {}
    for token in tres.split(","):
        name, _, value = token.strip().partition("=")
        if not name or not value:
            raise ValueError(f"TRES list is cut short at {token!r}: {tres!r}")
        match = _GPU_TRES.fullmatch(name)
        if match:
            _put(found, match[1], value, tres)
        elif _UNCLEAR_TRES.fullmatch(name):
            raise ValueError(f"cannot read TRES {name!r}: {tres!r}")
    return _canonical(found)


def _put(found: dict[str, int], name: str, value: str, tres: str) -> None:
    if not value.isdecimal() or name in found or int(value) > _MOST:
        raise ValueError(f"cannot read the count of gres/{name}: {tres!r}")
    found[name] = int(value)


def _canonical(counts: dict[str, int]) -> str:
    return ",".join(sorted(f"{name}={count}" for name, count in counts.items()))


def gres_of_node(text: str) -> str:
    """Canonical text of a node's or job's GRES list as sinfo, scontrol and old sacct print it.

    >>> gres_of_node("gpu:h100:4(S:0-1),shard:16,mps:h200:800")
    'gpu:h100=4,mps:h200=800,shard=16'
    >>> gres_of_node("gpu:a100:1(IDX:0,2-3),gpu:a100:4(S:1),gpfs:ess:1")
    'gpu:a100=5'
    >>> gres_of_node("(null)")
    ''
    """
    if is_unknown(text):
        return ""
    counts: Counter[str] = Counter()
    for token in re.sub(r"\([^()]*\)", "", text.replace("(null)", "")).split(","):
        name, count = _node_gres(token.strip(), text)
        if name:
            counts[name] += count
    return _canonical(counts)


def _node_gres(token: str, text: str) -> tuple[str, int]:
    token = token.replace(":no_consume", "").replace("::", ":")
    token = _GRES_PREFIX.sub(lambda match: "gpu" if match[1] else "", token, count=1)
    if re.split("[:=]", token)[0] not in ("gpu", "mps", "shard"):
        return "", 0
    if token in ("gpu", "mps", "shard"):  # `--gres=gpu` asks for one
        return token, 1
    match = _GPU_GRES.fullmatch(token)
    if not match:
        raise ValueError(f"cannot read GRES {token!r} of {text!r}")
    return match[1] + (f":{match[2]}" if match[2] else ""), int(match[3])


@dataclass(frozen=True, slots=True)
class JobId:
    """A JobID cell. job: the number before _ or +. tasks: how many the record stands for."""

    job: int
    array_task: int = UNKNOWN
    het_offset: int = UNKNOWN
    tasks: int = 1
    is_array: bool = False
    is_step: bool = False


_JOB_ID = re.compile(
    r"(?P<job>\d+)(?:_(?:(?P<task>\d+)|(?P<tasks>\[.*\]))|\+(?P<offset>\d+))?(?P<step>\..+)?"
)


def job_id(text: str) -> JobId:
    """Read a JobID or JobIDRaw cell.

    >>> job_id("7700_[3-5,9%2]")
    JobId(job=7700, array_task=-1, het_offset=-1, tasks=4, is_array=True, is_step=False)
    >>> job_id("12+1.batch")
    JobId(job=12, array_task=-1, het_offset=1, tasks=1, is_array=False, is_step=True)
    """
    match = _JOB_ID.fullmatch(text.strip())
    if not match:
        raise ValueError(f"cannot read job id {text!r}")
    task, tasks, offset = match["task"], match["tasks"], match["offset"]
    read = JobId(
        job=int(match["job"]),
        array_task=int(task) if task and int(task) < SENTINEL else UNKNOWN,
        het_offset=int(offset) if offset else UNKNOWN,
        tasks=array_tasks(tasks)[0] if tasks else 1,
        is_array=bool(task or tasks),
        is_step=bool(match["step"]),
    )
    if max(read.job, read.het_offset, read.tasks) >= 1 << 60:
        raise ValueError(f"job id is too large: {text!r}")
    return read


def array_tasks(text: str) -> tuple[int, int | None]:
    """Count the tasks of an array expression, and read its throttle; ids are not listed.

    >>> array_tasks("[3-5,9%2]"), array_tasks("0-6:2"), array_tasks("0xF0%3")
    ((4, 2), (4, None), (4, 3))
    """
    ranges, percent, throttle = text.strip().removeprefix("[").removesuffix("]").partition("%")
    if "..." in text:
        raise ValueError(f"array tasks are cut short, ask with SLURM_BITSTR_LEN=0: {text!r}")
    if percent and not throttle.isdecimal():
        raise ValueError(f"cannot read array tasks {text!r}")
    if re.fullmatch(r"0x[0-9a-fA-F]+", ranges):  # a bit for each task, as slurmdbd keeps it
        count = int(ranges, 16).bit_count()
    else:
        count = sum(_range_size(part, text) for part in ranges.split(","))
    return count, int(throttle) if percent else None


def _range_size(part: str, text: str) -> int:
    match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
    if not match:
        raise ValueError(f"cannot read array tasks {text!r}")
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if last < first or step < 1:
        raise ValueError(f"cannot read array tasks {text!r}")
    return (last - first) // step + 1


_ENDED = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}
_ENDED_RARELY = {"BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
_BASE_STATES = {"PENDING", "RUNNING", "SUSPENDED"} | _ENDED | _ENDED_RARELY


def state(text: str) -> tuple[str, str]:
    """Split a state cell into the state and what follows it: who cancelled, or a flag.

    >>> state("CANCELLED by 10477"), state("COMPLETED"), state("CANCELLED+")
    (('CANCELLED', '10477'), ('COMPLETED', ''), ('CANCELLED', ''))
    """
    base, _, rest = text.strip().partition(" ")
    return base.removesuffix("+").upper(), rest.removeprefix("by ").strip()


def base_state(words: Iterable[str]) -> tuple[str, frozenset[str]]:
    """Split a JSON state list into the one base state and the flags, in whatever order they come.

    >>> base_state(["COMPLETING", "CANCELLED"])
    ('CANCELLED', frozenset({'COMPLETING'}))
    """
    names = [word.upper() for word in words]
    known = sorted(name for name in names if name in _BASE_STATES)
    base = (known or sorted(names) or [""])[0]
    return base, frozenset(names) - {base}


def account_name(text: str) -> str:
    """An account as Slurm compares it: lower case, no blanks round it; NO_ACCOUNT for none."""
    return text.strip().lower() or NO_ACCOUNT


def node_list(text: str) -> str:
    """A NodeList cell; '' for the words that say there is none."""
    none = is_unknown(text) or text.lower().startswith("none assigned")
    return "" if none else text.strip()


def expand_hostlist(text: str) -> list[str]:
    """List the hosts of a host list, in its order.

    >>> expand_hostlist("n[01-03,07],login,r[1-2]c[0-1]")
    ['n01', 'n02', 'n03', 'n07', 'login', 'r1c0', 'r1c1', 'r2c0', 'r2c1']
    """
    if text.count("[") != text.count("]"):
        raise ValueError(f"cannot read host list {text!r}")
    if is_unknown(text):
        return []
    return [host for part in re.split(r",(?![^\[]*\])", text.strip()) for host in _hosts(part)]


def _hosts(part: str) -> list[str]:
    hosts = [""]
    for literal, ranges in re.findall(r"([^\[\]]+)|\[([^\[\]]+)\]", part):
        pieces = _numbers(ranges) if ranges else [literal]
        if len(hosts) * len(pieces) > _MOST_HOSTS:
            raise ValueError(f"more hosts than any cluster has: {part!r}")
        hosts = [host + piece for host in hosts for piece in pieces]
    return hosts


def _numbers(ranges: str) -> list[str]:
    found: list[str] = []
    for item in ranges.split(","):
        match = re.fullmatch(r"(\d+)-(\d+)", item)
        if match:
            if int(match[2]) - int(match[1]) >= _MOST_HOSTS:
                raise ValueError(f"more hosts than any cluster has: {item!r}")
            width = len(match[1])
            found += [f"{n:0{width}}" for n in range(int(match[1]), int(match[2]) + 1)]
        else:
            found.append(item)
    return found
