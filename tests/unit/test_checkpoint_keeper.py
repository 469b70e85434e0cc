"""Programs to disk and back by a real CRIU, as another user than root; the driver is faked."""

import itertools
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_ltgf.checkpoint import keeper as module
from slurm_ltgf.checkpoint import revive
from slurm_ltgf.checkpoint.board import Board, replace_owned
from slurm_ltgf.checkpoint.criu import Criu, key_in
from slurm_ltgf.checkpoint.driver import DriverError
from slurm_ltgf.checkpoint.keeper import Keeper, enter_cgroup, mapping, wish
from slurm_ltgf.checkpoint.keys import encode
from slurm_ltgf.checkpoint.node import Agent, Processes
from slurm_ltgf.checkpoint.node_files import Job
from slurm_ltgf.checkpoint.node_hands import Room, Tools
from slurm_ltgf.checkpoint.phases import Op, Stage
from slurm_ltgf.checkpoint.processes import below
from slurm_ltgf.checkpoint.program import KEEPER, call_oneself, stat_of
from slurm_ltgf.checkpoint.protocol import Action, Ask, Mode, Phase, withdrawn

UID, JOB = 65534, 7
SOURCE = Path(__file__).parents[2] / "slurm_ltgf"
#: Counts on as long as it is not told to end; has a file open for writing, and the GPU's library.
PROGRAM = """
import mmap, os, sys, time
home, library = sys.argv[1:]
journal = open(home + "/journal", "r+b", buffering=0)
with open(library, "rb") as file:
    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
n = 0
while not os.path.exists(home + "/end"):
    n += 1
    print(n, flush=True)
    time.sleep(0.05)
sys.exit(7)
"""


class FakeGpu:
    """The driver of a program whose GPU memory is on the host; `fails`: what it cannot do."""

    def __init__(self, folder):
        self.folder = folder
        self.said = folder / "acts"

    def state(self, pid):
        path = self.folder / "stage"
        return Stage(path.read_text()) if path.exists() else None

    def act(self, op, pid, timeout_s):
        with self.said.open("a") as file:
            file.write(f"{op} {pid}\n")
        if (self.folder / f"{op}.fails").exists():
            raise DriverError(f"{op} of process {pid}: out of memory")
        after = {Op.RESTORE: Stage.LOCKED, Op.UNLOCK: Stage.RUNNING}[op]
        (self.folder / "stage").write_text(after)


