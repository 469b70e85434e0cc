"""The doctor's checks of the GPUs: in service, tracked by sacct, told apart, shared as set."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_ltgf.core.gpus import MIG
from slurm_ltgf.service.doctor_facts import RECONFIGURE, RESTART, TOML, Facts, Finding
from slurm_ltgf.service.doctor_site import SHOWN, named
from slurm_ltgf.slurm.nodes import Node

#: TRES that Slurm tracks whatever is configured; `scontrol show config` lists them too.
BUILT_IN_TRES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")


def gpus(facts: Facts) -> Finding:
    """There are GPUs to share, and their nodes are in service."""
    if unknown := facts.not_checked("gpus", "capacity"):
        return unknown
    nodes = _nodes(facts)
    total = sum(_count(node) for node in nodes)
    if not total:
        return Finding(
            "fix",
            "gpus",
            f"none of {len(nodes)} nodes has a GPU for Slurm",
            "GresTypes=gpu  # slurm.conf, with Gres=gpu:TYPE:COUNT at its NodeName and gres.conf",
        )
    closed = [node for node in nodes if not node.is_open and _count(node)]
    if closed:
        out = ", ".join(f"{node.name} ({_state(node)})" for node in closed[:SHOWN])
        more = f" and {len(closed) - SHOWN} more" if len(closed) > SHOWN else ""
        return Finding(
            "note",
            "gpus",
            f"{len(closed)} of {len(nodes)} nodes take no jobs, {sum(map(_count, closed))} of"
            f" {total} GPUs: {out}{more}",
            "sinfo -R  # tells why",
        )
    return Finding("ok", "gpus", f"{total} on {len(nodes)} nodes, all in service")


def shared_gpus(facts: Facts) -> Finding:
    """How many shards and mps make a GPU is the same on the nodes and in the settings."""
    if unknown := facts.not_checked("shared-gpus", "capacity"):
        return unknown
    nodes, fairness = _nodes(facts), facts.config.fairness
    for name, key, set_to in (
        ("shard", "shards_per_gpu", fairness.shards_per_gpu),
        ("mps", "mps_per_gpu", fairness.mps_per_gpu),
    ):
        found = {node.per_gpu(name): node.name for node in nodes if node.per_gpu(name)}
        if found and not (set(found) == {set_to} or (set_to == 0 and len(found) == 1)):
            shown = ", ".join(f"{n} on {node}" for n, node in sorted(found.items()))
            return Finding(
                "fix",
                "shared-gpus",
                f"gres/{name} per GPU: {shown}; fairness.{key} is {set_to}:"
                f" GPU-time of jobs that use it is {'wrong' if set_to else 'not known'}",
                f"{key} = {min(found)}  # {TOML} [fairness]"
                + ("; and give each node as many in gres.conf" if len(found) > 1 else ""),
            )
    return Finding("ok", "shared-gpus", "nodes agree with ltgf.toml on mps and shards per GPU")


def gpu_tracked(facts: Facts) -> Finding:
    """sacct has GPU-time only of the TRES that are tracked, and only since."""
    tracked = facts.site.get("AccountingStorageTRES").split(",")
    kinds = {"gpu"}
    if facts.capacity is not None:
        kinds |= {
            k for k in ("mps", "shard") if any(node.per_gpu(k) for node in facts.capacity.nodes)
        }
    missing = [f"gres/{kind}" for kind in sorted(kinds) if f"gres/{kind}" not in tracked]
    if not missing:
        return Finding("ok", "gpu-tracked", f"{', '.join(f'gres/{k}' for k in sorted(kinds))}")
    what = (
        "no GPU-time of any job was ever recorded"
        if "gres/gpu" in missing
        else "jobs that share a GPU by it are recorded without any GPU-time"
    )
    return Finding(
        "fix",
        "gpu-tracked",
        f"AccountingStorageTRES lacks {', '.join(missing)}: {what};"
        " it counts from the change on, the past cannot be recovered",
        tres_line(tracked, missing),
    )


def gpu_types(facts: Facts) -> Finding:
    """Types count differently only if sacct tells them apart."""
    tracked = facts.site.get("AccountingStorageTRES").split(",")
    known = {name.lower() for name in tracked}
    weights = facts.config.fairness.gpu_weights
    on_nodes = set(weights)
    if facts.capacity is not None:
        on_nodes = {kind for node in facts.capacity.nodes for kind in node.gpus} - {""}
    weighed = {kind for kind in on_nodes if family(kind) & set(weights)}
    wanted = on_nodes if len(on_nodes) > 1 else weighed
    missing = sorted(kind for kind in wanted if f"gres/gpu:{kind}".lower() not in known)
    if not missing:
        return Finding("ok", "gpu-types", ", ".join(sorted(wanted)) or "one type, not weighted")
    names = [f"gres/gpu:{kind}" for kind in missing]
    spoilt = bool(weighed & set(missing))
    why = (
        "fairness.gpu_weights cannot be applied to jobs of that type"
        if spoilt
        else "GPU-time cannot be told apart by type, now or later"
    )
    return Finding(
        "fix" if spoilt else "note",
        "gpu-types",
        f"AccountingStorageTRES lacks {', '.join(names)}: {why}",
        tres_line(tracked, names),
    )


def named_types(facts: Facts) -> Finding:
    """GPU types that the settings weigh are on some node."""
    if unknown := facts.not_checked("named-types", "capacity"):
        return unknown
    there = {kind for node in _nodes(facts) for kind in node.gpus} - {""}
    applies = {name for kind in there for name in family(kind)}
    gone = [kind for kind in facts.config.fairness.gpu_weights if kind not in applies]
    if gone:
        return Finding(
            "note",
            "named-types",
            f"fairness.gpu_weights names {named(gone)}; nodes have {named(sorted(there))}",
        )
    return Finding("ok", "named-types", f"GPU types on nodes: {named(sorted(there))}")


def billing(facts: Facts) -> Finding:
    """Slurm's own fairshare counts billing, which is CPUs alone by default."""
    if unknown := facts.not_checked("billing", "billing"):
        return unknown
    without = [
        name
        for name, weights in sorted((facts.billing or {}).items())
        if not any(tres.startswith("gres/gpu") for tres in weights)
    ]
    if not without:
        return Finding("ok", "billing", "TRESBillingWeights counts GPUs in every partition")
    return Finding(
        "note",
        "billing",
        f"TRESBillingWeights without GRES/gpu in partition {', '.join(without)}: Slurm's own"
        " fairshare and sshare do not count GPUs; ltgf does, whatever is set",
        f'TRESBillingWeights="CPU=0.1,GRES/gpu=1"  # at PartitionName={without[0]}, {RECONFIGURE}',
    )


def tres_line(tracked: Iterable[str], missing: Iterable[str]) -> str:
    """The slurm.conf line with what is tracked now and what is missing."""
    kept = [name for name in tracked if name and name not in BUILT_IN_TRES]
    return f"AccountingStorageTRES={','.join([*kept, *missing])}  # {RESTART}"


def family(kind: str) -> set[str]:
    """Names under which a weight applies to a GPU type: its own, and what a MIG slice is cut from.

    >>> sorted(family("a100_3g.20gb")), family("h100")
    (['a100', 'a100_3g.20gb'], {'h100'})
    """
    return {kind, MIG.split(kind)[0]} - {""}


def _nodes(facts: Facts) -> tuple[Node, ...]:
    """Nodes of the managed partitions; of all, if these name none that is there."""
    every = facts.capacity.nodes if facts.capacity is not None else ()
    wanted = set(facts.config.site.partitions)
    return tuple(node for node in every if wanted & set(node.partitions)) or every


def _count(node: Node) -> int:
    return sum(node.gpus.values())


def _state(node: Node) -> str:
    return "+".join([node.state, *sorted(node.flags)])
