"""A first ltgf.toml from what Slurm says: what differs from the defaults, what is worth a thought.

Pure: the doctor's facts in, lines out. Names are other people's text: what is no plain word stands
in quotes, in comments too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from slurm_ltgf.core.duration import shown
from slurm_ltgf.core.model import NO_LIMIT
from slurm_ltgf.core.tenants import ROOT, Tree
from slurm_ltgf.service.doctor_facts import Facts
from slurm_ltgf.service.doctor_priority import largest_step
from slurm_ltgf.service.doctor_table import DEFAULT_TABLE, OURS
from slurm_ltgf.service.terms import tenancy_of
from slurm_ltgf.slurm.text import limit_s
from slurm_ltgf.store.config import Config, parsed
from slurm_ltgf.store.settings import SECTIONS

#: Names that a line shows before it says how many more there are.
SHOWN = 12
#: What there is to find, by the fact that tells it, for whoever asks without Slurm.
SOUGHT = {
    "site": "the cluster's name, SlurmUser, PriorityType and its weights, its decay",
    "capacity": "GPU types and how many GPUs there are, mps per GPU",
    "partitions": "partitions, and which of them have no GPUs",
    "accounts": "accounts and their Fairshare: the tenants",
    "conf_plugin": "whether a site_factor plugin is loaded, and its table",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting of the first file. value: as in TOML. is_set False: a suggestion, commented out."""

    section: str
    key: str
    value: str
    why: str
    is_set: bool = True


def choices(facts: Facts) -> list[Choice]:
    """The settings of the file, in the order of etc/ltgf.toml's sections."""
    found = [
        *_site(facts),
        *_tenants(facts),
        *_gpus(facts),
        *_decay(facts),
        *_queue(facts),
        *_checkpoint(facts),
    ]
    return sorted(found, key=lambda choice: list(SECTIONS).index(choice.section))


def as_toml(facts: Facts, *, program: str) -> str:
    """The file. program: name and version of who writes it.

    Raises:
        ConfigError: it would not be read: a bug, or a name that no settings file can hold.
    """
    lines = [
        f"# Settings of slurm-ltgf for cluster {quoted(facts.cluster)}, written by {program}",
        "# from what Slurm said: what differs from the defaults, or is worth a thought. A line",
        "# like `#key = value` is a suggestion. Every setting: ltgf.toml(5).",
        "#",
        *(f"# {line}" for line in found(facts)),
        *(f"# Not found: {line}" for line in not_found(facts)),
    ]
    section = ""
    for choice in choices(facts):
        if choice.section != section:
            section = choice.section
            lines += ["", f"[{section}]"]
        lines += [f"# {choice.why}", f"{'' if choice.is_set else '#'}{choice.key} = {choice.value}"]
    text = "\n".join(lines) + "\n"
    parsed(text, "the settings found")
    return text


def found(facts: Facts) -> Iterator[str]:
    """What was found, for a reader: a line a kind."""
    user = word(facts.site.slurm_user)
    yield f"Slurm {word(facts.site.get('SLURM_VERSION'))}; `ltgf daemon` runs as SlurmUser, {user}"
    if facts.capacity is not None:
        kinds = ", ".join(f"{n} {word(kind) or 'of no type'}" for kind, n in types(facts).items())
        yield f"GPUs: {kinds or 'none'}; nodes: {len(facts.capacity.nodes)}"
    if facts.partitions is not None:
        yield f"Partitions: {listed(partition.name for partition in facts.partitions)}"
    if facts.accounts is not None:
        tenants = tenancy_of(Config(), facts.accounts).tenants()
        shares = listed((t.name for t in tenants), {t.name: f" {t.weight:g}" for t in tenants})
        yield f"Tenants and their weights, by Fairshare: {shares}"
    kind = word(facts.site.get("PriorityType", "priority/basic"))
    plugin = "not known" if facts.conf_plugin is None else word(facts.conf_plugin) or "none"
    yield f"PriorityType {kind}, site_factor plugin {plugin}"


def not_found(facts: Facts) -> list[str]:
    """What could not be found, and why."""
    return [
        f"{what}: {one_line(facts.unread.get(fact, 'not known'))}"
        for fact, what in SOUGHT.items()
        if getattr(facts, fact) is None
    ]


# --- choices --------------------------------------------------------------------------------------


