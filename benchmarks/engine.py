"""rocm-sd from Python through its C interface (include/rocm_sd/rocm_sd.h), for tools that need neither PyTorch nor a build.

    with Engine("build/cpu/librocm_sd.so", model="models/demo", device="cpu") as engine:
        picture = engine.draw(prompt="a red apple", steps=8, seed=1)[0]   # [H,W,3] of uint8
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np


class Option(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class Picture(ctypes.Structure):
    _fields_ = [("width", ctypes.c_int), ("height", ctypes.c_int), ("rgb", ctypes.POINTER(ctypes.c_uint8)),
                ("seed", ctypes.c_uint64), ("parameters", ctypes.c_char_p)]


class Result(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t), ("pictures", ctypes.POINTER(Picture))]


class EngineError(RuntimeError):
    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def options(values: dict) -> ctypes.Array:
    """The C interface's list: names with dashes, ended by a NULL."""
    pairs = [Option(name.replace("_", "-").encode(), str(value).encode()) for name, value in values.items() if value is not None]
    return (Option * (len(pairs) + 1))(*pairs, Option(None, None))


class Engine:
    """One pipeline: one call at a time. Options are the command line's long ones, as keywords."""

    def __init__(self, library: str | Path, **load):
        self.library = ctypes.CDLL(str(Path(library).resolve()))
        self.library.rocm_sd_last_error.restype = ctypes.c_char_p
        self.library.rocm_sd_version.restype = ctypes.c_char_p
        self.library.rocm_sd_free.argtypes = [ctypes.c_void_p]
        self.library.rocm_sd_generate.argtypes = [ctypes.c_void_p, ctypes.POINTER(Option), ctypes.c_void_p,
                                                  ctypes.POINTER(ctypes.POINTER(Result))]
        self.pipeline = ctypes.c_void_p()
        self.check(self.library.rocm_sd_create(options(load), None, ctypes.byref(self.pipeline)))

    def check(self, status: int) -> None:
        if status != 0:
            raise EngineError(status, self.library.rocm_sd_last_error().decode(errors="replace"))

    @property
    def version(self) -> str:
        return self.library.rocm_sd_version().decode()

    def draw(self, **request) -> list[np.ndarray]:
        result = ctypes.POINTER(Result)()
        self.check(self.library.rocm_sd_generate(self.pipeline, options(request), None, ctypes.byref(result)))
        try:
            pictures = result.contents.pictures[:result.contents.count]
            return [np.ctypeslib.as_array(p.rgb, (p.height, p.width, 3)).copy() for p in pictures]
        finally:
            self.library.rocm_sd_result_free(result)

    def close(self) -> None:
        if self.pipeline:
            self.library.rocm_sd_free(self.pipeline)
            self.pipeline = ctypes.c_void_p()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_) -> None:
        self.close()
