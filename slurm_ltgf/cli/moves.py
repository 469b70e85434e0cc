"""What `ltgf requeue`, `checkpoint`, `pause` and `resume` share: settings, waiting, words."""

from __future__ import annotations

import getpass
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import render
from slurm_ltgf.cli.app import App
from slurm_ltgf.cli.move_site import moves_of

if TYPE_CHECKING:
    from slurm_ltgf.core.move import Move
    from slurm_ltgf.service.move_facts import Outlook, Wish
    from slurm_ltgf.service.moves import Moves

POLL_S = 0.5
#: How often Slurm may fail to answer before waiting is given up.
PATIENCE = 120


def asking(function: Callable[..., Any]) -> Callable[..., Any]:
    """The argument and the options of all commands that ask a job to save."""
    for option in reversed(
        (
            click.argument("job_id", metavar="JOBID"),
            click.option(
                "--reason", default="", metavar="TEXT", help="For the log and the job's owner."
            ),
            click.option(
                "--within", metavar="DURATION", help="Time to save; default: the job's, the site's."
            ),
            click.option(
                "--dry-run", is_flag=True, help="Ask nothing; show what stands against it."
            ),
            click.option("--json", "json_", is_flag=True, help="Print JSON."),
        )
    ):
        function = option(function)
    return function


def wish_of(goal: str, *, reason: str, within: str | None, **more: Any) -> Wish:
    """What the command line asks for.

    Raises:
        UsageError: --within is no duration.
    """
    from slurm_ltgf.core.duration import duration_s
    from slurm_ltgf.core.move import Goal
    from slurm_ltgf.errors import UsageError
    from slurm_ltgf.service.move_facts import Wish

    within_s = duration_s(within) if within else None
    if within and not within_s:
        raise UsageError(f"--within: must be a duration like 90s or 10min, got {within!r}")
    by = f"ltgf {goal} by {getpass.getuser()}"
    return Wish(Goal(goal), by=by, reason=reason, within_s=within_s, **more)


def carry_out(app: App, name: str, wish: Wish, *, json_: bool, dry_run: bool = False) -> None:
    """Begin a move, or take it up, and wait for its end; its sentence, or an error.

    Raises:
        MoveRefused, MoveFailed: see there.
    """
    from slurm_ltgf.core.move import State
    from slurm_ltgf.service.move_facts import MoveFailed

    moves = moves_of(app)
    if dry_run:
        show_outlook(moves.outlook(name, wish.goal), json_=json_)
        return
    move = moves.begin(name, wish, now=int(time.time()))
    move = _wait(moves, move)
    if json_:
        render.as_json(move_json(move))
    if move.state is State.FAILED:
        raise MoveFailed(f"job {name}: {move.why}")
    if not json_:
        click.echo(f"job {name}: {render.clean(sentence(move))}")


def requeue_now(app: App, name: str, wish: Wish, *, dry_run: bool, json_: bool) -> None:
    """Requeue without a checkpoint: says what is lost.

    Raises:
        MoveRefused: there is no such job that runs, or Slurm would not requeue it.
    """
    now = int(time.time())
    done = moves_of(app).requeue_now(name, wish, now=now, dry_run=dry_run)
    if json_:
        render.as_json(move_json(done) | {"lost_gpu_s": done.gpus * (now - done.started)})
        return
    lost = gpu_time(done.gpus * (now - done.started))
    verb = "would be" if dry_run else "was"
    click.echo(f"job {name}: {verb} requeued without a checkpoint: {lost} lost")


def after_signal(app: App, name: str, wish: Wish, *, lead: str) -> None:
    """What a batch script does after its program saved because of a signal.

    Raises:
        UsageError: lead is no duration.
        MoveRefused: Slurm would not requeue it, or it has had its share of requeues.
    """
    from slurm_ltgf.checkpoint.place import here
    from slurm_ltgf.core.duration import duration_s
    from slurm_ltgf.errors import UsageError

    lead_s = duration_s(lead)
    if not lead_s:
        raise UsageError(f"--after-signal: must be a duration like 120s, got {lead!r}")
    place = here()
    board = place.board.folder if name == str(place.job_id) else None
    done = moves_of(app).after_signal(
        name, wish, lead_s=int(lead_s), now=int(time.time()), board=board
    )
    click.echo(f"job {name}: {done}")


