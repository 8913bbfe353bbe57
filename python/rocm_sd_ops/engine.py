"""ROCmOptimizedPipeline: the C++ engine behind a call like Diffusers'. It needs librocm_sd.so (ROCM_SD_LIBRARY names it;
else beside the package's own library, below the build it came from, or where the system's loader looks) and no PyTorch to
draw: pictures are numpy arrays, which torch.from_numpy takes without a copy.

The engine is reached through its C interface with ctypes, so that one package serves every CPython and no compiler meets Python's
own headers; callbacks, live weights, pictures and noise pass as pointers."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import threading
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint8, c_uint64, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np

Progress = Callable[[str, int, int, float], Any]


ABI = 2  # of the structs below: ROCM_SD_ABI_VERSION of include/rocm_sd/rocm_sd.h


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
    _fields_ = [("width", c_int), ("height", c_int), ("rgb", POINTER(c_uint8)), ("seed", c_uint64), ("parameters", c_char_p),
                ("latents", POINTER(c_float)), ("latents_count", c_size_t)]


class _Result(ctypes.Structure):
    _fields_ = [("count", c_size_t), ("pictures", POINTER(_Picture))]


class _Tensor(ctypes.Structure):
    _fields_ = [("component", c_char_p), ("name", c_char_p), ("dtype", c_char_p), ("rank", c_int), ("shape", POINTER(c_int64)),
                ("data", c_void_p)]


class _ControlImage(ctypes.Structure):
    _fields_ = [("width", c_int), ("height", c_int), ("rgb", c_void_p)]


class _Inputs(ctypes.Structure):
    _fields_ = [("width", c_int), ("height", c_int), ("init_rgb", c_void_p), ("mask", c_void_p), ("initial_noise", c_void_p),
                ("initial_noise_count", c_size_t), ("init_latents", c_void_p), ("init_latents_count", c_size_t),
                ("depth_width", c_int), ("depth_height", c_int), ("depth", c_void_p),
                ("control_images", POINTER(_ControlImage)), ("control_images_count", c_size_t)]


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


def _load_library() -> ctypes.CDLL:
    share = Path(__file__).resolve().parent / "share"
    if share.is_dir():  # the package's own vocabularies
        os.environ.setdefault("ROCM_SD_SHARE", str(share))
    problems = []
    for candidate in _library_candidates():
        try:
            library = ctypes.CDLL(candidate)
        except OSError as error:
            problems.append(str(error))
            continue
        _check_abi(library, candidate)
        library.rocm_sd_version.restype = library.rocm_sd_last_error.restype = c_char_p
        library.rocm_sd_create.argtypes = [POINTER(_Option), POINTER(_Callbacks), POINTER(c_void_p)]
        library.rocm_sd_free.argtypes = [c_void_p]
        library.rocm_sd_plan.argtypes = [c_void_p, POINTER(_Option), POINTER(c_uint64)]
        library.rocm_sd_create_live.argtypes = [POINTER(_Option), POINTER(_Tensor), c_size_t, POINTER(_Callbacks),
                                                POINTER(c_void_p)]
        library.rocm_sd_generate_from.argtypes = [c_void_p, POINTER(_Option), POINTER(_Inputs), POINTER(_Callbacks),
                                                  POINTER(POINTER(_Result))]
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


def _options(values: dict[str, Any], more: Sequence[tuple[str, Any]] = ()) -> ctypes.Array:
    """Named as the command line's long options, "_" for "-"; None is left out, True is a switch that is on. more: options that
    may come several times."""
    pairs = [(name.encode(), str(value).encode()) for name, value in more]
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
    """images: as output_type asked; seeds and A1111 parameters of each; latents [B,4,h,w] where asked for (denoising_end,
    keep_latents)."""

    images: Any
    seeds: list[int] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    latents: Optional[np.ndarray] = None


class ROCmOptimizedPipeline:
    """A Stable Diffusion model in the C++ engine.

        pipe = ROCmOptimizedPipeline.from_pretrained("models/demo")
        image = pipe("a smiling cat", num_inference_steps=12, seed=1).images[0]

    One call at a time; other threads wait. Errors are EngineError with the engine's sentence.
    """

    def __init__(self, model: Union[str, Path, None] = None, device: Any = "auto", dtype: str = "auto",
                 progress: Optional[Progress] = None, tensors: Optional[dict[str, dict[str, Any]]] = None,
                 torch_dtype: Any = None, **options: Any) -> None:
        """options: the command line's model options (vae, taesd, vram_budget, offload, mmap, ...). device and torch_dtype also as
        PyTorch has them. tensors: by component ("unet", "vae", ...) and name, numpy or through DLPack on the host, in place of the
        folder's weight files; on the CPU they are used where they lie (row-major ones of the type that is computed in). controlnet: a
        ControlNet's folder or file, or a list of them, for calls that bring a control_image and name none. Without a model nothing is
        loaded: load() does it."""
        self._handle = c_void_p()
        self._library = engine_library()
        self._lock = threading.Lock()
        self._cancel = c_int(0)
        self._folder: Optional[tempfile.TemporaryDirectory] = None
        self._closed = False
        self._controlnet = options.pop("controlnet", None)
        self._settings: dict[str, Any] = {"device": _device_name(device), "dtype": _dtype_name(torch_dtype, dtype), **options}
        self._tensors = tensors or {}
        self._model = model
        if model is not None:
            self._open(progress)

    def _open(self, progress: Optional[Progress] = None) -> None:
        wanted = _options({"model": self._model, **self._settings})
        self._held, live = _live_tensors(self._tensors)
        self._check(*self._run(progress, lambda c: self._library.rocm_sd_create_live(wanted, live, len(live), c,
                                                                                    ctypes.byref(self._handle))))

    def load(self, model: Union[str, Path], progress: Optional[Progress] = None, **options: Any) -> "ROCmOptimizedPipeline":
        """A Diffusers folder or a single .safetensors file in place of what was loaded before; options as in the constructor are
        added to those given there. Returns the pipeline."""
        if "torch_dtype" in options:
            options["dtype"] = _dtype_name(options.pop("torch_dtype"), options.get("dtype", "auto"))
        if "device" in options:
            options["device"] = _device_name(options["device"])
        self.close()
        self._closed, self._model, self._tensors = False, model, {}
        self._settings |= options
        self._open(progress)
        return self

    def to(self, *where: Any, device: Any = None, dtype: Any = None) -> "ROCmOptimizedPipeline":
        """As a Diffusers pipeline's: a device ("cpu", "cuda", "cuda:1", torch.device), a torch.dtype, or both. The model is loaded
        again where that changes something. Returns the pipeline. Raises EngineError for a device that there is not."""
        changed = dict(self._settings)
        for value in (*where, device, dtype):
            if value is None:
                continue
            if str(value).startswith("torch.") and str(value).removeprefix("torch.") in _TYPES:
                changed["dtype"] = _dtype_name(value, "auto")
            else:
                changed["device"] = _device_name(value)
        if changed == self._settings:
            return self
        before, self._settings = self._settings, changed
        if self._handle:
            old, self._handle = self._handle, c_void_p()
            try:
                self._open()
            except BaseException:
                self._handle, self._settings = old, before  # what was loaded stays
                raise
            self._library.rocm_sd_free(old)
        return self

    @classmethod
    def from_pretrained(cls, model: Union[str, Path], **options: Any) -> "ROCmOptimizedPipeline":
        """A Diffusers folder or a single .safetensors file. options: as in the constructor, torch_dtype among them."""
        return cls(model, **options)

    @classmethod
    def from_pipeline(cls, pipe: Any, **options: Any) -> "ROCmOptimizedPipeline":
        """A live Diffusers pipeline's weights: on the CPU the pipeline's own memory wherever the engine computes in its type
        and the kernels take the layout (so later changes of the weights may or may not be seen), else a copy. dtype defaults
        to the pipeline's."""
        import torch

        folder = tempfile.TemporaryDirectory(prefix="rocm-sd-")
        tensors: dict[str, dict[str, Any]] = {}
        for name in ("unet", "vae", "text_encoder", "text_encoder_2"):
            model = getattr(pipe, name, None)
            if model is not None:
                tensors[name] = {k: v.detach().contiguous().cpu() for k, v in model.state_dict().items() if v.is_floating_point()}
        _write_configs(pipe, Path(folder.name))
        dtype = {torch.float32: "f32", torch.bfloat16: "bf16"}.get(pipe.unet.dtype, "auto")
        try:
            made = cls(folder.name, **({"tensors": tensors, "dtype": dtype} | options))
        except BaseException:
            folder.cleanup()
            raise
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
            self._check_open()
            self._check(self._library.rocm_sd_plan(self._handle, wanted, ctypes.byref(total)), None)
        return total.value

    def __call__(self, prompt: str, negative_prompt: Optional[str] = None, height: Optional[int] = None, width: Optional[int] = None,
                 num_inference_steps: int = 20, guidance_scale: float = 7.0, num_images_per_prompt: int = 1,
                 seed: int = -1, image: Any = None, mask_image: Any = None, strength: float = 0.75,
                 initial_noise: Any = None, init_latents: Any = None, depth_map: Any = None, output_type: str = "pil",
                 callback: Optional[Progress] = None, generator: Any = None, control_image: Any = None, controlnet: Any = None,
                 controlnet_conditioning_scale: Any = None, control_guidance_start: Any = None, control_guidance_end: Any = None,
                 guess_mode: bool = False, control_preprocess: Any = None, control_resize: Any = None,
                 **options: Any) -> EngineOutput:
        """Draws. image and mask_image: a path, a PIL picture, or [H,W,3] (mask [H,W]) uint8, or float in 0..1, as numpy or
        through DLPack. initial_noise: [B,4,height/8,width/8] standard normal in place of the seed's. init_latents: [B,4,height/8,width/8]
        in place of an image, with denoising_start as another pipeline's denoising_end left them. depth_map: grey [H,W] for depth
        models. output_type: "pil", "np" (uint8 [B,H,W,3]) or "pt" (a tensor on the same memory). seed: of the first
        picture, -1 for a random one. generator: a torch.Generator in place of the seed; a fresh one draws what Diffusers draws with it (its
        seed and noise), and each call takes a number from it, so that the next call draws another picture. callback(stage, step, total, seconds): a true result cancels; an exception in it does,
        too, and is raised here. control_image: what the ControlNets see, a picture as `image` for each, or a list; controlnet: their
        folders or files, by default the constructor's; controlnet_conditioning_scale, control_guidance_start, control_guidance_end and
        guess_mode as in Diffusers, control_preprocess and control_resize as on the command line, each one value for all or a list.
        options: the command line's (sampler, schedule, clip_skip, ...)."""
        if output_type not in ("pil", "np", "pt"):
            raise ValueError(f"output_type {output_type!r}: expected pil, np or pt")
        if controlnet is None and control_image is not None:
            controlnet = self._controlnet
        controls, control_images = _controls(controlnet, control_image, {
            "control-strength": controlnet_conditioning_scale, "control-start": control_guidance_start,
            "control-end": control_guidance_end, "control-mode": "guess" if guess_mode else None,
            "control-preprocess": control_preprocess, "control-resize": control_resize})
        inputs, held = _inputs(image, mask_image, initial_noise, init_latents, depth_map, control_images)
        with self._lock:
            self._check_open()
            if generator is not None:
                seed, rng = _seed_of(generator)
                options = {"rng": rng} | options
            wanted = _options({
                "prompt": prompt, "negative_prompt": negative_prompt, "width": width, "height": height,
                "steps": num_inference_steps, "cfg_scale": guidance_scale, "batch": num_images_per_prompt, "seed": seed,
                "init_image": _path(image), "mask": _path(mask_image),
                "depth": _path(depth_map), **(dict(mask_downscale="nearest", mask_blend="latents") if mask_image is not None else {}),
                "strength": strength if image is not None or init_latents is not None else None, **options}, controls)
            result = POINTER(_Result)()
            self._cancel.value = 0
            status, error = self._run(callback, lambda c: self._library.rocm_sd_generate_from(self._handle, wanted, ctypes.byref(inputs),
                                                                                              c, ctypes.byref(result)))
            del held
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

    def _check_open(self) -> None:
        if self._handle:
            return
        raise EngineError(2, "the pipeline was closed" if self._closed else
                          "no model is loaded: ROCmOptimizedPipeline.from_pretrained(PATH), or load(PATH) of this one")

    def _check(self, status: int, error: Optional[BaseException]) -> None:
        if status == 0:
            return
        message = self._library.rocm_sd_last_error().decode()
        if error is not None:
            raise error
        raise (Cancelled if status == 6 else EngineError)(status, message)

    def close(self) -> None:
        """Gives the memory back; load() makes the object usable again."""
        self._closed = True
        handle, self._handle = getattr(self, "_handle", None), c_void_p()
        if handle:
            self._library.rocm_sd_free(handle)
        folder, self._folder = getattr(self, "_folder", None), None
        if folder is not None:
            folder.cleanup()

    def __enter__(self) -> "ROCmOptimizedPipeline":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _device_name(device: Any) -> str:
    """The engine's name of a device as PyTorch names it: on ROCm "cuda" is AMD's."""
    name = str(device)
    torch = sys.modules.get("torch")
    if (name == "cuda" or name.startswith("cuda:")) and torch is not None and torch.version.hip:
        return "hip" + name.removeprefix("cuda")
    return name


