"""The factor table: its bytes, what a pass puts into it, what the plugin's reader makes of it."""

import math
import struct
import subprocess
import sys
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slurm_ltgf.core.factor import LARGEST, Scale, changes
from slurm_ltgf.core.model import PendingJob
from slurm_ltgf.core.order import Rules, Standing, order
from slurm_ltgf.service.factors import _entry, _waiting_gpus, anchors, place, wanted
from slurm_ltgf.store.factor_table import (
    FAR,
    Anchor,
    FactorFile,
    FactorTable,
    decode_labels,
    encode,
    parse_status,
)
from slurm_ltgf.store.files import FileError
from tests.c_tools import need

GOLDEN = Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
from factor_table_sample import TABLE  # noqa: E402

SITE_FACTOR = Path(__file__).parents[2] / "site_factor"
RULES = Rules(lease_s=3600, floor=0.2)
NOW = 1_700_000_000


def test_the_golden_table_is_written_byte_for_byte():
    assert encode(TABLE) == (GOLDEN / "factor_table.bin").read_bytes()


def test_the_header_is_as_the_page_has_it():
    content = encode(TABLE)
    magic, version, crc, size, generated_ns, stale = struct.unpack_from("<8sIIQqI", content)
    counts = struct.unpack_from("<7I", content, 36)
    assert (magic, version, size) == (b"LTGFFACT", 2, len(content))
    assert (generated_ns, stale) == (TABLE.generated_ns, 600)
    assert counts[:6] == (6, 3, 3, 3, 1, 3)
    assert crc == zlib.crc32(content[:12] + bytes(4) + content[16:])


def test_labels_come_back():
    assert decode_labels(encode(TABLE)) == TABLE.labels


def test_of_a_damaged_table_no_label_comes_back():
    content = bytearray(encode(TABLE))
    content[-20] ^= 1
    assert decode_labels(bytes(content)) == {}
    assert decode_labels(b"") == decode_labels(encode(TABLE)[:70]) == {}


def test_a_file_is_replaced_and_removed(tmp_path):
    file = FactorFile(tmp_path / "factors")
    assert (file.labels(), file.status()) == ({}, None)
    file.write(TABLE)
    assert file.labels() == TABLE.labels
    assert (tmp_path / "factors").stat().st_mode & 0o777 == 0o644
    file.remove()
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_swept_and_the_plugins_files_are_not(tmp_path):
    for name in (".factors.ab_12xyz", ".factors.status.new", "factors.status", ".other.12345678"):
        (tmp_path / name).touch()
    FactorFile(tmp_path / "factors").write(TABLE)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".factors.status.new", ".other.12345678", "factors", "factors.status",
    ]  # fmt: skip


def test_a_table_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(FileError, match="no-such/factors: cannot write"):
        FactorFile(tmp_path / "no-such" / "factors").write(TABLE)


def test_a_status_of_long_ago_is_of_nobody_alive(tmp_path):
    (tmp_path / "factors.status").write_text(
        f"version=1\npid=7\ntime={NOW}\nstate=ok\ngenerated_ns=5\njobs=2\ntenants=1\n"
    )
    status = FactorFile(tmp_path / "factors").status()
    assert status.is_alive(NOW + 20)
    assert not status.is_alive(NOW + 21)
    assert parse_status("pid=x\ntime=1\nstate=ok\ngenerated_ns=1\njobs=1\ntenants=1") is None
    assert parse_status("state=ok") is None


# --- anchors --------------------------------------------------------------------------------------


def test_without_any_tenant_there_are_still_two_anchors():
    assert anchors([], {}, []) == [Anchor(-2, LARGEST), Anchor(FAR, 1)]


def test_a_place_below_the_floor_is_before_all_tags():
    assert place(5, 1, below_floor=True) < place(0, 1, below_floor=False)
    assert place(0, 1, below_floor=True) < place(5, 1, below_floor=True)


def test_a_place_without_entitlement_is_behind_all_tags():
    assert place(math.inf, 1, below_floor=False) < place(0, 0, below_floor=False)
    assert place(0, 0, below_floor=False) < place(1, 0, below_floor=False) < FAR
    assert place(math.inf, 0, below_floor=False) == FAR


# --- a queue, its table, and jobs that come after -------------------------------------------------