class Site:
    """A node, a user's job on it, and what Slurm says of it."""

    def __init__(self, folder, criu):
        self.folder = folder
        self.library, self.home = folder / "lib", folder / "home"
        self.records, self.gpu = folder / "records", folder / "gpu"
        for path in (self.library, self.home, self.records, self.gpu):
            path.mkdir()
        self.records.chmod(0o1777)
        os.chown(self.home, UID, UID)
        (self.home / "journal").write_bytes(b"mine!")
        (self.home / "journal").chmod(0o640)
        os.chown(self.home / "journal", UID, UID)
        self._lay_out()
        self.said, self.wrappers, self.restored = [], [], set()
        self.criu = self.node("node1", criu)
        self.restart = 0
        self.agent = self.fresh_agent()

    def _lay_out(self):
        package = self.library / "slurm_ltgf"
        shutil.copytree(SOURCE / "checkpoint", package / "checkpoint")
        for name in ("__init__.py", "errors.py"):
            shutil.copy(SOURCE / name, package)
        (self.library / "program.py").write_text(PROGRAM)
        (self.library / "libcuda.so.1").write_bytes(b"x" * mmap.PAGESIZE)
        for path in self.library.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def node(self, name, program):
        """A node's CRIU with a folder and a key of its own."""
        work = self.folder / name
        work.mkdir(mode=0o700, exist_ok=True)
        return Criu(program, work, key_in(work / "key"), lambda: ["GPU-1"])

    @property
    def dir(self):
        return self.home / "ckpt"

    @property
    def job(self):
        return Job(JOB, UID, self.restart, 0, 1, Mode.CRIU, self.dir)

    def run(self, restart=0):
        """A run of the job's batch script."""
        self.restart = restart
        environment = {
            "PATH": "/usr/bin:/bin", "PYTHONPATH": str(self.library), "SLURM_JOB_ID": str(JOB),
            "SLURM_RESTART_COUNT": str(restart), "LTGF_CKPT_MODE": "criu",
            "LTGF_CKPT_DIR": str(self.dir), "LTGF_CKPT_RECORDS": str(self.records),
        }  # fmt: skip
        argv = ["python3", "-m", "slurm_ltgf.checkpoint", "run", "--", "python3"]
        argv += [str(self.library / "program.py"), str(self.home)]
        wrapper = subprocess.Popen(
            [*argv, str(self.library / "libcuda.so.1")], env=environment, cwd=self.home,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            user=UID, group=UID, extra_groups=[], start_new_session=True,
        )  # fmt: skip
        self.wrappers.append(wrapper)
        return wrapper

    def pids(self):
        """As Slurm would tell."""
        if not self.wrappers or stat_of(self.wrappers[-1].pid)[:1] in ([], ["Z"]):
            return frozenset()
        tops = [self.wrappers[-1].pid, *self.restored]
        return frozenset(one.pid for top in tops for one in below(top))

    def fresh_agent(self):
        """One that knows nothing of those before it."""
        (self.folder / "marks").mkdir(exist_ok=True)
        processes = Processes(
            lambda: {JOB: pids} if (pids := self.pids()) else {}, self.said.append
        )
        tools = Tools(
            Board(self.records), FakeGpu(self.gpu), lambda job: self.pids(),
            lambda pids: ("", {}), Room(dict), self.folder / "marks", self.said.append,
            images=self.criu,
        )  # fmt: skip
        return Agent(tools, processes, lambda job: (UID, self.restart, 0, 1))

    def ask(self, action, name="a1", within_s=30):
        now = int(time.time())
        ask = Ask(name, JOB, self.restart, action, now + within_s, now + within_s + 60, now)
        Board(self.records).ask(ask)
        return ask

    def tick(self):
        self.agent._looked_at = None
        self.agent.tick(int(time.time()))
        time.sleep(0.02)

    def until(self, is_so, within_s=40):
        end = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < end, (self.answer(), self.said, self.revived())
            self.tick()

    def until_answer(self, phase, name="a1"):
        def is_said():
            said = self.answer()
            assert said is None or said.phase is phase or said.phase is not Phase.FAILED, said
            return said is not None and (said.phase, said.ask) == (phase, name)

        self.until(is_said)
        return self.answer()

    def until_ready(self):
        self.until(lambda: self.answer() and self.answer().restart == self.restart)
        self.until(lambda: self.count() > 2)

    def answer(self):
        return Board(self.records).answer(JOB, UID)

    def revived(self):
        """What was told of this run."""
        done = revive.told(self.dir / revive.DONE, UID)
        return done if done.get("restart") == str(self.restart) else {}

    def lines(self):
        path = self.dir / revive.OUTPUT
        return path.read_text().split() if path.exists() else []

    def count(self):
        return int((self.lines() or ["0"])[-1])

    def stages(self):
        """Of the program's processes, as the kernel shows them."""
        return {stat_of(pid)[0] for pid in self.pids() if stat_of(pid)}

    def end_run(self):
        """What Slurm does at a requeue; the wrapper and the keeper reap, as its daemon would."""
        wrapper = self.wrappers[-1]
        inside = [pid for pid in self.pids() if pid not in {wrapper.pid, *self.restored}]
        for pid in inside:
            os.kill(pid, signal.SIGKILL)
        self.until(lambda: not any(stat_of(pid) for pid in inside))
        wrapper.kill()
        for pid in self.restored:
            os.waitpid(pid, 0)
        self.restored.clear()
        return wrapper.communicate(timeout=10)[0]

    def keep(self, criu=None, remap=lambda gpus: None):
        """Have a keeper of our own bring it back; its pid."""
        keeper = Keeper(self.job, criu or self.criu, FakeGpu(self.gpu), self.pids, remap)
        self.until(lambda: wish(self.job))
        image = wish(self.job)
        child = os.fork()
        if child == 0:
            try:
                call_oneself(KEEPER)
                keeper.run(image)
            finally:
                os._exit(0)
        self.restored.add(child)
        self.until(lambda: set(self.revived()) & set(revive.ENDED), 20)
        return child

    def to_disk(self, name="a1"):
        """Written and requeued; what it had printed."""
        self.ask(Action.REQUEUE, name)
        answer = self.until_answer(Phase.SAVED, name)
        return answer, self.end_run()