def _dtype_name(torch_dtype: Any, dtype: str) -> str:
    """The engine's name of a torch.dtype; dtype where there is none. Raises ValueError for a type that it does not compute in."""
    if torch_dtype is None:
        return dtype
    kind = str(torch_dtype).removeprefix("torch.")
    if kind not in _TYPES and kind != "auto":
        raise ValueError(f"torch_dtype {torch_dtype}: expected torch.float32, torch.float16 or torch.bfloat16")
    return _TYPES[kind].decode().lower() if kind in _TYPES else "auto"


def _seed_of(generator: Any) -> tuple[int, str]:
    """The seed that a torch.Generator stands for, and whose noise. A fresh generator's own seed, else a number drawn from it."""
    import torch

    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator: expected a torch.Generator, got {type(generator).__name__}; for several pictures give one, whose "
                        "seed is the first picture's")
    seed = generator.initial_seed()
    fresh = torch.Generator(generator.device).manual_seed(seed)
    is_fresh = torch.equal(generator.get_state(), fresh.get_state())
    drawn = int(torch.randint(2 ** 53, (), generator=generator, device=generator.device))
    return (seed if is_fresh else drawn), ("cpu" if generator.device.type == "cpu" else "gpu")


def _path(picture: Any) -> Optional[str]:
    return os.fspath(picture) if isinstance(picture, (str, os.PathLike)) else None


