"""A first quota.toml: what sacctmgr has, as the file would say it; a plan from it is empty."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from slurm_ltgf.core.accounts import BILLING, GPU, ROOT, AccountRow, Book, QosRow
from slurm_ltgf.store.quota_file import shown_hours

HEAD = """\
# Who gets how many GPUs and GPU-hours of cluster {cluster}: what Slurm had when this was written.
# Change it, then: ltgf quota plan; ltgf quota apply. Keys: man quota.toml.

[budgets]
period = "slurm"        # budgets begin anew as PriorityUsageResetPeriod says
warn_at = 0.8
"""


def toml_of(book: Book, cluster: str) -> str:
    """The file's text. Accounts in the order of the tree, then QOS with limits of GPUs."""
    parts = [HEAD.format(cluster=cluster)]
    rows = sorted(book.accounts.values(), key=lambda row: (book.depth(row.name), row.name))
    for row in rows:
        if row.name != ROOT or row.gpus or row.minutes:
            parts.append("\n".join(_account(row)))
    for _, qos in sorted(book.qos.items()):
        if qos.gpus or qos.minutes or qos.no_decay:
            parts.append("\n".join(_qos(qos)))
    return "\n".join(parts)


def key(name: str) -> str:
    """A name as a key or text of TOML, whatever is in it.

    >>> key("nlp"), key('a "b" c')
    ('nlp', '"a \\\\"b\\\\" c"')
    """
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if is_bare else json.dumps(name)


def _account(row: AccountRow) -> Iterator[str]:
    yield f"[accounts.{key(row.name)}]"
    if row.parent and row.parent != ROOT:
        yield f"parent = {json.dumps(row.parent)}"
    yield 'weight = "parent"' if row.share is None else f"weight = {row.share}"
    yield from _limits(row.gpus, row.minutes)


def _qos(row: QosRow) -> Iterator[str]:
    yield f"[qos.{key(row.name)}]"
    if row.no_decay:
        yield "no_decay = true"
    yield from _limits(row.gpus, row.minutes)


def _limits(gpus: Mapping[str, int], minutes: Mapping[str, int]) -> Iterator[str]:
    if GPU in gpus:
        yield f"gpus = {gpus[GPU]}"
    yield from _types("gpu_types", {kind: str(count) for kind, count in _typed(gpus)})
    if GPU in minutes:
        yield f"gpu_hours = {shown_hours(minutes[GPU])}"
    yield from _types("gpu_type_hours", {kind: shown_hours(m) for kind, m in _typed(minutes)})
    if BILLING in minutes:
        yield f"# GrpTRESMins=billing={minutes[BILLING]} is left alone (see gpu_factors)"
    yield ""


def _typed(limits: Mapping[str, int]) -> list[tuple[str, int]]:
    start = f"{GPU}:"
    return [(n.removeprefix(start), v) for n, v in sorted(limits.items()) if n.startswith(start)]


def _types(name: str, values: Mapping[str, str]) -> Iterator[str]:
    if values:
        pairs = ", ".join(f"{key(kind)} = {value}" for kind, value in values.items())
        yield f"{name} = {{ {pairs} }}"
