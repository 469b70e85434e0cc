"""A pass on a real cluster: the queue in our order by SiteFactor, and nothing else touched."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from commands import Ltgf
from lab import Lab, wait_until

from tests.folders import open_to_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.cluster

LONG = "sleep 900"
#: Who holds what now decides alone, not what other tests ran before.
NOW_ALONE = "[fairness]\nwindow = '1s'\n"


@pytest.fixture(scope="module")
def full(cluster: Lab) -> Iterator[Lab]:
    """A cluster on which astro holds all GPUs but one: what asks for two or more waits."""
    cluster.drain()
    for gpus in (8, 8, 8, 7):
        cluster.wait_state(cluster.submit("alice", f"--gres=gpu:{gpus}", script=LONG), "RUNNING")
    yield cluster
    cluster.drain()


@pytest.fixture
def ltgf(full: Lab, tmp_path: Path) -> Iterator[Ltgf]:
    """`ltgf` with a ledger of its own; what a test submits is gone after it."""
    mine = set(full.run("squeue", "-h", "-o", "%A").split())
    yield Ltgf(full, tmp_path, NOW_ALONE)
    left = set(full.run("squeue", "-h", "-o", "%A").split()) - mine
    if left:
        full.run("scancel", "-Q", *sorted(left), check=False)


def waiting(lab: Lab, user: str, *options: str, gpus: int = 2) -> int:
    return lab.submit(user, f"--gres=gpu:{gpus}", *options, script=LONG)


@pytest.fixture
def queued(ltgf: Ltgf) -> dict[str, list[int]]:
    """Three jobs of each user, interleaved, of 2, 2 and 3 GPUs; shares are 4, 2 and 1."""
    asked = {"alice": 2, "bob": 2, "carol": 3}
    jobs: dict[str, list[int]] = {user: [] for user in asked}
    for user in [*asked] * 3:
        jobs[user].append(waiting(ltgf.lab, user, gpus=asked[user]))
    wait_until(lambda: len(site_factors(ltgf.lab)) == 9, 10, lambda: ltgf.lab.run("sprio"))
    return jobs


def table(lab: Lab, letters: str) -> list[list[int]]:
    """Numbers of sprio, a row for each pending job and partition."""
    answer = lab.run("sprio", "-h", "-o", " ".join(f"%{letter}" for letter in letters))
    return sorted([int(cell) for cell in line.split()] for line in answer.splitlines())


def site_factors(lab: Lab) -> dict[int, int]:
    return {job: factor for job, factor in table(lab, "iS")}


def priority(lab: Lab, job: int | str) -> int:
    return int(lab.run("squeue", "-h", "-j", str(job), "-O", "PriorityLong"))


def by_priority(lab: Lab) -> list[int]:
    """Pending jobs as Slurm will take them."""
    rows = lab.run("squeue", "-h", "-t", "PD", "--sort=-p,i", "-o", "%A").split()
    return [int(job) for job in rows]


def test_a_dry_run_shows_the_order_and_writes_nothing(ltgf: Ltgf, queued: dict[str, list[int]]):
    before = table(ltgf.lab, "iSY")
    shown = ltgf.json("tick", "--dry-run")
    assert (len(shown["jobs"]), shown["changes"], shown["written"]) == (9, 9, 0)
    assert {row["new_site_factor"] for row in shown["jobs"]}.isdisjoint({0, None})
    assert "nothing was written" in ltgf.run("tick", "--dry-run")
    assert table(ltgf.lab, "iSY") == before
    assert ltgf.audit() == []


def test_slurm_takes_the_order_and_a_second_pass_writes_nothing(
    ltgf: Ltgf, queued: dict[str, list[int]]
):
    # chem and bio hold nothing; what a job of theirs is charged in advance, over the share: bio's
    # 0, 1 and 2, chem's 0, 3 and 6. astro holds 31 GPUs at a share of 4.
    (a, b, c) = (queued[user] for user in ("alice", "bob", "carol"))
    expected = [b[0], c[0], b[1], b[2], c[1], c[2], *a]
    assert by_priority(ltgf.lab) == sorted(expected)
    done = ltgf.json("tick")
    assert (done["written"], done["refused"], done["vanished"], done["deferred"]) == (9, 0, 0, 0)
    assert by_priority(ltgf.lab) == expected
    assert len(ltgf.audit()) == 9
    again = ltgf.json("tick")
    assert (again["changes"], again["written"]) == (0, 0)
    assert len(ltgf.audit()) == 9


def test_held_jobs_and_priorities_set_by_hand_are_not_touched(ltgf: Ltgf):
    lab = ltgf.lab
    by_user, by_admin, by_hand, other = (
        waiting(lab, "bob", *options) for options in (["--hold"], [], [], [])
    )
    lab.run("scontrol", "hold", str(by_admin))
    lab.run("scontrol", "update", f"job={by_hand}", "priority=4242")
    wait_until(lambda: by_hand in site_factors(lab), 10, lambda: lab.run("sprio"))
    done = ltgf.json("tick")
    assert (done["written"], done["held"]) == (1, 2)
    assert [job for job, _ in ltgf.audit()] == [str(other)]
    assert [priority(lab, job) for job in (by_user, by_admin, by_hand)] == [0, 0, 4242]
    lab.run("scontrol", "release", str(by_user), str(by_admin))
    wait_until(lambda: {by_user, by_admin} <= site_factors(lab).keys(), 10, lambda: "released")
    factors = site_factors(lab)
    assert (factors[by_user], factors[by_admin]) == (0, 0)


def test_an_array_stays_one_record_and_its_running_tasks_as_they_are(ltgf: Ltgf):
    lab = ltgf.lab
    array = waiting(lab, "bob", "--array=1-6", gpus=1)
    running = f"{array}_1"
    rows = ("squeue", "-h", "-j", str(array), "-o", "%i %T")
    wait_until(lambda: "RUNNING" in lab.run(*rows), 20, lambda: lab.run(*rows))
    wait_until(lambda: array in site_factors(lab), 10, lambda: lab.run("sprio"))
    before, records = priority(lab, running), lab.run(*rows)
    assert ltgf.json("tick")["written"] == 1
    assert lab.run(*rows) == records
    assert sorted(records.split()) == sorted([running, "RUNNING", f"{array}_[2-6]", "PENDING"])
    assert priority(lab, running) == before < site_factors(lab)[array]
    assert ltgf.json("tick")["written"] == 0


@contextmanager
def age_counts(lab: Lab) -> Iterator[None]:
    """Slurm's own age factor, 100,000 points in a minute, as a site may have it."""
    conf = lab.state / "etc/slurm.conf"
    text = conf.read_text()
    conf.write_text(f"{text}PriorityWeightAge=100000\nPriorityMaxAge=00:01:00\n")
    lab.run("scontrol", "reconfigure")
    try:
        yield
    finally:
        conf.write_text(text)
        lab.run("scontrol", "reconfigure")


