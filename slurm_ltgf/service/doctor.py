"""What is wrong with a site's setup: a list of checks, each a function of the facts."""

from __future__ import annotations

from collections.abc import Callable

from slurm_ltgf.service import (
    doctor_gpus,
    doctor_leases,
    doctor_ledger,
    doctor_priority,
    doctor_quota,
    doctor_site,
    doctor_slurm,
    doctor_table,
)
from slurm_ltgf.service.doctor_facts import Facts, Finding, LedgerFacts, gather

__all__ = ["CHECKS", "Check", "Facts", "Finding", "LedgerFacts", "examine", "gather"]

Check = Callable[[Facts], Finding]

#: In the order in which one sets a site up.
CHECKS: tuple[Check, ...] = (
    doctor_slurm.slurmctld,
    doctor_slurm.slurmdbd,
    doctor_slurm.version,
    doctor_slurm.clock,
    doctor_site.settings,
    doctor_slurm.cluster_name,
    doctor_site.rights,
    doctor_site.private_data,
    doctor_gpus.gpu_tracked,
    doctor_gpus.gpu_types,
    doctor_slurm.enforce,
    doctor_site.accounts,
    doctor_quota.quota,
    doctor_site.zero_weight,
    doctor_site.parent_shares,
    doctor_site.named_accounts,
    doctor_site.partitions,
    doctor_gpus.gpus,
    doctor_gpus.named_types,
    doctor_gpus.shared_gpus,
    doctor_priority.priority_type,
    doctor_priority.priority_flags,
    doctor_priority.weights,
    doctor_table.site_factor_plugin,
    doctor_priority.queue_depth,
    doctor_gpus.billing,
    doctor_slurm.min_job_age,
    doctor_slurm.cred_expire,
    doctor_leases.requeue,
    doctor_leases.records,
    doctor_site.frozen_jobs,
    doctor_site.held_jobs,
    doctor_ledger.ledger,
    doctor_ledger.history,
    doctor_ledger.skipped_rows,
    doctor_ledger.daemon,
)


def examine(facts: Facts) -> list[Finding]:
    """Every check's verdict, in order."""
    return [check(facts) for check in CHECKS]
