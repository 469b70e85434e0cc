"""PRI-03: boosts far out of SiteFactor's range are ranked, not clipped."""

from slurm_ltgf.core.factor import LARGEST, Scale, changes
from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.order import Rules, Standing, order


def test_pri_03_ranks_are_kept_and_the_range_is_never_left():
    boosts = {"A": 5e9, "B": 3e9, "C": 0.0, "D": -7e9}
    jobs = [PendingJob(i + 1, name, 1, submit=0, priority=1000) for i, name in enumerate(boosts)]
    own = {name: Standing(-boost, 1, 1) for name, boost in boosts.items()}
    turns = order(jobs, own, rules=Rules(floor=0), now=0)
    sent = {change.job_id: change.new for change in changes(turns, Scale())}
    assert sent[1] > sent[2] > sent[3] > sent[4]
    assert all(-LARGEST <= value <= LARGEST for value in sent.values())
    assert all(1 <= 1000 + value < 2**32 - 1 for value in sent.values())
