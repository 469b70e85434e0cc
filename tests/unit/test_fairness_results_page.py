"""docs/reference/fairness-results.md has each table that scripts/fairness-results computes."""

import re
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADER = SourceFileLoader("fairness_results", str(ROOT / "scripts/fairness-results"))
script = module_from_spec(spec_from_loader(LOADER.name, LOADER))
sys.modules[LOADER.name] = script  # dataclasses look their module up
LOADER.exec_module(script)
PAGE = (ROOT / "docs/reference/fairness-results.md").read_text()


@pytest.mark.parametrize("name", sorted(script.TABLES))
def test_a_table_has_a_row_for_each_of_its_policies(name):
    found = re.search(f"<!-- {re.escape(name)} -->\n(.*?)<!-- end ", PAGE, re.DOTALL)
    policies = re.findall(r"^\| ([a-z][^ ]*) \|", found[1], re.MULTILINE)
    wanted = script.NEIGHBOURS if name.startswith("spread") else script.TABLES[name][1]
    assert policies[1:] == list(wanted)  # the first is the header


def test_the_page_has_no_table_of_before():
    assert set(re.findall("<!-- (?!end )(.*?) -->", PAGE)) == set(script.TABLES)


def test_ratios_are_ours_under_theirs():
    assert script.times(0.1, 0.02) == "5.00 x"
    assert script.times(0.1, 0.0) == "0.1000 against none"


def test_the_spread_is_the_mean_with_the_least_and_the_most():
    def row(policy, jobs):
        return {"policy": policy, "shortfall": 0.01, "jobs": jobs, "jct": 1000.0, "moves": 3}

    rows = [
        row(spec, 0.01 * k) for specs in script.NEIGHBOURS.values() for k, spec in enumerate(specs)
    ]
    lines = script.as_markdown("spread 512", rows).splitlines()
    assert lines[2] == (
        "| slurm-fairtree | 0.0100 (0.0100 to 0.0100) | 2.00% (0.00% to 4.00%) |"
        " 1,000 (1,000 to 1,000) | 3 (3 to 3) |"
    )
