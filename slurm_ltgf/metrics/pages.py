"""The reference of all metrics as docs/reference/metrics.md has it; scripts/make-docs prints it."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_ltgf.metrics.catalog import SITE
from slurm_ltgf.metrics.catalog_node import NODE
from slurm_ltgf.metrics.kinds import Metric

HEAD = """# Metrics

For people who chart `ltgf`, and for those who write rules on it: every metric that `ltgf exporter`
and the daemon tell. Made from `slurm_ltgf/metrics/catalog.py`; how to set it up is in
[watch with Prometheus](../how-to/watch-with-prometheus.md).

Seconds are seconds, times are seconds since 1970, a GPU-second is one GPU for a second. *Weighted*
ones count GPU types by `fairness.gpu_weights`, as `ltgf fairness` does; *physical* ones do not, and
parts of a GPU (MIG, MPS, shards) are parts. What is not known has no sample: unknown is not zero.
What is over the window (`fairness.window`) slides and is a gauge; what ends in `_total` only rises,
over restarts too, since it is kept in the ledger.

No series is by user. Of a metric there are at most tenants × GPU types; tenants beyond
`metrics.max_tenants` (those with the smallest weights) have none, `ltgf_tenants_left_out` counts
them, and the sums without a tenant hold them all. A tenant whose account was removed has no series
any more.
"""
LABELS = {
    "cluster": "Slurm's ClusterName",
    "tenant": "the account that is a party to fairness (`fairness.tenant_level`); control "
    "characters and backslashes are escaped, more than 128 characters cut and marked by a digest",
    "account": "an account with a budget; those below it are in its numbers",
    "partition": "a partition; a node of two is in both",
    "gpu_type": "as Slurm names it; `untyped` where it names none; of a budget of all types `all`",
    "reason": "`CPUs`, `memory`, `reservation`, the node's state, … as `ltgf frag` says it",
    "result": "`saved`, `unsaved`, `failed`, `refused` by the job, or `overtaken`: the job "
    "ended or somebody was first",
    "state": "`running`, `renew`, `keep`, `yield`",
    "job_id": "as squeue shows it; of a node the raw id",
    "gpu": "NVML's index, as nvidia-smi shows it",
    "uuid": "as `nvidia-smi -L` shows it",
    "model": "the product's name",
}


def as_markdown() -> str:
    """The page."""
    return "\n".join(_pieces())


def _pieces() -> Iterator[str]:
    yield HEAD
    rows = [f"| `{name}` | {meaning} |" for name, meaning in LABELS.items()]
    yield "\n".join(["| label | value |", "|---|---|", *rows, ""])
    for group in (*SITE, *NODE):
        yield f"## {group.title}\n\nThere when: {group.when}.\n"
        rows = [_row(one) for one in group.metrics]
        yield "\n".join(["| metric | type | labels | meaning |", "|---|---|---|---|", *rows, ""])


def _row(one: Metric) -> str:
    labels = ", ".join(f"`{name}`" for name in one.labels)
    return f"| `{one.name}` | {one.kind} | {labels} | {one.meaning.replace('|', chr(92) + '|')} |"
