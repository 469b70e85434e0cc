"""Real sacct output of other projects (shared/cases/files, not part of this repository)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from reading import read, usage

from slurm_ltgf.core.gpus import Pricing, gpus
from slurm_ltgf.core.history import settle
from slurm_ltgf.errors import InputError
from slurm_ltgf.slurm.text import array_tasks, gres_of_tres

SHARED = Path(os.environ.get("LTGF_SHARED", Path(__file__).parents[3] / "shared"))
FILES = SHARED / "cases" / "files"
GCM = FILES / "facebookresearch_gcm"
SARC = FILES / "mila-iqia_SARC"

pytestmark = pytest.mark.skipif(
    not FILES.is_dir(), reason=f"no real files at {FILES} (set LTGF_SHARED)"
)


def whole(path: Path) -> bytes:
    """The file with the newline at its end that sacct printed and the fixture lost."""
    return path.read_bytes().rstrip(b"\n") + b"\n"


@pytest.mark.parametrize(("name", "times"), [("one", 1), ("multiple", 3)])
def test_a_record_broken_over_lines_is_one_record(name, times):
    broken, skipped = read(whole(GCM / f"sample-sacct-{name}-multiline.txt"))
    mended, _ = read(whole(GCM / f"sample-sacct-{name}-multiline-expected.txt"))
    assert skipped == []
    assert broken.rows() == mended.rows()
    assert usage(broken)["project1"] == times * 256 * 87356 == times * 22363136


def test_backslash_n_in_a_field_is_no_end_of_a_record():
    runs, skipped = read(whole(GCM / "sample-sacct-fake-line-break.txt"))
    assert usage(runs) == {"project": 1024 * 79396, "project1": 256 * 87356}
    assert skipped == []


def test_a_byte_that_is_not_utf8_costs_no_row():
    runs, skipped = read(whole(GCM / "sample-sacct-output-invalid-utf8.txt"))
    assert usage(runs) == {"testaccount": 8 * 99 + 7212}
    assert skipped == []


@pytest.mark.parametrize("name", ["sample-sacct-output.txt", "sample-sacct-running-output.txt"])
def test_files_of_steps_alone_have_no_runs(name):
    runs, skipped = read(whole(GCM / name))
    assert (len(runs), skipped) == (0, [])


def test_a_file_that_lost_its_last_newline_is_refused():
    with pytest.raises(InputError, match="cut short"):
        read((GCM / "sample-sacct-one-multiline.txt").read_bytes().rstrip(b"\n"))


def test_a_file_cut_at_its_beginning_is_refused():
    with pytest.raises(InputError, match="93 fields"):
        read(whole(GCM / "sample-sacct-output-with-invalid-lines.txt"))


def test_a_file_without_accounts_is_refused_by_name():
    with pytest.raises(InputError, match="without column Account, AllocTRES"):
        read(whole(GCM / "sample-sacct-output-midnight-edge-case.txt"))


@pytest.mark.parametrize("number", [1, 2])
def test_dumps_of_slurm_20_have_jobs_and_no_steps(number):
    runs, _ = read(whole(FILES / "NordicHPC_slurm2sql" / f"test-data{number}.csv"))
    assert runs.row(0).job_id == 43974388
    assert runs.row(0).elapsed_s == 3 * 3600 + 33 * 60 + 25
    assert runs.row(0).gres == "?", "AllocTRES was not recorded: unknown, not 0"


@pytest.mark.parametrize("path", sorted(FILES.glob("ubccr_xdmod/shredder_input/*")), ids=str)
def test_logs_without_a_header_are_foreign(path):
    with pytest.raises(InputError, match="not a sacct dump"):
        read(whole(path))


def test_array_ranges_of_xdmod():
    rows = whole(FILES / "ubccr_xdmod/shredder_input/accounting-logs-with-job-arrays.log")
    expected = json.loads(
        (FILES / "ubccr_xdmod/shredder_output/accounting-logs-with-job-arrays.json").read_text()
    )
    shown = [row.split(b"|")[0].decode().partition("_")[2] for row in rows.splitlines()]
    assert [array_tasks(tasks)[0] for tasks in shown] == [len(tasks) for tasks in expected]


def test_gpu_counts_of_xdmod():
    for tres, count in json.loads((FILES / "ubccr_xdmod/alloc-tres-gpu-count.json").read_text()):
        assert gpus(gres_of_tres(tres), Pricing()).gpus == count, tres


@pytest.mark.parametrize(
    ("name", "gpu_s"),
    [("slurm_21_8_8.json", 86301), ("slurm_22_5_9.json", 16 * 124403)],
)
def test_sacct_json_of_finished_jobs(name, gpu_s):
    runs, skipped = read((SARC / name).read_bytes())
    assert list(usage(runs).values()) == [gpu_s]
    assert skipped == []


@pytest.mark.parametrize("name", ["slurm_23_2_6.json", "slurm_23_11_5.json"])
def test_sacct_json_of_a_runaway_job(name):
    runs, _ = read((SARC / name).read_bytes())
    assert runs.row(0).state == "RUNNING"
    assert "limit 432000 s" in settle(runs, now=1_716_000_000).suspects[0].reason
    assert usage(runs, now=1_716_000_000) == {"mila": 864000}


@pytest.mark.parametrize(
    "path", sorted(FILES.glob("rackslab_Slurm-web/*/*/slurmdb-job-*.json")), ids=str
)
def test_answers_of_slurmrestd_24_05_to_25_11(path):
    runs, skipped = read(path.read_bytes())
    run = runs.row(0)
    assert (len(runs), skipped) == (1, [])
    assert run.cluster == "hpc"
    assert run.gres == "", "this cluster does not track gres/gpu"
    assert run.limit_s <= 60
