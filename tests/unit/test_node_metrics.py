"""A node's GPUs, held against used. The driver is a fake at pynvml's own boundary: its functions,
its answers and its errors as NVIDIA documents them."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_ltgf.cli.main import run
from slurm_ltgf.metrics import gpu_jobs
from slurm_ltgf.metrics.catalog import HEALTH
from slurm_ltgf.metrics.catalog_node import NODE
from slurm_ltgf.metrics.exporter import Exporter
from slurm_ltgf.metrics.node import families
from slurm_ltgf.metrics.nvml import Nvml
from tests.metrics_site import Samples, has_no_objection, samples, value


@dataclass
class Card:
    """One GPU as the driver shows it; a value that is an error's name is raised."""

    uuid: str
    minor: int = 0
    use: int | str = 0
    processes: list[int] | str = field(default_factory=list)
    clients: list[int] | str = field(default_factory=list)
    samples: list[tuple[int, int]] | str = "NotFound"
    mig: list[str] = field(default_factory=list)


class Driver(types.ModuleType):
    """What `import pynvml` gives."""

    def __init__(self, *cards: Card) -> None:
        super().__init__("pynvml")
        self.cards = list(cards)
        self.gone = ""
        self.opened = 0
        self.asked_since: dict[str, int] = {}
        self.NVMLError = type("NVMLError", (Exception,), {})
        for name in ("LibraryNotFound", "NotSupported", "NotFound", "GpuIsLost", "NoPermission"):
            setattr(self, f"NVMLError_{name}", type(f"NVMLError_{name}", (self.NVMLError,), {}))

    def answer(self, found: object) -> object:
        if isinstance(found, str):
            raise getattr(self, f"NVMLError_{found}")(found)
        return found

    def nvmlInit(self) -> None:
        self.answer("LibraryNotFound" if self.gone == "driver" else None)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        self.answer(self.gone or None)
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self.cards[index]

    def nvmlDeviceGetUUID(self, of: Card | str) -> str:
        return of if isinstance(of, str) else of.uuid

    def nvmlDeviceGetMinorNumber(self, of: Card) -> int:
        return of.minor

    def nvmlDeviceGetName(self, of: Card) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetUtilizationRates(self, of: Card) -> object:
        return types.SimpleNamespace(gpu=self.answer(of.use), memory=0)

    def nvmlDeviceGetMemoryInfo(self, of: Card) -> object:
        return types.SimpleNamespace(total=143 << 30, free=100 << 30, used=43 << 30)

    def nvmlDeviceGetComputeRunningProcesses(self, of: Card) -> list[object]:
        return [types.SimpleNamespace(pid=pid) for pid in self.answer(of.processes)]  # type: ignore[attr-defined]

    def nvmlDeviceGetMPSComputeRunningProcesses(self, of: Card) -> list[object]:
        return [types.SimpleNamespace(pid=pid) for pid in self.answer(of.clients)]  # type: ignore[attr-defined]

    def nvmlDeviceGetProcessUtilization(self, of: Card, since: int) -> list[object]:
        self.asked_since[of.uuid] = since
        found = self.answer(of.samples)
        return [
            types.SimpleNamespace(pid=pid, smUtil=use, timeStamp=since + 1000)
            for pid, use in found  # type: ignore[attr-defined]
        ]

    def nvmlDeviceGetMaxMigDeviceCount(self, of: Card) -> int:
        return 7 if of.mig else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, of: Card, place: int) -> str:
        return of.mig[place] if place < len(of.mig) else str(self.answer("NotFound"))


