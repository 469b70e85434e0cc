"""The doctor's check of quotas: Slurm is as quota.toml says."""

from __future__ import annotations

from slurm_ltgf.service.doctor_facts import Facts, Finding
from slurm_ltgf.service.doctor_site import named

NAME = "quota"


def quota(facts: Facts) -> Finding:
    """What sacctmgr has is what the file says."""
    drift = facts.quota
    if drift is None:
        return Finding("ok", NAME, f"no {facts.config.site.quota_file}: nothing to compare")
    if drift.is_wrong:
        return Finding("fix", NAME, drift.problem)
    if drift.problem:
        return Finding("note", NAME, f"not checked: {drift.problem}")
    if drift.targets:
        return Finding(
            "fix",
            NAME,
            f"Slurm is not as {drift.path} says: {named(drift.targets)}",
            "ltgf quota plan  # shows the differences\nltgf quota apply",
        )
    if drift.refused:
        return Finding("fix", NAME, f"{drift.path}: {drift.refused}")
    return Finding("ok", NAME, f"Slurm is as {drift.path} says")
