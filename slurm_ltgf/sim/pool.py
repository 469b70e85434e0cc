"""Many experiments at once: on this machine's cores, or as a Slurm job array through submitit.

A workload is read once a process, however many experiments use it. Results come as they are done;
their `number` tells which experiment they are of, so that order never depends on who was faster.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_ltgf.errors import LtgfError, SlurmRefused, UsageError
from slurm_ltgf.sim.experiment import Experiment, Loaded, Source, run
from slurm_ltgf.sim.metrics import Measures

#: Tasks of a Slurm job array at most: sites' MaxArraySize is 1001 unless set.
MAX_TASKS = 500
#: Seconds between two looks at the results of a job array.
POLL_S = 0.5
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Done:
    """What came of experiment `number`: its measures, or why there are none; seconds it took.

    left_out: jobs of its workload that its cluster could never run.
    """

    number: int
    measures: Measures | None
    error: Exception | None
    wall_s: float
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Array:
    """How a job array is submitted. folder: seen by all nodes; None, "": the site's defaults."""

    folder: Path
    partition: str = ""
    minutes: int | None = None


_loaded: dict[Source, Loaded] = {}


def load(source: Source) -> Loaded:
    """The workload of a source, read at most once in this process and in those that it forks.

    Raises:
        InputError: it cannot be read.
    """
    if source not in _loaded:
        _loaded[source] = source.load()
    return _loaded[source]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def run_here(experiments: Sequence[Experiment], jobs: int) -> Iterator[Done]:
    """Run experiments in `jobs` processes; 1: in this one, one after the other."""
    if min(jobs, len(experiments)) <= 1:
        yield from map(_one, range(len(experiments)), experiments)
        return
    for source in {experiment.source for experiment in experiments}:
        with contextlib.suppress(LtgfError):  # told again, of each experiment that needs it
            load(source)
    # fork: workers see what was read above without a copy of it
    pool = ProcessPoolExecutor(
        min(jobs, len(experiments)),
        mp_context=multiprocessing.get_context("fork"),
        initializer=_ends_with,
        initargs=(os.getpid(),),
    )
    try:
        futures: dict[Future[Done], int] = {
            pool.submit(_one, number, experiment): number
            for number, experiment in enumerate(experiments)
        }
        for future in as_completed(futures):
            yield _result(future, futures[future])
    except BaseException:
        for child in multiprocessing.active_children():
            child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def run_on_slurm(experiments: Sequence[Experiment], array: Array) -> Iterator[Done]:
    """Run experiments as the tasks of one Slurm job array; a task may take several of them.

    Interrupted, it cancels the array.

    Raises:
        UsageError: submitit is not installed, or a trace is standard input.
        SlurmRefused: the array was not accepted.
    """
    if any(experiment.source.path == "-" for experiment in experiments):
        raise UsageError("--slurm: the nodes cannot read this standard input: save it as a file")
    numbered = list(enumerate(experiments))
    tasks = min(MAX_TASKS, len(numbered))
    jobs = _submit([numbered[task::tasks] for task in range(tasks)], array)
    waiting = dict(zip(jobs, [numbered[task::tasks] for task in range(tasks)], strict=True))
    try:
        while waiting:
            for job in [job for job in waiting if job.done()]:
                yield from _results(job, [number for number, _ in waiting.pop(job)])
            if waiting:
                time.sleep(POLL_S)
    except BaseException:
        for job in waiting:
            job.cancel(check=False)
        raise


def _submit(parts: Sequence[Any], array: Array) -> list[Any]:
    try:
        import submitit
    except ImportError as exc:
        raise UsageError("--slurm needs submitit: pip install 'slurm-ltgf[sweep]'") from exc
    executor = submitit.SlurmExecutor(folder=array.folder)
    executor.update_parameters(
        job_name="ltgf-sweep",
        array_parallelism=len(parts),
        cpus_per_task=1,
        ntasks_per_node=1,
        **({"partition": array.partition} if array.partition else {}),
        **({"time": array.minutes} if array.minutes else {}),
    )
    try:
        jobs: list[Any] = executor.map_array(_task, parts)
    except (submitit.core.utils.FailedJobError, OSError) as exc:
        told = " ".join(str(exc).split())
        raise SlurmRefused(f"--slurm: the job array was not accepted: {told}") from exc
    return jobs


def _task(part: Sequence[tuple[int, Experiment]]) -> list[Done]:
    return [_one(number, experiment) for number, experiment in part]


def _results(job: Any, numbers: Sequence[int]) -> list[Done]:
    """What a task of the array left; if it left nothing, why, for each of its experiments."""
    try:
        found: list[Done] = job.results()[0]
    except Exception as exc:  # whatever became of the job, the others go on
        told = str(exc).strip().splitlines() or [type(exc).__name__]
        lost = LtgfError(f"Slurm job {job.job_id}: {told[0]}; see {job.paths.stderr}")
        return [Done(number, None, lost, 0.0) for number in numbers]
    return found


def _one(number: int, experiment: Experiment) -> Done:
    begun = time.perf_counter()
    try:
        loaded = load(experiment.source)
        fitting = loaded.fitted(experiment.nodes)
        begun = time.perf_counter()
        found = run(experiment, fitting)
    except Exception as exc:  # of this experiment alone: the caller decides what it is worth
        return Done(number, None, exc, time.perf_counter() - begun)
    left_out = len(loaded.workload.jobs) - len(fitting.workload.jobs)
    return Done(number, found, None, time.perf_counter() - begun, left_out)


def _result(future: Future[Done], number: int) -> Done:
    try:
        return future.result()
    except BrokenProcessPool:
        lost = LtgfError("its process was killed: out of memory?")
        return Done(number, None, lost, 0.0)


def _ends_with(parent: int) -> None:
    """Make a worker leave Ctrl-C to its parent, and end when the parent does, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
