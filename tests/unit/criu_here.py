"""Where CRIU is, for tests that write programs to disk."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CRIU = Path("/var/cache/ltgf/criu")


@pytest.fixture(scope="session")
def criu() -> str:
    """A CRIU that works on this machine: its own, or one in a folder from Debian's packages."""
    from slurm_ltgf.checkpoint.criu import LEAST, version

    if os.geteuid() != 0:
        pytest.skip("CRIU needs root")
    program = shutil.which("criu")
    if program is None or version(program) < LEAST:
        fetch = [str(Path(__file__).parents[2] / "scripts" / "criu"), str(CRIU)]
        try:
            done = subprocess.run(fetch, capture_output=True, text=True, timeout=120, check=True)
        except (OSError, subprocess.SubprocessError) as exc:
            said = str(getattr(exc, "stderr", "") or exc).strip().splitlines()[-1:]
            pytest.skip(f"no CRIU of {LEAST[0]}.{LEAST[1]} or later can be had: {said}")
        program = done.stdout.strip()
    checked = subprocess.run([program, "check"], capture_output=True, text=True, check=False)
    if checked.returncode:
        pytest.skip(f"CRIU does not work on this kernel: {checked.stderr.strip()[:300]}")
    return program