def _site(facts: Facts) -> Iterator[Choice]:
    yield Choice(
        "site", "cluster", quoted(facts.cluster),
        "Slurm's ClusterName; here for the commands that do not ask Slurm",
    )  # fmt: skip
    yield Choice(
        "site", "ledger", quoted(str(facts.ledger.path)),
        f"SlurmUser, {word(facts.site.slurm_user)}, must be able to write there",
    )  # fmt: skip
    if facts.conf_plugin == OURS:
        table = facts.conf_table or DEFAULT_TABLE
        why = "PrioritySiteFactorParameters of slurm.conf"
        yield Choice("site", "factor_table", quoted(table), why)
    with_gpus, without = _partitions(facts)
    if with_gpus and without:
        yield Choice(
            "site", "partitions", f"[{', '.join(map(quoted, with_gpus))}]",
            f"No GPUs in {listed(without)}: to manage the jobs and nodes of the others alone",
            is_set=False,
        )  # fmt: skip


def _tenants(facts: Facts) -> Iterator[Choice]:
    accounts = facts.accounts or ()
    limited = [a.name for a in accounts if a.gpu_limit]
    if limited:
        yield Choice(
            "fairness", "weights_from", '"grptres"',
            f"Instead of Fairshare, the quotas GrpTRES=gres/gpu of {listed(limited)}",
            is_set=False,
        )  # fmt: skip
    tree = Tree(accounts)
    depth = max((tree.depth(name) for name in tree.accounts if name != ROOT), default=0)
    if depth > 1:
        yield Choice(
            "fairness", "tenant_level", "1",
            f"Accounts are {depth} levels deep: tenants are the leaves, or those of this depth",
            is_set=False,
        )  # fmt: skip


def _gpus(facts: Facts) -> Iterator[Choice]:
    kinds = [kind for kind in types(facts) if kind]
    if len(kinds) > 1:
        yield Choice(
            "fairness", "gpu_weights", f"{{ {', '.join(f'{quoted(k)} = 1.0' for k in kinds)} }}",
            "What an hour of each type is worth; types must be in AccountingStorageTRES too",
            is_set=False,
        )  # fmt: skip
    mps = facts.capacity.per_gpu("mps") if facts.capacity is not None else 0
    if mps not in (0, Config().fairness.mps_per_gpu):
        yield Choice("fairness", "mps_per_gpu", str(mps), "gres/mps of the nodes, for each GPU")


def _decay(facts: Facts) -> Iterator[Choice]:
    half_life_s = limit_s(facts.site.get("PriorityDecayHalfLife", "0"))
    if 0 < half_life_s < NO_LIMIT:
        window = shown(int(Config().fairness.window_s))
        why = f"PriorityDecayHalfLife; without a half-life the last {window} count in full"
        yield Choice(
            "fairness", "half_life", f'"{shown(half_life_s)}"', why, is_set=False
        )  # fmt: skip


def _queue(facts: Facts) -> Iterator[Choice]:
    queue, span = Config().queue, sum(w for w in facts.site.weights.values() if w > 0)
    if queue.step <= span < largest_step(queue.head):
        yield Choice(
            "queue", "step", str(span + 1),
            f"Above the sum of all PriorityWeight... ({span}), or they would change the order",
        )  # fmt: skip


def _checkpoint(facts: Facts) -> Iterator[Choice]:
    if facts.conf_records:
        why = "records= of spank_ltgf.so in plugstack.conf"
        yield Choice("checkpoint", "records", quoted(facts.conf_records), why)


# --- facts, in words ------------------------------------------------------------------------------


def types(facts: Facts) -> dict[str, int]:
    """GPUs by type, in service or not."""
    counts: dict[str, int] = {}
    for node in facts.capacity.nodes if facts.capacity is not None else ():
        for kind, count in node.gpus.items():
            counts[kind] = counts.get(kind, 0) + count
    return dict(sorted(counts.items()))


def _partitions(facts: Facts) -> tuple[list[str], list[str]]:
    """Names of the partitions that have a GPU, and of those without."""
    nodes = facts.capacity.nodes if facts.capacity is not None else ()
    rich = {name for node in nodes if node.gpus for name in node.partitions}
    names = [partition.name for partition in facts.partitions or ()]
    return [n for n in names if n in rich], [n for n in names if n not in rich]


def word(text: str) -> str:
    """A name in a comment: as it is, or in quotes if it is no plain word.

    >>> word("a100_3g.20gb"), word("x y")
    ('a100_3g.20gb', '"x y"')
    """
    return text if re.fullmatch(r"[\w.:/+-]*", text) else quoted(text)


def quoted(text: str) -> str:
    """A text as TOML has it, on one line.

    >>> print(quoted('a"b\\n\\x7f'))
    "a\\"b\\n\\U0000007f"
    """
    plain = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in plain)


def one_line(text: str) -> str:
    """A message in a comment."""
    return quoted(text)[1:-1]


def listed(names: Iterable[str], after: Mapping[str, str] | None = None) -> str:
    """Names, what stands after each, and how many more there are."""
    known = list(names)
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    words = [f"{word(name)}{(after or {}).get(name, '')}" for name in known[:SHOWN]]
    return (", ".join(words) or "none") + more