@pytest.fixture
def site(criu):
    folder = Path(tempfile.mkdtemp(prefix="ltgf-keeper."))
    folder.chmod(0o755)
    made = Site(folder, criu)
    yield made
    for pid in made.pids():
        os.kill(pid, signal.SIGKILL)
    for one in made.wrappers:
        one.communicate()
    for pid in made.restored:
        os.waitpid(pid, 0)
    shutil.rmtree(folder)


def is_counting(lines):
    return lines == [str(n) for n in range(1, len(lines) + 1)]


def test_a_program_is_written_and_goes_on(site):
    wrapper = site.run()
    site.until_ready()
    site.ask(Action.CHECKPOINT)
    answer = site.until_answer(Phase.SAVED)
    at = site.count()
    assert (site.dir / answer.name / "SEAL").stat().st_uid == UID
    assert answer.bytes == sum(
        path.stat().st_size
        for path in (site.dir / answer.name).iterdir()
        if path.name != "MANIFEST"
    )
    site.until(lambda: site.count() > at + 3)
    assert "T" not in site.stages()
    site.until(lambda: not any((site.folder / "marks").iterdir()))
    (site.home / "end").touch()
    assert (wrapper.wait(10), is_counting(site.lines())) == (7, True)


def test_a_requeued_program_goes_on_where_it_was_twice(site):
    site.run()
    site.until_ready()
    program = {pid for pid in site.pids() if stat_of(pid)[3] == str(pid)}
    _, first = site.to_disk()
    for restart in (1, 2):
        at = site.count()
        wrapper = site.run(restart)
        site.keep()
        assert int(site.revived().get("pid", 0)) in program, site.revived()
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in program & site.pids()} == {UID}
        site.until(lambda at=at: site.count() > at + 3)
        if restart == 1:
            site.until_ready()
            _, second = site.to_disk("a2")
    (site.home / "end").touch()
    third, said = wrapper.communicate(timeout=10)
    assert wrapper.returncode == 7, said
    assert is_counting(site.lines())
    # what was printed between an image and the kill is printed again, nothing is left out
    printed = [*first.split(), *second.split(), *third.split()]
    assert set(printed) == set(site.lines())


def test_another_node_with_the_same_key_brings_it_back(site, criu):
    site.run()
    site.until_ready()
    site.to_disk()
    other = replace(site.node("node2", criu), key=site.criu.key, gpus=lambda: ["GPU-2"])
    (site.gpu / "stage").write_text("checkpointed")
    at = site.count()
    site.run(1)
    site.keep(other, remap=lambda gpus: (site.gpu / "map").write_text(repr(gpus)))
    site.until(lambda: site.count() > at + 3)
    acts = [line.split()[0] for line in (site.gpu / "acts").read_text().splitlines()]
    assert (acts, (site.gpu / "map").read_text()) == (["restore", "unlock"], "{'GPU-1': 'GPU-2'}")


def test_another_node_without_the_key_does_not(site, criu):
    site.run()
    site.until_ready()
    site.to_disk()
    wrapper = site.run(1)
    site.keep(site.node("node2", criu))
    assert wrapper.wait(10) == revive.NOT_REVIVED
    assert "not sealed by this node" in wrapper.stderr.read()


