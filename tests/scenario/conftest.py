"""A site as data: what Slurm would answer, in lists that a test fills and changes."""

from dataclasses import dataclass, field, replace

import pytest

from slurm_ltgf.core.model import UNKNOWN, Account, Batch, Run, Runs
from slurm_ltgf.errors import SlurmUnavailable
from slurm_ltgf.service.edges import Edges, Memory
from slurm_ltgf.service.tick import tick
from slurm_ltgf.slurm.control import ControlResult
from slurm_ltgf.slurm.nodes import Capacity, Node
from slurm_ltgf.slurm.queue import Priorities, Queue, QueueJob
from slurm_ltgf.store.config import parsed
from slurm_ltgf.store.ledger import Ledger

T0 = 1_700_000_000
CLUSTER = "c"


@dataclass
class Site:
    """Accounts, nodes, queue and history; times are seconds after T0."""

    ledger: Ledger
    config: object = field(default_factory=lambda: parsed("", "test"))
    jobs: list[QueueJob] = field(default_factory=list)
    history: list[Run] = field(default_factory=list)
    factors: dict[int, int] = field(default_factory=dict)
    frozen: set[int] = field(default_factory=set)
    accounts: list[Account] = field(default_factory=list)
    nodes: int = 4
    now: int = 0
    dbd_is_down: bool = False
    writes: list = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)

    def tenants(self, **shares):
        """Accounts below the root, one user each."""
        self.accounts = [Account("root", "", 1)]
        self.accounts += [Account(name, "root", share, (1,)) for name, share in shares.items()]

    def ran(self, job_id, account, start, end, gpus, *, state="COMPLETED", eligible=None):
        """A finished run in slurmdbd."""
        begin = T0 + (start if eligible is None else eligible)
        self.history.append(
            Run(
                CLUSTER,
                job_id,
                account=account,
                state=state,
                submit=begin,
                eligible=begin,
                start=T0 + start,
                end=T0 + end,
                elapsed_s=end - start,
                gres=f"gpu={gpus}",
                gres_requested=f"gpu={gpus}",
            )
        )

    def pending(self, job_id, account, gpus, *, submit=0, **more):
        """A waiting record in slurmctld."""
        job = QueueJob(
            job_id,
            shown_id=str(job_id),
            account=account,
            user=f"u-{account}",
            partition="main",
            reason="Priority",
            submit=T0 + submit,
            eligible=T0 + submit,
            priority=1,
            gres=f"gpu={gpus}",
        )
        self.jobs.append(replace(job, **more))

    def running(self, job_id, account, gpus, start, *, limit_s=3600):
        """A running job, in slurmctld and in slurmdbd."""
        job = QueueJob(
            job_id,
            shown_id=str(job_id),
            account=account,
            partition="main",
            state="RUNNING",
            submit=T0 + start,
            eligible=T0 + start,
            start=T0 + start,
            limit_s=limit_s,
            gres=f"gpu={gpus}",
        )
        self.jobs.append(job)

    @property
    def edges(self) -> Edges:
        """The site as a pass sees it."""
        return Edges(
            cluster=CLUSTER,
            reader=self,
            queue=lambda: Queue(tuple(self.jobs)),
            priorities=lambda: Priorities(dict(self.factors), frozenset(self.frozen)),
            capacity=lambda: Capacity(
                tuple(Node(f"n{i}", ("main",), gres="gpu=8") for i in range(self.nodes))
            ),
            accounts=lambda: list(self.accounts),
            write=self.write,
        )

    def read(self, start, end):
        """What sacct would answer."""
        if self.dbd_is_down:
            raise SlurmUnavailable("sacct: Connection refused")
        listed = [r for r in self.history if (r.end == UNKNOWN or r.end >= start) and r.start < end]
        yield Batch(Runs.of(listed), lines=len(listed))

    def write(self, changes):
        """What scontrol would do."""
        self.writes += changes
        self.factors.update({change.job_id: change.value for change in changes})
        return ControlResult(written=tuple(change.job_id for change in changes))

    def tick(self, **more):
        """A pass; returns it, and `writes` holds only its writes."""
        self.writes.clear()
        return tick(
            self.edges,
            self.ledger,
            self.config,
            clock=lambda: T0 + self.now,
            memory=self.memory,
            **more,
        )

    def order(self):
        """Job ids in the order of a dry pass."""
        return [turn.job.job_id for turn in self.tick(dry_run=True).view.plan.turns]

    def by_factor(self):
        """Pending job ids as Slurm would take them: highest SiteFactor first."""
        ids = [job.job_id for job in self.jobs if job.is_pending and not job.is_held]
        return sorted(ids, key=lambda job_id: -self.factors.get(job_id, 0))


@pytest.fixture
def site(tmp_path):
    with Ledger(tmp_path / "ledger.db") as ledger:
        yield Site(ledger)
