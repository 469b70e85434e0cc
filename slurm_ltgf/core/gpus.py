"""How many GPUs an allocation is: whole GPUs, MIG slices, MPS and shard fractions, type weights.

Facts come in as canonical text from the Slurm edge ("gpu:a100=4,gpu=4"); policy is `Pricing`.
Counts are exact (`Fraction`), so that GPU-seconds stay whole wherever the site's GPUs are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

#: A MIG profile inside a GPU type: a100_3g.40gb, 1g.10gb, nvidia_h100_7g.79gb, 1g.5gb+me, and
#: a compute instance of one: 1c.3g.20gb has 1 of the 3 slices.
MIG = re.compile(r"(?:^|[^0-9a-z])(?:(\d+)c\.)?(\d+)g\.\d+gb", re.IGNORECASE)
UNKNOWN_GRES = "?"


@dataclass(frozen=True, slots=True)
class Pricing:
    """What one unit of each GRES is worth in GPUs.

    weights: GPU type -> value of an hour of it (1 for types not named; a MIG slice has the weight
        of the type it is cut from).
    mps_per_gpu, shards_per_gpu: tokens a GPU is divided into; 0 = not known.
    mig_slices: GPU family (part of the type's name) -> compute slices of a whole GPU; others: 7.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    mps_per_gpu: int = 100
    shards_per_gpu: int = 0
    mig_slices: Mapping[str, int] = field(default_factory=lambda: {"a30": 4})
    _told: dict[str, Gpus] = field(default_factory=dict, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Gpus:
    """What a GRES text is worth.

    gpus: physical GPUs; weighted: the same times type weights; devices: what the job sees as
    devices. unpriced: why the worth is not known ("" when it is); then the numbers are 0.
    """

    gpus: Fraction = Fraction(0)
    weighted: Fraction = Fraction(0)
    devices: int = 0
    shared: bool = False
    by_type: tuple[tuple[str, Fraction], ...] = ()
    unpriced: str = ""


def gpus(gres: str, pricing: Pricing) -> Gpus:
    """Worth of a canonical GRES text.

    The untyped total wins over the sum of the typed counts, never both. gres/mps and gres/shard
    count only where no gres/gpu is (such jobs have none in AllocTRES).

    >>> gpus("gpu:a100=4,gpu=4", Pricing()).gpus
    Fraction(4, 1)
    >>> gpus("gpu:a100_1g.10gb=2,gpu:a100_3g.40gb=1,gpu=3", Pricing()).gpus
    Fraction(5, 7)
    >>> gpus("shard=2", Pricing()).unpriced
    'gres/shard=2, and how many shards a GPU has is not known (fairness.shards_per_gpu)'
    """
    told = pricing._told
    if gres not in told:
        told[gres] = _gpus(gres, pricing)
    return told[gres]


def _gpus(gres: str, pricing: Pricing) -> Gpus:
    if gres == UNKNOWN_GRES:
        return Gpus(unpriced="AllocTRES is empty though the job ran")
    parts = _parts(gres)
    whole = {kind: count for (name, kind), count in parts.items() if name == "gpu"}
    if any(whole.values()):
        return _devices(whole, pricing)
    for name, per_gpu, plural in (
        ("mps", pricing.mps_per_gpu, "units of mps"),
        ("shard", pricing.shards_per_gpu, "shards"),
    ):
        shared = {kind: count for (n, kind), count in parts.items() if n == name}
        if shared:
            return _fraction(name, shared, per_gpu=per_gpu, plural=plural, pricing=pricing)
    return Gpus()


def _parts(gres: str) -> dict[tuple[str, str], int]:
    parts: dict[tuple[str, str], int] = {}
    for token in filter(None, gres.split(",")):
        key, _, count = token.rpartition("=")
        name, _, kind = key.partition(":")
        parts[name, kind] = parts.get((name, kind), 0) + int(count)
    return parts


def _total(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by type whose sum is the untyped total where there is one."""
    typed = {kind: count for kind, count in counts.items() if kind}
    total = counts.get("", sum(typed.values()))
    rest = total - sum(typed.values())
    if rest < 0:
        return {"": total}
    return typed | ({"": rest} if rest else {})


def _devices(counts: Mapping[str, int], pricing: Pricing) -> Gpus:
    by_type = [
        (kind, count, count * _slice(kind, pricing))
        for kind, count in sorted(_total(counts).items())
    ]
    return Gpus(
        gpus=sum((g for _, _, g in by_type), Fraction(0)),
        weighted=sum((g * _weight(kind, pricing) for kind, _, g in by_type), Fraction(0)),
        devices=sum(count for _, count, _ in by_type),
        shared=any(g != count for _, count, g in by_type),
        by_type=tuple((kind, g) for kind, _, g in by_type),
    )


def _fraction(
    name: str, counts: Mapping[str, int], *, per_gpu: int, plural: str, pricing: Pricing
) -> Gpus:
    by_kind = _total(counts)
    if per_gpu <= 0:
        total = sum(by_kind.values())
        setting = f"fairness.{name}s_per_gpu" if name == "shard" else f"fairness.{name}_per_gpu"
        return Gpus(
            shared=True,
            unpriced=(
                f"gres/{name}={total}, and how many {plural} a GPU has is not known ({setting})"
            ),
        )
    by_type = tuple((kind, Fraction(count, per_gpu)) for kind, count in sorted(by_kind.items()))
    return Gpus(
        gpus=sum((g for _, g in by_type), Fraction(0)),
        weighted=sum((g * _weight(kind, pricing) for kind, g in by_type), Fraction(0)),
        devices=1,
        shared=True,
        by_type=by_type,
    )


def _slice(kind: str, pricing: Pricing) -> Fraction:
    """Part of a physical GPU that one device of this type is."""
    profile = MIG.search(kind)
    if profile is None:
        return Fraction(1)
    name = kind.lower()
    slices = next((n for family, n in pricing.mig_slices.items() if family.lower() in name), 7)
    return Fraction(min(int(profile[1] or profile[2]), slices), slices)


def _weight(kind: str, pricing: Pricing) -> Fraction:
    base = MIG.split(kind)[0] if MIG.search(kind) else kind
    weights = {name.lower(): weight for name, weight in pricing.weights.items()}
    weight = weights.get(kind.lower(), weights.get(base.lower(), 1))
    return Fraction(str(weight))
