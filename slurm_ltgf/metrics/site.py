"""A site's readings as families of samples. What is not known has no sample: it is not zero."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from slurm_ltgf.core import tally
from slurm_ltgf.metrics.catalog import family
from slurm_ltgf.metrics.look import look_families
from slurm_ltgf.metrics.samples import Labels, filled, label, of_type
from slurm_ltgf.service.readings import Readings, TenantReading


def families(seen: Readings) -> Iterator[Any]:
    """All families of a site, in the order of the catalog."""
    yield from _state(seen)
    yield from _fairness(seen)
    yield from _tenants(seen)
    yield from look_families(label(seen.cluster), seen.look)
    yield from _moves(seen)
    yield from _daemon(seen)
    yield from _jobs(seen)
    yield from _aliases(seen)


def _state(seen: Readings) -> Iterator[Any]:
    cluster = (label(seen.cluster),)
    values = {
        "ltgf_ledger_synced_timestamp_seconds": seen.answer.known_until,
        "ltgf_window_seconds": seen.answer.window.length_s,
        "ltgf_skipped_rows": seen.skipped_rows,
        "ltgf_suspect_records": seen.answer.measurement.settled.odd,
        "ltgf_tenants": len(seen.tenants) + seen.left_out,
        "ltgf_tenants_left_out": seen.left_out,
    }
    for name, value in values.items():
        yield from filled(name, [(cluster, value)])
    by_type = {
        "ltgf_capacity_gpus": seen.capacity_gpus,
        "ltgf_held_gpus": seen.present.held_gpus,
        "ltgf_gpu_seconds_total": seen.counted.gpu_s,
    }
    for name, values_by_type in by_type.items():
        yield from filled(name, _of_types(cluster, values_by_type))


def _of_types(labels: Labels, values: Mapping[str, float]) -> Iterator[tuple[Labels, float]]:
    for kind, value in sorted(values.items()):
        yield (*labels, of_type(kind)), value


def _fairness(seen: Readings) -> Iterator[Any]:
    found = seen.fairness
    values = {
        "ltgf_jain_index": found.jain,
        "ltgf_lowest_rho": found.min_rho,
        "ltgf_share_gap": found.max_min_gap,
        "ltgf_mean_shortfall": found.mean_shortfall,
        "ltgf_attained_gpu_seconds": found.attained_gpu_s,
        "ltgf_capacity_gpu_seconds": found.capacity_gpu_s,
        "ltgf_kept_gpu_seconds": seen.kept_gpu_s,
    }
    for name, value in values.items():
        yield from filled(name, [((label(seen.cluster),), value)])


def _tenants(seen: Readings) -> Iterator[Any]:
    cluster = label(seen.cluster)
    rows = [((cluster, label(one.index.tenant)), one) for one in seen.tenants]
    for name, value_of in _OF_INDEX.items():
        yield from filled(name, ((labels, value_of(one)) for labels, one in rows))
    none = dict.fromkeys(seen.capacity_gpus or seen.counted.gpu_s or ("",), 0.0)
    held = ((labels, none | dict(one.present.held_gpus)) for labels, one in rows)
    yield from _of_all_types("ltgf_tenant_held_gpus", held)
    for name, value_of in _OF_PRESENT.items():
        yield from filled(name, ((labels, value_of(one)) for labels, one in rows))
    counted = ((labels, none | dict(one.counted.gpu_s)) for labels, one in rows)
    yield from _of_all_types("ltgf_tenant_gpu_seconds_total", counted)
    yield from filled(
        "ltgf_tenant_gpu_seconds_correction",
        ((labels, one.counted.corrected_gpu_s) for labels, one in rows),
    )


def _of_all_types(name: str, rows: Iterable[tuple[Labels, Mapping[str, float]]]) -> Iterator[Any]:
    """A sample for each GPU type of each tenant: 0 is there before the first job is."""
    yield from filled(
        name, (sample for labels, values in rows for sample in _of_types(labels, values))
    )


def _deficit(one: TenantReading) -> float | None:
    entitled = one.index.entitled_gpu_s
    return None if entitled is None else entitled - one.index.attained_gpu_s


_OF_INDEX: dict[str, Callable[[TenantReading], float | None]] = {
    "ltgf_tenant_weight": lambda one: one.index.weight,
    "ltgf_tenant_quota_gpus": lambda one: one.index.quota_gpus,
    "ltgf_tenant_attained_gpu_seconds": lambda one: one.index.attained_gpu_s,
    "ltgf_tenant_deserved_gpu_seconds": lambda one: one.index.deserved_gpu_s,
    "ltgf_tenant_quota_gpu_seconds": lambda one: one.index.quota_gpu_s,
    "ltgf_tenant_entitled_gpu_seconds": lambda one: one.index.entitled_gpu_s,
    "ltgf_tenant_deficit_gpu_seconds": _deficit,
    "ltgf_tenant_rho": lambda one: one.index.rho,
    "ltgf_tenant_credit": lambda one: one.index.credit,
    "ltgf_tenant_share": lambda one: one.index.share,
}
_OF_PRESENT: dict[str, Callable[[TenantReading], float]] = {
    "ltgf_tenant_running_jobs": lambda one: one.present.running_jobs,
    "ltgf_tenant_suspended_jobs": lambda one: one.present.suspended_jobs,
    "ltgf_tenant_suspended_gpus": lambda one: one.present.suspended_gpus,
    "ltgf_tenant_pending_jobs": lambda one: one.present.pending_jobs,
    "ltgf_tenant_pending_gpus": lambda one: one.present.pending_gpus,
}


def _moves(seen: Readings) -> Iterator[Any]:
    cluster, counters = label(seen.cluster), seen.counters
    ends = [f"{end}.0" for end in tally.BUCKETS_S] + ["+Inf"]
    below = accumulate(counters.get((tally.CHECKPOINT_LE, end), 0) for end in ends)
    made = family("ltgf_checkpoint_duration_seconds")
    seconds = counters.get((tally.CHECKPOINT_S, ""), 0)
    made.add_metric((cluster,), list(zip(ends, below, strict=True)), sum_value=seconds)
    yield made
    for name, counter, results in (
        ("ltgf_checkpoints_total", tally.CHECKPOINTS, ("saved", "failed", "refused", "overtaken")),
        ("ltgf_requeues_total", tally.REQUEUES, tally.RESULTS),
    ):
        samples = [((cluster, result), counters.get((counter, result), 0)) for result in results]
        yield from filled(name, samples)
    for name, counter in (
        ("ltgf_gpu_seconds_saved_total", tally.SAVED_GPU_S),
        ("ltgf_gpu_seconds_lost_total", tally.LOST_GPU_S),
    ):
        yield from filled(name, [((cluster,), counters.get((counter, ""), 0))])


def _daemon(seen: Readings) -> Iterator[Any]:
    last = seen.last_pass
    if last is None:
        return
    cluster = label(seen.cluster)
    yield from filled("ltgf_pass_timestamp_seconds", [((cluster,), last.time)])
    if seen.is_daemon_silent:
        return
    values = {
        "ltgf_pass_duration_seconds": last.took_s,
        "ltgf_slurmdbd_up": float(last.has_database),
        "ltgf_ordered_jobs": last.waiting,
        "ltgf_moves_under_way": last.moves,
    }
    for name, value in values.items():
        yield from filled(name, [((cluster,), value)])
    leases = (last.leases or {}).items()
    yield from filled("ltgf_leases", (((cluster, state), n) for state, n in leases))


def _jobs(seen: Readings) -> Iterator[Any]:
    cluster = label(seen.cluster)
    rows = [((cluster, label(job.tenant), label(job.job_id)), job) for job in seen.jobs]
    yield from filled("ltgf_job_held_gpus", ((labels, job.gpus) for labels, job in rows))
    yield from filled("ltgf_job_rho", ((labels, job.rho) for labels, job in rows))


def _aliases(seen: Readings) -> Iterator[Any]:
    cluster, counters = label(seen.cluster), seen.counters
    made = family("gpu_migration")
    made.add_metric(
        (cluster,),
        count_value=counters.get((tally.REQUEUES, "saved"), 0),
        sum_value=counters.get((tally.REQUEUE_S, ""), 0),
    )
    yield made
    capacity, kept = seen.fairness.capacity_gpu_s, seen.kept_gpu_s
    is_known = capacity and kept is not None
    yield from filled(
        "gpu_effective_utilization",
        [((cluster,), kept / capacity if is_known and capacity and kept is not None else None)],
    )
