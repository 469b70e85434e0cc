"""Laws of leases: whatever runs and waits, no guard is broken and nobody yields in vain."""

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_ltgf.core.lease import Action, Leased, LeaseRules, contest, verdicts
from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.order import Rules, Standing
from slurm_ltgf.core.room import Room

NOW, L = 1_000_000, 3600
NODES, PER_NODE = 2, 8
RULES = Rules(lease_s=L)
TENANTS = ("a", "b")

tenants = st.sampled_from(TENANTS)
sizes = st.sampled_from([1, 2, 4, 8])


@st.composite
def sites(draw):
    """Running jobs that fit on nodes of 8, jobs that wait, accounts, and the site's limits."""
    free = dict.fromkeys(range(NODES), float(PER_NODE))
    held, expired = {}, []
    for job_id in range(1, draw(st.integers(1, 8)) + 1):
        node, gpus = draw(st.integers(0, NODES - 1)), draw(sizes)
        if free[node] >= gpus:
            free[node] -= gpus
            held[job_id] = {node: float(gpus)}
            expired.append(
                Leased(
                    job_id,
                    draw(tenants),
                    gpus,
                    submit=NOW - 9 * L,
                    started=NOW - draw(st.sampled_from([5 * L, 3 * L, L, 1300, 800, 600])),
                    restarts=draw(st.integers(0, 4)),
                    can_checkpoint=draw(st.booleans()),
                    cost_s=draw(st.sampled_from([0, 25, 100, 200])),
                )
            )
    if draw(st.booleans()):  # others, whose leases are not over, hold the rest
        free = dict.fromkeys(free, 0.0)
    waiting = [
        PendingJob(job_id, draw(tenants), draw(sizes), submit=NOW - 60, eligible=NOW - 60)
        for job_id in range(100, 100 + draw(st.integers(1, 6)))
    ]
    on = {name: sum(job.gpus for job in expired if job.tenant == name) for name in TENANTS}
    accounts = {
        name: Standing(draw(st.sampled_from([0, 25, 50, 100])) * L, 50.0 * L, 8.0, float(on[name]))
        for name in TENANTS
    }
    limits = LeaseRules(
        min_run_s=draw(st.sampled_from([0, 900, 7200])),
        max_restarts=draw(st.sampled_from([2, 4, 100])),
        overhead=draw(st.sampled_from([0.02, 0.2])),
        concurrency=draw(st.sampled_from([4, 2, 1, 0])),
        preempt_without_checkpoint=draw(st.booleans()),
    )
    return expired, waiting, accounts, limits, free, held


def judged(site):
    """Verdicts, and the order."""
    expired, waiting, accounts, limits, *_ = site
    turns = contest(expired, waiting, accounts, rules=RULES, now=NOW)
    found = verdicts(
        expired, waiting, turns, accounts,
        pool_of={job.job_id: "p" for job in waiting}, rooms={"p": room(site)},
        rules=RULES, lease_rules=limits, now=NOW,
    )  # fmt: skip
    return found, turns


def room(site):
    """The nodes as they are."""
    expired, waiting, _, _, free, held = site
    parts = {job.job_id: (float(job.gpus),) for job in (*expired, *waiting)}
    return Room(free, held, parts)


def yields(site):
    """Who yields, and to whom."""
    return {one.job_id: one.to for one in judged(site)[0] if one.action is Action.YIELD}


@settings(max_examples=300)
@given(sites())
def test_every_lease_has_one_verdict_with_its_sentence(site):
    found, _ = judged(site)
    assert [one.job_id for one in found] == [job.job_id for job in site[0]]
    assert all(one.reason for one in found)
    assert all((one.to is not None) is (one.action is Action.YIELD) for one in found)


@settings(max_examples=300)
@given(sites())
def test_no_guard_is_broken(site):
    expired, _, _, limits, _, _ = site
    going = yields(site)
    assert len(going) <= limits.concurrency
    for job in expired:
        if job.job_id in going:
            ran_s = NOW - job.started
            assert job.can_checkpoint or limits.preempt_without_checkpoint
            assert ran_s >= limits.min_run_s
            assert ran_s >= job.cost_s / limits.overhead
            assert job.restarts < limits.max_restarts


@settings(max_examples=300)
@given(sites())
def test_nobody_yields_in_vain(site):
    """Each that takes could start at once if those that yield were gone, and fitted not before."""
    going = yields(site)
    for taker in set(going.values()):
        assert room(site).would_fit(list(going), [taker])
    if len(site[1]) == 1 and going:
        assert not room(site).fits(site[1][0].job_id)


@settings(max_examples=300)
@given(sites())
def test_who_yields_comes_behind_or_can_start_again_elsewhere(site):
    found, turns = judged(site)
    for one in found:
        if one.action is Action.YIELD and turns.index(one.job_id) < turns.index(one.to):
            assert "can start again elsewhere at once" in one.reason


@settings(max_examples=300)
@given(sites())
def test_a_swap_of_two_tenants_leaves_the_poorer_one_better_off(site):
    expired, waiting, accounts, _, _, _ = site
    going = yields(site)
    if len(going) != 1:
        return
    ((loser_id, taker_id),) = going.items()
    loser = next(job for job in expired if job.job_id == loser_id)
    taker = next(job for job in waiting if job.job_id == taker_id)
    turns = judged(site)[1]
    free = room(site).free_gpus
    if loser.tenant == taker.tenant or turns.index(loser_id) < turns.index(taker_id) or free:
        return
    before, after = (
        min(credit(accounts[loser.tenant], -gpus), credit(accounts[taker.tenant], gpus))
        for gpus in (0, min(loser.gpus, taker.gpus))
    )
    assert after > before


def credit(own, more_gpus):
    """(above the floor, credit at the end of the next lease)."""
    held = own.held_gpus + more_gpus
    has = own.attained_gpu_s + held * L
    return held >= RULES.floor * own.quota_gpus, has / (own.due_gpu_s + own.quota_gpus * L)


@settings(max_examples=300)
@given(sites())
def test_the_same_site_has_the_same_verdicts(site):
    assert judged(site) == judged(site)
