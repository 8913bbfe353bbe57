"""Between Python's values and the engine's: names of devices and types, pictures, noise, live weights, and what a call drew."""

from __future__ import annotations

import os
import sys
from ctypes import Array, c_int64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Sequence

import numpy as np

from ._engine_library import ControlImage, Inputs, Picture, Result, Tensor

TYPES = {"float32": b"F32", "float16": b"F16", "bfloat16": b"BF16"}


def listed(value: Any) -> list:
    """What an option that may be given several times was given: one value or a list."""
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def device_name(device: Any) -> str:
    """The engine's name of a device as PyTorch names it: on ROCm "cuda" is AMD's."""
    name = str(device)
    torch = sys.modules.get("torch")
    if (name == "cuda" or name.startswith("cuda:")) and torch is not None and torch.version.hip:
        return "hip" + name.removeprefix("cuda")
    return name


def dtype_name(torch_dtype: Any, dtype: str) -> str:
    """The engine's name of a torch.dtype; dtype where there is none. Raises ValueError for a type that it does not compute in."""
    if torch_dtype is None:
        return dtype
    kind = str(torch_dtype).removeprefix("torch.")
    if kind not in TYPES and kind != "auto":
        raise ValueError(f"torch_dtype {torch_dtype}: expected torch.float32, torch.float16 or torch.bfloat16")
    return TYPES[kind].decode().lower() if kind in TYPES else "auto"


def seed_of(generator: Any) -> tuple[int, str]:
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


def path_of(picture: Any) -> Optional[str]:
    return os.fspath(picture) if isinstance(picture, (str, os.PathLike)) else None


def array_of(values: Any, name: str) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values
    if not hasattr(values, "__dlpack__"):
        raise TypeError(f"{name}: expected a numpy array or something with __dlpack__, got {type(values).__name__}")
    return np.from_dlpack(values)


def bytes_of(picture: Any, name: str, channels: int) -> Optional[np.ndarray]:
    """A picture in memory as uint8 [H,W,3], or [H,W] for one channel; None for paths."""
    if picture is None or path_of(picture) is not None:
        return None
    if hasattr(picture, "convert"):  # PIL
        if picture.mode.startswith("I"):  # 16 bits, which convert() would clip
            picture = np.rint(np.clip(np.asarray(picture), 0, 65535) / 257).astype(np.uint8)
        else:
            picture = np.asarray(picture.convert("RGB" if channels == 3 else "L"))
    values = array_of(picture, name)
    if np.issubdtype(values.dtype, np.floating):
        values = np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
    if values.dtype != np.uint8 or values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (1, 3, 4)):
        raise ValueError(f"{name}: expected [H,W,3] or [H,W] of uint8 or float, got {values.dtype}{list(values.shape)}")
    if values.ndim == 3:
        values = values[..., :3] if channels == 3 and values.shape[2] > 1 else values[..., 0]
    if channels == 3 and values.ndim == 2:
        values = np.repeat(values[..., None], 3, axis=2)
    return np.ascontiguousarray(values)


def controls_of(models: Any, images: Any, values: dict[str, Any]) -> tuple[dict[str, list], list[Any]]:
    """The options of ControlNets, a list for each, and the pictures that lie in memory. values: by option, one for all or a list; None is
    left out. Raises ValueError where there are more pictures or values than models, or fewer."""
    names = [os.fspath(model) for model in listed(models)]
    given = {name: value for name, value in values.items() if value is not None}
    if not names and (images is not None or given):
        wanted = ", ".join((["control_image"] if images is not None else []) + list(given))
        raise ValueError(f"{wanted}: there is no ControlNet: name one with controlnet=, in this call or when the pipeline is made")
    options: dict[str, list] = {"control": names} if names else {}
    for name, value in given.items():
        options[name] = list(value) if isinstance(value, (list, tuple)) else [value] * len(names)
    pictures = listed(images)
    for name, held in [*options.items(), ("control_image", pictures or names)]:
        if len(held) != len(names):
            raise ValueError(f"{name}: expected {len(names)}, one for each ControlNet, got {len(held)}")
    counts = {len(one) for one in pictures if isinstance(one, (list, tuple))}
    if counts:  # a picture for each image of the batch
        if len(counts) > 1 or not all(isinstance(one, (list, tuple)) for one in pictures):
            raise ValueError("control_image: expected one picture for each image of the batch and ControlNet, got lists of other lengths")
        return options, [opened(one) for several in pictures for one in several]
    files = [path_of(picture) for picture in pictures]
    if files and all(file is not None for file in files):
        return options | {"control_image": files}, []
    if any(file is not None for file in files):  # the engine counts files and pictures in memory apart
        pictures = [opened(picture) for picture in pictures]
    return options, pictures


