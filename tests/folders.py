"""A test's folder, opened to other users."""

import tempfile
from pathlib import Path


def open_to_all(folder: Path, mode: int = 0o755) -> None:
    """Let other users into a folder of pytest's, which makes all above it for one user alone."""
    folder.chmod(mode)
    for above in folder.parents:
        if above == Path(tempfile.gettempdir()):
            return
        above.chmod(0o755)
