"""ROCmSDBackend: what this process's PyTorch and our library can do together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

import torch

from . import _library, tuning
from .explain import Explanation, explain, fallbacks
from .optimize import optimize_sd_model, restore
from .profiling import profile


@dataclass(frozen=True)
class Capabilities:
    """device: "cpu" or "cuda:0"; name of it; kernels: whether ours run there, else why not; dtypes that ours take."""

    device: str
    name: str
    kernels: bool
    reason: str
    dtypes: tuple[torch.dtype, ...]


class ROCmSDBackend:
    """The package's functions for one device ("cpu", "cuda", "cuda:1"; None: a GPU that has kernels, else the CPU)."""

    def __init__(self, device: Union[str, torch.device, None] = None) -> None:
        if device is None:
            device = "cpu"
            if torch.cuda.is_available() and self._probe(torch.device("cuda")) == "":
                device = "cuda"
        self.device = torch.device(device)

    @staticmethod
    def _probe(device: torch.device) -> str:
        """Why our kernels do not run on the device, or ""."""
        try:
            x = torch.zeros(1, 1, 1, 8, dtype=torch.float32, device=device)
        except (RuntimeError, AssertionError) as error:
            return str(error).splitlines()[0]
        told = explain("attention", x, x, x)
        return told.lines[-1].split("PyTorch's own: ", 1)[-1] if told.kernel == "pytorch" else ""

    def capabilities(self) -> Capabilities:
        """What runs on the device."""
        reason = self._probe(self.device)
        on_gpu = self.device.type == "cuda"
        dtypes = (torch.float32, torch.bfloat16) + ((torch.float16,) if on_gpu else ())
        name = "CPU" if self.device.type == "cpu" else self.device.type
        if on_gpu:
            name = torch.cuda.get_device_name(self.device) if torch.cuda.is_available() else "no GPU"
        return Capabilities(str(self.device), name, reason == "", reason, () if reason else dtypes)

    def optimize(self, model: Any, level: str = "auto") -> Any:
        """optimize_sd_model(model, level)."""
        return optimize_sd_model(model, level)

    def restore(self, model: Any) -> Any:
        """restore(model)."""
        return restore(model)

    def explain(self, op: str, *args: Any, **kwargs: Any) -> Explanation:
        """explain(op, ...)."""
        return explain(op, *args, **kwargs)

    tuning = tuning  # rocm_sd_ops.tuning: load, export, export_tunable_op, use

    def fallbacks(self) -> list[str]:
        """fallbacks()."""
        return fallbacks()

    def profile(self, record_shapes: bool = False) -> profile:
        """profile(record_shapes)."""
        return profile(record_shapes)

    def __repr__(self) -> str:
        can = self.capabilities()
        state = "kernels of rocm-sd" if can.kernels else f"PyTorch's own: {can.reason}"
        return f"ROCmSDBackend({can.device}: {can.name}; {state}; {_library.library_path()})"


