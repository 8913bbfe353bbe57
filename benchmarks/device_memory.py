"""Device memory that is in use, of all programs together: what amdgpu's files, NVML or nvidia-smi say.

    with Peak(reader()) as peak: ...
    peak.bytes    the most while it ran, less what was in use before

Programs count their own memory each in another way; this counts the same for all of them, with the driver's context and kernels, and with
whatever else takes memory of the device meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Optional

Reader = Callable[[], int]
_HOLD_A_CONTEXT = """
import ctypes, time
cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
time.sleep(1)
"""


def from_amdgpu(root: Path = Path("/sys/class/drm")) -> Optional[Reader]:
    """Of the card that has most memory."""
    cards = sorted(root.glob("card*/device/mem_info_vram_total"), key=lambda path: int(path.read_text()))
    if not cards:
        return None
    used = cards[-1].with_name("mem_info_vram_used")
    return lambda: int(used.read_text())


class _NvmlMemory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def from_nvml() -> Optional[Reader]:
    """Of the first GPU."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    device, memory = ctypes.c_void_p(), _NvmlMemory()
    if nvml.nvmlInit_v2() != 0 or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) != 0:
        return None

    def used() -> int:
        return memory.used if nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0 else 0

    return used if used() > 0 or memory.total > 0 else None


def from_nvidia_smi() -> Optional[Reader]:
    def used() -> int:
        done = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"], capture_output=True, text=True)
        return int(done.stdout.split()[0]) << 20

    try:
        used()
    except (OSError, IndexError, ValueError):
        return None
    return used


def reader() -> tuple[Optional[Reader], str]:
    """The first that answers, and its name."""
    for name, make in (("amdgpu", from_amdgpu), ("NVML", from_nvml), ("nvidia-smi", from_nvidia_smi)):
        found = make()
        if found is not None:
            return found, name
    return None, "none"


class Peak:
    """Looks every 5 ms on a thread of its own. bytes: 0 where there is nothing to read."""

    def __init__(self, read: Optional[Reader], interval: float = 0.005):
        self.read, self.interval, self.bytes, self.before = read, interval, 0, 0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self) -> None:
        while not self.stopped.wait(self.interval):
            self.bytes = max(self.bytes, self.read() - self.before)

    def __enter__(self) -> Peak:
        if self.read is not None:
            self.before = self.read()
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        if self.read is not None:
            self.thread.join()


def settled(read: Optional[Reader], seconds: float = 10.0) -> None:
    """Waits until the memory of a program that has ended is free again: until it stays the same."""
    end, before = time.monotonic() + seconds, -1
    while read is not None and time.monotonic() < end:
        now = read()
        if now == before:
            return
        before = now
        time.sleep(0.3)


def cuda_context_bytes(read: Optional[Reader]) -> int:
    """What a process with a context and nothing else takes; 0 where there is no CUDA."""
    with Peak(read) as peak, contextlib.suppress(OSError):
        if subprocess.run([sys.executable, "-c", _HOLD_A_CONTEXT], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            return 0
    return peak.bytes
