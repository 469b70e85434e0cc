"""A report's tables from its rows: a million runs grouped by pandas, each a list of plain rows.

GPU-time is in GPU-seconds. `gpu_s` of users and requeues is weighted by GPU type, as attained is;
that of `where` counts physical GPUs; `device_s` counts devices, as Slurm's own accounting does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.fairness import BENEFIT, LOSS
from slurm_ltgf.core.gpus import Gpus
from slurm_ltgf.core.job_fairness import JobIndices
from slurm_ltgf.core.model import FloatArray, Words
from slurm_ltgf.core.report import Rows
from slurm_ltgf.core.slurm_usage import gpu_devices
from slurm_ltgf.errors import UsageError

Row = dict[str, Any]
#: A pandas.DataFrame.
Frame: TypeAlias = Any
#: Rows of a table that sum up all sizes have this in place of one.
ALL = "all"
CLASSES = ("loss", "fair", "benefit", "no share", "unknown")


def pandas_() -> Any:
    """The pandas package, imported only when a report is made.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import pandas
    except ImportError as exc:
        raise UsageError(
            "ltgf report needs pandas: pip install 'slurm-ltgf[report]', or Debian's python3-pandas"
        ) from exc
    return pandas


def size_class(gpus: FloatArray) -> tuple[NDArray[np.int32], list[str]]:
    """Classes of jobs by GPUs that double, (m,) codes, and their names: <1, 1, 2-3, 4-7, ..

    >>> codes, names = size_class(np.array([0.5, 1, 3, 8]))
    >>> [names[code] for code in codes]
    ['<1', '1', '2-3', '8-15']
    """
    whole = np.maximum(np.ceil(gpus - 1e-9), 1)
    power = np.where(gpus < 1 - 1e-9, 0, np.frexp(whole)[1]).astype(np.int32)
    names = ["<1", "1"]
    names += [f"{1 << k}-{(2 << k) - 1}" for k in range(1, int(power.max(initial=1)))]
    return power, names


def waits(rows: Rows) -> list[Row]:
    """How long jobs waited, by tenant and size, and of all sizes together."""
    frame = _frame(rows)
    sizes = _waits(frame, ["tenant", "size"])
    whole = [{**row, "size": ALL} for row in _waits(frame, ["tenant"])]
    order = {name: i for i, name in enumerate((ALL, *frame["size"].cat.categories))}
    found = [_wait_row(row) for row in (*whole, *sizes)]
    return sorted(found, key=lambda row: (row["tenant"], order[row["gpus"]]))


def _waits(frame: Frame, by: list[str]) -> list[Row]:
    groups = frame.groupby(by, observed=True)
    waited = groups["wait_s"]
    table = waited.agg(["count", "mean", "median", "max"])
    table["p90"] = waited.quantile(0.9)
    table["waiting"] = groups["waiting"].sum()
    table["longest"] = groups["waiting_s"].max()
    table["left"] = groups["left"].sum()
    return _records(table.reset_index())


def _wait_row(row: Row) -> Row:
    return {
        "tenant": row["tenant"],
        "gpus": row["size"],
        "starts": row["count"],
        "mean_wait_s": row["mean"],
        "median_wait_s": row["median"],
        "p90_wait_s": row["p90"],
        "max_wait_s": row["max"],
        "waiting": row["waiting"],
        "longest_waiting_s": row["longest"],
        "left": row["left"],
    }


def users(rows: Rows) -> list[Row]:
    """GPU-time by tenant, account and user, the most first."""
    groups = _frame(rows).groupby(["tenant", "account", "user"], observed=True)
    table = groups[["gpu_s", "device_s", "starts"]].sum()
    table["median_wait_s"] = groups["wait_s"].median()
    found = _records(table.reset_index())
    return sorted(found, key=lambda row: (-row["gpu_s"], row["tenant"], row["user"]))


def requeues(rows: Rows) -> list[Row]:
    """Runs that ended to start again, by tenant and cause: their work, saved and lost."""
    again = rows.take(rows.requeued)
    frame = _frame(again)
    frame["saved_gpu_s"] = frame["gpu_s"] * again.saved
    frame["checkpointed"] = again.in_checkpoint
    groups = frame.groupby(["tenant", "cause"], observed=True)
    table = groups[["gpu_s", "saved_gpu_s", "checkpointed"]].sum()
    table["runs"] = groups.size()
    table["lost_gpu_s"] = table["gpu_s"] - table["saved_gpu_s"]
    found = _records(table.reset_index())
    return sorted(found, key=lambda row: (-row["lost_gpu_s"], row["tenant"], row["cause"]))


