"""Every metric of a site: name, type, labels and meaning, here and only here (nodes: beside)."""

from __future__ import annotations

from typing import Any

from slurm_ltgf.metrics.catalog_node import NODE
from slurm_ltgf.metrics.kinds import Group, Metric, counters, gauges

_SITE = ("cluster",)
_TENANT = ("cluster", "tenant")
_BY_TYPE = ("cluster", "tenant", "gpu_type")

HEALTH = Group(
    "The exporter itself",
    "always",
    (
        Metric("ltgf_build_info", "gauge", ("version",), "1; the version of ltgf is in its label."),
        *gauges(
            (),
            ltgf_up="1 if the last refresh read everything it was to read, else 0.",
            ltgf_last_refresh_timestamp_seconds=(
                "When all other values were read, seconds since 1970; absent before the first time."
            ),
            ltgf_refresh_duration_seconds="How long that took, in seconds.",
        ),
    ),
)
STATE = Group(
    "The site's state",
    "the ledger can be read",
    (
        *gauges(
            _SITE,
            ltgf_ledger_synced_timestamp_seconds=(
                "Until when the ledger knows Slurm's history, seconds since 1970."
            ),
            ltgf_window_seconds="Length of the window that all indices are over, in seconds.",
            ltgf_skipped_rows="Rows of the last reads that could not be read and are in no sum.",
            ltgf_suspect_records="Records in the window that cannot be right.",
            ltgf_tenants="Tenants there are.",
            ltgf_tenants_left_out="Tenants without series of their own (metrics.max_tenants).",
        ),
        *gauges(
            ("cluster", "gpu_type"),
            ltgf_capacity_gpus="GPUs in service, by type.",
            ltgf_held_gpus="Physical GPUs that running jobs hold, by type.",
        ),
        *counters(
            ("cluster", "gpu_type"),
            ltgf_gpu_seconds_total=(
                "GPU-seconds that jobs held physical GPUs, all tenants, those that are gone too."
            ),
        ),
    ),
)
FAIRNESS = Group(
    "Fairness over the window",
    "the ledger can be read; all but attained need to know the GPUs in service",
    (
        *gauges(
            _SITE,
            ltgf_jain_index="Jain's index of the tenants' shares; 1: all alike.",
            ltgf_lowest_rho="The worst tenant's rho.",
            ltgf_share_gap="Largest less smallest share.",
            ltgf_mean_shortfall="Mean of what rho lacks to 1 over tenants with demand.",
            ltgf_attained_gpu_seconds="Weighted GPU-seconds that all tenants attained.",
            ltgf_capacity_gpu_seconds="Weighted GPU-seconds in service.",
            ltgf_kept_gpu_seconds="Attained, less what requeues without a checkpoint lost.",
        ),
        *gauges(
            _TENANT,
            ltgf_tenant_weight="The tenant's weight, in shares.",
            ltgf_tenant_quota_gpus="Its quota at the window's end, in weighted GPUs.",
            ltgf_tenant_attained_gpu_seconds="Weighted GPU-seconds that it attained.",
            ltgf_tenant_deserved_gpu_seconds="Its quota as far as it asked for it.",
            ltgf_tenant_quota_gpu_seconds="Its quota over the window.",
            ltgf_tenant_entitled_gpu_seconds="Its part of what there was, by weight and demand.",
            ltgf_tenant_deficit_gpu_seconds=(
                "Entitled less attained: what it is owed; negative: what it is ahead."
            ),
            ltgf_tenant_rho=(
                "Attained over deserved; at least 1: no worse off than alone. Absent while idle."
            ),
            ltgf_tenant_credit="Attained over quota: the lowest goes first. Absent without quota.",
            ltgf_tenant_share="Attained over entitled. Absent while idle.",
        ),
    ),
)
PRESENT = Group(
    "What is held and waited for",
    "the ledger can be read",
    (
        *gauges(
            _BY_TYPE,
            ltgf_tenant_held_gpus="Physical GPUs that the tenant's running jobs hold.",
        ),
        *gauges(
            _TENANT,
            ltgf_tenant_running_jobs="Jobs of the tenant that run.",
            ltgf_tenant_suspended_jobs="Jobs of the tenant that are suspended.",
            ltgf_tenant_suspended_gpus="Physical GPUs that suspended jobs of the tenant hold.",
            ltgf_tenant_pending_jobs=(
                "Jobs of the tenant that could run if GPUs were free; each array task is one."
            ),
            ltgf_tenant_pending_gpus="Physical GPUs that those ask for.",
        ),
        *counters(
            _BY_TYPE,
            ltgf_tenant_gpu_seconds_total="GPU-seconds that the tenant's jobs held physical GPUs.",
        ),
        *gauges(
            _TENANT,
            ltgf_tenant_gpu_seconds_correction=(
                "GPU-seconds of the counter that Slurm's records took back later: the counter less "
                "this is the sum over all runs."
            ),
        ),
    ),
)
MOVES = Group(
    "Checkpoints and requeues",
    "the ledger can be read",
    (
        Metric(
            "ltgf_checkpoint_duration_seconds",
            "histogram",
            _SITE,
            "Seconds from asking a job to save until it had.",
        ),
        *counters(
            (*_SITE, "result"),
            ltgf_checkpoints_total=(
                "Jobs asked to save: saved, failed, refused by the job, or overtaken by its end."
            ),
            ltgf_requeues_total=(
                "Requeues by ltgf: saved, unsaved (its work is lost), failed, refused by the job,"
                " or overtaken by its end."
            ),
        ),
        *counters(
            _SITE,
            ltgf_gpu_seconds_saved_total=(
                "Weighted GPU-seconds of work that checkpoints kept for requeued jobs."
            ),
            ltgf_gpu_seconds_lost_total=(
                "Weighted GPU-seconds of requeued jobs that no checkpoint has."
            ),
        ),
    ),
)
DAEMON = Group(
    "The daemon",
    "`ltgf daemon` makes passes; of leases: they can be judged (`ltgf lease`)",
    (
        *gauges(
            _SITE,
            ltgf_pass_timestamp_seconds="When the daemon's last pass began, seconds since 1970.",
            ltgf_pass_duration_seconds="How long it took, in seconds.",
            ltgf_slurmdbd_up="1 if slurmdbd answered in it, else 0.",
            ltgf_ordered_jobs="Pending records that it put in order.",
            ltgf_moves_under_way="Checkpoints and requeues that were under way.",
        ),
        *gauges(
            (*_SITE, "state"),
            ltgf_leases=("Leases: running; over and renew, keep (may not be moved) or yield."),
        ),
    ),
)
POOLS = Group(
    "Fragmentation",
    "`ltgf daemon` runs, and looked around in the last minutes (once a minute at most)",
    (
        *gauges(
            ("cluster", "partition", "gpu_type"),
            ltgf_fragmentation_score=(
                "Part of the pool's free GPUs that a job of what is asked for, taken at random, "
                "could not be given; 0 is best. Absent when nothing is free, or nothing asked for."
            ),
            ltgf_pool_free_gpus="GPUs that no job holds, stranded ones too.",
            ltgf_pool_largest_job_gpus="GPUs of the largest job that could start now.",
            ltgf_pool_largest_possible_job_gpus="The same if the free GPUs lay together.",
            ltgf_pool_blocked_jobs=(
                "Jobs that wait though enough GPUs are free: not where they fit."
            ),
        ),
        *gauges(
            ("cluster", "partition", "gpu_type", "reason"),
            ltgf_pool_stranded_gpus="Free GPUs that no job can be given, and why.",
        ),
    ),
)
QUOTAS = Group(
    "Budgets",
    "as for fragmentation, for accounts that have a budget of GPU-time in Slurm",
    gauges(
        ("cluster", "account", "gpu_type"),
        ltgf_quota_used_ratio="Part of the budget that is used, as Slurm counts; +Inf of none.",
        ltgf_quota_budget_gpu_seconds="The budget, in GPU-seconds.",
        ltgf_quota_used_gpu_seconds="What of it is used, as Slurm counts, in GPU-seconds.",
        ltgf_quota_held_gpu_seconds=(
            "What running jobs could still use of it, in GPU-seconds; absent if one has no limit."
        ),
        ltgf_quota_exhausted_timestamp_seconds=(
            "When it is used up at the recent rate, seconds since 1970; absent if not in this "
            "period."
        ),
    ),
)
JOBS = Group(
    "Jobs, one by one",
    "metrics.jobs is above 0: so many of the largest running jobs",
    gauges(
        ("cluster", "tenant", "job_id"),
        ltgf_job_held_gpus="Physical GPUs that the job holds.",
        ltgf_job_rho="The job's rho over the window. Absent where it is due nothing.",
    ),
)
NAMES = Group(
    "Names that others use",
    "as for those they stand for",
    (
        Metric(
            "gpu_migration",
            "summary",
            _SITE,
            "Jobs requeued with a checkpoint: how many (_count), seconds from asking on (_sum).",
        ),
        *gauges(
            ("cluster", "partition", "gpu_type"),
            gpu_task_fragmentation_score=(
                "How unevenly nodes are filled: 4 times the variance of their free parts, 0 to 1. "
                "It calls a cluster of half-full nodes perfect: see ltgf_fragmentation_score."
            ),
        ),
        *gauges(
            _SITE,
            gpu_effective_utilization=(
                "Part of the window's GPU-seconds in service that went into work that was kept."
            ),
        ),
    ),
)

SITE = (HEALTH, STATE, FAIRNESS, PRESENT, POOLS, QUOTAS, MOVES, DAEMON, JOBS, NAMES)


def metric(name: str) -> Metric:
    """The metric of a name.

    Raises:
        KeyError: there is none.
    """
    return _BY_NAME[name]


_BY_NAME = {one.name: one for group in (*SITE, *NODE) for one in group.metrics}


def family(name: str) -> Any:
    """An empty family of prometheus_client for a metric; `add_metric` takes its samples."""
    from prometheus_client import core

    one = metric(name)
    make = {
        "gauge": core.GaugeMetricFamily,
        "counter": core.CounterMetricFamily,
        "histogram": core.HistogramMetricFamily,
        "summary": core.SummaryMetricFamily,
    }[one.kind]
    return make(one.name.removesuffix("_total"), one.meaning, labels=one.labels)
