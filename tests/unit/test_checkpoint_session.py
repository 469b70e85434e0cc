"""Sessions of real processes: asked, killed, continued; ranks that hang, die, or fill disks."""

import ctypes
import errno
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from slurm_ltgf import checkpoint
from slurm_ltgf.checkpoint.archive import MANIFEST, Archive, DamagedCheckpoint, check
from slurm_ltgf.checkpoint.claims import Claims, What
from slurm_ltgf.checkpoint.protocol import Action, Phase, withdrawn
from slurm_ltgf.errors import UsageError
from tests.training import JOB, Training, steps_kept


@pytest.fixture
def training(tmp_path):
    found = Training(tmp_path)
    yield found
    for process in found.processes:
        process.kill()
        if not process.stderr.closed:
            process.communicate()


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_checkpoint_is_made_and_the_training_goes_on(training, ranks):
    training.ranks = ranks
    training.start()
    assert training.ready().ranks == ranks
    ask = training.ask(Action.CHECKPOINT)
    answer = training.answer(Phase.SAVED, ask=ask.id)
    found = Archive(training.folder).read(answer.name)
    assert (found.step, found.ranks) == (answer.step, ranks)
    assert sorted(found.files) == [f"rank-{rank}.json" for rank in range(ranks)]
    check(found, checksums=True)
    assert answer.bytes == found.bytes > 0
    training.wait()
    training.check()


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_requeued_job_continues_where_it_was_saved(training, ranks):
    training.ranks = ranks
    training.start()
    for planned in (True, False, True):
        training.ready()
        ask = training.ask(Action.REQUEUE if planned else Action.CHECKPOINT)
        saved = training.answer(Phase.SAVED, ask=ask.id)
        if planned:
            time.sleep(0.5)
            assert training.processes[0].poll() is None, "it holds until it is killed"
        training.kill()
        training.start()
    training.ready()
    said = training.wait()
    assert f"restart 3: continues from step {saved.step}, as planned" in said[0]
    training.check()


def test_who_holds_in_vain_goes_on(training):
    training.ranks = 2
    training.start()
    training.ready()
    ask = training.ask(Action.REQUEUE, hold_s=3)
    saved = training.answer(Phase.SAVED, ask=ask.id)
    training.answer(Phase.GOING, ask=ask.id, within_s=10)
    training.wait()
    training.check()
    assert str((training.folder / "last").readlink()) == saved.name


def test_an_ask_taken_back_ends_the_hold(training):
    training.ranks = 2
    training.start()
    training.ready()
    ask = training.ask(Action.REQUEUE, hold_s=600)
    training.answer(Phase.SAVED, ask=ask.id)
    training.board.ask(withdrawn(ask, Action.GO_ON, int(time.time())))
    training.answer(Phase.GOING, ask=ask.id, within_s=5)
    again = training.ask(Action.CHECKPOINT)
    training.answer(Phase.SAVED, ask=again.id)
    training.wait()
    training.check()


def test_an_ask_for_another_run_is_not_meant(training):
    training.steps = 1500
    training.start()
    training.ready()
    training.ask(Action.REQUEUE, restart=1)
    training.wait()
    training.check()
    assert steps_kept(training.folder) == []


def test_a_rank_that_hangs_makes_no_checkpoint_and_all_go_on(training):
    training.ranks = 3
    training.start()
    training.ready()
    first = training.ask(Action.CHECKPOINT)
    kept = training.answer(Phase.SAVED, ask=first.id)
    (training.folder / "fault-2").write_text("hang 6")
    ask = training.ask(Action.REQUEUE, within_s=3)
    answer = training.answer(Phase.FAILED, ask=ask.id)
    assert answer.why == "not written in time: rank [2]"
    assert str((training.folder / "last").readlink()) == kept.name
    training.wait()
    training.check()


