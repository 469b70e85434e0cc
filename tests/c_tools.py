"""Programs that C tests need: looked for, and installed as root where they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess

#: Program -> Debian package that has it.
PACKAGES = {"gcc": "gcc", "make": "make", "patch": "patch", "dpkg-source": "dpkg-dev"}


def need(*programs: str) -> None:
    """See that these programs are here; `libc6-dev` comes with a compiler."""
    missing = [PACKAGES[name] for name in programs if shutil.which(name) is None]
    if not missing:
        return
    assert os.geteuid() == 0, f"install these first: {', '.join(missing)}"
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends"]
    for argv in (
        ["apt-get", "update", "-qq"],
        [*install, "-o", "DPkg::Lock::Timeout=300", *missing, "libc6-dev"],
    ):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(argv, env=env, check=True, capture_output=True, timeout=600)
