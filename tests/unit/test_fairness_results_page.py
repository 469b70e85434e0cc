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
    assert policies[1:] == list(script.TABLES[name][1])  # the first is the header


def test_the_page_has_no_table_of_before():
    assert set(re.findall("<!-- (?!end )(.*?) -->", PAGE)) == set(script.TABLES)


def test_ratios_are_ours_under_theirs():
    assert script.times(0.1, 0.02) == "5.00 x"
    assert script.times(0.1, 0.0) == "0.1000 against none"
