"""Two phases: whoever is late, fails or dies, none is left standing still unless all are."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_ltgf.checkpoint.phases import (
    ATTEMPTS,
    GRACE_S,
    Op,
    Plan,
    Stage,
    Told,
    Want,
    begin,
    decide,
    duty,
    in_effect,
    together,
)

DEADLINE, HOLD = 60, 120
AFTER = {
    Op.LOCK: Stage.LOCKED,
    Op.CHECKPOINT: Stage.CHECKPOINTED,
    Op.RESTORE: Stage.LOCKED,
    Op.UNLOCK: Stage.RUNNING,
}


class Rank:
    """A node's agent with one process: acts on what it sees, later or never as it is told to."""

    def __init__(self, number, faults):
        self.number = number
        self.faults = faults
        self.stage = Stage.RUNNING
        self.told = None
        self.why = ""
        self.attempt = 0
        self.busy_until, self.op = 0, None

    def tick(self, plan, now):
        kind, _, first, last = self.faults
        if plan is None or (kind == "dead" and first <= now < last):
            self.op = None  # what it had begun is not known to have ended
            return
        if self.op is not None and now >= self.busy_until:
            self.stage, self.op = AFTER[self.op], None
        if plan.attempt != self.attempt:
            self.attempt, self.why = plan.attempt, ""
        want = in_effect(plan, now=now)
        due = duty(want, self.stage) if self.op is None else None
        if due is not None and not (self.why and due in (Op.LOCK, Op.CHECKPOINT)):
            self.act(due, now)
        stage = Stage.MIXED if self.op is not None else self.stage
        self.told = Told(self.number, plan.key, plan.attempt, want, stage, self.why)

    def act(self, due, now):
        kind, op, first, last = self.faults
        is_struck = first <= now < last and due is op
        if kind == "fails" and is_struck:
            self.why = f"{due} failed" if due in (Op.LOCK, Op.CHECKPOINT) else self.why
        elif kind == "slow" and due is op:
            self.op, self.busy_until = due, now + 25
        else:
            self.stage = AFTER[due]


faults = st.tuples(
    st.sampled_from(["none", "none", "dead", "fails", "slow"]),
    st.sampled_from(list(Op)),
    st.integers(0, 100),
    st.integers(0, 130),
)


@settings(max_examples=300, deadline=None)
@given(
    ranks=st.lists(faults, min_size=1, max_size=5),
    taken_back=st.none() | st.integers(0, 110),
    order=st.randoms(use_true_random=False),
)
def test_none_is_left_locked_or_checkpointed_unless_all_are(ranks, taken_back, order):
    everyone = [Rank(number, fault) for number, fault in enumerate(ranks)]
    plan = begin("a", 0, deadline=DEADLINE, hold_until=HOLD, now=0)
    for now in range(400):
        is_back = taken_back is not None and now >= taken_back
        before = plan
        plan = decide(plan, [one.told for one in everyone], now=now, is_taken_back=is_back)
        if plan.want is Want.HOLD is not before.want:
            assert {one.stage for one in everyone} == {Stage.CHECKPOINTED}
        if plan.want is Want.CHECKPOINT and before.want is Want.LOCK:
            assert {one.stage for one in everyone} == {Stage.LOCKED}
        order.shuffle(everyone)
        for one in everyone:
            one.tick(plan, now)
        everyone.sort(key=lambda one: one.number)
        assert plan.attempt <= ATTEMPTS
    assert {one.stage for one in everyone} == {Stage.RUNNING}
    assert plan.want is Want.OVER


@settings(max_examples=200, deadline=None)
@given(ranks=st.lists(faults, min_size=1, max_size=4), silent=st.integers(0, 119))
def test_ranks_that_hear_no_more_of_their_leader_go_back_by_themselves(ranks, silent):
    everyone = [Rank(number, fault) for number, fault in enumerate(ranks)]
    plan = begin("a", 0, deadline=DEADLINE, hold_until=HOLD, now=0)
    for now in range(400):
        if now < silent:
            told = [one.told for one in everyone]
            plan = decide(plan, told, now=now, is_taken_back=False)
        for one in everyone:
            one.tick(plan, now)
    assert {one.stage for one in everyone} == {Stage.RUNNING}


def told(plan, *stages, why=""):
    return [
        Told(rank, plan.key, plan.attempt, plan.want, stage, why)
        for rank, stage in enumerate(stages)
    ]


