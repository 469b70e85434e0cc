"""The C parts of the plugin by their own tests, under sanitizers; the source it is built from."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.c_tools import need

SITE_FACTOR = Path(__file__).parents[2] / "site_factor"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Lines of `make check`: under ASan and UBSan, the watching thread's under TSan."""
    need("gcc", "make")
    out = tmp_path_factory.mktemp("site_factor")
    argv = ["make", "-s", "-C", str(SITE_FACTOR), f"OUT={out}", "check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "rule",
    [
        "the table that Python wrote is read",
        "of a burst each job stands behind the one before",
        "cut off at any byte it is refused",
        "with any bit turned it is refused",
        "with any byte changed and sealed anew nothing breaks",
        "one line a change, not one a look",
        "nothing is left behind",
    ],
)
def test_the_c_tests_hold(results, rule):
    assert [line for line in results if rule in line and line.startswith("ok ")]
    assert not [line for line in results if line.startswith("not ok")]


def slurm_source(tmp_path, *args, version="22.05.8"):
    """`slurm-source ARGS` on a machine whose slurmctld says this version."""
    slurmctld = tmp_path / "slurmctld"
    slurmctld.write_text(f"#!/bin/sh\necho slurm-wlm {version}\n")
    slurmctld.chmod(0o755)
    argv = [str(SITE_FACTOR / "slurm-source"), *args]
    env = {**os.environ, "SLURMCTLD": str(slurmctld)}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path):
    """A configured source tree of 22.05.8, as far as it is looked at."""
    tree = tmp_path / "tree"
    (tree / "slurm").mkdir(parents=True)
    (tree / "META").write_text("  Name:\t\tslurm\n  Version:\t22.05.8\n")
    (tree / "config.h").touch()
    (tree / "slurm" / "slurm_version.h").touch()
    return tree


def test_a_tree_of_the_same_version_is_taken(tmp_path, tree):
    done = slurm_source(tmp_path, "--check", str(tree))
    assert (done.returncode, done.stdout) == (0, f"{tree}\n")


@pytest.mark.parametrize("version", ["22.05.9", "24.11.5"])
def test_a_tree_of_another_version_is_refused_in_one_line(tmp_path, tree, version):
    done = slurm_source(tmp_path, "--check", str(tree), version=version)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"{tree} is Slurm 22.05.8, slurmctld is {version}" in done.stderr


def test_a_tree_that_is_not_configured_is_refused(tmp_path, tree):
    (tree / "config.h").unlink()
    done = slurm_source(tmp_path, "--check", str(tree))
    assert (done.returncode, done.stdout) == (1, "")
    assert "run ./configure there" in done.stderr


def test_a_folder_without_source_is_refused(tmp_path):
    done = slurm_source(tmp_path, "--check", str(tmp_path))
    assert (done.returncode, "no Slurm source" in done.stderr) == (1, True)


def test_a_slurmctld_without_version_is_refused(tmp_path, tree):
    done = slurm_source(tmp_path, "--check", str(tree), version="of nothing")
    assert (done.returncode, "says no version" in done.stderr) == (1, True)
