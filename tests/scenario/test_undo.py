"""Switching off: every SiteFactor goes back to 0, held jobs are left alone."""

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
