"""The metrics of a node: its GPUs, held against used."""

from __future__ import annotations

from slurm_ltgf.metrics.kinds import Group, Metric, gauges

NODE_GPUS = Group(
    "GPUs of a node",
    "`ltgf exporter --node`, and the driver tells",
    (
        Metric("ltgf_node_gpu_info", "gauge", ("gpu", "uuid", "model"), "1; which GPU it is."),
        *gauges(
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
    gauges(
        ("job_id",),
        ltgf_node_job_gpus="GPUs of the node that the job holds, whole or shared.",
        ltgf_node_job_used_gpus=(
            "GPUs' worth of utilisation that is the job's; absent where a GPU is shared and the "
            "driver does not tell whose it is."
        ),
    ),
)

NODE = (NODE_GPUS, NODE_JOBS)
