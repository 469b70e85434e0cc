"""Switching off: every SiteFactor goes back to 0, of jobs that were held or started since too."""

from slurm_ltgf.service.tick import undo
from tests.scenario.conftest import T0


def test_undo_leaves_the_queue_to_slurm_again(site):
    site.tenants(a=1, b=1)
    for k in range(5):
        site.pending(10 + k, "ab"[k % 2], 1)
    site.pending(20, "a", 1, priority=0, reason="JobHeldUser")
    site.tick()
    site.writes.clear()
    result = undo(site.edges, site.ledger, now=T0)
    assert sorted(result.written) == [10, 11, 12, 13, 14]
    assert set(site.factors.values()) == {0}
    assert undo(site.edges, site.ledger, now=T0).written == ()


def test_undo_reaches_what_was_labelled_and_started_since(site):
    site.tenants(a=1)
    site.pending(10, "a", 1)
    site.tick()
    site.jobs.clear()
    site.factors.clear()  # sprio does not list what runs
    site.running(10, "a", 1, start=0)
    assert undo(site.edges, site.ledger, now=T0).written == (10,)
