"""One pass and the next on small sites given as data: what is ordered and what is written."""

from dataclasses import replace

import pytest

from slurm_ltgf.core.model import UNKNOWN, Window
from slurm_ltgf.service.past import Question, fairness
from slurm_ltgf.slurm.control import ControlResult
from slurm_ltgf.store.config import parsed
from tests.scenario.conftest import T0

H = 3600


def test_the_tenant_that_had_least_of_its_quota_goes_first(site):
    site.tenants(a=4, b=2, c=1)
    site.now = H
    site.ran(1, "a", 0, H, 32)
    for job_id, account in ((11, "a"), (12, "b"), (13, "c")):
        site.pending(job_id, account, 4)
    site.tick()
    assert site.by_factor() == [12, 13, 11]


def test_turns_interleave_by_weight(site):
    site.tenants(a=2, b=1)
    site.now = H
    for k in range(6):
        site.pending(10 + k, "a", 8)
        site.pending(20 + k, "b", 8)
    tenants = [turn.job.tenant for turn in site.tick().view.plan.turns][:9]
    assert tenants.count("a") == 6
    assert tenants.count("b") == 3


def test_a_second_pass_over_the_same_queue_writes_nothing(site):
    site.tenants(a=1, b=1)
    site.now = 10
    for k in range(20):
        site.pending(10 + k, "ab"[k % 2], 1)
    site.tick()
    assert len(site.writes) == 20
    held = site.ledger.audit_last(100)
    site.now = 15
    site.tick()
    assert site.writes == []
    assert site.ledger.audit_last(100) == held


def test_a_pass_without_news_leaves_the_ledger_file_alone(site):
    site.tenants(a=1, b=1)
    site.now = 100
    site.ran(1, "a", 0, 50, 8)
    site.pending(11, "b", 4)
    site.tick()
    site.now += 5
    site.tick()
    before = [path.read_bytes() for path in files_of(site)]
    site.now += 5
    site.tick()
    assert [path.read_bytes() for path in files_of(site)] == before


def attained(site):
    return site.tick().view.measurement.fairness.attained_gpu_s


def test_what_slurmdbd_learnt_late_is_read_within_the_overlap(site):
    site.tenants(a=1)
    site.now = 2 * H
    assert attained(site) == 0
    site.ran(1, "a", 2 * H - 1800, 2 * H - 900, 8)
    site.now += 30
    assert attained(site) == 8 * 900


def test_a_clock_that_was_stepped_back_hides_no_run(site):
    site.tenants(a=1)
    site.now = 4 * H
    site.tick()
    site.now = H
    site.ran(1, "a", H - 600, H - 300, 8)
    assert attained(site) == 8 * 300
    assert site.ledger.synced_until("c") == T0 + 4 * H


def files_of(site):
    path = site.ledger.path
    return sorted(p for p in path.parent.iterdir() if p.name.startswith(path.name))


def test_held_and_hand_set_jobs_are_never_touched(site):
    site.tenants(a=1)
    site.pending(1601, "a", 1)
    site.pending(1602, "a", 1, priority=0, reason="JobHeldUser")
    site.pending(1603, "a", 1, priority=0, reason="JobHeldAdmin")
    site.pending(1604, "a", 1, priority=4242)
    site.frozen.add(1604)
    site.tick()
    assert [change.job_id for change in site.writes] == [1601]


def test_a_newcomer_is_below_every_labelled_job_until_it_is_labelled(site):
    site.tenants(a=1, b=1)
    for k in range(300):
        site.pending(10 + k, "a", 1)
    site.tick()
    site.pending(1000, "b", 1)
    assert site.by_factor()[-1] == 1000
    site.tick()
    assert site.factors[1000] == site.factors[10] == max(site.factors.values())
    assert len(site.writes) < 40


