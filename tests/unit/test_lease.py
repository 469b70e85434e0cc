"""Who yields at the end of a lease, to whom, and each reason not to."""

from dataclasses import replace

import pytest

from slurm_ltgf.core.lease import Action, Leased, LeaseRules, contest, verdicts
from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.order import Rules, Standing
from slurm_ltgf.core.room import Room

L = 3600
#: Two tenants of 8 GPUs quota each; rich has had its window's due twice, poor nothing.
RICH = Standing(attained_gpu_s=16 * 24 * L, due_gpu_s=8 * 24 * L, quota_gpus=8, held_gpus=16)
POOR = Standing(attained_gpu_s=0, due_gpu_s=8 * 24 * L, quota_gpus=8, held_gpus=0)
NOW = 10 * L
OLD = Leased(1, "rich", 8, started=9 * L)


def gpus_of(jobs):
    return {job.job_id: job.gpus for job in jobs}


def judged(expired, pending, standings, *, rules, rho=None, **more):
    """Verdicts with the order that the daemon would compute."""
    turns = contest(expired, pending, standings, rules=rules, now=NOW, rho=rho)
    return verdicts(expired, pending, turns, standings, rules=rules, now=NOW, **more)


def decide(expired, pending, *, free=0.0, standings=None, pools=None, **limits):
    pools = pools or {job.job_id: "" for job in pending}
    found = judged(
        expired,
        pending,
        standings or {"rich": RICH, "poor": POOR},
        pool_of=pools,
        rooms={
            pool: Room.counted(
                0 if pool else free,
                {} if pool else gpus_of(expired),
                gpus_of(job for job in pending if pools[job.job_id] == pool),
            )
            for pool in ("", *pools.values())
        },
        rules=Rules(lease_s=L, floor=0),
        lease_rules=LeaseRules(**limits),
    )
    return {v.job_id: (v.action, v.to) for v in found}, {v.job_id: v.reason for v in found}


def waits(job_id, tenant="poor", gpus=8):
    return PendingJob(job_id, tenant, gpus, submit=9 * L, eligible=9 * L)


def test_without_pending_jobs_leases_are_renewed():
    got, _ = decide([OLD, replace(OLD, job_id=2)], [])
    assert got == {1: (Action.RENEW, None), 2: (Action.RENEW, None)}


def test_one_of_two_yields_to_the_tenant_that_had_nothing():
    got, reasons = decide([OLD, replace(OLD, job_id=2)], [waits(11)])
    assert sorted(got.values(), key=str) == [(Action.RENEW, None), (Action.YIELD, 11)]
    assert any("poor's job 11" in reason for reason in reasons.values())


def test_free_gpus_are_used_before_anybody_yields():
    got, _ = decide([OLD], [waits(11)], free=8)
    assert got == {1: (Action.RENEW, None)}


def test_several_small_jobs_yield_to_a_big_one_or_none_does():
    small = [replace(OLD, job_id=k, gpus=2) for k in (1, 2, 3, 4)]
    got, _ = decide(small, [waits(11)])
    assert set(got.values()) == {(Action.YIELD, 11)}
    got, _ = decide(small, [waits(11)], concurrency=3)
    assert all(action is Action.KEEP for action, _ in got.values())


def test_a_job_of_another_pool_is_left_alone():
    got, reasons = decide([OLD], [waits(11)], pools={11: "other"})
    assert got == {1: (Action.RENEW, None)}
    assert reasons[1] == "no job before it could use its GPUs"


@pytest.mark.parametrize(
    ("job", "limits", "said"),
    [
        (replace(OLD, can_checkpoint=False), {}, "cannot checkpoint"),
        (replace(OLD, started=NOW - 1800), {"min_run_s": 2000}, "less than 2000 s"),
        (replace(OLD, restarts=3), {"max_restarts": 3}, "restarted 3 times"),
        (replace(OLD, started=NOW - 1200), {}, "not before it has run 1250 s"),
    ],
    ids=["no checkpoint", "young", "moved often", "not worth it"],
)
def test_a_reason_not_to_yield(job, limits, said):
    got, reasons = decide([job], [waits(11)], **limits)
    assert got == {1: (Action.KEEP, None)}
    assert said in reasons[1]


def test_a_site_may_preempt_what_cannot_checkpoint():
    got, _ = decide(
        [replace(OLD, can_checkpoint=False)], [waits(11)], preempt_without_checkpoint=True
    )
    assert got == {1: (Action.YIELD, 11)}


