"""Of what moves against fragmentation are made: room on nodes, jobs that may leave it, costs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from slurm_ltgf.core.fragmentation import Part


class Class(IntEnum):
    """How much a job minds to be moved, least first."""

    DEV = 0
    TRAINING = 1
    SERVING = 2


class Key(NamedTuple):
    """What moves cost: GPU-seconds of jobs that serve, that train, of the others; how many move.

    The lesser key is better: a job that serves is moved only where no other could be.
    """

    serving_gpu_s: float = 0.0
    training_gpu_s: float = 0.0
    dev_gpu_s: float = 0.0
    jobs: int = 0

    @property
    def gpu_s(self) -> float:
        """GPU-seconds of all."""
        return self.serving_gpu_s + self.training_gpu_s + self.dev_gpu_s

    def plus(self, other: Key) -> Key:
        """Both together."""
        return Key(self[0] + other[0], self[1] + other[1], self[2] + other[2], self[3] + other[3])


@dataclass(frozen=True, slots=True)
class Movable:
    """A running job of one GPU that may move. partitions: it may run in nodes of these.

    cost_gpu_s: of its checkpoint and restart. avoids: nodes that it may not go to.
    """

    job_id: int
    node: str
    part: Part
    partitions: frozenset[str]
    klass: Class
    cost_gpu_s: float
    avoids: frozenset[str] = frozenset()

    @property
    def key(self) -> Key:
        """What its move costs."""
        costs = {
            Class.SERVING: 0.0,
            Class.TRAINING: 0.0,
            Class.DEV: 0.0,
            self.klass: self.cost_gpu_s,
        }
        return Key(costs[Class.SERVING], costs[Class.TRAINING], costs[Class.DEV], 1)


@dataclass(slots=True)
class Room:
    """What is free on a node that is open, and who could leave it, the cheapest first."""

    node: str
    partitions: frozenset[str]
    total_gpus: int
    gpus: float
    cpus: float = math.inf
    memory_mb: float = math.inf
    movable: list[Movable] = field(default_factory=list)
    _least: list[Key] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        """Have who could leave in order."""
        self.movable.sort(key=lambda job: (job.key, job.job_id))

    def least(self, jobs: int) -> Key:
        """What the moves of so many of its jobs cost at least."""
        if len(self._least) != len(self.movable) + 1:
            self._least = [Key()]
            for job in self.movable:
                self._least.append(self._least[-1].plus(job.key))
        return self._least[jobs]

    def holds(self, part: Part) -> bool:
        """Whether so much is free."""
        return part.fits(self.gpus, self.cpus, self.memory_mb)

    def give(self, part: Part) -> None:
        """A job left."""
        self.gpus += part.gpus
        self.cpus += max(part.cpus, 1)
        self.memory_mb += part.memory_mb

    def take(self, part: Part) -> None:
        """A job came."""
        self.gpus -= part.gpus
        self.cpus -= max(part.cpus, 1)
        self.memory_mb -= part.memory_mb


def total(jobs: Iterable[Movable]) -> Key:
    """What the moves of some jobs cost."""
    key = Key()
    for job in jobs:
        key = key.plus(job.key)
    return key
