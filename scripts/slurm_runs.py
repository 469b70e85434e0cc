"""A workload of seconds-long jobs on a real local Slurm, and what sacct recorded of it.

Used by compare_with_slurm.py. A cluster is made anew for every run, so that none has history.
"""

from __future__ import annotations

import os
import pwd
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
CLUSTER = HERE / "cluster"
LTGF = HERE.parent / ".venv" / "bin" / "ltgf"
SHARES = {"astro": 4, "bio": 2, "chem": 1}
USERS = {"astro": "alice", "bio": "bob", "chem": "carol"}
NODES, GPUS_A_NODE = 4, 8
GPUS = NODES * GPUS_A_NODE
#: Slurm's least time limit, and the least period of its fair-share calculation.
LIMIT_S = CALC_PERIOD_S = 60
HALF_LIFE_S = 120
#: GPUs of a job -> part of the jobs; the shortest and the longest run. All tenants ask for as
#: much, and twice as much comes as the cluster can serve, so that each policy orders differently.
SIZES = {1: 0.5, 2: 0.25, 4: 0.15, 8: 0.1}
RUNS_S = (5, 15)
ARRIVALS_A_S = 2.5
LEASE_S, WINDOW_S = 10, 600
#: What is measured of Slurm's own overhead before the workload: jobs of a whole node, one after the
#: other, of two lengths in turn so that the nodes do not go in step.
ROUNDS, ROUNDS_S = 8, (1, 2)
#: Jobs that are there so long after the last was submitted will not end.
STUCK_S = 900

BILLED = (
    "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 State=UP "
    "TRESBillingWeights=CPU=0,GRES/gpu=1"
)
#: slurm.conf lines of each policy, besides those of scripts/cluster.
CONF = {
    "fifo": [],
    "slurm-fairtree": [
        BILLED,
        "PriorityWeightFairshare=100000",
        "PriorityWeightAge=1000",
        f"PriorityDecayHalfLife={HALF_LIFE_S // 60}",
        f"PriorityCalcPeriod={CALC_PERIOD_S // 60}",
    ],
    "ltgf": [],
}
SETTINGS = """\
[site]
ledger = "{state}/ltgf/ledger.db"
[fairness]
window = "{window}s"
[queue]
lease = "{lease}s"
floor = 0
[daemon]
interval = "1s"
arrivals = "1s"
associations_every = "1h"
"""


class Plan(NamedTuple):
    """A job to submit: seconds after the beginning, and how long it sleeps."""

    submit: int
    tenant: str
    gpus: int
    run_s: int


class Times(NamedTuple):
    """What sacct says of a job, epoch seconds."""

    node: str
    submit: int
    start: int
    end: int


class Record(NamedTuple):
    """What sacct says of a planned job, epoch seconds."""

    submit: int
    start: int
    end: int
    tenant: str
    gpus: int
    sleep_s: int


@dataclass(frozen=True)
class Real:
    """A run on the cluster. gap_s: a node idles so long between two jobs, as measured before.

    calculated: a time at which Slurm calculated fair shares, epoch seconds.
    """

    policy: str
    gap_s: float
    calculated: float
    records: list[Record]
    load: tuple[float, float, float]


def workload(jobs: int, seed: int) -> list[Plan]:
    """A seeded workload by submit time: a queue builds up, and drains after the last arrival."""
    rng = random.Random(seed)
    arrivals = sorted(rng.randrange(max(int(jobs / ARRIVALS_A_S), 1)) for _ in range(jobs))
    return [
        Plan(
            at,
            rng.choice(list(SHARES)),
            rng.choices(list(SIZES), list(SIZES.values()))[0],
            rng.randint(*RUNS_S),
        )
        for at in arrivals
    ]


