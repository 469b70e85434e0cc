"""Changes of accounts, users and QOS, through `sacctmgr -i`: one call is one transaction.

Names go as arguments of a process, never through a shell; those that sacctmgr would take for
something else never get here (core/quota_wanted.takes). stdin is /dev/null, so nothing can ask
back, and each call has a time limit.

What sacctmgr 22.05 does, seen on a real cluster:

- `set GrpTRESMins=gres/gpu=30000` leaves other TRES of the list alone; `=-1` clears the one named.
- A user or account with running jobs is not removed: "Error with request: Job(s) active, cancel
  job(s) before remove", a line with JobID = for each, exit 1. Pending jobs do not hinder.
- `delete account` takes all that is below along, without a word.
- An account that is put below its own child: the child is moved up first, without a word.
- Setting what is set already succeeds; "Nothing modified" (exit 1): the name is unknown, the value
  out of range, or the caller has no rights.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

from slurm_ltgf.core.accounts import Change, Setting
from slurm_ltgf.errors import LtgfError, SlurmRefused, SlurmUnavailable
from slurm_ltgf.slurm.run import run

WRITE_S = 60
_ACTIVE = re.compile(r"Job\(s\) active", re.IGNORECASE)
_JOB = re.compile(r"^\s*JobID = (\d+)", re.MULTILINE)
_NO_RIGHTS = re.compile(r"privilege|permission denied|not authorized|access denied", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a change. jobs: those that hinder it. why: sacctmgr's words; "": done."""

    jobs: tuple[str, ...] = ()
    why: str = ""

    @property
    def is_done(self) -> bool:
        """Whether sacctmgr took it."""
        return not self.why


def write(change: Change, cluster: str) -> Outcome:
    """Make one change.

    Raises:
        SlurmUnavailable: slurmdbd is away, or did not answer in time: it may be made or not.
        SlurmRefused: this user may change nothing.
    """
    try:
        run(argv(change, cluster), timeout_s=WRITE_S)
    except (SlurmUnavailable, SlurmRefused) as exc:
        return _outcome(exc)
    return Outcome()


def _outcome(exc: LtgfError) -> Outcome:
    if _ACTIVE.search(exc.said):
        jobs = tuple(dict.fromkeys(_JOB.findall(exc.said)))
        return Outcome(jobs, f"running: {', '.join(jobs)}" if jobs else "it has running jobs")
    if isinstance(exc, SlurmUnavailable) or _NO_RIGHTS.search(exc.said):
        raise exc
    return Outcome(why=" ".join(exc.said.split()) or str(exc))


def argv(change: Change, cluster: str) -> list[str]:
    """The call that makes a change.

    >>> minutes = Setting("GrpTRESMins", "gres/gpu", "60000", "30000")
    >>> " ".join(argv(Change("set account", "lab", settings=(minutes,)), "c"))
    'sacctmgr -i modify account where name=lab cluster=c set GrpTRESMins=gres/gpu=30000'
    >>> argv(Change("remove user", "$(id)", "ann"), "c")[3:]
    ['user', 'where', 'name=ann', 'cluster=c', 'account=$(id)']
    """
    words = assignments(change.settings)
    account, user = f"account={change.account}", f"name={change.user}"
    name, where = f"name={change.account}", f"cluster={cluster}"
    partition = [f"partition={change.partition}"] if change.partition else []
    calls = {
        "add account": ["add", "account", name, where, *words],
        "move account": ["modify", "account", "where", name, where, "set", *words],
        "set account": ["modify", "account", "where", name, where, "set", *words],
        "add user": ["add", "user", user, where, account, *partition, *words],
        "add coordinator": ["add", "coordinator", account, f"names={change.user}"],
        "remove coordinator": ["delete", "coordinator", account, f"names={change.user}"],
        "set default": ["modify", "user", "where", user, where, "set", *words],
        "remove user": ["delete", "user", "where", user, where, account],
        "remove account": ["delete", "account", "where", name, where],
        "set qos": ["modify", "qos", "where", f"name={change.qos}", "set", *words],
    }
    return ["sacctmgr", "-i", *calls[change.kind]]


def assignments(settings: tuple[Setting, ...]) -> list[str]:
    """OPTION=VALUE words; what belongs to one list is one word, and only what is named changes.

    >>> assignments((Setting("GrpTRES", "gres/gpu", "", "4"), Setting("GrpTRES", "cpu", "9", "")))
    ['GrpTRES=gres/gpu=4,cpu=-1']
    >>> assignments((Setting("Flags", "NoDecay", "NoDecay", ""), Setting("Fairshare", new="0")))
    ['Flags-=NoDecay', 'Fairshare=0']
    """
    words = []
    for (option, is_list), group in groupby(settings, key=lambda s: (s.option, bool(s.tres))):
        parts = list(group)
        if option == "Flags":
            words += [f"Flags{'+' if part.new else '-'}={part.tres}" for part in parts]
        elif is_list:
            values = ",".join(f"{part.tres}={part.new or -1}" for part in parts)
            words.append(f"{option}={values}")
        else:
            words += [f"{option}={part.new}" for part in parts]
    return words
