"""Upscaler: pictures enlarged by the C++ engine, by a network (ESRGAN, Real-ESRGAN) or a filter.

    upscale = Upscaler("RealESRGAN_x4plus.pth")
    large = upscale("a.png")
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_void_p
from pathlib import Path
from typing import Any, Callable, Optional, Union

from ._engine_gate import Gate
from ._engine_library import Callbacks, Cancelled, EngineError, ProgressFn, Result, engine_library, option_list
from ._engine_values import bytes_of, device_name, opened, output_of

__all__ = ["Upscaler"]


class Upscaler:
    """One call at a time; other threads wait. Errors are EngineError with the engine's sentence."""

    def __init__(self, upscaler: Union[str, Path], device: Any = "auto", dtype: str = "auto") -> None:
        """upscaler: a .safetensors or .pth file of an RRDBNet, SRVGGNetCompact, SPAN or SwinIR, or "lanczos", "bicubic", "nearest". device as PyTorch
        names it, too; dtype: auto (f16 on GPUs, f32 on the CPU), f16, bf16, f32."""
        self._handle = c_void_p()
        self._library = engine_library()
        self._gate = Gate()
        wanted = option_list({"upscaler": upscaler, "device": device_name(device), "dtype": dtype})
        self._check(self._library.rocm_sd_upscaler_create(wanted, ctypes.byref(self._handle)))

    def __call__(self, image: Any, factor: Optional[float] = None, width: Optional[int] = None, height: Optional[int] = None,
                 tile: Optional[int] = None, tile_overlap: Optional[int] = None, output_type: str = "pil",
                 callback: Optional[Callable[[str, int, int, float], Any]] = None) -> Any:
        """image: a path, a PIL picture, or [H,W,3] uint8 or float in 0..1, as numpy or through DLPack. factor, or width and height of
        the result; absent: the network's own factor. tile: side of the windows (512; 0: none), tile_overlap: what they share (64).
        output_type: "pil", "np" (uint8 [H,W,3]) or "pt". callback(stage, window, windows, seconds): a true result cancels."""
        if output_type not in ("pil", "np", "pt"):
            raise ValueError(f"output_type {output_type!r}: expected pil, np or pt")
        pixels = bytes_of(opened(image), "image", 3)
        options = option_list({"factor": factor, "width": width, "height": height, "tile": tile, "tile_overlap": tile_overlap})
        result, raised = POINTER(Result)(), []

        def progress(_user: Any, stage: bytes, step: int, total: int, seconds: float) -> int:
            try:
                with self._gate.callback():
                    return 1 if callback is not None and callback(stage.decode(), step, total, seconds) else 0
            except BaseException as error:  # noqa: BLE001 (raised again once the engine has returned)
                raised.append(error)
                return 1

        with self._gate.drawing(1), self._gate.cancellable() as cancel:
            if not self._handle:
                raise EngineError(2, "the upscaler was closed")
            function = ProgressFn(progress)
            callbacks = Callbacks(function, None, ctypes.pointer(cancel))
            status = self._library.rocm_sd_upscale(self._handle, options, pixels.shape[1], pixels.shape[0], pixels.ctypes.data,
                                                   ctypes.byref(callbacks), ctypes.byref(result))
            if raised:
                raise raised[0]
            self._check(status)
            try:
                return output_of(result.contents, output_type).images[0]
            finally:
                self._library.rocm_sd_result_free(result)

    def cancel(self) -> None:
        """Stops the call that runs; another thread's or a callback's."""
        self._gate.cancel()

    def _check(self, status: int) -> None:
        if status != 0:
            raise (Cancelled if status == 6 else EngineError)(status, self._library.rocm_sd_last_error().decode())

    def close(self) -> None:
        """Gives the memory back."""
        with self._gate.alone():
            self._give_back()

    def _give_back(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), c_void_p()
        if handle:
            self._library.rocm_sd_upscaler_free(handle)

    def __enter__(self) -> "Upscaler":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self._give_back()
