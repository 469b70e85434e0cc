"""Reading ltgf.toml: one TOML file, or none. What it may hold is in `settings`."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
import zoneinfo
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from slurm_ltgf.core.duration import duration_s
from slurm_ltgf.errors import ConfigError
from slurm_ltgf.store.move_settings import Checkpoint, Defrag, Lease
from slurm_ltgf.store.settings import (
    SECTIONS,
    Config,
    Daemon,
    Fairness,
    Metrics,
    Queue,
    Setting,
    Site,
    Sync,
    settings_of,
    settings_table,
)

__all__ = [
    "Checkpoint",
    "Config",
    "Daemon",
    "Defrag",
    "Fairness",
    "Lease",
    "Metrics",
    "Queue",
    "Setting",
    "Site",
    "Sync",
    "config_file",
    "load_config",
    "parsed",
    "settings_table",
]

SYSTEM_FILE = Path("/etc/ltgf/ltgf.toml")
USER_FILE = Path(".config/ltgf/ltgf.toml")


def config_file(path: Path | str | None, environ: Mapping[str, str]) -> Path | None:
    """Which file holds the settings: --config, $LTGF_CONFIG, the user's, the system's, or none.

    Raises:
        ConfigError: a file that was named is not there.
    """
    for named, by in ((path, "--config"), (environ.get("LTGF_CONFIG"), "$LTGF_CONFIG")):
        if named:
            _must_be_there(Path(named), by)
            return Path(named)
    home = environ.get("HOME")
    usual = ([Path(home) / USER_FILE] if home else []) + [SYSTEM_FILE]
    return next((file for file in usual if _is_there(file)), None)


def _must_be_there(file: Path, by: str) -> None:
    try:
        there = file.is_file()
    except OSError as exc:
        raise ConfigError(f"{file}: closed to this user ({by} names it): {exc.strerror}") from exc
    if not there:
        raise ConfigError(f"{file}: no such file ({by} names it)")


def _is_there(file: Path) -> bool:
    """Whether the file can be seen: a home that is closed to us holds no settings for us."""
    try:
        return file.is_file()
    except OSError:
        return False


def load_config(path: Path | None) -> Config:
    """The settings of a file; None: the defaults.

    Raises:
        ConfigError: `FILE: section.key: must be …, got …`, an unknown key, or not TOML.
    """
    if path is None:
        return Config()
    try:
        return parsed(path.read_text(encoding="utf-8"), str(path))
    except OSError as exc:
        raise ConfigError(f"{path}: cannot read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: must be UTF-8, got byte {exc.start} that is not") from exc


def parsed(text: str, name: str) -> Config:
    """The settings in a TOML text; `name` is what messages call it.

    >>> parsed("[queue]\\nlease = '90min'", "ltgf.toml").queue.lease_s
    5400
    >>> parsed("[queue]\\nlaese = 5", "ltgf.toml")
    Traceback (most recent call last):
    ...
    slurm_ltgf.errors.ConfigError: ltgf.toml: queue.laese: no such setting; did you mean lease?
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{name}: is not TOML: {exc}") from exc
    _refuse_unknown(name, "", tables, list(SECTIONS))
    sections: dict[str, Any] = {
        section: _section(name, section, table) for section, table in tables.items()
    }
    return Config(**sections)


def _section(name: str, section: str, table: object) -> Struct:
    struct = SECTIONS[section]
    if not isinstance(table, dict):
        raise ConfigError(f"{name}: {section}: must be a table, got {table!r}")
    settings = settings_of(section, struct)
    _refuse_unknown(name, f"{section}.", table, list(settings))
    values = {}
    for key, value in table.items():
        row = settings[key]
        if not _is_finite(value):
            raise _refused(name, row, value)
        values[key] = _seconds(value, row.endless) if row.unit == "duration" else value
    try:
        made = msgspec.convert(values, struct)
    except msgspec.ValidationError as exc:
        key = _key_at(str(exc))
        raise _refused(name, settings[key], table[key]) from exc
    if isinstance(made, Site) and not _is_timezone(made.timezone):
        raise _refused(name, settings["timezone"], made.timezone)
    return made


def _is_timezone(name: str) -> bool:
    try:
        return bool(name == "UTC" or zoneinfo.ZoneInfo(name))
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return False


def _is_finite(value: object) -> bool:
    """Not TOML's inf or nan: no setting means anything by them; endless has its word."""
    if isinstance(value, dict):
        return all(_is_finite(item) for item in value.values())
    return not isinstance(value, float) or math.isfinite(value)


def _refused(name: str, row: Setting, value: object) -> ConfigError:
    return ConfigError(f"{name}: {row.section}.{row.key}: must be {row.must}, got {value!r}")


def _key_at(message: str) -> str:
    """The key in a message of msgspec: '… - at `$.weights[...]`' -> 'weights'."""
    match = re.search(r"`\$\.(\w+)", message)
    if match is None:
        raise ValueError(f"no key in {message!r}")
    return match[1]


def _refuse_unknown(name: str, prefix: str, table: Mapping[str, object], known: list[str]) -> None:
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
