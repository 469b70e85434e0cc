"""A pass with a factor table: told to the plugin while one is there, to scontrol while none is."""

from dataclasses import replace

import pytest

from slurm_ltgf.service.tick import tick
from slurm_ltgf.store.factor_table import FactorFile
from tests.scenario.conftest import T0


@pytest.fixture
def queued(site, tmp_path):
    """Two tenants with a job each, a table's file, and a plugin that reads it."""
    site.tenants(a=1, b=3)
    site.pending(1, "a", 2)
    site.pending(2, "b", 2)
    site.file = FactorFile(tmp_path / "factors")
    plugin_says(site, age_s=0)
    return site


def plugin_says(site, *, age_s):
    text = f"pid=1\ntime={T0 + site.now - age_s}\nstate=ok\ngenerated_ns=0\njobs=0\ntenants=0\n"
    site.file.path.with_name("factors.status").write_text(text)


def a_pass(site, **more):
    site.writes.clear()
    edges = replace(site.edges, table=site.file)
    return tick(edges, site.ledger, site.config, clock=lambda: T0 + site.now, **more)


def test_with_the_plugin_nothing_goes_by_scontrol(queued):
    done = a_pass(queued)
    assert (done.by, queued.writes) == ("table", [])
    assert sorted(done.result.written) == [1, 2]
    assert queued.file.labels().keys() == {1, 2}
    assert len(queued.ledger.audit_last(10)) == 2


def test_what_the_table_said_before_is_not_told_again(queued):
    a_pass(queued)
    assert a_pass(queued).result.written == ()
    assert len(queued.ledger.audit_last(10)) == 2


def test_without_a_sign_of_the_plugin_scontrol_is_used_and_the_table_kept_up(queued):
    plugin_says(queued, age_s=60)
    done = a_pass(queued)
    assert (done.by, {change.job_id for change in queued.writes}) == ("scontrol", {1, 2})
    assert queued.file.labels() == queued.factors


def test_a_dry_run_says_which_way_it_would_go_and_writes_no_table(queued):
    done = a_pass(queued, dry_run=True)
    assert (done.by, queued.file.labels(), queued.writes) == ("table", {}, [])


def test_a_table_that_cannot_be_written_is_told_and_scontrol_used(queued, tmp_path):
    queued.file = FactorFile(tmp_path / "gone" / "factors")
    done = a_pass(queued)
    assert (done.by, len(queued.writes)) == ("scontrol", 2)
    assert "cannot write" in done.notes[0]
