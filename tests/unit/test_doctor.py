"""`ltgf doctor`: each check finds what it is there for and is quiet when all is well."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slurm_ltgf.cli import doctor as cli
from slurm_ltgf.core.factor import Scale
from slurm_ltgf.core.model import Account
from slurm_ltgf.service import doctor_facts
from slurm_ltgf.service.doctor import CHECKS, Facts, Finding, LedgerFacts, examine
from slurm_ltgf.service.doctor_facts import FolderFacts
from slurm_ltgf.service.quota_drift import Drift
from slurm_ltgf.slurm import probe
from slurm_ltgf.slurm.nodes import Capacity, Node
from slurm_ltgf.slurm.queue import Priorities, Queue, QueueJob
from slurm_ltgf.slurm.site import Controller, Partition, Site
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.factor_table import PluginStatus
from slurm_ltgf.store.ledger import Ledger
from tests.folders import open_to_all

NOW = 1_800_000_000
SETTINGS = {
    "AccountingStorageEnforce": "associations,limits,qos",
    "AccountingStorageHost": "db1",
    "AccountingStorageTRES": "cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AuthInfo": "socket=/run/munge,cred_expire=5",
    "ClusterName": "ltgf",
    "MinJobAge": "300 sec",
    "PriorityCalcPeriod": "00:05:00",
    "PriorityType": "priority/multifactor",
    "SchedulerParameters": "bf_max_job_test=2000,default_queue_depth=1000",
    "SlurmUser": "slurm(64030)",
    "SLURM_VERSION": "22.05.8",
}
H200 = Node("n1", ("main",), gres="gpu:h200=8")
T4 = Node("n2", ("main",), gres="gpu:t4=4")
READY = LedgerFacts(Path("/l/ledger.db"), exists=True, until=NOW - 40, holder=77)


def facts(**changed: Any) -> Facts:
    """A site where all is well, but for these facts."""
    good: dict[str, Any] = {
        "now": NOW,
        "user": "slurm",
        "uid": 64030,
        "config": Config(),
        "controllers": (Controller("primary", "head1", True),),
        "site": conf(),
        "ledger": READY,
        "clusters": ("ltgf",),
        "accounts": (
            Account("root"),
            Account("nlp", "root", 3, (1, 1)),
            Account("vision", "root", 1, (1,)),
        ),
        "admin_level": "none",
        "partitions": (Partition("main"), Partition("debug")),
        "billing": {"main": {"cpu": "0.1", "gres/gpu": "1"}},
        "capacity": Capacity((H200,)),
        "queue": Queue(),
        "priorities": Priorities({}),
        "client": (22, 5, 8),
        "clock_ahead_s": 0.0,
        "conf_plugin": "",
    }
    return Facts(**{**good, **changed})


def conf(**changed: str | None) -> Site:
    """slurm.conf with these keys changed; None: not set."""
    values = {**SETTINGS, **changed}
    return Site({key.lower(): value for key, value in values.items() if value is not None})


def toml(section: str, **values: Any) -> Config:
    part = msgspec.structs.replace(getattr(Config(), section), **values)
    return msgspec.structs.replace(Config(), **{section: part})


def ledger(**changed: Any) -> LedgerFacts:
    return replace(READY, **changed)


def nodes(*found: Node) -> Capacity:
    return Capacity(found)


def said(*, state: str = "ok", age_s: int = 3) -> PluginStatus:
    """What the plugin wrote so long ago of a table of 3 s."""
    return PluginStatus(9, NOW - age_s, state, (NOW - 3) * 10**9)


LEASES = msgspec.structs.replace(
    toml("lease", mode="on"), checkpoint=toml("checkpoint", records="/l/my records").checkpoint
)
TABLE = toml("site", factor_table="/run/ltgf/factors")
GPU_TRES = SETTINGS["AccountingStorageTRES"]
CLOSED = ledger(unreadable="/l/ledger.db: Permission denied", closed=True, holder=None)
MIXED = nodes(H200, T4)
DRIFT = Drift(Path("/q.toml"))

#: check, facts that are changed, level, a part of what is said, a part of the fix
CASES = [
    ("slurmctld", {}, "ok", "primary at head1", ""),
    (
        "slurmctld",
        {"controllers": (Controller("primary", "a", True), Controller("backup", "b", False))},
        "note",
        "backup at b",
        "systemctl start slurmctld  # on b",
    ),
    ("slurmdbd", {}, "ok", "answers on db1", ""),
    (
        "slurmdbd",
        {"clusters": None, "unread": {"clusters": "Connection refused"}},
        "fix",
        "Connection refused",
        "systemctl start slurmdbd  # on db1",
    ),
    (
        "slurmdbd",
        {"site": conf(AccountingStorageType="accounting_storage/none")},
        "fix",
        "records no history",
        "AccountingStorageType=accounting_storage/slurmdbd",
    ),
    ("quota", {}, "ok", "no /etc/ltgf/quota.toml", ""),
    ("quota", {"quota": DRIFT}, "ok", "Slurm is as /q.toml says", ""),
    (
        "quota",
        {"quota": replace(DRIFT, targets=("account a", "user b of a"))},
        "fix",
        "not as /q.toml says: account a, user b of a",
        "ltgf quota apply",
    ),
    (
        "quota",
        {"quota": replace(DRIFT, problem="/q.toml: accounts.a.gpu: no", is_wrong=True)},
        "fix",
        "accounts.a.gpu",
        "",
    ),
    ("quota", {"quota": replace(DRIFT, refused="account a: why")}, "fix", "account a: why", ""),
    ("quota", {"quota": replace(DRIFT, problem="away")}, "note", "not checked: away", ""),
    ("version", {}, "ok", "Slurm 22.05.8", ""),
    ("version", {"site": conf(SLURM_VERSION="21.08.5")}, "fix", "older than 22.05", ""),
    ("version", {"client": (24, 11, 5)}, "fix", "24.11.5, slurmctld is 22.05.8", "PATH"),
    ("version", {"client": (21, 8, 1)}, "note", "commands here are 21.08.1", "PATH"),
    (
        "version",
        {"site": conf(SLURM_VERSION="26.11.0"), "client": (26, 11, 0)},
        "note",
        "newer than ltgf knows",
        "",
    ),
    (
        "version",
        {"site": conf(SLURM_VERSION="26.05.5"), "client": (26, 5, 5)},
        "ok",
        "26.05.5",
        "",
    ),
    ("version", {"client": None}, "note", "not checked", ""),
    ("clock", {"clock_ahead_s": -1.9}, "ok", "within 2 s", ""),
    ("clock", {"clock_ahead_s": 7.0}, "fix", "7 s ahead of", "timedatectl"),
    ("clock", {"clock_ahead_s": -2.5}, "fix", "2 s behind", "timedatectl"),
    ("settings", {}, "ok", "", ""),
    ("settings", {"config_error": "ltgf.toml: is not TOML"}, "fix", "is not TOML", ""),
    ("settings", {"has_settings": False}, "note", "no file", "ltgf init -o"),
    ("cluster-name", {}, "ok", "ltgf", ""),
    (
        "cluster-name",
        {"config": toml("site", cluster="other")},
        "fix",
        "'other'",
        'cluster = "ltgf"  # ltgf.toml, under [site]',
    ),
    ("cluster-name", {"clusters": ("old",)}, "fix", "does not know", "add cluster ltgf"),
    ("cluster-name", {"clusters": None}, "note", "not checked", ""),
    ("rights", {}, "ok", "slurm, AdminLevel none may write", ""),
    ("rights", {"user": "root", "uid": 0, "admin_level": None}, "ok", "root", ""),
    ("rights", {"user": "ann", "admin_level": "operator"}, "ok", "operator", ""),
    (
        "rights",
        {"user": "ann", "uid": 7, "admin_level": "none"},
        "fix",
        "ann may not write",
        "sacctmgr -i modify user where name=ann set adminlevel=operator",
    ),
    (
        "rights",
        {"user": "a b", "uid": 7, "admin_level": ""},
        "fix",
        "a b may not write",
        "sacctmgr -i add user 'a b' account=root adminlevel=operator",
    ),
    ("rights", {"user": "ann", "uid": 7, "admin_level": None}, "note", "not checked", ""),
    ("private-data", {"site": conf(PrivateData="jobs")}, "ok", "sees all", ""),
    (
        "private-data",
        {"site": conf(PrivateData="jobs,users"), "user": "ann", "uid": 7},
        "note",
        "PrivateData=jobs,users",
        "",
    ),
    ("gpu-tracked", {}, "ok", "gres/gpu", ""),
    (
        "gpu-tracked",
        {"site": conf(AccountingStorageTRES="cpu,mem,gres/mps")},
        "fix",
        "the past cannot be recovered",
        "AccountingStorageTRES=gres/mps,gres/gpu  # ",
    ),
    (
        "gpu-tracked",
        {"capacity": nodes(Node("n1", gres="gpu=8,mps=800"))},
        "fix",
        "lacks gres/mps: jobs that share",
        "AccountingStorageTRES=gres/gpu,gres/mps  # ",
    ),
    ("gpu-types", {}, "ok", "one type", ""),
    (
        "gpu-types",
        {"capacity": MIXED},
        "note",
        "lacks gres/gpu:h200, gres/gpu:t4",
        "AccountingStorageTRES=gres/gpu,gres/gpu:h200,gres/gpu:t4",
    ),
    (
        "gpu-types",
        {"capacity": MIXED, "config": toml("fairness", gpu_weights={"t4": 0.2})},
        "fix",
        "cannot be applied",
        "gres/gpu:t4",
    ),
    (
        "gpu-types",
        {"capacity": None, "config": toml("fairness", gpu_weights={"t4": 0.2})},
        "fix",
        "lacks gres/gpu:t4",
        "gres/gpu:t4",
    ),
    (
        "gpu-types",
        {
            "site": conf(AccountingStorageTRES=f"{GPU_TRES},gres/gpu:H200,gres/gpu:t4"),
            "capacity": MIXED,
        },
        "ok",
        "h200, t4",
        "",
    ),
    (
        "gpu-types",
        {
            "site": conf(AccountingStorageTRES=f"{GPU_TRES},gres/gpu:a100_3g.20gb"),
            "capacity": nodes(Node("n1", gres="gpu:a100_3g.20gb=2")),
            "config": toml("fairness", gpu_weights={"a100": 2}),
        },
        "ok",
        "a100_3g.20gb",
        "",
    ),
    ("enforce", {}, "ok", "associations", ""),
    (
        "enforce",
        {"site": conf(AccountingStorageEnforce="none")},
        "fix",
        "belongs to no tenant",
        "AccountingStorageEnforce=associations",
    ),
    ("accounts", {}, "ok", "3, 2 of them with users", ""),
    ("accounts", {"accounts": (Account("root", "", 1, (1,)),)}, "fix", "no tenants", "add account"),
    ("accounts", {"accounts": None, "unread": {"accounts": "away"}}, "note", "away", ""),
    ("zero-weight", {}, "ok", "", ""),
    (
        "zero-weight",
        {"accounts": (Account("root"), Account("old;rm", "root", 0, (1,)))},
        "note",
        "old;rm: users, but weight 0",
        "account 'old;rm' set fairshare=1",
    ),
    (
        "zero-weight",
        {
            "accounts": (Account("root"), Account("old", "root", 0, (1,))),
            "config": toml("fairness", weights={"old": 0.0}),
        },
        "ok",
        "",
        "",
    ),
    ("zero-weight", {"accounts": None}, "note", "not checked", ""),
    ("parent-shares", {}, "ok", "", ""),
    (
        "parent-shares",
        {"accounts": (Account("root"), Account("lab", "root", None, (1,)))},
        "note",
        "lab: Fairshare=parent, so the account is transparent",
        "",
    ),
    ("named-accounts", {"config": toml("fairness", weights={"NLP": 2.0})}, "ok", "exist", ""),
    (
        "named-accounts",
        {"config": toml("fairness", exclude_accounts=("root", "tset"))},
        "fix",
        "exclude_accounts names tset",
        'exclude_accounts = ["root"]  # ltgf.toml, under [fairness]',
    ),
    (
        "named-accounts",
        {"config": toml("fairness", weights={"nlpp": 2.0})},
        "note",
        "weights names nlpp",
        "",
    ),
    ("partitions", {}, "ok", "main, debug", ""),
    (
        "partitions",
        {"config": toml("site", partitions=("main", "gpux"))},
        "fix",
        "names gpux",
        'partitions = ["main"]  # ltgf.toml, under [site]',
    ),
    (
        "partitions",
        {"partitions": (Partition("main"), Partition("fast", priority_tier=9))},
        "note",
        "main 1, fast 9",
        "",
    ),
    ("gpus", {}, "ok", "8 on 1 nodes", ""),
    (
        "gpus",
        {"capacity": nodes(H200, replace(T4, flags=frozenset({"drain"})))},
        "note",
        "1 of 2 nodes take no jobs, 4 of 12 GPUs: n2 (idle+drain)",
        "sinfo -R",
    ),
    ("gpus", {"capacity": nodes(Node("c1"))}, "fix", "none of 1 nodes has a GPU", "GresTypes=gpu"),
    (
        "gpus",
        {
            "config": toml("site", partitions=("main",)),
            "capacity": nodes(H200, Node("x", ("p2",), "down", gres="gpu=8")),
        },
        "ok",
        "8 on 1 nodes",
        "",
    ),
    ("named-types", {"config": toml("fairness", gpu_weights={"h200": 2})}, "ok", "h200", ""),
    (
        "named-types",
        {"config": toml("fairness", gpu_weights={"H200": 2})},
        "note",
        "names H200; nodes have h200",
        "",
    ),
    ("shared-gpus", {"capacity": nodes(Node("n", gres="gpu=8,mps=800"))}, "ok", "agree", ""),
    ("shared-gpus", {"capacity": nodes(Node("n", gres="gpu=8,shard=32"))}, "ok", "agree", ""),
    (
        "shared-gpus",
        {"capacity": nodes(Node("n", gres="gpu=8,mps=1600"))},
        "fix",
        "gres/mps per GPU: 200 on n; fairness.mps_per_gpu is 100",
        "mps_per_gpu = 200  # ltgf.toml, under [fairness]",
    ),
    (
        "shared-gpus",
        {"capacity": nodes(Node("a", gres="gpu=8,shard=32"), Node("b", gres="gpu=2,shard=16"))},
        "fix",
        "gres/shard per GPU: 4 on a, 8 on b",
        "shards_per_gpu = 4",
    ),
    (
        "shared-gpus",
        {
            "capacity": nodes(Node("a", gres="gpu=8,shard=32")),
            "config": toml("fairness", shards_per_gpu=4),
        },
        "ok",
        "agree",
        "",
    ),
    ("priority-type", {}, "ok", "SiteFactor counts", ""),
    (
        "priority-type",
        {"site": conf(PriorityType="priority/basic")},
        "fix",
        "SiteFactor has no effect",
        "PriorityType=priority/multifactor  # slurm.conf",
    ),
    ("priority-flags", {"site": conf(PriorityFlags="MAX_TRES")}, "ok", "MAX_TRES", ""),
    (
        "priority-flags",
        {"site": conf(PriorityFlags="INCR_ONLY,MAX_TRES")},
        "fix",
        "no priority ever falls",
        "PriorityFlags=MAX_TRES  # ",
    ),
    (
        "priority-flags",
        {"site": conf(PriorityFlags="INCR_ONLY")},
        "fix",
        "no priority ever falls",
        "#PriorityFlags=INCR_ONLY",
    ),
    (
        "priority-flags",
        {"site": conf(PriorityFlags="NO_NORMAL_QOS", PriorityWeightQOS="10")},
        "note",
        "not bounded by their weights",
        "",
    ),
    (
        "weights",
        {"site": conf(PriorityWeightAge="1000", PriorityWeightTRES="cpu=2000,gres/gpu=3000")},
        "ok",
        "PriorityWeightAge 1000 + PriorityWeightTRES cpu 2000 + PriorityWeightTRES gres/gpu 3000",
        "",
    ),
    (
        "weights",
        {"site": conf(PriorityWeightAge="500000", PriorityWeightFairShare="500000")},
        "fix",
        "span 1000000 (PriorityWeightAge 500000 + PriorityWeightFairShare 500000)",
        "step = 1000001  # ltgf.toml, under [queue]",
    ),
    (
        "weights",
        {"site": conf(PriorityWeightFairShare="9000000", PriorityWeightTRES="cpu=1000000")},
        "fix",
        "largest: 3387198; a head of 32 would do",
        "PriorityWeightFairShare=899999  # ",
    ),
    (
        "weights",
        {"config": toml("queue", step=4_000_000)},
        "fix",
        "does not fit SiteFactor's range",
        "step = 3387198  # ltgf.toml, under [queue]",
    ),
    (
        "weights",
        {"site": conf(PriorityWeightAge="90000000")},
        "fix",
        "(largest: 3387198): lower the weights",
        "PriorityWeightAge=999999  # ",
    ),
    (
        "weights",
        {"config": toml("queue", head=2_000_000_000)},
        "fix",
        "does not fit SiteFactor's range",
        "head = ",
    ),
    ("site-factor-plugin", {}, "ok", "none", ""),
    ("site-factor-plugin", {"conf_plugin": "site_factor/none"}, "ok", "none", ""),
    (
        "site-factor-plugin",
        {"conf_plugin": "site_factor/lab"},
        "fix",
        "site_factor/lab overwrites our SiteFactors every 00:05:00",
        "PrioritySiteFactorPlugin=site_factor/none",
    ),
    (
        "site-factor-plugin",
        {"conf_plugin": "site_factor/none", "config": TABLE},
        "note",
        "no plugin for /run/ltgf/factors: SiteFactors go by scontrol",
        "PrioritySiteFactorPlugin=site_factor/ltgf",
    ),
    (
        "site-factor-plugin",
        {"conf_plugin": "site_factor/ltgf"},
        "fix",
        "reads /run/ltgf/factors, and we write none",
        'factor_table = "/run/ltgf/factors"',
    ),
    (
        "site-factor-plugin",
        {"conf_plugin": "site_factor/ltgf", "conf_table": "/other", "config": TABLE},
        "fix",
        "reads /other, and we write /run/ltgf/factors",
        'factor_table = "/other"',
    ),
    (
        "site-factor-plugin",
        {"conf_plugin": "site_factor/ltgf", "config": TABLE},
        "fix",
        "no slurmctld writes /run/ltgf/factors.status: SiteFactors go by scontrol",
        "systemctl restart slurmctld",
    ),
    (
        "site-factor-plugin",
        {"config": TABLE, "plugin": said(), "site": conf(PriorityCalcPeriod="00:01:00")},
        "ok",
        "SiteFactors go by the table /run/ltgf/factors, 3 s old",
        "",
    ),
    (
        "site-factor-plugin",
        {"config": TABLE, "plugin": said(), "site": conf(PriorityCalcPeriod="00:05:00")},
        "fix",
        "only every 00:05:00",
        "PriorityCalcPeriod=1  # ",
    ),
    (
        "site-factor-plugin",
        {"config": TABLE, "plugin": said(state="is not there")},
        "fix",
        "gives every job 0: /run/ltgf/factors is not there",
        "systemctl start ltgf",
    ),
    (
        "site-factor-plugin",
        {"config": TABLE, "plugin": said(age_s=60), "conf_plugin": "site_factor/ltgf"},
        "fix",
        "no slurmctld writes",
        "systemctl restart slurmctld",
    ),
    (
        "site-factor-plugin",
        {"conf_plugin": None, "unread": {"conf_plugin": "/e/slurm.conf cannot be read here"}},
        "note",
        "/e/slurm.conf cannot be read here",
        "",
    ),
    ("queue-depth", {}, "ok", "first 256", ""),
    (
        "queue-depth",
        {"site": conf(SchedulerParameters="defer,bf_max_job_test=50")},
        "note",
        "default_queue_depth 100, bf_max_job_test 50",
        "SchedulerParameters=defer,default_queue_depth=256,bf_max_job_test=256  # ",
    ),
    ("billing", {}, "ok", "counts GPUs", ""),
    (
        "billing",
        {"billing": {"main": {}, "debug": {"cpu": "1.0"}}},
        "note",
        "partition debug, main",
        "GRES/gpu=1",
    ),
    ("min-job-age", {}, "ok", "MinJobAge 300 s", ""),
    ("min-job-age", {"site": conf(MinJobAge="59 sec")}, "fix", "MinJobAge 59 s", "MinJobAge=300"),
    (
        "min-job-age",
        {"config": toml("daemon", interval_s=400)},
        "fix",
        "under two intervals",
        "MinJobAge=800",
    ),
    ("cred-expire", {}, "ok", "waits 5 s", ""),
    (
        "cred-expire",
        {"site": conf(AuthInfo="socket=/m,cred_expire=60")},
        "note",
        "waits 60 s",
        "AuthInfo=socket=/m,cred_expire=30  # ",
    ),
    ("cred-expire", {"site": conf(AuthInfo=None)}, "note", "120 s", "AuthInfo=cred_expire=30"),
    (
        "cred-expire",
        {"site": conf(AuthInfo=None), "config": toml("lease", mode="on")},
        "note",
        "waits 120 s before it may start again (cred_expire), so does every job that yields",
        "AuthInfo=cred_expire=30",
    ),
    ("job-requeue", {}, "ok", "requeues jobs", ""),
    ("job-requeue", {"site": conf(JobRequeue="0")}, "ok", "leases move nobody", ""),
    ("job-requeue", {"site": conf(JobRequeue="1"), "config": LEASES}, "ok", "requeues jobs", ""),
    (
        "job-requeue",
        {"site": conf(JobRequeue="0"), "config": LEASES},
        "fix",
        "only jobs submitted with --requeue can yield",
        "JobRequeue=1  # slurm.conf",
    ),
    ("checkpoint-records", {}, "ok", "no folder set", ""),
    (
        "checkpoint-records",
        {"config": toml("lease", mode="on")},
        "fix",
        "checkpoint.records is not set: no job can be asked to save",
        'records = "/shared/ltgf/records"  # ltgf.toml, under [checkpoint]',
    ),
    (
        "checkpoint-records",
        {"config": LEASES, "records": FolderFacts(owner="slurm", mode=0o1777)},
        "ok",
        "/l/my records is slurm's, mode 1777",
        "",
    ),
    (
        "checkpoint-records",
        {"config": LEASES, "records": FolderFacts("No such file or directory")},
        "fix",
        "/l/my records: No such file or directory: no job can be asked to save",
        "install -d -m 1777 -o slurm '/l/my records'  # as root",
    ),
    (
        "checkpoint-records",
        {"config": LEASES, "records": FolderFacts(owner="root", mode=0o755)},
        "fix",
        "belongs to root, not to SlurmUser slurm and has mode 755, not 1777",
        "chown slurm '/l/my records' && chmod 1777 '/l/my records'  # as root",
    ),
    (
        "checkpoint-records",
        {"config": LEASES, "records": FolderFacts(owner="slurm", mode=0o777)},
        "fix",
        "/l/my records has mode 777, not 1777",
        "chmod 1777",
    ),
    ("frozen-jobs", {}, "ok", "", ""),
    (
        "frozen-jobs",
        {"priorities": Priorities({}, frozenset({9, 4}))},
        "note",
        "2 pending with a priority set by hand",
        "scontrol release 4,9",
    ),
    ("frozen-jobs", {"priorities": None}, "note", "not checked", ""),
    ("held-jobs", {"queue": Queue((QueueJob(1, priority=5),))}, "ok", "none", ""),
    (
        "held-jobs",
        {"queue": Queue((QueueJob(1, priority=0), QueueJob(2, "2_[1-3]", priority=0)))},
        "note",
        "2 held, not in the order until released: 1, 2_[1-3]",
        "",
    ),
    ("ledger", {}, "ok", "readable and writable", ""),
    ("ledger", {"ledger": ledger(exists=False, unreadable="no")}, "note", "none yet", "ltgf sync"),
    (
        "ledger",
        {"ledger": ledger(exists=False, unreadable="no", unwritable="/l is not writable")},
        "fix",
        "/l is not writable",
        "install -d -m 750 -o slurm /l  # as root",
    ),
    ("ledger", {"ledger": ledger(unwritable="/l is not writable")}, "note", "another user", ""),
    ("ledger", {"ledger": CLOSED}, "fix", "Permission denied", "sudo -u slurm ltgf doctor"),
    ("ledger", {"ledger": ledger(unreadable="/l: is not a ledger")}, "fix", "not a ledger", ""),
    ("history", {}, "ok", "40 s ago", ""),
    ("history", {"ledger": ledger(exists=False)}, "ok", "no ledger yet", ""),
    ("history", {"ledger": ledger(until=None)}, "note", "none yet", "ltgf sync"),
    ("history", {"ledger": ledger(until=NOW - 7200, holder=0)}, "note", "2 h ago", "ltgf sync"),
    (
        "history",
        {"ledger": ledger(until=NOW - 7200)},
        "fix",
        "does not get on",
        "systemctl restart ltgf",
    ),
    ("history", {"ledger": CLOSED}, "note", "not checked", ""),
    ("skipped-rows", {}, "ok", "none", ""),
    (
        "skipped-rows",
        {"ledger": ledger(skipped=3, first_skipped="sacct ltgf: no such state")},
        "note",
        "3 rows of history could not be read and are in no sum, first: sacct ltgf: no such state",
        "ltgf fairness --json",
    ),
    ("daemon", {}, "ok", "process 77", ""),
    (
        "daemon",
        {"ledger": ledger(holder=0)},
        "note",
        "stay as the last pass",
        "systemctl enable --now ltgf",
    ),
    ("daemon", {"ledger": CLOSED}, "note", "not checked", ""),
]


def verdict(name: str, known: Facts) -> Finding:
    return next(finding for finding in examine(known) if finding.name == name)


@pytest.mark.parametrize(("name", "changed", "level", "what", "fix"), CASES)
def test_a_check(name: str, changed: dict[str, Any], level: str, what: str, fix: str) -> None:
    found = verdict(name, facts(**changed))
    assert found.level == level, found
    assert what in found.what
    assert fix in found.fix
    assert bool(fix) == bool(found.fix), found.fix


def test_every_check_has_a_good_and_a_bad_case() -> None:
    cases = {(name, level == "ok") for name, _, level, _, _ in CASES}
    names = [finding.name for finding in examine(facts())]
    assert len(set(names)) == len(names) == len(CHECKS)
    assert cases == {(name, good) for name in names for good in (True, False)}


def test_where_all_is_well_nothing_is_found() -> None:
    assert [f for f in examine(facts()) if f.level != "ok"] == []


def test_no_check_needs_a_fact_that_could_not_be_had() -> None:
    askable = [field.name for field in fields(Facts) if field.default is None]
    found = examine(facts(**dict.fromkeys(askable), user="ann", uid=7))
    assert {f.name for f in found if f.level == "fix"} == {"slurmdbd"}
    assert sum(f.what.startswith("not checked") for f in found) == 16


def test_the_step_that_is_proposed_is_the_smallest_that_does() -> None:
    site = conf(PriorityWeightAge="2000000")
    for step, level in ((2_000_000, "fix"), (2_000_001, "ok")):
        assert verdict("weights", facts(site=site, config=toml("queue", step=step))).level == level


def test_weights_that_are_proposed_are_below_the_step() -> None:
    weights = {"PriorityWeightAge": "7", "PriorityWeightFairShare": "8000000"}
    tres = "cpu=1000000,gres/gpu=3000000"
    fix = verdict("weights", facts(site=conf(**weights, PriorityWeightTRES=tres))).fix
    proposed = dict(line.partition("#")[0].strip().split("=", 1) for line in fix.splitlines())
    assert set(proposed) == {*weights, "PriorityWeightTRES"}
    assert verdict("weights", facts(site=conf(**proposed))).level == "ok"


@pytest.mark.parametrize(("head", "step"), [(256, 4_000_000), (2_000_000_000, 1_000_000)])
@pytest.mark.parametrize("weight", ["0", "6000000"])
def test_head_and_step_that_are_proposed_fit(head: int, step: int, weight: str) -> None:
    site, config = conf(PriorityWeightAge=weight), toml("queue", head=head, step=step)
    fix = verdict("weights", facts(site=site, config=config)).fix
    proposed = dict(line.partition("#")[0].split(" = ") for line in fix.splitlines())
    values = {"head": head, **{key: int(value) for key, value in proposed.items()}}
    assert Scale(**values).largest_step >= values["step"]
    assert verdict("weights", facts(site=site, config=toml("queue", **values))).level == "ok"


def test_fixes_can_be_pasted_where_they_say() -> None:
    for name, changed, *_ in CASES:
        for line in filter(None, verdict(name, facts(**changed)).fix.split("\n")):
            assert line.isprintable()
            assert line == line.strip()


# --- the command ----------------------------------------------------------------------------------


def test_only_findings_are_shown_with_their_fix(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [
        Finding("ok", "a", "fine"),
        Finding("note", "b", "so \x1b[31mso"),
        Finding("fix", "c", "bad", "one\ntwo"),
    ]
    cli.show(findings, verbose=False)
    assert capsys.readouterr().out.splitlines() == [
        "note  b: so \\x1b[31mso",
        "fix   c: bad",
        "      fix: one",
        "      fix: two",
        "3 checks: 1 to fix, 1 to know, 1 in order",
    ]
    cli.show(findings, verbose=True)
    assert "ok    a: fine" in capsys.readouterr().out


def test_neighbours_that_say_the_same_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    cli.show([Finding("note", name, "not checked") for name in "ab"], verbose=False)
    assert capsys.readouterr().out.startswith("note  a, b: not checked\n2 checks:")


# --- what is asked --------------------------------------------------------------------------------


def test_a_ledger_is_looked_at_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    assert not doctor_facts.ledger_facts(path, "ltgf").exists
    assert list(tmp_path.iterdir()) == []
    with Ledger(path) as made:
        made.set_synced_until("ltgf", 5)
    found = doctor_facts.ledger_facts(path, "ltgf")
    assert (found.exists, found.unreadable, found.unwritable, found.until) == (True, "", "", 5)
    assert doctor_facts.ledger_facts(path, "other").until is None


def test_a_file_that_is_no_ledger_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("these are not the rows you are looking for" * 9)
    found = doctor_facts.ledger_facts(tmp_path / "x", "ltgf")
    assert found.exists
    assert "not a ledger" in found.unreadable
    assert not found.closed


def test_the_lock_of_a_process_that_is_gone_is_nobodys(tmp_path: Path) -> None:
    lock = tmp_path / "ledger.db.lock"
    for text in ("", "4194305\n", "1\n", "x"):
        lock.write_text(text)
        assert doctor_facts.ledger_facts(tmp_path / "ledger.db", "ltgf").holder == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="drops its rights for a moment")
def test_a_ledger_that_is_closed_to_us_is_said_so(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    home = tmp_path / "var"
    home.mkdir(mode=0o700)
    Ledger(home / "ledger.db").close()
    os.seteuid(65534)
    try:
        found = doctor_facts.ledger_facts(home / "ledger.db", "ltgf")
    finally:
        os.seteuid(0)
    assert found.closed
    assert found.holder is None
    assert "Permission denied" in found.unreadable


def test_a_folder_is_looked_at(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    folder.chmod(0o1777)
    own = doctor_facts.folder_facts(folder)
    assert (own.problem, own.mode, own.owner) == ("", 0o1777, folder.owner())
    assert doctor_facts.folder_facts(tmp_path / "none").problem == "No such file or directory"
    (tmp_path / "file").touch()
    assert doctor_facts.folder_facts(tmp_path / "file").problem == "Not a directory"


def test_a_plugin_in_an_included_file_is_found(tmp_path: Path) -> None:
    main = tmp_path / "slurm.conf"
    main.write_text("ClusterName=x\nInclude prio.conf # ours\nInclude slurm.conf\n")
    (tmp_path / "prio.conf").write_text('#PrioritySiteFactorPlugin=a\nprioritysitefactorplugin="b"')
    assert probe.conf_value(main, "PrioritySiteFactorPlugin") == "b"
    assert probe.conf_value(main, "ClusterName") == "x"
    assert probe.conf_value(main, "Nothing") == ""
    assert probe.conf_value(tmp_path / "none.conf", "Nothing") is None


def test_an_admin_level_is_the_users_own() -> None:
    text = "ann2|Administrator\nann|Operator\n"
    assert probe.parse_admin_level(text, "ann") == "operator"
    assert probe.parse_admin_level("", "ann") == ""


@pytest.mark.parametrize(
    ("theirs", "before", "after", "ahead_s"),
    [
        pytest.param(100, 100.9, 100.95, 0.0, id="the same second"),
        pytest.param(100, 101.5, 101.6, -0.5, id="behind by half a second at least"),
        pytest.param(107, 100.0, 100.5, 6.5, id="ahead"),
        pytest.param(100, 99.5, 104.0, 0.0, id="a slow answer proves nothing"),
    ],
)
def test_whole_seconds_tell_a_clock_difference_no_finer(
    theirs: int, before: float, after: float, ahead_s: float
) -> None:
    assert doctor_facts.clock_ahead_s(theirs, before, after) == pytest.approx(ahead_s)
