"""`ltgf lease` and the daemon's words about leases, over verdicts that a test gives."""

import json
import logging
from types import SimpleNamespace

import pytest

from slurm_ltgf.cli import daemon
from slurm_ltgf.cli import lease as command
from slurm_ltgf.core.lease import Action, Verdict
from slurm_ltgf.errors import LedgerError, SlurmUnavailable
from slurm_ltgf.service import lease_begin, leases, move_limits
from slurm_ltgf.service.leases import LeaseRow, LeaseView
from slurm_ltgf.slurm.jobs import QueueJob
from slurm_ltgf.store.config import parsed
from slurm_ltgf.store.ledger import Ledger

NOW = 1_800_000_000
L = 3600
JOB = QueueJob(4, shown_id="4", user="ali\x1bce", state="RUNNING", start=NOW - 2 * L)
YIELD = LeaseRow(
    JOB, "astro", 8.0, NOW - L, Verdict(4, Action.YIELD, "bio's job 5 comes before it", 5), to="5"
)
YOUNG = LeaseRow(
    QueueJob(6, shown_id="6_2", user="bob", state="RUNNING", start=NOW), "bio", 4.0, NOW + L, None
)
KEEP = LeaseRow(
    QueueJob(7, user="bob", state="RUNNING", start=NOW - 2 * L), "bio", 4.0, NOW - L,
    Verdict(7, Action.KEEP, "it cannot checkpoint"), why="not ready",
)  # fmt: skip
ALL = LeaseView((YIELD, YOUNG, KEEP))


@pytest.fixture
def shown(ltgf, tmp_path, monkeypatch):
    """`ltgf lease ...` where these are the leases."""
    Ledger(tmp_path / "ledger.db").close()
    monkeypatch.setattr(command.time, "time", lambda: NOW + 0.5)

    def show(*words, view=ALL, toml=""):
        config = tmp_path / "ltgf.toml"
        config.write_text(toml)
        monkeypatch.setenv("LTGF_CONFIG", str(config))
        monkeypatch.setattr(command, "look", lambda app, ledger, now: view)
        return ltgf("lease", *words)

    return show