def test_a_gpu_that_cannot_take_it_back_ends_the_program_with_the_reason(site):
    site.run()
    site.until_ready()
    site.to_disk()
    (site.gpu / "stage").write_text("checkpointed")
    (site.gpu / "restore.fails").touch()
    wrapper = site.run(1)
    site.keep()
    assert wrapper.wait(10) == revive.NOT_REVIVED
    assert "restore of process" in wrapper.stderr.read()
    assert site.pids() == frozenset()


def test_a_link_that_was_laid_since_gives_no_file_of_root_s(site):
    """CRIU follows links, and compares size and mode alone: as root it would open the secret."""
    site.run()
    site.until_ready()
    (root,) = (pid for pid in site.pids() if stat_of(pid)[1] == str(site.wrappers[-1].pid))
    site.to_disk()
    secret = site.folder / "secret"
    secret.write_bytes(b"root!")
    secret.chmod(0o640)
    (site.home / "journal").rename(site.home / "old")
    (site.home / "journal").symlink_to(secret)
    wrapper = site.run(1)
    site.keep()
    assert "Permission denied" in site.revived()["why"]
    assert wrapper.wait(10) == revive.NOT_REVIVED
    site.until(lambda: not stat_of(root))
    (site.home / "journal").unlink()  # without it all is well
    (site.home / "old").rename(site.home / "journal")
    at = site.count()
    site.run(2)
    site.keep()
    site.until(lambda: site.count() > at + 3)


def test_a_changed_image_is_not_restored(site):
    site.run()
    site.until_ready()
    answer, _ = site.to_disk()
    (pages,) = (site.dir / answer.name).glob("pages-1.img")
    with pages.open("r+b") as file:
        byte = file.read(1)
        file.seek(0)
        file.write(bytes([byte[0] ^ 1]))
    wrapper = site.run(1)
    site.keep()
    assert "pages-1.img was changed" in site.revived()["why"]
    assert wrapper.wait(10) == revive.NOT_REVIVED


def test_a_program_in_a_group_that_its_user_has_left_is_not_restored(site):
    site.run()
    site.until_ready()
    site.to_disk()
    site.run(1)
    image = (site.dir / "last").readlink().name
    seal = module.fetch(image, site.job, Path(tempfile.mkdtemp(dir=site.folder)), site.criu.key)
    again = site.dir / image
    for name in ("SEAL", "MANIFEST"):
        (again / name).unlink()
    replace(seal, gids=(UID, 4)).write(again, site.criu.key)
    os.chown(again / "SEAL", UID, -1)
    site.keep()
    assert "group 4, which user 65534 is not in" in site.revived()["why"]


# --- agents and keepers that are killed -----------------------------------------------------------


def slow(site, criu, before="", after=""):
    """A CRIU that takes its time."""
    program = site.library / "slow-criu"
    program.write_text(
        f"""#!/bin/sh
{before}
if [ "$1" = restore ]; then exec {criu} "$@"; fi  # its child is to be ours
{criu} "$@"
code=$?
{after}
exit $code
"""
    )
    program.chmod(0o755)
    site.criu = replace(site.criu, program=str(program))


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("is_withdrawn", [True, False])
def test_an_agent_killed_while_criu_writes_leaves_nothing_stopped(site, criu, moment, is_withdrawn):
    slow(site, criu, **{moment: "sleep 1"})
    site.run()
    site.agent = site.fresh_agent()
    site.until_ready()
    ask = site.ask(Action.REQUEUE)
    child = os.fork()
    if child == 0:  # the agent that will be killed
        while True:
            site.tick()
    end = time.monotonic() + 10
    while "T" not in site.stages() if moment == "after" else not site.criu.is_busy(JOB):
        assert time.monotonic() < end
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if is_withdrawn:
        Board(site.records).ask(withdrawn(ask, Action.GO_ON, int(time.time())))
    site.agent = site.fresh_agent()
    if is_withdrawn:
        site.until(lambda: not any((site.folder / "marks").iterdir()))
    else:
        site.until_answer(Phase.SAVED)
        site.end_run()
        at = site.count()
        site.run(1)
        site.keep()
        site.until(lambda: site.count() > at + 3)
    assert "T" not in site.stages()
    at = site.count()
    site.until(lambda: site.count() > at + 3)


