"""Random ControlNets for tests: in Diffusers' folder and single file, and in LDM's single file."""

from __future__ import annotations

from pathlib import Path

import diffusers
import ldm_names
import numpy as np
import tiny_models
import torch
from PIL import Image
from safetensors.torch import load_file, save_file


def control_folder(model: Path, folder: Path, seed: int = 1, scale: float = 0.3, **options) -> Path:
    """A ControlNet for the model's UNet. scale: of its last convolutions, so that a picture stays one."""
    unet = diffusers.UNet2DConditionModel.from_config(diffusers.UNet2DConditionModel.load_config(model / "unet"))
    control = tiny_models.controlnet(unet, seed, **options)
    with torch.no_grad():
        for layer in (*control.controlnet_down_blocks, control.controlnet_mid_block):
            layer.weight.mul_(scale)
    control.save_pretrained(folder)
    return folder


def single_file(folder: Path, path: Path) -> Path:
    save_file(load_file(folder / "diffusion_pytorch_model.safetensors"), path)
    return path


def ldm_file(folder: Path, model: Path, path: Path, prefix: str = "control_model.") -> Path:
    """The same under LDM's names (ControlNet's own training code: cldm.py)."""
    unet = diffusers.UNet2DConditionModel.load_config(model / "unet")
    tensors = load_file(folder / "diffusion_pytorch_model.safetensors")
    hints = sum(name.startswith("controlnet_cond_embedding.blocks.") and name.endswith("weight") for name in tensors)
    out = {}
    for name, value in tensors.items():
        module, _, leaf = name.rpartition(".")
        parts = module.split(".")
        if parts[0] == "controlnet_down_blocks":
            renamed = f"zero_convs.{parts[1]}.0"
        elif parts[0] == "controlnet_mid_block":
            renamed = "middle_block_out.0"
        elif parts[0] == "controlnet_cond_embedding":
            number = {"conv_in": 0, "conv_out": 2 * hints + 2}.get(parts[1])
            renamed = f"input_hint_block.{number if number is not None else 2 * int(parts[2]) + 2}"
        else:
            renamed, _, leaf = ldm_names.unet_name(name, unet).removeprefix("model.diffusion_model.").rpartition(".")
        out[f"{prefix}{renamed}.{leaf}"] = value
    assert len(out) == len(tensors)
    save_file(out, path)
    return path


def drawing(path: Path, width: int, height: int, seed: int = 0) -> Path:
    """Circles and bars, so that resizing and channels matter."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    rng = np.random.default_rng(seed)
    image = np.zeros((height, width, 3))
    for c in range(3):
        for _ in range(3):
            cx, cy, r = rng.random() * width, rng.random() * height, (0.1 + 0.2 * rng.random()) * min(width, height)
            image[..., c] += 200 * ((x - cx) ** 2 + (y - cy) ** 2 < r * r)
        image[..., c] += 55 * (np.sin(x / (3 + 2 * c)) > 0)
    Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(path)
    return path
