"""An invented site with two weeks of history, to show a report on: one week as jobs came, first in
first out, then one in LTGF's order with leases. The same at every call.

In the night between, all that ran or waited was cancelled for maintenance. Jobs of the second week
that yield are checkpointed first; here and there a run fails, and its work is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from slurm_ltgf.core.model import UNKNOWN, Account, Run, Runs
from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.engine import Outcome, simulate
from slurm_ltgf.sim.explain import Decision
from slurm_ltgf.sim.policies import Site, make
from slurm_ltgf.sim.traces.generated import generated
from slurm_ltgf.sim.workload import Job, Workload, workload

CLUSTER = "demo"
#: Monday, 2026-11-30, midnight UTC: the end of the second week.
END = 1_795_996_800
WEEK_S = 7 * 86400
SHARES = {"vision": 60, "astro": 30, "bio": 20, "climate": 15, "speech": 12, "chem": 10}
USERS = {
    "vision": ("ada", "ben", "chloe", "dmitri", "esi"),
    "astro": ("fatima", "goran", "hana"),
    "bio": ("ines", "jonas", "kofi", "lena"),
    "climate": ("mira", "noor"),
    "speech": ("olga", "pedro"),
    "chem": ("quinn", "ravi"),
}
NODES = (NodeType(8, 8, "a100"), NodeType(4, 8, "h100"))
GPUS = {"a100": 64.0, "h100": 32.0}
NAMES = (*(f"a{i:02}" for i in range(1, 9)), *(f"h{i:02}" for i in range(1, 5)))
WEEKS = (("fifo", 2), ("ltgf-lease:lease=1h", 48))
JOBS, LOAD = 2600, 1.5
CHECKPOINT_S = 5
GRES = {"a100": "gpu:a100={0},gpu={0}", "h100": "gpu:h100={0},gpu={0}"}


@dataclass(frozen=True, slots=True)
class Demo:
    """The invented site. kept: as `Ledger.kept` has it; moved: (job id, time) of each move."""

    runs: Runs
    accounts: Sequence[Account]
    kept: Mapping[tuple[int, int], int]
    moved: Sequence[tuple[int, int]]


@dataclass(slots=True)
class _Looker:
    """Who notes on which nodes each run began. first_id: what job ids are counted from."""

    first_id: int
    nodes: dict[tuple[int, int], tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def wants(self, now: int) -> bool:
        """Everything."""
        return now >= 0

    def decided(self, now: int, rows: Sequence[Decision]) -> None:
        """Note what began."""
        for row in rows:
            if row.action in ("started", "backfilled"):
                self.nodes[self.first_id + row.job_id, now] = row.nodes


def demo() -> Demo:
    """Simulate both weeks and tell of them as a ledger would be told."""
    found: list[Run] = []
    kept: dict[tuple[int, int], int] = {}
    moved: list[tuple[int, int]] = []
    for week, (policy, seed) in enumerate(WEEKS):
        begin = END - (len(WEEKS) - week) * WEEK_S
        looker = _Looker(1000 + week * JOBS)
        outcome = simulate(
            _workload(seed),
            Cluster(list(NODES)),
            make(policy, Site(dict(SHARES), int(sum(GPUS.values())))),
            horizon=WEEK_S,
            observer=looker,
        )
        is_last = week == len(WEEKS) - 1
        found += _records(outcome, looker, begin, is_open=is_last)
        for run in found if is_last else ():
            if run.state == "PREEMPTED":
                kept[run.job_id, run.start] = run.end - CHECKPOINT_S
                moved.append((run.job_id, run.end))
    root = Account("root")
    accounts = [root, *(Account(name, "root", shares, (1,)) for name, shares in SHARES.items())]
    return Demo(Runs.of(found), accounts, kept, moved)


def _workload(seed: int) -> Workload:
    """A week's jobs: named tenants, GPU types, and runs that fail once in a while."""
    found, _ = generated(jobs=JOBS, tenants=len(SHARES), gpus=96, load=LOAD, seed=seed)
    random = np.random.default_rng(seed)
    span = max(found.jobs[-1].submit, 1)
    names = dict(zip(found.tenants, SHARES, strict=True))
    return workload(_job(job, names[job.tenant], span, random) for job in found.jobs)


def _job(job: Job, tenant: str, span: int, random: np.random.Generator) -> Job:
    kind = "h100" if random.random() < 0.3 and job.gpus <= 32 else "a100"
    run_s = max(job.run_s * WEEK_S // span, 30)
    fails = random.random() < 0.012 and run_s > 1800
    return Job(
        job.job_id,
        tenant,
        job.gpus,
        job.submit * WEEK_S // span,
        run_s,
        run_s + 3600,
        gpu_type=kind,
        lost_s=(int(run_s * random.random()) + 60,) if fails else (),
        state="FAILED" if random.random() < 0.06 else "COMPLETED",
    )


def _records(outcome: Outcome, looker: _Looker, begin: int, *, is_open: bool) -> Iterator[Run]:
    """Each time that a job waited and ran, as sacct tells it. is_open: time goes on after."""
    random = np.random.default_rng(len(outcome.jobs))
    for job in outcome.jobs:
        users = USERS[job.tenant]
        told = Run(
            cluster=CLUSTER,
            job_id=looker.first_id + job.job_id,
            account=job.tenant,
            user=users[min(int(random.exponential(1.2)), len(users) - 1)],
            partition="h100" if job.gpu_type == "h100" else "short" if job.run_s < 1200 else "gpu",
            limit_s=job.limit_s,
            gres_requested=GRES[job.gpu_type].format(job.gpus),
            submit=begin + job.submit,
            eligible=begin + job.submit,
            end=begin + outcome.horizon,
        )
        for held in job.runs:
            yield _ran(told, held.start, held.end, held.state, begin, looker)
            told = replace(told, submit=begin + held.end, eligible=begin + held.end)
        if job.end is not None and job.start is not None:
            yield _ran(told, job.start, job.end, job.state, begin, looker)
            continue
        state = "PENDING" if is_open else "CANCELLED"
        last = replace(told, state=state, elapsed_s=0)
        if job.start is not None:
            state = "RUNNING" if is_open else "CANCELLED"
            last = _ran(told, job.start, outcome.horizon, state, begin, looker)
        yield replace(last, end=UNKNOWN) if is_open else last


def _ran(told: Run, start: int, end: int, state: str, begin: int, looker: _Looker) -> Run:
    """The record of a run from start to end, in seconds of its week."""
    nodes = looker.nodes[told.job_id, start]
    return replace(
        told,
        state=state,
        start=begin + start,
        end=begin + end,
        elapsed_s=end - start,
        gres=told.gres_requested,
        nodes=",".join(NAMES[node] for node, _ in nodes),
    )
