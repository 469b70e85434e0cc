"""The doctor's checks of the priority: whether Slurm follows the order that ltgf writes."""

from __future__ import annotations

from slurm_ltgf.core.factor import Scale
from slurm_ltgf.service.doctor_facts import RECONFIGURE, RESTART, TOML, Facts, Finding

#: Slurm's own defaults of SchedulerParameters.
QUEUE_DEPTH = {"default_queue_depth": 100, "bf_max_job_test": 500}

_NAMES = {"fairshare": "FairShare", "jobsize": "JobSize", "qos": "QOS"}
_LOOSE = ("NO_NORMAL_ALL", "NO_NORMAL_ASSOC", "NO_NORMAL_PART", "NO_NORMAL_QOS", "NO_NORMAL_TRES")


def priority_type(facts: Facts) -> Finding:
    """SiteFactor is a term of priority/multifactor alone."""
    if facts.site.has_multifactor:
        return Finding("ok", "priority-type", "priority/multifactor: SiteFactor counts")
    return Finding(
        "fix",
        "priority-type",
        f"PriorityType={facts.site.get('PriorityType', 'priority/basic')}:"
        " SiteFactor has no effect on any job",
        f"PriorityType=priority/multifactor  # {RESTART}",
    )


def priority_flags(facts: Facts) -> Finding:
    """Priorities must be able to fall, and the other terms to have a span."""
    flags = facts.site.priority_flags
    if "INCR_ONLY" in flags:
        rest = ",".join(sorted(flags - {"INCR_ONLY"}))
        return Finding(
            "fix",
            "priority-flags",
            "INCR_ONLY: no priority ever falls, so a job that should wait keeps its place",
            f"PriorityFlags={rest}  # {RECONFIGURE}"
            if rest
            else f"#PriorityFlags=INCR_ONLY  # comment it out: {RECONFIGURE}",
        )
    loose = [flag for flag in _LOOSE if flag in flags]
    if loose and facts.site.weights:
        rest = ",".join(sorted(flags - set(loose)))
        return Finding(
            "note",
            "priority-flags",
            f"{', '.join(loose)}: such terms are not bounded by their weights;"
            f" keep weight x largest value below queue.step {facts.config.queue.step}",
            f"PriorityFlags={rest}  # {RECONFIGURE}" if rest else "",
        )
    return Finding("ok", "priority-flags", ",".join(sorted(flags)) or "none")


def weights(facts: Facts) -> Finding:
    """The other terms of the priority together must span less than one step of ours."""
    found = {name: points for name, points in facts.site.weights.items() if points > 0}
    span, step, head = sum(found.values()), facts.config.queue.step, facts.config.queue.head
    terms = " + ".join(f"{_shown(name)} {points}" for name, points in found.items()) or "none"
    largest = largest_step(head)
    if step > largest:
        return _does_not_fit(head, step, least=span + 1)
    if span < step:
        return Finding("ok", "weights", f"other terms ({terms}) span {span}, queue.step is {step}")
    drowned = (
        f"other terms span {span} ({terms}), not below queue.step {step}: the order is not ours"
    )
    if span < largest:
        return Finding(
            "fix",
            "weights",
            f"{drowned}; a step of {span + 1} fits queue.head {head} (largest: {largest})",
            f"step = {span + 1}  # {TOML} [queue]",
        )
    other = _head_for(head, span + 1)
    fits = f"; a head of {other} would do" if span < largest_step(other) else ""
    return Finding(
        "fix",
        "weights",
        f"{drowned}; no step above it fits queue.head {head} (largest: {largest}{fits}):"
        " lower the weights",
        _scaled(found, span, below=step),
    )


def largest_step(head: int) -> int:
    """The largest queue.step that a head leaves room for; 0: none."""
    try:
        return Scale(head=head, step=1).largest_step
    except ValueError:
        return 0


def _head_for(head: int, step: int) -> int:
    """The first half, quarter, ... of a head for which the step fits SiteFactor's range."""
    while head > 1 and largest_step(head) < step:
        head //= 2
    return head


def _does_not_fit(head: int, step: int, *, least: int) -> Finding:
    fits = _head_for(head, least)
    return Finding(
        "fix",
        "weights",
        f"queue.step {step} x queue.head {head} does not fit SiteFactor's range: no pass can work",
        (f"head = {fits}\n" if fits != head else "")
        + f"step = {min(max(step, least), largest_step(fits))}  # {TOML} [queue]",
    )


def _scaled(found: dict[str, int], span: int, *, below: int) -> str:
    """slurm.conf lines with the same weights in proportion, summing to less."""
    lower = {name: points * (below - 1) // span for name, points in found.items()}
    plain = [f"{_shown(n)}={v}" for n, v in lower.items() if not n.startswith("tres/")]
    tres = [f"{n.removeprefix('tres/')}={v}" for n, v in lower.items() if n.startswith("tres/")]
    lines = plain + ([f"PriorityWeightTRES={','.join(tres)}"] if tres else [])
    return "\n".join([f"{lines[0]}  # {RECONFIGURE}", *lines[1:]])


def _shown(name: str) -> str:
    if name.startswith("tres/"):
        return f"PriorityWeightTRES {name.removeprefix('tres/')}"
    return f"PriorityWeight{_NAMES.get(name, name.capitalize())}"


def queue_depth(facts: Facts) -> Finding:
    """Places beyond what Slurm's scheduler tries are ordered for nothing."""
    options = facts.site.options("SchedulerParameters")
    head = facts.config.queue.head
    depth = {name: _number(options.get(name, ""), least) for name, least in QUEUE_DEPTH.items()}
    short = {name: value for name, value in depth.items() if 0 < value < head}
    if not short:
        return Finding("ok", "queue-depth", f"Slurm tries at least the first {head} jobs")
    given = facts.site.get("SchedulerParameters").split(",")
    kept = [item for item in given if item and item.partition("=")[0].lower() not in short]
    line = ",".join([*kept, *(f"{name}={head}" for name in short)])
    shown = ", ".join(f"{name} {value}" for name, value in short.items())
    return Finding(
        "note",
        "queue-depth",
        f"{shown}: Slurm tries fewer jobs at a time than the {head} that we order exactly",
        f"SchedulerParameters={line}  # {RECONFIGURE}",
    )


def _number(text: str, default: int) -> int:
    return int(text) if text.isdecimal() else default
