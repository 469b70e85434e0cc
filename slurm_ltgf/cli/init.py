"""`ltgf init`: write a first ltgf.toml from what Slurm says."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf import __version__
from slurm_ltgf.cli import render
from slurm_ltgf.cli.app import App, now
from slurm_ltgf.errors import SlurmUnavailable, UsageError

if TYPE_CHECKING:
    from slurm_ltgf.service.doctor_facts import Facts

UNREACHABLE = 3


@click.command("init")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path),
    help="The file to write; default: --config, else /etc/ltgf/ltgf.toml.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option("--dry-run", is_flag=True, help="Print the file, write nothing.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context, /, *, output: Path | None, force: bool, dry_run: bool, json_: bool
) -> None:
    """Write a first ltgf.toml from what Slurm says.

    It names the cluster and the ledger, sets what must differ from the defaults here, and suggests
    in comments what is yours to decide. Nothing but the file is written. Exit status: 3 if Slurm
    does not answer; then nothing is written.
    """
    from slurm_ltgf.service.first_config import as_toml, not_found
    from slurm_ltgf.store.config import SYSTEM_FILE

    app = App.of(ctx)
    path = output or app.config_path or SYSTEM_FILE
    if path.exists() and not force and not dry_run:
        raise UsageError(f"{path}: is there; --force replaces it, -o FILE writes another")
    try:
        facts = look(app)
    except SlurmUnavailable as exc:
        unreachable(exc, json_=json_)
        ctx.exit(UNREACHABLE)
    text = as_toml(facts, program=f"ltgf init {__version__}")
    if not dry_run:
        write(path, text, force=force)
    if json_:
        render.as_json(as_json(facts, text, path, written=not dry_run))
    elif dry_run:
        click.echo(text, nl=False)
    else:
        for line in (f"wrote {path}", *(f"not found: {what}" for what in not_found(facts))):
            click.echo(render.clean(line))
        click.echo("next:")
        for line in next_steps(facts, path):
            click.echo(f"  {line}")


def look(app: App) -> Facts:
    """What the doctor would see with no settings at all.

    Raises:
        SlurmUnavailable: no slurmctld answers.
    """
    from slurm_ltgf.service.doctor_facts import gather
    from slurm_ltgf.store.config import Config

    config = Config()
    return gather(config, ledger=app.ledger_option or Path(config.site.ledger))


def write(path: Path, text: str, *, force: bool) -> None:
    """Put the file there, with its folder; an old one is replaced only by force.

    Raises:
        FileError: it cannot be written. UsageError: it came to be meanwhile.
    """
    from slurm_ltgf.store.files import FileError, replace_text

    try:
        path.parent.mkdir(mode=0o755, exist_ok=True)
        if not force:
            path.touch(mode=0o644, exist_ok=False)
    except FileExistsError as exc:
        raise UsageError(f"{path}: is there; --force replaces it") from exc
    except OSError as exc:
        raise FileError(f"{path}: cannot write: {exc.strerror}; -o FILE writes another") from exc
    replace_text(path, text)


def next_steps(facts: Facts, path: Path) -> list[str]:
    """What to type now. path: the file; where it is not looked for it must be named."""
    from slurm_ltgf.store.config import SYSTEM_FILE

    user = shlex.quote(facts.site.slurm_user or "root")
    folder = shlex.quote(str(facts.ledger.path.parent))
    option = "" if path == SYSTEM_FILE else f" --config {shlex.quote(str(path))}"
    ltgf = f"sudo -u {user} ltgf{option}"
    make = [f"install -d -o {user} -m 750 {folder}  # where the ledger will be"]
    return [
        *([] if facts.ledger.path.parent.is_dir() else make),
        f"{ltgf} doctor  # what is wrong with this site's setup",
        f"{ltgf} sync  # history into the ledger",
        f"{ltgf} tick --dry-run  # the queue as it would be",
    ]


def as_json(facts: Facts, text: str, path: Path, *, written: bool) -> dict[str, Any]:
    """The outcome for programs."""
    from slurm_ltgf.service.first_config import choices, found, not_found

    return {
        "meta": {"version": __version__, "generated": now(), "cluster": facts.cluster},
        "reachable": True,
        "file": str(path) if written else None,
        "settings": tomllib.loads(text),
        "suggestions": [
            {"setting": f"{c.section}.{c.key}", "value": c.value, "why": c.why}
            for c in choices(facts)
            if not c.is_set
        ],
        "found": list(found(facts)),
        "not_found": not_found(facts),
        "next": next_steps(facts, path),
    }


def unreachable(exc: SlurmUnavailable, *, json_: bool) -> None:
    """Say what could not be found."""
    from slurm_ltgf.service.first_config import SOUGHT

    missing = list(SOUGHT.values())
    if json_:
        meta = {"version": __version__, "generated": now(), "cluster": None}
        render.as_json(
            {"meta": meta, "reachable": False, "file": None, "settings": {}, "suggestions": [],
             "found": [], "not_found": missing, "next": []}
        )  # fmt: skip
        return
    render.note(f"ltgf: slurmctld does not answer: {exc}")
    render.note("ltgf: nothing was written; without Slurm these cannot be found:")
    for what in missing:
        render.note(f"  {what}")
    render.note("ltgf: commands that read a saved dump need no file: the defaults hold")
