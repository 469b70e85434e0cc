"""`ltgf node`: the agent that checkpoints jobs from outside, one on each node."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_ltgf.cli.app import App

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_ltgf.checkpoint.criu import Criu
    from slurm_ltgf.checkpoint.driver import Cuda, Missing
    from slurm_ltgf.checkpoint.node import Agent
    from slurm_ltgf.checkpoint.node_files import Job


@click.command("node")
@click.option("--name", metavar="NODE", help="This node's name in Slurm; default: its host name.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=Path("/run/ltgf-node"),
    show_default=True,
    help="Root's own folder on this node, for marks of what was begun.",
)
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/ltgf-node"),
    show_default=True,
    help="Root's own folder on this node: room for CRIU's images, and the key that seals them.",
)
@click.pass_context
def command(ctx: click.Context, /, *, name: str | None, state: Path, work: Path) -> None:
    """Checkpoint this node's jobs that were submitted with --ckpt=driver or criu: run it as root.

    It answers `ltgf pause`, and for criu `ltgf checkpoint` and `requeue`, in these jobs' place. It
    needs cuda-core (else whoever asks is told) and the folder checkpoint.records, which all nodes
    see. SIGTERM ends it; jobs that are paused then stay so until it runs again.
    """
    from slurm_ltgf.cli.daemon import log_to_stderr
    from slurm_ltgf.daemon import Notifier, Stop
    from slurm_ltgf.errors import UsageError

    app = App.of(ctx)
    if os.geteuid() != 0:
        raise UsageError("ltgf node: only root may checkpoint processes of others")
    log_to_stderr(app.verbose)
    agent = _agent(app, name or socket.gethostname().partition(".")[0], state, work)
    notifier = Notifier(os.environ)
    notifier.say("READY=1")
    agent.serve(Stop().listen(), lambda: notifier.say("WATCHDOG=1"))
    notifier.say("STOPPING=1")


def _agent(app: App, node: str, state: Path, work: Path) -> Agent:
    from slurm_ltgf.checkpoint.board import Board
    from slurm_ltgf.checkpoint.driver import Cuda
    from slurm_ltgf.checkpoint.keeper import Keeper, wish
    from slurm_ltgf.checkpoint.node import Agent, Processes
    from slurm_ltgf.checkpoint.node_hands import Room, Tools
    from slurm_ltgf.checkpoint.preflight import free_memory, verdict
    from slurm_ltgf.errors import ConfigError
    from slurm_ltgf.slurm import node_jobs

    records = app.config.checkpoint.records
    if not records:
        raise ConfigError("ltgf node: set checkpoint.records: the folder where jobs are asked")
    say = _once()
    processes = Processes(lambda: node_jobs.processes(node), say)
    device, room = _device(say), Room(free_memory)
    images = _images(own_folder(work), say)

    def revive(job: Job) -> None:
        if images is not None and (image := wish(job)):
            Keeper(
                job, images, device, lambda: node_jobs.processes(node).get(job.job_id, ()),
                remap=device.remap,
            ).start(image)  # fmt: skip

    tools = Tools(
        board=Board(Path(records)),
        device=device,
        pids=processes.of,
        look=lambda pids: verdict(pids, has_api=isinstance(device, Cuda)),
        room=room,
        marks=own_folder(state),
        tell=say,
        images=images,
        revive=revive,
    )
    return Agent(tools, processes, lambda job_id: node_jobs.seat(job_id, node))


def own_folder(path: Path) -> Path:
    """A folder that nobody but this user can enter.

    Raises:
        ConfigError: it is somebody else's, or others can write it.
    """
    from slurm_ltgf.errors import ConfigError

    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if path.is_symlink() or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise ConfigError(f"{path}: must be a folder of root's that nobody else can write")
    path.chmod(0o700)  # what CRIU writes as a job's user lies in it, out of that user's reach
    return path


def _device(say: Callable[[str], None]) -> Cuda | Missing:
    """The driver; without cuda-core jobs are told why they cannot be paused."""
    from slurm_ltgf.checkpoint.driver import Cuda, DriverError, Missing

    try:
        return Cuda()
    except DriverError as exc:
        say(f"jobs cannot be paused: {exc}")
        return Missing(str(exc))


def _images(work: Path, say: Callable[[str], None]) -> Criu | None:
    """What writes processes to disk; without it jobs are still paused, and brought back."""
    from slurm_ltgf.checkpoint import criu
    from slurm_ltgf.checkpoint.preflight import free_memory
    from slurm_ltgf.errors import ConfigError

    try:
        return criu.find(work, lambda: sorted(free_memory()))
    except (ConfigError, OSError) as exc:
        say(f"jobs cannot be written to disk: {exc}")
        return None


def _once() -> Callable[[str], None]:
    """Log a line, but not the same again and again."""
    import logging

    last: list[str] = []

    def say(line: str) -> None:
        if line not in last:
            logging.getLogger("ltgf").warning("%s", line)
            last[:] = [*last[-20:], line]

    return say