def test_a_rank_that_dies_leaves_the_checkpoint_before(training):
    training.ranks = 3
    training.start()
    training.ready()
    first = training.ask(Action.CHECKPOINT)
    kept = training.answer(Phase.SAVED, ask=first.id)
    (training.folder / "fault-1").write_text("die")
    ask = training.ask(Action.REQUEUE, within_s=3)
    training.answer(Phase.FAILED, ask=ask.id)
    training.kill()
    training.start()
    training.ready()
    said = training.wait()
    assert (
        f"unplanned (killed, preempted, or the node failed); continues from step {kept.step}"
        in (said[0])
    )
    training.check()


def test_started_again_under_the_same_number_it_does_not_heed_what_was_left(training):
    training.ranks = 3
    for _ in range(3):
        training.start()
        training.answer(Phase.READY)
        ask = training.ask(Action.CHECKPOINT)
        training.answer(Phase.SAVED, ask=ask.id)
        training.kill()
        training.board.clear(JOB)
        (training.folder / f"{JOB}.{os.geteuid()}.answer").unlink()
        training.restart -= 1
    training.start()
    training.wait()
    training.check()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_full_disk_is_said_and_the_job_goes_on(training, rank):
    training.ranks = 2
    training.start()
    training.ready()
    (training.folder / f"fault-{rank}").write_text("full")
    ask = training.ask(Action.REQUEUE)
    answer = training.answer(Phase.FAILED, ask=ask.id)
    assert f"rank {rank}" in answer.why
    assert "No space left on device" in answer.why
    said = training.wait()
    assert "No space left on device" in said[rank]
    training.check()
    assert steps_kept(training.folder) == []


DEAF = """
import time
from slurm_ltgf import checkpoint
ckpt = checkpoint.session(ranks=2)
for step in range(700):
    time.sleep(0.01)
    assert not ckpt.requested(step)
"""


def test_a_rank_without_a_session_is_named(training, monkeypatch):
    training.restart = 0
    monkeypatch.setenv("SLURM_JOB_ID", str(JOB))
    monkeypatch.setenv("LTGF_CKPT_DIR", str(training.folder))
    with subprocess.Popen([sys.executable, "-c", DEAF], env=os.environ) as process:
        training.ready()
        ask = training.ask(Action.CHECKPOINT, within_s=3)
        why = training.answer(Phase.FAILED, ask=ask.id).why
    assert (why, process.returncode) == ("not heard of within the time: rank 1", 0)


def test_a_program_that_does_not_look_in_time_is_answered_for(training):
    training.ranks, training.steps, training.step_ms = 2, 40, 250
    training.start()
    training.ready()
    training.processes[1].send_signal(signal.SIGSTOP)
    ask = training.ask(Action.CHECKPOINT, within_s=2)
    time.sleep(4)
    training.processes[1].send_signal(signal.SIGCONT)
    assert "its time was over" in training.answer(Phase.REFUSED, ask=ask.id).why
    training.wait()
    training.check()


@pytest.mark.parametrize("rank", [0, 2])
def test_slurms_signal_to_any_rank_saves_all_and_ends_the_program(training, rank):
    training.ranks, training.steps = 3, 100000
    training.start()
    training.ready()
    time.sleep(0.3)
    for _ in range(2):
        training.processes[rank].send_signal(signal.SIGUSR2)
    training.wait()
    answer, found = training.answer(Phase.STOPPED), Archive(training.folder).last(say=print)
    assert (answer.name, answer.step, answer.bytes) == (found.name, found.step, found.bytes)
    training.steps = found.step + 50
    training.start()
    assert "as planned" in training.wait()[0]
    training.check()


def test_what_slurm_stopped_and_what_goes_on_is_left_for_the_sites_books(training):
    claims = Claims(training.folder)  # the site's board and the job's own folder in one
    training.extra, training.steps = {"LTGF_CKPT_RECORDS": str(training.folder)}, 100000
    for _ in range(2):
        training.start()
        training.ready()
        training.processes[0].send_signal(signal.SIGUSR2)
        training.wait()
        assert claims.folder.exists() == (training.restart == 1)  # where nobody takes any, none
        claims.make()
    found = [claims.read(name)[1] for name in claims.names()]
    told = {claim.what: claim for claim in found}
    assert (len(found), set(told)) == (2, {What.CONTINUED, What.STOPPED})
    went_on, stopped = told[What.CONTINUED], told[What.STOPPED]
    assert went_on.step < stopped.step
    assert went_on.saved_at <= went_on.time <= stopped.saved_at <= stopped.time


