"""History readers on real jobs: requeued, resized, suspended, arrays, heterogeneous, waiting."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC

import pytest
from lab import Lab, wait_until

from slurm_ltgf.core.model import UNKNOWN, Run
from slurm_ltgf.errors import SlurmUnavailable
from slurm_ltgf.slurm import history
from slurm_ltgf.slurm.dump import read_dump
from slurm_ltgf.slurm.history import SacctReader, dump_command
from slurm_ltgf.slurm.run import run

pytestmark = pytest.mark.cluster

HOSTILE = "a\n999999|999999|chem|carol|x|COMPLETED|1|1|1|9|9|00:00:00|1|gres/gpu=64|\x1f"


@pytest.fixture(
    scope="module", params=["cluster", pytest.param("trixie", marks=pytest.mark.trixie)]
)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A cluster whose environment is ours while the tests run."""
    lab = request.getfixturevalue(request.param)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in lab.env.items():
            patch.setenv(name, value)
        yield lab
    lab.drain()


@pytest.fixture(scope="module")
def jobs(lab: Lab) -> dict[str, int]:
    """One job of each kind, in the state that it is named after."""
    ids = {"began": int(time.time())}
    ids |= {
        "done": lab.submit("alice", "--gres=gpu:2", f"--job-name={HOSTILE}", script="sleep 2"),
        "requeued": lab.submit("alice", "--gres=gpu:1", "--requeue", script="sleep 300"),
        "suspended": lab.submit("bob", "--gres=gpu:1", script="sleep 8"),
        "resized": lab.submit("carol", "-N2", "--gres=gpu:1", script="sleep 300"),
        "array": lab.submit("bob", "--array=1-9%2", "--gres=gpu:1", script="sleep 300"),
        "het": lab.submit("alice", "--gres=gpu:1", ":", "--gres=gpu:2", script="sleep 2"),
        "mps": lab.submit("carol", "--gres=mps:50", script="sleep 2"),
        "cpu": lab.submit("carol", "-t", "3-12", script="exit 3"),
        "cancelled": lab.submit("carol", "--gres=gpu:4", "--begin=now+1hour"),
    }
    for kind in ("requeued", "suspended", "resized"):
        lab.wait_state(ids[kind], "RUNNING")
    time.sleep(2)  # records of one job must differ in their second
    lab.run("scontrol", "suspend", str(ids["suspended"]))
    lab.run("scontrol", "requeue", str(ids["requeued"]))
    lab.run("scontrol", "update", f"job={ids['resized']}", "NumNodes=1")
    lab.run("scancel", str(ids["cancelled"]))
    time.sleep(3)
    lab.run("scontrol", "resume", str(ids["suspended"]))
    for kind in ("done", "het", "mps", "suspended"):
        lab.wait_state(ids[kind], "COMPLETED")
    lab.wait_state(ids["requeued"], "RUNNING", timeout=150)
    lab.run("scancel", str(ids["resized"]))
    ids["waiting"] = lab.submit("bob", "--gres=gpu:8", "-N4")
    expected = {("requeued", "RUNNING"), ("resized", "CANCELLED"), ("het", "COMPLETED")}
    expected |= {("waiting", "PENDING")}

    def recorded() -> bool:
        states = {(r.het_job if r.het_job > 0 else r.job_id, r.state) for r in live(ids)}
        return {(ids[kind], state) for kind, state in expected} <= states

    wait_until(recorded, 60, lambda: f"records of {expected}: {live(ids)}")
    return ids


def live(jobs: dict[str, int], *, slice_s: int = 86400, until: int | None = None) -> list[Run]:
    """What the live reader gives, by default up to now: each run once, in the order of its key."""
    reader = SacctReader(slice_s=slice_s)
    batches = list(reader.read(jobs["began"] - 60, until or int(time.time()) + 600))
    assert not [row for batch in batches for row in batch.skipped]
    return sorted({row for batch in batches for row in batch.runs.rows()}, key=key)


def key(run_: Run) -> tuple[int, int, int]:
    return run_.job_id, run_.submit, run_.start


def settled(runs: list[Run]) -> list[Run]:
    """Without what grows from one question to the next."""
    return [replace(r, elapsed_s=0) if r.end == UNKNOWN else r for r in runs]


def of(jobs: dict[str, int], kind: str) -> list[Run]:
    return [r for r in live(jobs) if jobs[kind] in (r.job_id, r.array_job, r.het_job)]


