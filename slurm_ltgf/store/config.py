"""Reading ltgf.toml: one TOML file, or none. What it may hold is in `settings`."""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from slurm_ltgf.errors import ConfigError
from slurm_ltgf.store.move_settings import Checkpoint, Defrag, Lease
from slurm_ltgf.store.sections import read_section, refuse_unknown, refused, tables_of, text_of
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
    return parsed(text_of(path), str(path))


def parsed(text: str, name: str) -> Config:
    """The settings in a TOML text; `name` is what messages call it.

    >>> parsed("[queue]\\nlease = '90min'", "ltgf.toml").queue.lease_s
    5400
    >>> parsed("[queue]\\nlaese = 5", "ltgf.toml")
    Traceback (most recent call last):
    ...
    slurm_ltgf.errors.ConfigError: ltgf.toml: queue.laese: no such setting; did you mean lease?
    """
    tables = tables_of(text, name)
    refuse_unknown(name, "", tables, list(SECTIONS))
    sections: dict[str, Any] = {
        section: _section(name, section, table) for section, table in tables.items()
    }
    return Config(**sections)


def _section(name: str, section: str, table: object) -> Struct:
    made = read_section(name, section, SECTIONS[section], table)
    if isinstance(made, Site) and not _is_timezone(made.timezone):
        row = settings_of(section, SECTIONS[section])["timezone"]
        raise refused(name, section, row, made.timezone)
    return made


def _is_timezone(name: str) -> bool:
    try:
        return bool(name == "UTC" or zoneinfo.ZoneInfo(name))
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return False