def _array(values: Any, name: str) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values
    if not hasattr(values, "__dlpack__"):
        raise TypeError(f"{name}: expected a numpy array or something with __dlpack__, got {type(values).__name__}")
    return np.from_dlpack(values)


def _bytes_of(picture: Any, name: str, channels: int) -> Optional[np.ndarray]:
    """A picture in memory as uint8 [H,W,3], or [H,W] for one channel; None for paths."""
    if picture is None or _path(picture) is not None:
        return None
    if hasattr(picture, "convert"):  # PIL
        return np.ascontiguousarray(picture.convert("RGB" if channels == 3 else "L"))
    values = _array(picture, name)
    if np.issubdtype(values.dtype, np.floating):
        values = np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
    if values.dtype != np.uint8 or values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (1, 3, 4)):
        raise ValueError(f"{name}: expected [H,W,3] or [H,W] of uint8 or float, got {values.dtype}{list(values.shape)}")
    if values.ndim == 3:
        values = values[..., :3] if channels == 3 and values.shape[2] > 1 else values[..., 0]
    if channels == 3 and values.ndim == 2:
        values = np.repeat(values[..., None], 3, axis=2)
    return np.ascontiguousarray(values)


def _controls(models: Any, images: Any, values: dict[str, Any]) -> tuple[list[tuple[str, Any]], list[Any]]:
    """The options of ControlNets in the engine's order, and the pictures that lie in memory. Raises ValueError where there are more
    values than models."""
    def each(value: Any) -> list:
        return list(value) if isinstance(value, (list, tuple)) else [value]

    names = [] if models is None else [os.fspath(model) for model in each(models)]
    given = {name: value for name, value in values.items() if value is not None}
    if not names and (images is not None or given):
        wanted = ", ".join((["control_image"] if images is not None else []) + [name.replace("-", "_") for name in given])
        raise ValueError(f"{wanted}: there is no ControlNet: name one with controlnet=, in this call or when the pipeline is made")
    pictures = [] if images is None else each(images)
    options: list[tuple[str, Any]] = [("control", name) for name in names]
    for name, value in given.items():
        listed = each(value) if isinstance(value, (list, tuple)) else [value] * len(names)
        if len(listed) != len(names):
            raise ValueError(f"{name.replace('-', '_')}: expected one value, or {len(names)}, one for each ControlNet, got {len(listed)}")
        options += [(name, one) for one in listed]
    if len(pictures) not in (0, len(names)):
        raise ValueError(f"control_image: expected {len(names)}, one for each ControlNet, got {len(pictures)}")
    files = [_path(picture) for picture in pictures]
    if any(file is not None for file in files):
        if not all(file is not None for file in files):  # the engine counts files and pictures in memory apart
            from PIL import Image

            pictures = [picture if file is None else Image.open(file) for picture, file in zip(pictures, files)]
        else:
            return options + [("control-image", file) for file in files], []
    return options, pictures