def test_a_swap_that_only_turns_the_tables_is_not_made():
    """Both have had the same: the one with the job would be the poorer a lease later."""
    even = POOR._replace(attained_gpu_s=8 * 24 * L)
    got, reasons = decide(
        [replace(OLD, tenant="a")],
        [waits(11, tenant="b")],
        standings={
            "a": even._replace(held_gpus=8),
            "b": even._replace(attained_gpu_s=RICH.due_gpu_s - 1),
        },
    )
    assert got[1][0] is Action.KEEP
    assert "no more than b" in reasons[1]


def test_the_lease_that_pays_for_a_move_of_25_seconds_at_two_percent():
    """LTGF.md O1: L >= cost / overhead."""
    assert 25 / LeaseRules().overhead == 1250


# --- nodes ----------------------------------------------------------------------------------------


def on_nodes(expired, pending, free, held, parts, *, standings=None, rho=None, **limits):
    found = judged(
        expired,
        pending,
        standings or {"rich": RICH, "poor": POOR},
        pool_of={job.job_id: "" for job in pending},
        rooms={"": Room(free, held, parts)},
        rules=Rules(lease_s=L, floor=0),
        lease_rules=LeaseRules(**limits),
        rho=rho,
    )
    return {v.job_id: v.action for v in found}, {v.job_id: v.reason for v in found}


def test_gpus_on_several_nodes_do_not_make_room_for_one_job():
    """Three jobs of 4 GPUs, each on a node of 8 with a job of 4 that has not expired."""
    jobs = [replace(OLD, job_id=k, gpus=4) for k in (1, 2, 3)]
    held = {k: {k: 4} for k in (1, 2, 3)}
    got, _ = on_nodes(jobs, [waits(11)], dict.fromkeys((1, 2, 3), 0), held, {11: (8,)})
    assert set(got.values()) == {Action.RENEW}


def test_the_jobs_of_one_node_yield_and_those_of_others_do_not():
    jobs = [replace(OLD, job_id=k, gpus=4) for k in (1, 2, 3, 4)]
    held = {1: {"a": 4}, 2: {"b": 4}, 3: {"b": 4}, 4: {"a": 4}}
    parts = {11: (8,), **{k: (4,) for k in held}}
    got, _ = on_nodes(jobs, [waits(11)], {"a": 0, "b": 0}, held, parts)
    yielding = {k for k, action in got.items() if action is Action.YIELD}
    assert yielding in ({1, 4}, {2, 3})


def test_a_job_that_fits_elsewhere_makes_way_though_its_tenant_had_less():
    """poor's job of 1 GPU keeps rich's job of 8 from a node; 1 GPU is free on another."""
    small = replace(OLD, tenant="poor", gpus=1)
    got, reasons = on_nodes(
        [small],
        [waits(11, tenant="rich")],
        {"a": 7, "b": 1},
        {1: {"a": 1}},
        {11: (8,), 1: (1,)},
        standings={"rich": RICH, "poor": POOR._replace(held_gpus=1)},
    )
    assert got == {1: Action.YIELD}
    assert "elsewhere at once" in reasons[1]


def test_it_stays_where_it_would_have_to_wait():
    small = replace(OLD, tenant="poor", gpus=1)
    got, _ = on_nodes(
        [small],
        [waits(11, tenant="rich")],
        {"a": 7, "b": 0},
        {1: {"a": 1}},
        {11: (8,), 1: (1,)},
        standings={"rich": RICH, "poor": POOR._replace(held_gpus=1)},
    )
    assert got == {1: Action.RENEW}


def test_a_job_that_never_ran_goes_before_a_running_one_of_its_tenant():
    got, _ = decide([OLD], [waits(11, tenant="rich")])
    assert got == {1: (Action.RENEW, None)}  # by the time it came, without job indices
    held = {1: {"a": 8}}
    got, _ = on_nodes(
        [OLD], [waits(11, tenant="rich")], {"a": 0}, held, {11: (8,), 1: (8,)}, rho={1: 1.0}
    )
    assert got == {1: Action.YIELD}


def test_below_the_floor_a_tenant_is_served_whatever_it_had():
    """lucky has had more than rich, but holds nothing now: with a floor it takes what rich has
    above its own."""
    standings = {"rich": RICH, "lucky": POOR._replace(attained_gpu_s=20 * 24 * L)}
    held, parts = {1: {"a": 8}}, {11: (8,), 1: (8,)}

    def with_floor(floor):
        found = judged(
            [OLD],
            [waits(11, tenant="lucky")],
            standings,
            pool_of={11: ""},
            rooms={"": Room({"a": 0}, held, parts)},
            rules=Rules(lease_s=L, floor=floor),
            lease_rules=LeaseRules(),
        )
        return found[0].action

    assert with_floor(0) is not Action.YIELD
    assert with_floor(1) is Action.YIELD
