"""Start Slurm's commands; the only place that does. Owns their environment and their failures.

A failed command is `SlurmUnavailable` (it may work later) or `SlurmRefused` (Slurm said no), never
an empty answer: sacct can print half a table, an error on stderr, and exit with 0.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO

from slurm_ltgf.errors import SlurmRefused, SlurmUnavailable

TIMEOUT_S = 120.0
BLOCK_BYTES = 1 << 20

#: Variables by which a shell changes what a Slurm client asks or prints (sacct(1), squeue(1), ...).
_DEFAULTS = re.compile(
    r"(SACCT|SQUEUE|SINFO|SPRIO|SSHARE|SREPORT|SACCTMGR|SCONTROL|SDIAG|SCANCEL|SBATCH|SALLOC|SRUN)_\w+"
    r"|SLURM_(TIME_FORMAT|CLUSTERS|BITSTR_LEN|DEBUG|TOPO_LEN|FEDERATION|JSON|YAML)"
    r"|LC_\w+|LANG|LANGUAGE|TZ"
)

_UNAVAILABLE = re.compile(
    r"connection|unable to (contact|connect)|timed out|no route to host|slurmdbd|persist|munge"
    r"|problem talking to the database|zero bytes|communication|not responding|try again"
    r"|unknown error|configuration source|fetch.?config|cannot stat file|standby|temporarily"
    r"|protocol authentication|incompatible versions|unexpected message|broken pipe|endpoint",
    re.IGNORECASE,
)
_FAILED = re.compile(r"\b(error|fatal):|^slurmdbd:", re.IGNORECASE)

#: Lines with "error:" that say nothing about the answer.
_NOISE = re.compile(
    r"If munged is up|mpi/pmix|MailProg|plugstack|no .* state file|no .* profile", re.IGNORECASE
)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Build the environment of a Slurm command: ours, without the shell's defaults for its output.

    SLURM_CONF, SLURM_JWT and PATH stay. In every child text is UTF-8, local times are UTC, and
    array expressions are whole (SLURM_BITSTR_LEN=0).
    """
    kept = {name: value for name, value in os.environ.items() if not _DEFAULTS.fullmatch(name)}
    ours = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "SLURM_BITSTR_LEN": "0"}
    return {**kept, **ours, **(extra or {})}


def run(
    argv: Sequence[str],
    *,
    input: str | None = None,  # noqa: A002 (subprocess's own word)
    timeout_s: float = TIMEOUT_S,
    env_extra: Mapping[str, str] | None = None,
) -> str:
    """Run a Slurm command and return what it printed; bytes that are not UTF-8 become U+FFFD.

    Raises:
        SlurmUnavailable: no such command, no answer in timeout_s, or a daemon is away.
        SlurmRefused: rights, unknown name, wrong value.
    """
    try:
        done = subprocess.run(
            list(argv),
            input=None if input is None else input.encode(),
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            timeout=timeout_s,
            env=environment(env_extra),
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise _no_answer(argv, timeout_s) from exc
    except OSError as exc:
        raise _not_started(argv, exc) from exc
    # sacctmgr gives its reason on stdout ("Nothing new added.")
    said = done.stderr or (done.stdout if done.returncode else b"")
    _check(argv, done.returncode, said)
    return done.stdout.decode("utf-8", "replace")


@contextmanager
def stream(
    argv: Sequence[str],
    *,
    timeout_s: float = TIMEOUT_S,
    env_extra: Mapping[str, str] | None = None,
) -> Iterator[Iterator[bytes]]:
    """Run a Slurm command and give its output in blocks of bytes as they come.

    The failures of `run`, timeout_s being the longest silence, are raised where the blocks end:
    what was read before counts only if they ended quietly. Leaving the `with` early kills it.
    """
    with tempfile.TemporaryFile() as stderr:
        process = _start(argv, stderr, env_extra)
        assert process.stdout is not None
        try:
            yield _blocks(argv, process, process.stdout, stderr, timeout_s)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _start(
    argv: Sequence[str], stderr: IO[bytes], extra: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            env=environment(extra),
        )
    except OSError as exc:
        raise _not_started(argv, exc) from exc


def _blocks(
    argv: Sequence[str],
    process: subprocess.Popen[bytes],
    stdout: IO[bytes],
    stderr: IO[bytes],
    timeout_s: float,
) -> Iterator[bytes]:
    while True:
        if not select.select([stdout], [], [], timeout_s)[0]:
            raise _no_answer(argv, timeout_s)
        block = stdout.read(BLOCK_BYTES)
        if not block:
            break
        yield block
    code = process.wait()
    stderr.seek(0)
    _check(argv, code, stderr.read())


def _check(argv: Sequence[str], code: int, said: bytes) -> None:
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines()]
    told = [line for line in lines if line and not _NOISE.search(line)]
    errors = [line for line in told if _FAILED.search(line)]
    if code == 0 and not errors:
        return
    first = (errors or told or ["no message"])[0]
    text = " ".join(errors or told)
    kind = SlurmUnavailable if not text or _UNAVAILABLE.search(text) else SlurmRefused
    error = kind(f"{_shown(argv)} (exit {code}): {first}")
    error.said = "\n".join(told)
    raise error


def _shown(argv: Sequence[str]) -> str:
    """The command and its verb, for a message: 'scontrol requeue', 'sacct'."""
    return " ".join([argv[0], *(word for word in argv[1:2] if word.isalpha())])


def _no_answer(argv: Sequence[str], timeout_s: float) -> SlurmUnavailable:
    return SlurmUnavailable(f"{_shown(argv)}: no answer in {timeout_s:g} s")


def _not_started(argv: Sequence[str], exc: OSError) -> SlurmUnavailable:
    if isinstance(exc, FileNotFoundError):
        return SlurmUnavailable(f"{argv[0]}: no such command on PATH; is Slurm's client installed?")
    return SlurmUnavailable(f"{argv[0]}: cannot be started: {exc.strerror}")
