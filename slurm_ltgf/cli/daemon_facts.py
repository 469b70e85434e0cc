"""What the daemon leaves for metrics beside the ledger: its passes, now and then a look around."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from slurm_ltgf.cli.app import App
from slurm_ltgf.errors import LtgfError

if TYPE_CHECKING:
    from slurm_ltgf.core.fragmentation import PoolState
    from slurm_ltgf.core.quota import QuotaState
    from slurm_ltgf.service.leases import LeaseView
    from slurm_ltgf.service.present import View
    from slurm_ltgf.service.tick import Pass
    from slurm_ltgf.store.ledger import Ledger

log = logging.getLogger("ltgf")
_T = TypeVar("_T")

#: A look costs a sshare and two short scontrol: it is not taken more often than this, in seconds.
LOOK_S = 60


class Facts:
    """What is left after each pass; nothing of it holds a pass up or ends the daemon."""

    def __init__(self, app: App, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger
        self._looked_at = 0
        self._said: dict[str, str] = {}

    def leave(self, done: Pass, took_s: float, judged: LeaseView | None, moves: int | None) -> None:
        """Leave word of a pass, and look around if it is time."""
        from slurm_ltgf.service.last_pass import LastPass, lease_kinds, remember_pass

        last = LastPass(
            time=done.view.now,
            took_s=took_s,
            has_database=not done.synced.degraded,
            waiting=len(done.view.plan.turns),
            writes=len(done.result.written),
            leases=None if judged is None else lease_kinds(judged),
            moves=moves,
        )
        self._had("last pass", lambda: remember_pass(self._ledger, self._app.cluster(), last))
        if done.view.now - self._looked_at >= LOOK_S:
            self._looked_at = done.view.now
            self._look(done.view)

    def _look(self, seen: View) -> None:
        from slurm_ltgf.service.last_look import look_of, remember_look

        pools = self._had("fragmentation", lambda: self._pools(seen))
        budgets = self._had("budgets", lambda: self._budgets(seen))
        look = look_of(seen.now, pools, budgets)
        self._had("last look", lambda: remember_look(self._ledger, self._app.cluster(), look))

    def _pools(self, seen: View) -> Iterable[PoolState]:
        from slurm_ltgf.core.model import Window
        from slurm_ltgf.service.fragmentation import Site, past_demand, state
        from slurm_ltgf.slurm import reservations, site

        length_s = int(min(self._app.config.fairness.window_s, seen.now - 1))
        window = Window(seen.now - length_s, seen.now)
        past = past_demand(self._ledger.runs(self._app.cluster(), window))
        here = Site(
            seen.now, seen.queue, seen.capacity, reservations.reservations(), site.partitions()
        )
        return state(here, past)

    def _budgets(self, seen: View) -> Iterable[QuotaState]:
        """As `ltgf quota show` has them, with the queue of the pass."""
        from slurm_ltgf.cli.quota_plan import site_rules
        from slurm_ltgf.service.quota import states

        rules = site_rules(self._app, self._ledger)
        edges = replace(self._app.quota_edges(), queue=lambda: seen.queue)
        return states(edges, self._ledger, self._app.config, rules, now=seen.now).states

    def _had(self, what: str, ask: Callable[[], _T]) -> _T | None:
        """An answer, or None where there is none; each reason is told once."""
        try:
            found, problem = ask(), ""
        except LtgfError as exc:
            found, problem = None, str(exc)
        if problem and self._said.get(what) != problem:
            log.warning("metrics: no %s: %s", what, problem)
        self._said[what] = problem
        return found
