"""What several unit tests start from: the command, with a ledger of the test's own."""

import pytest
from criu_here import criu  # noqa: F401 - a fixture
from mps_node import ltgf_mps, node  # noqa: F401 - fixtures

from slurm_ltgf.cli.main import run


@pytest.fixture
def ltgf(tmp_path, capsys, monkeypatch):
    """Run `ltgf` on a ledger of this test: (exit code, standard output, standard error)."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LTGF_CONFIG", raising=False)

    def call(*words):
        code = run(["--ledger", str(tmp_path / "ledger.db"), *words])
        out, err = capsys.readouterr()
        return code, out, err

    return call