def test_a_keeper_that_was_killed_in_its_copying_is_followed_by_another(site, criu):
    site.run()
    site.until_ready()
    site.to_disk()
    at = site.count()
    site.run(1)
    site.until(lambda: wish(site.job))
    slow(site, criu, before="sleep 60")
    child = os.fork()
    if child == 0:
        Keeper(site.job, site.criu, FakeGpu(site.gpu), site.pids, print).run(wish(site.job))
    site.until(lambda: "began" in site.revived())
    time.sleep(0.5)
    sleeps = [one.pid for one in below(child)]
    for pid in sleeps:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(child, 0)
    slow(site, criu)
    site.keep()
    site.until(lambda: site.count() > at + 3)


def test_only_one_keeper_brings_a_job_back(site):
    site.run()
    site.until_ready()
    site.to_disk()
    site.run(1)
    site.until(lambda: wish(site.job))
    with site.criu.locked(JOB):
        Keeper(site.job, site.criu, FakeGpu(site.gpu), site.pids, print).run(wish(site.job))
    assert site.revived() == {}
    site.keep()
    assert wish(site.job) == ""
    assert not site.criu.is_busy(JOB)
    site.end_run()
    site.until(lambda: not site.agent._jobs)
    assert sorted(path.name for path in site.criu.work.iterdir()) == ["key"]


def test_a_pause_of_a_program_without_a_gpu_is_refused_not_feigned(site):
    site.run()
    site.until_ready()
    site.ask(Action.PAUSE)
    site.until(lambda: site.answer().phase is Phase.REFUSED)
    assert "there is nothing to pause" in site.answer().why


# --- without CRIU ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (["a", "b"], ["b", "a"], {}),
        (["a", "b"], ["c", "d"], {"a": "c", "b": "d"}),
        (["a"], ["a", "b"], "a node with 1 GPUs, this one has 2"),
        ([], [], {}),
    ],
)
def test_gpus_take_each_other_s_places(before, now, says):
    if isinstance(says, dict):
        assert mapping(before, now) == says
        return
    with pytest.raises(DriverError, match=says):
        mapping(before, now)


