"""slurm.run: what is started, with which environment, and what its failures mean."""

from __future__ import annotations

import os
import time

import pytest

from slurm_ltgf.errors import LtgfError, SlurmRefused, SlurmUnavailable
from slurm_ltgf.slurm.run import run, stream


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Put a program on PATH, ahead of all others."""

    def put(name: str, script: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return put


def both_ways(argv: list[str], timeout_s: float = 20) -> list[type[LtgfError]]:
    """The errors of run and stream for the same command."""
    found: list[type[LtgfError]] = []
    with pytest.raises(LtgfError) as ran:
        run(argv, timeout_s=timeout_s)
    found.append(type(ran.value))
    with pytest.raises(LtgfError) as streamed, stream(argv, timeout_s=timeout_s) as blocks:
        list(blocks)
    assert str(streamed.value) == str(ran.value)
    assert "\n" not in str(ran.value)
    return [*found, type(streamed.value)]


def test_output_is_text_whatever_its_bytes(fake):
    fake("sacct", r"printf 'f\374r\n'")
    assert run(["sacct"]) == "f\ufffdr\n"


def test_output_streams_in_blocks(fake):
    fake("sacct", "head -c 3000000 /dev/zero")
    with stream(["sacct"]) as blocks:
        sizes = [len(block) for block in blocks]
    assert sum(sizes) == 3_000_000
    assert len(sizes) > 1


def test_input_reaches_the_command(fake):
    fake("scontrol", "cat")
    assert run(["scontrol"], input="update job=1\n") == "update job=1\n"


@pytest.mark.parametrize(
    "said",
    [
        "sacct: error: failed to open persistent connection to host:h:6819: Connection refused",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sacct: error: Problem talking to the database: Connection refused",
        "sacct: error: Slurmdbd down",
        "slurm_load_jobs error: Socket timed out on send/recv operation",
        "squeue: error: Munge encode failed: Failed to access munged",
        "slurm_load_jobs error: Slurm backup controller in standby mode",
        "slurm_load_jobs error: Protocol authentication error",
        "slurm_load_jobs error: Incompatible versions of client and server code",
        "slurm_load_node error: Unexpected message received",
        "sprio: error: fork: Resource temporarily unavailable",
    ],
)
def test_a_daemon_that_is_away_is_unavailable(fake, said):
    fake("sacct", f"echo '{said}' >&2; exit 1")
    assert both_ways(["sacct"]) == [SlurmUnavailable] * 2


@pytest.mark.parametrize(
    "said",
    [
        "slurm_update error: Access/permission denied",
        'sacct: error: Invalid field requested: "bogus"',
        "sacct: unrecognized option '--json'",
        "Invalid job id specified for job 999",
        "slurm_update error: Requested operation is presently disabled",
    ],
)
def test_a_no_is_a_refusal(fake, said):
    fake("scontrol", f"""echo "{said.replace('"', chr(92) + '"')}" >&2; exit 1""")
    assert both_ways(["scontrol", "update"]) == [SlurmRefused] * 2


def test_a_refusal_of_sacctmgr_stands_on_stdout(fake):
    fake("sacctmgr", "echo ' Nothing new added.'; exit 1")
    with pytest.raises(SlurmRefused, match=r"sacctmgr add \(exit 1\): Nothing new added"):
        run(["sacctmgr", "add", "account"])


def test_an_error_on_stderr_is_a_failure_with_status_0_too(fake):
    fake("sacct", "echo 1; echo 'sacct: error: slurmdbd: Unknown error 1021' >&2")
    assert both_ways(["sacct"]) == [SlurmUnavailable] * 2


def test_noise_on_stderr_is_none(fake):
    fake("sacct", "echo 1; echo 'sacct: error: mpi/pmix: can not load PMIx library' >&2")
    assert run(["sacct"]) == "1\n"


def test_a_command_that_is_not_there_is_unavailable():
    assert both_ways(["sacct-of-nowhere"]) == [SlurmUnavailable] * 2


def test_silence_ends(fake):
    fake("sacct", "exec sleep 60")
    began = time.monotonic()
    assert both_ways(["sacct"], timeout_s=0.2) == [SlurmUnavailable] * 2
    assert time.monotonic() - began < 10


def test_a_stream_that_fails_half_way_raises_at_its_end(fake):
    fake("sacct", "echo half; echo 'sacct: error: Connection reset by peer' >&2; exit 1")
    with stream(["sacct"]) as blocks:
        assert next(blocks) == b"half\n"
        with pytest.raises(SlurmUnavailable, match="Connection reset"):
            next(blocks)


def test_a_stream_left_early_leaves_no_process(fake, tmp_path):
    fake("sacct", f"echo $$ > {tmp_path}/pid; echo first; exec sleep 60")
    with stream(["sacct"]) as blocks:
        next(blocks)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_times_are_asked_in_the_form_that_is_wanted(fake, monkeypatch):
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    fake("sacct", 'echo "$SLURM_TIME_FORMAT $TZ $LC_ALL $SLURM_BITSTR_LEN"')
    assert run(["sacct"]) == " UTC C.UTF-8 0\n"
    assert run(["sacct"], env_extra={"SLURM_TIME_FORMAT": "%s"}).startswith("%s UTC")