def test_an_interval_makes_checkpoints_and_two_are_kept(training):
    training.ranks, training.steps, training.extra = 2, 6000, {"LTGF_CKPT_INTERVAL_S": "1"}
    training.start()
    training.wait()
    training.check()
    assert len(steps_kept(training.folder)) == 2
    assert not list(training.folder.glob(".new-*"))


# --- killed at any moment -------------------------------------------------------------------------

COMMITS = """
import sys
from slurm_ltgf import checkpoint
ckpt = checkpoint.session()
step = ckpt.step
if ckpt.last:
    assert (ckpt.last / "a").read_text() == f"a{step}" * 1000, step
    assert (ckpt.last / "b").read_text() == f"b{step}" * 1000, step
print("ready", flush=True)
while True:
    step += 1
    with ckpt.commit(step) as folder:
        (folder / "a").write_text(f"a{step}" * 1000)
        (folder / "b").write_text(f"b{step}" * 1000)
"""


def test_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    env = {**os.environ, "LTGF_CKPT_DIR": str(tmp_path / "ckpt")}
    env.pop("SLURM_JOB_ID", None)
    chance = random.Random(5)
    step = 0
    for _ in range(60):
        process = subprocess.Popen(
            [sys.executable, "-c", COMMITS], env=env, stdout=subprocess.PIPE, stderr=None, text=True
        )
        assert process.stdout.readline() == "ready\n", "it could not continue"
        time.sleep(chance.random() * 0.03)
        process.kill()
        process.communicate()
        found = Archive(tmp_path / "ckpt").last()
        if found is not None:
            assert found.step >= step
            step = found.step
    assert step > 60


# --- one process, no Slurm ------------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path, monkeypatch):
    for name in ("SLURM_JOB_ID", "RANK", "WORLD_SIZE", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    before = signal.getsignal(signal.SIGUSR2)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    signal.signal(signal.SIGUSR2, before)


def save(ckpt, step, text="x"):
    with ckpt.commit(step) as folder:
        (folder / "part").mkdir(exist_ok=True)
        (folder / "part" / "file").write_text(text)
    return ckpt.saved


def test_a_session_may_name_signal_and_times_itself(alone, monkeypatch):
    monkeypatch.setenv("LTGF_CKPT_TIMEOUT_S", "7")
    monkeypatch.setenv("LTGF_CKPT_SIGNAL", "USR1@60")
    place = checkpoint.session().place
    assert (place.signal, place.timeout_s, place.interval_s) == ("USR1", 7, None)
    place = checkpoint.session(signal="SIGUSR2", timeout_s=90, interval_s=3600).place
    assert (place.signal, place.timeout_s, place.interval_s) == ("USR2", 90, 3600)
    before = signal.getsignal(signal.SIGUSR2)
    assert checkpoint.session(signal="").place.signal == ""
    assert signal.getsignal(signal.SIGUSR2) == before
    with pytest.raises(UsageError, match="signal 'USR9': must be a signal's name"):
        checkpoint.session(signal="USR9")


def test_outside_of_slurm_it_saves_into_a_folder_here(alone):
    ckpt = checkpoint.session(notes={"run": "wandb-1"})
    assert (ckpt.last, ckpt.step, ckpt.is_restart) == (None, 0, False)
    assert save(ckpt, 7)
    again = checkpoint.session()
    assert again.last == alone / "ltgf-ckpt" / "local" / "step-000000007"
    assert (again.step, again.is_restart, again.notes) == (7, True, {"run": "wandb-1"})


def test_the_same_step_twice_gets_another_name(alone):
    ckpt = checkpoint.session()
    for text in "abc":
        assert save(ckpt, 7, text)
    assert (checkpoint.session().last / "part" / "file").read_text() == "c"
    assert steps_kept(alone / "ltgf-ckpt" / "local") == ["step-000000007.1", "step-000000007.2"]


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "manifest"])
def test_a_damaged_checkpoint_is_passed_over(alone, harm, capfd):
    ckpt = checkpoint.session()
    save(ckpt, 1)
    save(ckpt, 2, "yy")
    file = ckpt.last / "part" / "file"
    if harm == "flip":
        file.write_text("yz")
    elif harm == "cut":
        file.write_text("y")
    elif harm == "remove":
        file.unlink()
    else:
        (ckpt.last / MANIFEST).write_text("{")
    assert checkpoint.session().step == 1
    said = capfd.readouterr().err
    assert "checkpoint step-000000002 is passed over" in said
    with pytest.raises(DamagedCheckpoint):
        check(Archive(ckpt.place.folder).read("step-000000002"), checksums=True)