def _inputs(image: Any, mask: Any, noise: Any, latents: Any = None, depth: Any = None,
            controls: Sequence[Any] = ()) -> tuple[_Inputs, list[np.ndarray]]:
    """What the engine takes from memory, and the arrays that must live as long."""
    rgb, grey = _bytes_of(image, "image", 3), _bytes_of(mask, "mask_image", 1)
    made = _Inputs()
    held: list[np.ndarray] = []
    for array, field_name in ((rgb, "init_rgb"), (grey, "mask")):
        if array is None:
            continue
        if held and held[0].shape[:2] != array.shape[:2]:
            raise ValueError(f"mask_image {list(array.shape[:2])}: expected the image's size {list(held[0].shape[:2])}")
        setattr(made, field_name, array.ctypes.data)
        made.height, made.width = array.shape[:2]
        held.append(array)
    for floats, field_name in ((noise, "initial_noise"), (latents, "init_latents")):
        if floats is None:
            continue
        values = np.ascontiguousarray(_array(floats, field_name), dtype=np.float32)
        setattr(made, field_name, values.ctypes.data)
        setattr(made, field_name + "_count", values.size)
        held.append(values)
    near = _bytes_of(depth, "depth_map", 1)
    if near is not None:
        made.depth, (made.depth_height, made.depth_width) = near.ctypes.data, near.shape
        held.append(near)
    seen = [_bytes_of(picture, "control_image", 3) for picture in controls]
    if seen:
        made.control_images = (_ControlImage * len(seen))(*[_ControlImage(p.shape[1], p.shape[0], p.ctypes.data) for p in seen])
        made.control_images_count = len(seen)
        held += seen
    return made, held


