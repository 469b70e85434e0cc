"""How this Slurm is set up and whether it answers: its configuration, daemons, clock, preemption.

The verdicts on preemption and requeue at the end are pure: words in, a sentence out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN
from slurm_ltgf.errors import SlurmRefused, SlurmUnavailable
from slurm_ltgf.slurm import text as words
from slurm_ltgf.slurm.run import run

#: slurmctld's own default for how often a batch job may be requeued; 22.05 cannot change it.
MAX_BATCH_REQUEUE = 5
CRED_EXPIRE_S = 120
MIN_JOB_AGE_S = 300

_PING = re.compile(r"Slurmctld\((\w+)\) at (\S+) is (UP|DOWN)")
_SERVER_TIME = re.compile(r"sdiag output at .*\((\d+)\)")


# --- configuration --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Site:
    """`scontrol show config`. settings: key, lower case -> value; "" where Slurm prints (null)."""

    settings: Mapping[str, str]

    def get(self, key: str, default: str = "") -> str:
        """Value of a key in any case; default if Slurm has none."""
        return self.settings.get(key.lower(), "") or default

    def number(self, key: str, default: int = UNKNOWN) -> int:
        """Leading whole number of a value: "300 sec" is 300."""
        match = re.match(r"-?\d+", self.get(key))
        return int(match[0]) if match else default

    def options(self, key: str) -> dict[str, str]:
        """A comma list of words and name=value, as SchedulerParameters and AuthInfo are."""
        found = {}
        for item in filter(None, (item.strip() for item in self.get(key).split(","))):
            name, _, value = item.partition("=")
            found[name.lower()] = value
        return found

    @property
    def version(self) -> tuple[int, ...]:
        """Slurm's version, (22, 5, 8); () if not told."""
        return tuple(int(part) for part in re.findall(r"\d+", self.get("SLURM_VERSION"))[:3])

    @property
    def cluster(self) -> str:
        """Name of this cluster."""
        return self.get("ClusterName")

    @property
    def slurm_user(self) -> str:
        """User that slurmctld runs as: "slurm" of slurm(64030)."""
        return self.get("SlurmUser").partition("(")[0]

    @property
    def tracks_gpus(self) -> bool:
        """Whether sacct has GPU-time at all: AccountingStorageTRES has gres/gpu or types of it."""
        names = self.get("AccountingStorageTRES").split(",")
        return any(name == "gres/gpu" or name.startswith("gres/gpu:") for name in names)

    @property
    def has_multifactor(self) -> bool:
        """Whether SiteFactor is part of a job's priority."""
        return self.get("PriorityType") == "priority/multifactor"

    @property
    def priority_flags(self) -> frozenset[str]:
        """PriorityFlags, upper case: INCR_ONLY keeps a priority from ever falling."""
        return frozenset(re.findall(r"\w+", self.get("PriorityFlags").upper()))

    @property
    def weights(self) -> dict[str, int]:
        """The span of each other term of the priority: PriorityWeight<name> -> points."""
        prefix = "priorityweight"
        names = [key for key in self.settings if key.startswith(prefix) and key[len(prefix) :]]
        return {
            name.removeprefix(prefix): self.number(name, 0)
            for name in names
            if name != "priorityweighttres"
        } | {
            f"tres/{kind}": int(float(v)) for kind, v in self.options("PriorityWeightTRES").items()
        }

    @property
    def cred_expire_s(self) -> int:
        """Seconds after which a requeued job becomes eligible again."""
        value = self.options("AuthInfo").get("cred_expire", "")
        return int(value) if value.isdecimal() else CRED_EXPIRE_S

    @property
    def min_job_age_s(self) -> int:
        """Seconds that slurmctld remembers a finished job."""
        return self.number("MinJobAge", MIN_JOB_AGE_S)

    @property
    def max_batch_requeue(self) -> int:
        """Requeues of a batch job after which Slurm holds it."""
        return self.number("MaxBatchRequeue", MAX_BATCH_REQUEUE)


