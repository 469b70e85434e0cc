"""`ltgf-ckpt run` before several ranks on a real cluster: under srun, and before a launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lab import Lab
from training_site import ALICE, Site, site_of, used

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster

RUN = "python3 -m slurm_ltgf.checkpoint run --"
#: Starts two ranks as torchrun does, and as torchrun dies of USR2.
TORCHRUN = """
import os, subprocess, sys
ranks = [
    subprocess.Popen(
        [sys.executable, *sys.argv[2:]],
        env=os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
    )
    for rank in range(2)
]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.fixture
def site(cluster: Lab) -> Iterator[Site]:
    yield from used(site_of(cluster, records=True))


def test_ranks_under_srun_and_of_a_launcher_are_saved_by_ask_and_by_signal(site: Site) -> None:
    """Under srun each rank has a wrapper of its own; a launcher one before it, and is spared."""
    launcher = site.home / "lib" / "torchrun"
    launcher.write_text(TORCHRUN)
    srun = site.submit(ranks=4, start=f"srun --mpi=none -n4 {RUN}")
    batch = site.submit("-n2", start=f"exec {RUN} python3 {launcher}")
    for job, scancel in ((srun, ()), (batch, ("--batch",))):  # as --signal=USR2@60, B:USR2@60 do
        site.lab.run("scancel", "-s", "USR2", *scancel, str(site.ready(job)))
        site.stopped(job)
        answer = site.board(job).answer(job, ALICE)
        assert answer is not None
        assert answer.name == (site.folder(job) / "last").readlink().name
        site.lab.wait_state(job, "COMPLETED")
        site.lab.run("scontrol", "requeue", str(job))
    ends = {}
    for job in (srun, batch):
        site.ready(job, restart=1)
        assert site.ltgf.json("checkpoint", str(job))["state"] == "saved"
        ends[job] = site.order_end(job)
    site.check_end(srun, ends[srun], ranks=4)
    site.check_end(batch, ends[batch], ranks=2)
