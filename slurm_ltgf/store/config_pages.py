"""The settings as files for people: etc/ltgf.toml and the reference page.

python -m slurm_ltgf.store.config_pages toml > etc/ltgf.toml
python -m slurm_ltgf.store.config_pages md > docs/reference/ltgf-toml.md
"""

from __future__ import annotations

import sys
import textwrap

from slurm_ltgf.store.quota_settings import QUOTA_SECTIONS
from slurm_ltgf.store.settings import SECTIONS, Setting, settings_of

#: What quota.toml is, and what a key that it leaves out means.
QUOTA_ABOUT = (
    "The file that `ltgf quota` reads: `site.quota_file`, by default /etc/ltgf/quota.toml. "
    "Unknown names and values out of range are refused with one line that names file and key."
)
QUOTA_RULES = (
    "Of an account that is named, every limit of GPUs is in the file: what it leaves out is taken "
    "from `[defaults]`, and else is no limit. A weight, a parent and users that are left out stay "
    "as they are. `[defaults]` is also for accounts that have users and that the file does not "
    "name: each gets what it has none of (Fairshare 1, no limit of GPUs), once. Limits of CPUs, "
    "memory and jobs are never touched."
)


def as_toml() -> str:
    """The settings file with every setting at its default; this is etc/ltgf.toml."""
    parts = [
        "# Settings of slurm-ltgf; all at their defaults. Made by",
        "#   python -m slurm_ltgf.store.config_pages toml > etc/ltgf.toml",
        "# Durations are whole seconds, or texts like '90s', '15min', '24h', '7d', '2w'.",
    ]
    for section, struct in SECTIONS.items():
        parts += ["", f"# {struct.__doc__}", f"[{section}]"]
        for row in settings_of(section, struct).values():
            parts += [f"# {row.meaning} ({row.unit}, default {row.default})"]
            parts += [f"{row.key} = {row.default}"]
    return "\n".join(parts) + "\n"


def as_markdown() -> str:
    """The reference page of the settings; this is docs/reference/ltgf-toml.md."""
    parts = [
        "# ltgf.toml",
        "",
        "For administrators: every setting. The file is looked for as `--config`, `$LTGF_CONFIG`,",
        "`~/.config/ltgf/ltgf.toml`, `/etc/ltgf/ltgf.toml`; without any, the defaults hold.",
        "Durations are whole seconds, or texts like `'90s'`, `'15min'`, `'24h'`, `'7d'`, `'2w'`.",
        "Unknown names and values out of range are refused.",
    ]
    for section, struct in SECTIONS.items():
        parts += ["", f"## [{section}]", "", f"{struct.__doc__}", ""]
        parts += ["| setting | unit | default | meaning |", "|---|---|---|---|"]
        parts += [
            f"| `{row.key}` | {row.unit} | `{row.default}` | {row.meaning} |"
            for row in settings_of(section, struct).values()
        ]
    return "\n".join(parts) + "\n"


def quota_as_markdown() -> str:
    """The reference page of quota.toml; this is docs/reference/quota-toml.md."""
    parts = ["# quota.toml", "", "For administrators: every key."]
    parts += textwrap.wrap(QUOTA_ABOUT, 100)
    parts += ["How to use it is in [set-quotas-by-file.md](../how-to/set-quotas-by-file.md).", ""]
    parts += textwrap.wrap(QUOTA_RULES, 100)
    for section, struct in QUOTA_SECTIONS.items():
        parts += ["", f"## [{section}]", "", f"{struct.__doc__}", ""]
        parts += ["| key | unit | left out | meaning |", "|---|---|---|---|"]
        parts += [
            f"| `{row.key}` | {row.unit} | {_left_out(row)} | {row.meaning} |"
            for row in settings_of(section, struct).values()
        ]
    return "\n".join(parts) + "\n"


def _left_out(row: Setting) -> str:
    return "-" if row.default == "None" else f"`{row.default}`"


if __name__ == "__main__":
    sys.stdout.write({"toml": as_toml, "md": as_markdown}[sys.argv[1]]())
