"""What `ltgf replay` replays: jobs, machine and weights, as the ledger tells them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slurm_ltgf.cli.app import now, numbers
from slurm_ltgf.core.model import Runs, Skipped, Window
from slurm_ltgf.errors import InputError, UsageError
from slurm_ltgf.service.observed import capacity_steps, shards_per_gpu
from slurm_ltgf.service.past import Answer, Question, fairness
from slurm_ltgf.service.terms import pricing_of
from slurm_ltgf.sim import replay
from slurm_ltgf.sim.cluster import NodeType
from slurm_ltgf.sim.traces import read_nodes
from slurm_ltgf.sim.traces.history import Past, past_jobs
from slurm_ltgf.slurm.text import expand_hostlist
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger

DAY_S = 86400
#: GPUs of a node where the history does not tell on how many nodes its jobs ran.
USUAL_NODE = 8


@dataclass(frozen=True, slots=True)
class Machine:
    """The nodes to simulate, where their number is from, and what to know of it."""

    nodes: Sequence[NodeType]
    source: str
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(kind.count * kind.gpus for kind in self.nodes)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What the ledger tells. unread: rows of history that could not be read; total: all of them."""

    history: replay.History
    machine: Machine
    weights: Mapping[str, float]
    notes: tuple[str, ...]
    unread: Sequence[Skipped]
    unread_total: int


def read(ledger: Ledger, config: Config, given: dict[str, Any]) -> Replayed:
    """Read the last days of a cluster.

    Raises:
        UsageError: several clusters, or a machine that cannot be.
        InputError: no job with GPUs in the window.
    """
    question = Question(
        cluster=given["cluster"],
        window_s=given["days"] * DAY_S,
        weights=numbers(given["weights"], "--weights"),
    )
    answer = fairness(ledger, config, question, now=now())
    cluster, measured = answer.clusters[0], answer.measurement
    runs, window = measured.settled.runs, _known(answer)
    pricing = pricing_of(config, shards_per_gpu=shards_per_gpu(ledger, cluster))
    found = list(past_jobs(runs, cluster, tenant_of=measured.tenant_of, pricing=pricing))
    kept = config.fairness.requeued_work == "kept"
    history = replay.read(found, window, name=cluster, requeued_work_kept=kept)
    if not history.real:
        raise InputError(f"{cluster}: no job with GPUs in the window: nothing to replay")
    seen = [step.gpus for step in capacity_steps(ledger, cluster, window)]
    machine = _machine(given, seen, _node_size(runs, found), history.most_held)
    weights = {name: tenant.weight for name, tenant in measured.tenants.items()}
    strangers = dict.fromkeys(history.work.tenants, 0.0)  # fairness.exclude_accounts
    return Replayed(
        history.on(machine.nodes),
        machine,
        strangers | weights,
        (*machine.notes, *_notes(answer)),
        ledger.skipped(),
        ledger.skipped_total(),
    )


def _known(answer: Answer) -> Window:
    """The window as far back as there is history; what happened in its last second counts."""
    runs = answer.measurement.settled.runs
    begun = np.where(runs.eligible >= 0, runs.eligible, runs.submit)
    begun = np.where(begun >= 0, begun, runs.start)
    first = int(begun[begun >= 0].min(initial=answer.window.end))
    return Window(max(answer.window.start, first), answer.window.end + 1)


def _notes(answer: Answer) -> Iterator[str]:
    """What there is to know of the history, but for its capacity, which is not from there alone."""
    odd = answer.measurement.settled.odd
    for text in answer.notes:
        if not text.startswith("capacity") and not text.endswith("see suspects"):
            yield text
    if odd:
        yield f"{odd} records are suspect: `ltgf fairness` names them"


def _node_size(runs: Runs, jobs: Sequence[Past | Skipped]) -> int:
    """GPUs of a node: the most that a job had on each of its nodes."""
    hosts: dict[str, int] = {}
    largest = 0
    for job in jobs:
        if isinstance(job, Skipped):
            continue
        text = runs.nodes[job.row]
        if text not in hosts:
            try:
                hosts[text] = len(expand_hostlist(text))
            except ValueError:
                hosts[text] = 0
        if hosts[text]:
            largest = max(largest, -(-job.gpus // hosts[text]))
    return largest or USUAL_NODE


def _machine(
    given: dict[str, Any], seen: Sequence[Mapping[str, float]], node_size: int, most_held: int
) -> Machine:
    """The nodes by the options, by what was seen of them, or by what jobs held."""
    per_node = given["gpus_per_node"] or node_size
    if given["nodes"] and given["gpus"]:
        raise UsageError("--gpus and --nodes both say what there is: give one of them")
    if given["nodes"]:
        found = Machine(read_nodes(given["nodes"]), "--nodes")
    elif given["gpus"]:
        found = Machine(replay.machine({"": given["gpus"]}, per_node), "--gpus")
    elif seen:
        found = _as_seen(seen, per_node)
    else:
        said = (
            f"how many GPUs there were is not known: taken are {most_held}, the most that jobs "
            "held at once; --gpus N says otherwise"
        )
        nodes = replay.machine({"": most_held}, per_node)
        found = Machine(nodes, "the most that jobs held at once", (said,))
    if not found.gpus:
        raise UsageError("no node with a GPU was seen: give --gpus N")
    if most_held <= found.gpus:
        return found
    said = f"jobs held up to {most_held} GPUs at once, and {found.gpus} are replayed"
    return replace(found, notes=(*found.notes, said))


def _as_seen(seen: Sequence[Mapping[str, float]], per_node: int) -> Machine:
    """The most GPUs that were ever in service: each job of the history fits them."""
    sizes = [sum(step.values()) for step in seen]
    least, most = min(sizes), max(sizes)
    nodes = replay.machine(seen[sizes.index(most)], per_node)
    if least == most:
        return Machine(nodes, "the nodes seen")
    said = (
        f"GPUs in service went from {least:g} to {most:g}; the policies have {most:g} at all "
        "times, more than there were"
    )
    return Machine(nodes, "the nodes seen", (said,))