def test_a_finished_job_and_a_hostile_name(jobs):
    (done,) = of(jobs, "done")
    assert (done.state, done.account, done.user) == ("COMPLETED", "astro", "alice")
    assert done.gres.split(",")[-1] == "gpu=2"
    assert done.end - done.start == done.elapsed_s
    assert 999999 not in {r.job_id for r in live(jobs)}


def test_a_requeued_job_has_a_record_for_each_run(jobs):
    first, second = of(jobs, "requeued")
    assert (first.state, second.state) == ("REQUEUED", "RUNNING")
    assert first.end <= second.submit <= second.start
    assert second.end == UNKNOWN


def test_suspended_time_is_not_in_elapsed(jobs):
    (run_,) = of(jobs, "suspended")
    assert run_.suspended_s >= 2
    assert run_.end - run_.start == run_.elapsed_s + run_.suspended_s


def test_a_resized_job_holds_what_each_record_says(jobs):
    before, after = of(jobs, "resized")
    assert before.end == after.submit == after.start
    assert [r.gres.split(",")[-1] for r in (before, after)] == ["gpu=2", "gpu=1"]
    assert [r.elapsed_s for r in (before, after)] == [r.end - r.start for r in (before, after)]


def test_array_tasks_and_parts_of_a_heterogeneous_job(jobs):
    tasks = {r.array_task for r in of(jobs, "array") if r.state == "RUNNING"}
    assert tasks == {1, 2}
    parts = {r.het_offset: r.gres.split(",")[-1] for r in of(jobs, "het")}
    assert parts == {0: "gpu=1", 1: "gpu=2"}


def test_shared_and_no_gpus(jobs):
    assert [r.gres for r in of(jobs, "mps")] == ["mps=50"]
    (cpu,) = of(jobs, "cpu")
    assert (cpu.gres, cpu.state, cpu.limit_s) == ("", "FAILED", 302400)


def test_a_job_that_never_started_used_nothing(jobs):
    for run_ in [*of(jobs, "cancelled"), *of(jobs, "waiting")]:
        assert run_.elapsed_s == 0
        assert run_.gres in ("", "?")[:1]


@pytest.mark.parametrize("slice_s", [30, 200])
def test_short_slices_give_what_one_long_one_gives(jobs, monkeypatch, slice_s):
    monkeypatch.setattr(history, "LONGEST_SLICE_S", slice_s)
    until = int(time.time())  # what begins in this very second is in no answer yet
    latest = {key(r): r for r in settled(live(jobs, slice_s=slice_s, until=until))}
    assert list(latest.values()) == settled(live(jobs, until=until))


def test_the_printed_command_saves_what_the_reader_reads(jobs):
    command = dump_command(jobs["began"] - 60, int(time.time()) + 600).partition(" > ")[0]
    saved = run(["sh", "-c", command]).encode()
    stream = io.BytesIO(saved)
    batches = list(read_dump(stream, cluster=None, timezone=UTC, now=int(time.time())))
    rows = sorted((row for batch in batches for row in batch.runs.rows()), key=key)
    without_restarts = [replace(r, restarts=UNKNOWN) for r in settled(live(jobs))]
    assert settled(rows) == without_restarts


def test_sacct_json_gives_the_same_records(lab, jobs):
    answer = lab.run("sacct", "--json", "-a", "-X", "-D", "-S", "now-1hour", "-E", "now+1hour")
    stream = io.BytesIO(answer.encode())
    batches = list(read_dump(stream, cluster=None, timezone=UTC, now=int(time.time())))
    assert not [row for batch in batches for row in batch.skipped]
    by_json = {key(row): row for batch in batches for row in batch.runs.rows()}
    by_text = {key(row): row for row in live(jobs)}
    assert set(by_text) <= set(by_json), json.dumps(sorted(set(by_text) - set(by_json)))
    theirs = settled([by_json[place] for place in by_text])
    ours = settled(list(by_text.values()))
    has_restarts = any(row.restarts != UNKNOWN for row in ours)
    assert theirs == [r if has_restarts else replace(r, restarts=UNKNOWN) for r in ours]


def test_a_dead_slurmdbd_is_unavailable_and_gives_nothing(lab, jobs):
    lab.stop("slurmdbd")
    try:
        with pytest.raises(SlurmUnavailable, match="sacct"):
            next(SacctReader().read(jobs["began"], int(time.time())))
    finally:
        lab.start("slurmdbd")