LOOK = begin("a", 0, deadline=DEADLINE, hold_until=HOLD, now=0)
START = replace(LOOK, want=Want.LOCK)


def test_all_look_before_any_is_locked_and_what_one_sees_ends_it_at_once():
    fine = told(LOOK, Stage.RUNNING, Stage.RUNNING)
    assert decide(LOOK, [fine[0], None], now=1, is_taken_back=False) == LOOK
    assert decide(LOOK, fine, now=1, is_taken_back=False).want is Want.LOCK
    back = decide(LOOK, told(LOOK, Stage.RUNNING, why="NCCL"), now=1, is_taken_back=False)
    assert (back.want, back.retry, back.why) == (Want.BACK, False, "node 0: NCCL")
    silent = decide(LOOK, [fine[0], None], now=10, is_taken_back=False)
    assert (silent.want, silent.why) == (Want.BACK, "not heard of in time: node 1")


def test_all_are_locked_before_any_is_checkpointed_and_all_are_before_it_counts():
    waits = decide(START, told(START, Stage.LOCKED, Stage.RUNNING), now=1, is_taken_back=False)
    assert waits.want is Want.LOCK
    second = decide(START, told(START, Stage.LOCKED, Stage.LOCKED), now=2, is_taken_back=False)
    assert (second.want, second.until) == (Want.CHECKPOINT, DEADLINE)
    both = told(second, Stage.CHECKPOINTED, Stage.CHECKPOINTED)
    assert decide(second, both, now=9, is_taken_back=False).want is Want.HOLD


def test_a_lock_that_timed_out_is_tried_again_once_all_have_run_on():
    late = decide(START, told(START, Stage.LOCKED, Stage.RUNNING), now=10, is_taken_back=False)
    assert (late.want, late.retry, late.why) == (Want.BACK, True, "not locked in time: node 1")
    still = decide(late, told(late, Stage.LOCKED, Stage.RUNNING), now=11, is_taken_back=False)
    assert still == late
    again = decide(late, told(late, Stage.RUNNING, Stage.RUNNING), now=12, is_taken_back=False)
    assert (again.want, again.attempt, again.until) == (Want.LOCK, 2, 22)


def test_a_checkpoint_that_fails_is_not_tried_again():
    plan = replace(START, want=Want.CHECKPOINT, until=DEADLINE)
    said = told(plan, Stage.LOCKED, Stage.LOCKED, why="not supported")
    back = decide(plan, said, now=3, is_taken_back=False)
    assert (back.want, back.retry, back.why) == (Want.BACK, False, "node 0: not supported")
    done = decide(back, told(back, Stage.RUNNING, Stage.RUNNING), now=4, is_taken_back=False)
    assert done.want is Want.OVER


def test_what_was_said_of_an_attempt_before_does_not_count():
    plan = replace(START, attempt=2)
    old = told(START, Stage.LOCKED, Stage.LOCKED)
    assert decide(plan, old, now=1, is_taken_back=False) == plan


def test_a_rank_that_came_back_while_others_hold_ends_the_hold():
    plan = replace(START, want=Want.HOLD, until=HOLD)
    said = told(plan, Stage.CHECKPOINTED, Stage.RUNNING)
    assert decide(plan, said, now=20, is_taken_back=False).want is Want.BACK


def test_without_a_plan_or_long_after_its_time_a_rank_brings_its_processes_back():
    assert in_effect(None, now=0) is Want.BACK
    assert in_effect(START, now=START.until + GRACE_S) is Want.LOCK
    assert in_effect(START, now=START.until + GRACE_S + 1) is Want.BACK
    assert duty(Want.BACK, Stage.CHECKPOINTED) is Op.RESTORE
    assert duty(Want.BACK, Stage.LOCKED) is Op.UNLOCK
    assert duty(Want.HOLD, Stage.CHECKPOINTED) is None


@pytest.mark.parametrize(
    ("stages", "whole"),
    [
        ([], Stage.GONE),
        ([Stage.LOCKED, Stage.LOCKED], Stage.LOCKED),
        ([Stage.FAILED, Stage.LOCKED], Stage.MIXED),
        ([Stage.FAILED, Stage.RUNNING], Stage.FAILED),
    ],
)
def test_a_rank_is_where_all_its_processes_are(stages, whole):
    assert together(stages) is whole


def test_a_plan_that_is_over_stays_over():
    over = Plan("a", 0, Want.OVER, 1, 2, 3)
    assert decide(over, [None], now=99, is_taken_back=False) == over
