"""The ledger's vocabulary: texts that repeat in millions of rows, each kept once, with a number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_ltgf.core.model import IntArray
from slurm_ltgf.store.ledger_schema import Database

#: Values bound in one query; SQLite before 3.32 allows 999.
_VARIABLES = 900


class Vocabulary:
    """Texts <-> numbers. It remembers what it looked up: make one for each transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._ids: dict[str, int] = {}

    def ids(self, texts: Sequence[str]) -> IntArray:
        """The numbers of texts, (n,); a new text is given one (inside a writing transaction)."""
        return np.array([self._id(text) for text in texts], dtype=np.int64)

    def texts(self, ids: Sequence[int]) -> dict[int, str]:
        """Number -> text for these numbers."""
        texts: dict[int, str] = {}
        for at in range(0, len(ids), _VARIABLES):
            part = ids[at : at + _VARIABLES]
            marks = ", ".join("?" * len(part))
            texts.update(self._db.rows(f"SELECT id, text FROM words WHERE id IN ({marks})", part))
        return texts

    def _id(self, text: str) -> int:
        if text not in self._ids:
            found = self._db.rows("SELECT id FROM words WHERE text = ?", (text,))
            self._ids[text] = (
                int(found[0][0])
                if found
                else self._db.run("INSERT INTO words (text) VALUES (?)", (text,))
            )
        return self._ids[text]
