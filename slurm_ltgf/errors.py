"""Every error the package raises on purpose. The type is the caller's next action.

    LtgfError                 exit code      what to do
    ├── UsageError            2              say it differently
    ├── ConfigError           78             mend ltgf.toml or the named setting
    ├── InputError            65             mend the file that was read
    ├── LedgerError           74             look at the disk or the ledger file
    ├── FileError             74             look at the disk or the named file (store/files.py)
    ├── LockHeldError         75             wait for the other process, or stop it (store/files.py)
    ├── SlurmUnavailable      75             wait and try again: the daemon survives this one only
    ├── SlurmRefused          77             Slurm said no: rights, unknown name, wrong value
    └── GpuNotTracked         78             add gres/gpu to AccountingStorageTRES

Anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations


class LtgfError(Exception):
    """One line: what, which, why, what to do. said: all that a foreign program said, if any."""

    exit_code = 1
    said = ""


class UsageError(LtgfError):
    """The command line asks for something that cannot be done as asked."""

    exit_code = 2


class ConfigError(LtgfError):
    """A setting is missing, unknown or out of range."""

    exit_code = 78


class InputError(LtgfError):
    """A file or stream is not what it should be."""

    exit_code = 65


class LedgerError(LtgfError):
    """The ledger cannot be opened, read or written."""

    exit_code = 74


class SlurmUnavailable(LtgfError):
    """Slurm or its database does not answer now; later it may."""

    exit_code = 75


class SlurmRefused(LtgfError):
    """Slurm answered, and the answer is no."""

    exit_code = 77


class GpuNotTracked(ConfigError):
    """The site's AccountingStorageTRES lacks gres/gpu: no GPU-time was ever recorded."""
