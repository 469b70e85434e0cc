"""The pages say what the code does: links, commands, settings, exit codes, JSON keys, examples."""

import ast
import doctest
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from slurm_ltgf import errors
from slurm_ltgf.checkpoint import board, keys
from slurm_ltgf.cli.main import cli, run
from slurm_ltgf.cli.quota_text import SIGNS
from slurm_ltgf.core.duration import shown
from slurm_ltgf.errors import LtgfError
from slurm_ltgf.metrics import server
from slurm_ltgf.service import move_facts
from slurm_ltgf.sim.policies import Site, make
from slurm_ltgf.store import files
from slurm_ltgf.store.config import settings_table

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FOLDERS = ("tutorial", "how-to", "reference", "explanation")


def ids(path):
    return str(path.relative_to(ROOT))


def without_code(text):
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_relative_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors(found), f"{target}: no such heading"


def anchors(page):
    headings = re.findall(r"^#+ +(.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_no_page_promises_what_is_still_to_be_done(page):
    assert "TODO" not in page.read_text()


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent.name in FOLDERS], ids=ids)
def test_every_page_says_at_its_top_who_it_is_for(page):
    assert re.search(r"\b[Ff]or ", "\n".join(page.read_text().splitlines()[:6]))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_the_examples_of_a_page_are_what_the_functions_answer(page):
    # a fence is no expected output
    text = re.sub(r"^```.*$", "", page.read_text(), flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    said = []
    doctest.DocTestRunner().run(test, out=said.append)
    assert not said, "".join(said)


def test_the_replay_page_shows_what_its_command_prints(capsys, monkeypatch, tmp_path):
    page = (ROOT / "docs" / "how-to" / "replay-your-site.md").read_text()
    words, printed = re.search(
        r"\$ ltgf (replay --from-file in.sacct.*)\n((?s:.*?))\.\.\.\n", page
    ).groups()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "130")
    monkeypatch.delenv("LTGF_CONFIG", raising=False)
    monkeypatch.chdir(ROOT / "tests" / "golden" / "flood-22.05")
    assert run(shlex.split(words)) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[: printed.count("\n")] == printed.splitlines()


def test_the_page_of_policies_has_the_defaults_of_leases():
    page = (REFERENCE / "policies.md").read_text()
    policy = make("ltgf-lease", site := Site({"a": 1.0}, 8))
    rules = site.lease_rules
    own = page.split("\n## ltgf and ltgf-lease\n")[1]
    for row in (
        f"| `lease=` | {shown(policy.lease_s)} |",
        f"| `pass=` | {shown(policy.pass_s)} |",
        f"| `rest=` | {shown(policy.rest_s)} |",
        f"| `step=` | {site.rules.rho_step:g} |",
        f"| `floor=` | {site.rules.floor:g} |",
        f"| `starvation=` | {shown(site.rules.starvation_s)} |",
        f"| `margin=` | {rules.margin:g} |",
        f"| `overhead=` | {rules.overhead:g} |",
        f"| `restarts=` | {rules.max_restarts} |",
        f"| `min_run=` | {rules.min_run_s:g} |",
    ):
        assert row in own


def test_every_page_is_found_from_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    linked = set(re.findall(r"\]\(([^)#\s]+)\)", index))
    pages = {
        str(page.relative_to(ROOT / "docs")) for page in PAGES if ROOT / "docs" in page.parents
    }
    assert pages - {"README.md"} <= linked


@pytest.mark.parametrize("name", ["what-ltgf-means.md", "from-sacct-to-sitefactor.md"])
def test_the_explanations_have_examples(name):
    assert (ROOT / "docs" / "explanation" / name).read_text().count(">>> ") > 10


def commands():
    with click.Context(cli) as ctx:
        return {"": cli} | {name: cli.get_command(ctx, name) for name in cli.list_commands(ctx)}


