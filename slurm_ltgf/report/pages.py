"""How all pages are made: every text is escaped, a name that is missing is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_ltgf.report.words import number

if TYPE_CHECKING:
    from jinja2 import Environment


def environment() -> Environment:
    """The templates of this folder; `number` is a filter of theirs."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("slurm_ltgf.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["number"] = number
    return made
