"""`scripts/demo --leases`: long jobs fill the cluster, others come; kill and requeue, or leases.

Tenant astro runs 8-GPU trainings on every node; bio and chem come a little later with small jobs.
First Slurm's own way: their QOS preempts astro's, PreemptMode=REQUEUE, and a training begins anew.
Then `ltgf daemon` with leases: at the end of a lease a training saves, is requeued, and goes on
where it was. What was lost is told by `ltgf fairness --jobs` for both: GPU-time held, less what was
kept.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fair_queue_demo as demo
from rich import box
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
LATE_S, CONTENDED_S = 6, 120
TRAININGS, STEP_MS = 4, 50
SMALL = {"bio": [(2, 11), (2, 9)], "chem": [(2, 6), (2, 7)]}
demo.CONTENDED_S = CONTENDED_S
WANTED = {"bio": demo.GPUS * 90, "chem": demo.GPUS * 45}


def settings() -> str:
    """The demo's, with leases."""
    return demo.SETTINGS.replace('"9s"', '"10s"') + (
        f'[checkpoint]\nrecords = "{demo.STATE}/records"\ntimeout = "20s"\nstagger = "0s"\n'
        '[lease]\nmode = "on"\nmin_run = "8s"\ncost = "1s"\noverhead = 0.2\nper_hour = 10000\n'
    )


@dataclass
class Outcome:
    """One run."""

    name: str
    result: demo.Result
    held_gpu_s: float
    lost_gpu_s: float
    restarts: int
    steps: int


def run(began: float) -> list[Outcome]:
    """Both, one after the other; shown side by side."""
    outcomes = []
    for name, fair in (("preempt", False), ("leases", True)):
        demo.console.rule("Slurm preempts and kills" if not fair else "Slurm with LTGF's leases")
        demo.fresh_cluster()
        prepare(fair=fair)
        outcomes.append(one_run(name, fair=fair))
    show(outcomes, took_s=time.monotonic() - began)
    return outcomes


def prepare(*, fair: bool) -> None:
    """What trainings need; for the first run a QOS that preempts the other."""
    state = demo.STATE
    (state / "ltgf" / "ltgf.toml").write_text(settings())
    for name in ("records", "ckpt"):
        (state / name).mkdir()
        (state / name).chmod(0o1777)
    shutil.chown(state / "records", "slurm")
    target = state / "lib" / "slurm_ltgf"
    shutil.copytree(ROOT / "slurm_ltgf" / "checkpoint", target / "checkpoint")
    for file in ("__init__.py", "errors.py"):
        shutil.copy(ROOT / "slurm_ltgf" / file, target)
    shutil.copy(ROOT / "scripts" / "train_in_step.py", state / "lib")
    (state / "lib").chmod(0o755)
    if fair:
        return
    for argv in (
        ["sacctmgr", "-i", "add", "qos", "low"],
        ["sacctmgr", "-i", "add", "qos", "high", "preempt=low"],
        ["sacctmgr", "-i", "modify", "account", "astro", "set", "qos=low", "defaultqos=low"],
        ["sacctmgr", "-i", "modify", "account", "bio,chem", "set", "qos=high", "defaultqos=high"],
    ):
        demo.run(argv)


def one_run(name: str, *, fair: bool) -> Outcome:
    """Submit, watch the contended part, measure it."""
    begin = int(time.time())
    with demo.daemon(fair) as passes:
        train(fair=fair)
        demo.wait_until(begin + LATE_S)
        for tenant in SMALL:
            submit(tenant)
        start = int(time.time()) + 1
        end = start + CONTENDED_S
        demo.watch(name, end)
    for user in demo.USERS.values():
        demo.slurm("scancel", "-Q", f"--user={user}")
    result = demo.measured(name, start, end, passes)
    words = demo.ltgf("fairness", "--jobs", "--json", "-S", str(begin), "-E", str(end))
    jobs = [job for job in json.loads(demo.run(words))["jobs"] if job["tenant"] == "astro"]
    held, kept = (sum(job[key] for job in jobs) for key in ("attained_gpu_s", "kept_gpu_s"))
    words = ["sacct", "-n", "-X", "-D", "-P", "-A", "astro", "-S", "now-1hour", "-o", "jobid"]
    runs = demo.slurm(*words)
    return Outcome(name, result, held, held - kept, len(runs.split()) - len(jobs), steps())


