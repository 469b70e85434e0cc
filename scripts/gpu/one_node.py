"""A Slurm of one node on this machine, with its real GPUs: started for a test, and stopped.

Slurm is the installed one, or lies unpacked in a folder (`dpkg -x` of Debian's packages): then its
programs are called slurmctld-wlm, slurmd-wlm and slurmstepd-wlm. Libraries are found by
LD_LIBRARY_PATH and, as slurmd starts itself for prologs with nothing in its environment, by a link
where the programs look for them, which is there as long as the cluster is.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PORTS = (27817, 27818)
SHARDS_PER_GPU = 8
WLM = "usr/lib/x86_64-linux-gnu/slurm-wlm"


@dataclass
class OneNode:
    """The cluster. state: its folder, short (socket names are). slurm: an unpacked Slurm."""

    state: Path
    gpus: int
    slurm: Path | None = None
    plugstack: str = ""
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _link: Path | None = None

    @property
    def plugin_dir(self) -> Path:
        """Where Slurm's plugins are."""
        return (self.slurm or Path("/")) / WLM

    @property
    def include_dir(self) -> Path:
        """Where slurm/spank.h is."""
        return (self.slurm or Path("/")) / "usr/include"

    def env(self) -> dict[str, str]:
        """What Slurm's programs need."""
        found = {"PATH": f"{self.state}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        found["SLURM_CONF"] = str(self.state / "etc/slurm.conf")
        if self.slurm is not None:
            libraries = self.slurm / "usr/lib/x86_64-linux-gnu"
            found["LD_LIBRARY_PATH"] = f"{libraries}:{libraries}/slurm-wlm"
        return found

    def start(self) -> None:
        """Write the configuration and start munged, slurmctld and slurmd; ready when the node is.

        Raises:
            RuntimeError: the node did not come up within half a minute.
        """
        for name in ("etc", "bin", "log", "spool", "save", "munge"):
            (self.state / name).mkdir(parents=True, exist_ok=True)
        (self.state / "munge").chmod(0o755)
        self._link_programs()
        self._link_libraries()
        self._configure()
        key = self.state / "etc/munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munge = self.state / "munge"
        self._run("munged", "--foreground", "--force", f"--key-file={key}",
                  f"--socket={munge}/s", f"--pid-file={munge}/pid",
                  f"--log-file={self.state}/log/munged", f"--seed-file={munge}/seed")  # fmt: skip
        self._until((munge / "s").exists, "munged")
        self._run("slurmctld", "-D")
        stepd = ["-d", str(self.state / "bin/slurmstepd")] if self.slurm else []
        self._run("slurmd", "-D", "-N", "gpunode", *stepd)
        self._until(lambda: self.told("sinfo", "-h", "-o", "%T").strip() == "idle", "the node")

    def stop(self) -> None:
        """End all of it."""
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
        self.daemons.clear()
        if self._link is not None:
            self._link.unlink()
            self._link = None

    def told(self, *command: str, user: str = "", timeout_s: float = 60) -> str:
        """What a command prints; as root, or as a user."""
        done = self.ran(*command, user=user, timeout_s=timeout_s)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def ran(
        self, *command: str, user: str = "", timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """A command that ran."""
        who: dict[str, object] = {}
        if user:
            entry = pwd.getpwnam(user)
            who = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        return subprocess.run(
            command, env=self.env(), capture_output=True, text=True, check=False,
            timeout=timeout_s, cwd="/tmp", **who,
        )  # fmt: skip

    def _run(self, *command: str) -> None:
        with (self.state / "log" / f"{command[0]}.out").open("wb") as out:
            self.daemons.append(
                subprocess.Popen(command, env=self.env(), stdout=out, stderr=out, cwd="/")
            )

    def _until(self, is_so: Callable[[], bool], what: str, within_s: float = 30) -> None:
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            try:
                if is_so():
                    return
            except (RuntimeError, subprocess.TimeoutExpired):
                pass
            time.sleep(0.1)
        logs = "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-800:]}"
            for path in sorted((self.state / "log").iterdir())
        )
        raise RuntimeError(f"{what} did not come up\n{logs}")

    def _link_programs(self) -> None:
        if self.slurm is None:
            return
        for folder in ("usr/sbin", "usr/bin", WLM + "/sbin"):
            for program in sorted((self.slurm / folder).glob("*")):
                link = self.state / "bin" / program.name.removesuffix("-wlm")
                if not link.exists():
                    link.symlink_to(program)

    def _link_libraries(self) -> None:
        """Of an unpacked Slurm: its own, and those of its packages that this machine lacks."""
        place = Path("/") / WLM
        if self.slurm is None:
            return
        if place.exists() or place.is_symlink():
            raise RuntimeError(
                f"{place} is there already: an installed Slurm? then without --slurm"
            )
        known = subprocess.run(
            ["ldconfig", "-p"], capture_output=True, text=True, check=True
        ).stdout
        there = {line.split()[0] for line in known.splitlines() if "=>" in line}
        folder = self.state / "libraries"
        folder.mkdir()
        for library in sorted((self.slurm / WLM).iterdir()):
            (folder / library.name).symlink_to(library)
        for library in sorted((self.slurm / "usr/lib/x86_64-linux-gnu").glob("*.so.*")):
            if library.name not in there:
                (folder / library.name).symlink_to(library)
        place.symlink_to(folder)
        self._link = place

    def _configure(self) -> None:
        host = socket.gethostname()
        ctld, d = PORTS
        gres = f"gpu:nv:{self.gpus},shard:{SHARDS_PER_GPU * self.gpus}"
        (self.state / "etc/slurm.conf").write_text(f"""\
ClusterName=gpu
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ctld}
SlurmdPort={d}
AuthType=auth/munge
AuthInfo=socket={self.state}/munge/s
CredType=cred/munge
StateSaveLocation={self.state}/save
SlurmdSpoolDir={self.state}/spool
SlurmctldPidFile={self.state}/ctld.pid
SlurmdPidFile={self.state}/d.pid
SlurmctldLogFile={self.state}/log/slurmctld
SlurmdLogFile={self.state}/log/slurmd
SlurmdDebug=verbose
PluginDir={self.plugin_dir}
PlugStackConfig={self.state}/etc/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,bf_interval=1
SlurmdParameters=config_overrides
GresTypes=gpu,shard
NodeName=gpunode NodeHostname={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=32000 Gres={gres}
PartitionName=all Nodes=gpunode Default=YES MaxTime=INFINITE OverSubscribe=NO
""")
        devices = f"/dev/nvidia[0-{self.gpus - 1}]" if self.gpus > 1 else "/dev/nvidia0"
        (self.state / "etc/gres.conf").write_text(
            f"AutoDetect=off\nName=gpu Type=nv File={devices}\n"
            f"Name=shard Count={SHARDS_PER_GPU * self.gpus}\n"
        )
        version = self.told("slurmd", "-V").split()[-1]
        if tuple(map(int, version.split(".")[:2])) >= (23, 11):  # before, there was no such word
            (self.state / "etc/cgroup.conf").write_text("CgroupPlugin=disabled\n")
        (self.state / "etc/plugstack.conf").write_text(self.plugstack)


def unpack(packages: Path, into: Path) -> Path:
    """Unpack Debian packages of a folder; where."""
    into.mkdir(parents=True, exist_ok=True)
    for package in sorted(packages.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(into)], check=True)
    return into


@contextmanager
def users(names: Sequence[str]) -> Iterator[None]:
    """Accounts that exist meanwhile; those that were there before stay."""
    made = []
    for name in names:
        try:
            pwd.getpwnam(name)
        except KeyError:
            subprocess.run(["useradd", "--no-create-home", "--user-group", name], check=True)
            made.append(name)
    try:
        yield
    finally:
        for name in made:
            subprocess.run(["userdel", name], check=False, capture_output=True)
            try:
                grp.getgrnam(name)
                subprocess.run(["groupdel", name], check=False, capture_output=True)
            except KeyError:
                pass


def has_slurm() -> bool:
    """Whether this machine has Slurm installed."""
    return all(map(shutil.which, ("slurmctld", "slurmd", "munged", "sbatch")))
