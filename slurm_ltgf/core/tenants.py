"""From accounts to tenants: whose usage it is, and what each tenant is worth.

Rules (each has a test with its words):

1. The tenant of an account is the account itself (level "leaf": the account that was charged), or
   its ancestor at depth N (root = 0); an account above depth N is its own tenant. Usage of
   descendants belongs to the tenant above them, once.
2. Siblings weigh their raw Fairshare. Deeper tenants share their parent's weight in proportion to
   their raw shares: research 60 with vision 1 and own users 11 gives vision 5, research 55.
   The unit is the raw share at the level where the tenants part.
3. The users of an account that also has sub-accounts compete with these as one child whose share
   is the sum of their raw shares.
4. An account with Fairshare=parent is transparent: its users (as one) and its sub-accounts compete
   at its parent's level. A user with Fairshare=parent brings no share of his own; where no user of
   the account brings one, each counts 1, Slurm's default, for else nobody there could be served.
5. Fairshare 0 is weight 0: no entitlement, only what others leave.
6. An account takes part when it has users or usage; one whose whole subtree has neither does not.
7. An account that Slurm no longer has keeps its usage under its name, deleted, with weight 0; jobs
   without account are the tenant "(none)", weight 0. A weight given by the site beats all this.
8. Without any account (a dump read where sacctmgr is not), every name in use weighs 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from slurm_ltgf.core.model import NO_ACCOUNT, Account, Tenant

Level = int | Literal["leaf"]
ROOT = "root"


def label(tenant: Tenant) -> str:
    """The tenant's name as people should see it: "gone-lab (deleted)"."""
    return f"{tenant.name} (deleted)" if tenant.deleted else tenant.name


class Tree:
    """The accounts of one cluster by name, lower case. An unknown parent counts as the root."""

    def __init__(self, accounts: Iterable[Account]) -> None:
        self.accounts: dict[str, Account] = {}
        for account in accounts:
            name = account.name.lower()
            if name in self.accounts:
                raise ValueError(f"account {name!r} is listed twice")
            self.accounts[name] = account
        self._children: dict[str, list[str]] = {}
        for name in sorted(self.accounts):
            self._children.setdefault(self.parent(name), []).append(name)
        for name in self.accounts:
            self.path(name)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.accounts

    def parent(self, name: str) -> str:
        """Name of the account above; "" above the root."""
        account = self.accounts[name.lower()]
        parent = account.parent.lower()
        if parent in self.accounts:
            return parent
        return ROOT if ROOT in self.accounts and name.lower() != ROOT else ""

    def children(self, name: str) -> tuple[str, ...]:
        """Names of the accounts directly below, sorted; of "": the top ones."""
        return tuple(self._children.get(name.lower(), ()))

    def path(self, name: str) -> tuple[str, ...]:
        """Names from the root down to the account."""
        path = [name.lower()]
        while parent := self.parent(path[-1]):
            if parent in path:
                raise ValueError(f"account {name!r} is above itself: {' > '.join(path)}")
            path.append(parent)
        return tuple(reversed(path))

    def depth(self, name: str) -> int:
        """Steps below the root."""
        return len(self.path(name)) - 1


def moved(before: Tree, after: Tree) -> dict[str, tuple[str, str]]:
    """Accounts that hang elsewhere now: name -> (parent before, parent after).

    Usage of before the move belongs to the tenant of then; who has only today's tree says so.
    """
    both = sorted(set(before.accounts) & set(after.accounts))
    parents = {name: (before.parent(name), after.parent(name)) for name in both}
    return {name: pair for name, pair in parents.items() if pair[0] != pair[1]}


@dataclass(frozen=True, slots=True)
class _Rival:
    """What competes at a node: an account as a whole, or (own) an account's own users as one."""

    account: str
    share: int
    own: bool