@pytest.mark.parametrize("name", commands())
def test_every_command_and_option_is_in_the_reference(name):
    page = (REFERENCE / "commands.md").read_text()
    part = page.split("\n## ")[0] if not name else f"\n{page}".split(f"\n## ltgf {name}\n")[1]
    shown = part.split("\n## ")[0]
    for option in commands()[name].params:
        if isinstance(option, click.Option) and not option.hidden:
            assert all(f"{word}" in shown for word in option.opts), option.opts


def test_the_made_pages_are_what_the_code_says_now():
    script = [sys.executable, str(ROOT / "scripts" / "make-docs"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_stale_page_is_named_with_exit_status_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", list(sys.path))
    main = runpy.run_path(str(ROOT / "scripts" / "make-docs"), run_name="make_docs")["main"]
    monkeypatch.setitem(main.__globals__, "ROOT", tmp_path)
    monkeypatch.setitem(main.__globals__, "PAGES", {"page.md": lambda: "new\n"})
    monkeypatch.setattr(sys, "argv", ["make-docs", "--check"])
    (tmp_path / "page.md").write_text("old\n")
    assert main() == 1
    assert capsys.readouterr().out == "page.md: stale; run scripts/make-docs\n"
    assert (tmp_path / "page.md").read_text() == "old\n"


def test_every_setting_is_in_the_reference_and_in_the_settings_file():
    page = (REFERENCE / "ltgf-toml.md").read_text()
    file = (ROOT / "etc" / "ltgf.toml").read_text()
    for row in settings_table():
        assert (
            f"| `{row.key}` | {row.unit} | `{row.default}` |"
            in page.split(f"## [{row.section}]")[1]
        )
        assert f"{row.key} = {row.default}" in file


def test_settings_that_the_pages_name_exist():
    sections = {row.section for row in settings_table()}
    known = {f"{row.section}.{row.key}" for row in settings_table()}
    named = re.compile(rf"`((?:{'|'.join(sections)})\.[a-z_]+)`")
    for page in PAGES:
        assert set(named.findall(page.read_text())) <= known, page


def error_classes(base=LtgfError):
    return {base} | {c for sub in base.__subclasses__() for c in error_classes(sub)}


def test_the_table_of_exit_codes_is_that_of_the_errors():
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", (REFERENCE / "exit-codes.md").read_text(), re.M)
    shown = (errors, files, board, keys, move_facts, server)
    ours = [c for c in error_classes() if c.__module__ in {module.__name__ for module in shown}]
    assert sorted(rows) == sorted((str(c.exit_code), c.__name__) for c in ours)


def json_keys(module):
    """Keys of the dict displays in a command's module: what its --json is made of."""
    tree = ast.parse((ROOT / "slurm_ltgf" / "cli" / f"{module}.py").read_text())
    dicts = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    keys = [key.value for node in dicts for key in node.keys if isinstance(key, ast.Constant)]
    assigned = re.findall(r'(?:shape|report)\["(\w+)"\] = ', ast.unparse(tree).replace("'", '"'))
    return {*keys, *assigned}


#: Modules that are named otherwise than the command whose JSON they make.
OTHER_COMMAND = {"moves": "requeue", "quota_text": "quota plan", "quota_credit": "quota log"}


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("fairness", {"", "s", "m", "min", "h", "d", "w"}),  # units of --window
        ("queue", set()),
        ("explain", set()),
        ("tick", set()),
        ("sync", set()),
        ("doctor", {"ok"}),
        ("init", set()),
        ("moves", set()),
        ("lease", set()),
        ("quota_show", set()),
        ("quota_plan", set()),
        ("quota_text", set(SIGNS)),
        ("quota_credit", set()),
    ],
)
def test_every_key_of_a_commands_json_is_in_its_reference(module, other):
    page = (REFERENCE / "json.md").read_text()
    command = OTHER_COMMAND.get(module, module)
    command = command.replace("_", " ")
    shown = page.split(f"## ltgf {command} ")[1].split("\n## ")[0]
    meta = page.split("## meta")[1].split("\n## ")[0]
    keys = json_keys(module) - other - {"meta"}
    assert len(keys) > 4
    missing = {key for key in keys if f"`{key}`" not in shown + meta}
    assert not missing