def test_an_array_is_one_record_and_one_write(site):
    site.tenants(a=1)
    array = {"shown_id": "1800_[1-10000%50]", "array_job": 1800, "tasks": 10000, "throttle": 50}
    site.pending(1800, "a", 1, **array)
    site.pending(1801, "a", 1, partition="cpu,gpu")
    site.tick()
    assert sorted((c.job_id, c.shown_id) for c in site.writes) == [
        (1800, "1800_[1-10000%50]"),
        (1801, "1801"),
    ]


def test_only_the_throttle_of_an_array_is_demand(site):
    site.tenants(a=1, b=1)
    site.pending(1800, "a", 1, array_job=1800, tasks=10000, throttle=50)
    turn = site.tick().view.plan.turns[0]
    assert (turn.job.tasks, turn.job.demand) == (50, True)


def test_a_dependent_job_gets_a_place_but_charges_nobody(site):
    site.tenants(a=1)
    site.now = 10
    site.pending(11, "a", 32, reason="Dependency")
    site.pending(12, "a", 1, submit=5)
    turns = site.tick().view.plan.turns
    assert [turn.job.job_id for turn in turns] == [12, 11]
    site.pending(13, "a", 1, submit=9)
    assert [t.charged_gpus for t in site.tick().view.plan.turns] == [0, 1, 2]


def test_suspended_jobs_are_charged_what_slurm_charges(site):
    site.tenants(a=1)
    site.running(1, "a", 8, start=0)
    site.jobs[0] = replace(site.jobs[0], state="SUSPENDED")
    site.ran(1, "a", 0, 40, 8)
    site.history[0] = replace(
        site.history[0], end=UNKNOWN, elapsed_s=40, suspended_s=60, state="SUSPENDED"
    )
    site.now = 100
    assert site.tick().view.measurement.fairness.tenants[0].attained_gpu_s == 320


def test_running_jobs_are_counted_to_the_second(site):
    site.tenants(a=1, b=1)
    site.running(1, "a", 8, start=0)
    site.now = 100
    seen = site.tick().view
    assert [row.attained_gpu_s for row in seen.measurement.fairness.tenants] == [800, 0]
    site.now = 101
    assert site.tick().view.measurement.fairness.tenants[0].attained_gpu_s == 808


def test_a_run_that_is_in_queue_and_database_counts_once(site):
    site.tenants(a=1)
    site.running(1, "a", 8, start=0)
    site.ran(1, "a", 0, 50, 8)
    site.history[0] = replace(
        site.history[0], end=UNKNOWN, elapsed_s=50, state="RUNNING", limit_s=H
    )
    site.now = 100
    assert site.tick().view.measurement.fairness.tenants[0].attained_gpu_s == 800


def test_an_outage_of_the_database_neither_loses_nor_doubles_a_run(site):
    site.tenants(a=1, b=1)
    site.now = 10
    site.running(1, "a", 8, start=0)
    site.tick()
    site.dbd_is_down = True
    site.now = 60
    over = replace(site.jobs[0], state="COMPLETED", end=T0 + 50)
    site.jobs[:] = [over]
    done = site.tick()
    assert "Connection refused" in done.synced.degraded
    assert done.view.measurement.fairness.tenants[0].attained_gpu_s == 400
    site.jobs.clear()  # slurmctld forgets it after MinJobAge; the database is still away
    site.now = 400
    assert site.tick().view.measurement.fairness.tenants[0].attained_gpu_s == 400
    site.dbd_is_down = False
    site.ran(1, "a", 0, 50, 8)
    site.now = 500
    done = site.tick()
    assert done.synced.degraded == ""
    assert done.view.measurement.fairness.tenants[0].attained_gpu_s == 400