class Slurm:
    """The comparison's own cluster."""

    def __init__(self, state: Path, port: int) -> None:
        self.state = state
        self.port = port
        self.env = {
            **os.environ,
            "SLURM_CONF": str(state / "etc" / "slurm.conf"),
            "SLURM_TIME_FORMAT": "%s",
        }

    def up(self, conf: Sequence[str]) -> None:
        """Make it anew."""
        self.down()
        tenants = ",".join(f"{name}={share}:{USERS[name]}" for name, share in SHARES.items())
        argv = [str(CLUSTER), "up", "--state", str(self.state), "--port", str(self.port)]
        argv += ["--nodes", str(NODES), "--gpus", str(GPUS_A_NODE), "--tenants", tenants]
        argv += [word for line in conf for word in ("--set", line)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"compare-with-slurm: no cluster: {(done.stderr or done.stdout).strip()}")

    def down(self) -> None:
        """Remove it."""
        argv = [str(CLUSTER), "down", "--state", str(self.state), "--purge"]
        subprocess.run(argv, capture_output=True, check=False)

    def ask(self, *argv: str) -> str:
        """What a command prints; its complaint ends the comparison."""
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            why = f"{shlex.join(argv)} exited {done.returncode}: {done.stderr.strip()}"
            sys.exit(f"compare-with-slurm: {why}")
        return done.stdout

    def submit(self, user: str, gpus: int, seconds: int) -> int:
        """Submit a job as a user; its id."""
        who = pwd.getpwnam(user)
        argv = ["sbatch", "--parsable", f"--gres=gpu:{gpus}", f"-t{LIMIT_S // 60}", "-o/dev/null"]
        done = subprocess.run(
            [*argv, "--wrap", f"exec sleep {seconds}"],
            env=self.env, cwd="/", user=who.pw_uid, group=who.pw_gid, extra_groups=[],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"compare-with-slurm: sbatch of {user}: {done.stderr.strip()}")
        return int(done.stdout.split(";")[0])

    def waiting_and_running(self) -> tuple[int, int]:
        """Jobs that wait, and jobs that run or end."""
        states = self.ask("squeue", "-h", "-a", "-o", "%t").split()
        waiting = states.count("PD")
        return waiting, len(states) - waiting

    def ended(self, ids: Sequence[int], tell: Callable[[int, int], None]) -> None:
        """Wait until all have ended, and slurmdbd knows."""
        stuck = time.monotonic() + STUCK_S
        while any(counts := self.waiting_and_running()):
            tell(*counts)
            if time.monotonic() > stuck:
                sys.exit(f"compare-with-slurm: {sum(counts)} jobs still there after {STUCK_S} s")
            time.sleep(1)
        for _ in range(60):
            if len(self.times(ids)) == len(ids):
                return
            time.sleep(0.5)
        sys.exit("compare-with-slurm: a job did not end well, or sacct does not know after 30 s")

    def times(self, ids: Sequence[int]) -> dict[int, Times]:
        """What sacct says of those jobs that have ended well."""
        fields = "jobidraw,state,nodelist,submit,start,end"
        rows = self.ask("sacct", "-a", "-X", "-n", "-P", "-S", "now-1hour", "-o", fields)
        wanted, found = set(ids), {}
        for line in rows.splitlines():
            job, state, node, *times = line.split("|")
            if int(job) in wanted and state == "COMPLETED" and all(map(str.isdecimal, times)):
                found[int(job)] = Times(node, *map(int, times))
        return found


def real(plan: Sequence[Plan], policy: str, slurm: Slurm, tell: Callable[[str], None]) -> Real:
    """Run a plan on a new cluster."""
    tell(f"{policy}: a new cluster")
    slurm.up(CONF[policy])
    gap_s = gap(slurm, min(ROUNDS, 2 + len(plan) // 12), tell)
    calculated = (slurm.state / "ctld" / "priority_last_decay_ran").stat().st_mtime
    with daemon(slurm, on=policy == "ltgf"):
        begin = int(time.time()) + 2
        ids = []
        for i, job in enumerate(plan):
            wait_until(begin + job.submit)
            ids.append(slurm.submit(USERS[job.tenant], job.gpus, job.run_s))
            tell(f"{policy}: {i + 1} of {len(plan)} jobs submitted, {job.submit} s")
        load = os.getloadavg()
        slurm.ended(ids, lambda pd, r: tell(f"{policy}: {pd} jobs wait, {r} run"))
    times = slurm.times(ids)
    records = [
        Record(*times[i][1:], job.tenant, job.gpus, job.run_s)
        for i, job in zip(ids, plan, strict=True)
    ]
    return Real(policy, gap_s, calculated, records, load)


def gap(slurm: Slurm, rounds: int, tell: Callable[[str], None]) -> float:
    """Seconds from the end of a job to the start of the next on its node, the mean of many."""
    lengths = [ROUNDS_S[i % len(ROUNDS_S)] for i in range(NODES * rounds)]
    ids = [slurm.submit("root", GPUS_A_NODE, seconds) for seconds in lengths]
    slurm.ended(ids, lambda pd, r: tell(f"measuring Slurm's own overhead: {pd + r} jobs left"))
    return mean_gap(slurm.times(ids).values())


def mean_gap(jobs: Iterable[Times]) -> float:
    """Seconds that nodes idle between two jobs of theirs, where the next one waited already.

    sacct's times are whole seconds, so that one gap says little and the mean of many much.
    """
    by_node: dict[str, list[Times]] = {}
    for times in sorted(jobs, key=lambda times: times.start):
        by_node.setdefault(times.node, []).append(times)
    gaps = [
        after.start - before.end
        for of_node in by_node.values()
        for before, after in pairwise(of_node)
        if after.submit <= before.end
    ]
    if not gaps:
        sys.exit("compare-with-slurm: too busy a machine: no job waited for the end of another")
    return fmean(gaps)


@contextmanager
def daemon(slurm: Slurm, *, on: bool) -> Iterator[None]:
    """`ltgf daemon` meanwhile."""
    if not on:
        yield
        return
    folder = slurm.state / "ltgf"
    folder.mkdir()
    settings = folder / "ltgf.toml"
    settings.write_text(SETTINGS.format(state=slurm.state, window=WINDOW_S, lease=LEASE_S))
    with (folder / "daemon.log").open("w") as log:
        argv = [str(LTGF), "--config", str(settings), "daemon"]
        process = subprocess.Popen(argv, env=slurm.env, stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


def wait_until(moment: float) -> None:
    """Sleep up to a moment."""
    time.sleep(max(moment - time.time(), 0))
