"""What users say of their jobs' runs: believed within sacct's bounds, and never to their gain."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_ltgf.checkpoint.claims import Claim, Claims, What
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.model import UNKNOWN, Batch, Run, Runs
from slurm_ltgf.service.claims import OF_ONE, PATIENCE_S, Intake
from slurm_ltgf.store.ledger import Ledger

T0, JOB = 1_800_000_000, 7
ME = pwd.getpwuid(os.geteuid()).pw_name
END = T0 + 1000


@dataclass
class Site:
    """A ledger with one job of ours, and the folder where its user leaves claims."""

    ledger: Ledger
    intake: Intake
    now: int = END + 100

    @property
    def claims(self) -> Claims:
        return self.intake.claims

    def ran(self, state: str, *, start: int = T0, end: int = END, **more: object) -> None:
        """A run of 4 GPUs, as sacct tells of it."""
        values = {"user": ME, "gres": "gpu=4", "account": "astro"} | more
        run = Run("c", JOB, state=state, submit=start - 10, start=start, end=end, **values)
        self.ledger.store([Batch(Runs.of([run]))], source="sacct", observed_at=self.now)

    def say(self, what: What, saved_at: int | None, **more: object) -> list[str]:
        """Leave a claim and have it taken in; lines for the log."""
        values = {"time": END + 1, "step": 40} | more
        self.claims.leave(Claim(JOB, what, saved_at=saved_at, **values))
        return self.take_in()

    def take_in(self) -> list[str]:
        return self.intake.take_in(now=self.now)

    @property
    def kept(self) -> dict[int, int]:
        """Start of runs -> until when their work is kept."""
        return {start: until for (_, start), until in self.ledger.kept("c").items()}

    @property
    def log(self) -> list[tuple[str, str | None, str]]:
        """(action, how it ended, why), oldest first."""
        found = self.ledger.audit_last(100, job_id=str(JOB))
        return [(entry.action, entry.new, entry.reason) for entry in reversed(found)]

    @property
    def left(self) -> int:
        """Claims that still lie there."""
        return len(list(self.claims.names()))


@pytest.fixture
def site(tmp_path: Path):
    with Ledger(tmp_path / "ledger.db") as ledger:
        found = Site(ledger, Intake(Claims(tmp_path), ledger, "c", Pricing()))
        found.intake.make()
        yield found


# --- what is written down -------------------------------------------------------------------------


def test_a_users_own_requeue_is_written_down_with_what_it_kept_and_lost(site: Site) -> None:
    site.ran("REQUEUED")
    requeued = {"state": "requeued", "why": "saved at step 40 and requeued", "reason": "lunch"}
    assert site.say(What.REQUEUE, T0 + 900, **requeued) == []
    why = "saved at step 40 and requeued; for: lunch; 3600 GPU-s saved, 400 GPU-s lost"
    assert site.log == [("requeue", "requeued", f"{why}, as its user says")]
    assert (site.kept, site.left) == ({T0: T0 + 900}, 0)
    entry = site.ledger.audit_last(1)[0]
    assert entry.actor == f"ltgf requeue by {ME}"
    counters = {("requeues", "saved"): 1, ("saved_gpu_s", ""): 3600, ("lost_gpu_s", ""): 400}
    assert site.ledger.counters("c") == counters


def test_a_run_that_continues_tells_what_was_kept_of_one_that_slurm_ended(site: Site) -> None:
    site.ran("PREEMPTED")
    site.say(What.CONTINUED, T0 + 500)
    why = "saved at step 40 before it ended; 2000 GPU-s saved, 2000 GPU-s lost, as its user says"
    assert site.log == [("run", "preempted", why)]
    site.say(What.CONTINUED, T0 + 500)
    assert (len(site.log), site.kept) == (1, {T0: T0 + 500})


def test_who_ended_within_the_grace_is_told_of_and_not_called_done(site: Site) -> None:
    site.ran("COMPLETED")
    (line,) = site.say(What.STOPPED, END - 1)
    assert "ended unfinished: Slurm calls it completed and does not start it again" in line
    assert line.endswith("`scontrol requeue 7` does")
    assert site.log[0][:2] == ("run", "completed")
    assert site.kept == {}  # all of it counts as it is


def test_who_stopped_and_was_requeued_needs_no_line(site: Site) -> None:
    site.ran("PREEMPTED")
    assert site.say(What.STOPPED, END - 1) == []
    assert (site.log[0][:2], site.kept) == (("run", "preempted"), {T0: END - 1})


def test_what_needs_no_requeue_is_written_down_once_a_minute(site: Site) -> None:
    site.ran("RUNNING", end=UNKNOWN)
    for _ in range(3):
        site.say(What.CHECKPOINT, T0 + 500, state="saved", why="saved at step 40")
    assert site.log == [
        ("checkpoint", "saved", "saved at step 40; 2000 GPU-s saved, as its user says")
    ]
    site.now += 61
    site.say(What.CHECKPOINT, None, state="failed", why="not saved within 5 s")
    assert site.log[1] == ("checkpoint", "failed", "not saved within 5 s")
    assert site.kept == {}


# --- what is not believed -------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["COMPLETED", "CANCELLED", "TIMEOUT"])
def test_a_requeue_that_sacct_does_not_show_is_none(site: Site, state: str) -> None:
    site.ran(state)
    site.say(What.REQUEUE, T0 + 900, state="requeued")
    assert (site.log, site.kept, site.left) == ([], {}, 0)


def test_one_run_is_requeued_once_whoever_tells_it_how_often(site: Site) -> None:
    """Else a user could spend the budget of requeues, and leases would leave his jobs alone."""
    site.ran("REQUEUED")
    site.ran("REQUEUED", start=END + 10, end=END + 50)
    for saved_at in (T0 + 900, T0 + 950, END + 40, END + 40):
        site.say(What.REQUEUE, saved_at, state="requeued")
    assert [step[:2] for step in site.log] == [("requeue", "requeued")] * 2
    assert site.ledger.counters("c")["requeues", "saved"] == 2


def test_a_claim_can_raise_what_is_kept_and_never_lower_it(site: Site) -> None:
    site.ran("REQUEUED")
    site.ledger.keep("c", JOB, T0, until=T0 + 900)
    site.say(What.REQUEUE, T0 + 1, state="requeued")
    assert site.kept == {T0: T0 + 900}


def test_where_work_counts_as_kept_nobodys_word_makes_it_less(site: Site) -> None:
    site.intake.keeps_by_default = True
    site.ran("REQUEUED")
    site.say(What.CONTINUED, T0 + 1)
    assert (site.kept, len(site.log)) == ({}, 1)


@pytest.mark.parametrize("moment", [T0 - 90_000, END + 50, END + 90_000])
def test_a_moment_outside_of_the_run_is_no_checkpoint_of_it(site: Site, moment: int) -> None:
    site.ran("REQUEUED")
    site.say(What.CONTINUED, moment)
    assert (site.log, site.kept) == ([], {})


def test_another_users_job_is_not_his_to_speak_of(site: Site) -> None:
    site.ran("REQUEUED", user="daemon")
    site.say(What.CONTINUED, T0 + 500)
    assert site.left == 1
    site.now += PATIENCE_S
    site.take_in()
    assert (site.log, site.kept, site.left) == ([], {}, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_file_is_the_word_of_whom_it_belongs_to(site: Site) -> None:
    site.ran("REQUEUED")
    site.claims.leave(Claim(JOB, What.CONTINUED, END, saved_at=T0 + 500))
    (name,) = site.claims.names()
    os.chown(site.claims.folder / name, 65534, 65534)
    site.take_in()
    assert (site.log, site.left) == ([], 0)


def test_a_text_speaks_to_no_terminal_and_begins_no_line(site: Site) -> None:
    site.ran("RUNNING", end=UNKNOWN)
    site.say(
        What.CHECKPOINT, None, state="\x1b[2J", why="\x1b]0;x\x07", reason="a\x85b" + "x" * 900
    )
    ((_, state, reason),) = site.log
    assert state == "failed"
    assert reason.isprintable()
    assert len(reason) < 1000


# --- files ----------------------------------------------------------------------------------------


def test_slurms_records_may_come_later(site: Site) -> None:
    site.say(What.CONTINUED, T0 + 500)
    assert (site.log, site.left) == ([], 1)
    site.ran("NODE_FAIL")
    site.take_in()
    assert (site.log[0][:2], site.left) == (("run", "node_fail"), 0)


def test_what_is_no_claim_is_removed_and_what_is_no_name_of_one_is_left(site: Site) -> None:
    name = f"7.{os.geteuid()}.{'a' * 16}"
    (site.claims.folder / name).write_text("format=1\nwhat=everything\n")
    (site.claims.folder / f"7.{os.geteuid()}.{'b' * 16}").symlink_to("/etc/passwd")
    (site.claims.folder / "passwd").write_text("x")
    site.take_in()
    assert [path.name for path in site.claims.folder.iterdir()] == ["passwd"]


def test_a_user_who_floods_the_folder_delays_himself_alone(site: Site) -> None:
    site.ran("REQUEUED")
    for _ in range(OF_ONE + 5):
        site.claims.leave(Claim(JOB, What.CHECKPOINT, END - 5, state="failed"))
    site.take_in()
    assert site.left == 5


def test_where_nobody_takes_claims_none_are_left(tmp_path: Path) -> None:
    Claims(tmp_path).leave(Claim(JOB, What.CONTINUED, END))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_a_folder_of_somebody_elses_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    os.chown(tmp_path / "claims", 65534, 65534)
    with pytest.raises(ProtocolError, match="no folder of ours"):
        Claims(tmp_path).make()
    (tmp_path / "claims").rmdir()
    (tmp_path / "claims").symlink_to("/etc")
    with pytest.raises(ProtocolError, match="no folder of ours"):
        Claims(tmp_path).make()
