"""The arrows: who may import whom, and that core sees nothing of the world."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "slurm_ltgf"

#: Part of the package -> the parts it may import, besides itself.
ARROWS = {
    "core": set(),
    "errors": set(),
    "slurm": {"core.model", "core.ending", "core.accounts", "errors"},
    "store": {"core.model", "core.duration", "core.move", "core.accounts", "errors"},
    "checkpoint": {"errors"},
    "service": {"core", "slurm", "store", "checkpoint", "errors"},
    "daemon": {"service", "errors"},
    "metrics": {"service", "core.tally", "errors"},
    "sim": {"core", "slurm.dump", "slurm.run", "store.ledger", "errors"},
    "report": {"core", "errors"},
    "cli": {
        "service",
        "daemon",
        "metrics",
        "sim",
        "report",
        "core",
        "slurm",
        "store",
        "checkpoint",
        "errors",
    },
}
#: What core may use: nothing that can see a file, a clock or an environment.
PURE = {
    "__future__",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "math",
    "operator",
    "numpy",
    "re",
    "typing",
}
FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """'core' for core/model.py, 'daemon' for daemon.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path):
    """Modules a file imports, those of the package without its name."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "slurm_ltgf":
                names = [f"slurm_ltgf.{alias.name}" for alias in node.names]
            elif node.module and node.module.count(".") == 1:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [n if is_module(n) else node.module for n in names]
            else:
                names = [node.module or ""]
        yield from names


def is_module(name: str) -> bool:
    """Whether slurm_ltgf.a.b is a module and not a name in one."""
    path = PACKAGE.parent / Path(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_arrows(path):
    part = part_of(path)
    if part in ("__init__", "__main__"):
        return
    for name in imports(path):
        if not name.startswith("slurm_ltgf."):
            continue
        target = name.removeprefix("slurm_ltgf.")
        allowed = {part, *ARROWS[part]}
        assert any(target == a or target.startswith(f"{a}.") for a in allowed) or (
            target == "__version__"
        ), f"{part} may not import {target}"


@pytest.mark.parametrize(
    "path", [p for p in FILES if part_of(p) == "core"], ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_core_cannot_see_the_world(path):
    outside = {name.split(".")[0] for name in imports(path)} - {"slurm_ltgf"}
    assert outside <= PURE


@pytest.mark.parametrize(("module", "only"), [("sqlite3", "store"), ("subprocess", "slurm")])
def test_one_part_alone_talks_to(module, only):
    users = {part_of(path) for path in FILES if module in set(imports(path))}
    assert users == {only}
