"""Which process of a job CRIU writes, in trees of real processes as Slurm has them."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_ltgf.checkpoint.driver import DriverError
from slurm_ltgf.checkpoint.program import Rights, root_of

TREE = """
import json, os, signal, sys, time

def be(one):
    if one.get("session"):
        os.setsid()
    open("/proc/self/comm", "w").write(one["name"])
    own = os.getpid()
    for child in one.get("children", []):
        if os.fork() == 0:
            while one.get("ends") and os.getppid() == own:
                time.sleep(0.01)
            be(child)
    if one.get("ends"):
        os._exit(0)
    os.write(1, f"{one['name']} {os.getpid()}\\n".encode())
    while True:
        signal.pause()

be(json.loads(sys.argv[1]))
"""


def process(name, *children, **more):
    return {"name": name, "children": children, **more}


def session(name, *children):
    return process(name, *children, session=True)


def orphans(*children):
    """Of a parent that has ended."""
    return process("gone", *children, ends=True)


def step(word, *children):
    return f"slurmstepd: [7.{word}]", process("slurmstepd", *children)


def script(*children):
    return step("batch", session("slurm_script", *children))


def count(one):
    return (not one.get("ends")) + sum(map(count, one["children"]))


@contextmanager
def job(*steps):
    """The processes of these steps by name; Slurm's own daemons are not among them."""
    tops, found = [], []
    try:
        for title, tree in steps:
            top = subprocess.Popen(
                [title, "-c", TREE, json.dumps(tree)], executable=sys.executable,
                stdout=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
            tops.append(top)
            for _ in range(count(tree)):
                name, pid = top.stdout.readline().split()
                found.append((name, int(pid)))
        yield {name: pid for name, pid in found if name != "slurmstepd"}
    finally:
        for _, pid in found:
            os.kill(pid, signal.SIGKILL)
        for top in tops:
            top.wait()
            top.stdout.close()


def refused(named, words):
    with pytest.raises(DriverError) as seen:
        root_of(sorted(named.values()))
    assert words in str(seen.value)
    assert "\n" not in str(seen.value)


def test_the_program_is_what_the_wrapper_started():
    with job(script(process("ltgf-ckpt", session("train", process("loader"))))) as named:
        assert root_of(list(named.values())) == named["train"]


def test_sessions_inside_of_the_program_are_its_own():
    workers = [session(f"rank{n}") for n in range(3)]
    with job(script(process("ltgf-ckpt", session("torchrun", *workers)))) as named:
        assert root_of(list(named.values())) == named["torchrun"]


def test_helpers_of_the_script_and_an_ssh_session_are_no_programs():
    helpers = (session("ssh-agent"), process("tee"))
    wrapper = process("ltgf-ckpt", session("train"))
    adopted = "sshd: alice", process("sshd", session("bash"))
    with job(script(wrapper, *helpers), step("extern", process("sleep")), adopted) as named:
        assert root_of(list(named.values())) == named["train"]


def test_what_the_keeper_brought_back_is_a_program():
    keeper = "keeper", process("ltgf-keeper", session("train", process("loader")))
    with job(script(process("ltgf-ckpt")), keeper) as named:
        del named["ltgf-keeper"]  # root's
        assert root_of(list(named.values())) == named["train"]


def test_a_program_that_the_script_started_itself_is_none():
    with job(script(process("train"))) as named:
        refused(named, "0 programs that `ltgf-ckpt run` started")


def test_a_helper_with_a_session_is_not_taken_for_the_program():
    """It would be written and the job requeued: all of its work lost."""
    with job(script(process("train"), session("ssh-agent"))) as named:
        refused(named, "0 programs")


def test_a_child_with_a_session_of_what_srun_started_is_not_taken_for_the_program():
    ranks = [process(f"rank{n}", session(f"server{n}")) for n in range(2)]
    with job(script(process("srun")), step("0", *ranks)) as named:
        refused(named, "runs in step 0 of srun")
    with job(script(process("srun")), step("0", ranks[0])) as named:
        refused(named, "without srun")


def test_the_wrapper_under_srun_is_refused():
    with job(script(process("srun")), step("3", process("ltgf-ckpt", session("train")))) as named:
        refused(named, "step 3 of srun")


def test_srun_inside_of_the_program_is_refused():
    with job(script(process("ltgf-ckpt", session("srun"))), step("0", process("rank0"))) as named:
        refused(named, "(rank0) runs in step 0 of srun")


def test_an_interactive_step_or_one_that_cannot_be_told_is_refused():
    wrapper = process("ltgf-ckpt", session("train"))
    with job(step("interactive", wrapper)) as named:
        refused(named, "step interactive")
    with job(("slurmstepd", process("slurmstepd", wrapper))) as named:
        refused(named, "cannot be read")


def test_two_programs_are_one_too_many():
    two = [process("ltgf-ckpt", session(name)) for name in ("train", "other")]
    with job(script(*two)) as named:
        refused(named, "2 programs")


def test_a_process_that_has_left_the_program_is_told():
    left = orphans(process("logger"))
    with job(script(process("ltgf-ckpt", session("train", left)))) as named:
        refused(named, f"process {named['logger']} (logger) has left the program")


def test_processes_that_are_gone_are_no_trouble():
    with job(script(process("ltgf-ckpt", session("train")))) as named:
        gone = subprocess.Popen(["true"])
        gone.wait()
        assert root_of([gone.pid, *named.values()]) == named["train"]
    with pytest.raises(DriverError, match="0 programs"):
        root_of([gone.pid])


# --- rights ---------------------------------------------------------------------------------------

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@contextmanager
def sleeper(**rights):
    one = subprocess.Popen(["sleep", "60"], **rights)
    try:
        yield one.pid
    finally:
        one.kill()
        one.wait()


@needs_root
def test_a_program_s_rights_are_what_the_user_may_have():
    with sleeper(user=65534, group=65534, extra_groups=[]) as pid:
        assert Rights.of(pid, 65534) == Rights(65534, (65534,))
    more = sleeper(user=65534, group=65534, extra_groups=[0])
    with more as pid, pytest.raises(DriverError, match="group 0, which user 65534 is not in"):
        Rights.of(pid, 65534)
    with pytest.raises(DriverError, match="group 4, which"):
        Rights(65534, (65534, 4)).check()


@needs_root
def test_a_program_that_became_another_user_is_refused():
    one = sleeper(user=65534, group=65534, extra_groups=[])
    with one as pid, pytest.raises(DriverError, match="runs as user 65534"):
        Rights.of(pid, 1234)


@needs_root
def test_criu_has_no_right_to_files_beyond_the_user_s(tmp_path):
    """None of the capabilities that it keeps opens what the user may not open."""
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    for verb in ("dump", "restore"):
        head = Rights(65534, (65534,)).criu("/usr/bin/env", verb)
        argv = [*head[: head.index("--") + 1], "cat", "/proc/self/status", str(secret)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        lines = dict(line.split(":\t", 1) for line in done.stdout.splitlines())
        held = int(lines["CapEff"], 16)
        files = (0, 1, 2, 3, 4, 6, 7, 21, 27)  # chown, dac, fowner, setuid, setgid, admin, mknod
        assert [bit for bit in files if held >> bit & 1] == []
        assert lines["CapEff"] == lines["CapPrm"] == lines["CapAmb"]
        assert set(lines["Uid"].split()) == {"65534"}
        assert "Permission denied" in done.stderr
        assert "root's" not in done.stdout


def test_the_agent_s_unit_hands_on_no_filter_and_no_mounts():
    """What is brought back would have them, and could not be written to disk again."""
    unit = Path(__file__).parents[2] / "etc" / "systemd" / "ltgf-node.service"
    keys = {line.partition("=")[0] for line in unit.read_text().splitlines() if line[:1].isalpha()}
    words = ("Protect", "Private", "Restrict", "SystemCall", "NoNew", "ReadOnly", "Inaccessible")
    assert [key for key in keys if key.startswith(words)] == []
    assert "KillMode" in keys