_TYPES = {"float32": b"F32", "float16": b"F16", "bfloat16": b"BF16"}


def _live_tensors(components: dict[str, dict[str, Any]]) -> tuple[list[Any], ctypes.Array]:
    """The C structs of these tensors, and what must live as long as they do."""
    held: list[Any] = []
    rows = []
    for component, tensors in components.items():
        for name, tensor in tensors.items():
            kind = str(tensor.dtype).removeprefix("torch.")
            if kind not in _TYPES:
                raise ValueError(f"{component} {name}: {kind}: expected float32, float16 or bfloat16")
            if hasattr(tensor, "data_ptr"):  # a torch tensor: numpy has no bfloat16
                if tensor.device.type != "cpu" or not tensor.is_contiguous():
                    raise ValueError(f"{component} {name}: expected a contiguous tensor on the CPU")
                data = tensor.data_ptr()
            else:
                tensor = _array(tensor, f"{component} {name}")
                if not tensor.flags.c_contiguous:
                    raise ValueError(f"{component} {name}: expected a row-major array")
                data = tensor.ctypes.data
            shape = (c_int64 * max(1, len(tensor.shape)))(*tensor.shape)
            held.append((tensor, shape))
            rows.append(_Tensor(component.encode(), name.encode(), _TYPES[kind], len(tensor.shape), shape, data))
    return held, (_Tensor * len(rows))(*rows)


def _write_configs(pipe: Any, folder: Path) -> None:
    """A Diffusers folder without its weights."""
    pipe.save_config(folder)
    for name in ("unet", "vae", "scheduler"):
        if getattr(pipe, name, None) is not None:
            getattr(pipe, name).save_config(folder / name)
    for name in ("text_encoder", "text_encoder_2"):
        model = getattr(pipe, name, None)
        if model is None:
            continue
        config = model.config
        config.architectures = config.architectures or [type(model).__name__]
        config.save_pretrained(folder / name)
        tokenizer = getattr(pipe, name.replace("text_encoder", "tokenizer"))
        tokenizer.save_pretrained(folder / name.replace("text_encoder", "tokenizer"))


def _output(result: _Result, output_type: str) -> EngineOutput:
    pictures: Sequence[_Picture] = [result.pictures[i] for i in range(result.count)]
    images: Any = np.stack([np.ctypeslib.as_array(p.rgb, (p.height, p.width, 3)) for p in pictures])  # a copy
    if output_type == "pil":
        from PIL import Image

        images = [Image.fromarray(picture) for picture in images]
    elif output_type == "pt":
        import torch

        images = torch.from_numpy(images)
    latents = None
    if pictures and pictures[0].latents_count:
        height, width = pictures[0].height, pictures[0].width
        flat = np.stack([np.ctypeslib.as_array(p.latents, (p.latents_count,)) for p in pictures])  # a copy
        scale = round((4 * height * width / flat.shape[1]) ** 0.5)
        latents = flat.reshape(len(pictures), 4, height // scale, width // scale)
    return EngineOutput(images, [p.seed for p in pictures], [p.parameters.decode() for p in pictures], latents)