def where(rows: Rows, hosts: Mapping[str, Sequence[str]]) -> list[Row]:
    """GPU-time by partition, GPU type and node; of a run on several nodes, in equal parts."""
    pd = pandas_()
    held = rows.take(rows.used_s > 0)
    frame = pd.DataFrame(
        {
            "partition": held.runs.partition.codes,
            "price": held.price,
            "nodes": held.runs.nodes.codes,
            "used_s": held.used_s * held.runs.tasks,
        }
    )
    groups = frame.groupby(["partition", "price", "nodes"])["used_s"].agg(["sum", "count"])
    parts = pd.DataFrame(
        list(_parts(held, _records(groups.reset_index()), hosts)),
        columns=["partition", "gpu_type", "node", "runs", "gpu_s"],
    )
    keys = ["partition", "gpu_type", "node"]
    sums = parts.groupby(keys, dropna=False).sum(numeric_only=True)
    found = _records(sums.reset_index())
    return sorted(found, key=lambda row: tuple((row[key] is None, row[key] or "") for key in keys))


def _parts(
    rows: Rows, groups: Sequence[Row], hosts: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str | None, str | None, int, float]]:
    """Each node's part of each GPU type of each group of runs."""
    for group in groups:
        price: Gpus = rows.prices[group["price"]]
        text = rows.runs.nodes.names[group["nodes"]]
        nodes: Sequence[str | None] = hosts.get(text) or [None]
        partition = rows.runs.partition.names[group["partition"]]
        for kind, gpus in price.by_type:
            part = float(gpus) * group["sum"] / len(nodes)
            for node in nodes:
                yield partition, kind or None, node, group["count"], part


def classes(jobs: JobIndices, some: NDArray[np.bool_] | None = None) -> list[Row]:
    """Jobs by class, of each tenant: how many, and how low rho is for the worst of them."""
    pd = pandas_()
    rho, entitled, tenant = jobs.rho, jobs.entitled, jobs.tenant
    if some is not None:
        rho, entitled, tenant = rho[some], entitled[some], tenant[some]
    conditions = [rho < LOSS, rho > BENEFIT, ~np.isnan(rho), ~np.isnan(entitled)]
    code = np.select(conditions, [0, 2, 1, 3], default=4)
    frame = pd.DataFrame(
        {
            "tenant": pd.Categorical.from_codes(tenant, list(jobs.tenants)),
            "class": pd.Categorical.from_codes(code, list(CLASSES)),
            "rho": rho,
        }
    )
    counts = frame.groupby(["tenant", "class"], observed=False).size().unstack()
    groups = frame.groupby("tenant", observed=False)["rho"]
    counts = counts.rename(columns={name: name.replace(" ", "_") for name in CLASSES})
    table = pd.DataFrame(counts.to_dict("series"), index=counts.index)
    table["jobs"] = table.sum(axis=1)
    table["rho_p5"], table["rho_median"] = groups.quantile(0.05), groups.median()
    return [row for row in _records(table.reset_index()) if row["jobs"]]


def _frame(rows: Rows) -> Frame:
    """The rows as pandas has them; texts are categories."""
    pd = pandas_()
    runs = rows.runs
    codes, names = size_class(rows.gpus / np.maximum(runs.tasks, 1))
    devices = np.array([*map(gpu_devices, runs.gres.names), 0], dtype=np.int64)
    started = ~np.isnan(rows.wait_s)
    return pd.DataFrame(
        {
            "tenant": pd.Categorical.from_codes(rows.tenant, list(rows.tenants)),
            "size": pd.Categorical.from_codes(codes, names),
            "account": _category(runs.account),
            "user": _category(runs.user),
            "cause": _category(runs.state),
            "wait_s": rows.wait_s,
            "starts": started,
            "waiting_s": rows.waiting_s,
            "waiting": np.where(np.isnan(rows.waiting_s), 0, runs.tasks),
            "left": rows.left,
            "gpu_s": rows.used_gpu_s,
            "device_s": rows.used_s * devices[runs.gres.codes],
        }
    )


def _category(words: Words) -> Any:
    return pandas_().Categorical.from_codes(words.codes, list(words.names))


def _records(table: Frame) -> list[Row]:
    """Rows of plain values: numbers are numbers, what is not known is None."""
    columns = {name: [_plain(value) for value in table[name].tolist()] for name in table.columns}
    names = list(columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        if value != value:  # NOT A BUG: nan alone differs from itself
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value
