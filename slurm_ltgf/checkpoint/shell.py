"""`ltgf-ckpt`: checkpoints for shell scripts and for programs that know nothing of us.

Standard library alone: it runs inside of images that have Python and nothing more.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from slurm_ltgf.checkpoint import revive
from slurm_ltgf.checkpoint.answering import Answering, Save
from slurm_ltgf.checkpoint.archive import LAST, MANIFEST, Archive
from slurm_ltgf.checkpoint.lint import lint
from slurm_ltgf.checkpoint.place import Place, here
from slurm_ltgf.checkpoint.protocol import Action, Mode, Phase
from slurm_ltgf.checkpoint.wrapper import run
from slurm_ltgf.errors import LtgfError, UsageError

_HELP = """
exit codes: those of the program (run); 0 yes, 1 no (requested, stopped, last, lint); 2 wrong usage
the folder is $LTGF_CKPT_DIR, or ltgf-ckpt/JOBID where the job was submitted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command `ltgf-ckpt`."""
    given = _options().parse_args(argv)
    try:
        return int(given.do(given))
    except LtgfError as exc:
        _say(str(exc))
        return exc.exit_code
    except OSError as exc:
        _say(f"{exc.filename or ''}: {exc.strerror}")
        return 74


def _options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="ltgf-ckpt",
        description=(__doc__ or "").split("\n")[0],
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    of = options.add_subparsers(required=True, metavar="COMMAND")
    one = of.add_parser("run", help="run a program and answer asks for checkpoints in its place")
    one.add_argument("--ckpt-command", default="", metavar="FILE", help="a program that saves")
    one.add_argument("--ckpt-signal", default="", metavar="NAME", help="default USR2")
    one.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...")
    one.set_defaults(do=_run)
    one = of.add_parser("ready", help="say that this script can be asked from now on")
    one.set_defaults(do=_ready)
    one = of.add_parser("requested", help="exit code 0: a checkpoint is due now; 1: none is")
    one.set_defaults(do=_requested)
    one = of.add_parser("commit", help="NAME in the folder is complete; holds before a requeue")
    one.add_argument("name", metavar="NAME")
    one.add_argument("--step", type=int, default=0, help="how far it is")
    one.set_defaults(do=_commit)
    one = of.add_parser("failed", help="the checkpoint that was asked for cannot be made")
    one.add_argument("why", metavar="WHY")
    one.set_defaults(do=_failed)
    one = of.add_parser("stopped", help="exit code 0: a signal of Slurm made it save and end")
    one.set_defaults(do=_stopped)
    one = of.add_parser("last", help="print the path of the last good checkpoint; 1: there is none")
    one.set_defaults(do=_last)
    one = of.add_parser("lint", help="what in a batch script keeps checkpoints from being made")
    one.add_argument("script", type=Path)
    one.set_defaults(do=_lint)
    return options


def _run(given: argparse.Namespace) -> int:
    program = given.program[1:] if given.program[:1] == ["--"] else given.program
    if not program:
        raise UsageError("ltgf-ckpt run: no program given; write: ltgf-ckpt run -- PROGRAM ...")
    place = here(signal=given.ckpt_signal or None)
    place.make()
    os.environ["LTGF_CKPT_DIR"] = str(place.folder)
    if place.mode == Mode.CRIU:
        return revive.run(program, place, _say)
    return run(program, place, given.ckpt_command or os.environ.get("LTGF_CKPT_COMMAND", ""))


def _ready(given: argparse.Namespace) -> int:
    place = _place()
    _answering(place).ready()
    (place.folder / "ltgf-ready").touch()
    return 0


def _requested(given: argparse.Namespace) -> int:
    place = _place()
    answering = _answering(place)
    ask = answering.open_ask()
    if ask is not None and ask.action is Action.PAUSE:
        answering.refuse(ask, "this program cannot pause in place")
    elif ask is not None:
        answering.working(Save.of(ask, place))
        return 0
    return 0 if _is_time(place) else 1


def _is_time(place: Place) -> bool:
    """Whether the interval is over since the last checkpoint, or since the script was ready."""
    if not place.interval_s:
        return False
    times = [
        path.lstat().st_mtime
        for path in (place.folder / LAST, place.folder / "ltgf-ready")
        if path.exists()
    ]
    return bool(times) and time.time() - max(times) >= place.interval_s


def _commit(given: argparse.Namespace) -> int:
    place = _place()
    answering, archive = _answering(place), Archive(place.folder)
    name = given.name
    if "/" in name or name in ("", ".", "..", LAST) or name.startswith(".new-"):
        raise UsageError(f"{name!r}: must be the name of something in {place.folder}, not a path")
    ask = answering.open_ask()
    save = Save.of(ask, place) if ask else Save.unasked(place)
    try:
        archive.take_over(name, step=given.step)
    except OSError as exc:
        answering.failed(save, f"{exc.filename or name}: {exc.strerror}")
        raise
    answering.saved(save)
    if ask is not None and ask.action is Action.REQUEUE:
        answering.hold(ask)
    return 0


def _failed(given: argparse.Namespace) -> int:
    answering = _answering(_place())
    if ask := answering.open_ask():
        answering.refuse(ask, given.why)
    return 0


def _stopped(given: argparse.Namespace) -> int:
    answer = _answering(here(rank=0, ranks=1)).answer()
    return 0 if answer is not None and answer.phase is Phase.STOPPED else 1


def _last(given: argparse.Namespace) -> int:
    place = here(rank=0, ranks=1)
    archive = Archive(place.folder)
    path = archive.named_by_link()
    if path is None or (path / MANIFEST).exists():
        found = archive.last(say=_say) if place.folder.is_dir() else None
        path = found.path if found else None
    if path is None:
        return 1
    sys.stdout.write(f"{path}\n")
    return 0


def _lint(given: argparse.Namespace) -> int:
    text = given.script.read_text(errors="replace")
    found = lint(text)
    for one in found:
        sys.stdout.write(f"{given.script}:{one.line}: {one.text}\n")
    return 1 if found else 0


def _place() -> Place:
    """Of a script that speaks for the whole job."""
    place = here(rank=0, ranks=1)
    place.make()
    return place


def _answering(place: Place) -> Answering:
    return Answering(place, _say)


def _say(line: str) -> None:
    sys.stderr.write(f"ltgf-ckpt: {line}\n")
