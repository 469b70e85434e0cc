"""The SPANK plugin on a real Slurm: options, their sources, MPS from prolog to epilog, records."""

from __future__ import annotations

import os
import re
import signal
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab import Lab, call, wait_until
from spank_site import SHOW, Site, build, variables

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster
GPU = "--gres=gpu:1"
TRIXIE = "/var/cache/ltgf/trixie"


SERIES = ["cluster", pytest.param("trixie", marks=pytest.mark.trixie)]


@pytest.fixture(scope="module", params=SERIES)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    lab: Lab = request.getfixturevalue(request.param)
    headers = "/usr/include" if request.param == "cluster" else f"{TRIXIE}/usr/include"
    site = Site(lab, tmp_path_factory.mktemp("spank"), headers)
    assert build(site.built, SLURM_INCLUDE=headers).returncode == 0
    site.install()
    yield site
    site.uninstall()


@pytest.fixture(autouse=True)
def orders(site: Site) -> Iterator[None]:
    """Each test begins and ends with the usual plugstack.conf and a well-behaved daemon."""
    yield
    site.mode.unlink(missing_ok=True)
    site.plugstack()


def test_a_job_that_asks_nothing_gets_nothing(site: Site) -> None:
    found = site.variables(GPU)
    assert set(found) == {"CUDA_VISIBLE_DEVICES"}
    assert not list(site.rundir().glob("[0-9]*"))


def test_the_cost_at_task_start_is_below_a_millisecond(site: Site) -> None:
    if TRIXIE in site.headers:
        pytest.skip("24.11 shows a node's debug lines to root and SlurmUser alone")
    took = []
    for _ in range(5):
        done = site.as_user("srun", "--slurmd-debug=debug", GPU, "true")
        took += [int(us) for us in re.findall(r"task_init took (\d+) us", done.stderr)]
    assert len(took) == 5
    assert min(took) < 1000, took


def test_mps_gives_a_daemon_of_the_jobs_own(site: Site) -> None:
    mapped = site.lab.state / "map.n1"
    find = f"grep -x $SLURM_JOB_ID {mapped}/0"
    script = f"{SHOW}; stat -c '%U %a' $CUDA_MPS_PIPE_DIRECTORY; {find}"
    text = site.srun(
        "--mps", "--mps-mem=12%", "--mps-threads=30", "--gres=gpu:2", "-wn1", script=script
    )
    found = variables(text)
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in found  # two GPUs alike: the daemon holds it
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert found["CUDA_MPS_PIPE_DIRECTORY"].startswith(f"{site.rundir()}/")
    owner, job = text.splitlines()[-2:]
    assert owner == "alice 700"
    site.gone(int(job))
    wait_until(lambda: not list(mapped.iterdir()), 10, lambda: f"{list(mapped.iterdir())} are left")


