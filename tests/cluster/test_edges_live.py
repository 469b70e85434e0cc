"""The Slurm edges on a real cluster: what squeue, sprio, sinfo, sacctmgr and scontrol do say."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from slurm_ltgf.core.tenants import Tenancy
from slurm_ltgf.errors import SlurmRefused, SlurmUnavailable
from slurm_ltgf.slurm import associations, control, nodes, queue, requeue, site
from slurm_ltgf.slurm.control import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab import Lab

pytestmark = pytest.mark.cluster


@pytest.fixture(params=["cluster", pytest.param("trixie", marks=pytest.mark.trixie)])
def slurm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A cluster that this process's own commands ask, with an empty queue before and after."""
    lab = request.getfixturevalue(request.param)
    for name, value in lab.env.items():
        monkeypatch.setenv(name, value)
    lab.drain()
    yield lab
    lab.drain()


@pytest.fixture
def full(slurm: Lab) -> Lab:
    """The same with every GPU taken, so that all that is submitted waits."""
    for _ in range(4):
        job = slurm.submit("alice", "--gres=gpu:8", "--nodes=1")
        slurm.wait_state(job, "RUNNING")
    return slurm


def wait(ready: Callable[[], bool], timeout: float = 30) -> None:
    end = time.monotonic() + timeout
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.2)


def jobs() -> dict[int, queue.QueueJob]:
    found = queue.snapshot()
    assert not found.skipped
    return {job.job_id: job for job in found.jobs}


def factor(job: int) -> int:
    """The job's SiteFactor; a fresh job is not listed for its first moment."""
    wait(lambda: job in queue.site_factors())
    return queue.site_factors()[job]


def write(*ids: int, value: int) -> control.ControlResult:
    known = jobs()
    return control.set_site_factors([Change(i, value, known[i].shown_id) for i in ids])


@pytest.mark.parametrize(
    ("asked", "gres"),
    [
        pytest.param(["--gpus=6"], "gpu=6", id="--gpus"),
        pytest.param(["--gpus=h200:12"], "gpu:h200=12,gpu=12", id="typed"),
        pytest.param(["--gpus-per-node=2", "-N2"], "gpu=4", id="per node"),
        pytest.param(["--gpus-per-task=2", "-n3"], "gpu=6", id="per task"),
        pytest.param(["--gres=gpu:4", "-N3"], "gpu=12", id="--gres is per node"),
        pytest.param(["--gres=mps:50"], "mps=50", id="mps"),
        pytest.param(["-n4"], "", id="no GPU"),
    ],
)
def test_a_waiting_job_tells_the_total_it_asks_for(full: Lab, asked: list[str], gres: str) -> None:
    job = full.submit("bob", *asked)
    assert jobs()[job].gres == gres


def test_an_array_is_one_update_that_leaves_its_running_tasks_alone(slurm: Lab) -> None:
    array = slurm.submit("bob", "--gres=gpu:8", "--array=1-9%2")
    slurm.wait_state(array, "RUNNING", "PENDING")
    wait(lambda: len([j for j in jobs().values() if j.is_holding]) == 2)
    before = jobs()
    assert (before[array].shown_id, before[array].throttle) == (f"{array}_[3-9%2]", 2)
    assert write(array, value=4000).commands == 1
    after = jobs()
    assert after.keys() == before.keys(), "no task was split off"
    assert after[array].priority >= 4000
    for job_id, job in after.items():
        assert job_id == array or job.priority == before[job_id].priority
    asked = queue.demand_tasks(after.values(), queue.arrivals().now)
    assert asked[array] == 0, "its throttle is used up"
    assert array not in queue.site_factors(), "sprio leaves out an array at its throttle"


def test_a_requeued_task_is_a_record_of_its_own(full: Lab) -> None:
    array = full.submit("bob", "--gres=gpu:1", "--array=1-6")
    control.set_site_factors([Change(array, 9, f"{array}_[4]")])
    known = {job.shown_id: job for job in jobs().values()}
    apart = known[f"{array}_4"]
    head = known[f"{array}_[1-3,5-6]"]
    assert (apart.tasks, head.tasks) == (1, 5)
    assert (factor(apart.job_id), factor(head.job_id)) == (9, 0)


def test_a_held_job_is_seen_as_held_and_stays_held(full: Lab) -> None:
    held = full.submit("bob", "--hold", "--gpus=1")
    job = jobs()[held]
    assert job.is_held
    assert not job.takes_site_factor
    assert held not in queue.site_factors()
    assert control.undo_all([(held, str(held))]).written == (held,)
    assert jobs()[held].priority == 0


def test_nice_is_kept_and_undo_is_0(full: Lab) -> None:
    job = full.submit("bob", "--nice=500", "--gpus=1")
    before = jobs()[job].priority
    write(job, value=1_000_000)
    assert jobs()[job].nice == 500
    assert jobs()[job].priority > before
    assert control.undo_all([(job, str(job))]).written == (job,)
    assert factor(job) == 0
    assert jobs()[job].priority == before


def test_a_priority_set_by_hand_is_told_apart(full: Lab) -> None:
    job = full.submit("bob", "--gpus=1")
    full.run("scontrol", "update", f"job={job}", "priority=77")
    assert write(job, value=500).written == (job,)
    wait(lambda: job in queue.priorities().frozen)
    found = queue.priorities()
    assert job not in found.site
    assert jobs()[job].priority == 77


