"""What the daemon last saw, in small files beside the ledger, for metrics.

Nothing is decided by them, and they are new at every pass: in the ledger each would cost a write to
the disk, of passes that find nothing new too. ledger.db has ledger.pass and ledger.look.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from slurm_ltgf.store.files import replace_text

_T = TypeVar("_T")


def leave(ledger: Path, what: str, cluster: str, seen: Mapping[str, Any]) -> None:
    """Put it in place of the one before.

    Raises:
        FileError: it cannot be written.
    """
    text = json.dumps({"cluster": cluster, **seen}) + "\n"
    replace_text(ledger.with_suffix(f".{what}"), text, mode=0o640, sync=False)


def left(ledger: Path, what: str, cluster: str, kind: type[_T]) -> _T | None:
    """What was left of this cluster; None: nothing, or another version of ltgf left it."""
    try:
        content = ledger.with_suffix(f".{what}").read_bytes()
        if msgspec.json.decode(content, type=dict[str, Any]).get("cluster") != cluster:
            return None
        return msgspec.json.decode(content, type=kind)
    except (OSError, msgspec.DecodeError):
        return None