def test_a_run_that_ended_long_before_its_record_came_is_still_found(site):
    """slurmctld hands its records over late after an outage of slurmdbd: far behind the overlap."""
    site.config = parsed("[daemon]\noverlap = '10s'", "test")
    site.tenants(a=1)
    site.ran(1, "a", 0, 50, 8)
    whole = site.history[0]
    site.history[0] = replace(whole, end=UNKNOWN, elapsed_s=20, state="RUNNING", limit_s=10**6)
    site.now = 20
    site.tick()
    site.history.clear()
    site.now = 1000
    site.tick()
    site.history.append(whole)
    site.now = 2000
    assert site.tick().view.measurement.fairness.tenants[0].attained_gpu_s == 400


def test_quotas_are_of_the_gpus_and_the_weights_of_this_moment(site):
    site.tenants(a=1, b=1)
    site.tick()
    site.now = 100
    site.nodes = 2
    site.tenants(a=3, b=1)
    site.memory.accounts = None
    rows = site.tick().view.measurement.fairness.tenants
    assert [row.quota_gpus for row in rows] == [12, 4]


def test_shares_are_read_again_once_they_are_old(site):
    site.tenants(a=1, b=1)
    quotas = []
    for site.now in (0, 30, 61):
        rows = site.tick().view.measurement.fairness.tenants
        quotas.append([row.quota_gpus for row in rows])
        site.tenants(a=3, b=1)
    assert quotas == [[16, 16], [16, 16], [24, 8]]


def test_before_the_first_look_capacity_and_shares_are_as_they_were_first_seen(site):
    site.tenants(a=3, b=1)
    site.now = 10 * H
    site.tick()
    asked = Question(window=Window(T0, T0 + H))
    past = fairness(site.ledger, site.config, asked, now=T0 + 11 * H)
    assert [row.quota_gpu_s for row in past.measurement.fairness.tenants] == [24 * H, 8 * H]


def never_ended(site):
    """A run that sacct once told of as running."""
    site.ran(1, "a", 0, 50, 8)
    site.history[0] = replace(
        site.history[0], end=UNKNOWN, elapsed_s=20, state="RUNNING", limit_s=10**6
    )


def open_jobs(site):
    return site.ledger.open_runs("c").runs.job_id.tolist()


def test_a_run_whose_end_was_never_recorded_is_given_up_after_a_month(site):
    site.tenants(a=1)
    never_ended(site)
    site.now = 20
    site.tick()
    site.history.clear()
    site.now = 29 * 86400
    site.tick()
    assert open_jobs(site) == [1]
    site.now = 31 * 86400
    site.tick()
    assert open_jobs(site) == []


def test_a_run_that_began_is_in_the_ledger_at_the_next_pass(site):
    site.tenants(a=1)
    for site.now in (0, 10):
        site.tick()
    site.now = 20
    never_ended(site)
    site.tick()
    assert open_jobs(site) == [1]


def test_a_record_that_slurmdbd_corrected_is_read_at_the_next_pass(site):
    site.tenants(a=1)
    site.ran(1, "a", 0, 50, 8)
    for site.now in (100, 110):
        assert attained(site) == 8 * 50
    site.history[0] = replace(site.history[0], end=T0 + 60, elapsed_s=60)
    site.now = 120
    assert attained(site) == 8 * 60


def test_writes_beyond_the_limit_wait_for_the_next_pass_nearest_first(site):
    site.config = parsed("[queue]\nmax_writes = 5", "test")
    site.tenants(a=1)
    for k in range(12):
        site.pending(10 + k, "a", 1, submit=k)
    done = site.tick()
    assert ([c.job_id for c in site.writes], done.deferred) == ([10, 11, 12, 13, 14], 7)
    site.tick()
    site.tick()
    assert site.by_factor() == list(range(10, 22))


def test_only_managed_partitions_are_written_to(site):
    site.config = parsed("[site]\npartitions = ['main']", "test")
    site.tenants(a=1)
    site.pending(1, "a", 1)
    site.pending(2, "a", 1, partition="debug")
    site.pending(3, "a", 1, partition="debug,main")
    site.tick()
    assert sorted(change.job_id for change in site.writes) == [1, 3]


