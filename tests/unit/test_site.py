"""The site's configuration, daemons and clock; what preemption does to a job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN
from slurm_ltgf.errors import SlurmRefused
from slurm_ltgf.slurm import site
from slurm_ltgf.slurm.site import Preempted, effective_preempt_mode, requeue_outlook

CONFIG = """\
Configuration data as of 2026-11-29T18:58:03
AccountingStorageTRES   = cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu,gres/gpu:h200
AuthInfo                = socket=/run/h4/munge/munge.sock,cred_expire=5
ClusterName             = lab
MinJobAge               = 300 sec
PreemptMode             = REQUEUE
PreemptType             = preempt/qos
PriorityFlags           = NO_FAIR_TREE,INCR_ONLY
PriorityType            = priority/multifactor
PriorityWeightAge       = 1000
PriorityWeightFairShare = 100000
PriorityWeightTRES      = cpu=2000,gres/gpu=3000
PrioritySiteFactorPlugin = (null)
SchedulerParameters     = batch_sched_delay=0,defer,bf_interval=1
SlurmUser               = slurm(64030)
SLURM_VERSION           = 22.05.8

Cgroup Support Configuration:
ClusterName             = not this one
(null)                  = (null)

Slurmctld(primary) at vm is UP
"""


def config(**changed: str) -> site.Site:
    return site.parse_config(
        "\n".join(f"{k} = {v}" for k, v in {"ClusterName": "lab", **changed}.items())
    )


def test_a_recorded_configuration_is_read():
    found = site.parse_config(CONFIG)
    assert (found.cluster, found.version, found.slurm_user) == ("lab", (22, 5, 8), "slurm")
    assert found.tracks_gpus
    assert found.has_multifactor
    assert found.priority_flags == {"NO_FAIR_TREE", "INCR_ONLY"}
    assert found.weights == {
        "age": 1000,
        "fairshare": 100000,
        "tres/cpu": 2000,
        "tres/gres/gpu": 3000,
    }
    assert (found.cred_expire_s, found.min_job_age_s, found.max_batch_requeue) == (5, 300, 5)
    assert found.options("SchedulerParameters") == {
        "batch_sched_delay": "0",
        "defer": "",
        "bf_interval": "1",
    }


def test_a_key_is_found_in_any_case_and_null_is_nothing():
    found = site.parse_config(CONFIG)
    assert found.get("clustername") == found.get("CLUSTERNAME") == "lab"
    assert found.get("PrioritySiteFactorPlugin", "none") == "none"
    assert found.get("NoSuchKey") == ""
    assert found.number("NoSuchKey") == UNKNOWN


def test_what_is_not_told_has_slurms_default():
    found = config()
    assert (found.cred_expire_s, found.min_job_age_s, found.max_batch_requeue) == (120, 300, 5)
    assert (found.version, found.tracks_gpus, found.weights) == ((), False, {})


def test_typed_gpus_alone_are_not_gpu_time():
    assert config(AccountingStorageTRES="cpu,gres/gpu:h200").tracks_gpus
    assert not config(AccountingStorageTRES="cpu,gres/gpumem,gres/gpfs:gpu").tracks_gpus


def test_an_answer_without_a_cluster_is_no_configuration():
    with pytest.raises(SlurmRefused, match="no ClusterName"):
        site.parse_config("slurm_load_ctl_conf error: Zero Bytes were transmitted or received\n")


def test_a_ping_tells_each_controller():
    text = "Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n"
    assert site.parse_ping(text) == (
        site.Controller("primary", "a", is_up=False),
        site.Controller("backup", "b", is_up=True),
    )


def test_the_servers_clock_is_sdiags():
    assert site.parse_server_time("sdiag output at Sun Nov 29 2026 (1795977780)\n") == 1795977780
    with pytest.raises(SlurmRefused, match="no time"):
        site.parse_server_time("sdiag output\n")


def test_partitions_are_read():
    text = (
        "PartitionName=main AllowQos=ALL Default=YES QoS=N/A GraceTime=0 MaxTime=UNLIMITED"
        " PriorityTier=1 PreemptMode=REQUEUE State=UP\n"
        "PartitionName=free QoS=low GraceTime=600 MaxTime=3-00:00:00 PriorityTier=25"
        " PreemptMode=CANCEL State=DOWN\n"
    )
    assert site.parse_partitions(text) == (
        site.Partition("main", "UP", "REQUEUE", "", 1, NO_LIMIT, 0),
        site.Partition("free", "DOWN", "CANCEL", "low", 25, 259200, 600),
    )


# --- preemption -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "qos", "partition", "kind", "mode"),
    [
        pytest.param("REQUEUE", "", "", "preempt/qos", "REQUEUE", id="the cluster's"),
        pytest.param("CANCEL", "requeue", "", "preempt/qos", "REQUEUE", id="QOS over cluster"),
        pytest.param("CANCEL", "requeue", "OFF", "preempt/qos", "OFF", id="partition over QOS"),
        pytest.param("CANCEL", "requeue", "CANCEL", "", "REQUEUE", id="shown but not set"),
        pytest.param("CANCEL", "cluster", "", "", "CANCEL", id="QOS says cluster"),
        pytest.param("GANG,SUSPEND", "", "", "", "SUSPEND", id="gang is no mode"),
        pytest.param("REQUEUE", "cancel", "", "preempt/none", "OFF", id="no preemption"),
        pytest.param("", "", "", "", "OFF", id="nothing told"),
    ],
)
def test_the_effective_mode_is_partition_over_qos_over_cluster(cluster, qos, partition, kind, mode):
    found = effective_preempt_mode(cluster, qos=qos, partition=partition, preempt_type=kind)
    assert found == mode


@pytest.mark.parametrize(
    ("job", "verdict", "words"),
    [
        pytest.param(Preempted(1, "PREEMPTED"), "waits", "will be PENDING", id="requeue"),
        pytest.param(
            Preempted(1, "PREEMPTED", preempt_mode="CANCEL"),
            "gone",
            "will not come back: PreemptMode=CANCEL",
            id="cancel",
        ),
        pytest.param(
            Preempted(1, "NODE_FAIL", requeue=False), "gone", "--no-requeue", id="no-requeue"
        ),
        pytest.param(
            Preempted(1, "PENDING", "JobHeldAdmin", restarts=6, priority=0),
            "held",
            "after the requeue limit (6 restarts, limit 5): scontrol release 1",
            id="requeue limit",
        ),
        pytest.param(
            Preempted(1, "PENDING", "JobHeldUser", restarts=6, priority=0),
            "held",
            "is held (JobHeldUser)",
            id="its user holds it",
        ),
        pytest.param(
            Preempted(1, "PENDING", "BeginTime", restarts=1, priority=900),
            "waits",
            "waits for BeginTime: a requeued job is eligible 120 s",
            id="just requeued",
        ),
        pytest.param(
            Preempted(1, "PENDING", "BeginTime", priority=900), "queued", "BeginTime", id="--begin"
        ),
        pytest.param(Preempted(1, "PENDING", "Priority"), "queued", "Priority", id="in the queue"),
        pytest.param(Preempted(1, "RUNNING"), "runs", "runs", id="running"),
        pytest.param(Preempted(1, "COMPLETING"), "waits", "completing", id="completing"),
        pytest.param(Preempted(1, "FAILED"), "gone", "is over: FAILED", id="failed"),
    ],
)
def test_the_outlook_of_a_job_is_a_verdict_and_a_sentence(job, verdict, words):
    found = requeue_outlook(job)
    assert found.verdict == verdict
    assert words in found.sentence
    assert found.may_requeue is (verdict == "runs")


SHARED = Path(os.environ.get("LTGF_SHARED", Path(__file__).parents[3] / "shared"))
GCM = SHARED / "cases" / "files" / "facebookresearch_gcm"


@pytest.mark.skipif(not GCM.is_dir(), reason="LTGF_SHARED: no real files here")
def test_a_real_configuration_and_partitions_are_read():
    text = (GCM / "sample-scontrol-show-config-output.txt").read_text()
    found = site.parse_config(text)
    assert found.version >= (20,)
    assert found.max_batch_requeue == 5
    assert [c.is_up for c in site.parse_ping(text)] == [True, True]
    parts = site.parse_partitions((GCM / "sample-scontrol-output.txt").read_text())
    assert [p.preempt_mode for p in parts] == ["REQUEUE", "REQUEUE", "OFF"]