tenants = st.dictionaries(
    st.sampled_from(["astro", "bio", "chem", "nil"]),
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 16)),
    min_size=1,
)
waiting = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 2, 4, 8])), max_size=12)
coming = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 2, 4])), max_size=8)


def queue_of(names, asked, first_id=1):
    return [
        PendingJob(
            job_id=first_id + i, tenant=names[t % len(names)], gpus=g, submit=NOW, eligible=NOW
        )
        for i, (t, g) in enumerate(asked)
    ]


def table_for(standings, jobs):
    names = sorted(standings)
    turns = order(jobs, standings, rules=RULES, now=NOW)
    labels = wanted(turns, changes(turns, Scale()))
    charged = _waiting_gpus(turns)
    entries = [_entry(standings[name], charged.get(name, 0.0), RULES) for name in names]
    return FactorTable(
        generated_ns=NOW * 10**9,
        stale_after_s=600,
        anchors=anchors(turns, labels, entries),
        tenants=entries,
        accounts={name: i for i, name in enumerate(names)},
        prices={"gres/gpu": 1.0},
        labels=labels,
    )


def ask(program, folder, table, jobs):
    file = FactorFile(folder / "factors")
    file.write(table)
    lines = "".join(f"{job.job_id} 1 {job.tenant} main gres/gpu={job.gpus}\n" for job in jobs)
    done = subprocess.run(
        [program, str(file.path)], input=lines, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [int(line) for line in done.stdout.split()]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The C reader as a command, under ASan and UBSan."""
    need("gcc", "make")
    out = tmp_path_factory.mktemp("ask")
    argv = ["make", "-s", "-C", str(SITE_FACTOR), f"OUT={out}", f"{out}/ask"]
    subprocess.run(argv, check=True)
    return f"{out}/ask"


def test_both_languages_read_the_golden_table(program, tmp_path):
    jobs = [PendingJob(job_id=i, tenant="bio", gpus=1, submit=0) for i in (7, 9, 100)]
    assert ask(program, tmp_path, TABLE, jobs) == [1_500_000_000, -5, 1_500_000_000]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@example(  # a tie of tags: rounded differently, the newcomer stood on the other side
    accounts={"astro": (120325, 797, 5), "bio": (120325, 797, 5)},
    asked=[(1, 2)],
    later=[(0, 1), (0, 1), (0, 1), (1, 1)],
)
@example(  # nobody has anything due: who held least goes first
    accounts={"astro": (0, 0, 0), "bio": (0, 0, 0)}, asked=[(1, 1)], later=[(0, 1)]
)
@given(accounts=tenants, asked=waiting, later=coming)
def test_a_newcomer_gets_the_place_that_the_next_pass_gives_it(
    program, tmp_path, accounts, asked, later
):
    names = sorted(accounts)
    standings = {
        name: Standing(attained, due if name != "nil" else 0, quota if name != "nil" else 0)
        for name, (attained, due, quota) in accounts.items()
    }
    jobs, new = queue_of(names, asked), queue_of(names, later, first_id=1000)
    table = table_for(standings, jobs)
    labels = ask(program, tmp_path, table, [*jobs, *new])
    assert labels[: len(jobs)] == [table.labels[job.job_id] for job in jobs]
    assert min(labels, default=1) > 0
    by_id = {job.job_id: label for job, label in zip([*jobs, *new], labels, strict=True)}
    turns = order([*jobs, *new], standings, rules=RULES, now=NOW)
    for before, after in pairwise(turns):
        assert by_id[before.job.job_id] >= by_id[after.job.job_id], (before, after)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(tenants, waiting)
def test_each_job_of_a_burst_stands_behind_the_one_before(program, tmp_path, accounts, asked):
    names = sorted(set(accounts) - {"nil"} | {"astro"})
    standings = {name: Standing(10.0, *accounts.get(name, (0, 7, 3))[1:]) for name in names}
    burst = [PendingJob(job_id=5000 + i, tenant="astro", gpus=2, submit=NOW) for i in range(40)]
    table = table_for(standings, queue_of(names, asked))
    labels = ask(program, tmp_path, table, burst)
    has_due = table.tenants[table.accounts["astro"]].due_gpu_s > 0
    assert labels == sorted(labels, reverse=True)
    assert len(set(labels)) == len(labels) or not has_due
