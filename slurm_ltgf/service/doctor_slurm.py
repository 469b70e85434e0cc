"""The doctor's checks of the daemons and of how they keep jobs: Facts in, a Finding out."""

from __future__ import annotations

import shlex

from slurm_ltgf.service.doctor_facts import RECONFIGURE, RESTART, TOML, Facts, Finding

#: Series that ltgf is made for, oldest and newest.
OLDEST, NEWEST = (22, 5), (26, 5)
CLOCK_S = 2.0
CRED_EXPIRE_S = 30


def slurmctld(facts: Facts) -> Finding:
    """It answers, else there would be no facts; a backup may be down."""
    down = [c for c in facts.controllers if not c.is_up]
    up = ", ".join(f"{c.role} at {c.host}" for c in facts.controllers if c.is_up)
    if not down:
        return Finding("ok", "slurmctld", f"answers: {up}")
    names = ", ".join(f"{c.role} at {c.host}" for c in down)
    return Finding(
        "note",
        "slurmctld",
        f"answers ({up}), but not the {names}",
        f"systemctl start slurmctld  # on {down[0].host}",
    )


def slurmdbd(facts: Facts) -> Finding:
    """Without it there is no history and there are no accounts."""
    kind = facts.site.get("AccountingStorageType", "accounting_storage/none")
    host = facts.site.get("AccountingStorageHost", "its host")
    if kind != "accounting_storage/slurmdbd":
        return Finding(
            "fix",
            "slurmdbd",
            f"AccountingStorageType={kind}: this site records no history",
            f"AccountingStorageType=accounting_storage/slurmdbd  # {RESTART}; it needs a slurmdbd",
        )
    if facts.clusters is None:
        return Finding(
            "fix",
            "slurmdbd",
            f"does not answer, so there is no history to read: {facts.unread.get('clusters', '')}",
            f"systemctl start slurmdbd  # on {host}",
        )
    return Finding("ok", "slurmdbd", f"answers on {host}")


def cluster_name(facts: Facts) -> Finding:
    """The cluster whose history is read must be the one whose queue is."""
    ours, theirs = facts.config.site.cluster, facts.site.cluster
    if ours and ours != theirs:
        return Finding(
            "fix",
            "cluster-name",
            f"site.cluster is {ours!r}, this slurmctld's ClusterName is {theirs!r}:"
            " history and queue would be of two clusters",
            f'cluster = "{theirs}"  # {TOML} [site]',
        )
    if unknown := facts.not_checked("cluster-name", "clusters"):
        return unknown
    if theirs not in (facts.clusters or ()):
        return Finding(
            "fix",
            "cluster-name",
            f"slurmdbd does not know cluster {theirs!r}: nothing of it is recorded",
            f"sacctmgr -i add cluster {shlex.quote(theirs)}",
        )
    return Finding("ok", "cluster-name", f"{theirs}, known to slurmdbd")


def version(facts: Facts) -> Finding:
    """Slurm's series is one that ltgf is made for, and its clients are of the same one."""
    if unknown := facts.not_checked("version", "client"):
        return unknown
    server, client = facts.site.version, facts.client or ()
    shown = _shown(server)
    if server[:2] < OLDEST:
        return Finding("fix", "version", f"Slurm {shown} is older than 22.05: upgrade Slurm")
    if client[:2] != server[:2]:
        newer = client[:2] > server[:2]
        return Finding(
            "fix" if newer else "note",
            "version",
            f"Slurm's commands here are {_shown(client)}, slurmctld is {shown}:"
            f" {'Slurm refuses newer clients' if newer else 'columns may differ'}",
            f"apt-get install slurm-client  # of {shown}; or put the right ones first on PATH",
        )
    if server[:2] > NEWEST:
        return Finding("note", "version", f"Slurm {shown} is newer than ltgf knows (26.05)")
    return Finding("ok", "version", f"Slurm {shown}, its commands too")


def _shown(version: tuple[int, ...]) -> str:
    """22.05.8, as Slurm writes it."""
    return ".".join(f"{part:02}" if i == 1 else str(part) for i, part in enumerate(version))


def clock(facts: Facts) -> Finding:
    """Waiting times and windows are counted against our clock, in Slurm's times."""
    if unknown := facts.not_checked("clock", "clock_ahead_s"):
        return unknown
    ahead_s = facts.clock_ahead_s or 0.0
    if abs(ahead_s) > CLOCK_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        return Finding(
            "fix",
            "clock",
            f"slurmctld's clock is {abs(ahead_s):.0f} s {way} this machine's",
            "timedatectl set-ntp true  # on both machines",
        )
    return Finding("ok", "clock", f"as slurmctld's, within {CLOCK_S:.0f} s")


def enforce(facts: Facts) -> Finding:
    """Without associations anyone may run under any account, or none."""
    value = facts.site.get("AccountingStorageEnforce", "none")
    words = {word.strip().lower() for word in value.split(",")}
    if words & {"associations", "limits", "qos", "safe", "wckeys", "all"}:
        return Finding("ok", "enforce", f"AccountingStorageEnforce={value}")
    return Finding(
        "fix",
        "enforce",
        f"AccountingStorageEnforce={value}: jobs run without an account or under any name,"
        " and their GPU-time belongs to no tenant",
        f"AccountingStorageEnforce=associations,limits,qos  # {RESTART}",
    )


def min_job_age(facts: Facts) -> Finding:
    """A finished job must stay in slurmctld until a pass has seen it."""
    age_s, interval_s = facts.site.min_job_age_s, facts.config.daemon.interval_s
    if age_s >= 2 * interval_s:
        return Finding("ok", "min-job-age", f"MinJobAge {age_s} s, a pass every {interval_s} s")
    return Finding(
        "fix",
        "min-job-age",
        f"MinJobAge {age_s} s is under two intervals of the daemon ({interval_s} s each):"
        " slurmctld forgets jobs before a pass sees their end",
        f"MinJobAge={max(300, 2 * interval_s)}  # {RECONFIGURE}",
    )


def cred_expire(facts: Facts) -> Finding:
    """A requeued job waits this long before it may start again."""
    expire_s = facts.site.cred_expire_s
    if expire_s <= CRED_EXPIRE_S:
        return Finding("ok", "cred-expire", f"a requeued job waits {expire_s} s")
    kept = [
        item
        for item in facts.site.get("AuthInfo").split(",")
        if item.strip() and not item.strip().startswith("cred_expire")
    ]
    return Finding(
        "note",
        "cred-expire",
        f"a requeued job waits {expire_s} s before it may start again (cred_expire)"
        + (", so does every job that yields" if facts.config.lease.mode == "on" else ""),
        f"AuthInfo={','.join([*kept, f'cred_expire={CRED_EXPIRE_S}'])}"
        "  # slurm.conf on every machine, then restart slurmctld and slurmd",
    )