def test_as_json(shown):
    code, out, err = shown("--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["mode"], told["stopped"]) == ("advise", None)
    assert told["leases"] == [
        {
            "job_id": "4", "tenant": "astro", "user": "ali\x1bce", "gpus": 8, "ran_s": 2 * L,
            "left_s": 0, "verdict": "yield", "to": "5", "why": "bio's job 5 comes before it",
        },
        {
            "job_id": "6_2", "tenant": "bio", "user": "bob", "gpus": 4, "ran_s": 0,
            "left_s": L, "verdict": None, "to": None, "why": None,
        },
        {
            "job_id": "7", "tenant": "bio", "user": "bob", "gpus": 4, "ran_s": 2 * L,
            "left_s": 0, "verdict": "keep", "to": None, "why": "it cannot checkpoint; not ready",
        },
    ]  # fmt: skip


def test_as_a_table_with_what_stops_moves_and_no_control_characters(shown):
    stopped = LeaseView((YIELD,), "it is a quiet time", 0, ("/rec\x1b: there is no such folder",))
    code, out, _ = shown(view=stopped)
    assert code == 0
    assert "note: nobody yields now: it is a quiet time\n" in out
    assert "there is no such folder" in out
    assert "\x1b" not in out
    assert json.loads(shown("--json", view=stopped)[1])["stopped"] == "it is a quiet time"


def test_as_rows_for_programs(shown):
    _, out, _ = shown("-P")
    lines = out.splitlines()
    assert lines[0].split("|")[0] == "job_id"
    assert len(lines) == 4
    assert shown("-P", "-n")[1].splitlines() == lines[1:]


def test_where_leases_are_off_it_says_how_to_turn_them_on(shown):
    code, out, err = shown(toml='[lease]\nmode = "off"')
    assert (code, out) == (2, "")
    assert 'lease.mode is "off": set it to "advise" or "on"' in err


def test_reset_is_written_down(shown, tmp_path):
    code, out, _ = shown("--reset")
    assert (code, out) == (0, "failures until now count no more\n")
    with Ledger(tmp_path / "ledger.db", readonly=True) as ledger:
        assert ledger.state_get(move_limits.RESET) == str(NOW)


# --- the daemon -----------------------------------------------------------------------------------


class Moves:
    """Moves that do as a test says."""

    def __init__(self):
        self.done, self.problem = [], None

    def go_on_all(self, *, now):
        if self.problem:
            raise self.problem
        return self.done


@pytest.fixture
def watched(monkeypatch, caplog):
    """The daemon's leases in some mode, what they see, what they began, and what was logged."""
    caplog.set_level(logging.INFO, "ltgf")

    def watch(mode, records="/records"):
        world = SimpleNamespace(view=LeaseView((YIELD, KEEP), allowed=1), begun=[], moves=Moves())

        def judge(*_):
            if isinstance(world.view, Exception):
                raise world.view
            return world.view

        def begin(judged, moves, ledger, *, now):
            world.begun.append(judged)
            return [("4", "it was submitted with --no-requeue")]

        monkeypatch.setattr(leases, "judge", judge)
        monkeypatch.setattr(lease_begin, "begin", begin)
        monkeypatch.setattr("slurm_ltgf.cli.move_site.moves_of", lambda app: world.moves)
        app = SimpleNamespace(
            config=parsed(f'[checkpoint]\nrecords = "{records}"\n[lease]\nmode = "{mode}"', "test")
        )
        own = daemon.Leases(app, None)
        world.look = lambda: own.look(SimpleNamespace(now=NOW))
        world.said = lambda: [record.getMessage() for record in caplog.records]
        return world

    return watch


def test_where_no_job_can_be_asked_there_is_nothing_to_advise(watched):
    world = watched("advise", records="")
    world.look()
    assert world.said() == []


def test_advise_says_each_change_once_and_begins_nothing(watched):
    world = watched("advise")
    world.look()
    world.look()
    said = "lease of job 4 (astro) would yield: bio's job 5 comes before it"
    assert world.said() == [said]
    world.view = LeaseView((YOUNG,))
    world.look()
    world.view = LeaseView((YIELD,))
    world.look()
    assert world.said() == [said, said]
    assert world.begun == []


def test_off_looks_at_nothing(watched):
    world = watched("off")
    world.view = LedgerError("never asked")
    world.look()
    assert (world.said(), world.begun) == ([], [])


def test_on_begins_and_tells_what_came_of_it(watched):
    world = watched("on")
    world.moves.done = [(SimpleNamespace(job_id=4, requeue_id="4", why="asked to save"), "")]
    world.look()
    world.look()
    world.moves.done = []
    world.look()
    world.moves.done = [(SimpleNamespace(job_id=4, requeue_id="4", why="asked to save"), "")]
    world.look()
    assert world.said() == [
        "lease of job 4 (astro) yields: bio's job 5 comes before it",
        "lease of job 4: it was submitted with --no-requeue",
        "job 4: asked to save",
        "job 4: asked to save",
    ]
    assert len(world.begun) == 4


def test_on_begins_nothing_where_moves_are_stopped(watched):
    world = watched("on")
    world.view = LeaseView((KEEP,), "it is a quiet time")
    world.look()
    assert (world.said(), world.begun) == (["it is a quiet time"], [])


def test_seconds_that_run_down_are_no_news(watched):
    world = watched("on")
    for left_s in (900, 899, 0):
        world.view = LeaseView((KEEP,), f"3 checkpoints failed: no moves for {left_s} s, or so")
        world.look()
    world.view = LeaseView((KEEP,), "4 checkpoints failed: no moves for 900 s, or so")
    world.look()
    assert world.said() == [
        "3 checkpoints failed: no moves for 900 s, or so",
        "4 checkpoints failed: no moves for 900 s, or so",
    ]


def test_a_problem_is_told_once_and_again_when_it_comes_back(watched):
    world = watched("advise")
    good, bad = LeaseView(()), LedgerError("the ledger is locked")
    for view in (bad, bad, good, bad):
        world.view = view
        world.look()
    assert world.said() == ["leases: the ledger is locked"] * 2


def test_moves_that_cannot_go_on_are_told_and_the_look_is_not_hindered(watched):
    world = watched("on")
    world.moves.problem = LedgerError("no space")
    for _ in range(3):
        world.look()
    assert world.said().count("moves: no space") == 1
    assert len(world.begun) == 3


def test_what_is_wrong_with_the_records_folder_is_told(watched):
    world = watched("advise")
    world.view = LeaseView((), notes=("/records: there is no such folder",))
    world.look()
    assert world.said() == ["/records: there is no such folder"]


def test_an_outage_of_slurm_is_the_daemons_to_wait_out(watched):
    world = watched("on")
    world.view = SlurmUnavailable("squeue: no answer")
    with pytest.raises(SlurmUnavailable):
        world.look()