def site() -> Site:
    """Ask slurmctld for its configuration."""
    return parse_config(run(["scontrol", "show", "config"]))


def parse_config(text: str) -> Site:
    """Read `scontrol show config`; the first of two equal keys counts, headings are passed over."""
    settings: dict[str, str] = {}
    for line in text.split("\n"):
        key, equals, value = line.partition("=")
        if equals and re.fullmatch(r"[A-Za-z]\w*", key.strip()):
            value = value.strip()
            settings.setdefault(key.strip().lower(), "" if value.startswith("(null") else value)
    if "clustername" not in settings:
        raise SlurmRefused(f"scontrol show config: no ClusterName in {text[:80]!r}")
    return Site(settings)


# --- does it answer -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Controller:
    """A slurmctld as `scontrol ping` sees it. role: primary, backup, backup1, ..."""

    role: str
    host: str
    is_up: bool


def controllers() -> tuple[Controller, ...]:
    """Ping the slurmctlds.

    Raises:
        SlurmUnavailable: none answers.
    """
    try:
        return parse_ping(run(["scontrol", "ping"], timeout_s=30))
    except SlurmRefused as exc:
        raise SlurmUnavailable(str(exc)) from exc


def parse_ping(text: str) -> tuple[Controller, ...]:
    """Read `scontrol ping`."""
    return tuple(Controller(role, host, state == "UP") for role, host, state in _PING.findall(text))


def clusters() -> tuple[str, ...]:
    """Ask slurmdbd for its clusters: the proof that it answers.

    Raises:
        SlurmUnavailable: slurmdbd is away, or the site has none.
    """
    text = run(["sacctmgr", "-n", "-P", "-r", "show", "cluster", "format=Cluster"], timeout_s=30)
    return tuple(filter(None, text.split("\n")))


def server_time() -> int:
    """slurmctld's clock, epoch seconds."""
    return parse_server_time(run(["sdiag"], timeout_s=30))


def parse_server_time(text: str) -> int:
    """Read the clock in sdiag's header."""
    match = _SERVER_TIME.search(text)
    if not match:
        raise SlurmRefused(f"sdiag: no time in {text[:80]!r}")
    return int(match[1])


