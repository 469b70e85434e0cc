"""Reading quota.toml: who gets how much, for `ltgf quota`. What it may hold is `quota_settings`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import msgspec

from slurm_ltgf.errors import ConfigError
from slurm_ltgf.store.quota_settings import AccountTable, Budgets, Limits, QosTable
from slurm_ltgf.store.sections import (
    read_section,
    refuse_unknown,
    refused,
    table_of,
    tables_of,
    text_of,
)
from slurm_ltgf.store.settings import settings_of

_CLOCK = re.compile(r"([0-9]{1,12}):([0-5][0-9])")
#: A budget of more GPU-minutes is none.
MOST_MIN = 10**12


@dataclass(frozen=True, slots=True)
class QuotaFile:
    """What a quota.toml says. accounts: by name, lower case. defaults None: the file has none."""

    name: str = "quota.toml"
    budgets: Budgets = Budgets()  # noqa: RUF009 (frozen)
    defaults: Limits | None = None
    accounts: Mapping[str, AccountTable] = field(default_factory=dict)
    qos: Mapping[str, QosTable] = field(default_factory=dict)


def load_quota(path: Path) -> QuotaFile:
    """The quotas of a file.

    Raises:
        ConfigError: it cannot be read; `FILE: accounts.NAME.key: must be ..., got ...`.
    """
    return parsed(text_of(path), str(path))


def parsed(text: str, name: str) -> QuotaFile:
    """The quotas in a TOML text; `name` is what messages call it.

    >>> parsed("[accounts.Nlp]\\ngpu_hours = 500", "quota.toml").accounts["nlp"].gpu_hours
    500.0
    >>> parsed("[accounts.nlp]\\nweigth = 5", "Q")
    Traceback (most recent call last):
    ...
    slurm_ltgf.errors.ConfigError: Q: accounts.nlp.weigth: no such setting; did you mean weight?
    """
    tables = tables_of(text, name)
    refuse_unknown(name, "", tables, ["budgets", "defaults", "accounts", "qos"])
    defaults = None
    if "defaults" in tables:
        defaults = read_section(name, "defaults", Limits, tables["defaults"])
        _check_hours(name, "defaults", defaults)
    budgets = read_section(name, "budgets", Budgets, tables.get("budgets", {}))
    exempt = tuple(account.lower() for account in budgets.exempt)
    return QuotaFile(
        name,
        msgspec.structs.replace(budgets, exempt=exempt),
        defaults,
        _accounts(name, table_of(name, "accounts", tables.get("accounts", {}))),
        _qos(name, table_of(name, "qos", tables.get("qos", {}))),
    )


def _accounts(name: str, tables: Mapping[str, object]) -> dict[str, AccountTable]:
    found: dict[str, AccountTable] = {}
    for account, table in tables.items():
        section = f"accounts.{account}"
        read = read_section(name, section, AccountTable, table)
        if account.lower() in found:
            raise ConfigError(
                f"{name}: {section}: there is another of this name; Slurm's accounts are lower case"
            )
        if read.absent and read != AccountTable(absent=True):
            raise ConfigError(
                f"{name}: {section}.absent: an account that is to be absent has no other keys"
            )
        _check_hours(name, section, read)
        parent = read.parent.lower() if read.parent is not None else None
        found[account.lower()] = msgspec.structs.replace(read, parent=parent)
    return found


def _qos(name: str, tables: Mapping[str, object]) -> dict[str, QosTable]:
    found = {}
    for qos, table in tables.items():
        found[qos.lower()] = read = read_section(name, f"qos.{qos}", QosTable, table)
        _check_hours(name, f"qos.{qos}", read)
    return found


def _check_hours(name: str, section: str, table: Limits | QosTable) -> None:
    """Refuse hours that are no whole minutes: Slurm has nothing finer."""
    if not _are_whole(table.gpu_hours):
        row = settings_of(section, type(table))["gpu_hours"]
        raise refused(name, section, row, table.gpu_hours)
    for kind, hours in (table.gpu_type_hours or {}).items():
        if not _are_whole(hours) or hours == "none":
            row = settings_of(section, type(table))["gpu_type_hours"]
            raise refused(name, section, row, {kind: hours})


def _are_whole(hours: float | str | None) -> bool:
    try:
        hours_min(hours)
    except ValueError:
        return False
    return True


def hours_min(hours: float | str | None) -> int | None:
    """GPU-hours as whole minutes, exact; None: none.

    >>> hours_min(500), hours_min(0.1), hours_min("1666:40"), hours_min("none")
    (30000, 6, 100000, None)

    Raises:
        ValueError: not whole minutes, negative, or too many.
    """
    if hours is None or hours == "none":
        return None
    if isinstance(hours, str):
        match = _CLOCK.fullmatch(hours)
        if match is None:
            raise ValueError(f"cannot read hours {hours!r}")
        minutes = Fraction(int(match[1]) * 60 + int(match[2]))
    else:
        minutes = Fraction(str(hours)) * 60
    if minutes.denominator != 1 or not 0 <= minutes <= MOST_MIN:
        raise ValueError(f"hours must be whole minutes, got {hours!r}")
    return int(minutes)


def shown_hours(minutes: int) -> str:
    """Minutes as the file has hours.

    >>> shown_hours(30000), shown_hours(6), shown_hours(100000)
    ('500', '0.1', '"1666:40"')
    """
    tenths = Fraction(minutes, 6)
    if tenths.denominator == 1:
        return f"{minutes // 60}" if minutes % 60 == 0 else f"{minutes / 60:.1f}"
    return f'"{minutes // 60}:{minutes % 60:02}"'
