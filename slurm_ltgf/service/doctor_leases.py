"""The doctor's checks of leases: where jobs are asked to save, and whether Slurm requeues them."""

from __future__ import annotations

import shlex

from slurm_ltgf.service.doctor_facts import RECONFIGURE, TOML, Facts, Finding

RECORDS, REQUEUE = "checkpoint-records", "job-requeue"
#: Everybody makes files there, and removes none but their own.
RECORDS_MODE = 0o1777
SHARED = "# as root, where nodes and controller see it"


def records(facts: Facts) -> Finding:
    """Jobs can be asked to save: the records folder is there, and SlurmUser's asks are believed."""
    folder, user = facts.config.checkpoint.records, facts.site.slurm_user
    if not folder:
        if facts.config.lease.mode != "on":
            return Finding("ok", RECORDS, "no folder set: leases move nobody")
        return Finding(
            "fix",
            RECORDS,
            'lease.mode is "on" and checkpoint.records is not set: no job can be asked to save',
            f'records = "/shared/ltgf/records"  # {TOML} [checkpoint]; as in plugstack.conf',
        )
    seen, where = facts.records, shlex.quote(folder)
    if seen.problem:
        make = f"install -d -m 1777 -o {shlex.quote(user)} {where}  {SHARED}"
        return Finding(
            "fix", RECORDS, f"{folder}: {seen.problem}: no job can be asked to save", make
        )
    wrong = []
    if seen.owner != user:
        wrong.append(f"belongs to {seen.owner}, not to SlurmUser {user}")
    if seen.mode != RECORDS_MODE:
        wrong.append(f"has mode {seen.mode:o}, not {RECORDS_MODE:o}")
    if not wrong:
        return Finding("ok", RECORDS, f"{folder} is {user}'s, mode {RECORDS_MODE:o}")
    mend = f"chown {shlex.quote(user)} {where} && chmod {RECORDS_MODE:o} {where}  # as root"
    return Finding("fix", RECORDS, f"{folder} {' and '.join(wrong)}: asks are not believed", mend)


def requeue(facts: Facts) -> Finding:
    """Slurm requeues jobs at all."""
    if facts.site.get("JobRequeue") != "0":
        return Finding("ok", REQUEUE, "Slurm requeues jobs that do not say --no-requeue")
    if facts.config.lease.mode != "on":
        return Finding("ok", REQUEUE, "JobRequeue=0, and leases move nobody")
    return Finding(
        "fix",
        REQUEUE,
        'lease.mode is "on" and JobRequeue=0: only jobs submitted with --requeue can yield',
        f"JobRequeue=1  # {RECONFIGURE}",
    )
