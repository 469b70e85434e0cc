"""TOML text to structs of settings; a complaint is one line: file, key, what must be, what is."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from slurm_ltgf.core.duration import duration_s
from slurm_ltgf.errors import ConfigError
from slurm_ltgf.store.settings import Setting, settings_of

S = TypeVar("S", bound=Struct)


def text_of(path: Path) -> str:
    """A file's text.

    Raises:
        ConfigError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"{path}: cannot read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: must be UTF-8, got byte {exc.start} that is not") from exc


def tables_of(text: str, name: str) -> dict[str, object]:
    """A TOML text as tables; `name` is what messages call it."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{name}: is not TOML: {exc}") from exc


def table_of(name: str, section: str, table: object) -> dict[str, object]:
    """The value of a section, which must be a table."""
    if not isinstance(table, dict):
        raise ConfigError(f"{name}: {section}: must be a table, got {table!r}")
    return table


def read_section(name: str, section: str, struct: type[S], table: object) -> S:
    """A section's settings.

    Raises:
        ConfigError: an unknown key, or a value that the struct does not take.
    """
    given = table_of(name, section, table)
    settings = _rows(struct)
    refuse_unknown(name, f"{section}.", given, list(settings))
    values = {}
    for key, value in given.items():
        row = settings[key]
        if not _is_finite(value):
            raise refused(name, section, row, value)
        values[key] = _seconds(value, row.endless) if row.unit == "duration" else value
    try:
        return msgspec.convert(values, struct)
    except msgspec.ValidationError as exc:
        key = _key_at(str(exc))
        raise refused(name, section, settings[key], given[key]) from exc


@cache
def _rows(struct: type[Struct]) -> dict[str, Setting]:
    """A struct's settings by their names, whichever section they are of."""
    return settings_of("", struct)


def _is_finite(value: object) -> bool:
    """Not TOML's inf or nan: no setting means anything by them; endless has its word."""
    if isinstance(value, dict):
        return all(_is_finite(item) for item in value.values())
    return not isinstance(value, float) or math.isfinite(value)


def refused(name: str, section: str, row: Setting, value: object) -> ConfigError:
    """The complaint about a value."""
    return ConfigError(f"{name}: {section}.{row.key}: must be {row.must}, got {value!r}")


def _key_at(message: str) -> str:
    """The key in a message of msgspec: '… - at `$.weights[...]`' -> 'weights'."""
    match = re.search(r"`\$\.(\w+)", message)
    if match is None:
        raise ValueError(f"no key in {message!r}")
    return match[1]


def refuse_unknown(name: str, prefix: str, table: Mapping[str, object], known: list[str]) -> None:
    """Complain of a key that is none."""
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise ConfigError(f"{name}: {prefix}{key}: no such setting; {hint}")


def _seconds(value: object, endless: str) -> object:
    """A duration in seconds; anything else as it is, for the type check to refuse."""
    if isinstance(value, str):
        if value and value == endless:
            return math.inf
        seconds = duration_s(value)
        return value if seconds is None else seconds
    # 1.5 would pass where a duration may be endless, hence a float: seconds are whole.
    return str(value) if isinstance(value, float) else value
