"""What `ltgf doctor` judges, gathered once, so that each check is a pure function of frozen facts.

A fact that could not be had is None, and `unread` says why: its checks then say "not checked",
never "ok". Nothing is written anywhere; the lock is looked at, not taken.
"""

from __future__ import annotations

import os
import pwd
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from slurm_ltgf.core.model import Account
from slurm_ltgf.errors import InputError, LedgerError, SlurmRefused, SlurmUnavailable
from slurm_ltgf.service.quota_drift import Drift, drift_of
from slurm_ltgf.slurm import associations, nodes, probe, queue, site
from slurm_ltgf.slurm.nodes import Capacity
from slurm_ltgf.slurm.queue import Priorities, Queue
from slurm_ltgf.slurm.site import Controller, Partition, Site
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.factor_table import FactorFile, PluginStatus
from slurm_ltgf.store.ledger import Ledger

#: Where a line to paste goes; a # begins a comment in slurm.conf, ltgf.toml and the shell alike.
RECONFIGURE = "slurm.conf on every machine, then: scontrol reconfigure"
RESTART = "slurm.conf on every machine, then restart slurmctld"
TOML = "ltgf.toml, under"

Level = Literal["ok", "note", "fix"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's verdict. what: one sentence. fix: lines to paste, each with a # where it goes."""

    level: Level
    name: str
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """The ledger as this user sees it. until: watermark of the cluster; None: never synced.

    unreadable, unwritable: why; "" if it can be. closed: for want of rights.
    holder: pid of who holds the lock, 0: nobody, None: not known.
    """

    path: Path
    exists: bool = False
    unreadable: str = ""
    unwritable: str = ""
    closed: bool = False
    until: int | None = None
    skipped: int = 0
    first_skipped: str = ""
    holder: int | None = 0


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """A folder as it is. problem: why it cannot be looked at, "" if it can. mode: permissions."""

    problem: str = ""
    owner: str = ""
    mode: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """A site at one moment, as one user sees it.

    has_settings: there is an ltgf.toml. client: version of Slurm's commands on PATH.
    clock_ahead_s: slurmctld's clock minus ours.
    admin_level: "" if slurmdbd does not know the user. billing: partition -> TRESBillingWeights.
    conf_plugin, conf_table: PrioritySiteFactorPlugin and -Parameters in slurm.conf, "" if unset.
    conf_records: records= of our SPANK plugin in plugstack.conf, "" if there is none.
    plugin: what our plugin in slurmctld last said beside site.factor_table.
    records: checkpoint.records; it says nothing where that is not set.
    quota: quota.toml against sacctmgr; None: there is no such file.
    unread: fact -> why it is None.
    """

    now: int
    user: str
    uid: int
    config: Config
    controllers: tuple[Controller, ...]
    site: Site
    ledger: LedgerFacts
    config_error: str = ""
    has_settings: bool = True
    clusters: tuple[str, ...] | None = None
    accounts: tuple[Account, ...] | None = None
    admin_level: str | None = None
    partitions: tuple[Partition, ...] | None = None
    billing: Mapping[str, Mapping[str, str]] | None = None
    capacity: Capacity | None = None
    queue: Queue | None = None
    priorities: Priorities | None = None
    client: tuple[int, ...] | None = None
    clock_ahead_s: float | None = None
    conf_plugin: str | None = None
    conf_table: str | None = None
    conf_records: str = ""
    plugin: PluginStatus | None = None
    records: FolderFacts = FolderFacts()
    quota: Drift | None = None
    unread: Mapping[str, str] = field(default_factory=dict)

    @property
    def cluster(self) -> str:
        """Name of the cluster that ltgf works for."""
        return self.config.site.cluster or self.site.cluster

    @property
    def may_write(self) -> bool | None:
        """Whether this user may change a job's SiteFactor; None: not known."""
        if self.uid == 0 or self.user == self.site.slurm_user:
            return True
        if self.admin_level is None:
            return None
        return self.admin_level in ("operator", "administrator")

    def not_checked(self, name: str, *needs: str) -> Finding | None:
        """The verdict of a check whose facts could not be had; None: they are here."""
        missing = [need for need in needs if getattr(self, need) is None]
        if not missing:
            return None
        return Finding("note", name, f"not checked: {self.unread.get(missing[0], 'not known')}")


@dataclass(slots=True)
class _Questions:
    """Asks; remembers why there was no answer."""

    unread: dict[str, str] = field(default_factory=dict)

    def ask(self, fact: str, question: Callable[[], T]) -> T | None:
        """The answer, or None."""
        try:
            return question()
        except (SlurmUnavailable, SlurmRefused, InputError, LedgerError) as exc:
            self.unread[fact] = str(exc)
            return None


def gather(
    config: Config, *, ledger: Path, config_error: str = "", has_settings: bool = True
) -> Facts:
    """Ask Slurm, slurm.conf and the ledger's file for everything that the checks need.

    Raises:
        SlurmUnavailable: no slurmctld answers; nothing can be said.
    """
    controllers = site.controllers()
    found = site.site()
    cluster = config.site.cluster or found.cluster
    asked = _Questions()
    user = _user()
    clusters = asked.ask("clusters", site.clusters)
    accounts, level = None, None
    if clusters is None:  # one wait for a dead slurmdbd is enough
        asked.unread["accounts"] = asked.unread["admin_level"] = "slurmdbd does not answer"
    else:
        accounts = asked.ask("accounts", lambda: tuple(associations.accounts(cluster)))
        level = asked.ask("admin_level", lambda: probe.admin_level(user))
    table, records = config.site.factor_table, config.checkpoint.records
    conf = probe.conf_file(found.get("SLURM_CONF"))
    asked.unread["conf_plugin"] = f"{conf} cannot be read here"
    return Facts(
        now=int(time.time()),
        user=user,
        uid=os.geteuid(),
        config=config,
        controllers=controllers,
        site=found,
        ledger=ledger_facts(ledger, cluster),
        config_error=config_error,
        has_settings=has_settings,
        clusters=clusters,
        accounts=accounts,
        admin_level=level,
        partitions=asked.ask("partitions", site.partitions),
        billing=asked.ask("billing", probe.billing_weights),
        capacity=asked.ask("capacity", nodes.capacity),
        queue=asked.ask("queue", queue.snapshot),
        priorities=asked.ask("priorities", queue.priorities),
        client=asked.ask("client", probe.client_version),
        clock_ahead_s=asked.ask("clock_ahead_s", _clock_ahead_s),
        conf_plugin=probe.conf_value(conf, "PrioritySiteFactorPlugin"),
        conf_table=probe.conf_value(conf, "PrioritySiteFactorParameters"),
        conf_records=probe.plugin_words(conf, "spank_ltgf.so").get("records", ""),
        plugin=FactorFile(Path(table)).status() if table else None,
        records=folder_facts(Path(records)) if records else FolderFacts(),
        quota=drift_of(Path(config.site.quota_file), ledger, found, cluster, ask=bool(clusters)),
        unread=asked.unread,
    )


def folder_facts(path: Path) -> FolderFacts:
    """Look at a folder."""
    try:
        found = path.stat()
    except OSError as exc:
        return FolderFacts(exc.strerror or "cannot be looked at")
    if not stat.S_ISDIR(found.st_mode):
        return FolderFacts("Not a directory")
    return FolderFacts(owner=_name_of(found.st_uid), mode=stat.S_IMODE(found.st_mode))


def ledger_facts(path: Path, cluster: str) -> LedgerFacts:
    """Look at the ledger and its lock; make and change nothing."""
    holder = _holder(Path(f"{path}.lock"))
    try:
        there = path.exists()
        unwritable = _unwritable(path)
    except OSError as exc:
        return LedgerFacts(path, True, f"{path}: {exc.strerror}", closed=True, holder=holder)
    closed = there and not os.access(path, os.R_OK)
    try:
        with Ledger(path, readonly=True) as ledger:
            named = ledger.skipped()
            return LedgerFacts(
                path,
                exists=True,
                unwritable=unwritable,
                until=ledger.synced_until(cluster),
                skipped=ledger.skipped_total(),
                first_skipped=f"{named[0].source}: {named[0].reason}" if named else "",
                holder=holder,
            )
    except LedgerError as exc:
        return LedgerFacts(path, there, str(exc), unwritable, closed, holder=holder)


def _unwritable(path: Path) -> str:
    """Why the ledger could not be written; a missing one would be made, with its directory."""
    first = next(p for p in (path, *path.absolute().parents) if p.exists())
    directory = path.parent if first == path else first
    needed = [first, directory] if first == path else [directory]
    closed = next((p for p in needed if not os.access(p, os.W_OK)), None)
    return f"{closed} is not writable" if closed else ""


def _holder(lock: Path) -> int | None:
    """Pid in the lock file if such a process of ours lives: a probe lock could hinder a start."""
    try:
        pid = int(lock.read_text(encoding="ascii") or 0)
        started = Path(f"/proc/{pid}/cmdline").read_bytes()
    except PermissionError:
        return None
    except (OSError, ValueError):
        return 0
    return pid if b"ltgf" in started else 0


def _clock_ahead_s() -> float:
    before = time.time()
    theirs = site.server_time()
    return clock_ahead_s(theirs, before, time.time())


def clock_ahead_s(theirs: int, before: float, after: float) -> float:
    """Least that a clock of whole seconds is ahead of ours (behind: negative).

    Args:
        theirs: what it showed between our `before` and `after`.
    """
    return min(theirs + 1 - before, 0.0) or max(theirs - after, 0.0)


def _user() -> str:
    return _name_of(os.geteuid())


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
