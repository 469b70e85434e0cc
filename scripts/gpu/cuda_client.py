#!/usr/bin/env python3
"""One client of a GPU, by the CUDA driver alone: what it sees, may allocate, and how fast it is.

Prints one line of JSON a step. Steps: `see` (devices, multiprocessors, free memory), `alloc=GiB`
(one allocation more, kept), `spin=SECONDS,BLOCKS` (kernels of some 0.2 ms one after the other),
`device=N` (what follows is on the Nth visible device), `wait=FILE` (until it is there),
`touch=FILE`, `sleep=SECONDS`. A step that CUDA refuses says so and
does not end it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path

GIB = 1 << 30
MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
THREADS, ROUNDS = 256, 60_000
#: A chain of dependent multiply-adds: as long as ROUNDS says, whatever the number of blocks.
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 out, .param .u32 rounds)
{
    .reg .pred %p;
    .reg .f32 %f<3>;
    .reg .u32 %r<3>;
    .reg .u64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [rounds];
    mov.u32 %r2, 0;
    mov.f32 %f1, 0f3F800000;
    mov.f32 %f2, 0f3F7FFFFE;
loop:
    fma.rn.f32 %f1, %f1, %f2, %f2;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, %r1;
    @%p bra loop;
    st.global.f32 [%rd1], %f1;
    ret;
}
\0"""


class Refused(Exception):
    """CUDA said no; the error's name."""


class Client:
    """A context on a visible device."""

    def __init__(self, number: int = 0) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        self._call("cuDeviceGet", ctypes.byref(device), number)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self.devices, self._device = count.value, device
        self._kernel: ctypes.c_void_p | None = None

    def see(self) -> dict[str, object]:
        """What the device shows to this client."""
        cores, free, total = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuDeviceGetAttribute", ctypes.byref(cores), MULTIPROCESSORS, self._device)
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return {
            "devices": self.devices,
            "multiprocessors": cores.value,
            "free_gib": round(free.value / GIB, 2),
        }

    def alloc(self, gib: float) -> dict[str, object]:
        """Keep so much more device memory."""
        at = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(int(gib * GIB)))
        self._call("cuMemsetD8_v2", at, ctypes.c_ubyte(1), ctypes.c_size_t(int(gib * GIB)))
        self._call("cuCtxSynchronize")
        return {"allocated_gib": gib}

    def spin(self, seconds: float, blocks: int) -> dict[str, object]:
        """Kernels one after the other; how many a second, and how long one takes."""
        kernel = self._load()
        out = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(out), ctypes.c_size_t(64))
        rounds = ctypes.c_uint32(ROUNDS)
        arguments = (ctypes.c_void_p * 2)(
            ctypes.cast(ctypes.byref(out), ctypes.c_void_p),
            ctypes.cast(ctypes.byref(rounds), ctypes.c_void_p),
        )
        took: list[float] = []
        end = time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            self._call("cuLaunchKernel", kernel, blocks, 1, 1, THREADS, 1, 1, 0, None, arguments,
                       None)  # fmt: skip
            self._call("cuCtxSynchronize")
            took.append(time.monotonic() - began)
        took.sort()
        return {
            "blocks": blocks,
            "kernels_per_s": round(len(took) / seconds, 1),
            "median_ms": round(1e3 * took[len(took) // 2], 3),
            "p99_ms": round(1e3 * took[len(took) * 99 // 100], 3),
        }

    def _load(self) -> ctypes.c_void_p:
        if self._kernel is None:
            module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
            self._call("cuModuleLoadData", ctypes.byref(module), PTX)
            self._call("cuModuleGetFunction", ctypes.byref(kernel), module, b"spin")
            self._kernel = kernel
        return self._kernel

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, ctypes.byref(text))
            raise Refused((text.value or b"?").decode())


def main() -> int:
    """The steps of the command line, in turn."""
    client: Client | None = None
    for step in sys.argv[1:]:
        name, _, value = step.partition("=")
        try:
            if name == "sleep":
                time.sleep(float(value))
            elif name == "touch":
                Path(value).touch()
            elif name == "wait":
                end = time.monotonic() + 120
                while not Path(value).exists() and time.monotonic() < end:
                    time.sleep(0.01)
            elif name == "device":
                client = Client(int(value))
            else:
                client = client or Client()
                tell(step, did(client, name, value))
        except Refused as refused:
            tell(step, {"refused": str(refused)})
    return 0


def did(client: Client, name: str, value: str) -> dict[str, object]:
    """A step on the GPU."""
    if name == "see":
        return client.see()
    if name == "alloc":
        return client.alloc(float(value))
    if name == "spin":
        seconds, blocks = value.split(",")
        return client.spin(float(seconds), int(blocks))
    raise SystemExit(f"no step {name!r}")


def tell(step: str, what: dict[str, object]) -> None:
    """One line, with the task's number."""
    told = {"task": os.environ.get("SLURM_PROCID", "0"), "step": step, **what}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    sys.exit(main())