def test_nice_and_age_still_count(ltgf: Ltgf):
    lab = ltgf.lab
    nice, plain = waiting(lab, "bob", "--nice=700"), waiting(lab, "bob")
    wait_until(lambda: len(site_factors(lab)) == 2, 10, lambda: lab.run("sprio"))
    with age_counts(lab):
        time.sleep(2)
        assert ltgf.json("tick")["written"] == 2
        rows = {row[0]: row for row in table(lab, "iYSANFJPQ")}
    assert [rows[job][4] for job in (nice, plain)] == [700, 0]
    for _, total, site, age, niceness, *others in rows.values():
        assert site > 1_000_000
        assert age > 1000
        assert abs(total - (site + age - niceness + sum(others))) <= 1, "rounded apart"
    assert priority(lab, nice) == rows[nice][1]


def test_a_job_in_two_partitions_is_one_job(ltgf: Ltgf):
    lab = ltgf.lab
    lab.run("scontrol", "create", "partitionname=second", "nodes=ALL", "state=UP")
    try:
        both, one = waiting(lab, "bob", "-p", "main,second"), waiting(lab, "bob", "-p", "second")
        wait_until(lambda: len(table(lab, "i")) == 3, 10, lambda: lab.run("sprio"))
        done = ltgf.json("tick")
        assert (done["pending"], done["written"]) == (2, 2)
        assert len({factor for job, factor in table(lab, "iS") if job == both}) == 1
        assert ltgf.json("tick")["written"] == 0
        row, _ = ltgf.json("queue", "-p", "second")["jobs"]
        assert (row["job_id"], row["partition"]) == (str(both), "main,second")
    finally:
        lab.run("scancel", str(both), str(one))
        wait_until(lambda: not by_priority(lab), 10, lambda: lab.run("squeue"))
        lab.run("scontrol", "delete", "partitionname=second")


def test_a_user_without_rights_is_told_so_in_one_line(
    ltgf: Ltgf, queued: dict[str, list[int]], tmp_path: Path
):
    open_to_all(tmp_path, 0o777)
    done = ltgf.ask("tick", user="bob")
    assert (done.returncode, done.stdout) == (77, "")
    assert done.stderr.count("\n") == 1
    assert "run as SlurmUser, root or an operator" in done.stderr
    assert set(site_factors(ltgf.lab).values()) == {0}
    assert ltgf.audit() == []


def test_a_user_may_ask_why(ltgf: Ltgf, queued: dict[str, list[int]], tmp_path: Path):
    open_to_all(tmp_path, 0o777)
    done = ltgf.ask("explain", str(queued["bob"][0]), user="bob")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Traceback" not in done.stdout


def explained(ltgf: Ltgf, job: int | str) -> str:
    return " ".join(ltgf.json("explain", str(job))["sentences"])


