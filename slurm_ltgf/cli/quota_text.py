"""Plans of quotas as lines for people, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import render

if TYPE_CHECKING:
    from slurm_ltgf.core.accounts import Change, Setting
    from slurm_ltgf.core.quota_wanted import Refusal
    from slurm_ltgf.service.quota_apply import Done

#: Kind of change -> the sign before it, and its colour on a terminal.
SIGNS = {
    "add account": ("+", "green"),
    "add user": ("+", "green"),
    "add coordinator": ("+", "green"),
    "remove coordinator": ("-", "red"),
    "move account": (">", "yellow"),
    "set account": ("~", "yellow"),
    "set default": ("~", "yellow"),
    "set qos": ("~", "yellow"),
    "remove user": ("-", "red"),
    "remove account": ("-", "red"),
}


def line(change: Change) -> str:
    """A change as one line: `~ account astro: Fairshare 4 -> 6`."""
    sign, colour = SIGNS[change.kind]
    what = "; ".join(filter(None, (_setting(s, change) for s in change.settings)))
    target = f"{change.target} (coordinator)" if "coordinator" in change.kind else change.target
    text = render.clean(f"{target}: {what}" if what else target)
    return f"{click.style(sign, fg=colour)} {text}"


def _setting(setting: Setting, change: Change) -> str:
    name = f"{setting.option} {setting.tres}".strip()
    old, new = (value or "none" for value in (setting.old, setting.new))
    if change.kind.startswith("add"):
        return f"{name} {new}{_hours(setting, '', setting.new)}"
    return f"{name} {old} -> {new}{_hours(setting, setting.old, setting.new)}"


def _hours(setting: Setting, old: str, new: str) -> str:
    """GPU-minutes in GPU-hours too, since that is how people think."""
    if setting.option != "GrpTRESMins" or not setting.tres.startswith("gres/gpu"):
        return ""
    shown = [f"{int(minutes) / 60:.4g}" if minutes else "none" for minutes in (old, new)]
    hours = shown[1] if not old else " -> ".join(shown)
    return "" if hours == "none" else f" ({hours} GPU-hours)"


def refused_line(refusal: Refusal) -> str:
    """Something that cannot be."""
    text = render.clean(f"{refusal.target}: cannot be: {refusal.why}")
    return f"{click.style('!', fg='red')} {text}"


def done_line(one: Done) -> str:
    """A change and what became of it."""
    if one.state == "done":
        return line(one.change)
    why = f": {one.why}" if one.why and not one.why.startswith(one.state) else ""
    text = f"{one.state}{why}" if not one.why.startswith(one.state) else one.why
    return f"{line(one.change)}  {click.style(render.clean(text), fg='red')}"


def change_json(change: Change) -> dict[str, Any]:
    """A change for programs."""
    return {
        "kind": change.kind,
        "account": change.account or None,
        "user": change.user or None,
        "partition": change.partition or None,
        "qos": change.qos or None,
        "settings": [
            {"option": s.option, "tres": s.tres or None, "old": s.old or None, "new": s.new or None}
            for s in change.settings
        ],
    }


def refused_json(refused: tuple[Refusal, ...]) -> list[dict[str, Any]]:
    """What cannot be, for programs."""
    return [{"target": refusal.target, "why": refusal.why} for refusal in refused]