def _wait(moves: Moves, move: Move) -> Move:
    """Go on until the end; on a terminal every change is a line. Ctrl-C takes the ask back."""
    failures = 0
    with interrupts() as interrupted:
        while not move.state.is_end:
            before = move.why
            move, problem = moves.try_to_go_on(move, now=int(time.time()))
            failures = failures + 1 if problem else 0
            if problem and failures > PATIENCE:
                raise problem
            if interrupted():
                move = moves.take_back(move, now=int(time.time()))
            if sys.stderr.isatty() and (problem or move.why != before):
                said = str(problem) if problem else move.why
                click.echo(f"  {time.strftime('%H:%M:%S')} {render.clean(said)}", err=True)
            if not move.state.is_end:
                time.sleep(POLL_S)
    return move


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and TERM as a question, so that nothing is left half done."""
    seen: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {n: signal.signal(n, lambda number, _: seen.append(number)) for n in numbers}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            with suppress(ValueError):
                signal.signal(number, handler)


def sentence(move: Move) -> str:
    """What came of it, with what it kept and cost."""
    parts = [move.why]
    if move.saved_gpu_s is not None:
        where = f" in {move.checkpoint}" if move.checkpoint else ""
        parts.append(f"{gpu_time(move.saved_gpu_s)} of work kept{where}")
    if move.lost_gpu_s is not None:
        parts.append(f"{gpu_time(move.lost_gpu_s)} between save and requeue lost")
    return "; ".join(part for part in parts if part)


def gpu_time(gpu_s: float) -> str:
    """GPU-time in hours, small ones in seconds.

    >>> gpu_time(7200), gpu_time(90)
    ('2.00 GPU-hours', '90 GPU-seconds')
    """
    return f"{gpu_s / 3600:.2f} GPU-hours" if gpu_s >= 360 else f"{gpu_s:.0f} GPU-seconds"


def move_json(move: Move) -> dict[str, Any]:
    """A move for programs."""
    return {
        "job_id": move.requeue_id,
        "goal": move.goal.value,
        "state": move.state.value,
        "why": move.why,
        "step": move.step,
        "checkpoint": move.checkpoint or None,
        "asked": move.asked_at or None,
        "saved": move.saved_at,
        "ended": move.ended_at,
        "saved_gpu_s": move.saved_gpu_s,
        "lost_gpu_s": move.lost_gpu_s,
    }


def show_outlook(found: Outlook, *, json_: bool) -> None:
    """What a move would meet; nothing is asked."""
    values = _outlook_json(found, now=int(time.time()))
    if json_:
        render.as_json(values)
        return
    for key, value in values.items():
        if key != "objections":
            click.echo(f"{key.replace('_', ' '):>20}  {render.word(_word(value))}")
    for objection in found.objections:
        click.echo(f"{'no':>20}  {render.clean(objection)}")
    if not found.objections:
        click.echo(f"{'yes':>20}  it can be asked")


def _outlook_json(found: Outlook, *, now: int) -> dict[str, Any]:
    from slurm_ltgf.slurm.requeue import grace

    job, record = found.running.job, found.record
    is_ready = found.answer is not None and found.answer.restart == job.restarts
    answer = found.answer if is_ready else None
    own = grace(job)
    return {
        "job_id": found.running.requeue_id,
        "state": job.state.lower(),
        "gres": job.gres,
        "restarts": job.restarts,
        "runs_s": now - job.start if job.start > 0 else None,
        "mode": record.mode.value if record else None,
        "folder": str(record.dir) if record else None,
        "signal": record.signal or None if record else None,
        "ready": is_ready,
        "answered_s_ago": now - answer.time if answer else None,
        "phase": answer.phase.value if answer else None,
        "checkpoint": answer.name or None if answer else None,
        "save_s": answer.seconds if answer else None,
        "grace_s": own.grace_s,
        "kill_wait_s": own.kill_wait_s,
        "signal_at_preemption": own.is_signalled,
        "objections": list(found.objections),
    }


def _word(value: object) -> str | int | float | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str | int | float) else None