# --- partitions and QOS ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition. preempt_mode: what scontrol shows, the cluster's where none is set.

    max_cpus: that its jobs may have on a node.
    """

    name: str
    state: str = "UP"
    preempt_mode: str = ""
    qos: str = ""
    priority_tier: int = 1
    max_time_s: int = NO_LIMIT
    grace_s: int = 0
    max_cpus: int = NO_LIMIT


def partitions() -> tuple[Partition, ...]:
    """Ask slurmctld for the partitions."""
    return parse_partitions(run(["scontrol", "-o", "show", "partition"]))


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """Read `scontrol -o show partition`, a partition a line."""
    found = []
    for line in filter(None, text.split("\n")):
        cell = dict(re.findall(r"(\w+)=(\S*)", line))
        most = cell.get("MaxCPUsPerNode", "")
        found.append(
            Partition(
                name=cell["PartitionName"],
                state=cell.get("State", ""),
                preempt_mode=cell.get("PreemptMode", ""),
                qos="" if words.is_unknown(cell.get("QoS", "")) else cell["QoS"],
                priority_tier=int(cell.get("PriorityTier", "1")),
                max_time_s=words.limit_s(cell.get("MaxTime", "UNLIMITED")),
                grace_s=int(cell.get("GraceTime", "0")),
                max_cpus=int(most) if most.isdecimal() else NO_LIMIT,
            )
        )
    return tuple(found)


def qos_preempt_modes() -> dict[str, str]:
    """Ask slurmdbd for each QOS's PreemptMode; "" where it is the cluster's."""
    argv = ["sacctmgr", "-n", "-P", "-r", "show", "qos", "format=Name,PreemptMode"]
    rows = (line.split("|") for line in run(argv).split("\n") if line)
    return {name: "" if mode == "cluster" else mode for name, mode in rows}


# --- verdicts -------------------------------------------------------------------------------------


def effective_preempt_mode(
    cluster: str, *, qos: str = "", partition: str = "", preempt_type: str = ""
) -> str:
    """What preemption does to a job: its partition's mode over its QOS's over the cluster's.

    GANG is no mode of its own and is left out. scontrol shows a partition without a mode with the
    cluster's: equal to it, it does not count as set.

    >>> effective_preempt_mode("GANG,SUSPEND", qos="requeue", partition="GANG,SUSPEND")
    'REQUEUE'
    >>> effective_preempt_mode("REQUEUE", qos="cancel", partition="OFF")
    'OFF'
    """
    if preempt_type == "preempt/none":
        return "OFF"
    everywhere = _mode(cluster)
    own = _mode(partition)
    return (own if own != everywhere else "") or _mode(qos) or everywhere or "OFF"


def _mode(text: str) -> str:
    modes = [
        word for word in re.split(r"[,\s]+", text.upper()) if word not in ("", "GANG", "CLUSTER")
    ]
    return modes[0] if modes else ""


@dataclass(frozen=True, slots=True)
class Preempted:
    """What is known of a job that was preempted or requeued; preempt_mode: the effective one."""

    job_id: int
    state: str
    reason: str = ""
    restarts: int = 0
    priority: int = UNKNOWN
    preempt_mode: str = "REQUEUE"
    requeue: bool = True


@dataclass(frozen=True, slots=True)
class Outlook:
    """Whether a job comes back. verdict: gone, held, waits, queued or runs."""

    verdict: str
    sentence: str

    @property
    def may_requeue(self) -> bool:
        """Whether asking for another requeue makes sense."""
        return self.verdict == "runs"


def requeue_outlook(
    job: Preempted,
    *,
    max_batch_requeue: int = MAX_BATCH_REQUEUE,
    cred_expire_s: int = CRED_EXPIRE_S,
) -> Outlook:
    """Say whether and when the job runs again, and what to do.

    PREEMPTED is final where preemption cancels, and where the job forbids requeueing; where it
    requeues, PENDING of the same id follows, not eligible before cred_expire is over.
    """
    name = f"job {job.job_id}"
    if job.state == "PENDING":
        return _pending(job, name, max_batch_requeue, cred_expire_s)
    if job.state not in ("PREEMPTED", "REQUEUED", "NODE_FAIL"):
        return _other(job, name)
    if not job.requeue:
        return Outlook("gone", f"{name} will not come back: it was submitted with --no-requeue")
    if job.state == "PREEMPTED" and job.preempt_mode != "REQUEUE":
        return Outlook(
            "gone",
            f"{name} will not come back: PreemptMode={job.preempt_mode} ends a preempted job;"
            " submit it again",
        )
    return Outlook("waits", f"{name} was requeued and will be PENDING under the same id")


def _pending(job: Preempted, name: str, most: int, cred_expire_s: int) -> Outlook:
    if job.priority == 0 or "held" in job.reason.lower():
        if job.restarts >= most and "User" not in job.reason:
            return Outlook(
                "held",
                f"{name} is held after the requeue limit ({job.restarts} restarts, limit {most}):"
                f" scontrol release {job.job_id}",
            )
        return Outlook("held", f"{name} is held ({job.reason}): scontrol release {job.job_id}")
    if job.reason == "BeginTime" and job.restarts > 0:
        return Outlook(
            "waits",
            f"{name} waits for BeginTime: a requeued job is eligible {cred_expire_s} s after its"
            " end; its priority is the old one until then",
        )
    return Outlook("queued", f"{name} is in the queue ({job.reason or 'no reason'})")


def _other(job: Preempted, name: str) -> Outlook:
    if job.state in ("RUNNING", "SUSPENDED"):
        return Outlook("runs", f"{name} runs")
    if job.state in ("COMPLETING", "CONFIGURING"):
        return Outlook("waits", f"{name} is {job.state.lower()}")
    return Outlook("gone", f"{name} is over: {job.state}")
