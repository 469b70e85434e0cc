"""Many experiments at once: on this machine's cores, or as a Slurm job array through submitit.

A workload is read once a process, however many experiments use it. Results come as they are done;
their `number` tells which experiment they are of, so that order never depends on who was faster.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import math
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

from slurm_ltgf.errors import LtgfError, SlurmRefused, SlurmUnavailable, UsageError
from slurm_ltgf.sim.experiment import Experiment, Loaded, Source, run
from slurm_ltgf.sim.metrics import Measures
from slurm_ltgf.slurm import run as slurm

#: Tasks of a Slurm job array at most: sites' MaxArraySize is 1001 unless set.
MAX_TASKS = 500
#: Seconds between two looks at the results of a job array, and at the queue.
POLL_S, QUEUE_S = 0.5, 10
#: A task that has left the queue for so long without a result is lost: sacct has no word on one
#: that was cancelled before it began; a result may be seen late on a shared file system.
LOST_S = 60
_NAME = "ltgf-sweep"
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
        UsageError: submitit is not installed, a trace is standard input, or the folder cannot be.
        SlurmUnavailable: Slurm's commands are not here.
        SlurmRefused: the array was not accepted.
    """
    if any(experiment.source.path == "-" for experiment in experiments):
        raise UsageError("--slurm: the nodes cannot read this standard input: save it as a file")
    numbered = list(enumerate(experiments))
    tasks = min(MAX_TASKS, len(numbered))
    jobs = _submit([numbered[task::tasks] for task in range(tasks)], array)
    waiting = dict(zip(jobs, [numbered[task::tasks] for task in range(tasks)], strict=True))
    queue = _Queue()
    try:
        while waiting:
            for job in [job for job in waiting if job.done() or queue.has_lost(job.job_id)]:
                yield from _results(job, [number for number, _ in waiting.pop(job)])
            if waiting:
                time.sleep(POLL_S)
    except BaseException:
        for array_id in {job.job_id.partition("_")[0] for job in waiting}:
            type(jobs[0])(array.folder, array_id).cancel(check=False)
        raise


def _submit(parts: Sequence[Any], array: Array) -> list[Any]:
    try:
        import submitit
    except ImportError as exc:
        raise UsageError("--slurm needs submitit: pip install 'slurm-ltgf[sweep]'") from exc
    try:
        array.folder.mkdir(parents=True, exist_ok=True)
        executor = submitit.SlurmExecutor(folder=array.folder, max_num_timeout=0)
    except OSError as exc:
        raise UsageError(f"--slurm-folder {array.folder}: {exc.strerror}") from exc
    except RuntimeError as exc:
        raise SlurmUnavailable("--slurm: Slurm's srun is not on PATH") from exc
    executor.update_parameters(
        job_name=_NAME,
        array_parallelism=len(parts),
        cpus_per_task=1,
        ntasks_per_node=1,
        **({"partition": array.partition} if array.partition else {}),
        **({"time": array.minutes} if array.minutes else {}),
    )
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # sbatch's words are in the error
            jobs: list[Any] = executor.map_array(_task, parts)
    except submitit.core.utils.FailedJobError as exc:
        told = " ".join(str(exc).split())
        raise SlurmRefused(f"--slurm: the job array was not accepted: {told}") from exc
    return jobs


def _task(part: Sequence[tuple[int, Experiment]]) -> list[Done]:
    return [_one(number, experiment) for number, experiment in part]


class _Queue:
    """Which tasks Slurm has in its queue, as far as it answers."""

    def __init__(self) -> None:
        self._looked = -math.inf
        self._there: set[str] | None = None
        self._gone: dict[str, float] = {}

    def has_lost(self, job_id: str) -> bool:
        """Whether a task has been out of the queue for long."""
        now = time.monotonic()
        if now - self._looked > QUEUE_S:
            self._looked, self._there = now, _queued()
        if self._there is None or job_id in self._there:
            self._gone.pop(job_id, None)
            return False
        return now - self._gone.setdefault(job_id, now) > LOST_S


def _queued() -> set[str] | None:
    """Ids of tasks in the queue; None: Slurm does not answer now."""
    try:
        return set(slurm.run(["squeue", "-h", "-r", "-n", _NAME, "-o", "%i"]).split())
    except LtgfError:
        return None


def _results(job: Any, numbers: Sequence[int]) -> list[Done]:
    """What a task of the array left; if it left nothing, why, for each of its experiments."""
    try:
        found: list[Done] = job.results()[0] if job.paths.result_pickle.exists() else []
        if not found:
            raise FileNotFoundError(job.paths.result_pickle)
    except Exception as exc:  # whatever became of the job, the others go on
        lost = LtgfError(
            f"Slurm job {job.job_id} left no result: cancelled, out of time or memory? "
            f"sacct has it as {job.state}; see {job.paths.stderr} ({type(exc).__name__})"
        )
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
