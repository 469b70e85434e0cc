"""What only `ltgf doctor` asks of Slurm: clients, a user's rights, billing, slurm.conf itself."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path

from slurm_ltgf.slurm.run import run

#: Include in an included file, and so on; a slurm.conf that includes itself ends here.
DEEPEST_INCLUDE = 8


def client_version() -> tuple[int, ...]:
    """Version of the clients on PATH, (22, 5, 8)."""
    return parse_version(run(["sinfo", "--version"], timeout_s=30))


def parse_version(text: str) -> tuple[int, ...]:
    """Read `sinfo --version`; () if it has no number.

    >>> parse_version("slurm-wlm 22.05.8"), parse_version("slurm 24.11.5-1"), parse_version("slurm")
    ((22, 5, 8), (24, 11, 5), ())
    """
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in found[0].split(".")[:3]) if found else ()


def admin_level(user: str) -> str:
    """A user's AdminLevel: none, operator, administrator; "": slurmdbd does not know the user.

    Raises:
        SlurmUnavailable: slurmdbd is away.
    """
    argv = ["sacctmgr", "-n", "-P", "-r", "show", "user", f"name={user}", "format=User,AdminLevel"]
    return parse_admin_level(run(argv, timeout_s=30), user)


def parse_admin_level(text: str, user: str) -> str:
    """Read what `admin_level` asked for."""
    rows = (line.split("|") for line in text.split("\n") if line)
    return next((level.lower() for name, level, *_ in rows if name == user), "")


def billing_weights() -> dict[str, Mapping[str, str]]:
    """Partition -> its TRESBillingWeights, TRES in lower case; {} where it has none."""
    return parse_billing_weights(run(["scontrol", "-o", "show", "partition"]))


def parse_billing_weights(text: str) -> dict[str, Mapping[str, str]]:
    """Read them from `scontrol -o show partition`.

    >>> parse_billing_weights("PartitionName=a TRESBillingWeights=CPU=1.0,GRES/gpu=8 TRES=cpu=1")
    {'a': {'cpu': '1.0', 'gres/gpu': '8'}}
    """
    found: dict[str, Mapping[str, str]] = {}
    for line in filter(None, text.split("\n")):
        name = re.search(r"PartitionName=(\S+)", line)
        weights = re.search(r" TRESBillingWeights=(\S+)", line)
        pairs = weights[1].lower().split(",") if weights else []
        if name:
            found[name[1]] = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return found


def conf_file(shown: str) -> Path:
    """Where this machine's slurm.conf is: $SLURM_CONF, else as slurmctld shows it."""
    return Path(os.environ.get("SLURM_CONF") or shown or "/etc/slurm/slurm.conf")


def conf_value(path: Path, key: str, *, depth: int = 0) -> str | None:
    """A key's value in slurm.conf and what it includes, "" if unset; None: no such file here.

    `scontrol show config` prints (null) for PrioritySiteFactorPlugin though one is loaded (22.05
    and 24.11), so only the file tells.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = ""
    for line in text.replace("\\\n", "").split("\n"):
        line = line.partition("#")[0].strip()
        name, _, value = line.partition("=")
        include = re.fullmatch(r"include\s+(\S+)", line, re.IGNORECASE)
        if name.strip().lower() == key.lower():
            found = value.strip().strip('"')
        elif include and depth < DEEPEST_INCLUDE:
            found = conf_value(path.parent / include[1], key, depth=depth + 1) or found
    return found


def plugin_words(conf: Path, plugin: str) -> dict[str, str]:
    """Words name=value of a SPANK plugin in plugstack.conf and what it includes; {}: not there.

    conf: slurm.conf; its PlugStackConfig says where plugstack.conf is, else it lies beside.
    """
    named = conf_value(conf, "PlugStackConfig")
    return _words(Path(named) if named else conf.with_name("plugstack.conf"), plugin, depth=0)


def _words(path: Path, plugin: str, *, depth: int) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    for line in text.split("\n"):
        first, *rest = line.partition("#")[0].split() or [""]
        if first == "include" and rest and depth < DEEPEST_INCLUDE:
            pattern = str(path.parent / rest[0])
            for file in sorted(glob.glob(pattern)):  # noqa: PTH207 - the pattern may be absolute
                if found := _words(Path(file), plugin, depth=depth + 1):
                    return found
        elif first in ("optional", "required") and rest and Path(rest[0]).name == plugin:
            return dict(word.split("=", 1) for word in rest[1:] if "=" in word)
    return {}
