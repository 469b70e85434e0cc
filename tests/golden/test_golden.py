"""Recorded sacct output through the command line, against numbers that another program computed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_ltgf.cli.main import cli

HERE = Path(__file__).parent
CASES = {"flood-22.05": (1795980316, 1795980376, 32, "astro=4,bio=2,chem=1")}


@pytest.mark.parametrize("name", CASES)
def test_recorded_history_gives_the_expected_gpu_seconds(name, tmp_path):
    start, end, capacity, weights = CASES[name]
    ledger = str(tmp_path / "ledger.db")
    runner = CliRunner()
    source = str(HERE / name / "in.sacct")
    done = runner.invoke(cli, ["--ledger", ledger, "sync", "--from-file", source])
    assert done.exit_code == 0, done.output
    window = ["-S", str(start), "-E", str(end), "--capacity", str(capacity), "--weights", weights]
    done = runner.invoke(cli, ["--ledger", ledger, "fairness", "--json", *window])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.output)
    got = {
        row["tenant"]: {
            "attained": row["attained_gpu_s"],
            "deserved": pytest.approx(row["deserved_gpu_s"]),
            "quota": pytest.approx(row["quota_gpu_s"]),
            "entitled": pytest.approx(row["entitled_gpu_s"]),
        }
        for row in answer["tenants"]
    }
    assert json.loads((HERE / name / "expected.json").read_text()) == got
    assert answer["skipped_total"] == 0
