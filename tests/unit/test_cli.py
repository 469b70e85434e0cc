"""The command line without a Slurm: shapes, exit codes, hostile text, what --help imports."""

import json
import os
import subprocess
import sys

import pytest

from slurm_ltgf.store.files import lock

HEAD = "JobID|JobIDRaw|Cluster|Account|User|State|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES"
T0 = 1_800_000_000
FAIRNESS_KEYS = {"meta", "window", "capacity_gpus", "tenants", "skipped", "warnings"}
TENANT_KEYS = {
    "tenant",
    "weight",
    "quota_gpus",
    "attained_gpu_s",
    "deserved_gpu_s",
    "quota_gpu_s",
    "entitled_gpu_s",
    "rho",
    "credit",
    "share",
    "state",
}
JOB_KEYS = {
    "job_id",
    "tenant",
    "user",
    "gpus",
    "attained_gpu_s",
    "entitled_gpu_s",
    "rho",
    "class",
}


def row(job_id, account="a", *, start=0, end=3600, gpus=4, user="ann", state="COMPLETED"):
    """A line of a dump; times after T0."""
    begun, over = T0 + start, T0 + end
    tres = f"cpu=1,gres/gpu={gpus},node=1"
    return (
        f"{job_id}|{job_id}|c1|{account}|{user}|{state}|{begun}|{begun}|{begun}|{over}"
        f"|{end - start}|{tres}"
    )


@pytest.fixture
def dump(tmp_path):
    """Write lines as a dump; its path."""

    def write(*lines, head=HEAD):
        path = tmp_path / "dump.psv"
        path.write_text("\n".join([head, *lines, ""]))
        return str(path)

    return write


def window(hours=1):
    return ["-S", str(T0), "-E", str(T0 + 3600 * hours)]


def test_fairness_json_has_the_stated_shape(ltgf, dump):
    assert ltgf("sync", "--from-file", dump(row(1), row(2, "b", gpus=2)))[0] == 0
    code, out, _ = ltgf("fairness", "--json", "--jobs", "--capacity", "8", *window())
    answer = json.loads(out)
    assert code == 0
    assert answer.keys() >= FAIRNESS_KEYS | {"jobs"}
    assert answer["meta"].keys() >= {"version", "generated", "cluster"}
    assert answer["window"] == {"start": T0, "end": T0 + 3600}
    assert all(tenant.keys() >= TENANT_KEYS for tenant in answer["tenants"])
    assert all(job.keys() >= JOB_KEYS for job in answer["jobs"])
    assert [t["attained_gpu_s"] for t in answer["tenants"]] == [14400, 7200]
    assert answer["capacity_gpus"] == 8


def test_weights_and_capacity_from_the_command_line(ltgf, dump):
    ltgf("sync", "--from-file", dump(row(1, gpus=8), row(2, "b", gpus=8)))
    _, out, _ = ltgf("fairness", "--json", "--capacity", "8", "--weights", "a=3,b=1", *window())
    by = {t["tenant"]: t for t in json.loads(out)["tenants"]}
    assert (by["a"]["quota_gpus"], by["b"]["quota_gpus"]) == (6, 2)
    assert (by["a"]["entitled_gpu_s"], by["b"]["entitled_gpu_s"]) == (6 * 3600, 2 * 3600)


def test_without_capacity_nothing_is_guessed(ltgf, dump):
    ltgf("sync", "--from-file", dump(row(1)))
    _, out, _ = ltgf("fairness", "--json", "--jobs", *window())
    answer = json.loads(out)
    (tenant,), (job,) = answer["tenants"], answer["jobs"]
    assert (tenant["attained_gpu_s"], tenant["quota_gpus"], tenant["rho"]) == (14400, None, None)
    assert (job["attained_gpu_s"], job["entitled_gpu_s"], job["rho"]) == (14400, None, None)
    assert (tenant["weight"], job["class"]) == (1, "unknown")
    assert answer["capacity_gpus"] is None
    assert any("--capacity" in text for text in answer["warnings"])


def test_a_tenant_of_the_dump_is_idle_where_it_has_no_run(ltgf, dump):
    ltgf("sync", "--from-file", dump(row(1), row(2, "b", start=7200, end=9000)))
    _, out, _ = ltgf("fairness", "--json", "--capacity", "8", *window())
    states = {t["tenant"]: (t["state"], t["quota_gpus"]) for t in json.loads(out)["tenants"]}
    assert states == {"a": ("fair", 4), "b": ("idle", 4)}


def test_reading_a_dump_twice_changes_nothing(ltgf, dump):
    path = dump(row(1), row(2))
    ltgf("sync", "--from-file", path)
    _, out, _ = ltgf("sync", "--json", "--from-file", path)
    counts = json.loads(out)
    assert (counts["new"], counts["changed"], counts["unchanged"]) == (0, 0, 2)


