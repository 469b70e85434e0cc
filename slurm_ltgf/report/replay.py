"""What `ltgf replay` adds to a simulation's page: for whom what would have changed; its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_ltgf.report.words import durations, fixed, number


def view(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the template shows of result["replay"]; None: it is no replay."""
    replay = result.get("replay")
    if replay is None:
        return None
    moved = any(own["preemptions"] for row in replay["tenants"] for own in row["policies"])
    return {
        "sentences": replay["sentences"],
        "moved": moved,
        "tenants": [_tenant(row) for row in replay["tenants"]],
        "left_out": list(replay["left_out"].items()),
        "limits": replay["limits"],
        "capacity_from": replay["capacity_from"],
    }


def _tenant(row: Mapping[str, Any]) -> dict[str, Any]:
    """A tenant and, for each policy, (mean wait, share, moves) in words."""
    waits = durations([own["mean_wait_s"] for own in row["policies"]])
    return {
        "tenant": row["tenant"],
        "weight": number(row["weight"]),
        "jobs": number(row["jobs"]),
        "cells": [
            (wait, fixed(own["share"]), number(own["preemptions"]))
            for wait, own in zip(waits, row["policies"], strict=True)
        ],
    }
