"""The clocks, power and temperature of the first GPU, or of the CPU, sampled beside a benchmark by a thread.

    with ClockLog(meter_for("cuda")) as log:
        measure()
    log.summary()      # {"source": "NVML", "core_mhz": {"min", "median", "max"}, ...}, or None

The same readings as src/measurement/clocks.hpp: NVML, amdgpu's hwmon and pp_dpm_sclk, cpufreq or /proc/cpuinfo.
"""

from __future__ import annotations

import ctypes
import re
import statistics
import threading
from pathlib import Path
from typing import Optional


class Nvml:
    """libnvidia-ml.so.1, the GPU of the index that the driver counts."""

    source = "NVML"

    def __init__(self, index: int = 0, library: str = "libnvidia-ml.so.1"):
        self.library, self.device = ctypes.CDLL(library), ctypes.c_void_p()
        if self.library.nvmlInit_v2() != 0 or self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self.device)) != 0:
            raise OSError("NVML knows no such GPU")

    def number(self, function: str, *kind: int) -> Optional[int]:
        value = ctypes.c_uint()
        failed = getattr(self.library, function)(self.device, *kind, ctypes.byref(value))
        return None if failed else value.value

    def read(self) -> dict:
        watts = self.number("nvmlDeviceGetPowerUsage")
        return {"core_mhz": self.number("nvmlDeviceGetClockInfo", 1), "memory_mhz": self.number("nvmlDeviceGetClockInfo", 2),
                "watts": None if watts is None else watts / 1000, "celsius": self.number("nvmlDeviceGetTemperature", 0)}

    def core_max_mhz(self) -> Optional[float]:
        return self.number("nvmlDeviceGetMaxClockInfo", 1)

    def driver(self) -> str:
        text = ctypes.create_string_buffer(96)
        return text.value.decode() if self.library.nvmlSystemGetDriverVersion(text, 95) == 0 else ""


def number_in(path: Path, scale: float) -> Optional[float]:
    try:
        return float(path.read_text().split()[0]) * scale
    except (OSError, ValueError, IndexError):
        return None


class Amdgpu:
    """The first hwmon folder of amdgpu."""

    source = "amdgpu"

    def __init__(self, root: Path = Path("/")):
        self.root = root
        found = [p for p in sorted((root / "sys/class/hwmon").glob("hwmon*")) if (p / "name").is_file()
                 and (p / "name").read_text().strip() == "amdgpu"]
        if not found:
            raise OSError("no sensors of amdgpu")
        self.sensors = found[0]

    def levels(self, name: str) -> list[tuple[float, bool]]:
        try:
            text = (self.sensors / "device" / name).read_text()
        except OSError:
            return []
        return [(float(mhz), bool(star)) for mhz, star in re.findall(r"^\d+:\s*([\d.]+)\s*Mhz\s*(\*?)", text, re.M | re.I)]

    def read(self) -> dict:
        current = [mhz for mhz, star in self.levels("pp_dpm_sclk") if star]
        core = number_in(self.sensors / "freq1_input", 1e-6)
        watts = number_in(self.sensors / "power1_average", 1e-6)
        return {"core_mhz": core if core is not None else current[0] if current else None,
                "memory_mhz": number_in(self.sensors / "freq2_input", 1e-6),
                "watts": watts if watts is not None else number_in(self.sensors / "power1_input", 1e-6),
                "celsius": number_in(self.sensors / "temp1_input", 1e-3)}

    def core_max_mhz(self) -> Optional[float]:
        return max((mhz for mhz, _ in self.levels("pp_dpm_sclk")), default=None)

    def driver(self) -> str:
        try:
            return "amdgpu " + (self.root / "sys/module/amdgpu/version").read_text().strip()
        except OSError:
            return ""


class Cpu:
    """The fastest core: the others may have nothing to do."""

    def __init__(self, root: Path = Path("/")):
        self.root = root
        self.source = "cpufreq" if self.fastest("scaling_cur_freq") else "/proc/cpuinfo"

    def fastest(self, name: str) -> Optional[float]:
        values = (number_in(path, 1e-3) for path in (self.root / "sys/devices/system/cpu").glob(f"cpu[0-9]*/cpufreq/{name}"))
        return max((v for v in values if v is not None), default=None)

    def read(self) -> dict:
        core = self.fastest("scaling_cur_freq")
        if core is None:
            try:
                text = (self.root / "proc/cpuinfo").read_text()
            except OSError:
                text = ""
            core = max((float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", text, re.M)), default=None)
        return {"core_mhz": core}

    def core_max_mhz(self) -> Optional[float]:
        return self.fastest("cpuinfo_max_freq")

    def driver(self) -> str:
        return ""


def meter_for(device: str):
    """Of "cuda" (also what PyTorch on ROCm calls so), "hip" or "cpu"; None where nothing can be read."""
    kinds = {"cpu": (Cpu,), "hip": (Amdgpu,)}.get(device.split(":")[0], (Nvml, Amdgpu))
    for kind in kinds:
        try:
            meter = kind()
        except OSError:
            continue
        if meter.read().get("core_mhz") is not None:
            return meter
    return None


class ClockLog:
    def __init__(self, meter, seconds: float = 0.05):
        self.meter, self.seconds = meter, seconds
        self.readings: list[dict] = []
        self.over = threading.Event()
        self.thread: Optional[threading.Thread] = None

    def __enter__(self) -> ClockLog:
        self.over.clear()
        if self.meter is not None:
            self.thread = threading.Thread(target=self.sample, daemon=True)
            self.thread.start()
        return self

    def sample(self) -> None:
        while True:
            self.readings.append(self.meter.read())
            if self.over.wait(self.seconds):
                return

    def __exit__(self, *_) -> None:
        self.over.set()
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def values(self, name: str) -> list[float]:
        return [r[name] for r in self.readings if r.get(name) is not None]

    def summary(self) -> Optional[dict]:
        core = self.values("core_mhz")
        if not core:
            return None
        out = {"source": self.meter.source, "core_mhz": {"min": min(core), "median": statistics.median(core), "max": max(core)}}
        for name, value in (("core_max_mhz", self.meter.core_max_mhz()), ("memory_mhz", max(self.values("memory_mhz"), default=None)),
                            ("watts_max", max(self.values("watts"), default=None)),
                            ("celsius_max", max(self.values("celsius"), default=None))):
            if value is not None:
                out[name] = value
        return out
