"""Laws of the order and of the labels, on random queues."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_ltgf.core.factor import LARGEST, LOWEST_LEVEL, Scale, changes
from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.order import Rules, Standing, in_tenant, order
from slurm_ltgf.slurm.control import SITE_FACTOR_MAX

NOW = 1_000_000

with_share = st.builds(
    Standing,
    attained_gpu_s=st.integers(0, 10**6),
    due_gpu_s=st.integers(0, 10**6),
    quota_gpus=st.integers(0, 64),
    held_gpus=st.integers(0, 64),
    committed_gpu_s=st.integers(0, 10**5),
)
no_share = st.integers(0, 10**4).map(lambda had: Standing(had, 0, 0))
standing = with_share | no_share
pending = st.builds(
    PendingJob,
    job_id=st.integers(1, 10**6),
    tenant=st.sampled_from(["a", "b", "c", "d"]),
    gpus=st.integers(0, 16),
    submit=st.integers(0, NOW),
    eligible=st.integers(0, NOW),
    tasks=st.integers(1, 3),
    demand=st.booleans(),
)
queues = st.lists(pending, max_size=40, unique_by=lambda job: job.job_id)
standings = st.fixed_dictionaries({name: standing for name in "abcd"})
rules = st.builds(
    Rules,
    lease_s=st.sampled_from([1, 60, 3600]),
    starvation_s=st.sampled_from([math.inf, 3600]),
    floor=st.sampled_from([0.0, 0.2]),
)


def greedy(jobs, standings, rules):
    """Stage 1 as the paper tells it: pick the tenant with the lowest credit, charge it, repeat."""
    waiting = {
        name: in_tenant([j for j in jobs if j.tenant == name], rules=rules, now=NOW, rho={})
        for name in standings
    }
    charged = dict.fromkeys(standings, 0.0)
    taken = []
    while any(waiting.values()):

        def credit(name):
            own = standings[name]
            due = own.due_gpu_s + own.quota_gpus * rules.lease_s
            has = own.attained_gpu_s + own.committed_gpu_s + rules.lease_s * charged[name]
            below = waiting[name][0].demand and (
                own.held_gpus + charged[name] < rules.floor * own.quota_gpus
            )
            return (not below, has / due if due else math.inf, 0 if due else has, name)

        tenant = min((name for name in waiting if waiting[name]), key=credit)
        job = waiting[tenant].pop(0)
        if job.demand:
            charged[tenant] += job.gpus * job.tasks
        taken.append(job.job_id)
    return taken


@given(queues, standings, rules)
@settings(max_examples=300)
def test_the_sort_by_start_tags_equals_the_greedy_loop(jobs, standings, rules):
    turns = order(jobs, standings, rules=rules, now=NOW)
    assert [turn.job.job_id for turn in turns] == greedy(jobs, standings, rules)


@given(queues, standings, rules, st.randoms())
def test_the_order_does_not_depend_on_the_order_of_arrival_in_the_list(
    jobs, standings, rules, random
):
    shuffled = list(jobs)
    random.shuffle(shuffled)
    assert order(jobs, standings, rules=rules, now=NOW) == order(
        shuffled, standings, rules=rules, now=NOW
    )


@given(queues)
def test_jobs_that_starve_go_by_submission_whatever_else_differs(jobs):
    own = in_tenant(jobs, rules=Rules(starvation_s=0), now=NOW + 1, rho={})
    keys = [(job.submit, job.job_id) for job in own if job.demand]
    assert keys == sorted(keys)


@given(queues, standings, rules)
def test_tags_of_one_tenant_never_fall_down_the_queue(jobs, standings, rules):
    last: dict[str, float] = {}
    for turn in order(jobs, standings, rules=rules, now=NOW):
        assert turn.tag >= last.get(turn.job.tenant, 0.0)
        last[turn.job.tenant] = turn.tag


labels = st.one_of(
    st.none(),
    st.just(0),
    st.integers(-LARGEST, LARGEST),
    st.integers(1, 300).map(lambda k: k * 10),
    st.integers(0, 20_000).map(lambda k: LARGEST - k),  # crowded at the top
)


def queue_of(factors, tags):
    """A one-tenant-a-job queue whose order is the order of the tags."""
    jobs = [
        PendingJob(job_id=i + 1, tenant=f"t{i:04}", gpus=1, submit=0, site_factor=factor)
        for i, factor in enumerate(factors)
    ]
    own = {
        job.tenant: Standing(attained_gpu_s=tag, due_gpu_s=1, quota_gpus=1)
        for job, tag in zip(jobs, tags, strict=True)
    }
    return order(jobs, own, rules=Rules(floor=0), now=0)


def applied(turns, scale):
    new = {change.job_id: change.new for change in changes(turns, scale)}
    return [new.get(turn.job.job_id, turn.job.site_factor) for turn in turns]


cases = st.integers(0, 60).flatmap(
    lambda n: st.tuples(
        st.lists(labels, min_size=n, max_size=n),
        st.lists(st.integers(0, 50), min_size=n, max_size=n),
    )
)
scales = st.sampled_from([Scale(head=4, step=10), Scale(head=16, step=1000), Scale()])


@given(cases, scales)
@settings(max_examples=300)
def test_labels_keep_the_order_a_step_apart_and_in_range(case, scale):
    turns = queue_of(*case)
    factors = applied(turns, scale)
    for (turn, factor), (after, lower) in zip(
        list(zip(turns, factors, strict=True)),
        list(zip(turns, factors, strict=True))[1:],
        strict=False,
    ):
        if turn.key == after.key:
            assert factor == lower
        elif turn.rank < scale.head:
            assert factor - lower >= scale.step
    assert all(scale.step <= factor <= LARGEST for factor in factors)


@given(cases, scales)
def test_a_second_pass_over_the_same_queue_writes_nothing(case, scale):
    factors, tags = case
    turns = queue_of(factors, tags)
    new = {turn.job.job_id: f for turn, f in zip(turns, applied(turns, scale), strict=True)}
    again = queue_of([new[i + 1] for i in range(len(factors))], tags)
    assert changes(again, scale) == []


@given(st.integers(1, 40), st.integers(0, 40))
def test_one_newcomer_in_a_settled_head_costs_one_write(n, at):
    scale = Scale(head=64, step=1000)
    tags = [10 * k for k in range(n)]
    settled = applied(queue_of([0] * n, tags), scale)
    newcomer = 10 * min(at, n) - 5
    turns = queue_of([*settled, 0], [*tags, newcomer])
    assert [change.old for change in changes(turns, scale)] == [0]


def test_far_down_the_queue_one_job_more_moves_few_labels():
    """10,000 pending jobs; ten start, ten arrive at random places: the writes stay in the tens."""
    random = np.random.default_rng(1)
    scale = Scale()
    tags = list(range(0, 100_000, 10))
    factors = applied(queue_of([0] * len(tags), tags), scale)
    tags, factors = tags[10:], factors[10:]
    tags += [int(x) for x in random.integers(100, 100_000, 10)]
    turns = queue_of([*factors, *[0] * 10], tags)
    assert len(changes(turns, scale)) < 60


def test_labels_and_scontrol_know_the_same_range():
    assert LARGEST == SITE_FACTOR_MAX == 2_147_483_645


def test_levels_reach_a_hundred_thousand_jobs_without_running_out():
    assert Scale().level(100_000) < LOWEST_LEVEL