@pytest.fixture
def cgroups(monkeypatch):
    """A folder of the kernel's for Slurm's own: cgroups of steps, as Slurm makes them."""
    top = next((p for p in (module.CGROUPS, module.CGROUPS / "unified")
                if (p / "cgroup.procs").exists()), None)  # fmt: skip
    own = top / f"ltgf-test-{os.getpid()}" if top else Path()
    try:
        (own / "job_7").mkdir(parents=True)
    except OSError as exc:
        pytest.skip(f"no cgroup (version 2) can be made: {exc}")
    monkeypatch.setattr(module, "CGROUPS", top)
    yield own
    for path in sorted(own.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
    own.rmdir()


def test_the_keeper_enters_a_cgroup_of_the_job_and_of_no_other(cgroups):
    def sleeper(group):
        (cgroups / group).mkdir(parents=True)
        one = subprocess.Popen(["sleep", "60"])
        (cgroups / group / "cgroup.procs").write_text(str(one.pid))
        return one

    def entered(job_id, *processes):
        child = os.fork()
        if child == 0:
            is_in = enter_cgroup(job_id, [one.pid for one in processes])
            group = Path("/proc/self/cgroup").read_text().partition("0::")[2].split()[0]
            os.write(writer, f"{is_in} {group}".encode())
            os._exit(0)
        os.waitpid(child, 0)
        return os.read(reader, 1000).decode().split()

    reader, writer = os.pipe()
    extern = sleeper("job_7/step_extern/user/task_special")
    batch = sleeper("job_7/step_batch/user/task_0")
    other = sleeper("job_77/step_batch/user/task_0")
    try:
        both = entered(7, extern, batch, other)
        assert both == ["True", f"/{cgroups.name}/job_7/step_batch/user/task_0"]
        assert entered(7, extern)[1].endswith("/step_extern/user/task_special")
        assert entered(7, other)[0] == "False"
        assert entered(7)[0] == "False"
    finally:
        for one in (extern, batch, other):
            one.kill()
            one.wait()
        os.close(reader)
        os.close(writer)


def job_of(folder, restart=1):
    return Job(JOB, os.geteuid(), restart, 0, 1, Mode.CRIU, folder)


@pytest.mark.parametrize(
    ("asked", "done", "image"),
    [
        ({"restart": 1, "image": "step-1"}, None, "step-1"),
        ({"restart": 0, "image": "step-1"}, None, ""),
        ({"restart": 1, "image": "step-1"}, {"restart": 0, "pid": 5}, "step-1"),
        ({"restart": 1, "image": "step-1"}, {"restart": 1, "began": 5}, "step-1"),
        ({"restart": 1, "image": "step-1"}, {"restart": 1, "pid": 5}, ""),
        ({"restart": 1, "image": "step-1"}, {"restart": 1, "why": "no"}, ""),
        ({"restart": 1}, None, ""),
        (None, None, ""),
    ],
)
def test_a_wish_is_of_this_run_and_not_yet_answered(tmp_path, asked, done, image):
    for name, keys in ((revive.WISH, asked), (revive.DONE, done)):
        if keys is not None:
            replace_owned(tmp_path / name, encode(keys), mode=0o600)
    assert wish(job_of(tmp_path)) == image


def test_a_wish_that_is_a_link_is_none(tmp_path):
    replace_owned(tmp_path / "real", encode({"restart": 1, "image": "x"}))
    (tmp_path / revive.WISH).symlink_to("real")
    assert wish(job_of(tmp_path)) == ""


class Waits:
    """The wrapper's look at what the keeper tells."""

    def __init__(self, folder):
        self.folder, self.said = folder, []
        self.waits = revive._Waits(folder / revive.DONE, "1", self.said.append)

    def told(self, **keys):
        replace_owned(self.folder / revive.DONE, encode({"restart": 1, **keys}))
        return self.waits.code()


def test_the_wrapper_waits_for_a_copy_longer_than_for_an_agent(tmp_path, monkeypatch):
    monkeypatch.setattr(revive, "BEGIN_S", 0.0)
    waits = Waits(tmp_path)
    assert waits.told(began=1) is None
    monkeypatch.setattr(revive, "COPY_S", 0.0)
    assert waits.told(began=1) == revive.NOT_REVIVED
    assert "no agent (ltgf node) did it on this node within 0 s" in waits.said[0]


def test_without_an_agent_the_wrapper_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(revive, "BEGIN_S", 0.0)
    waits = Waits(tmp_path)
    assert waits.waits.code() == revive.NOT_REVIVED
    assert len(waits.said) == 1


def test_the_wrapper_s_exit_code_is_the_program_s(tmp_path):
    waits = Waits(tmp_path)
    assert waits.told(pid=os.getpid()) is None
    assert waits.waits.pid() == os.getpid()
    assert waits.told(pid=1, code=3) == 3
    assert waits.told(why="no memory") == revive.NOT_REVIVED
    assert waits.said == ["not brought back: no memory"]


def test_a_program_that_is_gone_without_a_code_does_not_keep_the_job_for_ever(
    tmp_path, monkeypatch
):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    monkeypatch.setattr(revive, "GONE_S", 0.3)
    waits = Waits(tmp_path)
    codes = []
    for _ in itertools.takewhile(lambda _: not codes or codes[-1] is None, range(20)):
        codes.append(waits.told(pid=gone.pid))
        time.sleep(0.1)
    assert codes[0] is None
    assert codes[-1] == revive.NOT_REVIVED
    assert "nobody was there to see how" in waits.said[0]