class Tenancy:
    """Who the tenants of a cluster are.

    Args:
        accounts: today's accounts; none at all means they are not known (rule 8).
        level: "leaf", or the depth whose accounts are the tenants.
        weights: weights given by the site, by tenant; they beat the tree's.
        excluded: accounts whose own usage is nobody's (the root by default): `tenants` does not
            list them.

    Raises:
        ValueError: an account listed twice or above itself, a negative weight or level.
    """

    def __init__(
        self,
        accounts: Iterable[Account],
        *,
        level: Level = "leaf",
        weights: Mapping[str, float] | None = None,
        excluded: Iterable[str] = (ROOT,),
    ) -> None:
        self.tree = Tree(accounts)
        self.level = level
        self.given = {name.lower(): weight for name, weight in (weights or {}).items()}
        self.excluded = frozenset(name.lower() for name in excluded)
        if level != "leaf" and level < 0:
            raise ValueError(f"level: must be 'leaf' or >= 0, got {level}")
        for name, weight in self.given.items():
            if not weight >= 0:
                raise ValueError(f"weight of {name!r}: must be >= 0, got {weight}")

    def tenant_of(self, account: str) -> str:
        """Name of the tenant that usage charged to this account belongs to."""
        name = account.lower() or NO_ACCOUNT
        if self.level == "leaf" or name not in self.tree:
            return name
        path = self.tree.path(name)
        return path[min(self.level, len(path) - 1)]

    def tenants(self, used: Iterable[str] = ()) -> tuple[Tenant, ...]:
        """Tenants by name.

        Args:
            used: accounts with usage or jobs in the queue, whether Slurm still has them or not.
        """
        used_names = {name.lower() or NO_ACCOUNT for name in used}
        live = {n for n, a in self.tree.accounts.items() if a.user_shares or n in used_names}
        names = {self.tenant_of(name) for name in live - self.excluded}
        names |= {self.tenant_of(name) for name in used_names - self.excluded} | set(self.given)
        weights = self._weights(frozenset(live))
        return tuple(self._tenant(name, weights) for name in sorted(names))

    def _tenant(self, name: str, weights: Mapping[str, Fraction]) -> Tenant:
        known = bool(self.tree.accounts)
        weight = self.given.get(name, float(weights.get(name, 0)) if known else 1.0)
        gone = known and name not in self.tree and name != NO_ACCOUNT
        return Tenant(name, float(weight), self._gpu_limit(name), deleted=gone)

    def _gpu_limit(self, name: str) -> float | None:
        """The tightest limit on the path: an ancestor's GrpTRES binds all below it."""
        if name not in self.tree:
            return None
        path = (self.tree.accounts[step].gpu_limit for step in self.tree.path(name))
        return min((limit for limit in path if limit is not None), default=None)

    def _weights(self, live: frozenset[str]) -> dict[str, Fraction]:
        """Weight of each tenant, exact, in raw shares of the level where the tenants part."""
        branches = _Branches(self.tree, live, self.excluded)
        weights: dict[str, Fraction] = {}
        open_ = [(rival, Fraction(rival.share)) for rival in self._first_parting(branches)]
        while open_:
            rival, weight = open_.pop()
            below = branches.rivals(rival.account) if self._parts_below(rival) else []
            if any(not r.own for r in below):
                total = sum(r.share for r in below) or 1
                open_ += [(r, weight * Fraction(r.share, total)) for r in below]
            else:
                tenant = self.tenant_of(rival.account)
                weights[tenant] = weights.get(tenant, Fraction(0)) + weight
        return weights

    def _first_parting(self, branches: _Branches) -> list[_Rival]:
        """Those who compete at the lowest account that all tenants are below."""
        rivals = branches.rivals("")
        while len(rivals) == 1 and rivals[0].share > 0 and self._parts_below(rivals[0]):
            below = branches.rivals(rivals[0].account)
            if all(r.own for r in below):
                break
            rivals = below
        return rivals

    def _parts_below(self, rival: _Rival) -> bool:
        """Whether tenants can lie below what competes as one."""
        if rival.own:
            return False
        return self.level == "leaf" or self.tree.depth(rival.account) < self.level


class _Branches:
    """Who competes at each node of the tree, of those that have users or usage below them."""

    def __init__(self, tree: Tree, live: frozenset[str], excluded: frozenset[str]) -> None:
        self._tree = tree
        self._own = live - excluded
        self._alive = {step for name in self._own for step in tree.path(name)}

    def rivals(self, name: str) -> list[_Rival]:
        """Those who share the account `name`; of "": the top accounts."""
        found = [self._users(name)] if name in self._own else []
        for child in self._tree.children(name):
            if child not in self._alive:
                continue
            share = self._tree.accounts[child].shares
            found += self.rivals(child) if share is None else [_Rival(child, share, own=False)]
        return found

    def _users(self, name: str) -> _Rival:
        shares = self._tree.accounts[name].user_shares
        own = [share for share in shares if share is not None]
        only = len(self._alive.intersection(self._tree.children(name))) == 0
        return _Rival(name, sum(own) if own else len(shares) or int(only), own=True)
