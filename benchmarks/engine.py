"""rocm-sd from Python through its C interface (include/rocm_sd/rocm_sd.h), for tools that need no PyTorch.

    with Engine("build/cpu/librocm_sd.so", model="models/demo", device="cpu") as engine:
        picture = engine.draw(prompt="a red apple", steps=8, seed=1)[0]   # [H,W,3] of uint8
"""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np


def _c_interface() -> Any:
    """rocm_sd_ops._engine_library without the package, which would load PyTorch."""
    path = Path(__file__).resolve().parents[1] / "python" / "rocm_sd_ops" / "_engine_library.py"
    spec = importlib.util.spec_from_file_location("_rocm_sd_engine_library", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_c = _c_interface()
EngineError = _c.EngineError


class _Result:
    """Frees a result with the last picture that lies in its memory."""

    def __init__(self, library: ctypes.CDLL, result: Any):
        self.library, self.result = library, result

    def __del__(self) -> None:
        self.library.rocm_sd_result_free(self.result)


def _pictures(library: ctypes.CDLL, result: Any) -> list[np.ndarray]:
    owner, out = _Result(library, result), []
    for p in result.contents.pictures[:result.contents.count]:
        memory = (ctypes.c_uint8 * (p.height * p.width * 3)).from_address(ctypes.addressof(p.rgb.contents))
        memory.owner = owner  # type: ignore[attr-defined]
        out.append(np.frombuffer(memory, np.uint8).reshape(p.height, p.width, 3))
    return out


class Engine:
    """One pipeline: one call at a time. Options are the command line's long ones, as keywords."""

    def __init__(self, library: str | Path, **load: Any):
        self.library = _c.open_library(str(Path(library).resolve()))
        self.pipeline = ctypes.c_void_p()
        self.check(self.library.rocm_sd_create(_c.option_list(load), None, ctypes.byref(self.pipeline)))

    def check(self, status: int) -> None:
        if status != 0:
            raise EngineError(status, self.library.rocm_sd_last_error().decode(errors="replace"))

    @property
    def version(self) -> str:
        return self.library.rocm_sd_version().decode()

    def draw(self, **request: Any) -> list[np.ndarray]:
        result = ctypes.POINTER(_c.Result)()
        self.check(self.library.rocm_sd_generate_from(self.pipeline, _c.option_list(request), None, None, ctypes.byref(result)))
        return _pictures(self.library, result)

    def close(self) -> None:
        if self.pipeline:
            self.library.rocm_sd_free(self.pipeline)
            self.pipeline = ctypes.c_void_p()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class UpscaleEngine:
    """One upscaler: one call at a time. Options are those of `rocm-sd upscale`, as keywords."""

    def __init__(self, library: str | Path, **load: Any):
        self.library = _c.open_library(str(Path(library).resolve()))
        self.upscaler = ctypes.c_void_p()
        self.check(self.library.rocm_sd_upscaler_create(_c.option_list(load), ctypes.byref(self.upscaler)))

    check = Engine.check

    def __call__(self, pixels: np.ndarray, **request: Any) -> np.ndarray:
        """[H,W,3] of uint8."""
        result, pixels = ctypes.POINTER(_c.Result)(), np.ascontiguousarray(pixels)
        self.check(self.library.rocm_sd_upscale(self.upscaler, _c.option_list(request), pixels.shape[1], pixels.shape[0], pixels.ctypes.data, None,
                                                ctypes.byref(result)))
        return _pictures(self.library, result)[0]

    def close(self) -> None:
        if self.upscaler:
            self.library.rocm_sd_upscaler_free(self.upscaler)
            self.upscaler = ctypes.c_void_p()