def test_what_runs_in_other_partitions_is_on_no_account(site):
    site.config = parsed("[site]\npartitions = ['main']", "test")
    site.tenants(a=1, b=1)
    site.ran(1, "a", 0, 3600, 8)
    site.history[-1] = replace(site.history[-1], partition="debug")
    site.ran(2, "b", 0, 3600, 4)
    site.history[-1] = replace(site.history[-1], partition="main")
    site.running(3, "a", 16, 3000)
    site.jobs[-1] = replace(site.jobs[-1], partition="debug")
    site.pending(4, "a", 1, partition="debug")
    site.now = 3600
    seen = site.tick().view
    assert [row.attained_gpu_s for row in seen.measurement.fairness.tenants] == [0, 4 * 3600]
    assert seen.holds == ()
    asked = Question(window=Window(T0, T0 + 3600))
    past = fairness(site.ledger, site.config, asked, now=T0 + 3600)
    assert [row.attained_gpu_s for row in past.measurement.fairness.tenants] == [0, 4 * 3600]
    assert "1 runs outside main are in no sum (site.partitions)" in past.notes


def test_jobs_of_the_root_account_are_left_to_slurm(site):
    site.tenants(a=1)
    site.pending(1, "root", 1)
    site.pending(2, "a", 1)
    site.tick()
    assert [change.job_id for change in site.writes] == [2]