def test_explain_a_waiting_job(ltgf: Ltgf, queued: dict[str, list[int]]):
    ltgf.run("tick")
    last = ltgf.json("explain", str(queued["alice"][-1]))
    assert (last["state"], last["tenant"], last["rank"], last["of"]) == ("PENDING", "astro", 9, 9)
    assert {row["tenant"]: row["jobs"] for row in last["ahead"]} == {
        "bio": 3,
        "chem": 3,
        "astro": 2,
    }
    assert last["site_factor"] == min(site_factors(ltgf.lab).values())
    assert f"SiteFactor is {last['site_factor']}" in " ".join(last["sentences"])


def test_explain_a_running_a_held_and_a_frozen_job(ltgf: Ltgf):
    lab = ltgf.lab
    running = waiting(lab, "bob", gpus=1)
    held, frozen = waiting(lab, "bob", "--hold"), waiting(lab, "bob")
    lab.wait_state(running, "RUNNING")
    lab.run("scontrol", "update", f"job={frozen}", "priority=77")
    wait_until(lambda: frozen in site_factors(lab), 10, lambda: lab.run("sprio"))
    assert "holds 1 GPUs for bio" in explained(ltgf, running)
    assert f"scontrol release {held}" in explained(ltgf, held)
    assert "has priority 77, set by hand" in explained(ltgf, frozen)


def test_explain_a_finished_job_and_one_that_never_was(ltgf: Ltgf):
    over = ltgf.lab.submit("bob", "--gres=gpu:1", script="exit 3")
    listed = ("sacct", "-aXn", "-S", "now-1hour", "-o", "jobid")
    # a job that starts at once is in no window of sacct's for some seconds: it has no Eligible yet
    wait_until(lambda: str(over) in ltgf.lab.run(*listed).split(), 20, lambda: "sacct has it")
    ltgf.run("sync", "-S", "now-1hour")
    assert f"Run 1 of job {over}: FAILED" in explained(ltgf, over)
    done = ltgf.ask("explain", "999999")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ltgf: job 999999: neither in the queue nor in the ledger\n"


def test_explain_a_task_of_an_array_and_a_part_of_a_heterogeneous_job(ltgf: Ltgf):
    lab = ltgf.lab
    array = waiting(lab, "bob", "--array=1-3")
    het = lab.submit("carol", "--gpus=2", ":", "--gpus=3", script=LONG)
    wait_until(lambda: array in site_factors(lab), 10, lambda: lab.run("sprio"))
    assert ltgf.json("explain", f"{array}_2")["job_id"] == f"{array}_[1-3]"
    assert ltgf.json("explain", f"{het}+1")["gpus"] == 3


def test_queue_has_the_promised_shape(ltgf: Ltgf, queued: dict[str, list[int]]):
    held = waiting(ltgf.lab, "carol", "--hold")
    shown = ltgf.json("queue")
    assert set(shown) == {"meta", "jobs", "held", "warnings"}
    assert (shown["meta"]["cluster"], shown["held"]) == ("ltgf", [str(held)])
    assert [row["rank"] for row in shown["jobs"]] == list(range(1, 10))
    assert set(shown["jobs"][0]) == {
        "rank", "job_id", "tenant", "user", "partition", "gpus", "tasks", "waited_s", "tag",
        "site_factor", "new_site_factor", "turn_at", "why",
    }  # fmt: skip
    mine = ltgf.json("queue", "-u", "carol")["jobs"]
    assert [(row["tenant"], row["gpus"]) for row in mine] == [("chem", 3)] * 3
    assert {row["job_id"] for row in mine} == {str(job) for job in queued["carol"]}


def test_a_newcomer_stands_behind_all_that_have_a_place_until_the_next_pass(
    ltgf: Ltgf, queued: dict[str, list[int]]
):
    lab = ltgf.lab
    lab.run("scancel", *map(str, queued.pop("carol")))
    ltgf.run("tick")
    newcomer = waiting(lab, "carol")
    wait_until(lambda: newcomer in site_factors(lab), 10, lambda: lab.run("sprio"))
    assert by_priority(lab)[-1] == newcomer
    others = [job for jobs in queued.values() for job in jobs]
    assert priority(lab, newcomer) < min(priority(lab, job) for job in others)
    assert ltgf.json("tick")["written"] == 1
    assert by_priority(lab).index(newcomer) < len(others) - 2


def test_undo_leaves_no_factor_behind(ltgf: Ltgf, queued: dict[str, list[int]]):
    lab = ltgf.lab
    before = table(lab, "iY")
    ltgf.run("tick")
    lab.run("scontrol", "hold", str(queued["bob"][0]))
    ltgf.run("tick", "--undo")
    lab.run("scontrol", "release", str(queued["bob"][0]))
    wait_until(lambda: len(site_factors(lab)) == 9, 10, lambda: lab.run("sprio"))
    assert set(site_factors(lab).values()) == {0}
    assert table(lab, "iY") == before
    assert ltgf.json("tick")["written"] == 9
