"""ROCmOptimizedPipeline: the C++ engine behind a call like Diffusers'. It needs librocm_sd.so (ROCM_SD_LIBRARY names it;
else beside the package's own library, below the build it came from, or where the system's loader looks) and no PyTorch to
draw: pictures are numpy arrays, which torch.from_numpy takes without a copy."""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int, c_size_t, c_uint8, c_uint64, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np

Progress = Callable[[str, int, int, float], Any]


class EngineError(RuntimeError):
    """The engine's message; status is its exit code (2 wrong use, 3 file or format, 4 no device, 5 out of memory, ...)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Cancelled(EngineError):
    """A callback or cancel() stopped the call."""


class _Option(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class _Picture(ctypes.Structure):
    _fields_ = [("width", c_int), ("height", c_int), ("rgb", POINTER(c_uint8)), ("seed", c_uint64), ("parameters", c_char_p)]


class _Result(ctypes.Structure):
    _fields_ = [("count", c_size_t), ("pictures", POINTER(_Picture))]


_ProgressFn = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int, c_int, c_double)


class _Callbacks(ctypes.Structure):
    _fields_ = [("progress", _ProgressFn), ("user", c_void_p), ("cancel", POINTER(c_int))]


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


def _load_library() -> ctypes.CDLL:
    problems = []
    for candidate in _library_candidates():
        try:
            library = ctypes.CDLL(candidate)
        except OSError as error:
            problems.append(str(error))
            continue
        library.rocm_sd_version.restype = library.rocm_sd_last_error.restype = c_char_p
        library.rocm_sd_create.argtypes = [POINTER(_Option), POINTER(_Callbacks), POINTER(c_void_p)]
        library.rocm_sd_free.argtypes = [c_void_p]
        library.rocm_sd_plan.argtypes = [c_void_p, POINTER(_Option), POINTER(c_uint64)]
        library.rocm_sd_generate.argtypes = [c_void_p, POINTER(_Option), POINTER(_Callbacks), POINTER(POINTER(_Result))]
        library.rocm_sd_result_free.argtypes = [POINTER(_Result)]
        return library
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


def _options(values: dict[str, Any]) -> ctypes.Array:
    """Named as the command line's long options, "_" for "-"; None is left out, True is a switch that is on."""
    pairs = []
    for name, value in values.items():
        if value is None or value is False:
            continue
        text = "true" if value is True else ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        pairs.append((name.replace("_", "-").encode(), text.encode()))
    array = (_Option * (len(pairs) + 1))()
    for slot, pair in zip(array, pairs):
        slot.name, slot.value = pair
    return array


@dataclass
class EngineOutput:
    """images: as output_type asked; seeds and A1111 parameters of each."""

    images: Any
    seeds: list[int] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)


