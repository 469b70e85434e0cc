"""`ltgf quota plan`, `apply` and `undo`: quota.toml against what sacctmgr has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf import __version__
from slurm_ltgf.cli import quota_text as text
from slurm_ltgf.cli import render
from slurm_ltgf.cli.app import App, now
from slurm_ltgf.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from slurm_ltgf.core.accounts import Book
    from slurm_ltgf.core.quota_wanted import Plan, Wanted
    from slurm_ltgf.service.quota import Rules
    from slurm_ltgf.service.quota_apply import Applied, Hands
    from slurm_ltgf.service.quota_look import Look
    from slurm_ltgf.store.ledger import Ledger
    from slurm_ltgf.store.quota_file import QuotaFile

DRIFT = 1

file_option = click.option(
    "--file", "file_", type=click.Path(path_type=Path), help="The file; default: site.quota_file."
)


@click.command("plan")
@file_option
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.pass_context
def plan(ctx: click.Context, /, *, file_: Path | None, json_: bool) -> None:
    """What `apply` would change. Exit status: 0 nothing, 1 something, 3 Slurm does not answer."""
    from slurm_ltgf.service.quota_look import notes_of
    from slurm_ltgf.slurm import probe

    app = App.of(ctx)
    file = quota_file(app, file_)
    seen = looked(app, file)
    notes = notes_of(seen, app.quota_edges(), probe.billing_weights())
    if json_:
        render.as_json(_plan_json(seen.plan, notes, file.name, app.cluster()))
    else:
        show_plan(seen.plan, notes, file.name, "ltgf quota apply")
    ctx.exit(DRIFT if seen.plan.changes or seen.plan.refused else 0)


@click.command("apply")
@file_option
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.pass_context
def apply(ctx: click.Context, /, *, file_: Path | None, json_: bool) -> None:
    """Change accounts until they are as the file says.

    First the way back is written to an undo file, then `sacctmgr -i` makes one change at a time,
    each noted in the ledger; last all is read back. It never asks. Exit status: 0 all is as the
    file says, 1 something is not (each is named), 3 Slurm does not answer.
    """
    from slurm_ltgf.service.quota_wanted import wanted_of

    app = App.of(ctx)
    file = quota_file(app, file_)
    with changing(app) as ledger:
        credits_min = credits_min_of(app, file, ledger)
        applied = _made(app, lambda book: wanted_of(file, book, credits_min), ledger, why=file.name)
    _finish(ctx, applied, file.name, json_=json_)


@click.command("undo")
@click.argument("undo_file", required=False, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show what would be changed.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.pass_context
def undo(ctx: click.Context, /, *, undo_file: Path | None, dry_run: bool, json_: bool) -> None:
    """Lead back to what was before an `apply`: what it touched, and nothing else.

    UNDO_FILE: as `apply` named it; default: the newest. It may be undone too, and done again.
    Exit status as of `apply`; with --dry-run as of `plan`.
    """
    from slurm_ltgf.core.quota_plan import plan as changes_of
    from slurm_ltgf.service.quota_apply import undo as going_back
    from slurm_ltgf.store.quota_undo import newest_undo, read_undo

    app = App.of(ctx)
    path = undo_file or newest_undo(undo_folder(app))
    content = read_undo(path)
    if content.cluster != app.cluster():
        raise UsageError(f"{path} is of cluster {content.cluster!r}, not of {app.cluster()!r}")
    wanted = going_back(content)
    if dry_run:
        found = changes_of(wanted, hands_of(app).read())
        if json_:
            render.as_json(_plan_json(found, (), str(path), app.cluster()))
        else:
            show_plan(found, (), str(path), "ltgf quota undo")
        ctx.exit(DRIFT if found.changes or found.refused else 0)
    with changing(app) as ledger:
        applied = _made(app, lambda _: wanted, ledger, why=f"undo {path.name}")
    _finish(ctx, applied, str(path), json_=json_)


# --- what they share ------------------------------------------------------------------------------


def quota_file(app: App, named: Path | None) -> QuotaFile:
    """The file of --file or of the settings.

    Raises:
        ConfigError: there is none, or it says what it may not.
    """
    from slurm_ltgf.store.quota_file import load_quota

    path = named or Path(app.config.site.quota_file)
    if not path.exists():
        raise ConfigError(f"{path}: no such file; `ltgf quota show --toml` prints a first one")
    return load_quota(path)


def hands_of(app: App) -> Hands:
    """sacctmgr of the site's cluster."""
    from slurm_ltgf.service import quota_drift

    return quota_drift.hands_of(app.cluster())


