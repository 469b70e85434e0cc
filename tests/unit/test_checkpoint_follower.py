"""What another rank than the leader makes of the leader's words, whichever of them it sees."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_ltgf.checkpoint.accord import Accord, Plan, Told
from slurm_ltgf.checkpoint.archive import Archive
from slurm_ltgf.checkpoint.follower import Follower
from slurm_ltgf.checkpoint.place import Place
from slurm_ltgf.checkpoint.protocol import Action

STEP, NAME = 7, "step-000000007"


@pytest.fixture
def ranks(tmp_path: Path):
    """The leader's accord, and rank 1."""
    accords = [Accord(Place(tmp_path, rank, 2)) for rank in (0, 1)]

    def tell(plan: Plan, phase: str, step: int) -> None:
        accords[1].tell(Told(1, phase, plan.key, plan.attempt, step))

    said: list[str] = []
    return accords[0], Follower(accords[1], Archive(tmp_path), tell, said.append), said


def plan(**more) -> Plan:
    now = int(time.time())
    base = Plan("0", "ask-1", "check", Action.REQUEUE, deadline=now + 30, hold_until=now + 60)
    return replace(base, **more)


def joined(leader: Accord, follower: Follower, folder: Path, *words: Plan) -> tuple[str, float]:
    """What rank 1 comes to where the leader says these words once it has checked; in how long."""
    path = Archive(folder).begin("new")
    leader.decide(plan())
    names: list[str] = []
    began = time.monotonic()
    thread = threading.Thread(
        target=lambda: names.append(follower.join(plan(), STEP, path, file="ltgf-plan"))
    )
    thread.start()
    while not any(told and told.phase == "checked" for told in leader.others(plan())):
        time.sleep(0.005)
    for word in words:
        leader.decide(word)
    thread.join()
    return names[0], time.monotonic() - began


@pytest.mark.parametrize("state", ["committed", "going"])
def test_a_hold_that_is_over_at_once_keeps_no_rank(ranks, tmp_path, state):
    leader, follower, said = ranks
    word = plan(state=state, name=NAME)
    name, took_s = joined(leader, follower, tmp_path, replace(word, state="committed"), word)
    assert (name, said) == (NAME, [])
    assert took_s < 5
    if state == "going":
        follower.await_end(plan())


def test_a_pause_that_is_over_at_once_was_one(ranks):
    leader, follower, said = ranks
    leader.decide(plan(action=Action.PAUSE, state="going"))
    assert follower.is_committed(plan(action=Action.PAUSE))
    assert said == []


def test_what_was_withdrawn_counts_for_nothing(ranks, tmp_path):
    leader, follower, said = ranks
    name, _ = joined(leader, follower, tmp_path, plan(state="withdrawn", why="rank 2: full"))
    assert (name, said) == ("", ["no checkpoint: rank 2: full"])
