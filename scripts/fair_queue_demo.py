"""The demo: one workload on a real Slurm twice, first in first out and then with `ltgf daemon`.

Tenant astro floods the cluster; bio and chem come a little later. All numbers are measured on this
run: GPU-time and waiting from sacct's records, entitlement by `ltgf fairness`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, cycle
from pathlib import Path
from statistics import fmean
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

HERE = Path(__file__).resolve().parent
CLUSTER = HERE / "cluster"
LTGF = HERE.parent / ".venv" / "bin" / "ltgf"
STATE = Path("/run/ltgf-demo")
PORT = 21000
SHARES = {"astro": 4, "bio": 2, "chem": 1}
USERS = {"astro": "alice", "bio": "bob", "chem": "carol"}
COLOURS = {"astro": "red", "bio": "green", "chem": "cyan"}
NODES, GPUS_A_NODE = 4, 8
GPUS = NODES * GPUS_A_NODE

#: (GPUs, seconds) of a tenant's first jobs, and of the many jobs that follow them, in turn. Those
#: are all of 2 GPUs: a node that drains for a larger job idles, and would blur what is to be seen.
FIRST = {
    "astro": [],
    "bio": [(8, 5), (4, 7), (1, 9), (1, 9)],
    "chem": [(8, 4), (4, 5), (1, 8), (1, 8)],
}
SIZES = {"astro": [(2, 12)], "bio": [(2, 11), (2, 9)], "chem": [(2, 6), (2, 7)]}
#: GPU-seconds each tenant asks for: more than it can get in the contended part.
WANTED = {"astro": GPUS * 60, "bio": GPUS * 25, "chem": GPUS * 13}
LATE_S = 3
CONTENDED_S = 45

SETTINGS = f"""\
[site]
ledger = "{STATE}/ltgf/ledger.db"
[fairness]
window = "10min"
[queue]
lease = "9s"
key = "share"
floor = 0
[daemon]
interval = "1s"
arrivals = "1s"
associations_every = "1h"
"""

console = Console()


@dataclass
class Result:
    """What one run measured, over its contended part."""

    name: str
    start: int
    end: int
    report: dict[str, Any]
    waits: dict[str, list[float]] = field(default_factory=dict)
    passes: list[str] = field(default_factory=list)

    def tenant(self, name: str) -> dict[str, Any]:
        """The report's row of a tenant."""
        return next(row for row in self.report["tenants"] if row["tenant"] == name)

    @property
    def used_gpu_s(self) -> float:
        """GPU-seconds that ran."""
        return sum(self.tenant(name)["attained_gpu_s"] for name in SHARES)

    def part_of_entitled(self, name: str) -> float:
        """Part of the GPU-time used over part of the GPU-time entitled: 1 is fair."""
        entitled = sum(self.tenant(n)["entitled_gpu_s"] for n in SHARES)
        row = self.tenant(name)
        return (row["attained_gpu_s"] / self.used_gpu_s) / (row["entitled_gpu_s"] / entitled)


def main() -> int:
    """Run both, show them side by side, leave the cluster up."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--json", action="store_true", help="print the measured numbers as JSON")
    options.add_argument(
        "--leases", action="store_true", help="show leases instead: long jobs make room and go on"
    )
    options.add_argument("--down", action="store_true", help="stop and remove the cluster")
    given = options.parse_args()
    if given.down:
        return subprocess.call([CLUSTER, "down", "--state", STATE, "--purge"])
    began = time.monotonic()
    if given.leases:
        import lease_demo

        outcomes = lease_demo.run(began)
        if given.json:
            print(json.dumps(lease_demo.as_json(outcomes), indent=2))
        return 0
    results = []
    for name, fair in (("FIFO", False), ("LTGF", True)):
        console.rule("Slurm alone: first in, first out" if name == "FIFO" else "Slurm with LTGF")
        fresh_cluster()
        results.append(one_run(name, fair=fair))
    show(results, took_s=time.monotonic() - began)
    if given.json:
        print(json.dumps(as_json(results), indent=2))
    return 0


def fresh_cluster() -> None:
    """The demo's own cluster, made anew: both runs start without history."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([CLUSTER, "down", "--state", STATE, "--purge"], check=False, **quiet)
    tenants = ",".join(f"{name}={share}:{USERS[name]}" for name, share in SHARES.items())
    size = ["--nodes", str(NODES), "--gpus", str(GPUS_A_NODE), "--tenants", tenants]
    if subprocess.call([CLUSTER, "up", "--state", STATE, "--port", str(PORT), *size]):
        sys.exit("scripts/demo: no cluster to show anything on; see above")
    (STATE / "ltgf").mkdir(exist_ok=True)
    (STATE / "ltgf" / "ltgf.toml").write_text(SETTINGS)


