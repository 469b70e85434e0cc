#!/usr/bin/env python3
"""Leases of a large site: what a pass costs when every running job is past its lease.

Real board files, one folder for all, and moves of the last days; Slurm is not asked.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median

from slurm_ltgf.checkpoint.board import Board
from slurm_ltgf.checkpoint.protocol import Answer, Mode, Phase, Record
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.model import Account, Batch, Runs
from slurm_ltgf.core.move import Goal, Move, State
from slurm_ltgf.service.edges import Edges
from slurm_ltgf.service.leases import LeaseEdges, judge
from slurm_ltgf.service.move_facts import MoveEdges
from slurm_ltgf.service.moves import Moves
from slurm_ltgf.service.present import View, view
from slurm_ltgf.slurm.control import ControlResult
from slurm_ltgf.slurm.nodes import Capacity, Node
from slurm_ltgf.slurm.queue import Priorities, Queue, QueueJob
from slurm_ltgf.store.config import Config, parsed
from slurm_ltgf.store.ledger import Ledger
from slurm_ltgf.store.moves import MoveFiles

NOW = 1_790_000_000
TENANTS = tuple(f"lab-{i:02}" for i in range(50))
PER_NODE, ENDED_MOVES, TIMES = 8, 2000, 7

Row = tuple[str, str, str, bool | None]


def figures(jobs: int, folder: Path) -> list[Row]:
    """The rows of the table."""
    config = parsed(f'[checkpoint]\nrecords = "{folder / "records"}"\n', "bench")
    fill_board(jobs, Path(config.checkpoint.records))
    files = MoveFiles(folder / "moves")
    for i in range(ENDED_MOVES):
        files.write(Move(10**6 + i, 1, 0, Goal.REQUEUE, "a" * 16, "7", state=State.REQUEUED))
    with Ledger(folder / "leases.db") as ledger:
        seen = a_view(jobs, config, ledger)
        moves = Moves(MoveEdges(*[_never] * 5), files, config.checkpoint, Pricing())
        edges = LeaseEdges(lambda _: os.geteuid(), lambda: {}, lambda _: None)
        took = []
        for _ in range(TIMES):
            began = time.perf_counter()
            judged = judge(seen, config, ledger, moves, edges)
            took.append(time.perf_counter() - began)
            assert sum(row.verdict is not None for row in judged.rows) == jobs
        yields = sum(row.verdict.action.value == "yield" for row in judged.rows if row.verdict)
    told = f"{median(took):.2f} s; the first {took[0]:.2f} s; {yields} would yield"
    name = f"leases of {jobs:,} running jobs, all of them over, 1,000 wait"
    return [(name, "< 1 s", told, median(took) < 1)]


def fill_board(jobs: int, folder: Path) -> None:
    """A record and an answer of each job."""
    folder.mkdir()
    board = Board(folder)
    for job in range(1, jobs + 1):
        board.enter(Record(job, os.geteuid(), 0, Mode.APP, Path(f"/home/u/ltgf-ckpt/{job}")))
        board.say(Answer(job, 0, Phase.READY, step=100, name="step-000000100", seconds=4.0))


def a_view(jobs: int, config: Config, ledger: Ledger) -> View:
    """All GPUs held by half of the tenants, one job a node; the others wait."""
    nodes = [f"n{i}" for i in range(1, jobs + 1)]
    common = {"partition": "main", "gres": f"gpu={PER_NODE}", "user": "u"}
    running = [
        QueueJob(
            job, shown_id=str(job), account=TENANTS[job % 25], state="RUNNING", nodes=f"n{job}",
            submit=NOW - 30_000, eligible=NOW - 30_000, start=NOW - 20_000, **common,
        )
        for job in range(1, jobs + 1)
    ]  # fmt: skip
    waiting = [
        QueueJob(
            10**7 + i, shown_id=str(10**7 + i), account=TENANTS[25 + i % 25], reason="Priority",
            submit=NOW - i - 1, eligible=NOW - i - 1, priority=1, **common,
        )
        for i in range(1000)
    ]  # fmt: skip
    edges = Edges(
        cluster="gpu",
        reader=_Nothing(),
        queue=lambda: Queue((*running, *waiting)),
        priorities=lambda: Priorities({}),
        capacity=lambda: Capacity(
            tuple(Node(name, ("main",), gres="gpu=8", gres_used="gpu=8") for name in nodes)
        ),
        accounts=lambda: [Account("root", "", 1), *(Account(t, "root", 1, (1,)) for t in TENANTS)],
        write=lambda _: ControlResult(),
    )
    ledger.store([Batch(Runs.of([]))], source="bench", observed_at=NOW, until=("gpu", NOW))
    return view(edges, ledger, config, queue=edges.queue(), now=NOW)


class _Nothing:
    def read(self, start: int, end: int) -> object:
        return iter(())


def _never(*_: object) -> object:
    raise AssertionError
