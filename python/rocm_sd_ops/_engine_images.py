"""Images as prompts (IP-Adapter): what Diffusers' arguments mean as the engine's options and inputs."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_float, c_int64
from pathlib import Path
from typing import Any, Optional, Sequence

import numpy as np

from ._engine_library import ControlImage, Inputs, IpImage
from ._engine_values import array_of, bytes_of, listed, opened


def adapter_path(folder: Any, subfolder: Optional[str], weight_name: Optional[str]) -> str:
    """The file that load_ip_adapter(folder, subfolder, weight_name) means. Raises ValueError where there is no such file."""
    path = Path(folder)
    if subfolder:
        path /= subfolder
    if weight_name:
        path /= weight_name
    if not path.is_file():
        raise ValueError(f"IP-Adapter: {path}: no such file; expected a folder and weight_name=, or a .safetensors file")
    return os.fspath(path)


def ip_options(files: Sequence[Any], values: dict[str, Any]) -> dict[str, list]:
    """The options of the adapters, a list for each. values: by option, one for all or a list; None is left out."""
    given = {name: value for name, value in values.items() if value is not None}
    if not files:
        if given:
            raise ValueError(f"{', '.join(given)}: there is no IP-Adapter: name one with ip_adapter=, or load_ip_adapter()")
        return {}
    options: dict[str, list] = {"ip_adapter": [os.fspath(file) for file in files]}
    for name, value in given.items():
        options[name] = list(value) if isinstance(value, (list, tuple)) else [value] * len(files)
        if len(options[name]) != len(files):
            raise ValueError(f"{name}: expected {len(files)}, one for each IP-Adapter, got {len(options[name])}")
    return options


def in_a_row(seen: Any) -> tuple[list[Any], int]:
    """An adapter's images in a row, and how many of them one image of the batch sees; 0: all of them, whichever it is."""
    lists = [isinstance(one, (list, tuple)) for one in listed(seen)]
    if not any(lists):
        return listed(seen), 0
    each = len(listed(seen)[0]) if all(lists) else 0
    if each == 0 or any(len(one) != each for one in seen):
        raise ValueError("ip_adapter_image: expected a list of images, or as many in a list for each image of the batch")
    return [image for one in seen for image in one], each


def add_ip_images(inputs: Inputs, count: int, images: Any, embeds: Any, masks: Any) -> list[Any]:
    """Puts what the adapters see into the inputs: for each an image, a list of them, a list with one such list for each image of the batch,
    or embeddings ([2,images,...], those of the negative prompt first, as Diffusers has them, or without these). Returns what must live as
    long."""
    def each(name: str, values: Any) -> list[Any]:
        several = listed(values)
        if several and len(several) != count:
            raise ValueError(f"{name}: expected {count}, one for each IP-Adapter, got {len(several)}")
        return several or [None] * count

    if count == 0:
        if any(value is not None for value in (images, embeds, masks)):
            raise ValueError("ip_adapter_image: there is no IP-Adapter: name one with ip_adapter=, or load_ip_adapter()")
        return []
    held: list[Any] = []
    made = (IpImage * count)()

    def put(slot: Any, field: str, pictures: Any) -> None:
        arrays = [bytes_of(opened(picture), field, 3) for picture in listed(pictures)]
        structs = (ControlImage * len(arrays))(*[ControlImage(a.shape[1], a.shape[0], a.ctypes.data) for a in arrays])
        setattr(slot, field, structs)
        setattr(slot, field + "_count", len(arrays))
        held.extend([arrays, structs])

    for slot, seen, given, where in zip(made, each("ip_adapter_image", images), each("ip_adapter_image_embeds", embeds),
                                        each("ip_adapter_mask", masks)):
        if seen is not None:
            seen, slot.images_each = in_a_row(seen)
            put(slot, "images", seen)
        if where is not None:
            put(slot, "masks", where)
        if given is not None:
            values = np.ascontiguousarray(array_of(given, "ip_adapter_image_embeds"), dtype=np.float32)
            shape = (c_int64 * values.ndim)(*values.shape)
            slot.embeds, slot.embeds_shape, slot.embeds_rank = values.ctypes.data_as(ctypes.POINTER(c_float)), shape, values.ndim
            held.extend([values, shape])
    inputs.ip_images, inputs.ip_images_count = made, count
    held.append(made)
    return held
