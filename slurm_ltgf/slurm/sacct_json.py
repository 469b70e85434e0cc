"""`sacct --json` (and slurmrestd's /slurmdb/jobs) of Slurm 21.08 to 26.05 -> batches of runs.

The same facts have had several shapes: a state is a word, a list of words, or either under
"current"; a number is a number, null, or {"set", "infinite", "number"}. Both are read wherever they
stand. A shape that is none of these is an `InputError` with its path, never a 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN, Batch, Run, Runs, Skipped
from slurm_ltgf.errors import InputError
from slurm_ltgf.slurm import text
from slurm_ltgf.slurm.records import UNKNOWN_GRES, as_runs
from slurm_ltgf.slurm.rows import Site
from slurm_ltgf.slurm.times import SENTINEL

T = TypeVar("T")

_BATCH_JOBS = 20_000
_NO_VAL, _INFINITE = 0xFFFFFFFE, 0xFFFFFFFF
_NO_VAL64, _MOST = 0xFFFFFFFFFFFFFFFE, 1 << 60


class _Job(msgspec.Struct):
    """The parts of a job that are read; steps, memory and the rest are skipped by the decoder."""

    job_id: Any = None
    account: Any = None
    cluster: Any = None
    user: Any = None
    partition: Any = None
    state: Any = None
    time: Any = None
    tres: Any = None
    array: Any = None
    het: Any = None
    nodes: Any = None
    restart_cnt: Any = None


class _Answer(msgspec.Struct):
    jobs: list[_Job]
    errors: Any = None


def read_json(data: bytes, site: Site) -> Iterator[Batch]:
    """Read a whole answer.

    Raises:
        InputError: no JSON, cut short, an answer with errors, or a shape that is not known.
    """
    try:
        answer = msgspec.json.decode(data.decode("utf-8", "replace"), type=_Answer)
    except msgspec.ValidationError as exc:
        raise InputError(f"not an answer of sacct --json: {exc}") from exc
    except msgspec.DecodeError as exc:
        several = "; several answers in one file must be read one by one"
        hint = several if "trailing" in str(exc) else ""
        raise InputError(f"the JSON is damaged or cut short: {exc}{hint}") from exc
    if answer.errors:
        shown = msgspec.json.encode(answer.errors)[:200].decode("utf-8", "replace")
        raise InputError(f"sacct --json told of errors, so jobs may be missing: {shown}")
    size = len(data)
    for first in range(0, max(len(answer.jobs), 1), _BATCH_JOBS):
        jobs = answer.jobs[first : first + _BATCH_JOBS]
        runs = [_run(job, f"jobs[{first + i}]", site) for i, job in enumerate(jobs)]
        yield _batch(runs, first, site, size=size)
        size = 0


def _batch(rows: Sequence[Run], first: int, site: Site, *, size: int) -> Batch:
    runs, faults = as_runs(Runs.of(rows), now=site.now)
    skipped = tuple(Skipped(0, why, f"jobs[{first + i}]") for i, why in sorted(faults.items()))
    if faults:
        runs = runs.take(np.array([i not in faults for i in range(len(rows))], dtype=bool))
    return Batch(runs, skipped, lines=0, bytes=size)


def _run(job: _Job, path: str, site: Site) -> Run:
    times = _part(job.time, f"{path}.time", needed=("start", "end", "elapsed"))
    tres = _part(job.tres, f"{path}.tres", needed=("allocated",))
    submit = _moment(times.get("submission", times.get("submit")), f"{path}.time.submission")
    eligible = times.get("eligible", submit)
    return Run(
        cluster=_word(job.cluster, f"{path}.cluster").strip() or site.cluster,
        job_id=_job_id(job.job_id, f"{path}.job_id"),
        account=text.account_name(_word(job.account, f"{path}.account")),
        user=_word(job.user, f"{path}.user").strip(),
        partition=_word(job.partition, f"{path}.partition").strip(),
        state=_state(job.state, f"{path}.state"),
        submit=submit,
        eligible=_moment(eligible, f"{path}.time.eligible"),
        start=_moment(times["start"], f"{path}.time.start"),
        end=_moment(times["end"], f"{path}.time.end"),
        elapsed_s=_seconds(times["elapsed"], f"{path}.time.elapsed"),
        suspended_s=max(_seconds(times.get("suspended"), f"{path}.time.suspended"), 0),
        limit_s=_limit(times.get("limit"), f"{path}.time.limit"),
        gres=_gres(tres["allocated"], f"{path}.tres.allocated"),
        gres_requested=_requested(tres.get("requested"), f"{path}.tres.requested"),
        nodes=text.node_list(_word(job.nodes, f"{path}.nodes")),
        restarts=_number(job.restart_cnt, f"{path}.restart_cnt"),
        **_ids(job, path),
    )


def _ids(job: _Job, path: str) -> dict[str, int]:
    array = _part(job.array, f"{path}.array") if job.array is not None else {}
    het = _part(job.het, f"{path}.het") if job.het is not None else {}
    array_job = _number(array.get("job_id"), f"{path}.array.job_id")
    het_job = _number(het.get("job_id"), f"{path}.het.job_id")
    task = _number(array.get("task_id"), f"{path}.array.task_id")
    offset = _number(het.get("job_offset"), f"{path}.het.job_offset")
    expression = _word(array.get("task"), f"{path}.array.task")
    waiting = array_job > 0 and task == UNKNOWN and bool(expression)
    tasks = _read(text.array_tasks, expression, f"{path}.array.task")[0] if waiting else 1
    return {
        "array_job": array_job if array_job > 0 else UNKNOWN,
        "array_task": task if array_job > 0 and task < SENTINEL else UNKNOWN,
        "het_job": het_job if het_job > 0 else UNKNOWN,
        "het_offset": offset if het_job > 0 else UNKNOWN,
        "tasks": tasks,
    }


def _gres(entries: Any, path: str) -> str:
    """Canonical GPU part of a TRES list; UNKNOWN_GRES of an empty one."""
    if not isinstance(entries, list):
        raise _unknown(entries, path)
    if not entries:
        return UNKNOWN_GRES
    listed = ",".join(
        _tres(_part(entry, f"{path}[{i}]", needed=("type", "count")), f"{path}[{i}]")
        for i, entry in enumerate(entries)
    )
    return _read(text.gres_of_tres, listed, path)


def _tres(entry: Mapping[str, Any], path: str) -> str:
    kind, name = _word(entry["type"], f"{path}.type"), _word(entry.get("name"), f"{path}.name")
    whole = f"{kind}/{name}" if name else kind
    if not whole.startswith("gres/"):
        return f"{whole}=0"
    return f"{whole}={_number(entry['count'], f'{path}.count')}"


def _requested(entries: Any, path: str) -> str:
    return "" if not entries else _gres(entries, path)


def _state(value: Any, path: str) -> str:
    if isinstance(value, Mapping):
        value, path = value.get("current"), f"{path}.current"
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise _unknown(value, path)
    base, flags = text.base_state(words)
    # 24.11 shows REQUEUED and RESIZING, which are flags without a base, as flags of PENDING (0)
    ended = sorted(flags & {"REQUEUED", "RESIZING"}) if base == "PENDING" else []
    return ended[0] if ended else text.state(base)[0]


def _job_id(value: Any, path: str) -> int:
    number = _number(value, path)
    if number <= 0:
        raise _unknown(value, path)
    return number


def _moment(value: Any, path: str) -> int:
    number = _number(value, path)
    return number if 0 < number < SENTINEL else UNKNOWN


def _seconds(value: Any, path: str) -> int:
    number = _number(value, path)
    return number if 0 <= number < SENTINEL else UNKNOWN


def _limit(value: Any, path: str) -> int:
    """Seconds; the answer has minutes."""
    number = _number(value, path)
    if number in (NO_LIMIT, _INFINITE):
        return NO_LIMIT
    return UNKNOWN if number in (UNKNOWN, _NO_VAL) else number * 60


def _number(value: Any, path: str) -> int:
    """A number in any of its shapes; UNKNOWN for null and for what is not set."""
    if isinstance(value, Mapping):
        if not {"set", "infinite", "number"} <= set(value):
            raise _unknown(value, path)
        if value["infinite"]:
            return NO_LIMIT
        return _number(value["number"], f"{path}.number") if value["set"] else UNKNOWN
    if value is None or value == _NO_VAL64:
        return UNKNOWN
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unknown(value, path)
    if not -_MOST < value < _MOST or value != int(value):
        raise _unknown(value, path)
    return int(value)


def _word(value: Any, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _unknown(value, path)
    return value


def _part(value: Any, path: str, *, needed: Sequence[str] = ()) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _unknown(value, path)
    for name in needed:
        if name not in value:
            raise InputError(f"sacct --json: {path}.{name} is missing: a shape that is not known")
    return value


def _read(read: Callable[[str], T], value: str, path: str) -> T:
    try:
        return read(value)
    except ValueError as exc:
        raise InputError(f"sacct --json: {path}: {exc}") from exc


def _unknown(value: Any, path: str) -> InputError:
    shown = msgspec.json.encode(value)[:60].decode("utf-8", "replace")
    return InputError(f"sacct --json: {path}: a shape that is not known: {shown}")