def test_a_het_component_is_written_alone(full: Lab) -> None:
    leader = full.submit("bob", "--gpus=2", ":", "--gpus=3")
    other = next(j for j in jobs().values() if j.het_job == leader and j.het_offset == 1)
    write(leader, value=30)
    write(other.job_id, value=10)
    assert (factor(leader), factor(other.job_id)) == (30, 10)
    write(leader, value=40)
    assert factor(other.job_id) == 10


def test_jobs_gone_meanwhile_are_vanished(full: Lab) -> None:
    stays, goes = full.submit("bob", "--gpus=1"), full.submit("bob", "--gpus=1")
    full.run("scancel", str(goes))
    found = control.set_site_factors([Change(stays, 5), Change(goes, 5), Change(999_999, 5)])
    assert (found.written, set(found.vanished)) == ((stays,), {goes, 999_999})
    assert jobs()[goes].is_finished


def test_a_user_is_refused(full: Lab) -> None:
    job = full.submit("bob", "--gpus=1")
    said = full.run("sh", "-c", f"scontrol update job={job} sitefactor=5 2>&1 || :", user="bob")
    with pytest.raises(SlurmRefused, match="run as SlurmUser, root or an operator"):
        control.outcome([Change(job, 5)], said)
    assert factor(job) == 0


def test_a_working_folder_that_looks_like_another_users_row_is_a_folder(slurm: Lab) -> None:
    victim = slurm.submit("bob", "--gres=gpu:1")
    slurm.wait_state(victim, "RUNNING")
    columns = ",".join(f"{name}:{queue.DELIMITER}" for name in (*queue.FIELDS, *requeue._EXTRA))
    row = slurm.run("squeue", "-h", "-j", str(victim), "-O", columns).rstrip("\n")
    folder = f"/tmp/x\n{row}\n"
    job = slurm.submit("alice", "--hold", f"--chdir={folder}")
    (found,) = requeue.find(str(job))
    assert (found.job.job_id, found.job.user, found.work_dir) == (job, "alice", folder)
    (other,) = requeue.find(str(victim))
    assert (other.job.user, other.job.state, other.requeue_id) == ("bob", "RUNNING", str(victim))


def test_what_cannot_run_yet_is_no_demand(full: Lab) -> None:
    now = queue.arrivals().now
    waits = full.submit("bob", "--gpus=1")
    later = full.submit("bob", "--gpus=1", "--begin=now+1hour")
    after = full.submit("bob", "--gpus=1", f"--dependency=afterok:{waits}")
    asked = queue.demand_tasks(jobs().values(), now + 5)
    assert (asked[waits], asked[later], asked[after]) == (1, 0, 0)


def test_a_submission_is_an_arrival(full: Lab) -> None:
    before = queue.arrivals()
    assert not queue.arrivals().is_newer_than(before)
    full.submit("bob", "--gpus=1")
    assert queue.arrivals().is_newer_than(before)


def test_capacity_is_each_node_once_and_a_drained_one_not(full: Lab) -> None:
    found = nodes.capacity()
    assert (found.gpus, found.gpus_in_service, found.gpus_used, found.gpus_free) == (32, 32, 32, 0)
    assert found.per_gpu("mps") == 100
    full.run("scontrol", "update", "nodename=n1", "state=drain", "reason=State=DOWN test")
    try:
        draining = nodes.capacity()
        assert draining.gpus_in_service == 32, "its job still runs"
        full.drain()
        wait(lambda: nodes.capacity().gpus_in_service == 24)
    finally:
        full.run("scontrol", "update", "nodename=n1", "state=resume")


def test_accounts_are_the_tenants(slurm: Lab) -> None:
    accounts = associations.accounts(site.site().cluster)
    weights = {tenant.name: tenant.weight for tenant in Tenancy(accounts).tenants()}
    assert weights == {"astro": 4, "bio": 2, "chem": 1}


def test_the_site_answers(slurm: Lab) -> None:
    found = site.site()
    assert found.version >= (22, 5)
    assert found.tracks_gpus
    assert found.has_multifactor
    assert [c.is_up for c in site.controllers()] == [True]
    assert found.cluster in site.clusters()
    assert abs(site.server_time() - time.time()) < 5
    assert [p.name for p in site.partitions()]
    assert "normal" in site.qos_preempt_modes()


def test_a_stopped_slurmdbd_is_no_empty_tree(slurm: Lab) -> None:
    cluster = site.site().cluster
    slurm.stop("slurmdbd")
    try:
        with pytest.raises(SlurmUnavailable):
            associations.accounts(cluster)
    finally:
        slurm.start("slurmdbd")


def test_a_stopped_slurmctld_is_seen_at_once_and_is_no_empty_queue(slurm: Lab) -> None:
    slurm.stop("slurmctld")
    try:
        began = time.monotonic()
        for ask in (queue.snapshot, queue.priorities, nodes.capacity, site.controllers):
            with pytest.raises(SlurmUnavailable):
                ask()
        with pytest.raises(SlurmUnavailable):
            control.set_site_factors([Change(job, 1) for job in range(1, 50)])
        assert time.monotonic() - began < 60
    finally:
        slurm.start("slurmctld")
