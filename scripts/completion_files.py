"""Completion for bash, zsh and fish: click's scripts for ltgf, a list of commands for ltgf-ckpt.

scripts/make-docs writes them. click's ask `ltgf` itself at each TAB, so they hold for any version.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from click.shell_completion import get_completion_class

from slurm_ltgf.checkpoint import shell
from slurm_ltgf.cli.main import cli


def completion_files() -> dict[str, Callable[[], str]]:
    """Path in the repository -> what makes the file; named as each shell looks for it."""
    return {
        "etc/completion/ltgf": partial(of_ltgf, "bash"),
        "etc/completion/_ltgf": partial(of_ltgf, "zsh"),
        "etc/completion/ltgf.fish": partial(of_ltgf, "fish"),
        "etc/completion/ltgf-ckpt": ckpt_for_bash,
        "etc/completion/_ltgf-ckpt": ckpt_for_zsh,
        "etc/completion/ltgf-ckpt.fish": ckpt_for_fish,
    }


def of_ltgf(name: str) -> str:
    """click's script for a shell."""
    made = get_completion_class(name)
    assert made is not None
    source = made(cli, {}, "ltgf", "_LTGF_COMPLETE").source().strip() + "\n"
    # fish: a help text may have commas of its own
    return source.replace('string split ","', 'string split -m 1 ","')


def ckpt_commands() -> dict[str, str]:
    """Command of ltgf-ckpt -> its help."""
    actions = shell._options()._actions
    of = next(action for action in actions if isinstance(action, argparse._SubParsersAction))
    return {action.dest: action.help or "" for action in of._choices_actions}


def ckpt_for_bash() -> str:
    """The command first, then files."""
    return f"""\
_ltgf_ckpt() {{
    if [[ $COMP_CWORD -eq 1 ]]; then
        COMPREPLY=($(compgen -W "{" ".join(ckpt_commands())}" -- "$2"))
    fi
}}
complete -o default -F _ltgf_ckpt ltgf-ckpt
"""


def ckpt_for_zsh() -> str:
    """The command first, with its help, then files."""
    rows = "".join(f"    {quoted(f'{name}:{text}')}\n" for name, text in ckpt_commands().items())
    return f"""\
#compdef ltgf-ckpt
local -a commands
commands=(
{rows})
if (( CURRENT == 2 )); then
    _describe command commands
else
    _files
fi
"""


def ckpt_for_fish() -> str:
    """The command first, with its help, then files."""
    return "".join(
        f"complete -c ltgf-ckpt -n __fish_use_subcommand -f -a {name} -d {quoted(text)}\n"
        for name, text in ckpt_commands().items()
    )


def quoted(text: str) -> str:
    """A word in single quotes; none of ours has one inside."""
    assert "'" not in text
    return f"'{text}'"
