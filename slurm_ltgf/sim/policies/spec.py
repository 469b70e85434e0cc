"""Specs of policies: name[:key=value[,key=value..]], as in ltgf:key=share,window=7d,lease=900."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_ltgf.core.duration import duration_s, shown
from slurm_ltgf.errors import UsageError

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Key:
    """What may stand behind a name: the values it takes, in words, and how to read and show one.

    read: of a text; None: it is no such value.
    """

    name: str
    must: str
    read: Callable[[str], Any]
    show: Callable[[Any], str] = str


def duration(name: str, *, least_s: int = 1, endless: str = "") -> Key:
    """A key for seconds: 900 or 15min, 24h, 7d; `endless` is inf."""

    def read(text: str) -> float | None:
        if endless and text == endless:
            return math.inf
        seconds = int(text) if re.fullmatch("[0-9]{1,12}", text) else duration_s(text)
        return None if seconds is None or seconds < least_s else seconds

    also = f", or {endless}" if endless else ""
    return Key(
        name,
        f"a duration of {least_s} s or more like 900, 15min, 24h, 7d{also}",
        read,
        lambda value: endless if math.isinf(value) else shown(value) if value else "0",
    )


def number(name: str, *, least: float = 0, none: str = "") -> Key:
    """A key for a number; `none` is inf."""

    def read(text: str) -> float | None:
        if none and text == none:
            return math.inf
        value = float(text) if _NUMBER.fullmatch(text) else None
        return None if value is None or value < least else value

    also = f", or {none}" if none else ""
    return Key(
        name,
        f"a number >= {least:g}{also}",
        read,
        lambda value: none if math.isinf(value) else f"{value:g}",
    )


def choice(name: str, *words: str) -> Key:
    """A key for one of some words."""
    return Key(name, f"one of {', '.join(words)}", lambda text: text if text in words else None)


#: Quota-keeping, which every policy knows.
CAP = number("cap", least=0.01, none="none")


def parse(spec: str, keys_of: Mapping[str, tuple[Key, ...]]) -> tuple[str, str, dict[str, Any]]:
    """A spec as (name, canonical spec, values by key).

    Args:
        keys_of: name -> the keys that it takes.

    Raises:
        UsageError: an unknown name or key, or a wrong value; says what there is.
    """
    name, has_options, rest = spec.partition(":")
    if name not in keys_of:
        raise UsageError(f"policy {name!r}: no such policy; there are {', '.join(keys_of)}")
    keys = {key.name: key for key in keys_of[name]}
    given: dict[str, Any] = {}
    for part in rest.split(",") if has_options else []:
        word, is_pair, text = part.partition("=")
        if word not in keys or not is_pair:
            there = ", ".join(f"{key}=" for key in keys)
            raise UsageError(f"policy {name}: {part!r}: no such option; there are {there}")
        if word in given:
            raise UsageError(f"policy {name}: {word}= is given twice")
        value = keys[word].read(text)
        if value is None:
            raise UsageError(f"policy {name}: {word}= must be {keys[word].must}, got {text!r}")
        given[word] = value
    shown_ = [f"{key}={keys[key].show(given[key])}" for key in keys if key in given]
    return name, name + (":" + ",".join(shown_) if shown_ else ""), given


def split(text: str) -> list[str]:
    """Specs of a list with commas: a part that is key=value belongs to the spec before it."""
    specs: list[str] = []
    for part in text.split(","):
        if specs and "=" in part and ":" not in part:
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return specs
