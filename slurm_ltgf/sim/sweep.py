"""Sweeps: one experiment for each combination of values, and policies as the command line has them.

    --policy fifo,ltgf-lease --sweep lease=900,3600 --sweep gpus=64,128

is fifo on 64 and on 128 GPUs, and ltgf-lease with each lease on each: a policy that has no such key
is run without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from slurm_ltgf.errors import UsageError
from slurm_ltgf.sim.cluster import Placement
from slurm_ltgf.sim.experiment import Experiment, alike, policy_name
from slurm_ltgf.sim.policies import split

#: Combinations of one sweep at most: more is a typing error.
MOST = 10_000


@dataclass(frozen=True, slots=True)
class Point:
    """A combination. values: of each swept key, as given; a key that the policy lacks is absent.

    policy: the spec without what is swept.
    """

    policy: str
    experiment: Experiment
    values: Mapping[str, str]


def specs(texts: Sequence[str]) -> list[str]:
    """Policy specs of the command line, parted by ';' or ','; KEY=VALUE belongs to the one before.

    >>> specs(["fifo,ltgf:key=share,lease=900,srtf", "las-2d;fifo"])
    ['fifo', 'ltgf:key=share,lease=900', 'srtf', 'las-2d']
    """
    wholes = [whole for text in texts for whole in text.split(";")]
    found = [spec.strip() for whole in wholes for spec in split(whole)]
    return list(dict.fromkeys(filter(None, found)))


def with_default(spec: str, key: str, value: str) -> str:
    """The spec with a value for a key, unless it has one.

    >>> with_default("ltgf:lease=900", "window", "7d")
    'ltgf:lease=900,window=7d'
    """
    name, _, rest = spec.partition(":")
    parts = list(filter(None, rest.split(",")))
    if any(part.partition("=")[0] == key for part in parts):
        return spec
    return f"{name}:{','.join([*parts, f'{key}={value}'])}"


def axes(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read `--sweep key=a,b,c` options.

    Raises:
        UsageError: no such form, or a key twice.

    >>> axes(["lease=300,900", "key=share"])
    {'lease': ('300', '900'), 'key': ('share',)}
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, _, values = text.partition("=")
        each = tuple(dict.fromkeys(filter(None, (value.strip() for value in values.split(",")))))
        key = key.strip().replace("_", "-") if key.strip() in _WORDS else key.strip()
        if not key or not each:
            raise UsageError(f"--sweep {text}: must be KEY=VALUE[,VALUE..]")
        if key in found:
            raise UsageError(f"--sweep {text}: {key} is swept already")
        found[key] = each
    return found


def points(
    base: Experiment,
    policies: Sequence[str],
    swept: Mapping[str, Sequence[str]],
    *,
    per_node: int | None = 8,
) -> list[Point]:
    """All combinations, each once, in the order of the policies and of the values.

    Args:
        base: what is not swept.
        per_node: GPUs of a node where gpus are swept; None: the nodes are given, they cannot be.

    Raises:
        UsageError: a value that means nothing, a key that none of the policies has, too many.
    """
    own = {key: values for key, values in swept.items() if key not in _COMMON}
    kept = {policy: _keys_of(policy, own) for policy in policies}
    for key in own:
        if not any(key in keys for keys in kept.values()):
            _refuse(policies, key, own[key])
    found: dict[tuple[tuple[str, str], ...], Point] = {}
    for policy in policies:
        mine = [key for key in swept if key in _COMMON or key in kept[policy]]
        for values in itertools.product(*(swept[key] for key in mine)):
            point = _point(base, policy, dict(zip(mine, values, strict=True)), per_node)
            found.setdefault((("policy", policy), *point.values.items()), point)
            if len(found) > MOST:
                raise UsageError(f"--sweep: more than {MOST} combinations")
    return list(found.values())


def _keys_of(policy: str, own: Mapping[str, Sequence[str]]) -> list[str]:
    """The swept keys that a policy has; it has one if it takes any of the values."""
    return [
        key
        for key, values in own.items()
        if any(_is_taken(with_default(policy, key, value)) for value in values)
    ]


def _is_taken(spec: str) -> bool:
    try:
        policy_name(spec)
    except UsageError:
        return False
    return True


def _refuse(policies: Sequence[str], key: str, values: Sequence[str]) -> None:
    """Let the policies say what is wrong with a key that none of them takes."""
    said = ""
    for policy in policies:
        try:
            policy_name(with_default(policy, key, values[0]))
        except UsageError as exc:
            said = said or str(exc)
    raise UsageError(f"--sweep {key}: {said}")


def _point(base: Experiment, policy: str, values: dict[str, str], per_node: int | None) -> Point:
    made, spec = base, policy
    for key, value in values.items():
        if key in _COMMON:
            made = _COMMON[key](made, value, per_node)
        else:
            spec = with_default(spec, key, value)
    return Point(policy, replace(made, policy=policy_name(spec)), values)


def _gpus(base: Experiment, value: str, per_node: int | None) -> Experiment:
    if per_node is None:
        raise UsageError("--sweep gpus: --nodes says already what there is")
    return replace(base, nodes=alike(_whole("gpus", value, 1), per_node))


def _seed(base: Experiment, value: str, per_node: int | None) -> Experiment:
    if base.source.path is not None:
        raise UsageError("--sweep seed: a trace has none, it is of the generated workload")
    return replace(base, source=replace(base.source, seed=_whole("seed", value, 0)))


def _limit_factor(base: Experiment, value: str, per_node: int | None) -> Experiment:
    try:
        factor = float(value)
    except ValueError:
        factor = 0.0
    if not 0 < factor < 1e6:
        raise UsageError(f"--sweep limit-factor={value}: must be a number > 0")
    return replace(base, source=replace(base.source, limit_factor=factor))


def _placement(base: Experiment, value: str, per_node: int | None) -> Experiment:
    for known in get_args(Placement):
        if value == known:
            return replace(base, placement=known)
    raise UsageError(f"--sweep placement={value}: there are {', '.join(get_args(Placement))}")


def _whole(key: str, value: str, least: int) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) < 16 and int(value) >= least):
        raise UsageError(f"--sweep {key}={value}: must be a whole number >= {least}")
    return int(value)


#: Keys that are no policy's own.
_COMMON: dict[str, Callable[[Experiment, str, int | None], Experiment]] = {
    "gpus": _gpus,
    "seed": _seed,
    "limit-factor": _limit_factor,
    "placement": _placement,
}
_WORDS = {"limit_factor"}
