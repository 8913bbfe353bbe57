"""The engine's library and its C interface in ctypes: structs, the search for librocm_sd.so, option lists. Needs nothing but the
standard library, so that benchmarks/engine.py reads this file without the package and its PyTorch."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint8, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Optional


ABI = 7  # of the structs below: ROCM_SD_ABI_VERSION of include/rocm_sd/rocm_sd.h


class EngineError(RuntimeError):
    """The engine's message; status is its exit code (2 wrong use, 3 file or format, 4 no device, 5 out of memory, ...)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Cancelled(EngineError):
    """A callback or cancel() stopped the call."""


class Option(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class Picture(ctypes.Structure):
    _fields_ = [("width", c_int), ("height", c_int), ("rgb", POINTER(c_uint8)), ("seed", c_uint64), ("parameters", c_char_p),
                ("latents", POINTER(c_float)), ("latents_count", c_size_t)]


class Result(ctypes.Structure):
    _fields_ = [("count", c_size_t), ("pictures", POINTER(Picture))]


class Tensor(ctypes.Structure):
    _fields_ = [("component", c_char_p), ("name", c_char_p), ("dtype", c_char_p), ("rank", c_int), ("shape", POINTER(c_int64)),
                ("data", c_void_p)]


class ControlImage(ctypes.Structure):
    _fields_ = [("width", c_int), ("height", c_int), ("rgb", c_void_p)]


class IpImage(ctypes.Structure):
    _fields_ = [("images", POINTER(ControlImage)), ("images_count", c_size_t), ("images_each", c_size_t), ("masks", POINTER(ControlImage)), ("masks_count", c_size_t),
                ("embeds", POINTER(c_float)), ("embeds_shape", POINTER(c_int64)), ("embeds_rank", c_int)]


class Inputs(ctypes.Structure):
    _fields_ = [("width", c_int), ("height", c_int), ("init_rgb", c_void_p), ("mask", c_void_p), ("initial_noise", c_void_p),
                ("initial_noise_count", c_size_t), ("init_latents", c_void_p), ("init_latents_count", c_size_t),
                ("depth_width", c_int), ("depth_height", c_int), ("depth", c_void_p),
                ("control_images", POINTER(ControlImage)), ("control_images_count", c_size_t), ("control_images_each", c_size_t),
                ("control_masks", POINTER(ControlImage)), ("control_masks_count", c_size_t),
                ("ip_images", POINTER(IpImage)), ("ip_images_count", c_size_t)]


ProgressFn = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int, c_int, c_double)
PreviewFn = CFUNCTYPE(None, c_void_p, c_int, c_int, c_int, c_int, c_int, POINTER(c_uint8), c_double)


class Callbacks(ctypes.Structure):
    _fields_ = [("progress", ProgressFn), ("user", c_void_p), ("cancel", POINTER(c_int)), ("preview", PreviewFn)]


def _library_candidates() -> list[str]:
    named = os.environ.get("ROCM_SD_LIBRARY")
    if named:
        return [named]
    package = Path(__file__).resolve().parent
    found = [package / "lib" / "librocm_sd.so"]
    torch_library = os.environ.get("ROCM_SD_TORCH_LIBRARY")
    if torch_library:
        found += [Path(torch_library).parent / "librocm_sd.so", Path(torch_library).parent.parent / "librocm_sd.so"]
    return [str(path) for path in found if path.is_file()] + ["librocm_sd.so", "librocm_sd.so.0.1"]


def _check_abi(library: ctypes.CDLL, path: str) -> None:
    """Raises ImportError for a library whose structs are not those of this file: it would read them as something else."""
    try:
        library.rocm_sd_version.restype = c_char_p
        version = library.rocm_sd_version().decode()
    except AttributeError:
        raise ImportError(f"{path} is no rocm-sd library: it has no rocm_sd_version()") from None
    found = getattr(library, "rocm_sd_abi_version", None)
    number = found() if found is not None else 1  # the first libraries did not say
    if number == ABI:
        return
    what = "an older" if number < ABI else "a newer"
    raise ImportError(f"{path} is {what} librocm_sd.so than this rocm_sd_ops was made for: its C interface has number {number} (version "
                      f"{version}), expected {ABI}; install both from one version, or name a fitting library in ROCM_SD_LIBRARY")


def open_library(path: str) -> ctypes.CDLL:
    """The library in this file, its functions with their types. Raises OSError for a file that cannot be loaded, ImportError for one
    whose C interface is another version's."""
    library = ctypes.CDLL(path)
    _check_abi(library, path)
    library.rocm_sd_version.restype = library.rocm_sd_last_error.restype = c_char_p
    library.rocm_sd_create.argtypes = [POINTER(Option), POINTER(Callbacks), POINTER(c_void_p)]
    library.rocm_sd_free.argtypes = [c_void_p]
    library.rocm_sd_plan.argtypes = [c_void_p, POINTER(Option), POINTER(c_uint64)]
    library.rocm_sd_create_live.argtypes = [POINTER(Option), POINTER(Tensor), c_size_t, POINTER(Callbacks), POINTER(c_void_p)]
    library.rocm_sd_generate_from.argtypes = [c_void_p, POINTER(Option), POINTER(Inputs), POINTER(Callbacks),
                                              POINTER(POINTER(Result))]
    library.rocm_sd_result_free.argtypes = [POINTER(Result)]
    library.rocm_sd_drawers.argtypes = [c_void_p]
    library.rocm_sd_upscaler_create.argtypes = [POINTER(Option), POINTER(c_void_p)]
    library.rocm_sd_upscaler_free.argtypes = [c_void_p]
    library.rocm_sd_upscale.argtypes = [c_void_p, POINTER(Option), c_int, c_int, c_void_p, POINTER(Callbacks), POINTER(POINTER(Result))]
    return library


def _load_library() -> ctypes.CDLL:
    share = Path(__file__).resolve().parent / "share"
    if share.is_dir():  # the package's own vocabularies
        os.environ.setdefault("ROCM_SD_SHARE", str(share))
    problems = []
    for candidate in _library_candidates():
        try:
            return open_library(candidate)
        except OSError as error:
            problems.append(str(error))
    raise ImportError("the engine's library was not found (ROCM_SD_LIBRARY names it): " + "; ".join(problems))


_library_lock = threading.Lock()
_library: Optional[ctypes.CDLL] = None


def engine_library() -> ctypes.CDLL:
    """The engine's library, loaded at the first call. Raises ImportError where there is none."""
    global _library
    with _library_lock:
        if _library is None:
            _library = _load_library()
        return _library


def engine_version() -> str:
    """The version of the engine's library."""
    return engine_library().rocm_sd_version().decode()


def option_list(values: dict[str, Any]) -> ctypes.Array:
    """Named as the command line's long options, "_" for "-"; None is left out, True is a switch that is on, a list of LoRAs,
    embeddings, regions or values for ControlNets and IP-Adapters is one option each."""
    pairs = []
    for name, value in values.items():
        if value is None or value is False:
            continue
        repeats = (name in ("lora", "embedding", "image_prompt", "image_encoder", "region") or name.startswith(("control", "ip_"))) and isinstance(value, (list, tuple))
        for one in value if repeats else [value]:
            text = "true" if one is True else ",".join(map(str, one)) if isinstance(one, (list, tuple)) else str(one)
            pairs.append((name.replace("_", "-").encode(), text.encode()))
    array = (Option * (len(pairs) + 1))()
    for slot, pair in zip(array, pairs):
        slot.name, slot.value = pair
    return array