def test_what_cannot_be_read_is_named_in_every_result(ltgf, dump):
    bad = row(2).replace(str(T0), "yesterday-ish", 1)
    path = dump(row(1), bad)
    _, out, _ = ltgf("sync", "--json", "--from-file", path)
    assert [r["line"] for r in json.loads(out)["skipped"]] == [3]
    _, out, _ = ltgf("fairness", "--json", *window())
    answer = json.loads(out)
    assert answer["skipped_total"] == 1
    assert answer["skipped"][0]["line"] == 3
    assert "skipped: 1 rows" in ltgf("fairness", *window())[1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello\n", "not a sacct dump"),
        (HEAD + "\n" + row(1)[:-5], "cut short"),
        (HEAD.replace("|Start", "") + "\n", "without column Start"),
        ('{"jobs": [{"job_id"', "JSON"),
    ],
    ids=["foreign", "cut", "without a column", "cut JSON"],
)
def test_a_cut_or_foreign_file_is_refused_and_leaves_no_trace(ltgf, tmp_path, content, said):
    path = tmp_path / "bad"
    path.write_text(content)
    code, _, err = ltgf("sync", "--from-file", str(path))
    assert (code, len(err.splitlines())) == (65, 1)
    assert said in err
    assert str(path) in err
    assert json.loads(ltgf("fairness", "--json")[1])["tenants"] == []


def test_hostile_names_are_shown_and_not_obeyed(ltgf, dump):
    evil = "[red]x\x1b[31m;drop"
    ltgf("sync", "--from-file", dump(row(1, user=evil)))
    for words in (["--jobs"], ["--jobs", "-P"]):
        _, out, _ = ltgf("fairness", "--capacity", "8", *words, *window())
        assert "[red]x\\x1b[31m;drop" in out
        assert "\x1b" not in out


def test_parsable_rows_have_a_heading_unless_told_otherwise(ltgf, dump):
    ltgf("sync", "--from-file", dump(row(1)))
    _, out, _ = ltgf("fairness", "-P", "--capacity", "8", *window())
    head, line = out.splitlines()
    assert dict(zip(head.split("|"), line.split("|"), strict=True))["attained_gpu_s"] == "14400"
    _, out, _ = ltgf("fairness", "-P", "-n", "--capacity", "8", *window())
    assert out.splitlines() == [line]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["fairness", "--capacity", "-1"], 2),
        (["fairness", "--weights", "a=x"], 2),
        (["fairness", "--window", "soon"], 2),
        (["fairness", "-S", "gestern"], 2),
        (["fairness", "-S", "now", "-E", "now-1hour"], 2),
        (["fairness", "-M", "nowhere"], 2),
        (["sync", "--from-file", "/nonexistent"], 65),
        (["--config", "/nonexistent", "fairness"], 78),
        (["no-such-command"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_call_is_one_line_and_its_exit_code(ltgf, dump, words, code):
    ltgf("sync", "--from-file", dump(row(1)))
    got, out, err = ltgf(*words)
    assert (got, out) == (code, "")
    assert "Traceback" not in err
    assert err.strip()


def test_several_clusters_are_never_added_silently(ltgf, dump):
    ltgf("sync", "--from-file", dump(row(1), row(1).replace("|c1|", "|c2|")))
    code, _, err = ltgf("fairness", *window())
    assert (code, "c1, c2" in err) == (2, True)
    _, out, _ = ltgf("fairness", "--json", "-M", "c1", *window())
    assert json.loads(out)["tenants"][0]["attained_gpu_s"] == 14400
    _, out, _ = ltgf("fairness", "--json", "-M", "all", "--combined", *window())
    answer = json.loads(out)
    assert (answer["meta"]["cluster"], answer["tenants"][0]["attained_gpu_s"]) == ("c1+c2", 28800)


def test_the_dump_command_can_be_pasted(ltgf):
    code, out, _ = ltgf("sync", "--print-command")
    assert code == 0
    assert "sacct -a -X -D -P" in out


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from slurm_ltgf.cli.main import run; run(['--help']); "
        "heavy = {'numpy', 'rich', 'msgspec', 'sqlite3'} & set(sys.modules); sys.exit(str(heavy)"
        " if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "fairness" in done.stdout


def test_a_reader_that_goes_away_is_told_by_the_exit_code_alone():
    code = "from slurm_ltgf.cli.main import main; main()"
    argv = [sys.executable, "-c", code, "sync", "--print-command"]
    shut, out = os.pipe()
    os.close(shut)
    done = subprocess.run(argv, stdout=out, stderr=subprocess.PIPE, check=False)
    os.close(out)
    assert (done.returncode, done.stderr) == (141, b"")


def test_undo_waits_for_no_daemon_and_is_never_dry(ltgf, tmp_path):
    code, _, said = ltgf("tick", "--undo", "--dry-run")
    assert (code, "say one of them" in said) == (2, True)
    with lock(tmp_path / "ledger.db.lock"):
        code, _, said = ltgf("tick", "--undo")
    assert (code, f"held by process {os.getpid()}" in said) == (75, True)
