"""Every metric there is: name, type, labels and meaning, here and only here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["gauge", "counter", "histogram", "summary"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. name: as Prometheus shows it (a counter with _total). meaning: with the unit."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class Group:
    """Metrics that belong together. when: what must be so for them to be there."""

    title: str
    when: str
    metrics: tuple[Metric, ...]


def _gauges(labels: tuple[str, ...], **meanings: str) -> tuple[Metric, ...]:
    return tuple(Metric(name, "gauge", labels, text) for name, text in meanings.items())


def _counters(labels: tuple[str, ...], **meanings: str) -> tuple[Metric, ...]:
    return tuple(Metric(name, "counter", labels, text) for name, text in meanings.items())


_SITE = ("cluster",)
_TENANT = ("cluster", "tenant")
_BY_TYPE = ("cluster", "tenant", "gpu_type")

HEALTH = Group(
    "The exporter itself",
    "always",
    (
        Metric("ltgf_build_info", "gauge", ("version",), "1; the version of ltgf is in its label."),
        *_gauges(
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
        *_gauges(
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
        *_gauges(
            ("cluster", "gpu_type"),
            ltgf_capacity_gpus="GPUs in service, by type.",
            ltgf_held_gpus="Physical GPUs that running jobs hold, by type.",
        ),
        *_counters(
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
        *_gauges(
            _SITE,
            ltgf_jain_index="Jain's index of the tenants' shares; 1: all alike.",
            ltgf_lowest_rho="The worst tenant's rho.",
            ltgf_share_gap="Largest less smallest share.",
            ltgf_mean_shortfall="Mean of what rho lacks to 1 over tenants with demand.",
            ltgf_attained_gpu_seconds="Weighted GPU-seconds that all tenants attained.",
            ltgf_capacity_gpu_seconds="Weighted GPU-seconds in service.",
            ltgf_kept_gpu_seconds="Attained, less what requeues without a checkpoint lost.",
        ),
        *_gauges(
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
        *_gauges(
            _BY_TYPE,
            ltgf_tenant_held_gpus="Physical GPUs that the tenant's running jobs hold.",
        ),
        *_gauges(
            _TENANT,
            ltgf_tenant_running_jobs="Jobs of the tenant that run.",
            ltgf_tenant_suspended_jobs="Jobs of the tenant that are suspended.",
            ltgf_tenant_suspended_gpus="Physical GPUs that suspended jobs of the tenant hold.",
            ltgf_tenant_pending_jobs=(
                "Jobs of the tenant that could run if GPUs were free; each array task is one."
            ),
            ltgf_tenant_pending_gpus="Physical GPUs that those ask for.",
        ),
        *_counters(
            _BY_TYPE,
            ltgf_tenant_gpu_seconds_total="GPU-seconds that the tenant's jobs held physical GPUs.",
        ),
        *_gauges(
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
        *_counters(
            (*_SITE, "result"),
            ltgf_checkpoints_total="Jobs asked to save: saved, failed, or overtaken by an end.",
            ltgf_requeues_total=(
                "Requeues by ltgf: saved, unsaved (its work is lost), failed, overtaken by an end."
            ),
        ),
        *_counters(
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
    "`ltgf daemon` made a pass; leases: lease.mode is not off",
    (
        *_gauges(
            _SITE,
            ltgf_pass_timestamp_seconds="When the daemon's last pass began, seconds since 1970.",
            ltgf_pass_duration_seconds="How long it took, in seconds.",
            ltgf_slurmdbd_up="1 if slurmdbd answered in it, else 0.",
            ltgf_ordered_jobs="Pending records that it put in order.",
            ltgf_moves_under_way="Checkpoints and requeues that were under way.",
        ),
        *_gauges(
            (*_SITE, "state"),
            ltgf_leases=("Leases: running; over and renew, keep (may not be moved) or yield."),
        ),
    ),
)
JOBS = Group(
    "Jobs, one by one",
    "metrics.jobs is above 0: so many of the largest running jobs",
    _gauges(
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
        *_gauges(
            _SITE,
            gpu_effective_utilization=(
                "Part of the window's GPU-seconds in service that went into work that was kept."
            ),
        ),
    ),
)

NODE_GPUS = Group(
    "GPUs of a node",
    "`ltgf exporter --node`, and the driver tells",
    (
        Metric("ltgf_node_gpu_info", "gauge", ("gpu", "uuid", "model"), "1; which GPU it is."),
        *_gauges(
            ("gpu",),
            ltgf_node_gpu_utilization_ratio=(
                "Part of the last moments in which a kernel ran on it, 0 to 1; none under MIG."
            ),
            ltgf_node_gpu_memory_used_bytes="Device memory in use, in bytes.",
            ltgf_node_gpu_memory_bytes="Device memory it has, in bytes.",
            ltgf_node_gpu_processes="Processes with a compute context on it.",
            ltgf_node_gpu_mps_clients="Those of them that come through MPS.",
            ltgf_node_gpu_jobs=(
                "Jobs that hold it. Without GPU-to-job files only known where one works on it."
            ),
        ),
    ),
)
NODE_JOBS = Group(
    "Jobs of a node",
    "`ltgf exporter --node --jobs N`, for N jobs at most",
    _gauges(
        ("job_id",),
        ltgf_node_job_gpus="GPUs of the node that the job holds, whole or shared.",
        ltgf_node_job_used_gpus=(
            "GPUs' worth of utilisation that is the job's; absent where a GPU is shared and the "
            "driver does not tell whose it is."
        ),
    ),
)

SITE = (HEALTH, STATE, FAIRNESS, PRESENT, MOVES, DAEMON, JOBS, NAMES)
NODE = (NODE_GPUS, NODE_JOBS)


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