def test_a_tenant_below_its_floor_goes_first(site):
    site.tenants(a=1, b=1)
    site.now = H
    site.ran(1, "a", 0, H // 2, 16)
    site.running(2, "b", 4, start=0)
    site.pending(11, "a", 1)
    site.pending(12, "b", 1)
    assert site.order() == [11, 12]
    site.config = parsed("[queue]\nfloor = 0", "test")
    assert site.order() == [12, 11]


def test_a_job_that_starves_goes_first_inside_its_tenant_only(site):
    site.config = parsed("[queue]\nstarvation = '1h'", "test")
    site.tenants(a=1, b=1)
    site.now = 2 * H
    site.ran(1, "a", 0, H, 16)
    site.pending(12, "a", 1, submit=H + 10)
    site.pending(11, "a", 8, submit=0)
    site.pending(21, "b", 1, submit=H + 10)
    turns = site.tick(dry_run=True).view.plan.turns
    assert [turn.job.job_id for turn in turns] == [21, 11, 12]
    assert [turn.starving for turn in turns] == [False, True, False]


def test_capacity_and_weights_are_remembered_as_steps(site):
    site.tenants(a=1, b=1)
    site.now = 0
    site.tick()
    site.now, site.nodes = 100, 2
    site.tenants(a=3, b=1)
    site.memory.accounts = None
    site.tick()
    from slurm_ltgf.core.model import Window

    window = Window(T0, T0 + 200)
    assert [s.values for s in site.ledger.capacity("c", window)][-2:] == [{"": 32}, {"": 16}]
    assert [s.values["a"] for s in site.ledger.shares("c", window) if s.values] == [1, 3]


def test_a_dry_run_writes_nothing(site):
    site.tenants(a=1)
    site.pending(1, "a", 1)
    done = site.tick(dry_run=True)
    assert (len(done.view.plan.changes), site.writes, site.ledger.audit_last()) == (1, [], [])


@pytest.mark.parametrize("key", ["credit", "share"])
def test_borrowing_counts_for_the_key_credit_and_not_for_share(site, key):
    """a used the idle cluster alone before b came: credit holds it against a, share does not."""
    site.config = parsed(f"[queue]\nkey = '{key}'\nfloor = 0\nlease = '1s'", "test")
    site.tenants(a=1, b=1)
    site.now = H + 600
    site.ran(1, "a", 0, H, 32)
    site.running(2, "a", 8, start=H)
    site.running(3, "b", 24, start=H)
    site.pending(11, "a", 1, submit=H + 500)
    site.pending(12, "b", 1, submit=H + 500)
    assert site.order() == ([12, 11] if key == "credit" else [11, 12])


def test_weights_can_be_the_accounts_gpu_quotas(site):
    site.config = parsed("[fairness]\nweights_from = 'grptres'", "test")
    site.tenants(a=1, b=1, c=1)
    site.accounts = [replace(a, gpu_limit={"a": 24.0, "b": 8.0}.get(a.name)) for a in site.accounts]
    rows = site.tick().view.measurement.fairness.tenants
    assert [(row.tenant, row.quota_gpus) for row in rows] == [("a", 24), ("b", 8), ("c", 0)]


def waiting_in_database(site, job_id, *, tasks=1):
    """A record that sacct shows as PENDING."""
    site.ran(job_id, "a", 0, 1, 1)
    site.history[-1] = replace(
        site.history[-1], state="PENDING", start=UNKNOWN, end=UNKNOWN, elapsed_s=0, tasks=tasks
    )


def test_the_ledger_counts_as_demand_only_what_could_run_now(site):
    """sacct knows neither throttles nor holds; squeue does."""
    site.tenants(a=1)
    site.now = 10
    waiting_in_database(site, 1800, tasks=20)
    waiting_in_database(site, 1801)
    waiting_in_database(site, 1802)
    site.pending(1800, "a", 1, array_job=1800, tasks=20, throttle=2)
    site.pending(1801, "a", 1, priority=0, reason="JobHeldUser")
    site.pending(1802, "a", 1)
    site.tick()
    held = site.ledger.open_runs("c").runs
    assert sorted((r.job_id, r.tasks) for r in held.rows()) == [(1800, 2), (1802, 1)]


def test_in_an_outage_squeue_overrules_no_record_that_sacct_has_told(site):
    site.tenants(a=1)
    site.running(1, "a", 8, start=0)
    site.ran(1, "a", 0, 100, 8)
    site.history[0] = replace(site.history[0], elapsed_s=40, suspended_s=60)
    site.jobs[:] = [replace(site.jobs[0], state="COMPLETED", end=T0 + 100)]
    for site.now in (110, 120):
        assert attained(site) == 8 * 40
        site.dbd_is_down = True


def test_a_resumed_job_is_not_charged_while_it_was_suspended(site):
    site.tenants(a=1)
    site.running(1, "a", 8, start=0)
    site.ran(1, "a", 0, 100, 8)
    site.history[0] = replace(
        site.history[0], end=UNKNOWN, elapsed_s=40, suspended_s=60, state="RUNNING"
    )
    site.now = 100
    assert attained(site) == 8 * 40


def test_the_audit_log_has_what_slurm_took_and_nothing_else(site):
    site.tenants(a=1)
    site.pending(1, "a", 1)
    site.pending(2, "a", 1)
    site.write = lambda _: ControlResult(written=(2,), vanished=(1,))
    site.tick()
    assert [entry.job_id for entry in site.ledger.audit_last()] == ["2"]


def test_a_dead_database_is_asked_less_and_less_often(site):
    site.tenants(a=1)
    site.tick()
    site.dbd_is_down = True
    asked = []
    read = site.read
    site.read = lambda start, end: asked.append(site.now) or read(start, end)
    for site.now in range(1, 61):
        assert site.tick().synced.degraded
    assert asked == [1, 3, 7, 15, 31]
    site.dbd_is_down = False
    site.now = 63
    assert not site.tick().synced.degraded


def test_a_job_cancelled_while_it_waited_is_no_run(site):
    site.tenants(a=1)
    site.now = 10
    site.dbd_is_down = True
    site.pending(1, "a", 8, state="CANCELLED", start=T0 + 5, end=T0 + 5, eligible=UNKNOWN)
    done = site.tick()
    assert done.view.measurement.fairness.tenants[0].state == "idle"
    assert len(site.ledger.find("1")) == 0