def train(*, fair: bool) -> None:
    """astro's trainings; without LTGF no run finds what the one before it may have saved."""
    state = demo.STATE
    run_folder = "$SLURM_JOB_ID" if fair else "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"
    script = (
        f"export LTGF_CKPT_DIR={state}/ckpt/{run_folder} LTGF_CKPT_RECORDS={state}/records; "
        f"export LTGF_CKPT_INTERVAL_S=100000 PYTHONPATH={state}/lib; "
        f"exec python3 {state}/lib/train_in_step.py --steps 100000 --step-ms {STEP_MS}"
    )
    words = ["sbatch", "-Q", "--gres=gpu:8", "-t", "30", "-o", "/dev/null", "--wrap", script]
    for _ in range(TRAININGS):
        subprocess.run([demo.CLUSTER, "as", "--state", state, "alice", "--", *words], check=True)
    demo.console.print(f"alice of astro submits {TRAININGS} trainings of 8 GPUs")


def submit(tenant: str) -> None:
    """Small jobs of a tenant."""
    demo.FIRST[tenant] = []
    demo.SIZES[tenant] = SMALL[tenant]
    demo.WANTED[tenant] = WANTED[tenant]
    demo.submit(tenant)


def steps() -> int:
    """Steps that trainings have in their last checkpoint."""
    names = [path.name for path in (demo.STATE / "ckpt").glob("*/step-*")]
    newest: dict[str, int] = {}
    for path in (demo.STATE / "ckpt").glob("*/step-*"):
        step = int(path.name.split("-")[1].split(".")[0])
        newest[path.parent.name] = max(step, newest.get(path.parent.name, 0))
    return sum(newest.values()) if names else 0


def show(outcomes: list[Outcome], *, took_s: float) -> None:
    """Side by side."""
    table = Table(
        title=f"The contended {CONTENDED_S} s, from sacct's records; GPU-time in GPU-seconds",
        title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    for title in ("", "Tenant", "Shares", "Entitled", "Attained", "Of use"):
        table.add_column(title, justify="left" if title in ("", "Tenant") else "right")
    for outcome in outcomes:
        for name, share in demo.SHARES.items():
            row = outcome.result.tenant(name)
            table.add_row(
                outcome.name if name == "astro" else "", name, str(share),
                f"{row['entitled_gpu_s']:.0f}", f"{row['attained_gpu_s']:.0f}",
                f"{outcome.result.part_of_entitled(name):.2f}",
            )  # fmt: skip
        table.add_section()
    demo.console.print(table)
    for outcome in outcomes:
        part = outcome.lost_gpu_s / outcome.held_gpu_s if outcome.held_gpu_s else 0.0
        demo.console.print(
            f"{outcome.name}: astro's trainings held {outcome.held_gpu_s:.0f} GPU-seconds and lost "
            f"{outcome.lost_gpu_s:.0f} of them ({part:.1%}) in {outcome.restarts} restarts",
            highlight=False,
            soft_wrap=True,
        )
    demo.console.print(
        "Of use: part of what ran / part of what was entitled (1.00 is fair). Lost: of runs that\n"
        f"were requeued, what came after the last checkpoint. That took {took_s:.0f} s.",
        highlight=False,
        soft_wrap=True,
    )


def as_json(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """The measured numbers."""
    return [
        {
            **demo.as_json([outcome.result])[0],
            "held_gpu_s": outcome.held_gpu_s,
            "lost_gpu_s": outcome.lost_gpu_s,
            "restarts": outcome.restarts,
        }
        for outcome in outcomes
    ]