def opened(picture: Any) -> Any:
    from PIL import Image

    file = path_of(picture)
    return picture if file is None else Image.open(file)


def inputs_of(image: Any, mask: Any, noise: Any, latents: Any = None, depth: Any = None,
              controls: Sequence[Any] = (), control_masks: Sequence[Any] = (),
              control_count: int = 0) -> tuple[Inputs, list[np.ndarray]]:
    """What the engine takes from memory, and the arrays that must live as long."""
    rgb, grey = bytes_of(image, "image", 3), bytes_of(mask, "mask_image", 1)
    made = Inputs()
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
        values = np.ascontiguousarray(array_of(floats, field_name), dtype=np.float32)
        setattr(made, field_name, values.ctypes.data)
        setattr(made, field_name + "_count", values.size)
        held.append(values)
    near = bytes_of(depth, "depth_map", 1)
    if near is not None:
        made.depth, (made.depth_height, made.depth_width) = near.ctypes.data, near.shape
        held.append(near)
    seen = [array for picture in controls if (array := bytes_of(picture, "control_image", 3)) is not None]
    if seen:
        made.control_images = (ControlImage * len(seen))(*[ControlImage(p.shape[1], p.shape[0], p.ctypes.data) for p in seen])
        made.control_images_count = len(seen)
        made.control_images_each = max(1, len(seen) // max(1, control_count))
        held += seen
    if control_masks:
        if len(control_masks) != control_count:
            raise ValueError(f"control_mask: expected {control_count}, one for each ControlNet (or None), got {len(control_masks)}")
        masks = [None if mask is None else bytes_of(opened(mask), "control_mask", 3) for mask in control_masks]
        made.control_masks = (ControlImage * len(masks))(*[ControlImage(0, 0, None) if mask is None else ControlImage(
            mask.shape[1], mask.shape[0], mask.ctypes.data) for mask in masks])
        made.control_masks_count = len(masks)
        held += [mask for mask in masks if mask is not None]
    return made, held


def live_tensors(components: dict[str, dict[str, Any]]) -> tuple[list[Any], Array]:
    """The C structs of these tensors, and what must live as long as they do."""
    held: list[Any] = []
    rows = []
    for component, tensors in components.items():
        for name, tensor in tensors.items():
            kind = str(tensor.dtype).removeprefix("torch.")
            if kind not in TYPES:
                raise ValueError(f"{component} {name}: {kind}: expected float32, float16 or bfloat16")
            if hasattr(tensor, "data_ptr"):  # a torch tensor: numpy has no bfloat16
                if tensor.device.type != "cpu" or not tensor.is_contiguous():
                    raise ValueError(f"{component} {name}: expected a contiguous tensor on the CPU")
                data = tensor.data_ptr()
            else:
                tensor = array_of(tensor, f"{component} {name}")
                if not tensor.flags.c_contiguous:
                    raise ValueError(f"{component} {name}: expected a row-major array")
                data = tensor.ctypes.data
            shape = (c_int64 * max(1, len(tensor.shape)))(*tensor.shape)
            held.append((tensor, shape))
            rows.append(Tensor(component.encode(), name.encode(), TYPES[kind], len(tensor.shape), shape, data))
    return held, (Tensor * len(rows))(*rows)


def write_configs(pipe: Any, folder: Path) -> None:
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


@dataclass
class EngineOutput:
    """images: as output_type asked; seeds and A1111 parameters of each; latents [B,4,h,w] where asked for (denoising_end,
    keep_latents)."""

    images: Any
    seeds: list[int] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    latents: Optional[np.ndarray] = None


def output_of(result: Result, output_type: str) -> EngineOutput:
    pictures: Sequence[Picture] = [result.pictures[i] for i in range(result.count)]
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
