"""What the daemon leaves beside the ledger: read whole, of one cluster, or not at all."""

from dataclasses import asdict

import pytest

from slurm_ltgf.service.last_pass import LastPass
from slurm_ltgf.store.beside import leave, left
from slurm_ltgf.store.files import FileError

LAST = LastPass(1000, 0.5, has_database=True, waiting=3, writes=2, leases={"renew": 1}, moves=0)


def test_it_comes_back_as_it_was_left_and_of_its_cluster_alone(tmp_path):
    ledger = tmp_path / "ledger.db"
    assert left(ledger, "pass", "ltgf", LastPass) is None
    leave(ledger, "pass", "ltgf", asdict(LAST))
    assert left(ledger, "pass", "ltgf", LastPass) == LAST
    assert left(ledger, "pass", "other", LastPass) is None
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.pass"]
    assert (tmp_path / "ledger.pass").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff", '{"cluster": "ltgf", "time": "soon"}'])
def test_what_cannot_be_read_was_not_left(tmp_path, text):
    (tmp_path / "ledger.pass").write_text(text, encoding="latin-1")
    assert left(tmp_path / "ledger.db", "pass", "ltgf", LastPass) is None


def test_a_folder_that_is_gone_is_said(tmp_path):
    with pytest.raises(FileError, match="cannot write"):
        leave(tmp_path / "gone" / "ledger.db", "pass", "ltgf", {})