def one_run(name: str, *, fair: bool) -> Result:
    """Submit the workload, watch the contended part, measure it."""
    begin = int(time.time())
    with daemon(fair) as passes:
        submit("astro")
        wait_until(begin + LATE_S)
        for late in ("bio", "chem"):
            submit(late)
        start = int(time.time()) + 1
        wait_until(start)
        end = start + CONTENDED_S
        watch(name, end)
    for user in USERS.values():
        slurm("scancel", "-Q", f"--user={user}")
    return measured(name, start, end, passes)


def submit(tenant: str) -> None:
    """Submit a tenant's whole workload as its user, one sbatch a job."""
    lines, asked = [], 0
    for gpus, seconds in chain(FIRST[tenant], cycle(SIZES[tenant])):
        if asked >= WANTED[tenant]:
            break
        lines.append(
            f"sbatch -Q --gres=gpu:{gpus} -t 5 -o /dev/null --wrap 'sleep {seconds}' >/dev/null"
        )
        asked += gpus * seconds
    argv = [CLUSTER, "as", "--state", STATE, USERS[tenant], "--", "sh", "-c", "\n".join(lines)]
    subprocess.run(argv, check=True)
    console.print(f"{USERS[tenant]} of {tenant} submits {len(lines)} jobs for {asked} GPU-seconds")


@contextmanager
def daemon(fair: bool) -> Iterator[list[str]]:
    """The daemon for the time of a run; its log lines."""
    passes: list[str] = []
    if not fair:
        yield passes
        return
    log = STATE / "ltgf" / "daemon.log"
    with log.open("w") as stream:
        process = subprocess.Popen(ltgf("daemon"), env=environment(), stderr=stream)
        try:
            yield passes
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
    passes += log.read_text().splitlines()


def watch(name: str, end: int) -> None:
    """Show who holds what until the contended part is over."""
    if not console.is_terminal:
        while time.time() < end:
            console.print(
                f"{max(end - int(time.time()), 0):3} s left   {holders()}", soft_wrap=True
            )
            wait_until(min(time.time() + 5, end))
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while time.time() < end:
            live.update(bars(name, end - time.time()))
            time.sleep(0.5)


def holders() -> str:
    """GPUs held and jobs waiting by tenant, in a line."""
    held, waiting = held_and_waiting()
    return "   ".join(f"{n} {held[n]:2} GPUs, {waiting[n]:3} wait" for n in SHARES)


def bars(name: str, left_s: float) -> Table:
    """GPUs held and jobs waiting by tenant, as bars against each one's quota."""
    held, waiting = held_and_waiting()
    table = Table(title=f"{name}: {left_s:.0f} s left", title_justify="left", box=None)
    for title in ("Tenant", "holds", f"of {GPUS} GPUs (| is its quota)", "waiting"):
        table.add_column(title)
    for tenant, share in SHARES.items():
        quota = round(GPUS * share / sum(SHARES.values()))
        cells = ["█" if i < held[tenant] else "·" for i in range(GPUS)]
        cells.insert(quota, "|")
        bar = f"[{COLOURS[tenant]}]{''.join(cells)}[/]"
        table.add_row(tenant, str(held[tenant]), bar, str(waiting[tenant]))
    return table


def held_and_waiting() -> tuple[dict[str, int], dict[str, int]]:
    """GPUs in running jobs, and pending jobs, by tenant, from squeue."""
    held, waiting = dict.fromkeys(SHARES, 0), dict.fromkeys(SHARES, 0)
    for line in slurm("squeue", "-h", "-a", "-o", "%a|%t|%b").splitlines():
        account, state, gres = line.split("|")
        if account in SHARES and state == "R":
            held[account] += int(gres.rsplit(":", 1)[1])
        elif account in SHARES and state == "PD":
            waiting[account] += 1
    return held, waiting


def measured(name: str, start: int, end: int, passes: list[str]) -> Result:
    """The contended part by sacct's records."""
    wait_for_accounting()
    run(ltgf("sync", "-S", str(start - 60)))
    window = ["-S", str(start), "-E", str(end)]
    report = json.loads(run(ltgf("fairness", "--json", "--capacity", str(GPUS), *window)))
    return Result(name, start, end, report, waits(start, end), passes)


def wait_for_accounting() -> None:
    """Wait until slurmdbd has the end of every job that slurmctld has ended."""
    for _ in range(60):
        running = slurm("squeue", "-h", "-a", "-t", "R,CG", "-o", "%i").split()
        told = slurm("sacct", "-n", "-a", "-X", "-P", "-S", "now-1hour", "-s", "R", "-o", "jobid")
        if not running and not told.split():
            return
        time.sleep(0.5)


