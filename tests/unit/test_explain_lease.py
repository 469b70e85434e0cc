"""What `ltgf explain` says of leases."""

from types import SimpleNamespace

import pytest

from slurm_ltgf.cli import explain_lease
from slurm_ltgf.core.explain_lease import lease_sentence
from slurm_ltgf.core.lease import Action, Verdict
from slurm_ltgf.slurm.jobs import QueueJob
from slurm_ltgf.store.config import parsed
from slurm_ltgf.store.ledger import AuditEntry, Ledger

YIELD = Verdict(7, Action.YIELD, "bio's job 9 comes before it", 9)
KEEP = Verdict(7, Action.KEEP, "it cannot checkpoint")


@pytest.mark.parametrize(
    ("verdict", "told", "said"),
    [
        (None, {"is_over": False, "moves": True}, "Its lease ends at T."),
        (
            YIELD,
            {"is_over": True, "moves": True},
            "Its lease ended at T; it is asked to save and requeued: bio's job 9 comes before it.",
        ),
        (
            YIELD,
            {"is_over": False, "moves": True},
            (
                "Its lease ends at T; as things are now it is asked to save and requeued:"
                " bio's job 9 comes before it."
            ),
        ),
        (
            YIELD,
            {"is_over": True, "moves": False},
            (
                "Its lease ended at T; it would be asked to save and requeued, were lease.mode "
                '"on": bio\'s job 9 comes before it.'
            ),
        ),
        (
            KEEP,
            {"is_over": True, "moves": True, "hindrance": "not ready"},
            "Its lease ended at T; it keeps its GPUs: it cannot checkpoint (not ready).",
        ),
    ],
)
def test_a_lease_in_a_sentence(verdict, told, said):
    assert lease_sentence(verdict, ended="T", **told) == said


@pytest.fixture
def app(tmp_path):
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.audit(
            AuditEntry(time, by, "requeue", "7", "asked", new, why)
            for time, by, new, why in (
                (1_700_000_000, "ltgf requeue by ann", "requeued", "first"),
                (1_700_000_100, "ltgf lease", "requeued", "saved at step 9; for: bio's job 9"),
                (1_700_000_200, "ltgf lease", "failed", "not saved"),
            )
        )
    config = parsed('[lease]\nmode = "off"', "test")
    return SimpleNamespace(ledger=lambda readonly: Ledger(path, readonly=readonly), config=config)


def test_the_last_requeue_is_told_with_whom_it_was_for(app):
    found, said = explain_lease.requeue_of(app, QueueJob(7, restarts=2))
    assert found == {
        "time": 1_700_000_100,
        "by": "ltgf lease",
        "why": "saved at step 9; for: bio's job 9",
    }
    assert len(said) == 1
    assert said[0].startswith("It was requeued at 2023-11-")
    assert said[0].endswith("by ltgf lease: saved at step 9; for: bio's job 9.")


@pytest.mark.parametrize("job", [QueueJob(7, restarts=0), QueueJob(8, restarts=1)])
def test_who_was_not_requeued_by_us_is_told_nothing(app, job):
    assert explain_lease.requeue_of(app, job) == (None, [])


def test_where_leases_are_off_nothing_is_said_of_them(app):
    running = QueueJob(7, state="RUNNING", start=1_700_000_000)
    assert explain_lease.lease_of(app, None, running) == (None, [])