def credits_min_of(app: App, file: QuotaFile, ledger: Ledger | None) -> dict[str, int]:
    """Credits less debits of the period; of none where there is no ledger yet."""
    from slurm_ltgf.service.quota_look import credits_of

    return credits_of(file, ledger, app.site, app.cluster(), now=now())


def site_file(app: App, named: Path | None = None) -> QuotaFile | None:
    """The file, for those who can do without one; None: there is none, and none was named."""
    is_there = named is not None or Path(app.config.site.quota_file).exists()
    return quota_file(app, named) if is_there else None


def site_rules(app: App, ledger: Ledger) -> Rules:
    """How budgets are told here: as the site's quota.toml says, if it has one."""
    from slurm_ltgf.service.quota_wanted import rules_of
    from slurm_ltgf.store.quota_file import QuotaFile

    file = site_file(app) or QuotaFile()
    return rules_of(file, credits_min_of(app, file, ledger))


def looked(app: App, file: QuotaFile) -> Look:
    """The file against what sacctmgr has; the ledger is needed for credits alone."""
    from slurm_ltgf.service.quota_look import look

    if not app.ledger_path.exists():
        return look(file, hands_of(app), {})
    with app.ledger(readonly=True) as ledger:
        return look(file, hands_of(app), credits_min_of(app, file, ledger))


def undo_folder(app: App) -> Path:
    """Where undo files lie: beside the ledger."""
    return app.ledger_path.parent / "quota-undo"


@contextmanager
def changing(app: App) -> Iterator[Ledger]:
    """The ledger, open, while nobody else changes quotas."""
    from slurm_ltgf.store.files import lock

    with app.ledger(readonly=False) as ledger, lock(Path(f"{app.ledger_path}.quota.lock")):
        yield ledger


def author() -> str:
    """Who types: behind sudo, the user who called it."""
    import pwd

    uid = os.geteuid()
    caller = os.environ.get("SUDO_USER", "") if uid == 0 else ""
    try:
        return caller or pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _made(app: App, want: Callable[[Book], Wanted], ledger: Ledger, *, why: str) -> Applied:
    from slurm_ltgf.service.quota_apply import Doing, apply

    doing = Doing(undo_folder(app), author(), why, now())
    return apply(want, hands_of(app), ledger, doing)


def show_plan(found: Plan, notes: tuple[str, ...], name: str, how: str) -> None:
    """A plan for people. name: of its file; how: what makes it so."""
    for change in found.changes:
        click.echo(text.line(change))
    for refusal in found.refused:
        click.echo(text.refused_line(refusal))
    for note in notes:
        click.echo(f"note: {render.clean(note)}")
    count = len(found.changes)
    if not count and not found.refused:
        click.echo(f"{render.clean(name)}: nothing to change")
    elif count:
        click.echo(f"{count} to change: {how}")


def _plan_json(found: Plan, notes: tuple[str, ...], name: str, cluster: str) -> dict[str, Any]:
    return {
        "meta": {"version": __version__, "generated": now(), "cluster": cluster},
        "file": name,
        "changes": [text.change_json(change) for change in found.changes],
        "refused": text.refused_json(found.refused),
        "warnings": list(notes),
    }


def _finish(ctx: click.Context, applied: Applied, name: str, *, json_: bool) -> None:
    """Say what became of it, and exit."""
    from slurm_ltgf.cli.quota import UNREACHABLE

    if json_:
        render.as_json(_applied_json(applied, name))
    else:
        _show_applied(applied, name)
    if applied.broken:
        render.note(f"ltgf: {applied.broken}")
        ctx.exit(UNREACHABLE)
    ctx.exit(0 if applied.is_whole else DRIFT)


def _show_applied(applied: Applied, name: str) -> None:
    for one in applied.done:
        click.echo(text.done_line(one))
    for refusal in applied.refused:
        click.echo(text.refused_line(refusal))
    made = sum(one.state == "done" for one in applied.done)
    if not applied.done:
        click.echo(f"{render.clean(name)}: nothing to change")
        return
    click.echo(
        f"{made} of {len(applied.done)} changed; the way back: ltgf quota undo {applied.undo}"
    )


def _applied_json(applied: Applied, name: str) -> dict[str, Any]:
    return {
        "file": name,
        "changes": [
            text.change_json(one.change)
            | {"state": one.state, "why": one.why or None, "jobs": list(one.jobs)}
            for one in applied.done
        ],
        "refused": text.refused_json(applied.refused),
        "undo": None if applied.undo is None else str(applied.undo),
        "left": None if applied.left is None else len(applied.left.changes),
        "error": applied.broken or None,
    }
