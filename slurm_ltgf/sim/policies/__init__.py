"""Policies, one file each: in which order jobs are tried, what may not start, who gives back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from slurm_ltgf.core.lease import LeaseRules
from slurm_ltgf.core.order import Rules
from slurm_ltgf.sim.policies.astraea import Astraea
from slurm_ltgf.sim.policies.astraea_tenant import Terms as AstraeaTerms
from slurm_ltgf.sim.policies.base import Base, Policy
from slurm_ltgf.sim.policies.fifo import Fifo
from slurm_ltgf.sim.policies.gandiva_fair import GandivaFair
from slurm_ltgf.sim.policies.las_2d import Las2d
from slurm_ltgf.sim.policies.ltgf import LEASE_PASS_S, REST_S, Ltgf, LtgfLease, Terms
from slurm_ltgf.sim.policies.slurm_fairtree import SlurmFairTree
from slurm_ltgf.sim.policies.spec import CAP, Key, choice, duration, number, parse, split
from slurm_ltgf.sim.policies.srtf import Srtf
from slurm_ltgf.sim.policies.stage2 import TIES
from slurm_ltgf.sim.policies.themis import Themis

__all__ = ["KEYS", "POLICIES", "Policy", "Site", "make", "split"]


@dataclass(frozen=True, slots=True)
class Site:
    """What a policy may know of the cluster: weights and size; and the terms of LTGF."""

    weights: Mapping[str, float]
    gpus: int
    window_s: float = 86400
    rules: Rules = field(default_factory=Rules)
    lease_rules: LeaseRules = field(default_factory=lambda: LeaseRules(concurrency=1_000_000))
    cost_s: float = 25

    def limits(self, cap: float) -> dict[str, float]:
        """GPUs that each tenant may hold: cap times its quota C · w_i / Σw."""
        total = sum(self.weights.values()) or 1.0
        return {name: cap * self.gpus * weight / total for name, weight in self.weights.items()}


Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A policy's keys, besides `cap`, and how to make it of their values."""

    make: Callable[[Site, Values], Base]
    keys: tuple[Key, ...] = ()
    cap: float | None = None


def _fair_tree(site: Site, given: Values) -> SlurmFairTree:
    names = {"half_life": "half_life_s", "period": "calc_period_s", "age": "weight_age"}
    return SlurmFairTree(site.weights, **{names[key]: value for key, value in given.items()})


def _terms(site: Site, given: Values) -> Terms:
    return Terms(
        window_s=given.get("window", site.window_s),
        half_life_s=given.get("half_life", math.inf),
        key=given.get("key", "credit"),
        tie=given.get("order", "rho"),
        rules=_with(
            site.rules,
            given,
            lease="lease_s",
            floor="floor",
            starvation="starvation_s",
            step="rho_step",
        ),
        lease_rules=_with(
            site.lease_rules,
            given,
            margin="margin",
            overhead="overhead",
            restarts="max_restarts",
            min_run="min_run_s",
        ),
        cost_s=site.cost_s,
        pass_s=given.get("pass", LEASE_PASS_S),
        rest_s=given.get("rest", REST_S),
    )


def _with(rules: Any, given: Values, **names: str) -> Any:
    return replace(rules, **{names[key]: given[key] for key in names if key in given})


def _las_2d(site: Site, given: Values) -> Las2d:
    names = {"threshold": "threshold_gpu_s", "knob": "knob"}
    terms = {names[key]: given[key] for key in names if key in given}
    return Las2d(**terms, **_quantum(given))


def _astraea(site: Site, given: Values) -> Astraea:
    terms: dict[str, Any] = {key: given[key] for key in ("quota", "order") if key in given}
    if "tick" in given:
        terms["tick_s"] = given["tick"]
    if "lease" in given:
        terms["lease_s"] = None if math.isinf(given["lease"]) else given["lease"]
    return Astraea(site.weights, site.gpus, AstraeaTerms(**terms))


def _quantum(given: Values) -> dict[str, Any]:
    return {"lease_s": given["lease"]} if "lease" in given else {}


_LEASE = duration("lease")
_FAIR_TREE = (duration("half_life", endless="none"), duration("period"))
_LTGF = (
    choice("key", "credit", "share"),
    duration("window", endless="infinite"),
    duration("half_life", endless="none"),
    _LEASE,
    number("floor"),
    duration("starvation", least_s=0, endless="never"),
    choice("order", *TIES),
    number("step", least=1),
)
_LEASES = (
    duration("pass"),
    duration("rest", least_s=0),
    number("margin"),
    number("overhead", least=0.001),
    number("restarts"),
    duration("min_run", least_s=0),
)
_ASTRAEA = (
    duration("lease", endless="never"),
    duration("tick"),
    choice("quota", "fair", "dynamic", "static"),
    choice("order", "fairness", "fifo", "srtf", "2das", "themis"),
)
_KINDS = {
    "fifo-static": _Kind(lambda site, given: Fifo(), cap=1),
    "fifo": _Kind(lambda site, given: Fifo()),
    "slurm-fairtree": _Kind(
        _fair_tree, (duration("half_life", endless="none"), duration("period"), number("age"))
    ),
    "srtf": _Kind(lambda site, given: Srtf(**_quantum(given)), (_LEASE,)),
    "las-2d": _Kind(_las_2d, (_LEASE, number("threshold"), number("knob", none="none"))),
    "themis": _Kind(lambda site, given: Themis(site.gpus, **_quantum(given)), (_LEASE,)),
    "gandiva-fair": _Kind(
        lambda site, given: GandivaFair(site.weights, **_quantum(given)), (_LEASE,)
    ),
    "ltgf": _Kind(lambda site, given: Ltgf(site.weights, site.gpus, _terms(site, given)), _LTGF),
    "ltgf-lease": _Kind(
        lambda site, given: LtgfLease(site.weights, site.gpus, _terms(site, given)),
        (*_LTGF, *_LEASES),
    ),
    "astraea": _Kind(_astraea, _ASTRAEA),
}
#: The options of each policy.
KEYS = {name: (*kind.keys, CAP) for name, kind in _KINDS.items()}


def make(spec: str, site: Site) -> Policy:
    """A policy by its spec: name[:key=value[,key=value..]]; docs/reference/policies.md lists all.

    Raises:
        UsageError: an unknown name, key or value.
    """
    name, canonical, given = parse(spec, KEYS)
    cap = given.pop("cap", _KINDS[name].cap)
    policy = _KINDS[name].make(site, given)
    policy.name = canonical
    if cap is not None and cap != float("inf"):
        policy.limits = site.limits(cap)
    return policy


#: Every policy with its defaults but `astraea`, which is for comparisons with its authors' results.
POLICIES: dict[str, Callable[[Site], Policy]] = {
    name: partial(make, name) for name in _KINDS if name != "astraea"
}