def test_a_disk_that_is_full_while_it_saves_keeps_the_old_one(alone):
    ckpt = checkpoint.session()
    save(ckpt, 1)
    with ckpt.commit(2) as folder:
        (folder / "half").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "half"))
    assert not ckpt.saved
    assert checkpoint.session().step == 1
    assert not list(ckpt.place.folder.glob(".new-*"))


def test_the_programs_own_mistake_is_raised(alone):
    ckpt = checkpoint.session()
    with pytest.raises(KeyError), ckpt.commit(2):
        raise KeyError("model")
    assert not ckpt.saved


def test_a_handler_that_was_there_is_called_too(alone):
    seen = []
    signal.signal(signal.SIGUSR2, lambda *_: seen.append(1))
    ckpt = checkpoint.session()
    os.kill(os.getpid(), signal.SIGUSR2)
    assert ckpt.requested(1)
    assert save(ckpt, 1)
    assert (ckpt.must_stop, seen) == (True, [1])


def test_a_handler_that_takes_the_signal_away_is_said(alone, capfd):
    ckpt = checkpoint.session()
    signal.signal(signal.SIGUSR2, lambda *_: None)
    ckpt.requested(1)
    assert "another handler took SIGUSR2" in capfd.readouterr().err


def test_a_library_that_unset_the_handler_does_not_make_the_signal_deadly(alone, capfd):
    ckpt = checkpoint.session()
    unset = ctypes.CDLL(None).signal
    unset.argtypes, unset.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    unset(signal.SIGUSR2, None)
    ckpt.requested(1)
    assert "had unset the handler of SIGUSR2: it is set again" in capfd.readouterr().err
    os.kill(os.getpid(), signal.SIGUSR2)
    assert ckpt.requested(2)


def test_asking_costs_less_than_a_microsecond(alone):
    ckpt = checkpoint.session()
    ckpt.requested(0)
    began = time.perf_counter()
    for step in range(200_000):
        ckpt.requested(step)
    assert (time.perf_counter() - began) / 200_000 < 2e-6


def test_the_import_is_light():
    code = (
        "import sys; import slurm_ltgf.checkpoint; loaded = {n.split('.')[0] for n in sys.modules};"
        "print(*loaded & {'numpy', 'torch', 'msgspec', 'rich', 'sqlite3', 'subprocess'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_folder_that_cannot_be_made_is_named(alone):
    (alone / "file").write_text("")
    with pytest.raises(checkpoint.BoardError, match="cannot be the checkpoint folder"):
        checkpoint.session(folder=alone / "file" / "ckpt")


def test_what_is_lost_from_the_board_comes_back(training):
    training.steps = 40000
    training.start()
    training.ready()
    for path in training.folder.glob(f"{JOB}.*"):
        path.unlink()
    training.answer(Phase.READY, within_s=15)
    assert training.board.record(JOB, os.geteuid()) is not None
    ask = training.ask(Action.CHECKPOINT)
    training.answer(Phase.SAVED, ask=ask.id)


def test_the_record_is_there_when_no_plugin_wrote_it(training):
    training.start()
    training.ready()
    record = training.board.record(JOB, os.geteuid())
    assert (record.mode, record.dir, record.restart) == ("app", training.folder, 0)
    training.wait()