@dataclass
class Node:
    """A node with a driver, GPU-to-job files and processes."""

    folder: Path
    proc: Path
    driver: Driver
    has_files: bool = True
    most_jobs: int = 0
    nvml: Nvml = field(default_factory=Nvml)

    def holds(self, job: int, *gpus: object, more: str = "\n") -> None:
        """The prolog writes a job into the files of its GPUs."""
        self.folder.mkdir(exist_ok=True)
        for gpu in gpus:
            with (self.folder / str(gpu)).open("a") as file:
                file.write(f"{job}{more}")

    def process(self, pid: int, cgroup: str, **environ: str) -> None:
        """A process of this node."""
        place = self.proc / str(pid)
        place.mkdir()
        (place / "cgroup").write_text(cgroup + "\n")
        (place / "environ").write_bytes(
            b"".join(f"{key}={text}\0".encode() for key, text in environ.items())
        )

    def of_job(self, pid: int, job: int) -> None:
        self.process(pid, f"0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0")

    def exporter(self) -> Exporter:
        folder = self.folder if self.has_files else None
        made = Exporter(lambda: families(self.nvml, folder, most_jobs=self.most_jobs), stale_s=60)
        made.refresh()
        return made

    def scrape(self) -> Samples:
        return samples(self.exporter().page().text())


@pytest.fixture
def node(tmp_path, monkeypatch) -> Node:
    (tmp_path / "proc").mkdir()
    monkeypatch.setattr(gpu_jobs, "PROC", tmp_path / "proc")
    driver = Driver(Card("GPU-aa", minor=0), Card("GPU-bb", minor=1))
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    return Node(tmp_path / "gpumap", tmp_path / "proc", driver)


def of_gpu(found: Samples, name: str, gpu: int = 0) -> float | None:
    return value(found, f"ltgf_node_gpu_{name}", gpu=str(gpu))


def of_job(found: Samples, name: str, job: int) -> float | None:
    return value(found, f"ltgf_node_job_{name}", job_id=str(job))


def test_held_against_used(node):
    """Two GPUs held, one of them idle: what dcgm and jobstats name by index or UUID."""
    node.driver.cards[0].use = 80
    node.holds(41, 0, "GPU-bb", more=" 1000\n")
    node.most_jobs = 10
    found = node.scrape()
    assert of_gpu(found, "utilization_ratio") == 0.8
    assert of_gpu(found, "utilization_ratio", 1) == 0
    assert of_gpu(found, "jobs") == of_gpu(found, "jobs", 1) == 1
    assert of_gpu(found, "memory_used_bytes") == 43 << 30
    assert of_job(found, "gpus", 41) == 2
    assert of_job(found, "used_gpus", 41) == 0.8


def test_jobs_are_told_of_only_if_wanted_and_only_so_many(node):
    for job in (41, 42, 43):
        node.holds(job, 0)
    node.holds(43, 1)
    assert not [name for name, _ in node.scrape() if "job_" in name]
    node.most_jobs = 2
    found = node.scrape()
    jobs = {dict(labels)["job_id"] for name, labels in found if name == "ltgf_node_job_gpus"}
    assert jobs == {"43", "41"}  # most GPUs first


def test_slurm_counts_by_the_device_file_not_by_nvml(node):
    node.driver.cards[0].minor, node.driver.cards[1].minor = 1, 0
    node.holds(41, 1)
    found = node.scrape()
    assert (of_gpu(found, "jobs", 0), of_gpu(found, "jobs", 1)) == (1, 0)


def test_a_shared_gpu_is_split_as_the_driver_tells(node):
    card = node.driver.cards[0]
    card.use, card.processes = 70, [100, 200]
    card.samples = [(100, 20), (100, 40), (200, 40), (0, 4_000_000)]  # the last is unused memory
    node.holds(41, 0)
    node.holds(42, 0)
    node.of_job(100, 41)
    node.of_job(200, 42)
    node.most_jobs = 10
    found = node.scrape()
    assert of_job(found, "used_gpus", 41) == pytest.approx(0.3)
    assert of_job(found, "used_gpus", 42) == pytest.approx(0.4)
    assert of_gpu(found, "processes") == 2
    node.scrape()
    assert node.driver.asked_since[card.uuid] == 1000  # only what is new


@pytest.mark.parametrize("samples", ["NotSupported", "NoPermission", [(100, 40), (999, 10)]])
def test_what_the_driver_does_not_tell_of_a_shared_gpu_is_absent(node, samples):
    """999 is nobody's that we know: perhaps an MPS server that several jobs share."""
    card = node.driver.cards[0]
    card.use, card.samples, card.processes = 70, samples, [100]
    node.holds(41, 0)
    node.holds(42, 0)
    node.of_job(100, 41)
    node.most_jobs = 10
    found = node.scrape()
    assert of_job(found, "used_gpus", 41) is None
    assert of_job(found, "gpus", 41) == 1
    assert of_gpu(found, "utilization_ratio") == 0.7


