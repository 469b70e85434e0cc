"""What quota.toml means for a cluster: what accounts should be, and by what rules budgets are told.

A named account's limits of GPUs are all in the file: what it leaves out, and [defaults] too, is no
limit. Its weight, parent and users are left alone if left out. An account that the file does not
name gets from [defaults] what it has none of (Fairshare 1, no limit): so new accounts are served,
and what was set by hand stays. Credits of the period are added to gpu_hours of named accounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurm_ltgf.core.accounts import BILLING, GPU, ROOT, AccountRow, Book, QosRow
from slurm_ltgf.core.quota_wanted import KEEP, Keep, Wanted, WantedAccount
from slurm_ltgf.service.quota import Rules
from slurm_ltgf.store.ledger import Credit
from slurm_ltgf.store.quota_file import QuotaFile, hours_min
from slurm_ltgf.store.quota_settings import AccountTable, Budgets, Limits, QosTable


def wanted_of(file: QuotaFile, book: Book, credits_min: Mapping[str, int]) -> Wanted:
    """What should be.

    Args:
        book: what is there; tells which accounts are new to the file.
        credits_min: credits less debits of the period, in GPU-minutes, by account.
    """
    factor = minutes_factor(file.budgets)
    defaults = file.defaults or Limits()
    named = [
        _named(name, _filled(table, defaults), book.accounts.get(name), credits_min, factor)
        for name, table in file.accounts.items()
    ]
    new = [
        _new(book.accounts[name], defaults, factor)
        for name in (newcomers(file, book) if file.defaults is not None else ())
    ]
    qos = tuple(_qos(name, table, book.qos.get(name)) for name, table in sorted(file.qos.items()))
    return Wanted((*named, *new), qos)


def newcomers(file: QuotaFile, book: Book) -> list[str]:
    """Accounts with users that the file does not name and [defaults] are for."""
    used = {row.account for row in book.users}
    return sorted(used - file.accounts.keys() - {ROOT, *file.budgets.exempt})


def minutes_factor(budgets: Budgets) -> tuple[str, int]:
    """(TRES, units a GPU): what gpu_hours limit; billing where types have factors."""
    return (BILLING, budgets.billing_per_gpu) if budgets.gpu_factors else (GPU, 1)


def sum_of(credits_: Iterable[Credit]) -> dict[str, int]:
    """Credits less debits, in GPU-minutes, by account."""
    sums: dict[str, int] = {}
    for entry in credits_:
        sums[entry.account] = sums.get(entry.account, 0) + entry.minutes
    return sums


def rules_of(file: QuotaFile, credits_min: Mapping[str, int]) -> Rules:
    """How budgets are told."""
    budgets = file.budgets
    return Rules(
        period="" if budgets.period == "slurm" else budgets.period,
        recent_s=budgets.forecast_s,
        warn=budgets.warn_at,
        warn_at={n: t.warn_at for n, t in file.accounts.items() if t.warn_at is not None},
        exempt=frozenset(budgets.exempt),
        credits_gpu_s={name: minutes * 60 for name, minutes in credits_min.items()},
        factors=budgets.gpu_factors,
        billing_per_gpu=budgets.billing_per_gpu,
    )


def budget_min(file: QuotaFile, account: str) -> int | None:
    """GPU-minutes that the file gives an account that it names, without credits; None: none."""
    table = file.accounts.get(account)
    return None if table is None else hours_min(_filled(table, file.defaults or Limits()).gpu_hours)


def _filled(table: AccountTable, defaults: Limits) -> AccountTable:
    """The account's table, with [defaults] for what it leaves out."""
    if table.absent:
        return table
    return AccountTable(
        weight=defaults.weight if table.weight is None else table.weight,
        gpus=defaults.gpus if table.gpus is None else table.gpus,
        gpu_types=defaults.gpu_types if table.gpu_types is None else table.gpu_types,
        gpu_hours=defaults.gpu_hours if table.gpu_hours is None else table.gpu_hours,
        gpu_type_hours=(
            defaults.gpu_type_hours if table.gpu_type_hours is None else table.gpu_type_hours
        ),
        parent=table.parent,
        warn_at=table.warn_at,
        users=table.users,
    )


def _named(
    name: str,
    table: AccountTable,
    row: AccountRow | None,
    credits_min: Mapping[str, int],
    factor: tuple[str, int],
) -> WantedAccount:
    if table.absent:
        return WantedAccount(name, absent=True)
    return WantedAccount(
        name,
        KEEP if table.parent is None else table.parent,
        _share(table.weight),
        _gpus(table),
        _minutes(table, row, factor, credits_min.get(name, 0)),
        None if table.users is None else frozenset(table.users),
    )


def _new(row: AccountRow, defaults: Limits, factor: tuple[str, int]) -> WantedAccount:
    """An account that the file does not name: [defaults] for what it has none of."""
    return WantedAccount(
        row.name,
        share=_share(defaults.weight) if row.share == 1 else KEEP,
        gpus=KEEP if row.gpus else _gpus(defaults),
        minutes=KEEP if row.minutes else _minutes(defaults, row, factor),
    )


def _share(weight: int | str | None) -> int | Keep | None:
    if weight is None:
        return KEEP
    return None if isinstance(weight, str) else weight


def _gpus(table: Limits | QosTable) -> dict[str, int]:
    limits = {f"{GPU}:{kind}": count for kind, count in (table.gpu_types or {}).items()}
    return limits | ({GPU: table.gpus} if isinstance(table.gpus, int) else {})


def _minutes(
    table: Limits | QosTable,
    row: AccountRow | QosRow | None,
    factor: tuple[str, int],
    credit_min: int = 0,
) -> dict[str, int]:
    """Limits of GPU-minutes; a limit of billing that the site has for reasons of its own stays."""
    tres, units = factor
    limits = {f"{GPU}:{k}": hours_min(h) or 0 for k, h in (table.gpu_type_hours or {}).items()}
    if row is not None and BILLING in row.minutes and tres != BILLING:
        limits[BILLING] = row.minutes[BILLING]
    budget = hours_min(table.gpu_hours)
    if budget is not None:
        limits[tres] = max(budget + credit_min, 0) * units
    return limits


def _qos(name: str, table: QosTable, row: QosRow | None) -> QosRow:
    return QosRow(name, _gpus(table), _minutes(table, row, (GPU, 1)), table.no_decay)