def waits(start: int, end: int) -> dict[str, list[float]]:
    """Seconds that each tenant's jobs waited until the end of the contended part."""
    found: dict[str, list[float]] = {name: [] for name in SHARES}
    rows = slurm("sacct", "-n", "-a", "-X", "-P", "-S", "now-1hour", "-o", "account,eligible,start")
    for line in rows.splitlines():
        account, eligible, begun = line.split("|")
        if account in found and eligible.isdecimal():
            until = min(int(begun), end) if begun.isdecimal() else end
            found[account].append(max(until - int(eligible), 0))
    return found


def show(results: list[Result], *, took_s: float) -> None:
    """Both runs side by side, and what to try next."""
    title = f"The contended {CONTENDED_S} s, from sacct's records; GPU-time in GPU-seconds"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("", "Tenant", "Shares", "Entitled", "Attained", "Share", "Of use", "rho", "Wait"):
        table.add_column(title, justify="left" if title in ("", "Tenant") else "right")
    for result in results:
        for name, share in SHARES.items():
            row, waited = result.tenant(name), result.waits[name]
            table.add_row(
                result.name if name == "astro" else "",
                name,
                str(share),
                f"{row['entitled_gpu_s']:.0f}",
                f"{row['attained_gpu_s']:.0f}",
                f"{row['share']:.2f}",
                f"{result.part_of_entitled(name):.2f}",
                f"{row['rho']:.2f}",
                f"{fmean(waited):.1f} s" if waited else "-",
            )
        table.add_section()
    console.print(table)
    for result in results:
        busy = result.used_gpu_s / (GPUS * CONTENDED_S)
        console.print(
            f"{result.name}: Jain index {result.report['jain']:.3f}, lowest rho "
            f"{result.report['min_rho']:.2f}, GPUs busy {busy:.1%}",
            highlight=False,
        )
    console.print(
        "Share: attained / entitled GPU-time. Of use: part of what ran / part of what was\n"
        "entitled (1.00 is fair, idle GPUs apart). Wait: mean, jobs that still wait counted\n"
        "to the end.",
        highlight=False,
        soft_wrap=True,
    )
    next_commands(took_s)


def next_commands(took_s: float) -> None:
    """What to type now."""
    console.print(f"\nThat took {took_s:.0f} s. The cluster is still up; try:", highlight=False)
    for line in (
        f'eval "$(scripts/cluster env --state {STATE})"; export PATH=$PWD/.venv/bin:$PATH',
        f"export LTGF_CONFIG={STATE}/ltgf/ltgf.toml",
        "ltgf fairness        # who got what",
        f"scripts/cluster as --state {STATE} bob -- sbatch --gres=gpu:2 --wrap 'sleep 60'",
        "ltgf queue           # who goes next, and why",
        "ltgf tick --dry-run  # what a pass would change",
        "ltgf doctor          # is this site set up right",
        "scripts/demo --down  # stop and remove the cluster",
    ):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def as_json(results: list[Result]) -> list[dict[str, Any]]:
    """The measured numbers."""
    return [
        {
            "run": result.name,
            "window": [result.start, result.end],
            "jain": result.report["jain"],
            "min_rho": result.report["min_rho"],
            "busy": result.used_gpu_s / (GPUS * CONTENDED_S),
            "tenants": {
                name: {
                    "attained_gpu_s": result.tenant(name)["attained_gpu_s"],
                    "entitled_gpu_s": result.tenant(name)["entitled_gpu_s"],
                    "share": result.tenant(name)["share"],
                    "share_of_use": result.part_of_entitled(name),
                    "rho": result.tenant(name)["rho"],
                    "mean_wait_s": fmean(result.waits[name]) if result.waits[name] else None,
                }
                for name in SHARES
            },
            "passes": len(result.passes),
        }
        for result in results
    ]


def ltgf(*words: str) -> list[str]:
    """An ltgf command with the demo's settings."""
    return [str(LTGF), "--config", str(STATE / "ltgf" / "ltgf.toml"), *words]


def environment() -> dict[str, str]:
    """Ours, pointed at the demo's cluster."""
    return {
        **os.environ,
        "SLURM_CONF": str(STATE / "etc" / "slurm.conf"),
        "SLURM_TIME_FORMAT": "%s",
    }


def slurm(*argv: str) -> str:
    """What a Slurm command prints."""
    return run(list(argv))


def run(argv: list[str]) -> str:
    """What a command prints; its complaint ends the demo."""
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"scripts/demo: {shlex.join(argv)} exited {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout


def wait_until(moment: float) -> None:
    """Sleep up to a moment."""
    time.sleep(max(moment - time.time(), 0))


if __name__ == "__main__":
    sys.exit(main())
