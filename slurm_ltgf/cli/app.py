"""What a command needs, built when asked for: settings, ledger, the edges to Slurm."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_ltgf.service.edges import Edges, Reader
    from slurm_ltgf.service.quota import QuotaEdges
    from slurm_ltgf.slurm.site import Site
    from slurm_ltgf.store.config import Config
    from slurm_ltgf.store.ledger import Ledger


@dataclass
class App:
    """One invocation of `ltgf`."""

    config_path: Path | None
    ledger_option: Path | None
    verbose: bool

    @staticmethod
    def of(ctx: click.Context) -> App:
        """The invocation a command belongs to."""
        options: dict[str, Any] = ctx.find_root().obj
        return App(options["config"], options["ledger"], options["verbose"])

    @cached_property
    def config(self) -> Config:
        """The settings; no file at all is fine."""
        from slurm_ltgf.store.config import config_file, load_config

        return load_config(config_file(self.config_path, os.environ))

    @property
    def ledger_path(self) -> Path:
        """Where the ledger is: --ledger, else site.ledger."""
        return self.ledger_option or Path(self.config.site.ledger)

    def ledger(self, *, readonly: bool) -> Ledger:
        """The ledger, open; the caller closes it."""
        from slurm_ltgf.store.ledger import Ledger

        return Ledger(self.ledger_path, readonly=readonly)

    def writer_lock(self) -> AbstractContextManager[None]:
        """The lock of whoever writes to Slurm: one daemon, or one pass by hand.

        Raises:
            LockHeldError: another process has it.
        """
        from slurm_ltgf.store.files import lock

        return lock(Path(f"{self.ledger_path}.lock"))

    def cluster(self) -> str:
        """The cluster's name: site.cluster, else what slurmctld says."""
        if self.config.site.cluster:
            return self.config.site.cluster
        return self.site.cluster

    @cached_property
    def site(self) -> Site:
        """slurmctld's configuration."""
        from slurm_ltgf.slurm import site

        return site.site()

    def edges(self, reader: str | None = None) -> Edges:
        """The live site.

        Raises:
            SlurmUnavailable: slurmctld does not answer.
            GpuNotTracked: the site never recorded GPUs.
        """
        from slurm_ltgf.errors import GpuNotTracked
        from slurm_ltgf.service.edges import Edges
        from slurm_ltgf.slurm import associations, control, nodes, queue
        from slurm_ltgf.store.factor_table import FactorFile

        if not self.site.tracks_gpus:
            raise GpuNotTracked(
                "gres/gpu is not tracked: sacct has no GPU-time of any job, and none can be "
                "computed. Add gres/gpu to AccountingStorageTRES in slurm.conf (it is "
                f"{tracked(self.site)}), restart slurmctld; it counts from then on"
            )
        cluster = self.cluster()
        partitions, table = self.config.site.partitions, self.config.site.factor_table
        return Edges(
            cluster=cluster,
            reader=self.reader(cluster, reader),
            queue=queue.snapshot,
            priorities=queue.priorities,
            capacity=lambda: nodes.capacity(partitions),
            accounts=lambda: associations.accounts(cluster),
            write=control.set_site_factors,
            table=FactorFile(Path(table)) if table else None,
        )

    def quota_edges(self) -> QuotaEdges:
        """What budgets are told from: slurmctld alone.

        Raises:
            SlurmUnavailable: slurmctld does not answer.
        """
        from slurm_ltgf.service.quota import QuotaEdges
        from slurm_ltgf.slurm import budgets, queue

        return QuotaEdges(self.cluster(), self.site, budgets.counted, queue.snapshot)

    def reader(self, cluster: str, name: str | None = None) -> Reader:
        """What reads slurmdbd: sacct, or PySlurm where the settings say so."""
        if (name or self.config.sync.reader) == "pyslurm":
            from slurm_ltgf.slurm.pyslurm_reader import PyslurmReader

            return PyslurmReader(cluster)
        from slurm_ltgf.slurm.history import SacctReader

        daemon = self.config.daemon
        return SacctReader(cluster, slice_s=daemon.slice_s, timeout_s=daemon.command_timeout_s)


def tracked(site: Site) -> str:
    """AccountingStorageTRES as set, for a message."""
    return site.get("AccountingStorageTRES") or "(nothing)"


def now() -> int:
    """This moment, epoch seconds."""
    return int(time.time())


def numbers(text: str | None, option: str, *, fold: bool = True) -> dict[str, float]:
    """Read 'a=3,b=1' of an option; fold: names in lower case, as Slurm has its accounts.

    >>> numbers("a=3,b=0.5", "--weights")
    {'a': 3.0, 'b': 0.5}
    """
    from slurm_ltgf.errors import UsageError

    found: dict[str, float] = {}
    for part in filter(None, (text or "").split(",")):
        name, equals, value = part.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not equals or not name or not 0 <= number < 1e300:
            raise UsageError(f"{option}: must be NAME=NUMBER[,…] with numbers >= 0, got {part!r}")
        found[name.strip().lower() if fold else name.strip()] = number
    return found
