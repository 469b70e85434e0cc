"""What `ltgf frag` prints: pools, pictures of nodes, a plan; names of others are harmless."""

from __future__ import annotations

import pytest

from slurm_ltgf.cli import frag_show
from slurm_ltgf.cli.main import run
from slurm_ltgf.core.defrag import Blocked, Plan, Start, Waiting
from slurm_ltgf.core.fragmentation import Demand, Kind, NodeState, Part, pool_state
from slurm_ltgf.core.movable import Class, Movable
from slurm_ltgf.core.pools import Place
from slurm_ltgf.core.way import Way
from slurm_ltgf.service.defrag import DefragView
from slurm_ltgf.service.fragmentation import Site
from slurm_ltgf.slurm.nodes import Capacity
from slurm_ltgf.slurm.queue import Queue, QueueJob

MAIN = frozenset({"main"})
EVIL = "\x1b[31m<script>|x"


def pool(partition="main"):
    places = [Place(f"n{i}", MAIN, "h200", 8, 7) for i in range(3)]
    places.append(Place("n9", MAIN, "h200", 8, 4, barred="drain"))
    return pool_state(partition, "h200", places, Demand((Kind((Part(8),), 2),), "pending"))


def view(**more):
    moved = Movable(1, "n1", Part(1), MAIN, Class.DEV, 25.0)
    big = Waiting(90, (Part(8),), MAIN, 28_800.0)
    plan = Plan(
        [Start(big, Way(("n1",), (moved,), ("n2",)))],
        [Blocked(Waiting(91, (Part(16),), MAIN, 1.0), "it is too large", ())],
    )
    jobs = tuple(
        QueueJob(job_id, shown_id=shown, user=EVIL)
        for job_id, shown in ((1, "7_3"), (90, "90"), (91, ""))
    )
    site = Site(0, Queue(jobs), Capacity())
    return DefragView(site, (pool(),), {"h200": plan}, **more)


def test_a_pool_in_one_row_and_in_pictures(capsys):
    frag_show.pools([pool()])
    lines = capsys.readouterr().out.splitlines()
    assert "main/h200       4     32     25       21    1.00         7         16" in lines[4]
    assert "2 waiting" in lines[4]
    assert next(line.split() for line in lines if "drain" in line)[:4] == [
        "main/h200", "drain", "4", "n9",
    ]  # fmt: skip
    assert "  █░░░░░░░  3 x n0 n1 n2" in lines
    assert "  ████▒▒▒▒  n9  drain" in lines


def test_a_picture_of_many_nodes_stays_small():
    nodes = [NodeState(f"n{i}", i + 1, 1, 1) for i in range(100)]
    lines = list(frag_show.picture(nodes))
    assert len(lines) == frag_show.NODES_SHOWN + 1
    assert lines[-1] == "and 76 nodes more (all: --json)"


def test_the_plan_for_people(capsys):
    seen = view(stopped="it is a quiet time", staying=((QueueJob(5), "it serves"),))
    frag_show.plan(seen)
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if "n1" in line] == ["7_3", "90"]
    assert "note: 1 job of one GPU stays: it serves" in out
    assert "note: nobody moves now: it is a quiet time" in out
    assert "\x1b" not in out


def test_the_plan_for_programs():
    told = frag_show.plan_json(view(allowed=3))
    assert told["moves"] == [
        {
            "job_id": "7_3", "user": EVIL, "class": "dev", "from": "n1", "to": "n2",
            "cost_gpu_s": 25.0, "for": "90",
        }
    ]  # fmt: skip
    assert (told["gain_gpus"], told["cost_gpu_s"], told["allowed_moves"]) == (8, 25.0, 3)
    assert told["blocked"][0] == {
        "job_id": "91", "user": EVIL, "gpus": 16, "why": "it is too large", "leaving": [],
        "cost_gpu_s": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "words", [("--check", "0.3"), ("--partition", "main"), ("--parsable2",)], ids=str
)
def test_apply_takes_no_option_that_only_chooses_what_is_shown(capsys, words):
    assert run(["frag", "--apply", *words]) == 2
    assert f"leave {words[0]} out" in capsys.readouterr().err


def test_a_hostile_partition_name_is_shown_as_text(capsys):
    frag_show.pools([pool(EVIL)])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[31m<script>" in out