@pytest.mark.parametrize(
    ("args", "limits"),
    [
        pytest.param(["--mps-mem=4G", "-n3", GPU], ["0=1365M"] * 3, id="per job"),
        pytest.param(["--mps-mem=4G,per-task", "-n3", GPU], ["0=4096M"] * 3, id="per task"),
        pytest.param(["--mps-mem=4G", "-n2", "--gres=gpu:2"], [], id="dealt, held by the daemon"),
        pytest.param(
            ["--mps-mem=4G", "-n4", "--gres=gpu:2", "--gpu-bind=single:2"], ["0=2048M"] * 4,
            id="bound tasks",
        ),
        pytest.param(["--mps-mem=auto", "-n2", "--gres=mps:50"], ["0=20480M"] * 2, id="half"),
        pytest.param(["--mps-mem=auto", GPU], [], id="a whole GPU has no limit"),
    ],
)  # fmt: skip
def test_memory_limits_are_the_jobs_or_the_tasks(
    site: Site, args: list[str], limits: list[str]
) -> None:
    text = site.srun("--mps", "-N1", *args, script="echo $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
    assert text.split() == limits


def test_more_tasks_than_mps_takes_clients_end_the_step(site: Site) -> None:
    """Field case MPS-08: the 61st client would fail at its context, with nothing said."""
    site.plugstack("clients=2")
    assert len(site.srun("--mps", "-N1", "-n2", GPU, script="echo ok").split()) == 2
    done = site.as_user("srun", "--mps", "-N1", "-n3", GPU, "true")
    assert done.returncode == 1
    assert "3 tasks of this step share a GPU, whose MPS takes 2 clients" in done.stderr
    assert len(site.srun("--mps", "-N1", "-n3", "--gres=gpu:2", script="echo ok").split()) == 3


def test_threads_auto_is_the_share_of_gres_mps(site: Site) -> None:
    found = site.variables("--mps", "--mps-threads=auto", "--gres=mps:40")
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "40"
    assert site.variables("--mps", "--gres=mps:40")["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "40"


PRECEDENCE = {
    "site": ([], "", {}, "77"),
    "environment over site": ([], "", {"LTGF_MPS_THREADS": "20"}, "20"),
    "#SBATCH over environment": ([], "30", {"LTGF_MPS_THREADS": "20"}, "30"),
    "command line over #SBATCH": (["--mps-threads=40"], "30", {"LTGF_MPS_THREADS": "20"}, "40"),
    "without the environment": (["--export=NONE", "--mps-threads=41"], "", {}, "41"),
    "unexported environment": (["--export=NONE"], "", {"LTGF_MPS_THREADS": "42"}, "42"),
    "one variable exported": (["--export=FOO=1", "--mps-threads=43"], "", {}, "43"),
}  # fmt: skip


def test_command_line_over_sbatch_over_environment_over_site(site: Site) -> None:
    site.plugstack("mps-threads=77")
    jobs = {}
    for name, (args, line, env, _) in PRECEDENCE.items():
        first = f"#SBATCH --mps-threads={line}\n" if line else ""
        script = f"{first}PATH=/usr/bin:/bin\n{SHOW}"
        jobs[name] = site.submit("--mps=job", GPU, *args, script=script, **env)
    found = {
        name: variables(site.output(job))["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
        for name, job in jobs.items()
    }
    assert found == {name: wanted for name, (*_, wanted) in PRECEDENCE.items()}


def test_the_environment_alone_asks_for_mps_and_the_line_takes_it_back(site: Site) -> None:
    assert "CUDA_MPS_PIPE_DIRECTORY" in site.variables(GPU, LTGF_MPS="job")
    assert "CUDA_MPS_PIPE_DIRECTORY" not in site.variables(GPU, "--mps=off", LTGF_MPS="job")


def test_a_site_default_says_nothing_to_a_job_without_gpus(site: Site) -> None:
    site.plugstack("mps=job")
    site.restart("slurmd:n3")
    assert "CUDA_MPS_PIPE_DIRECTORY" in site.variables(GPU, "-wn3")
    assert site.srun("-wn3", script="echo ran") == "ran\n"


def test_steps_inherit_override_and_leave_out(site: Site) -> None:
    step = "srun {} sh -c 'echo {}=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE,$CUDA_MPS_PIPE_DIRECTORY'"
    steps = {"A": "", "B": "--mps-threads=20", "C": "--mps=off", "D": "--overlap"}
    script = "; ".join(step.format(args, name) for name, args in steps.items())
    batch = variables(site.output(site.submit("--mps", "--mps-threads=50", GPU, script=script)))
    alloc = site.as_user("salloc", "--mps", "--mps-threads=50", GPU, "bash", "-c", script)
    for found in (batch, variables(alloc.stdout)):
        pipe = found["A"].partition(",")[2]
        assert pipe
        assert found["A"] == found["D"] == f"50,{pipe}"
        assert found["B"] == f"20,{pipe}"
        assert found["C"].endswith(",")


def test_a_step_cannot_have_what_its_job_did_not_ask(site: Site) -> None:
    done = site.as_user("salloc", GPU, "srun", "--mps", "true")
    assert done.returncode == 1
    assert "ltgf: this job was started without --mps" in done.stderr


def test_each_task_of_an_array_and_each_part_of_a_het_job_has_its_own(site: Site) -> None:
    show = f"echo $CUDA_MPS_PIPE_DIRECTORY >> {site.out}/$1"
    script = f"set -- array\n{show}"
    array = site.submit("--array=1-3", "--mps", GPU, "-wn1", script=script)
    het = site.submit("--mps", GPU, "-wn1", ":", GPU, "-wn2",
                      script=f"srun --het-group=0,1 sh -c '{show}' sh het")  # fmt: skip
    for job, name, count in ((array, "array", 3), (het, "het", 2)):
        site.lab.wait_state(job, "COMPLETED")
        path = site.out / name
        wait_until(lambda p=path, n=count: p.exists() and len(p.read_text().split()) == n, 10,
                   lambda p=path: str(p))  # fmt: skip
        assert len(set(path.read_text().split())) == count


def test_several_jobs_of_several_users_on_a_node_have_their_own(site: Site) -> None:
    jobs = [site.submit("--mps", "--gres=mps:20", "-wn1", script="sleep 60") for _ in range(2)]
    for job in jobs:
        site.lab.wait_state(job, "RUNNING")
        wait_until(lambda j=job: len(site.daemons(j)) >= 1, 5, lambda: "no daemon")
    site.lab.run("scancel", str(jobs[0]))
    site.gone(jobs[0])
    assert site.daemons(jobs[1]), "the other job's daemon is gone, too"
    site.lab.run("scancel", str(jobs[1]))
    site.gone(jobs[1])


def test_jobs_of_a_user_share_a_gpus_daemon_if_asked(site: Site) -> None:
    script = "echo $CUDA_MPS_PIPE_DIRECTORY; sleep 60"
    jobs = [site.submit("--mps=gpu", "--gres=mps:20", "-wn1", script=script) for _ in range(2)]
    paths = [site.out / str(job) for job in jobs]
    wait_until(lambda: all(p.exists() and p.read_text() for p in paths), 10, lambda: "no output")
    first, second = (path.read_text().strip() for path in paths)
    assert first == second != ""
    site.lab.run("scancel", str(jobs[0]))
    site.gone(jobs[0])
    assert os.path.isdir(first), "the other job's daemon is gone, too"  # noqa: PTH112
    site.lab.run("scancel", str(jobs[1]))
    site.gone(jobs[1])
    wait_until(lambda: not os.path.isdir(first), 5, lambda: f"{first} is left")  # noqa: PTH112


CKPT = ["--ckpt=app", "--ckpt-signal=SIGUSR1@30", "--ckpt-command=/opt/save", "--ckpt-timeout=90s",
        "--ckpt-interval=1:00:00"]  # fmt: skip


def test_checkpoint_hooks_reach_every_task_and_the_record(site: Site) -> None:
    folder = f"{site.out}/%u/ckpt"
    script = f'{SHOW}; echo; srun -l bash -c "{SHOW}" | grep CKPT_DIR'
    job = site.submit(*CKPT, f"--ckpt-dir={folder}", "-N2", script=script)
    text = site.output(job)
    found = variables(text)
    home = f"{site.out}/alice/ckpt/{job}"
    assert {name: value for name, value in found.items() if name.startswith("LTGF_CKPT")} == {
        "LTGF_CKPT_MODE": "app", "LTGF_CKPT_SIGNAL": "USR1@30", "LTGF_CKPT_COMMAND": "/opt/save",
        "LTGF_CKPT_TIMEOUT_S": "90", "LTGF_CKPT_INTERVAL_S": "3600", "LTGF_CKPT_DIR": home,
        "LTGF_CKPT_RECORDS": f"{site.lab.state}/rec",
    }  # fmt: skip
    assert sorted(text.splitlines()[-2:]) == [f"{i}: LTGF_CKPT_DIR={home}" for i in (0, 1)]
    record = site.lab.state / "rec" / f"{job}.{uid('alice')}"
    assert record.stat().st_uid == uid("alice")
    assert stat.S_IMODE(record.stat().st_mode) == 0o644
    assert record.read_text() == (site.out / "alice" / "ckpt" / str(job) / "ltgf-job").read_text()
    assert record.read_text().splitlines()[0] == "format=1"
    assert {f"dir={home}", "mode=app", "signal=USR1@30", "restart=0"} < set(
        record.read_text().split()
    )


def uid(user: str) -> int:
    return int(call("id", "-u", user).stdout)


def test_a_restart_finds_its_last_checkpoint(site: Site) -> None:
    save = "mkdir $LTGF_CKPT_DIR/step-7; ln -sfn step-7 $LTGF_CKPT_DIR/last; sleep 60"
    script = f'if [ -z "$SLURM_RESTART_COUNT" ]; then {save}; else {SHOW}; fi'
    job = site.submit("--requeue", "--ckpt=app", f"--ckpt-dir={site.out}/r", script=script)
    last = site.out / "r" / str(job) / "last"
    wait_until(last.is_symlink, 20, lambda: "no checkpoint")
    site.lab.run("scontrol", "requeue", str(job), user="alice")
    found = variables(site.output(job))
    assert found["LTGF_CKPT_LAST"] == f"{site.out}/r/{job}/step-7"
    assert "restart=1" in (site.out / "r" / str(job) / "ltgf-job").read_text()


def test_checkpoints_go_below_the_place_of_submission_unless_told(site: Site) -> None:
    found = site.variables("--ckpt=app")
    assert found["LTGF_CKPT_DIR"].startswith("/home/alice/ltgf-ckpt/")
    assert found["LTGF_CKPT_SIGNAL"] == "USR2"


def test_a_checkpoint_folder_that_cannot_be_made_fails_the_job_not_the_node(site: Site) -> None:
    job = site.submit("--ckpt=app", "--ckpt-dir=/proc/x")
    assert "ltgf: job" in (text := site.output(job, "FAILED"))
    assert "choose another by --ckpt-dir" in text
    assert site.lab.sacct(job, "exitcode", "FAILED") == ["1:0"]
    assert site.node_states() <= {"idle", "mixed"}


def test_a_job_submitted_in_a_job_has_a_folder_of_its_own_or_none(site: Site) -> None:
    submit = f"sbatch --wait -o {site.out}/%j {{}} --wrap=\"{SHOW}\" | cut -d' ' -f4"
    script = f"{submit.format('')}; {submit.format('--ckpt=off')}"
    job = site.submit("--ckpt=app", f"--ckpt-dir={site.out}/nest", script=script)
    with_ckpt, without = site.output(job).split()
    assert variables((site.out / with_ckpt).read_text())["LTGF_CKPT_DIR"] == (
        f"{site.out}/nest/{with_ckpt}"
    )
    assert not variables((site.out / without).read_text())


def test_a_lease_tells_its_end_to_every_task(site: Site) -> None:
    site.plugstack("lease=90min")
    began = int(time.time())
    job = site.submit(script=f'{SHOW}; srun bash -c "{SHOW}"', LTGF_LEASE_END="5")
    ends = [int(line.partition("=")[2]) for line in site.output(job).splitlines()]
    assert len(ends) == 2
    assert len(set(ends)) == 1
    assert began + 5400 <= ends[0] <= time.time() + 5400


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--mps=maybe"], "--mps=maybe is not valid: use job, gpu or off"),
        (["--mps", "--mps-mem=4"], "--mps-mem=4 is not valid"),
        (["--mps", "--mps-threads=0"], "use 1 to 100"),
        (["--mps-mem=4G"], "--mps-mem says nothing without --mps"),
        (["--mps", "--ckpt=criu"], "exclude each other"),
        (["--ckpt=app", "--ckpt-dir=here"], "use an absolute path"),
        (["--ckpt=app", "--ckpt-signal=KILL"], "use a signal that a program can catch"),
        (["--ckpt=app", "--ckpt-timeout=2h", "--ckpt-interval=1h"], "must be longer than"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["sbatch", "srun", "salloc"])
def test_a_bad_value_is_refused_where_it_is_typed(
    site: Site, command: str, args: list[str], says: str
) -> None:
    done = site.as_user(command, *args, "--wrap=true" if command == "sbatch" else "true")
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if "ltgf: " in line]
    assert says in line
    assert not site.lab.run("squeue", "-h", "-n", "true,wrap")


def test_a_bad_variable_is_refused_by_its_name(site: Site) -> None:
    done = site.as_user("sbatch", "--wrap=true", LTGF_MPS_THREADS="lots")
    assert done.returncode == 1
    assert "ltgf: LTGF_MPS_THREADS=lots is not valid" in done.stderr


def test_a_bad_word_in_plugstack_is_told_to_those_who_need_us_alone(site: Site) -> None:
    site.plugstack("mps_mem=4G")
    assert site.srun(script="echo ran") == "ran\n"
    done = site.as_user("srun", "--mps", GPU, "true")
    assert done.returncode == 1
    assert "plugstack.conf: mps_mem=4G is not a word of spank_ltgf.so" in done.stderr


def test_prefix_renames_the_options(site: Site) -> None:
    site.plugstack("prefix=lt-")
    shown = site.as_user("sbatch", "--help").stdout
    assert "--lt-mps=" in shown
    assert " --mps=" not in shown


def test_messages_name_the_options_as_prefix_has_renamed_them(site: Site) -> None:
    site.plugstack("prefix=lt-")
    told = {
        "--lt-mps=maybe is not valid": ["srun", "--lt-mps=maybe", "true"],
        "--lt-mps-mem says nothing without --lt-mps: add": ["srun", "--lt-mps-mem=4G", "true"],
        "--lt-mps in a job without GPUs": ["srun", "--lt-mps", "true"],
        "by --lt-ckpt-dir": ["srun", "--lt-ckpt=app", "--lt-ckpt-dir=/proc/x", "true"],
    }
    for says, argv in told.items():
        done = site.as_user(*argv)
        assert done.returncode != 0
        assert says in done.stderr


@pytest.mark.parametrize("order", ["fail-start", "die-at-start"])
def test_mps_that_does_not_start_fails_the_job_and_keeps_the_node(site: Site, order: str) -> None:
    site.mode.write_text(order)
    job = site.submit("--mps", GPU, "-wn1", script="echo ran")
    text = site.output(job, "FAILED")
    assert "ran" not in text.split()
    assert f"ltgf: job {job} on n1: MPS for job {job} could not be started" in text
    assert site.lab.sacct(job, "exitcode", "FAILED") == ["1:0"]
    assert site.node_states() <= {"idle", "mixed"}
    site.gone(job)


def test_mps_without_a_gpu_says_so(site: Site) -> None:
    done = site.as_user("srun", "--mps", "true")
    assert done.returncode == 1
    assert "--mps in a job without GPUs on this node" in done.stderr


def test_without_the_prolog_hook_no_task_runs_without_limits(site: Site) -> None:
    (site.lab.state / "etc" / "plugstack.conf").unlink()
    site.restart("slurmd:n4")
    site.plugstack()
    done = site.as_user("srun", "-wn4", "--mps", GPU, "echo", "ran")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "the prolog hook did not run on" in done.stderr
    site.restart("slurmd:n4")
    assert site.srun("-wn4", "--mps", GPU, script="echo ran") == "ran\n"


def test_a_daemon_that_died_fails_the_next_step(site: Site) -> None:
    waits = f"cd {site.out}; touch up; while [ -e up ]; do sleep 0.1; done"
    job = site.submit("--mps", GPU, "-wn1", script=f"{waits}; srun true")
    wait_until((site.out / "up").exists, 20, lambda: "the job does not begin")
    for pid in site.daemons(job):
        os.kill(pid, signal.SIGKILL)
    (site.out / "up").unlink()
    assert "has died" in site.output(job, "FAILED")
    site.gone(job)


def test_what_a_lost_job_left_is_gone_when_slurmd_starts(site: Site) -> None:
    site.plugstack("reap_after=0")
    tool = [str(site.built / "ltgf-mps")]
    state = site.lab.state
    done = call(*tool, "start", f"--rundir={site.rundir('n2')}", "--job=99999",
                f"--uid={uid('alice')}", "--devices=0",
                f"--control={state}/lib/nvidia-cuda-mps-control")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert site.daemons(99999, "n2")
    site.restart("slurmd:n2")
    site.gone(99999, "n2", timeout=5)


def test_what_a_job_left_whose_epilog_had_no_plugin_is_gone_with_the_next(site: Site) -> None:
    """As when plugstack.conf is half written while an epilog reads it."""
    site.plugstack("reap_after=0")
    job = site.submit("--mps", GPU, "-wn1", script="sleep 60")
    wait_until(lambda: len(site.daemons(job)) >= 1, 20, lambda: "no daemon")
    (site.lab.state / "etc" / "plugstack.conf").unlink()
    site.lab.run("scancel", str(job))
    wait_until(lambda: not site.lab.run("squeue", "-h", "-wn1"), 30, lambda: "the job does not end")
    left = [
        path for path in site.lab.state.glob("[ms]*.n1/*") if str(job) in path.read_text().split()
    ]
    assert {path.parent.name for path in left} == {"map.n1", "stat.n1"}
    site.plugstack("reap_after=0")
    assert site.srun("-wn1", script="echo ran") == "ran\n"
    site.gone(job)
    wait_until(lambda: not any(path.exists() for path in left), 5, lambda: f"one of {left}")


def other_login(site: Site, folder: Path, plugstack: str) -> dict[str, str]:
    """A login node whose plugstack.conf is another."""
    etc = site.lab.state / "etc"
    folder.mkdir()
    for name in ("slurm.conf", "cgroup.conf", "gres.conf"):
        (folder / name).write_text((etc / name).read_text())
    if plugstack:
        (folder / "plugstack.conf").write_text(plugstack)
    return {"SLURM_CONF": str(folder / "slurm.conf")}


def test_a_login_node_without_the_plugin_submits_all_other_jobs(site: Site) -> None:
    env = other_login(site, site.lab.state / "login", f"optional {site.lab.state}/nowhere.so\n")
    done = site.as_user("srun", "echo", "ran", **env)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    done = site.as_user("sbatch", "--mps", "/bin/true", **env)
    assert done.returncode != 0
    assert "unrecognized option '--mps'" in done.stderr


def test_a_job_without_option_values_has_its_variables_or_fails(site: Site) -> None:
    """As one sent through REST: nothing of ours where it is submitted."""
    env = other_login(site, site.lab.state / "rest", "")
    folder = f"{site.out}/rest"
    job = site.submit(LTGF_CKPT="app", LTGF_CKPT_DIR=folder, **env)
    assert variables(site.output(job))["LTGF_CKPT_DIR"] == f"{folder}/{job}"
    job = site.submit(GPU, script="echo ran", LTGF_MPS="job", **env)
    assert "the prolog hook did not run" in (text := site.output(job, "FAILED"))
    assert "ran\n" not in text.splitlines(keepends=True)


def test_a_plugin_of_another_slurm_is_refused_with_a_line_and_harms_nobody(site: Site) -> None:
    headers = site.lab.state / "headers" / "slurm"
    headers.mkdir(parents=True)
    for name in ("spank.h", "slurm_errno.h", "slurm_version.h"):
        text = (Path(site.headers) / "slurm" / name).read_text()
        (headers / name).write_text(re.sub(r"(SLURM_VERSION_NUMBER) 0x\w+", r"\1 0x170b03", text))
    folder = site.lab.state / "old"
    target = f"{folder}/spank_ltgf.so"
    assert build(folder, target, SLURM_INCLUDE=str(headers.parent)).returncode == 0
    env = other_login(site, site.lab.state / "login2", f"optional {target}\n")
    done = site.as_user("srun", "echo", "ran", **env)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "ncompatible" in done.stderr
    done = build(folder, "version", SLURM_INCLUDE=str(headers.parent))
    assert done.returncode != 0
    assert "built for Slurm 23.11, but this machine runs Slurm 22.05" in done.stderr


def test_every_node_stays_in_service(site: Site) -> None:
    site.lab.drain()
    assert site.node_states() == {"idle"}
