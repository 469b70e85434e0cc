"""How ranks begin: the checkpoint that all of them continue from, and what a restart has lost."""

from __future__ import annotations

import time
from collections.abc import Callable

from slurm_ltgf.checkpoint.accord import Accord, wait
from slurm_ltgf.checkpoint.archive import Archive, Checkpoint


def continue_from(
    accord: Accord, archive: Archive, *, verify: bool, say: Callable[[str], None]
) -> Checkpoint | None:
    """The checkpoint that all ranks continue from: the leader looks, the others are told.

    Raises:
        TimeoutError: the leader does not say.
        OSError: the folder cannot be read or written.
    """
    place = accord.place
    if not place.is_leader:
        name = wait(lambda: _started(accord, archive), until=time.time() + place.timeout_s)
        if name is None:
            raise TimeoutError(
                f"{place.folder}: rank 0 did not say within {place.timeout_s} s"
                " where to continue from: does it call checkpoint.session() too?"
            )
        return archive.read(name) if name else None
    archive.sweep()
    accord.forget()
    found = archive.last(verify=verify, say=say)
    _say_restart(accord, found, say)
    if place.ranks > 1:
        archive.settle(found)
        accord.start(found.name if found else "")
    return found


def _started(accord: Accord, archive: Archive) -> str | None:
    """What the leader has said; not what is left of a launch that bore the same number."""
    name, link = accord.started(), archive.named_by_link()
    return name if name == (link.name if link else "") else None


def _say_restart(accord: Accord, found: Checkpoint | None, say: Callable[[str], None]) -> None:
    where = f"continues from step {found.step}" if found else "no checkpoint: starts anew"
    restart = accord.place.restart
    if restart == 0 and found is None:
        return
    before = accord.told(0, any_launch=True)
    if before is not None and before.phase in ("holding", "stopping"):
        say(f"restart {restart}: {where}, as planned")
        return
    lost = before.step - found.step if found and before else 0
    at_least = f", at least {lost} steps" if lost > 0 else ""
    say(
        f"restart {restart}: unplanned (killed, preempted, or the node failed);"
        f" {where}, what came after it is lost{at_least}"
    )