def test_the_server_of_a_jobs_own_mps_daemon_is_the_jobs(node):
    """The driver books what MPS clients do on their server, which is in no job's cgroup."""
    card = node.driver.cards[0]
    card.use, card.processes, card.clients = 60, [50], [100, 101]
    card.samples = [(50, 60)]
    node.process(
        50, "0::/system.slice/slurmd.service",
        HOME="/", CUDA_MPS_PIPE_DIRECTORY="/run/ltgf/41/mps.0/p", PATH="/bin",
    )  # fmt: skip
    node.of_job(100, 41)
    node.of_job(101, 41)
    node.holds(41, 0)
    node.holds(42, 0)
    node.most_jobs = 10
    found = node.scrape()
    assert of_gpu(found, "mps_clients") == 2
    assert of_job(found, "used_gpus", 41) == pytest.approx(0.6)
    assert of_job(found, "used_gpus", 42) == 0


def test_without_files_only_what_works_is_known_to_be_held(node):
    node.has_files = False
    node.driver.cards[0].processes = [100]
    node.process(100, "5:freezer:/slurm/uid_1000/job_41/step_batch")
    found = node.scrape()
    assert of_gpu(found, "jobs") == 1
    assert of_gpu(found, "jobs", 1) is None  # idle, or held and idle: not known, so not zero


def test_a_folder_that_nobody_has_made_yet_says_nothing(node):
    assert of_gpu(node.scrape(), "jobs") is None
    node.folder.mkdir()
    assert of_gpu(node.scrape(), "jobs") == 0


def test_a_card_under_mig_has_no_utilisation_and_its_parts_jobs(node):
    card = node.driver.cards[0]
    card.use, card.mig = "NotSupported", ["MIG-1", "MIG-2"]
    node.holds(41, "MIG-1")
    node.holds(42, "MIG-2")
    node.most_jobs = 10
    found = node.scrape()
    assert of_gpu(found, "utilization_ratio") is None
    assert of_gpu(found, "jobs") == 2
    assert of_job(found, "used_gpus", 41) is None


def test_no_driver_is_one_line_and_no_series(node, capsys):
    node.driver.gone = "driver"
    assert run(["exporter", "--node", "--once"]) == 74
    assert capsys.readouterr().err == (
        "ltgf: metrics: NVML: no NVIDIA driver on this node: LibraryNotFound\n"
    )
    found = node.scrape()
    assert value(found, "ltgf_up") == 0
    assert not [name for name, _ in found if "node" in name]


def test_a_package_that_is_missing_is_named(node, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert run(["exporter", "--node", "--once"]) == 74
    assert "pip install 'slurm-ltgf[gpu]'" in capsys.readouterr().err


def test_a_gpu_that_falls_off_the_bus_is_told_and_the_driver_asked_anew(node):
    exporter = node.exporter()
    node.driver.gone = "GpuIsLost"
    assert exporter.refresh() == "NVML: the driver does not answer: GpuIsLost"
    found = samples(exporter.page().text())
    assert value(found, "ltgf_up") == 0
    node.driver.gone = ""
    assert exporter.refresh() == ""
    assert node.driver.opened == 1


def test_nonsense_in_the_files_is_no_job(node):
    node.folder.mkdir()
    (node.folder / "0").write_bytes(b"\xff\xfe\n-1\n41x\n99999999999\n \n42 1000\n\x0043\n")
    (node.folder / "1").mkdir()
    found = node.scrape()
    assert (of_gpu(found, "jobs"), of_gpu(found, "jobs", 1)) == (1, 0)


def test_the_page_has_everything_in_the_catalog_and_is_clean(node):
    node.driver.cards[0].use = 10
    node.holds(41, 0)
    node.most_jobs = 10
    text = node.exporter().page().text()
    known = {one.name for group in (HEALTH, *NODE) for one in group.metrics}
    assert {name for name, _ in samples(text)} == known
    has_no_objection(text)
