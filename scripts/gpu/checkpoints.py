"""Pause and resume on a real GPU: the fast path, the driver, torch.save; how long, and to the bit.

Beside them what a pinned copy reaches in the same run, what asking costs, what helps the driver.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from driver_limits import limits
from programs import Program, driver_cycle, program, used_mib

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
Check = Callable[..., None]
GIB = 1 << 30


def sizes(check: Check, gib: int) -> dict[str, Any]:
    """One size: each way, its seconds, and whether the training went on to the bit."""
    row: dict[str, Any] = {"gib": gib}
    with program(gib) as one:
        row["live_bytes"] = one.live_bytes
        alone = [*one.do("step", 3)["losses"], *one.do("step", 3)["losses"], one.do("sum")["sum"]]
    row["driver"] = one_driver(check, gib, alone)
    row["app"] = one_app(check, gib, alone)
    row["torch_save"] = one_save(check, gib, alone)
    show(check, row)
    return row


def ends_as(training: Program, first: list[str], alone: list[Any]) -> bool:
    """Go on after a pause; whether all losses and weights are those of the undisturbed run."""
    rest = training.do("step", 3)["losses"]
    return [*first, *rest, training.do("sum")["sum"]] == alone


def one_driver(check: Check, gib: int, alone: list[Any]) -> dict[str, Any]:
    with program(gib) as one:
        first = one.do("step", 3)["losses"]
        found = driver_cycle(one.process.pid)
        is_same = "error" not in found and ends_as(one, first, alone)
        check(f"{gib} GiB, driver: goes on to the bit", found.get("error", is_same), ok=is_same)
        return found


def one_app(check: Check, gib: int, alone: list[Any]) -> dict[str, Any]:
    with program(gib) as one:
        first = one.do("step", 3)["losses"]
        prepare = one.do("prepare")
        pause = one.do("pause")
        meanwhile = used_mib()
        resume = one.do("resume")
        is_same = ends_as(one, first, alone)
        check(f"{gib} GiB, app: goes on to the bit", is_same, ok=is_same)
        limit = one.do("limit")
    return {
        "prepare_s": prepare["seconds"], "bytes": prepare["bytes"], "pause_s": pause["seconds"],
        "resume_s": resume["seconds"], "gpu_mib_meanwhile": meanwhile, "limit": limit,
    }  # fmt: skip


def one_save(check: Check, gib: int, alone: list[Any]) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="ltgf.", dir="/dev/shm"))
    try:
        with program(gib) as one:
            first = one.do("step", 3)["losses"]
            saved = one.do("save", folder / "all.pt")
        if "error" in saved:
            check(f"{gib} GiB, torch.save", saved["error"], ok=False)
            return saved
        with program(gib) as other:
            other.do("step", 1)
            loaded = other.do("load", folder / "all.pt")
            is_same = ends_as(other, first, alone)
        check(f"{gib} GiB, torch.save: goes on to the bit", is_same, ok=is_same)
        return {"pause_s": saved["seconds"], "bytes": saved["bytes"], "resume_s": loaded["seconds"]}
    finally:
        shutil.rmtree(folder)


def show(check: Check, row: dict[str, Any]) -> None:
    app, limit = row["app"], row["app"]["limit"]
    out_s, in_s = (row["live_bytes"] / 1e9 / limit[key] for key in ("out_gb_s", "in_gb_s"))
    row["limit_s"] = (out_s, in_s)
    for way in ("driver", "app", "torch_save"):
        print(f"      {row['gib']} GiB {way}: {json.dumps(row[way])}", flush=True)
    for name, took, least in (("pause", app["pause_s"], out_s), ("resume", app["resume_s"], in_s)):
        seen = f"{took:.2f} s, {took / least:.2f} x the pinned copy's {least:.2f} s"
        check(f"{row['gib']} GiB, app: {name}", seen, ok=row["gib"] < 80 or took <= 1.3 * least)


def overhead(check: Check) -> dict[str, Any]:
    """What requested() costs in a loop of steps."""
    with program(0.75) as one, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        found = one.do("overhead", folder)
    step_s = found["step_without_s"][len(found["step_without_s"]) // 2]
    found["share"] = found["call_s"] / step_s
    seen = f"{found['call_s'] * 1e6:.2f} us a call, {found['share']:.4%} of a {step_s * 1e3:.1f} ms"
    check("requested()", f"{seen} step", ok=found["share"] < 0.001)
    return found


def what_helps(check: Check) -> list[dict[str, Any]]:
    """20 GiB by the driver: as it is, with huge pages, and held by PyTorch's cache alone."""
    rows = []

    def note(way: str, training: Program) -> None:
        found = {"way": way, "reserved": training.live_bytes, **driver_cycle(training.process.pid)}
        rows.append(found)
        check(f"driver, {way}", json.dumps(found), ok="error" not in found)

    for way, variables in (
        ("20 GiB live", {}),
        ("20 GiB live, glibc.malloc.hugetlb=1", {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
    ):
        with program(20, **variables) as one:
            one.do("step", 1)
            note(way, one)
            if not variables:
                note("20 GiB live, a second time", one)
    with always_huge_pages() as is_set:
        if is_set:
            with program(20) as one:
                one.do("step", 1)
                note("20 GiB live, transparent_hugepage=always", one)
    with program(0.75) as one:
        one.do("step", 1)
        one.do("hoard", 20)
        note("0.75 GiB live, 20 GiB in PyTorch's cache", one)
        one.do("empty")
        note("the same after torch.cuda.empty_cache()", one)
    return rows


@contextmanager
def always_huge_pages() -> Iterator[bool]:
    """The machine's setting changed meanwhile; False: it cannot be."""
    try:
        before = THP.read_text().partition("[")[2].partition("]")[0]
        THP.write_text("always")
    except OSError as error:
        print(f"      {THP}: {error}")
        yield False
        return
    try:
        yield True
    finally:
        THP.write_text(before)


def touch_memory(gib: int) -> float:
    """Touch memory once: a virtual machine may get its own only then, which would be measured."""
    code = (
        "import mmap, os, sys\n"
        "for _ in range(16):\n"
        "    if os.fork() == 0:\n"
        "        part = mmap.mmap(-1, int(sys.argv[1]) << 26)\n"
        "        part.madvise(mmap.MADV_HUGEPAGE)\n"
        "        for at in range(0, len(part), 4096): part[at] = 1\n"
        "        os._exit(0)\n"
        "for _ in range(16): os.wait()\n"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code, str(gib)], check=False)
    return time.monotonic() - began


def checkpoints(check: Check, which: list[int], parts: list[str]) -> dict[str, Any]:
    """What is asked for, the small sizes first."""
    found: dict[str, Any] = {"sizes": []}
    found["touched_s"] = touch_memory(min(max(which) + 20, memory_gib() - 12))
    print(f"      host memory touched in {found['touched_s']:.1f} s", flush=True)
    for part, work in (("overhead", overhead), ("limits", limits), ("helps", what_helps)):
        if part in parts:
            guarded(check, part, lambda work=work, part=part: found.update({part: work(check)}))
    for gib in which if "sizes" in parts else ():
        guarded(check, f"{gib} GiB", lambda gib=gib: found["sizes"].append(sizes(check, gib)))
    return found


def guarded(check: Check, what: str, work: Callable[[], object]) -> None:
    began = time.monotonic()
    try:
        work()
    except (RuntimeError, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
        check(what, f"{type(error).__name__}: {error}", ok=False)
    print(f"--- {what}: {time.monotonic() - began:.0f} s", flush=True)


def memory_gib() -> int:
    """What this machine may use: its cgroup's limit where that is told, else all it has."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/sys/fs/cgroup/memory.max").read_text()) // GIB
    return 128