class ROCmOptimizedPipeline:
    """A Stable Diffusion model in the C++ engine.

        pipe = ROCmOptimizedPipeline.from_pretrained("models/demo")
        image = pipe("a smiling cat", num_inference_steps=12, seed=1).images[0]

    One call at a time; other threads wait. Errors are EngineError with the engine's sentence.
    """

    def __init__(self, model: Union[str, Path], device: str = "auto", dtype: str = "auto",
                 progress: Optional[Progress] = None, **options: Any) -> None:
        """options: the command line's model options (vae, taesd, vram_budget, offload, mmap, ...)."""
        self._handle = c_void_p()
        self._library = engine_library()
        self._lock = threading.Lock()
        self._cancel = c_int(0)
        self._folder: Optional[tempfile.TemporaryDirectory] = None
        wanted = _options({"model": model, "device": device, "dtype": dtype, **options})
        self._check(*self._run(progress, lambda c: self._library.rocm_sd_create(wanted, c, ctypes.byref(self._handle))))

    @classmethod
    def from_pretrained(cls, model: Union[str, Path], **options: Any) -> "ROCmOptimizedPipeline":
        """A Diffusers folder or a single .safetensors file."""
        return cls(model, **options)

    @classmethod
    def from_pipeline(cls, pipe: Any, **options: Any) -> "ROCmOptimizedPipeline":
        """A live Diffusers pipeline's weights, as they are now. They pass through a temporary folder, which stays for as
        long as the new pipeline, and are mapped from there."""
        folder = tempfile.TemporaryDirectory(prefix="rocm-sd-")
        pipe.save_pretrained(folder.name, safe_serialization=True)
        made = cls(folder.name, **({"mmap": True} | options))
        made._folder = folder
        return made

    def cancel(self) -> None:
        """From another thread: stops the running call within a step; it raises Cancelled."""
        self._cancel.value = 1

    def plan(self, width: int = 0, height: int = 0, batch: int = 1, **options: Any) -> int:
        """Bytes that such a call will take in all: weights, arena and buffers."""
        total = c_uint64()
        wanted = _options({"prompt": "", "width": width or None, "height": height or None, "batch": batch, **options})
        with self._lock:
            self._check(self._library.rocm_sd_plan(self._handle, wanted, ctypes.byref(total)), None)
        return total.value

    def __call__(self, prompt: str, negative_prompt: str = "", height: Optional[int] = None, width: Optional[int] = None,
                 num_inference_steps: int = 20, guidance_scale: float = 7.0, num_images_per_prompt: int = 1,
                 seed: int = -1, image: Any = None, mask_image: Any = None, strength: float = 0.75,
                 output_type: str = "pil", callback: Optional[Progress] = None, **options: Any) -> EngineOutput:
        """Draws. image and mask_image: a path, a PIL picture, or [H,W,3] (mask [H,W]) uint8, or float in 0..1, as numpy or
        through DLPack. output_type: "pil", "np" (uint8 [B,H,W,3]) or "pt" (a tensor on the same memory). seed: of the first
        picture, -1 for a random one. callback(stage, step, total, seconds): a true result cancels; an exception in it does,
        too, and is raised here. options: the command line's (sampler, schedule, clip_skip, ...)."""
        if output_type not in ("pil", "np", "pt"):
            raise ValueError(f"output_type {output_type!r}: expected pil, np or pt")
        with tempfile.TemporaryDirectory(prefix="rocm-sd-") as folder, self._lock:
            wanted = _options({
                "prompt": prompt, "negative_prompt": negative_prompt, "width": width, "height": height,
                "steps": num_inference_steps, "cfg_scale": guidance_scale, "batch": num_images_per_prompt, "seed": seed,
                "init_image": _picture_file(image, folder, "image"), "mask": _picture_file(mask_image, folder, "mask"),
                "strength": strength if image is not None else None, **options})
            result = POINTER(_Result)()
            self._cancel.value = 0
            status, error = self._run(callback, lambda c: self._library.rocm_sd_generate(self._handle, wanted, c,
                                                                                         ctypes.byref(result)))
            self._check(status, error)
            try:
                return _output(result.contents, output_type)
            finally:
                self._library.rocm_sd_result_free(result)

    def _run(self, callback: Optional[Progress], call: Callable) -> tuple[int, Optional[BaseException]]:
        raised: list[BaseException] = []

        def progress(_user: Any, stage: bytes, step: int, total: int, seconds: float) -> int:
            try:
                return 1 if callback is not None and callback(stage.decode(), step, total, seconds) else 0
            except BaseException as error:  # noqa: BLE001 (raised again once the engine has returned)
                raised.append(error)
                return 1

        function = _ProgressFn(progress)
        callbacks = _Callbacks(function, None, ctypes.pointer(self._cancel))
        return call(ctypes.byref(callbacks)), raised[0] if raised else None

    def _check(self, status: int, error: Optional[BaseException]) -> None:
        if status == 0:
            return
        message = self._library.rocm_sd_last_error().decode()
        if error is not None:
            raise error
        raise (Cancelled if status == 6 else EngineError)(status, message)

    def close(self) -> None:
        """Gives the memory back; the object is of no use afterwards."""
        handle, self._handle = getattr(self, "_handle", None), c_void_p()
        if handle:
            self._library.rocm_sd_free(handle)
        if getattr(self, "_folder", None) is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> "ROCmOptimizedPipeline":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _picture_file(picture: Any, folder: str, name: str) -> Optional[str]:
    if picture is None or isinstance(picture, (str, os.PathLike)):
        return None if picture is None else os.fspath(picture)
    from PIL import Image

    if not isinstance(picture, Image.Image):
        values = picture if isinstance(picture, np.ndarray) else np.from_dlpack(picture)
        if np.issubdtype(values.dtype, np.floating):
            values = np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
        if values.dtype != np.uint8 or values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (1, 3, 4)):
            raise ValueError(f"{name}: expected [H,W,3] or [H,W] of uint8 or float, got {values.dtype}{list(values.shape)}")
        picture = Image.fromarray(np.ascontiguousarray(values[..., 0] if values.shape[2:] == (1,) else values))
    path = os.path.join(folder, name + ".png")
    picture.save(path)
    return path


def _output(result: _Result, output_type: str) -> EngineOutput:
    pictures: Sequence[_Picture] = [result.pictures[i] for i in range(result.count)]
    arrays = [np.ctypeslib.as_array(p.rgb, (p.height, p.width, 3)).copy() for p in pictures]
    images: Any = np.stack(arrays)
    if output_type == "pil":
        from PIL import Image

        images = [Image.fromarray(a) for a in arrays]
    elif output_type == "pt":
        import torch

        images = torch.from_numpy(images)
    return EngineOutput(images, [p.seed for p in pictures], [p.parameters.decode() for p in pictures])
